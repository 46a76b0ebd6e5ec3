"""Resolve which process, kernel or terminal owns the memory on each GPU. This runs on a worker thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, partial
from typing import NamedTuple

from gpuwidget.model.clock import Clock
from gpuwidget.model.gpu_process import Process
from gpuwidget.model.readings import Reading
from gpuwidget.model.samples import Sample
from gpuwidget.model.to_json import to_json
from gpuwidget.server.encoding import encode
from gpuwidget.server.gpu_holders import ProcessContext, gpu_owners, gpu_ownership
from gpuwidget.server.gpu_owners import NO_OWNER, GpuOwners, ProcessOwner
from gpuwidget.server.kernel_inventory import InventorySnapshot
from gpuwidget.server.kernel_reports import KernelUsage
from gpuwidget.server.wire import GpuMemoryOwnership, MeanUtilization, MemoryOwnership, SlurmJob
from gpuwidget.system import processes
from gpuwidget.system.memory_owners import PidMatching, is_own_user
from gpuwidget.system.processes import Identity, ProcessDirectory, ProcessTrees

_TIMED_OUT = "For 10 seconds, this machine has not reported who owns the processes on the GPUs."
_CLEAR_CHANGE = 64 * 1024**2
"""Memory has clearly changed if it differs by more than this number of bytes."""


class OwnershipRequest(NamedTuple):
    """The data from which the owners are resolved."""

    sample: Sample
    inventory: InventorySnapshot
    kernels: Mapping[str, int | None]
    """The process id of every kernel, or None for a kernel that has no process on this machine."""
    reports: Mapping[str, Mapping[str, KernelUsage]]
    """The memory usage that kernels report, by kernel and GPU."""
    means: Mapping[str, tuple[MeanUtilization, ...]]
    sent: MemoryOwnership | None
    """The message that was sent last."""
    find_owners: bool = False
    """Whether the owners of the processes on each GPU are needed, not only those of its memory."""
    job: SlurmJob | None = None
    """The Slurm job in which this server runs."""

    def message(self, gpus: tuple[GpuMemoryOwnership, ...]) -> tuple[MemoryOwnership, bytes] | None:
        """Return the message and its JSON.

        Return None if the message differs only in its time from the message that was sent last.
        """
        ownership = MemoryOwnership("usage", self.sample.time, self.inventory.kernels, gpus, self.job)
        if self.sent is not None and replace(ownership, time=self.sent.time) == self.sent:
            return None
        return ownership, encode(to_json(ownership))

    def timeout_message(self) -> tuple[MemoryOwnership, bytes] | None:
        """Return the message and its JSON for the case that the owners are not resolved in time.

        Return None if the message differs only in its time from the message that was sent last.
        """
        return self.message(
            tuple(
                GpuMemoryOwnership(
                    reading.uuid,
                    (),
                    reading.memory_used,
                    _TIMED_OUT,
                    self.means[reading.uuid],
                    reading.memory_used,
                )
                for reading in self.sample.readings
            )
        )

    def message_for_newer(
        self, sample: Sample, gpus: tuple[GpuMemoryOwnership, ...]
    ) -> tuple[MemoryOwnership, bytes] | None:
        """Return the message and its JSON with ``gpus``, the owners found for the earlier ``sample``.

        The owners on GPUs whose memory has changed since are marked as older. Return None if the message
        differs only in its time from the message that was sent last.
        """
        changed, found = changed_gpus(sample, self.sample), {gpu.uuid: gpu for gpu in gpus}
        newer = []
        for reading in self.sample.readings:
            gpu = found.get(reading.uuid)
            if gpu is None:
                continue
            gpu = replace(gpu, means=self.means.get(gpu.uuid, gpu.means))
            if gpu.uuid in changed:
                # If nothing can be attributed, all memory is unattributed, whatever its amount is.
                none_known = not gpu.holdings and gpu.reason is not None
                unattributed = reading.memory_used if none_known else None
                gpu = replace(
                    gpu, unattributed=unattributed, memory_used=reading.memory_used, older=not none_known
                )
            newer.append(gpu)
        return self.message(tuple(newer))


class OwnershipResult(NamedTuple):
    """A new message, if any, and the process ids of the kernels that should be queried."""

    message: tuple[MemoryOwnership, bytes] | None
    kernels_to_query: Mapping[str, int | None]
    gpus: tuple[GpuMemoryOwnership, ...]
    owners: Mapping[str, GpuOwners]
    """The owners of the processes on each GPU that answers, by UUID. Empty for a recording, and if the
    request does not need them."""


class OwnershipResolver:
    """Resolves the owners of memory, and caches data about processes. Use it on one thread at a time."""

    def __init__(self, clock: Clock, *, hide_other_users: bool = False) -> None:
        self._hide_other_users = hide_other_users
        self._families = ProcessTrees(clock)
        self._directory = ProcessDirectory(clock)
        self._matching = PidMatching()

    def resolve(self, request: OwnershipRequest) -> OwnershipResult:
        """Resolve who owns the memory of each GPU in the request's sample."""
        inventory, sample = request.inventory, request.sample
        reports = _checked_reports(request.reports, sample)
        self._families.set_roots((*inventory.kernel_of, *inventory.terminal_of))

        def owner(pid: int) -> ProcessOwner:
            root = self._families.root_of(pid)
            if root is None:
                return NO_OWNER
            return ProcessOwner(inventory.kernel_of.get(root), inventory.terminal_of.get(root))

        def identity(process: Process) -> Identity:
            if process.user is not None or process.program is not None:
                return Identity(process.user, process.program)
            return self._directory.look_up(process.pid)

        def uses_gpu(pid: int, uuid: str) -> bool:
            usage = reports.get(owner(pid).kernel or "", {}).get(uuid)
            return bool((usage is not None and usage.context) or processes.uses_cuda(pid))

        if sample.origin.local_processes:
            self._matching.update(sample.readings, uses_gpu)
        context = ProcessContext(
            owner=owner,
            identity=identity,
            is_hidden=lambda process: self._hide_other_users and not is_own_user(identity(process).user),
            kernels=request.kernels,
            pids_match=self._matching.proven,
            in_container=not self._matching.in_host_namespace,
            reports=reports,
            remote_kernels=inventory.remote_kernels,
            cuda_owners=cache(partial(_cuda_owners, self._families, owner)),
        )
        gpus = tuple(
            gpu_ownership(reading, sample.origin, context, request.means[reading.uuid])
            for reading in sample.readings
        )
        owners = {
            reading.uuid: gpu_owners(reading, context, ownership)
            for reading, ownership in zip(sample.readings, gpus, strict=True)
            if request.find_owners
            and sample.origin.local_processes
            and reading.lost_since is None
            and reading.silent_since is None
        }
        return OwnershipResult(request.message(gpus), self._kernels_to_query(request, owner), gpus, owners)

    def _kernels_to_query(
        self, request: OwnershipRequest, owner: Callable[[int], ProcessOwner]
    ) -> Mapping[str, int | None]:
        """Return the process ids of the kernels that may use CUDA and whose memory the driver does not
        report."""
        if not request.sample.origin.local_processes:
            return {}
        readings = [reading for reading in request.sample.readings if reading.lost_since is None]
        if not self._matching.proven or any(reading.processes is None for reading in readings):
            # A process that has not opened a CUDA device holds no GPU memory, so there is no need to query
            # its kernel.
            return {
                kernel: pid
                for kernel, pid in request.kernels.items()
                if pid is None or processes.uses_cuda(pid) is not False
            }
        without_memory = {
            owner(process.pid).kernel
            for reading in readings
            for process in reading.processes or ()
            if process.memory is None
        }
        return {kernel: pid for kernel, pid in request.kernels.items() if kernel in without_memory}


def changed_gpus(before: Sample, now: Sample) -> set[str]:
    """Return the UUIDs of the GPUs that were added or removed, and of those on which processes have begun or
    ended, or the memory of any process or in total has clearly changed."""
    old, new = ({each.uuid: _sizes(each) for each in sample.readings} for sample in (before, now))
    return (old.keys() ^ new.keys()) | {
        uuid for uuid in old.keys() & new.keys() if _differ(old[uuid], new[uuid])
    }


_Sizes = Mapping[int | None, int | None]
"""Bytes by process id. None stands for all memory in use."""


def _sizes(reading: Reading) -> _Sizes:
    return {None: reading.memory_used, **{each.pid: each.memory for each in reading.processes or ()}}


def _differ(old: _Sizes, new: _Sizes) -> bool:
    if old.keys() != new.keys():
        return True
    pairs = [(size, new[pid]) for pid, size in old.items() if size != new[pid]]
    return any(one is None or other is None or abs(one - other) > _CLEAR_CHANGE for one, other in pairs)


def _checked_reports(
    reports: Mapping[str, Mapping[str, KernelUsage]], sample: Sample
) -> Mapping[str, Mapping[str, KernelUsage]]:
    """Return the reports about the GPUs in ``sample``. More bytes than a GPU has are unknown and invalid."""
    totals = {gpu.uuid: gpu.memory_total for gpu in sample.gpus}
    checked: dict[str, dict[str, KernelUsage]] = {}
    for kernel, usage_of in reports.items():
        checked[kernel] = {uuid: usage for uuid, usage in usage_of.items() if uuid in totals}
        for uuid, usage in checked[kernel].items():
            total = totals[uuid]
            if total is not None and usage.reserved is not None and usage.reserved > total:
                checked[kernel][uuid] = replace(usage, reserved=None, invalid=True)
    return checked


def _cuda_owners(trees: ProcessTrees, owner: Callable[[int], ProcessOwner]) -> frozenset[ProcessOwner]:
    """Return the owners of this server's processes that may have a CUDA context."""
    return frozenset(
        owner(pid)
        for pid in processes.all_pids()
        if trees.root_of(pid) is not None and processes.uses_cuda(pid) is not False
    )
