"""Decide whose processes hold the GPUs' memory, for a kernel and for the server.

The driver reports process ids of the host. If this process is in the host's PID namespace, they are valid for
this process. In a container with a separate namespace, a process id of the host belongs to no process or to
an unrelated one. Some drivers list no processes in a container, and newer ones list only the container's
processes, by the container's ids. No NVML call returns which of these applies. In a container, the ids are
therefore considered valid only if there is proof:

- Every process that the driver lists, on any GPU, exists in this namespace. An id without a process means
  that the driver lists host ids, or that a process has just ended; the next sample is checked again. The id 0
  counts as no id: the driver reports it for a process that it does not identify.
- For at least one listed process, there is evidence of GPU use that does not come from the driver. A kernel
  knows on which GPUs it has a CUDA context. The server checks whether a process has memory of a CUDA device
  mapped, as every context has, or belongs to a kernel that reports a context on that GPU.

If a process has a context but the driver does not list it, this does not prove that the ids are invalid,
because the driver's list may be slightly older than the context. As long as there is no proof, the driver's
list shows nobody's memory. Once proven, the ids are considered valid until this process ends. They would be
wrongly considered valid only if every id of the host's list also existed in this namespace and there were
evidence for one of these processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from gpuwidget.model.readings import Reading
from gpuwidget.system import processes


class PidMatching:
    """Checks whether the driver's process ids are valid in this process's PID namespace.

    Use it on one thread at a time.
    """

    def __init__(self) -> None:
        self.in_host_namespace = processes.in_host_pid_namespace()
        self.proven = self.in_host_namespace
        """Whether it is proven that the driver's process ids are valid for this process."""

    def update(self, readings: Iterable[Reading], uses_gpu: Callable[[int, str], bool]) -> None:
        """Look for proof. ``uses_gpu`` returns whether there is evidence, other than the driver's list, that
        a process uses the GPU with this UUID."""
        if self.proven:
            return
        listed = [(process.pid, reading.uuid) for reading in readings for process in reading.processes or ()]
        self.proven = any(uses_gpu(pid, uuid) for pid, uuid in listed) and all(
            processes.process_exists(pid) for pid, _ in listed if pid
        )
