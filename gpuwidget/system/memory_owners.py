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

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Literal, TypeVar

from gpuwidget.model.gpu_process import Process
from gpuwidget.model.readings import Reading
from gpuwidget.model.translation import Text, counted, translatable
from gpuwidget.system import processes
from gpuwidget.system.processes import Identity

_Owner = TypeVar("_Owner", bound=Hashable)


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


def by_owner(listed: Iterable[Process], owner_of: Callable[[Process], _Owner]) -> dict[_Owner, list[Process]]:
    """Return the processes of each owner of memory."""
    found: dict[_Owner, list[Process]] = {}
    for process in listed:
        found.setdefault(owner_of(process), []).append(process)
    return found


def memory_of(listed: Iterable[Process]) -> int | None:
    """Return the bytes that processes hold, or None if the driver does not report the bytes of each."""
    total = 0
    for process in listed:
        if process.memory is None:
            return None
        total += process.memory
    return total


def is_own_user(user: str | None) -> bool | None:
    """Return whether ``user`` is the Unix user of this process, or None if either of them is unknown."""
    own = processes.own_user()
    return None if user is None or own is None else user == own


@dataclass(frozen=True, slots=True)
class ProcessGroup:
    """A group of processes that have the same name in a saved output.

    Notebooks are shared with people who may not be allowed to see this machine's processes. Therefore, saved
    outputs contain no arguments, no names of users or notebooks, and no programs of other users.
    """

    relation: Literal["child", "notebook", "same user", "other user", "unknown"]
    """How the processes relate to this process: its descendants, processes of another notebook of the same
    user, or other processes of the same user, of another user or of an unknown user."""
    program: str | None = None
    """Name of the program, only for descendants and other processes of the same user; None if it is
    unreadable."""
    pid: int | None = None
    """Process id, only for a process whose user is unknown. None if the driver reports the id 0, which no
    process has."""

    def label(self, number: int = 1) -> str:
        """Return the name of a group of ``number`` processes for a saved output."""
        text = self._label(number)
        if self.pid is not None:
            text = translatable("{process} ({pid})", process=text, pid=self.pid)
        return (
            text
            if self.program is None
            else translatable("{process}: {program}", process=text, program=self.program)
        )

    def _label(self, number: int) -> Text:
        match self.relation:
            case "child":
                return counted(number, "child process", "{number} child processes")
            case "notebook":
                return counted(number, "another notebook", "{number} processes of other notebooks")
            case "other user":
                return counted(number, "another process of another user", "{number} processes of other users")
        return counted(number, "another process", "{number} other processes")


def group_of(pid: int, identity: Identity, *, pids_match: bool) -> ProcessGroup:
    """Return the group of a process that is not a descendant of this process."""
    own = is_own_user(identity.user)
    if own is None:
        return ProcessGroup("unknown", pid=pid or None)
    if not own:
        return ProcessGroup("other user")
    if pids_match and processes.notebook_of(pid) is not None:
        return ProcessGroup("notebook")
    return ProcessGroup("same user", identity.program)
