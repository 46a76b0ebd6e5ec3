"""A simulated machine on which a run's process died, for tests of :mod:`gpuwidget.journal.death`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import helpers_reports
from helpers_reports import gib

from gpuwidget.journal import death
from gpuwidget.journal.records import Death, JournaledRun, KernelEnd, MachineState, ProcessIdentity, RunXid
from gpuwidget.model.report import GpuReport, Report
from gpuwidget.system.kernel_log import KernelLogLine
from gpuwidget.system.slurm import JobState

LAST = 1_795_255_500.0
"""When the process certainly ran, in epoch seconds."""
BOOT = LAST - 86_400.0
PID = 27_529
STARTED = 86_300
"""Seconds from the machine's boot to the start of the process: 100 s before the last sample."""
TICKS = os.sysconf("SC_CLK_TCK")
HOST = "gpu-a"
HOST_NAMESPACE = "pid:[4026531836]"
CONTAINER = "pid:[4026532814]"
GROUPS = "cgroup:[4026531835]"
GROUP = "jupyter.service"
USED_GPU = helpers_reports.gpu(0).uuid
UNUSED_GPU = helpers_reports.gpu(1).uuid

Requested = Literal["shut_down", "restarted", "culled", "server_stopped"]


def gpus() -> tuple[GpuReport, ...]:
    """Return two GPUs, of which the run used the first."""
    return helpers_reports.gpu(0, worked=True), helpers_reports.gpu(1, shown=False, worked=False)


def process(**changes: Any) -> ProcessIdentity:
    values: dict[str, Any] = {
        "host": HOST,
        "boot_id": "boot-1",
        "pid_namespace": HOST_NAMESPACE,
        "pid": PID,
        "started": str(STARTED * TICKS),
        "slurm_job": None,
        "slurm_end": None,
    }
    return ProcessIdentity(**(values | changes))


def state(**changes: Any) -> MachineState:
    """Return the state at the last sample: 251 of 256 GiB in use, and no kill so far."""
    values: dict[str, Any] = {
        "time": LAST,
        "resident": gib(200),
        "cgroup_used": None,
        "cgroup_limit": None,
        "cgroup_oom_kills": 0,
        "machine_available": gib(5),
        "machine_total": gib(256),
        "machine_oom_kills": 3,
        "xids": (),
        "shutdown_requested": None,
        "restart_requested": False,
        "cgroup": f"{GROUPS}/{GROUP}",
    }
    return MachineState(**(values | changes))


def roomy(**changes: Any) -> MachineState:
    """Return a state with enough memory left."""
    return state(machine_available=gib(200), **changes)


def xid(number: int, after: float = -5.0, uuid: str = USED_GPU) -> RunXid:
    return RunXid(uuid, number, LAST + after)


def line(text: str, after: float = 5.0) -> KernelLogLine:
    """Return a line of the kernel's log from ``after`` seconds after the last sample."""
    return KernelLogLine(LAST + after, text)


def oom_line(pid: int = PID, after: float = 5.0) -> KernelLogLine:
    text = f"Out of memory: Killed process {pid} (python) total-vm:280435456kB, anon-rss:262144000kB"
    return line(text, after)


def xid_line(number: int, pid: int = PID, after: float = -2.0) -> KernelLogLine:
    return line(f"NVRM: Xid (PCI:0000:3b:00): {number}, pid={pid}, name=python, Ch 00000008", after)


def ended(code: int | None = None, *, requested: Requested | None = None, after: float = 8.0) -> KernelEnd:
    """Return what a server saw, ``after`` seconds after the last sample."""
    return KernelEnd(LAST + after, code, requested)


@dataclass(frozen=True)
class Case:
    """A death, and the machine on which it is explained."""

    end: KernelEnd | None = None
    process: ProcessIdentity = field(default_factory=process)
    state: MachineState = field(default_factory=roomy)
    report: Report = field(default_factory=lambda: helpers_reports.report(*gpus(), points=2))
    now: float = LAST + 10
    log: Sequence[KernelLogLine] | None = ()
    """The kernel's log now; None if it isn't readable."""
    group_kills: int | None = 0
    """The counters of the out-of-memory killer now."""
    machine_kills: int | None = 3
    slurm: JobState | None = None
    host: str = HOST
    boot_id: str = "boot-1"
    booted: float = BOOT
    namespace: str = HOST_NAMESPACE
    namespace_started: float = BOOT

    def explain(self, root: Path) -> Death:
        """Write the machine's files below ``root``, and return why the process died."""
        self._write(root)
        run = JournaledRun("/home/ada/train.ipynb", "c1", None, None, self.process, self.state, self.report)
        return death.explain(
            run,
            self.end,
            self.now,
            root=root,
            slurm_state=lambda job: self.slurm,
            kernel_log=lambda since, root: (
                None if self.log is None else tuple(line for line in self.log if line.time >= since)
            ),
        )

    def _write(self, root: Path) -> None:
        started = round((self.namespace_started - self.booted) * TICKS)
        files = {
            "proc/sys/kernel/hostname": self.host,
            "proc/sys/kernel/random/boot_id": self.boot_id,
            "proc/stat": f"cpu  1 2 3\nbtime {round(self.booted)}\n",
            "proc/1/stat": stat_line(1, started),
            "proc/vmstat": counter(self.machine_kills),
            f"sys/fs/cgroup/{GROUP}/memory.events": counter(self.group_kills),
        }
        for name, text in files.items():
            write(root, name, text)
        links = {"pid": self.namespace, "cgroup": GROUPS}
        for name, target in links.items():
            link(root, f"proc/self/ns/{name}", target)


def counter(kills: int | None) -> str:
    return "low 0\n" if kills is None else f"low 0\noom_kill {kills}\n"


def stat_line(pid: int, started: int, state: str = "S") -> str:
    """Return the content of /proc/PID/stat of a process with a hostile name."""
    return f"{pid} (a b) c) {state} 1 1 1{' 0' * 15} {started} 0 0\n"


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def link(root: Path, name: str, target: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)
