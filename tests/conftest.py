"""For all tests: no choice of the developer's own shell decides what they see; devices that are not there."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from helpers_allocator import MIB, StandInGpu
from helpers_out_of_memory import LimitedGpu

from gpuwidget.sources import SOURCE_VARIABLE

os.environ.pop(SOURCE_VARIABLE, None)


@pytest.fixture
def gpu() -> Iterator[StandInGpu]:
    """A CUDA device in use, as far as torch knows."""
    device = StandInGpu(pytest.importorskip("torch"))
    device.install()
    yield device
    device.remove()


@pytest.fixture
def small_gpu() -> Iterator[LimitedGpu]:
    """A GPU of 64 MiB under the real torch, in which other programs have nothing."""
    made = LimitedGpu(pytest.importorskip("torch"), 64 * MIB)
    made.install()
    yield made
    made.remove()
