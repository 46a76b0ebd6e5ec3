"""Fixtures for all tests, such as stand-ins for devices.

This module unsets GPUWIDGET_SOURCE and sets the language to English, so that the developer's settings do not
affect the tests.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers_allocator import MIB, StandInGpu
from helpers_faults import FaultMachine, Stubs
from helpers_nvml import Install, Machine, replace_driver
from helpers_order import longest_first
from helpers_out_of_memory import LimitedGpu
from nvml_standin import OLD_DRIVER, build

from gpuwidget.sources import SOURCE_VARIABLE

os.environ.pop(SOURCE_VARIABLE, None)
os.environ["LANGUAGE"] = "en"
# Torch's idle threads would spin, and take the CPUs from the other processes of the tests. Four kernels that
# each run the quickstart on two CPUs took 38 s with this setting, and 109 s without it.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the test files that take longest first."""
    items[:] = longest_first(items)


@pytest.fixture
def gpu() -> Iterator[StandInGpu]:
    """Return a stand-in for a CUDA device that torch reports as initialized and in use."""
    device = StandInGpu(pytest.importorskip("torch"))
    device.install()
    yield device
    device.remove()


@pytest.fixture
def small_gpu() -> Iterator[LimitedGpu]:
    """Return a stand-in GPU with 64 MiB for the real torch. No other process holds memory on this GPU."""
    made = LimitedGpu(pytest.importorskip("torch"), 64 * MIB)
    made.install()
    yield made
    made.remove()


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile the stand-in for NVML, once per test session, and return its path."""
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture(scope="session")
def old_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile the stand-in for NVML without the functions that a driver of the 470 series lacks, and return
    its path."""
    return build(tmp_path_factory.mktemp("nvml-old"), absent=OLD_DRIVER)


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Return a function that makes this process use the given library as its NVML."""
    with replace_driver(tmp_path, monkeypatch) as put:
        yield put


@pytest.fixture
def machine(install: Install, library: Path) -> Machine:
    """Return a machine whose NVML stand-in reports one H200."""
    return install(library)


@pytest.fixture
def old_machine(install: Install, old_library: Path) -> Machine:
    """Return a machine whose NVML stand-in reports one H200 and lacks the functions that a driver of the 470
    series lacks."""
    return install(old_library)


@pytest.fixture(scope="session")
def stubs(tmp_path_factory: pytest.TempPathFactory) -> Stubs:
    """Compile stubs of CUDA's driver library and of torch's libraries, once per test session."""
    return Stubs(tmp_path_factory.mktemp("stubs"))


@pytest.fixture
def fault_machine(
    tmp_path: Path, stubs: Stubs, library: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[FaultMachine]:
    """Return a simulated machine with one H200 and a working driver, and an environment without packages."""
    machine = FaultMachine(tmp_path, stubs, library, monkeypatch)
    yield machine
    machine.standin.scenario()
