"""Records of what torch reports about this process: devices, memory, switches, modules and ranks.

The functions of ``gpuwidget.pytorch`` return them. Sizes are in bytes.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from gpuwidget.model import units


@dataclass(frozen=True, slots=True)
class TorchDevice:
    """One of torch's CUDA devices."""

    index: int
    """The N of ``cuda:N``."""
    uuid: str | None
    """UUID of the GPU or MIG slice, without its prefix; None if neither torch nor the CUDA driver provides
    it."""

    @property
    def name(self) -> str:
        """``cuda:N``."""
        return f"cuda:{self.index}"


_CUDA_DEVICE = re.compile(r"cuda:(0|[1-9][0-9]{0,2})")


def cuda_index(device: str | None) -> int | None:
    """Return the N of ``cuda:N``; None for any other device."""
    match = _CUDA_DEVICE.fullmatch(device or "")
    return None if match is None else int(match[1])


def same_gpu(nvml_uuid: str, torch_uuid: str | None) -> bool:
    """Return whether both UUIDs are of the same GPU. NVML's UUIDs have a prefix (``GPU-…``, ``MIG-…``),
    torch's have none."""
    if torch_uuid is None:
        return False
    return nvml_uuid.partition("-")[2].lower() == torch_uuid.lower() or nvml_uuid == torch_uuid


@dataclass(frozen=True, slots=True)
class TorchVersions:
    """Versions of the loaded libraries. The version of a library that is not loaded is None."""

    torch: str | None
    cuda: str | None
    cudnn: str | None
    default_device: str | None


@dataclass(frozen=True, slots=True)
class AllocatorCounters:
    """The caching allocator's counters of one device (torch.cuda.memory_stats), in bytes and counts."""

    allocated: int
    allocated_peak: int
    reserved: int
    reserved_peak: int
    alloc_retries: int
    ooms: int
    inactive_split: int
    """Free bytes that can't be released, because their segments also contain allocated blocks."""
    allocations: int | None = None
    """Number of blocks that have been allocated so far (allocation.all.allocated), or None if unknown."""


@dataclass(frozen=True, slots=True)
class DevicePeaks:
    """One device's allocator counters before and after a run, and the exact peaks of the run in bytes."""

    before: AllocatorCounters | None
    """None if CUDA was not initialized when the run started, so that nothing had been allocated."""
    after: AllocatorCounters
    allocated_peak: int
    reserved_peak: int


LARGE_PAGE = 20 * units.MIB
"""Page size of expandable segments for large tensors (torch's kLargeBuffer)."""
_SMALL_PAGE = 2 * units.MIB
"""Page size of expandable segments for tensors of at most 1 MiB (torch's kSmallBuffer)."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A contiguous range of memory that torch has reserved from the driver."""

    size: int
    expandable: bool
    """Whether torch can release single pages of the segment."""
    shared: bool
    """Whether all allocations can use the segment. False if it is in a private pool, such as a CUDA
    graph's."""
    blocks: tuple[tuple[int, int, bool], ...]
    """Address, size in bytes and use of each block; the last value is True while the block is in use."""
    small: bool = False
    """Whether the segment is for tensors of at most 1 MiB."""

    def free_ranges(self, freed: Collection[int] = ()) -> list[tuple[int, int]]:
        """Return the offset and size in bytes of each contiguous range of free blocks.

        Blocks whose address is in ``freed`` count as free.
        """
        ranges: list[tuple[int, int]] = []
        offset, previous_free = 0, False
        for address, size, in_use in self.blocks:
            free = not in_use or address in freed
            if free and previous_free:
                start, length = ranges.pop()
                ranges.append((start, length + size))
            elif free:
                ranges.append((offset, size))
            offset, previous_free = offset + size, free
        return ranges

    def returnable(self, freed: Collection[int] = ()) -> int:
        """Return the bytes that torch could release if the blocks at ``freed`` were free.

        If no block is in use, torch could release the whole segment. Otherwise, it could release only the
        free pages of an expandable segment. The result is 0 for a segment in a private pool.
        """
        if not self.shared:
            return 0
        ranges = self.free_ranges(freed)
        if sum(size for _, size in ranges) == self.size:
            return self.size
        if not self.expandable:
            return 0
        page = _SMALL_PAGE if self.small else LARGE_PAGE
        return sum(max(0, (start + size) // page - -(-start // page)) * page for start, size in ranges)


@dataclass(frozen=True, slots=True)
class DeviceBlocks:
    """One device's allocated blocks, and the sums of the memory that torch has reserved on it."""

    index: int
    """The N of ``cuda:N``."""
    addresses: tuple[int, ...]
    """Start address of each block, ascending."""
    sizes: tuple[int, ...]
    """Bytes of each block. Their sum is torch's allocated memory."""
    requested: tuple[int, ...]
    """Requested bytes of each block."""
    reserved: int
    """Bytes that torch has taken from the driver."""
    returnable: int
    """Bytes that ``empty_cache()`` would release now."""
    pending_free: int
    """Further bytes that ``empty_cache()`` can release once other streams have finished using them."""
    private_pools: int
    """Free bytes in private pools, such as those of CUDA graphs. Other allocations can't use them."""

    @property
    def name(self) -> str:
        """``cuda:N``."""
        return f"cuda:{self.index}"

    @property
    def allocated(self) -> int:
        """Allocated bytes, equal to torch.cuda.memory_allocated()."""
        return sum(self.sizes)

    def find(self, address: int) -> int | None:
        """Return the position in ``addresses`` of the block that contains ``address``, or None."""
        position = bisect_right(self.addresses, address) - 1
        if position < 0 or address >= self.addresses[position] + self.sizes[position]:
            return None
        return position


@dataclass(frozen=True, slots=True)
class AllocationCounts:
    """Number of allocations and frees on one device since the process began."""

    allocations: int
    frees: int


@dataclass(frozen=True, slots=True)
class RequestedBytes:
    """The allocator's counters of requested bytes on one device."""

    allocated: int
    """Total of all bytes requested since the process began."""
    current: int
    peak: int


@dataclass(frozen=True, slots=True)
class RecordedHistory:
    """torch's allocation history during one run."""

    snapshot: Mapping[str, Any]
    since_us: float | None
    """The run's start in epoch microseconds. None if the recording started during the run, so that no event
    is older."""
    until_us: float
    before: Mapping[int, RequestedBytes]
    """The counters at the run's start, by device index. Nothing had been allocated on a device that is
    missing here."""
    after: Mapping[int, RequestedBytes]
    recorded_before: frozenset[int] | None
    """Addresses of the blocks that were in use at the run's start and whose allocation is in the history.
    None if gpuwidget did not start the recording."""
    note: str | None
    """A note for the report if the recording is the user's, else None."""


@dataclass(frozen=True, slots=True)
class AllocatorState:
    """The allocator's current state on one device. Values that the version of torch does not provide are
    None."""

    allocated: int | None
    reserved: int | None
    fragmented: int | None
    """Free bytes in segments that also contain blocks in use (inactive_split_bytes)."""
    free: int | None
    """Free bytes of the device (cudaMemGetInfo)."""
    total: int | None
    limit: int | None
    """Bytes that torch lets this process use; None if there is no limit or torch does not report it."""
    segments: tuple[Segment, ...]
    expandable: bool


Stage = Literal["forward", "backward", "optimizer", "parameters", "other"]
"""What the failed code was doing: running a module, ``backward()``, an optimizer's ``step()``, creating or
moving a module's parameters, or anything else."""


class CodeLine(NamedTuple):
    """A line of the user's code."""

    file: str
    line: int


@dataclass(frozen=True, slots=True)
class DeviceChanges:
    """The changes of the current CUDA device in one run."""

    switches: int = 0
    """How often ``torch.cuda.set_device`` selected another device than before, on any thread."""
    switching_line: CodeLine | None = None
    """The line that made most of the first switches, or None if it is unknown."""
    first_lines: Mapping[int, CodeLine] = field(default_factory=dict)
    """The line that first used each device, by device index, as far as it is known."""


@dataclass(frozen=True, slots=True)
class ComputeSwitches:
    """The values of the switches that determine which hardware units and algorithms torch uses.

    A value is None if the version of torch lacks the switch.
    """

    tf32_matmul: bool | None
    """Whether float32 matrix products may use TF32 on the tensor cores."""
    tf32_conv: bool | None
    """Whether cuDNN's convolutions may use TF32 on the tensor cores."""
    cudnn: bool | None
    """Whether cuDNN is used at all."""
    cudnn_benchmark: bool | None = None
    """Whether cuDNN benchmarks its algorithms for each new shape (torch.backends.cudnn.benchmark)."""


class SwitchValue(NamedTuple):
    """The current value of a switch."""

    value: str | None
    note: str | None = None
    """A sentence that explains why the value is unknown or has no effect, or None."""


@dataclass(frozen=True, slots=True)
class Loader:
    """A torch.utils.data.DataLoader among the user's variables."""

    name: str
    num_workers: int
    pin_memory: bool
    prefetch_factor: int | None
    persistent_workers: bool


@dataclass(frozen=True, slots=True)
class Model:
    """A torch.nn.Module among the user's variables."""

    name: str
    type: str
    on_cpu: int | None
    """Bytes of the module's parameters and buffers in host memory, or None if some could not be counted. A
    storage that several of them share counts once."""
    on_gpu: int | None
    """Bytes of the module's parameters and buffers on CUDA devices, counted like ``on_cpu``."""
    uses_cudnn: bool
    """Whether the module contains layers that cuDNN accelerates: convolutions or recurrent layers."""


class SpawnedRank(NamedTuple):
    """A process's place among the processes that torch has started together."""

    rank: int
    """For ``mp.spawn``, the index of the process, which torch passes to the function."""
    local_rank: int
    world_size: int
