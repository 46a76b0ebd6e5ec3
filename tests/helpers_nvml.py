"""Functions that replace this process's NVML with a stand-in library, and sources that read the stand-in."""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pynvml
import pytest
from nvml_standin import Standin

from gpuwidget.sources.nvml import NvmlSource
from gpuwidget.system import processes

EPOCH = 1_700_000_000.0
GIB = 1024**3
NO_PROCESS = 2**30
"""A process id that no process on this machine has."""
H200_MEMORY = 150_754_820_096
H200_RESERVED = 644_939_776
UUIDS = [f"GPU-00000000-0000-4000-8000-{index:012d}" for index in range(4)]


class ManualClock:
    """A clock whose time a test sets with ``now``.
    A wait does not block, but advances the clock by its timeout."""

    def __init__(self) -> None:
        self.now = 0.0

    def time(self) -> float:
        return EPOCH + self.now

    def monotonic(self) -> float:
        return self.now

    def wait(self, condition: threading.Condition, seconds: float | None) -> None:
        self.now += seconds or 0.0


class Machine:
    """A machine whose NVML is the stand-in, with the sources that a test opens on it."""

    def __init__(self, standin: Standin) -> None:
        self.standin = standin
        self.clock = ManualClock()
        self.sources: list[NvmlSource] = []

    def set_scenario(self, *lines: str) -> None:
        self.standin.scenario(*lines)

    def source(self) -> NvmlSource:
        source = NvmlSource(self.clock)
        self.sources.append(source)
        return source

    def calls(self) -> dict[str, int]:
        return dict(self.standin.calls())


class Hung:
    """A thread whose NVML call hangs until a test calls :meth:`resume`."""

    def __init__(self, machine: Machine, function: str, call: Callable[[], object]) -> None:
        machine.set_scenario("gpus=2", f"gpu.0.{function}=hang")
        machine.calls()
        self.answer: list[object] = []
        self.thread = threading.Thread(target=lambda: self.answer.append(call()), daemon=True)
        self.thread.start()
        while function not in machine.calls():
            assert self.thread.is_alive()

    def resume(self, machine: Machine) -> object:
        machine.set_scenario("gpus=2")
        self.thread.join(timeout=30)
        return self.answer[0]


Install = Callable[[Path], Machine]


@contextmanager
def replace_driver(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Yield a function that makes this process use the given library as its NVML, and returns the machine.
    At the end of the context, the machine's sources are closed; ``monkeypatch`` restores NVML."""
    machines: list[Machine] = []

    def put(library: Path) -> Machine:
        standin = Standin(library, folder / "standin")
        for name, value in standin.variables.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(pynvml, "nvmlLib", ctypes.CDLL(str(standin.library)))
        monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
        monkeypatch.setattr(processes, "in_host_pid_namespace", lambda: True)
        machines.append(Machine(standin))
        return machines[-1]

    yield put
    for machine in machines:
        machine.set_scenario()
        for source in machine.sources:
            source.close()


def run_in_subprocess(standin: Standin, code: str, **variables: str) -> object:
    """Run ``code`` in a new Python process that uses the stand-in as NVML,
    and return the JSON that it prints."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**standin.environment(), **variables},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
