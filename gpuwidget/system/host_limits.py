"""Limits of this process on its host: CPU cores, and shared memory for worker processes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from gpuwidget.system import cgroups, small_file


class SharedMemory(NamedTuple):
    """Size of ``/dev/shm`` in bytes. DataLoader workers pass their batches through it."""

    total: int
    free: int


def usable_cores(root: Path = Path("/")) -> float | None:
    """Return how many cores this process may use, given its CPU affinity and its container's CPU quota.

    On a system without CPU affinity, the number of all CPUs is used instead. The result is None if no number
    is known. ``root`` is the folder that contains ``/proc`` and ``/sys``.
    """
    try:
        allowed: int | None = len(os.sched_getaffinity(0))
    except (AttributeError, OSError):
        allowed = os.cpu_count()
    granted = [quota for quota in (_cpu_quota(root), allowed) if quota is not None]
    return min(granted, default=None)


def shared_memory(root: Path = Path("/")) -> SharedMemory | None:
    """Return the size of ``/dev/shm``; None without one. ``root`` is the folder that contains ``/dev``."""
    try:
        room = os.statvfs(root / "dev/shm")
    except (AttributeError, OSError):
        return None
    return SharedMemory(room.f_frsize * room.f_blocks, room.f_frsize * room.f_bavail)


def _cpu_quota(root: Path) -> float | None:
    """Return the lowest CPU quota, in cores, that applies to this process, or None if there is none.

    A process's control group and all parent groups can each have a quota.
    """
    quotas = []
    for folder in cgroups.folders("cpu", root):
        if folder.version == 2:
            words = _words(folder, "cpu.max")  # '200000 100000' or 'max 100000'
        else:
            words = [*_words(folder, "cpu.cfs_quota_us"), *_words(folder, "cpu.cfs_period_us")]
        if len(words) == 2 and all(word.isdigit() for word in words) and int(words[1]) > 0:
            quotas.append(int(words[0]) / int(words[1]))
    return min(quotas, default=None)


def _words(folder: cgroups.Folder, name: str) -> list[bytes]:
    return small_file.read_or_empty(f"{folder.path}/{name}").split()
