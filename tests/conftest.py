"""Fixtures for all tests, with stand-ins for devices.
GPUWIDGET_SOURCE of the developer's environment is unset."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers_allocator import MIB, StandInGpu
from helpers_nvml import Install, Machine, replace_driver
from helpers_out_of_memory import LimitedGpu
from nvml_standin import OLD_DRIVER, build

from gpuwidget.sources import SOURCE_VARIABLE

os.environ.pop(SOURCE_VARIABLE, None)


@pytest.fixture
def gpu() -> Iterator[StandInGpu]:
    """A stand-in for a CUDA device, which torch reports as initialized and in use."""
    device = StandInGpu(pytest.importorskip("torch"))
    device.install()
    yield device
    device.remove()


@pytest.fixture
def small_gpu() -> Iterator[LimitedGpu]:
    """A stand-in GPU with 64 MiB for the real torch; no other process holds memory on it."""
    made = LimitedGpu(pytest.importorskip("torch"), 64 * MIB)
    made.install()
    yield made
    made.remove()


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stand-in for NVML, compiled once per test session."""
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture(scope="session")
def old_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stand-in for NVML without the functions that a driver of the 470 series lacks."""
    return build(tmp_path_factory.mktemp("nvml-old"), absent=OLD_DRIVER)


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Return a function that makes this process use the given library as its NVML."""
    with replace_driver(tmp_path, monkeypatch) as put:
        yield put


@pytest.fixture
def machine(install: Install, library: Path) -> Machine:
    """A machine whose NVML stand-in reports one H200."""
    return install(library)


@pytest.fixture
def old_machine(install: Install, old_library: Path) -> Machine:
    """A machine whose NVML stand-in reports one H200 and lacks the functions
    that a driver of the 470 series lacks."""
    return install(old_library)
