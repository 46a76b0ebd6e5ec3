"""The identity of a kernel's process, and the state of its machine.

Everything is read from ``/proc`` and ``/sys``. On a system without them, such as macOS, it is unknown.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from gpuwidget.journal.records import MachineState, ProcessIdentity, RunXid
from gpuwidget.system import cgroups, processes, slurm, small_file

_ROOT = Path("/")
_COMMON_NAMES = ("localhost", "localhost.localdomain")
"""Host names that many machines have."""
_ENDED = (b"Z", b"X")
"""The states of a process that has ended and for which its parent hasn't waited yet."""
_TICKS = os.sysconf("SC_CLK_TCK")


class OomKills(NamedTuple):
    """Number of processes that the out-of-memory killer has killed. Unknown values are None."""

    cgroup: int | None
    """In the kernel's control group."""
    machine: int | None


def process_identity(environment: Mapping[str, str] = os.environ, root: Path = _ROOT) -> ProcessIdentity:
    """Return the identity of this process. ``root`` is the folder that contains ``/proc``."""
    fields = _stat_fields("self", root)
    return ProcessIdentity(
        host=_text(root / "proc/sys/kernel/hostname") or platform.node(),
        boot_id=_text(root / "proc/sys/kernel/random/boot_id"),
        pid_namespace=_link(root / "proc/self/ns/pid"),
        pid=os.getpid(),
        started=fields[19].decode() if fields is not None else None,
        slurm_job=slurm.job_in(environment),
        slurm_end=slurm.end_in(environment),
    )


def machine_state(
    now: float,
    xids: tuple[RunXid, ...] = (),
    shutdown_requested: float | None = None,
    restart_requested: bool = False,
    root: Path = _ROOT,
) -> MachineState:
    """Return the memory of this process, of its control groups and of the machine. Never raises.

    ``now`` is in epoch seconds. ``root`` is the folder that contains ``/proc`` and ``/sys``.
    """
    cgroup = cgroups.memory(root)
    available, total = _machine_memory(root)
    return MachineState(
        time=now,
        resident=processes.resident_memory(),
        cgroup_used=cgroup.used,
        cgroup_limit=cgroup.limit,
        cgroup_oom_kills=cgroup.oom_kills,
        machine_available=available,
        machine_total=total,
        machine_oom_kills=_machine_oom_kills(root),
        xids=xids,
        shutdown_requested=shutdown_requested,
        restart_requested=restart_requested,
        cgroup=cgroup.name,
    )


def is_alive(identity: ProcessIdentity, seen: float, root: Path = _ROOT) -> bool | None:
    """Return whether a process still runs, or None if that can't be told from this process.

    It can be told in the PID namespace of the process, and after a restart of its machine. ``seen`` is when
    the process last ran, in epoch seconds: a machine that was started before is another one of that name.
    """
    reader = process_identity({}, root)
    if identity.boot_id is None or reader.boot_id is None:
        return None
    if identity.boot_id != reader.boot_id:
        booted = boot_epoch(root)
        is_restarted = booted is not None and booted > seen
        same_host = identity.host == reader.host and identity.host not in _COMMON_NAMES
        return False if same_host and is_restarted else None
    if identity.pid_namespace is None or identity.pid_namespace != reader.pid_namespace:
        return None
    fields = _stat_fields(str(identity.pid), root)
    if fields is None:
        # The folder of another user's process may be hidden, but a signal reaches each process or is refused.
        return False if _is_free(identity.pid) else None
    if fields[0] in _ENDED:
        return False
    return None if identity.started is None else fields[19] == identity.started.encode()


def is_zombie(identity: ProcessIdentity, root: Path = _ROOT) -> bool:
    """Return whether a process has ended and its parent has not read the exit code yet."""
    fields = _stat_fields(str(identity.pid), root)
    if fields is None or identity.started is None or fields[19] != identity.started.encode():
        return False
    return fields[0] in _ENDED


def oom_kills(cgroup: str | None, root: Path = _ROOT) -> OomKills:
    """Return the counters of the out-of-memory killer now. ``cgroup`` is that of a
    :class:`~gpuwidget.journal.records.MachineState`."""
    return OomKills(cgroups.oom_kills(cgroup, root), _machine_oom_kills(root))


def boot_epoch(root: Path = _ROOT) -> float | None:
    """Return when the machine was booted, in epoch seconds; None if unknown. It moves with the clock."""
    seconds = small_file.number_after(b"btime", small_file.read_all(f"{root}/proc/stat"))
    return None if seconds is None else float(seconds)


def start_epoch(identity: ProcessIdentity, root: Path = _ROOT) -> float | None:
    """Return when a process of this boot started, in epoch seconds; None if unknown."""
    boot = boot_epoch(root)
    if boot is None or identity.started is None or not identity.started.isdigit():
        return None
    return boot + int(identity.started) / _TICKS


def namespace_epoch(root: Path = _ROOT) -> float | None:
    """Return when the first process of this PID namespace started, in epoch seconds; None if unknown."""
    boot, fields = boot_epoch(root), _stat_fields("1", root)
    return None if boot is None or fields is None else boot + int(fields[19]) / _TICKS


def _machine_memory(root: Path) -> tuple[int | None, int | None]:
    """Return the available and the total memory of the machine in bytes."""
    lines = small_file.read_or_empty(f"{root}/proc/meminfo")
    available = small_file.number_after(b"MemAvailable", lines)
    total = small_file.number_after(b"MemTotal", lines)
    return (
        None if available is None else available * 1024,
        None if total is None else total * 1024,
    )


def _machine_oom_kills(root: Path) -> int | None:
    return small_file.number_after(b"oom_kill", small_file.read_all(f"{root}/proc/vmstat"))


def _stat_fields(process: str, root: Path) -> list[bytes] | None:
    """Return the fields of ``/proc/PROCESS/stat`` from the state on, or None if the file can't be read."""
    # The name in parentheses may contain spaces and parentheses, so count fields from the last parenthesis.
    fields = small_file.read_or_empty(f"{root}/proc/{process}/stat").rpartition(b")")[2].split()
    return fields if len(fields) > 19 else None


def _is_free(pid: int) -> bool:
    """Return whether no process has this id."""
    with suppress(PermissionError, OverflowError):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
    return False


def _text(path: Path) -> str | None:
    return small_file.read_or_empty(f"{path}").decode("utf-8", "replace").strip() or None


def _link(path: Path) -> str | None:
    try:
        return os.readlink(path)
    except OSError:
        return None
