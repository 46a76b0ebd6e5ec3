"""torch's cache, given back to the driver from a thread of our own, also while a cell uses torch.

What ``torch.cuda.empty_cache()`` does to a running cell: for each block that it gives back the driver waits
until the GPU has done what it was given to do, and whoever allocates meanwhile waits with it, on an older
torch all Python code does. What the cell allocates next is asked of the driver again, which is slower. It
takes nothing from the cell that it uses.

What it must not do: open a context on ``cuda:0`` by being called on a thread whose current device that is
(https://github.com/pytorch/pytorch/issues/25752), and spoil a graph that another thread captures. For the
first the thread takes a device that has a context. For the second it declares itself relaxed, as
:mod:`~gpuwidget.pytorch.stream_activity` does, checks the stream that torch captures on by default, and torch
itself refuses where it knows of a capture.
"""

from __future__ import annotations

from typing import Any

from gpuwidget.model.errors import OptionError
from gpuwidget.pytorch import allocator, cuda_state, stream_activity

STATEMENT = "torch.cuda.empty_cache()"
"""What runs."""

_CAPTURING = (
    "A CUDA graph is being captured, which giving memory back would spoil. Try again when that is done."
)
_FAILED = (
    "CUDA has reported an error in this process, after which nothing can be given back but by a restart of "
    "the kernel."
)
_NOT_SAFELY = (
    "A cell is running, and without CUDA's library, which was not found in this process, giving memory back "
    "might spoil a CUDA graph that the cell captures. Try again when the cell has ended."
)


def check() -> None:
    """Raise OptionError, saying why, where there is no cache to give back."""
    reason = allocator.why_none()
    if reason is not None:
        raise OptionError(f"There is no cache of torch's to free: {reason}.")
    if not cuda_state.devices_with_context():
        raise OptionError("There is no cache of torch's to free: this process has no context on a GPU.")


def returnable() -> int:
    """Bytes that would go back to the driver, some of them once work on another stream is done with them."""
    return sum(one.returnable + one.waiting for one in allocator.snapshot().values())


def kept() -> int:
    """Bytes of the cache that can't go back: beside tensors in use, or for CUDA graphs alone."""
    blocks = allocator.snapshot().values()
    return sum(one.reserved - one.allocated - one.returnable - one.waiting for one in blocks)


def empty(*, cell_runs: bool) -> None:
    """Give it back; on a thread of its own, since it waits for the GPU without a bound.

    Raises OptionError where that would spoil what the cell does, and whatever torch raises.
    """
    torch: Any = cuda_state.loaded()
    stream_activity.enter_device(cuda_state.devices_with_context()[0])
    library = stream_activity.runtime_library()
    if library is not None and stream_activity.relax(library):
        for stream in (None, _capture_stream(torch)):
            captures = stream_activity.captures(library, stream)
            if captures is not False:
                raise OptionError(_CAPTURING if captures else _FAILED)
    elif cell_runs:
        raise OptionError(_NOT_SAFELY)
    try:
        torch.cuda.empty_cache()
    except RuntimeError as error:
        if "captures_underway" in str(error):
            raise OptionError(_CAPTURING) from error
        raise


def _capture_stream(torch: Any) -> int | None:
    """Handle of the stream that torch captures on where the user names none; None before the first time."""
    stream = getattr(getattr(torch.cuda, "graph", None), "default_capture_stream", None)
    return getattr(stream, "cuda_stream", None)
