"""What can be found out about the end of a process, for :mod:`gpuwidget.journal.death`.

Process ids, clocks and counters are compared only where they mean the same as for the dead process: in the
same boot of the same machine, and for ids in the host's PID namespace, which the kernel's log uses.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from gpuwidget.journal import machine
from gpuwidget.journal.machine import OomKills
from gpuwidget.journal.records import JournaledRun, KernelEnd
from gpuwidget.model.report import GpuReport
from gpuwidget.model.units import gpu_number
from gpuwidget.system import kernel_log
from gpuwidget.system.host_limits import shared_memory
from gpuwidget.system.kernel_log import KernelLogLine
from gpuwidget.system.processes import HOST_PID_NAMESPACE
from gpuwidget.system.slurm import JobState

ReadLog = Callable[[float, Path], Sequence[KernelLogLine] | None]
ReadSlurm = Callable[[str], JobState | None]

BEFORE_S = 60.0
"""Seconds before the last sample in which an event may be the cause. The times of the kernel's log drift by
this much from the clock in a month or two."""
_AFTER_S = 600.0
"""Seconds after the last sample in which the process has ended if no server saw its end. Samples are written
every 10 s, but not while a library holds the GIL."""
_CLOCK_S = 1.0
_SHELL = 128
"""A shell returns this plus the number of the signal that ended its program."""
_NO_CAUSES = (43, 45, 63, 64, 92)
"""XIDs that don't end a process: the driver reports 43 and 45 also because a process has been killed, and the
others about memory that it repairs or takes out of use."""
_CAUSES = (13, 31, 48, 68, 74, 79, 94, 95, 109, 119, 120)
"""XIDs after which a program can't go on, even if the driver names no process."""
_KILLED = re.compile(r"\bKilled process (\d+)\b")
_FAULT = re.compile(r"\[(\d+)\]:? (?:segfault|general protection|trap )")
_LIBRARY = re.compile(r" in ([\w.+-]+)\[")
_XID = re.compile(r"NVRM: Xid \((?:PCI:)?[\w:.]+\): (\d+)\b(?:, pid='?(\d+))?")
_WANTED = re.compile("|".join(pattern.pattern for pattern in (_KILLED, _FAULT, _XID)))


class UsedXid(NamedTuple):
    """An XID that may have ended the process."""

    number: int
    gpu: str | None
    """The GPU's number; None if the driver's line doesn't tell which of the run's GPUs it is."""


def read_log(since: float, root: Path) -> Sequence[KernelLogLine] | None:
    """Return the lines of the kernel's log that may explain an end; None if it isn't readable."""
    return kernel_log.read(since, root, matching=_WANTED)


class Evidence:
    """Facts about the end of one run's process. Each is read when a rule first needs it."""

    def __init__(
        self,
        run: JournaledRun,
        end: KernelEnd | None,
        now: float,
        root: Path,
        read_slurm: ReadSlurm,
        read_log: ReadLog,
    ) -> None:
        """``now`` is in epoch seconds. ``root`` contains ``/proc``, ``/sys`` and ``/dev``."""
        self.run = run
        self.end = end
        self.now = now
        self._root = root
        self._read_slurm = read_slurm
        self._read_log = read_log
        self._reader = machine.process_identity(root=root)
        self.last = run.machine.time
        """When the process certainly ran, in epoch seconds."""

    # -- the exit code ---------------------------------------------------------------------------------------

    @property
    def exit_code(self) -> int | None:
        """The exit code that a server saw; None if unknown."""
        return None if self.end is None else self.end.exit_code

    @cached_property
    def signal(self) -> str | None:
        """The name of the signal that ended the process, according to its exit code."""
        return None if self.exit_code is None or self.exit_code >= 0 else _signal_name(-self.exit_code)

    @cached_property
    def shell_signal(self) -> str | None:
        """The name of the signal that ended the process according to the exit code of the shell in which
        the server started it."""
        code = self.exit_code
        return None if code is None or code <= _SHELL else _known_signal(code - _SHELL)

    def may_be(self, *signals: str) -> bool:
        """Return whether one of the signals may have ended the process: one that its exit code stands for, or
        any if the exit code is unknown."""
        return self.exit_code is None or (self.signal or self.shell_signal) in signals

    # -- time and place --------------------------------------------------------------------------------------

    @property
    def ended_by(self) -> float:
        """When the process had ended, in epoch seconds: the server saw that, or else it is assumed."""
        return self.last + _AFTER_S if self.end_time is None else self.end_time + _CLOCK_S

    @property
    def same_boot(self) -> bool:
        """Whether this is the machine of the process and it hasn't been restarted."""
        known = self._reader.boot_id
        return known is not None and known == self.run.process.boot_id

    @property
    def clock_set_back(self) -> bool:
        """Whether the clock shows an earlier time than at the last sample."""
        return self.now < self.last - _CLOCK_S

    @property
    def end_time(self) -> float | None:
        """When the process ended, in epoch seconds; None if no server noticed it at once."""
        return None if self.end is None else self.end.time

    @cached_property
    def restarted(self) -> float | None:
        """When the machine was restarted after the last sample, in epoch seconds; None if it wasn't, and if
        this is another machine."""
        mine, its = self._reader, self.run.process
        if None in (mine.boot_id, its.boot_id) or mine.boot_id == its.boot_id or mine.host != its.host:
            return None
        booted = machine.boot_epoch(self._root)
        # A machine that was booted before is another one with the same name, such as a pod's next node.
        return booted if booted is not None and self.last - _CLOCK_S <= booted <= self.now else None

    @property
    def is_other_machine(self) -> bool:
        """Whether the process certainly ran on another machine than this one."""
        mine, its = self._reader, self.run.process
        if None in (mine.boot_id, its.boot_id) or mine.boot_id == its.boot_id:
            return False
        booted = machine.boot_epoch(self._root)
        return mine.host != its.host or (booted is not None and booted < self.last - _CLOCK_S)

    @property
    def same_container(self) -> bool:
        """Whether this process is in the PID namespace of the process: the same container, or both in
        none."""
        name = self.run.process.pid_namespace
        if not self.same_boot or name is None or name != self._reader.pid_namespace:
            return False
        # When a container is started again, its namespace may get the number of the last one.
        started = machine.namespace_epoch(self._root)
        return started is None or started <= self.last + _CLOCK_S

    # -- memory ----------------------------------------------------------------------------------------------

    @cached_property
    def oom_kills(self) -> OomKills:
        """How many processes the out-of-memory killer has killed since the last sample."""
        if not self.same_boot:
            return OomKills(None, None)
        before = self.run.machine
        # Groups of the same name in different containers are different ones.
        kills = machine.oom_kills(before.cgroup if self.same_container else None, self._root)
        return OomKills(
            _increase(before.cgroup_oom_kills, kills.cgroup),
            _increase(before.machine_oom_kills, kills.machine),
        )

    @cached_property
    def shm_full(self) -> bool:
        """Whether less than one percent of ``/dev/shm`` is free now."""
        found = shared_memory(self._root) if self.same_boot else None
        return found is not None and found.total > 0 and found.free < found.total / 100

    # -- the kernel's log ------------------------------------------------------------------------------------

    @cached_property
    def _log(self) -> tuple[KernelLogLine, ...] | None:
        """Lines of the kernel's log since the process may have ended, whose process ids are comparable; None
        if there is no such log."""
        if not self.same_boot or self.clock_set_back or not self.log_has_same_ids:
            return None
        # A line from before the process started is about an earlier process with the same id.
        started = machine.start_epoch(self.run.process, self._root)
        first = self.last - _CLOCK_S if started is None else max(started, self.last - BEFORE_S)
        lines = self._read_log(first, self._root)
        return None if lines is None else tuple(line for line in lines if line.time >= first)

    @property
    def has_log(self) -> bool:
        """Whether the kernel's log is readable and may mention the process."""
        return self._log is not None

    @property
    def _log_until_end(self) -> list[KernelLogLine]:
        """The lines from before the end. Later ones may be about another process with the same id."""
        return [line for line in self._log or () if line.time <= self.ended_by]

    @property
    def log_has_same_ids(self) -> bool:
        """Whether the process's id is the one that the kernel's log uses."""
        return self.run.process.pid_namespace == HOST_PID_NAMESPACE

    @cached_property
    def killed_at(self) -> float | None:
        """When the out-of-memory killer killed the process, according to the kernel's log."""
        pid = self.run.process.pid
        return next((line.time for line in self._log_until_end if pid in _killed_pids(line)), None)

    @cached_property
    def others_killed(self) -> bool:
        """Whether the kernel's log shows that the out-of-memory killer has killed only other processes."""
        number, kills = self.oom_kills.machine, sum(len(_killed_pids(line)) for line in self._log or ())
        return self.killed_at is None and number is not None and 0 < number <= kills

    @property
    def faulty_library(self) -> str | None:
        """The library in which the process crashed, according to the kernel's log."""
        for line in self._log_until_end:
            fault = _FAULT.search(line.text)
            library = _LIBRARY.search(line.text)
            if fault is not None and library is not None and int(fault[1]) == self.run.process.pid:
                return library[1]
        return None

    # -- GPUs ------------------------------------------------------------------------------------------------

    @cached_property
    def own_xid(self) -> UsedXid | None:
        """The first XID of the log for which the driver names the process."""
        for number, pid in self._logged_xids():
            if pid == self.run.process.pid and number not in _NO_CAUSES:
                return UsedXid(number, self._gpu_of(number))
        return None

    @cached_property
    def near_xids(self) -> tuple[UsedXid, ...]:
        """The XIDs shortly before the end on GPUs that the run used."""
        return tuple(
            UsedXid(xid.number, gpu_number(gpu.index, gpu.mig_index))
            for xid in sorted(self.run.machine.xids, key=lambda xid: xid.time)
            if (gpu := self._used_gpu(xid.uuid)) is not None
            and xid.number in _CAUSES
            and self._is_near(xid.time)
        )

    def other_process_has_xid(self, number: int) -> bool:
        """Return whether the driver names only other processes for an XID."""
        pids = {pid for logged, pid in self._logged_xids() if logged == number}
        return bool(pids - {None}) and self.run.process.pid not in pids

    @cached_property
    def lost_gpu(self) -> str | None:
        """The number of a GPU that the run used and that was lost shortly before the end."""
        return next(
            (
                gpu_number(gpu.index, gpu.mig_index)
                for gpu in self._used_gpus
                if gpu.lost_since is not None and self._is_near(gpu.lost_since)
            ),
            None,
        )

    @property
    def _used_gpus(self) -> tuple[GpuReport, ...]:
        report = self.run.report
        return tuple(gpu for gpu in report.counted if report.attributed or gpu.worked)

    def _used_gpu(self, uuid: str) -> GpuReport | None:
        return next((gpu for gpu in self._used_gpus if uuid in (gpu.uuid, gpu.mig_parent)), None)

    def _is_near(self, time: float) -> bool:
        return self.last - BEFORE_S <= time <= self.ended_by

    def _gpu_of(self, number: int) -> str | None:
        return next((xid.gpu for xid in self.near_xids if xid.number == number), None)

    def _logged_xids(self) -> Iterator[tuple[int, int | None]]:
        for line in self._log_until_end:
            match = _XID.search(line.text)
            if match is not None:
                yield int(match[1]), int(match[2]) if match[2] else None

    # -- Slurm -----------------------------------------------------------------------------------------------

    @property
    def in_same_job(self) -> bool:
        """Whether this process runs in the same Slurm job, which therefore hasn't ended."""
        return self._reader.slurm_job is not None and self._reader.slurm_job == self.run.process.slurm_job

    @cached_property
    def slurm_job(self) -> JobState | None:
        """The state of the process's Slurm job; None if unknown."""
        job = self.run.process.slurm_job
        return None if job is None or self.in_same_job else self._read_slurm(job)


def _killed_pids(line: KernelLogLine) -> list[int]:
    return [int(match[1]) for match in _KILLED.finditer(line.text)]


def _increase(before: int | None, now: int | None) -> int | None:
    """Return by how much a counter has grown. None if it is another counter, which shows a lower number."""
    return None if before is None or now is None or now < before else now - before


def _known_signal(number: int) -> str | None:
    try:
        return signal.Signals(number).name
    except ValueError:
        return None


def _signal_name(number: int) -> str:
    """Return a name such as ``SIGKILL``, and a number for a real-time signal."""
    return _known_signal(number) or f"signal {number}"
