"""Interrupts around what must not be left half done."""

from __future__ import annotations

import signal
import threading

import pytest

from gpuwidget.kernel.interrupts import deaf_to_interrupts


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
