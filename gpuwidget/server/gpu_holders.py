"""The holders of one GPU's memory: kernels, terminals, other processes, and bytes without a known holder.

Nothing is guessed. If the driver does not list a GPU's processes, or lists process ids that can't be matched
with this server's, only the memory that kernels report has a holder. Used memory without a holder is
``unattributed``, and the reason is given if it is known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from gpuwidget.model.gpu_process import Process
from gpuwidget.model.readings import Reading
from gpuwidget.model.samples import Origin
from gpuwidget.server.gpu_owners import NO_OWNER, GpuOwners, ProcessOwner
from gpuwidget.server.kernel_reports import KernelUsage
from gpuwidget.server.wire import GpuMemoryOwnership, MeanUtilization, MemoryHolder
from gpuwidget.system.memory_owners import by_owner
from gpuwidget.system.processes import UNKNOWN, Identity

RECORDED = "The recorded processes are not this machine's."
_FOREIGN_PIDS = (
    "The driver's process ids can't be matched with those of this server's processes, "
    "for example because this container has its own ids."
)
_TORCH_ONLY = (
    "The memory of kernels is torch's count, without CUDA contexts, other libraries and child processes."
)
_TORCH_WHERE_UNKNOWN = (
    "A kernel's memory is torch's count for its own process, without CUDA contexts, other "
    "libraries, and child processes whose memory the driver does not report."
)
_LOAD_EXTENSION = (
    "A notebook that has loaded gpuwidget (%load_ext gpuwidget) reports how much torch holds in it."
)
_INVALID_REPORT = "A kernel reported an impossible amount of torch memory, so its memory is unknown."
_UNKNOWN_SIZES = "The driver does not report how much each process holds."
_SMALLEST_CONTEXT = 64 * 1024**2
"""Less unattributed memory than this number of bytes can't belong to a process outside the container, because
a CUDA context takes more (an H200's takes 620 MiB)."""
_OUTSIDE_CONTAINER = (
    "Processes outside this container, which are not listed here, may hold some of the memory."
)


class ProcessContext(NamedTuple):
    """Data that identify the processes on the GPUs."""

    owner: Callable[[int], ProcessOwner]
    identity: Callable[[Process], Identity]
    is_hidden: Callable[[Process], bool]
    """Returns whether a process is another user's, and the server hides those."""
    kernels: Mapping[str, int | None]
    """The process id of every kernel, or None for a kernel that has no process on this machine."""
    pids_match: bool
    """Whether process ids that the driver reports are valid in this server's PID namespace."""
    in_container: bool
    """Whether this server runs in a container. If so, there may be processes that the driver does not
    list."""
    reports: Mapping[str, Mapping[str, KernelUsage]]
    """The memory usage that kernels report, by kernel and GPU."""
    remote_kernels: int
    """Number of this server's kernels that have no process on this machine."""
    cuda_owners: Callable[[], frozenset[ProcessOwner]]
    """Returns the owners of this server's processes that may use CUDA."""


def gpu_ownership(
    reading: Reading, origin: Origin, context: ProcessContext, means: tuple[MeanUtilization, ...]
) -> GpuMemoryOwnership:
    """Return the holders of the memory of the GPU to which ``reading`` belongs."""
    if origin.recorded:
        used = reading.memory_used
        return GpuMemoryOwnership(reading.uuid, (), used, RECORDED, means, used)
    if reading.lost_since is not None or reading.silent_since is not None:
        reason = reading.missing.get("memory_used", "the GPU does not answer")
        return GpuMemoryOwnership(reading.uuid, (), None, f"{reason[0].upper()}{reason[1:]}.", means)
    reports = {kernel: gpus[reading.uuid] for kernel, gpus in context.reports.items() if reading.uuid in gpus}
    if reading.processes is None or not context.pids_match:
        return _from_reports(reading, reports, means)
    return _from_driver(reading, reading.processes, context, reports, means)


def gpu_owners(reading: Reading, context: ProcessContext, ownership: GpuMemoryOwnership) -> GpuOwners:
    """Return the owners of the processes that can use a live GPU. ``ownership`` is the GPU's."""
    if reading.processes is None or not context.pids_match:
        by_report = {
            ProcessOwner(kernel, None)
            for kernel, gpus in context.reports.items()
            if reading.uuid in gpus and gpus[reading.uuid].context
        }
        return GpuOwners(context.cuda_owners() | by_report, {}, complete=False)
    owner_of = {process.pid: context.owner(process.pid) for process in reading.processes}
    unattributed = ownership.unattributed
    is_known = unattributed is not None and unattributed < _SMALLEST_CONTEXT
    return GpuOwners(frozenset(owner_of.values()), owner_of, complete=is_known or not context.in_container)


def _from_driver(
    reading: Reading,
    listed: Sequence[Process],
    context: ProcessContext,
    reports: Mapping[str, KernelUsage],
    means: tuple[MeanUtilization, ...],
) -> GpuMemoryOwnership:
    def owner_of(process: Process) -> tuple[ProcessOwner, int | None]:
        owner = context.owner(process.pid)
        # Each process that belongs to no kernel or terminal is a separate holder. Hidden ones are one holder.
        is_separate = owner == NO_OWNER and not context.is_hidden(process)
        return owner, process.pid if is_separate else None

    groups = by_owner(listed, owner_of)
    holders = [
        _holder(owner, found, context, reports.get(owner.kernel) if owner.kernel else None)
        for (owner, _), found in groups.items()
    ]
    unattributed = _unattributed(reading, holders)
    reasons = []
    if any(process.memory is None for process in listed):
        reasons.append(_UNKNOWN_SIZES)
        reasons += [_TORCH_WHERE_UNKNOWN] if any(holder.source == "torch" for holder in holders) else []
        unknown = {holder.kernel for holder in holders if holder.memory is None}
        invalid = any(usage.invalid and kernel in unknown for kernel, usage in reports.items())
        reasons += [_INVALID_REPORT] if invalid else []
    elif context.in_container and unattributed:
        reasons.append(_OUTSIDE_CONTAINER)
    if context.remote_kernels and any(owner == NO_OWNER for owner, _ in groups):
        reasons.append(_remote_kernels_reason(context.remote_kernels))
    return _ownership(reading, holders, unattributed, reasons, means)


def _holder(
    owner: ProcessOwner, found: Sequence[Process], context: ProcessContext, usage: KernelUsage | None
) -> MemoryHolder:
    unknown = {process.pid for process in found if process.memory is None}
    known_bytes = sum(process.memory for process in found if process.memory is not None)
    # torch's allocator counts only the bytes of the kernel's own process. They can therefore replace the
    # unknown size of that process, but not of the kernel's child processes.
    kernel_pid = context.kernels.get(owner.kernel) if owner.kernel is not None else None
    torch_bytes = usage.reserved if usage is not None and kernel_pid in unknown else None
    memory = None if unknown and torch_bytes is None else known_bytes + (torch_bytes or 0)
    visible = [process for process in found if not context.is_hidden(process)]
    # If a terminal runs several programs, name the one that holds the most memory.
    largest = max(visible, key=lambda process: process.memory or 0, default=None)
    identity = UNKNOWN if owner.kernel is not None or largest is None else context.identity(largest)
    return MemoryHolder(
        kernel=owner.kernel,
        terminal=owner.terminal,
        # No process has the id 0: the driver reports it for a process that it does not identify.
        pid=(largest.pid or None) if len(found) == 1 and largest is not None else None,
        user=identity.user if owner.terminal is None else None,
        program=identity.program,
        memory=memory,
        source="driver" if torch_bytes is None else "torch",
        other_users=owner == NO_OWNER and largest is None,
    )


def _from_reports(
    reading: Reading, reports: Mapping[str, KernelUsage], means: tuple[MeanUtilization, ...]
) -> GpuMemoryOwnership:
    holders = [
        MemoryHolder(kernel, None, None, None, None, usage.reserved, "torch", other_users=False)
        for kernel, usage in reports.items()
        if usage.context or usage.reserved or usage.invalid
    ]
    if reading.processes is None:
        why = reading.missing.get("processes")
        reason = "The driver does not list this GPU's processes" + (f": {why}." if why else ".")
    else:
        reason = _FOREIGN_PIDS
    reasons = [reason, _TORCH_ONLY if holders else _LOAD_EXTENSION]
    reasons += [_INVALID_REPORT] if any(usage.invalid for usage in reports.values()) else []
    return _ownership(reading, holders, _unattributed(reading, holders), reasons, means)


def _unattributed(reading: Reading, holders: Sequence[MemoryHolder]) -> int | None:
    """Return the used bytes that belong to no holder. None if the used or the held bytes are unknown."""
    used, held = reading.memory_used, [holder.memory for holder in holders]
    if used is None or None in held:
        return None
    # The driver returns used memory and processes at different moments, so the difference may be negative.
    return max(0, used - sum(size for size in held if size is not None))


def _ownership(
    reading: Reading,
    holders: Sequence[MemoryHolder],
    unattributed: int | None,
    reasons: Sequence[str],
    means: tuple[MeanUtilization, ...],
) -> GpuMemoryOwnership:
    why = reading.missing.get("memory_used")
    if reading.memory_used is None and why is not None:
        reasons = [f"The used memory is unknown: {why}.", *reasons]
    largest_first = sorted(
        holders,
        key=lambda holder: (
            -1 if holder.memory is None else holder.memory,
            holder.kernel or holder.terminal or "",
        ),
        reverse=True,
    )
    return GpuMemoryOwnership(
        reading.uuid,
        tuple(largest_first),
        unattributed,
        " ".join(reasons) or None,
        means,
        reading.memory_used,
    )


def _remote_kernels_reason(kernels: int) -> str:
    if kernels == 1:
        return (
            "One kernel of this server has no process here: its memory can't be told apart from "
            "that of other processes."
        )
    return (
        f"{kernels} kernels of this server have no process here: their memory can't be told apart from that "
        "of other processes."
    )
