"""Interrupts around what must not be left half done."""

from __future__ import annotations

import signal
import threading
import weakref

import pytest

from gpuwidget.kernel.shell.deferred_interrupts import deaf_to_interrupts, without_its_frames


def test_an_interrupt_meanwhile_arrives_afterwards() -> None:
    """'Stop', pressed while torch's device is changed, neither leaves that half done nor is lost."""
    done: list[bool] = []

    def pressed() -> None:
        with deaf_to_interrupts(later=True):
            signal.raise_signal(signal.SIGINT)
            done.append(True)
        threading.Event().wait(10)

    with pytest.raises(KeyboardInterrupt):
        pressed()
    assert done == [True]


def test_an_interrupt_without_the_frames_it_struck() -> None:
    """What the interrupted function had seen is not kept alive by the interrupt's traceback."""

    class Seen:
        pass

    seen: list[weakref.ref[Seen]] = []

    @without_its_frames
    def look() -> None:
        one = Seen()
        seen.append(weakref.ref(one))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as kept:
        look()
    assert (kept.value.__context__, seen[0]()) == (None, None)
    assert without_its_frames(lambda n: n + 1)(2) == 3
