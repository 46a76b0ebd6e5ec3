"""Whether the process ids that the driver reports are this server's own.

The driver reports those of the host. Where this server has the host's process ids itself, they match, and in
a container that has ids of its own they name nobody here, or a stranger; some drivers list no process there,
and newer ones only the container's own, by the container's ids. Which it is nobody says, so that in a
container they are taken to match only on proof:

- every process that the driver lists, on any GPU, is one that is there. One id that names nobody here means
  that the host's are listed, or that a process has just ended: the next look will tell;
- and at least one of them is known to be on a GPU without the driver's word for it: it has memory of CUDA's
  device mapped, as a context has, or it belongs to a kernel that says itself that it has a context on that
  GPU.

A kernel that says so while none of the driver's ids is in its family proves nothing to the contrary, since a
list may be a moment old; it needs no proof either, as without one nothing is attributed. Ids that match once
match until the server ends. To be fooled, every id of the host's list would have to be in use here, and one
of them by a program that uses CUDA.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from gpuwidget.model.readings import Reading
from gpuwidget.system import processes


class Matching:
    """Tells it for one server, from sample to sample; used by one thread at a time."""

    def __init__(self) -> None:
        self.in_host_namespace = processes.in_host_pid_namespace()
        self.proven = self.in_host_namespace
        """Whether process ids are known to match."""

    def look(self, readings: Iterable[Reading], says_so: Callable[[int, str], bool]) -> None:
        """Look for the proof; ``says_so``: whether a process's kernel says that it has a context there."""
        if self.proven:
            return
        listed = [(process.pid, reading.uuid) for reading in readings for process in reading.processes or ()]
        if all(processes.process_exists(pid) for pid, _ in listed):
            self.proven = any(processes.uses_cuda(pid) or says_so(pid, uuid) for pid, uuid in listed)
