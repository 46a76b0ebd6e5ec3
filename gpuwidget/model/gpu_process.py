"""A process that uses a GPU."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

ProcessKind = Literal["compute", "graphics"]


@dataclass(frozen=True, slots=True)
class Process:
    """One process with a context on a GPU."""

    pid: int
    """Process id on the host, as NVML reports it; in a container it may match no process or an unrelated
    one."""
    kind: ProcessKind
    """NVML's list that contains it; a process in both is listed once, as compute."""
    memory: int | None
    """Bytes it holds, usedGpuMemory; None where the driver does not report it (WSL, WDDM)."""
    user: str | None = field(repr=False)
    """Login name of its owner; None where unreadable or where process ids do not match. Not part of ``repr``,
    which a notebook saves."""
    program: str | None
    """File name of its executable, with its script or module (``python train.py``); None where unreadable or
    where process ids do not match."""
    arguments: str | None = field(repr=False)
    """Its other arguments, shortened and without what may be secret; None where ``program`` is. Not part of
    ``repr``."""
