"""The owners of the processes on one GPU: kernels and terminals of this server, and all others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class ProcessOwner(NamedTuple):
    """The kernel or the terminal that a process belongs to. Both are None for other processes."""

    kernel: str | None
    terminal: str | None


NO_OWNER = ProcessOwner(None, None)
"""The owner of the processes that belong to no kernel and no terminal of this server."""


class GpuOwners(NamedTuple):
    """The owners of the processes that can use one GPU."""

    owners: frozenset[ProcessOwner]
    """The owners of processes on the GPU. :data:`NO_OWNER` stands for all other processes."""
    owner_of: Mapping[int, ProcessOwner]
    """The owner of each process that the driver lists, by process id. Empty if the ids can't be matched with
    this server's processes."""
    complete: bool
    """Whether ``owners`` includes the owners of all processes that can use the GPU. False if the driver does
    not list the processes, or if processes outside this container may use the GPU."""
