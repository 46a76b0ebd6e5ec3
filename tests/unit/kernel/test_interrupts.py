"""Tests of deferring interrupts during work that must be completed, and of dropping frames from a
traceback."""

from __future__ import annotations

import signal
import sys
import threading
import weakref

import pytest

from gpuwidget.kernel.live import chart_libraries
from gpuwidget.kernel.shell.interrupts import (
    allow_interrupts,
    defer_interrupts,
    drop_frames_on_interrupt,
    ignore_interrupts,
)


def test_a_deferred_interrupt_arrives_afterwards() -> None:
    """If the user clicks stop while the device is being switched, the interrupt takes effect after the
    switch."""
    done: list[bool] = []

    def switch_device() -> None:
        with defer_interrupts():
            signal.raise_signal(signal.SIGINT)
            done.append(True)
        threading.Event().wait(10)

    with pytest.raises(KeyboardInterrupt):
        switch_device()
    assert done == [True]


def test_a_deferred_interrupt_is_ignored_if_interrupts_are() -> None:
    """An interrupt after the cell's code is ignored, even while work is done that defers interrupts."""
    threads = threading.active_count()
    with ignore_interrupts() as state, defer_interrupts():
        signal.raise_signal(signal.SIGINT)
    assert state.interrupted
    assert threading.active_count() == threads  # no timer that delivers the interrupt


def test_interrupts_are_allowed_in_an_inner_block() -> None:
    """While gpuwidget waits after a cell, an interrupt has its usual effect, also that of the user's own
    handler. Afterwards, interrupts are ignored again."""
    handled: list[int] = []
    with ignore_interrupts() as outer, defer_interrupts() as inner:
        with pytest.raises(KeyboardInterrupt), allow_interrupts():
            signal.raise_signal(signal.SIGINT)
        assert not inner.interrupted
        signal.raise_signal(signal.SIGINT)
        assert inner.interrupted
    assert outer.interrupted
    usual = signal.signal(signal.SIGINT, lambda number, frame: handled.append(number))
    try:
        with ignore_interrupts() as outer, allow_interrupts():
            signal.raise_signal(signal.SIGINT)
        with allow_interrupts():
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, usual)
    assert (handled, outer.interrupted) == ([signal.SIGINT] * 2, False)


def test_an_interrupt_leaves_no_library_half_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the user clicks stop while gpuwidget imports the live chart's libraries, the import is completed
    first. User code could not import numpy any more after an import that was broken off."""

    class Finder:
        @staticmethod
        def find_spec(name: str, path: object, target: object = None) -> None:
            if name == "gpuwidget.kernel.live.live_chart":
                signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(chart_libraries, "_imported", False)
    monkeypatch.delitem(sys.modules, "gpuwidget.kernel.live.live_chart", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Finder, *sys.meta_path])

    def start_cell() -> None:
        chart_libraries.import_libraries()
        threading.Event().wait(10)

    with pytest.raises(KeyboardInterrupt):
        start_cell()
    assert chart_libraries.is_imported()


def test_an_interrupt_keeps_no_objects_alive() -> None:
    """After an interrupt, the interrupted function's local objects are freed: the traceback omits its
    frames."""

    class Tensor:
        pass

    references: list[weakref.ref[Tensor]] = []

    @drop_frames_on_interrupt
    def search() -> None:
        tensor = Tensor()
        references.append(weakref.ref(tensor))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as raised:
        search()
    assert (raised.value.__context__, references[0]()) == (None, None)
    assert drop_frames_on_interrupt(lambda n: n + 1)(2) == 3
