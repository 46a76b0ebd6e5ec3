"""Tests of the output that gpuwidget adds to a cell."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from gpuwidget.kernel.shell.output_slot import OutputSlot


def test_two_threads_add_one_output(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the live chart adds a new output while the cell's thread flushes the printed text to reserve one,
    the cell still has one output of gpuwidget, to which all updates go."""
    sent: list[str] = []
    channel: Any = SimpleNamespace(
        message_id="1", display=lambda data, display_id: sent.append(display_id), update=lambda *given: None
    )
    publisher = SimpleNamespace(clear_output=lambda wait=False: None)
    slot = OutputSlot(SimpleNamespace(display_pub=publisher), channel, for_card=True)
    out = SimpleNamespace(flush=lambda: slot.renew({"text/plain": "chart"}))
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", SimpleNamespace(flush=lambda: None))
    slot._reserve_after_text()
    monkeypatch.undo()
    assert sent == [slot._display_id]
