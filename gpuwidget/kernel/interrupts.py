"""An interrupt that comes beside a cell's own code: held back, or handed on to the code it is meant for."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_INTERRUPT_AFTER_S = 0.05


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
