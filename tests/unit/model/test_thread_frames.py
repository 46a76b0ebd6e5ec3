"""Tests of walking the stacks of other threads."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Iterator
from types import FrameType

import pytest

from gpuwidget.model.thread_frames import caller_of, frames_of_threads

DEPTH = 300


@pytest.fixture
def deep_thread() -> Iterator[int]:
    """Run a thread that waits with a deep stack, and yield its identifier."""
    reached, done = threading.Event(), threading.Event()

    def descend(depth: int) -> None:
        if depth:
            return descend(depth - 1)
        reached.set()
        done.wait()
        return None

    thread = threading.Thread(target=descend, args=(DEPTH,))
    thread.start()
    reached.wait()
    yield thread.ident or 0
    done.set()
    thread.join()


@pytest.fixture
def collections() -> Iterator[list[str]]:
    """Collect garbage after every 50 new objects. Yield the functions of this thread that ran then."""
    this, found, before = threading.get_ident(), list[str](), gc.get_threshold()

    def note(phase: str, info: object) -> None:
        if phase == "start" and threading.get_ident() == this:
            found.append(sys._getframe(1).f_code.co_name)

    gc.callbacks.append(note)
    gc.set_threshold(50, 1000, 1000)
    yield found
    gc.set_threshold(*before)
    gc.callbacks.remove(note)


def functions(thread: int) -> list[str]:
    """Return the functions on a thread's stack, the innermost first."""
    found = list[str]()
    frame: FrameType | None = frames_of_threads()[thread]
    while frame is not None:
        found.append(frame.f_code.co_name)
        frame = caller_of(frame)
    return found


def test_the_stack_of_another_thread(deep_thread: int) -> None:
    """All functions of another thread are found, the innermost first."""
    found = functions(deep_thread)
    assert found.count("descend") == DEPTH + 1
    assert found[-1] == "_bootstrap"


only_3_11 = pytest.mark.skipif(
    sys.version_info[:2] != (3, 11), reason="only Python 3.11 may collect garbage at this moment"
)


@only_3_11
def test_no_garbage_is_collected_while_a_frame_is_created(collections: list[str], deep_thread: int) -> None:
    """Python 3.11 may crash if garbage is collected while it creates the frame object of another thread.
    The collections that are due take place before that."""
    del collections[:]
    functions(deep_thread)
    assert len(collections) >= DEPTH // 50
    assert set(collections) == {"_collect_young"}


@only_3_11
def test_nothing_is_collected_while_collections_are_off(collections: list[str], deep_thread: int) -> None:
    """If the user has turned garbage collections off, there is none, although many objects are created."""
    gc.disable()
    try:
        del collections[:]
        functions(deep_thread)
        assert gc.get_count()[0] > gc.get_threshold()[0]
        assert collections == []
    finally:
        gc.enable()
