"""A process that reports its identity and then dies in one of several ways, and the explanation of its death.

``python helpers_dying.py die KIND`` is the process. ``python helpers_dying.py explain KIND`` starts it and
prints the explanation, for tests that need their own namespace.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import platform
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from gpuwidget.journal import death, evidence, machine
from gpuwidget.journal.records import Death, JournaledRun, KernelEnd, MachineState, ProcessIdentity

ROOT = Path(__file__).parents[1]
FOLDER = "GPUWIDGET_TEST_CGROUP"
"""Names the folder of the control group that the process joins."""
ALLOCATED = 512 * 1024 * 1024


@dataclass(frozen=True)
class Dead:
    """A process that has died."""

    run: JournaledRun
    end: KernelEnd

    def explain(self, *, seen: bool = True, readable_log: bool = True) -> Death:
        """Return why it died. ``seen`` tells whether a server saw its end."""
        log = evidence.read_log if readable_log else lambda since, root: None
        return death.explain(self.run, self.end if seen else None, time.time(), kernel_log=log)


def run_until_dead(kind: str, environment: Mapping[str, str] | None = None) -> Dead:
    """Start a process that dies in this way, wait for its end, and return what is known of it."""
    import helpers_reports

    child = subprocess.Popen(
        [sys.executable, __file__, "die", kind],
        env={**os.environ, "PYTHONPATH": str(ROOT), **(environment or {})},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    values = json.loads(child.stdout.readline())
    identity, seen = ProcessIdentity(**values["process"]), values["machine"]["time"]
    assert identity.pid == child.pid
    assert machine.is_alive(identity, seen) is True
    child.stdin.write("\n")
    child.stdin.close()
    code = child.wait(timeout=60)
    assert machine.is_alive(identity, seen) is False
    child.stdout.close()
    state = MachineState(**{**values["machine"], "xids": ()})
    run = JournaledRun(None, None, None, None, identity, state, helpers_reports.no_gpu())
    return Dead(run, KernelEnd(time.time(), code, None))


def _segfault() -> None:
    ctypes.string_at(0)


def _invalid_instruction() -> None:
    code = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    if platform.machine() == "x86_64":
        code.write(b"\x0f\x0b")  # ud2; on ARM, zeros are an invalid instruction
    ctypes.CFUNCTYPE(None)(ctypes.addressof(ctypes.c_char.from_buffer(code)))()


def _bus_error() -> None:
    """Read a page of a file that has been truncated."""
    with tempfile.TemporaryFile() as file:
        file.truncate(mmap.PAGESIZE)
        mapped = mmap.mmap(file.fileno(), mmap.PAGESIZE)
        file.truncate(0)
        mapped[0]


def _fill_shared_memory() -> None:
    """Write more to /dev/shm than it can hold, as a DataLoader's workers do."""
    with open("/dev/shm/full", "w+b") as file:
        file.truncate(ALLOCATED)
        mapped = mmap.mmap(file.fileno(), ALLOCATED)
        for place in range(0, ALLOCATED, mmap.PAGESIZE):
            mapped[place] = 1


def _use_cpu_time() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (1, 10))
    while True:
        pass


def _allocate() -> None:
    mapped = mmap.mmap(-1, ALLOCATED)
    for place in range(0, ALLOCATED, mmap.PAGESIZE):
        mapped[place] = 1


def _send(number: int) -> Callable[[], None]:
    return lambda: os.kill(os.getpid(), number)


KINDS: dict[str, Callable[[], object]] = {
    "SIGKILL": _send(signal.SIGKILL),
    "SIGTERM": _send(signal.SIGTERM),
    "SIGHUP": _send(signal.SIGHUP),
    "invalid instruction": _invalid_instruction,
    "segfault": _segfault,
    "bus error": _bus_error,
    "full shared memory": _fill_shared_memory,
    "abort": os.abort,
    "CPU limit": _use_cpu_time,
    "os._exit": lambda: os._exit(3),
    "sys.exit": lambda: sys.exit(4),
    "end": lambda: None,
    "out of memory": _allocate,
}


def _die(kind: str) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if FOLDER in os.environ:
        Path(os.environ[FOLDER], "cgroup.procs").write_text(str(os.getpid()))
    identity, state = machine.process_identity(), machine.machine_state(time.time())
    print(json.dumps({"process": asdict(identity), "machine": asdict(state)}), flush=True)
    sys.stdin.readline()
    KINDS[kind]()


if __name__ == "__main__":
    action, kind = sys.argv[1:]
    if action == "die":
        _die(kind)
    else:
        found = run_until_dead(kind).explain()
        print(json.dumps([found.cause, found.certainty, found.text.id]))
