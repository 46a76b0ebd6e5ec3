"""Walk the stacks of running threads without a crash of Python 3.11.

Python 3.11 creates the frame object of a caller only when it is asked for, which may start a garbage
collection. If a finalizer of this collection releases the GIL, the other thread continues, and Python then
uses the memory of a frame that no longer exists. The process crashes, or the result is not a frame. Python
3.10 needs no such objects, and Python 3.12 collects garbage only between instructions.

So a collection that is nearly due is done before the frame object is created. What remains is improbable:
this thread would have to be preempted just after the check, and other threads to leave exactly as many new
objects as start a collection.
"""

from __future__ import annotations

import gc
import sys
from types import FrameType

_FRAME_MAY_COLLECT = sys.version_info[:2] == (3, 11)
"""Whether the creation of a frame object may start a garbage collection."""
_MAX_THREADS = 20
"""Number of threads for whose innermost frames the room before the next collection is checked."""


def frames_of_threads() -> dict[int, FrameType]:
    """Return the innermost frame of each thread of this process, by the thread's identifier."""
    if _FRAME_MAY_COLLECT and gc.get_count()[0] + _MAX_THREADS > gc.get_threshold()[0]:
        _collect_young()
    return sys._current_frames()


def caller_of(frame: FrameType) -> FrameType | None:
    """Return the frame that called ``frame``, a frame of any thread; None for the outermost frame."""
    # A collection starts with the object that exceeds the threshold: the next one, or the one after it if the
    # check itself creates an object.
    if _FRAME_MAY_COLLECT and gc.get_count()[0] + 2 > gc.get_threshold()[0]:
        _collect_young()
    return frame.f_back


def _collect_young() -> None:
    """Collect young garbage, unless the user has turned collections off."""
    if gc.isenabled() and gc.get_threshold()[0]:
        gc.collect(0)
