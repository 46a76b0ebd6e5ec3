"""Find the memory of this process and its children on each GPU, or the reason why it is unknown."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gpuwidget import pytorch
from gpuwidget.measure import reasons
from gpuwidget.model.gpu_process import Process
from gpuwidget.model.messages import Message
from gpuwidget.model.readings import Reading
from gpuwidget.model.samples import Gpu, Origin, why_missing
from gpuwidget.system import processes
from gpuwidget.system.memory_owners import PidMatching, memory_of


@dataclass(frozen=True, slots=True)
class ProcessMemory:
    """Memory of this process and its children on one GPU."""

    memory: int | None
    """Bytes that this process and its children hold, or None if unknown."""
    present: bool
    """Whether this process or one of its children is known to have a context on the GPU."""
    reason: Message | None
    """The reason why ``memory`` is None."""
    own: bool = False
    """Whether this process itself has a context on the GPU."""
    children: tuple[Process, ...] = ()
    """The descendants of this process that have a context on the GPU."""
    listed: bool = False
    """Whether the driver's list shows which processes of this process's tree have a context on the GPU."""
    shared: bool = False
    """Whether the list has other compute processes."""

    @property
    def children_memory(self) -> int | None:
        """The children's part of ``memory``, or None if unknown."""
        return None if self.memory is None else memory_of(self.children)


class Attribution:
    """Finds this process and its children in the driver's process lists, if the ids in these lists are valid
    in this process (in a container, the driver may report the host's ids)."""

    def __init__(self, origin: Origin) -> None:
        self._family = processes.own_process_tree()
        self._recorded = origin.recorded
        self._matching = PidMatching()
        self._cached: dict[str, tuple[tuple[Process, ...] | None, ProcessMemory]] = {}

    @property
    def possible(self) -> bool:
        """Whether it can be known which GPUs this process uses, if the driver lists their processes."""
        return self.pids_match or self.from_torch

    @property
    def pids_match(self) -> bool:
        """Whether the process ids in the driver's lists are valid in this process."""
        return self._matching.proven and not self._recorded

    @property
    def from_torch(self) -> bool:
        """Whether torch's contexts show which GPUs this process uses."""
        return not self._recorded and pytorch.unavailable_reason() is None

    def owns(self, process: Process) -> bool:
        """Return whether a process that the driver lists is known to be this process or its descendant."""
        return self.pids_match and self._family.contains(process.pid)

    def process_memory(self, gpu: Gpu, reading: Reading) -> ProcessMemory:
        """Return the memory of this process and its children on ``gpu`` according to ``reading``."""
        before = self._cached.get(gpu.uuid)
        if before is not None and before[0] is reading.processes and reading.processes is not None:
            return before[1]
        held = self._process_memory(reading)
        self._cached[gpu.uuid] = (reading.processes, held)
        return held

    def update(self, readings: Iterable[Reading]) -> None:
        """Look for proof that the driver's process ids are valid in this process: it has a CUDA context on a
        GPU whose list contains it."""
        if not self._recorded and not self._matching.proven:
            self._matching.update(readings, self._has_context)
            self._cached.clear()

    def _has_context(self, pid: int, uuid: str) -> bool:
        return pid == self._family.pid and pytorch.has_context(uuid)

    def _process_memory(self, reading: Reading) -> ProcessMemory:
        if self._recorded:
            return ProcessMemory(None, False, reasons.RECORDED_PROCESSES)
        if reading.processes is None:
            return ProcessMemory(None, False, why_missing(reading, "processes", reasons.NO_PROCESS_LIST))
        if not self._matching.proven:
            return ProcessMemory(None, False, reasons.FOREIGN_PIDS)
        ours = [process for process in reading.processes if self.owns(process)]
        shared = any(process.kind == "compute" and process not in ours for process in reading.processes)
        own = any(process.pid == self._family.pid for process in ours)
        children = tuple(process for process in ours if process.pid != self._family.pid)
        whole = memory_of(ours)
        if whole is None:
            return ProcessMemory(None, True, reasons.NO_PROCESS_SIZES, own, children, True, shared)
        return ProcessMemory(whole, bool(ours), None, own, children, True, shared)
