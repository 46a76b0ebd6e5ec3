"""Find the memory of this process and its children on each GPU, or the reason why it is unknown."""

from __future__ import annotations

from dataclasses import dataclass

from gpuwidget.measure import reasons
from gpuwidget.model.gpu_process import Process
from gpuwidget.model.messages import Message
from gpuwidget.model.readings import Reading
from gpuwidget.model.samples import Gpu, Origin, why_missing
from gpuwidget.pytorch import cuda_state
from gpuwidget.system import processes


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
        return None if self.memory is None else sum(child.memory or 0 for child in self.children)


class Attribution:
    """Finds this process and its children in the driver's process lists, if the ids in these lists are valid
    in this process (in a container, the driver may report the host's ids)."""

    def __init__(self, origin: Origin) -> None:
        self._family = processes.own_process_tree()
        self._recorded = origin.recorded
        self._pids_match = not self._recorded and processes.in_host_pid_namespace()
        self._cached: dict[str, tuple[tuple[Process, ...] | None, ProcessMemory]] = {}

    @property
    def possible(self) -> bool:
        """Whether it can be known which GPUs this process uses, if the driver lists their processes."""
        return self._pids_match or self.from_torch

    @property
    def from_torch(self) -> bool:
        """Whether torch's contexts show which GPUs this process uses."""
        return not self._recorded and cuda_state.unavailable_reason() is None

    def process_memory(self, gpu: Gpu, reading: Reading) -> ProcessMemory:
        """Return the memory of this process and its children on ``gpu`` according to ``reading``."""
        before = self._cached.get(gpu.uuid)
        if before is not None and before[0] is reading.processes and reading.processes is not None:
            return before[1]
        held = self._process_memory(reading)
        self._cached[gpu.uuid] = (reading.processes, held)
        return held

    @property
    def needs_proof(self) -> bool:
        """Whether :meth:`confirm` may still prove that the driver's process ids are valid here."""
        return not self._pids_match and not self._recorded

    def confirm(self, reading: Reading) -> None:
        """Search for this process in the process list of a GPU on which it has a CUDA context.

        If the list contains this process, the driver's process ids are valid in this process. In a container
        with a separate PID namespace, this is the only proof: the namespace does not show whether the driver
        reports ids of the host or of the container.
        """
        if any(process.pid == self._family.pid for process in reading.processes or ()):
            self._pids_match = True
            self._cached.clear()

    def _process_memory(self, reading: Reading) -> ProcessMemory:
        if self._recorded:
            return ProcessMemory(None, False, reasons.RECORDED_PROCESSES)
        if reading.processes is None:
            return ProcessMemory(None, False, why_missing(reading, "processes", reasons.NO_PROCESS_LIST))
        if not self._pids_match:
            return ProcessMemory(None, False, reasons.FOREIGN_PIDS)
        ours = [process for process in reading.processes if self._family.contains(process.pid)]
        shared = any(process.kind == "compute" and process not in ours for process in reading.processes)
        sizes = [process.memory for process in ours]
        own = any(process.pid == self._family.pid for process in ours)
        children = tuple(process for process in ours if process.pid != self._family.pid)
        if any(size is None for size in sizes):
            return ProcessMemory(None, True, reasons.NO_PROCESS_SIZES, own, children, True, shared)
        whole = sum(size for size in sizes if size is not None)
        return ProcessMemory(whole, bool(ours), None, own, children, True, shared)
