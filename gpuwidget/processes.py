"""Processes of this machine: who owns one, whether it is ours, how much memory it takes; psutil's one home."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import psutil

T = TypeVar("T")

_INITIAL_PID_NAMESPACE = 0xEFFFFFFC
"""Inode of the host's own pid namespace, fixed in Linux (include/linux/proc_ns.h, PROC_PID_INIT_INO)."""
_LONGEST_COMMAND = 120
_MOST_ANCESTORS = 64


def in_host_pid_namespace() -> bool:
    """Whether process ids mean here what they mean to the driver, which counts the host's.

    False in a container with ids of its own, and wherever nobody can tell.
    """
    try:
        return os.stat("/proc/self/ns/pid").st_ino == _INITIAL_PID_NAMESPACE
    except OSError:
        return False


@dataclass(frozen=True, slots=True)
class Owner:
    """Who runs a process and what it is; None for what can't be read."""

    user: str | None
    command: str | None
    """The command line, at most 120 characters."""


class Owners:
    """Users and commands by process id, each read once a process."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[float, Owner]] = {}

    def of(self, pid: int) -> Owner:
        """Who runs ``pid``."""
        try:
            process = psutil.Process(pid)
            born = process.create_time()
        except psutil.Error:
            self._known.pop(pid, None)
            return Owner(None, None)
        known = self._known.get(pid)
        # A process id is given out again; the time of birth tells the two apart.
        if known is not None and known[0] == born:
            return known[1]
        owner = _owner(process)
        self._known[pid] = (born, owner)
        return owner

    def keep_only(self, pids: set[int]) -> None:
        """Forget all but ``pids``."""
        for pid in self._known.keys() - pids:
            del self._known[pid]


def _owner(process: psutil.Process) -> Owner:
    with process.oneshot():
        user = _try(process.username)
        words = _try(process.cmdline)
        command = " ".join(words) if words else _try(process.name)
    if command is not None and len(command) > _LONGEST_COMMAND:
        command = command[: _LONGEST_COMMAND - 1] + "…"
    return Owner(user, command or None)


def _try(read: Callable[[], T]) -> T | None:
    try:
        return read()
    except (psutil.Error, OSError, KeyError):
        return None


class Family:
    """This process and its descendants, told by walking up from a process id.

    Looking for all children costs tens of milliseconds on a shared host; a walk up costs microseconds.
    """

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._known: dict[int, tuple[float, bool]] = {}

    def contains(self, pid: int) -> bool:
        """Whether ``pid`` is this process or descends from it."""
        if pid == self.pid:
            return True
        try:
            process = psutil.Process(pid)
            born = process.create_time()
            known = self._known.get(pid)
            if known is not None and known[0] == born:
                return known[1]
            ours = self._descends(process)
        except psutil.Error:
            return False
        self._known[pid] = (born, ours)
        return ours

    def _descends(self, process: psutil.Process) -> bool:
        for _ in range(_MOST_ANCESTORS):
            parent = process.ppid()
            if parent == self.pid:
                return True
            if parent <= 1:
                return False
            process = psutil.Process(parent)
        return False


def resident_memory() -> int | None:
    """Bytes of this process in physical memory (ps: RSS)."""
    try:
        return int(psutil.Process().memory_info().rss)
    except psutil.Error:
        return None


def peak_resident_memory() -> int | None:
    """The highest :func:`resident_memory` since this process began, bytes (/proc/self/status: VmHWM)."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as status:
            for line in status:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return None


def host_memory() -> tuple[int, int]:
    """Bytes of this machine's memory: all of it, and what is in use (free: total, total - available)."""
    memory = psutil.virtual_memory()
    return int(memory.total), int(memory.total - memory.available)
