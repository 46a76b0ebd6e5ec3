"""Limits of this process on its host: CPU cores, and shared memory for worker processes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple


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
    for folder in _cgroup_folders(root):
        words = _words(folder / "cpu.max")  # cgroup v2: '200000 100000' or 'max 100000'
        if not words:
            words = [*_words(folder / "cpu.cfs_quota_us"), *_words(folder / "cpu.cfs_period_us")]
        if len(words) == 2 and all(word.isdigit() for word in words) and int(words[1]) > 0:
            quotas.append(int(words[0]) / int(words[1]))
    return min(quotas, default=None)


def _cgroup_folders(root: Path) -> list[Path]:
    found = []
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers and "cpu" not in controllers.split(","):
            continue
        top = root / "sys/fs/cgroup" / controllers
        folder = top / path.lstrip("/")
        # In a container, the path may be the one on the host. The container then has none of the path's
        # folders except ``top``.
        found += [parent for parent in (folder, *folder.parents) if parent == top or top in parent.parents]
    return found


def _words(file: Path) -> list[str]:
    return _text(file).split()


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
