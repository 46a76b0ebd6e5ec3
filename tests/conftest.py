"""For all tests: no choice of the developer's own shell decides what they see; a device that is not there."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from helpers_allocator import StandInGpu

from gpuwidget.sources import SOURCE_VARIABLE

os.environ.pop(SOURCE_VARIABLE, None)


@pytest.fixture
def gpu() -> Iterator[StandInGpu]:
    """A CUDA device in use, as far as torch knows."""
    device = StandInGpu(pytest.importorskip("torch"))
    device.install()
    yield device
    device.remove()
