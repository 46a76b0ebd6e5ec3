"""An interrupt that comes beside a cell's own code: held back, or handed on to the code it is meant for."""

from __future__ import annotations

import functools
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import ParamSpec, TypeVar

_INTERRUPT_AFTER_S = 0.05
_P = ParamSpec("_P")
_R = TypeVar("_R")


class Presses:
    """Whether 'stop' was pressed meanwhile."""

    def __init__(self) -> None:
        self.pressed = False


@contextmanager
def deaf_to_interrupts(*, later: bool = False) -> Iterator[Presses]:
    """A second press on 'stop', milliseconds after the cell's end, has nothing left to stop.

    ``later`` delivers it afterwards, for what must not be left half done.
    """
    presses = Presses()
    if threading.current_thread() is not threading.main_thread():
        yield presses
        return

    def ignore(number: int, frame: FrameType | None) -> None:
        presses.pressed = True

    before = signal.getsignal(signal.SIGINT)
    if before is None:  # not set from Python: it could not be put back
        yield presses
        return
    signal.signal(signal.SIGINT, ignore)
    try:
        yield presses
    finally:
        signal.signal(signal.SIGINT, before)
        if presses.pressed and later:
            interrupt_soon()


def interrupt_soon() -> None:
    """Interrupt whatever the main thread runs in a moment; an idle kernel ignores it."""
    main = threading.main_thread().ident
    if main is None or threading.current_thread() is not threading.main_thread():
        return
    timer = threading.Timer(_INTERRUPT_AFTER_S, signal.pthread_kill, (main, signal.SIGINT))
    timer.daemon = True
    timer.start()


def without_its_frames(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """An interrupt of ``function`` keeps none of its frames: they would hold all that it has seen.

    The interrupt itself arrives: begun anew, from here.
    """

    @functools.wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return function(*args, **kwargs)
        except KeyboardInterrupt:
            pass
        raise KeyboardInterrupt

    return call


def leave_out_our_frames(error: object) -> None:
    """An interrupt that struck in what hears the user's output ends, in its traceback, with who called that.

    IPython leaves out frames that ask for it, but never the last one.
    """
    if not isinstance(error, KeyboardInterrupt):
        return
    trace = error.__traceback__
    theirs = None
    while trace is not None:
        # Code may run in a namespace whose __name__ is no text.
        if not str(trace.tb_frame.f_globals.get("__name__")).startswith("gpuwidget."):
            theirs = trace
        trace = trace.tb_next
    if theirs is not None:
        theirs.tb_next = None
