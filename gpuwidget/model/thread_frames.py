"""Walk the stacks of other threads without a crash of Python 3.11.

Python 3.11 creates the frame object of a caller only when it is asked for, which may start a garbage
collection. If a finalizer of this collection releases the GIL, the other thread continues, and Python then
uses the memory of a frame that no longer exists. The process crashes, or the result is not a frame. Python
3.10 needs no such objects, and Python 3.12 collects garbage only between instructions.
"""

from __future__ import annotations

import gc
import sys
from gc import get_count, get_threshold
from types import FrameType

_CREATES_FRAMES = sys.version_info[:2] == (3, 11)
_MAX_THREADS = 20
"""Number of threads whose innermost frames are created without a garbage collection."""


def frames_of_threads() -> dict[int, FrameType]:
    """Return the innermost frame of each thread of this process, by the thread's identifier."""
    if _CREATES_FRAMES and get_count()[0] + _MAX_THREADS > get_threshold()[0]:
        _collect_if_on()
    return sys._current_frames()


def caller_of(frame: FrameType) -> FrameType | None:
    """Return the frame that called ``frame``, a frame of any thread; None for the outermost frame."""
    if _CREATES_FRAMES and get_count()[0] + 2 > get_threshold()[0]:
        _collect_if_on()
    return frame.f_back


def _collect_if_on() -> None:
    """Do the collection of young garbage that is nearly due, unless the user has turned collections off."""
    if gc.isenabled() and get_threshold()[0]:
        gc.collect(0)
