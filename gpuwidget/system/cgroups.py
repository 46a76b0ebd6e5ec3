"""The control groups of this process, and the memory that they may use.

Both versions of control groups are read, also where a machine uses both.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import NamedTuple

from gpuwidget.system import small_file

_NO_LIMIT = 2**62
"""Version 1 has no word for *no limit*. It shows the highest number of bytes in whole pages, which is higher
than this."""
_USAGE = {1: "/memory.usage_in_bytes", 2: "/memory.current"}
_LIMIT = {1: "/memory.limit_in_bytes", 2: "/memory.max"}
"""The content is ``max`` in version 2 if there is no limit."""
_CACHE = {1: b"total_inactive_file", 2: b"inactive_file"}
_ROOT = Path("/")


class Folder(NamedTuple):
    """The folder of a control group."""

    path: str
    version: int
    """1 or 2."""


class CgroupMemory(NamedTuple):
    """The memory of this process's control group. Sizes are in bytes; unknown values are None."""

    name: str | None
    """Identifies the group to :func:`oom_kills`."""
    used: int | None
    """Memory in use in the group with the lowest limit, or in the process's own group if there is no limit.
    The inactive part of the page cache doesn't count, because Linux frees it before it kills anything."""
    limit: int | None
    """The lowest limit of the process's group and of its parents."""
    oom_kills: int | None
    """How many processes of the group the out-of-memory killer has killed."""


def folders(controller: str, root: Path = _ROOT) -> tuple[Folder, ...]:
    """Return the folders that a controller, such as ``cpu``, may have for this process, the nearest first.

    Some of them may not exist. ``root`` is the folder that contains ``/proc`` and ``/sys``.
    """
    return _folders(small_file.read_or_empty(f"{root}/proc/self/cgroup"), controller, _top(root))


@functools.lru_cache(maxsize=8)
def _folders(lines: bytes, controller: str, top: str) -> tuple[Folder, ...]:
    found = []
    for line in lines.decode("utf-8", "replace").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers and controller not in controllers.split(","):
            continue
        names = [name for name in path.split("/") if name]
        first = f"{top}/{controllers}" if controllers else top
        # In a container, the path may be the one on the host. The container then has none of the path's
        # folders except the first.
        found += [
            Folder("/".join((first, *names[:depth])), 1 if controllers else 2)
            for depth in range(len(names), -1, -1)
        ]
    return tuple(found)


def memory(root: Path = _ROOT) -> CgroupMemory:
    """Return the memory of this process's control group. Never raises."""
    found = [
        folder
        for folder in folders("memory", root)
        if os.access(folder.path + _USAGE[folder.version], os.R_OK)
    ]
    if not found:
        return CgroupMemory(None, None, None, None)
    limits = [(limit, folder) for folder in found if (limit := _limit(folder)) is not None]
    limit, limited = min(limits, key=lambda pair: pair[0], default=(None, found[0]))
    return CgroupMemory(
        name=_name(found[0], root), used=_used(limited), limit=limit, oom_kills=_oom_kills(found[0].path)
    )


def oom_kills(name: str | None, root: Path = _ROOT) -> int | None:
    """Return how many processes of a group the out-of-memory killer has killed until now.

    ``name`` is a :attr:`CgroupMemory.name`. The result is None if this process sees other groups than the one
    that returned the name, as in another container, or if the group has been removed.
    """
    namespace = _namespace(root)
    if name is None or namespace is None or not name.startswith(f"{namespace}/"):
        return None
    path = name.removeprefix(f"{namespace}/")
    return None if ".." in path.split("/") else _oom_kills(f"{_top(root)}/{path}")


def _top(root: Path) -> str:
    return f"{str(root).rstrip('/')}/sys/fs/cgroup"


def _name(folder: Folder, root: Path) -> str | None:
    namespace = _namespace(root)
    path = folder.path.removeprefix(f"{_top(root)}").lstrip("/")
    return None if namespace is None else f"{namespace}/{path}"


def _namespace(root: Path) -> str | None:
    try:
        return os.readlink(f"{root}/proc/self/ns/cgroup")
    except OSError:
        return None


def _used(folder: Folder) -> int | None:
    usage = small_file.number(folder.path + _USAGE[folder.version])
    stat = small_file.read_or_empty(f"{folder.path}/memory.stat")
    cache = small_file.number_after(_CACHE[folder.version], stat)
    return None if usage is None else max(0, usage - (cache or 0))


def _limit(folder: Folder) -> int | None:
    limit = small_file.number(folder.path + _LIMIT[folder.version])
    return None if limit is None or limit >= _NO_LIMIT else limit


def _oom_kills(path: str) -> int | None:
    events = small_file.read_or_empty(f"{path}/memory.events")
    events = events or small_file.read_or_empty(f"{path}/memory.oom_control")
    return small_file.number_after(b"oom_kill", events)
