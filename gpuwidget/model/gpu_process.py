"""A process that uses a GPU."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

ProcessKind = Literal["compute", "graphics"]


@dataclass(frozen=True, slots=True)
class Process:
    """One process with a context on a GPU."""

    pid: int
    """Process id on the host, as NVML reports it. In a container, this id may belong to no process or to an
    unrelated one."""
    kind: ProcessKind
    """The list of NVML that contains the process. A process in both lists appears once, as ``compute``."""
    memory: int | None
    """Bytes that the process holds (usedGpuMemory), or None if the driver does not report them (WSL,
    WDDM)."""
    user: str | None = field(repr=False)
    """Login name of the process's owner, or None if it is unreadable or process ids do not match. Not part of
    ``repr``, because a notebook may save that."""
    program: str | None
    """File name of the executable, with its script or module (``python train.py``), or None if it is
    unreadable or process ids do not match."""
    arguments: str | None = field(repr=False)
    """The other arguments, shortened and redacted, or None if ``program`` is None. Not part of ``repr``,
    because a notebook may save that."""
