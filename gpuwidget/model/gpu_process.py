"""A process that uses a GPU."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

ProcessKind = Literal["compute", "graphics"]


@dataclass(frozen=True, slots=True)
class Process:
    """One process that has a context on a GPU."""

    pid: int
    """Process id on the host, as NVML reports it. In a container, the id may belong to no process or to an
    unrelated one."""
    kind: ProcessKind
    """Which of NVML's two lists, compute or graphics processes, contains the process. A process that is in
    both lists appears once, as ``compute``."""
    memory: int | None
    """Bytes that the process holds (usedGpuMemory), or None if the driver does not report them (on WSL, with
    WDDM)."""
    user: str | None = field(repr=False)
    """Login name of the process's owner. None if it can't be read, or if the driver's process ids are not
    valid on this system, as in some containers. It is not part of ``repr``, because a notebook may save
    that."""
    program: str | None
    """File name of the executable, with its script or module (``python train.py``). None if it can't be read,
    or if the driver's process ids are not valid on this system, as in some containers."""
