"""Release torch's cached memory to the driver from a gpuwidget thread, even while a cell uses torch.

While a cell runs, ``torch.cuda.empty_cache()`` has these effects. For each segment that it releases, the
driver waits until the GPU has finished its work. A thread that allocates in the meantime waits too; on older
versions of torch, all Python code waits. The cell's next allocations must get memory from the driver again,
which is slower. Memory in use is not affected.

Two side effects must be avoided. First, the call would open a context on the thread's current device, which
is ``cuda:0`` by default (https://github.com/pytorch/pytorch/issues/25752). The thread therefore first sets
its current device to one that has a context. Second, the call could invalidate a graph capture on another
thread. The thread therefore relaxes its capture mode, as in :mod:`~gpuwidget.pytorch.stream_activity`, and
does not make the call if a graph is being captured on the default stream, on a stream that blocks the default
stream, or on the stream that torch captures on by default. torch itself refuses the call while it captures a
graph.
"""

from __future__ import annotations

from typing import Any

from gpuwidget.model.errors import OptionError
from gpuwidget.model.translation import translatable
from gpuwidget.pytorch import allocator, cuda_state, stream_activity

FREE_CACHE_STATEMENT = "torch.cuda.empty_cache()"
"""The Python statement that releases the cache."""

_CAPTURING = translatable(
    "A CUDA graph is being captured, and freeing memory would break the capture. Try again afterwards."
)
_FAILED = translatable(
    "CUDA has reported an error in this process. After that, only a restart of the kernel frees memory."
)
_NOT_SAFELY = translatable(
    "A cell is running. CUDA's library was not found in this process, so gpuwidget can't check "
    "whether the cell captures a CUDA graph, which freeing memory would break. Try again when "
    "the cell has ended."
)


def check_cache_available() -> None:
    """Raise OptionError with the reason if torch has no cache to release."""
    reason = cuda_state.no_counters_reason()
    if reason is not None:
        raise OptionError(translatable("There is no PyTorch cache to free, because {reason}.", reason=reason))
    if not cuda_state.devices_with_context():
        raise OptionError(
            translatable("There is no PyTorch cache to free, because this process has no context on a GPU.")
        )


def returnable_cache() -> int:
    """Return the cached bytes that torch could release, now or once other streams have finished using
    them."""
    return sum(device.returnable + device.pending_free for device in allocator.memory_blocks().values())


def retained_cache() -> int:
    """Return the cached bytes that torch can't release because they are fragmented or in private pools."""
    return sum(
        device.reserved - device.allocated - device.returnable - device.pending_free
        for device in allocator.memory_blocks().values()
    )


def empty_cache() -> None:
    """Call ``torch.cuda.empty_cache()`` on the calling thread, which must be the one that runs cells."""
    torch: Any = cuda_state.loaded_torch()
    torch.cuda.empty_cache()


def free_cache(*, cell_runs: bool) -> None:
    """Release torch's cache. Call it on a separate thread, because it waits for the GPU without a timeout.

    Raises OptionError if the release would or might invalidate a graph capture. Also raises any error of
    torch.
    """
    torch: Any = cuda_state.loaded_torch()
    stream_activity.set_thread_device(cuda_state.devices_with_context()[0])
    runtime = stream_activity.cuda_runtime()
    if runtime is not None and stream_activity.relax_capture_mode(runtime):
        for stream in (None, _default_capture_stream(torch)):
            capturing = stream_activity.is_capturing(runtime, stream)
            if capturing is not False:
                raise OptionError(_CAPTURING if capturing else _FAILED)
    elif cell_runs:
        raise OptionError(_NOT_SAFELY)
    try:
        torch.cuda.empty_cache()
    except RuntimeError as error:
        if "captures_underway" in str(error):
            raise OptionError(_CAPTURING) from error
        raise


def _default_capture_stream(torch: Any) -> int | None:
    """Return the handle of the stream on which ``torch.cuda.graph`` captures by default; None before it
    exists."""
    stream = getattr(getattr(torch.cuda, "graph", None), "default_capture_stream", None)
    return getattr(stream, "cuda_stream", None)
