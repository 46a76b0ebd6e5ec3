"""Ignore interrupts that arrive outside the cell's code, or defer them until gpuwidget's work is done."""

from __future__ import annotations

import functools
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, ParamSpec, TypeVar

_DELIVERY_DELAY_S = 0.05
_Handler = Callable[[int, FrameType | None], Any] | int | None
_P = ParamSpec("_P")
_R = TypeVar("_R")


class InterruptState:
    """Records whether an interrupt arrived while interrupts were ignored or deferred."""

    def __init__(self, outer: _Handler = signal.SIG_DFL) -> None:
        self.interrupted = False
        self.outer = outer
        """The handler of SIGINT around the block."""

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Handle SIGINT."""
        self.interrupted = True


@contextmanager
def ignore_interrupts() -> Iterator[InterruptState]:
    """Ignore interrupts during this block, and only record that one arrived.

    Users may click the stop button twice. If the second interrupt arrives milliseconds after the cell has
    ended, there is nothing left to stop.
    """
    outer = signal.getsignal(signal.SIGINT)
    # Python can't restore a handler that it did not set, for which getsignal() returns None.
    if threading.current_thread() is not threading.main_thread() or outer is None:
        yield InterruptState()
        return

    state = InterruptState(outer)
    signal.signal(signal.SIGINT, state)
    try:
        yield state
    finally:
        signal.signal(signal.SIGINT, outer)


@contextmanager
def allow_interrupts() -> Iterator[None]:
    """Handle interrupts during this block as usual, even if a block around it ignores or defers them."""
    handler = current = signal.getsignal(signal.SIGINT)
    while isinstance(handler, InterruptState):
        handler = handler.outer
    if threading.current_thread() is not threading.main_thread() or handler is current:
        yield
        return
    try:
        signal.signal(signal.SIGINT, handler)
        yield
    finally:
        signal.signal(signal.SIGINT, current)


@contextmanager
def defer_interrupts() -> Iterator[InterruptState]:
    """Defer interrupts until this block has ended, so that its work is never left half done.

    A block around this one decides what happens to an interrupt: it ignores or defers it too.
    """
    state = InterruptState()
    try:
        with ignore_interrupts() as state:
            yield state
    finally:
        if state.interrupted:
            outer = signal.getsignal(signal.SIGINT)
            if isinstance(outer, InterruptState):
                outer.interrupted = True
            else:
                interrupt_soon()


def interrupt_soon() -> None:
    """Interrupt the main thread in 50 ms. An idle kernel ignores the interrupt.

    Does nothing if it is called on another thread.
    """
    main = threading.main_thread().ident
    if main is None or threading.current_thread() is not threading.main_thread():
        return
    timer = threading.Timer(_DELIVERY_DELAY_S, signal.pthread_kill, (main, signal.SIGINT))
    timer.daemon = True
    timer.start()


def drop_frames_on_interrupt(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Decorate ``function`` so that an interrupt's traceback contains none of the function's frames.

    The frames would keep the objects of their local variables alive.
    """

    @functools.wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return function(*args, **kwargs)
        except KeyboardInterrupt:
            pass
        raise KeyboardInterrupt  # a new exception, whose traceback starts at this frame

    return call


def hide_own_frames(error: object) -> None:
    """Cut gpuwidget's frames off the end of an interrupt's traceback, so that it ends at the user's call.

    IPython hides frames with ``__tracebackhide__``, but never the last frame.
    """
    if not isinstance(error, KeyboardInterrupt):
        return
    trace = error.__traceback__
    last_user_entry = None
    while trace is not None:
        # Users may set the __name__ of a namespace to any object.
        if not str(trace.tb_frame.f_globals.get("__name__")).startswith("gpuwidget."):
            last_user_entry = trace
        trace = trace.tb_next
    if last_user_entry is not None:
        last_user_entry.tb_next = None
