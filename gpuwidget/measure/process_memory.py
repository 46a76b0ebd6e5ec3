"""Which memory on a GPU is this process's, children included; and where nobody can say, why."""

from __future__ import annotations

from dataclasses import dataclass

from gpuwidget.model.gpu_process import Process
from gpuwidget.model.readings import Reading
from gpuwidget.model.samples import Gpu, Origin
from gpuwidget.pytorch import cuda_state
from gpuwidget.system import processes

_RECORDED = "the processes of a recording are not this machine's"
_FOREIGN_PIDS = "the driver names the host's process ids and this container has its own"
_UNSAID = "the driver does not say how much each process holds"
_UNLISTED = "the driver does not list processes"


@dataclass(frozen=True, slots=True)
class Holding:
    """What this process and its children hold on one GPU."""

    memory: int | None
    """Bytes; None where nobody can say."""
    present: bool
    """Whether they are known to have a context there."""
    reason: str | None
    """Why ``memory`` is None."""
    own: bool = False
    """Whether this process itself has a context there."""
    children: tuple[Process, ...] = ()
    """Its children, and theirs, that have."""

    @property
    def children_memory(self) -> int | None:
        """Bytes of ``memory`` that the children hold; None where that is not known."""
        return None if self.memory is None else sum(child.memory or 0 for child in self.children)


class Attribution:
    """Tells this process's share of each GPU, as long as it can be told."""

    def __init__(self, origin: Origin) -> None:
        self._family = processes.own_process_tree()
        self._recorded = origin.recorded
        self._pids_match = not self._recorded and processes.in_host_pid_namespace()
        self._judged: dict[str, tuple[tuple[Process, ...] | None, Holding]] = {}

    @property
    def possible(self) -> bool:
        """Whether it can be said which GPUs this process uses, at present."""
        if self._recorded:
            return False
        return self._pids_match or cuda_state.unavailable_reason() is None

    def holding(self, gpu: Gpu, reading: Reading) -> Holding:
        """This process's share of ``gpu`` as of ``reading``."""
        before = self._judged.get(gpu.uuid)
        if before is not None and before[0] is reading.processes and reading.processes is not None:
            return before[1]
        holding = self._judge(reading)
        self._judged[gpu.uuid] = (reading.processes, holding)
        return holding

    @property
    def wants_proof(self) -> bool:
        """Whether :meth:`confirm` could still show that process ids match."""
        return not self._pids_match and not self._recorded

    def confirm(self, reading: Reading) -> None:
        """This process is known to have a context on that GPU: seeing it listed proves that ids match.

        That is the only proof inside a container, whose namespace alone does not tell.
        """
        if any(process.pid == self._family.pid for process in reading.processes or ()):
            self._pids_match = True
            self._judged.clear()

    def _judge(self, reading: Reading) -> Holding:
        if self._recorded:
            return Holding(None, False, _RECORDED)
        if reading.processes is None:
            return Holding(None, False, reading.missing.get("processes", _UNLISTED))
        if not self._pids_match:
            return Holding(None, False, _FOREIGN_PIDS)
        ours = [process for process in reading.processes if self._family.contains(process.pid)]
        sizes = [process.memory for process in ours]
        own = any(process.pid == self._family.pid for process in ours)
        children = tuple(process for process in ours if process.pid != self._family.pid)
        if any(size is None for size in sizes):
            return Holding(None, True, _UNSAID, own, children)
        whole = sum(size for size in sizes if size is not None)
        return Holding(whole, bool(ours), None, own, children)
