"""Fixtures for all tests, such as stand-ins for devices.

On import, this module gives the tests the same environment wherever they run.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from helpers_allocator import MIB, StandInGpu
from helpers_faults import FaultMachine, Stubs
from helpers_nvml import Install, Machine, replace_driver
from helpers_out_of_memory import LimitedGpu
from nvml_standin import OLD_DRIVER, build

from gpuwidget.model.boundary import STRICT_VARIABLE

KEPT_VARIABLES = (
    *("HOME", "USER", "LOGNAME", "PATH", "TMPDIR", "CC", "LD_LIBRARY_PATH"),
    *("PYTEST_", "GPUWIDGET_TEST_", "PLAYWRIGHT_"),
    # pip and other package clients, which some tests run
    *("PIP_", "SSL_CERT_", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "npm_config_"),
    *("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"),
    # libraries that depend on the machine's processor or GPUs
    *("OPENBLAS_", "CUDA_", "NVIDIA_", "NCCL_", "NVSHMEM_", "TORCH_SYMM_MEM_"),
)
"""The beginnings of the names of the variables that tests inherit from the caller's shell."""


def isolate() -> None:
    """Make this process, and the processes that it starts, independent of the shell that started the tests.

    A test that needs another variable, such as TERM, must set it. A program that a script starts in the
    background ignores SIGINT, and a program that nohup starts ignores SIGHUP.
    """
    for name in list(os.environ):
        if not name.startswith(KEPT_VARIABLES):
            del os.environ[name]
    os.environ["LANGUAGE"] = "en"
    # Torch's idle threads would spin, and take the CPUs from the other processes of the tests. Four kernels
    # that each run the quickstart on two CPUs took 38 s with this setting, and 109 s without it.
    os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)


isolate()


def record_stopped_errors() -> Path:
    """Let boundaries of gpuwidget, in this process and in those that it starts, write to a file which errors
    they stop. Return the file's path."""
    number, name = tempfile.mkstemp(prefix="gpuwidget-errors-")
    os.close(number)
    atexit.register(_remove, os.getpid(), name)
    os.environ[STRICT_VARIABLE] = name
    return Path(name)


def _remove(pid: int, name: str) -> None:
    if os.getpid() == pid:
        with suppress(OSError):
            os.unlink(name)


STOPPED_ERRORS = record_stopped_errors()
STRICT = ("unit", "server", "kernel")
"""The folders of tests in which a stopped error fails a test."""


@pytest.fixture(autouse=True)
def _no_stopped_errors(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test during which a boundary stopped an error that nobody would otherwise see. The marker
    ``stops_errors`` is for tests that cause such errors."""
    before = STOPPED_ERRORS.stat().st_size
    yield
    with STOPPED_ERRORS.open("rb") as file:
        file.seek(before)
        found = file.read().decode()
    strict = request.path.relative_to(Path(__file__).parent).parts[0] in STRICT
    if found and strict and request.node.get_closest_marker("stops_errors") is None:
        pytest.fail(f"gpuwidget has stopped an error:\n{found}", pytrace=False)


@pytest.fixture
def no_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let no thread start, as where the number of threads is limited."""

    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        yield


@pytest.fixture
def in_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Set the time zone to UTC."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


@pytest.fixture
def no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the torch that another test has imported."""
    monkeypatch.delitem(sys.modules, "torch", raising=False)


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
