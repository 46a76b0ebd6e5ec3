"""Tests of the card that is shown when a watched cell ends."""

from __future__ import annotations

from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import helpers_reports as reports
import pytest

from gpuwidget.kernel.cells import cell_watch, watch_api, watched_cells
from gpuwidget.kernel.cells.cell_watch import CellWatch
from gpuwidget.kernel.cells.options import parse
from gpuwidget.kernel.cells.watched_cells import CellWatcher
from gpuwidget.kernel.shell.running_cells import RunningCell


class SimulatedRun(SimpleNamespace):
    """A run that does nothing."""

    __hash__ = object.__hash__  # type: ignore[assignment]


@pytest.mark.parametrize("note", [None, "Waited 3.0 s for 20.0 GiB free on GPU 0 H200 (--gpu)."])
def test_the_note_about_the_wait(monkeypatch: pytest.MonkeyPatch, note: str | None) -> None:
    """If gpuwidget waited for memory before the cell, the card and the report contain a note about the
    wait."""
    made = reports.report(reports.gpu(0))
    card_report = reports.as_card(made)
    run = SimulatedRun(
        call_after=lambda *given: None,
        start=lambda: None,
        end=lambda status, **_: None,
        report=lambda: card_report,
        wait_interrupted=False,
    )
    shown: list[dict[str, Any]] = []
    publisher = SimpleNamespace(publish=lambda data, metadata: shown.append(data))
    monkeypatch.setattr(watch_api, "new_run", lambda *given: run)
    monkeypatch.setattr(watch_api, "_reports", [])
    monkeypatch.setattr(cell_watch, "collectors", lambda *given: [])
    watch = CellWatch(SimpleNamespace(display_pub=publisher))
    watch.start(parse("--need 20GiB --wait 1h"), "x", wait_note=note)
    watch.finish("ok")
    (kept,), (card,) = watch_api.reports(), shown
    assert [one for one in kept.notes if one not in made.notes] == ([] if note is None else [note])
    assert (note or "") in card["text/plain"]
    assert ("Waited" in card["text/plain"]) == (note is not None)


def test_an_interrupt_while_a_failed_run_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the user clicks stop just when a cell fails, the interrupt does not replace the cell's error. It
    arrives shortly afterwards."""
    watch = CellWatch(SimpleNamespace())
    error = ValueError("of the cell")

    def end(status: str) -> None:
        raise KeyboardInterrupt

    watch.run = SimpleNamespace(end=end)  # type: ignore[assignment]
    later: list[None] = []
    monkeypatch.setattr(cell_watch, "interrupt_soon", lambda: later.append(None))
    watch.end_failed(SimpleNamespace(error_before_exec=None, error_in_exec=error))
    assert later == [None]


@pytest.mark.parametrize("nested", [False, True])
def test_an_interrupt_of_the_wait_for_the_gpu(monkeypatch: pytest.MonkeyPatch, nested: bool) -> None:
    """If the user interrupts the wait for the GPU after a cell's code, the cell fails with the reason. If the
    cell ran inside another one, the interrupt arrives in the outer cell's code instead."""
    later: list[None] = []
    shown: list[tuple[type[BaseException], list[str]]] = []
    monkeypatch.setattr(watched_cells, "interrupt_soon", lambda: later.append(None))
    shell = SimpleNamespace(
        ast_transformers=[], _showtraceback=lambda kind, error, lines: shown.append((kind, lines))
    )
    cell = RunningCell(info=None, thread=0, number=1)
    running: Any = SimpleNamespace(nested=nested, find=lambda info: cell)
    watcher = CellWatcher(shell, running)
    watch = watcher._watches[cell] = CellWatch(shell)
    watch.run = SimpleNamespace(wait_interrupted=True, abandon=lambda: None)  # type: ignore[assignment]
    monkeypatch.setattr(CellWatch, "finish", lambda *arguments, **options: None)
    monkeypatch.setattr(watch_api, "leave_cell", lambda run: None)
    result = SimpleNamespace(info=None, error_before_exec=None, error_in_exec=None, result=42)
    watcher.after(result)
    text = "Interrupted while gpuwidget waited for the GPU: the cell's code had already ended."
    assert (str(result.error_in_exec), len(later)) == (("None", 1) if nested else (text, 0))
    assert shown == ([] if nested else [(KeyboardInterrupt, [f"KeyboardInterrupt: {text}"])])


@pytest.mark.stops_errors
@pytest.mark.parametrize("step", ["stop_listening", "abandon", "interrupt"])
def test_the_card_about_exhausted_memory_is_never_lost(step: str) -> None:
    """If the watch of a cell that ran out of memory can't be ended, the card about the memory is shown
    nevertheless, once."""

    def broken() -> None:
        raise KeyboardInterrupt if step == "interrupt" else RuntimeError(step)

    shown: list[Any] = []
    publisher = SimpleNamespace(publish=lambda data, metadata: shown.append(data))
    watch = CellWatch(SimpleNamespace(display_pub=publisher))
    watch.oom = {"text/plain": "out of memory"}
    watch.run = SimpleNamespace(abandon=broken if step == "abandon" else lambda: None)  # type: ignore[assignment]
    if step != "abandon":
        watch.stop_listening = broken
    with suppress(KeyboardInterrupt):
        watch.abandon()
    watch.stop_listening = lambda: None
    watch.abandon()
    assert shown == [{"text/plain": "out of memory"}]
    assert not watch.watching


@pytest.mark.stops_errors
@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), OSError("no such file")], ids=["interrupt", "failure"]
)
@pytest.mark.parametrize(("line", "skipped"), [("--need 20GiB", True), ("", False)], ids=["need", "no need"])
def test_a_cell_that_needs_memory_never_runs_unchecked(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, line: str, skipped: bool
) -> None:
    """If the user interrupts the import of what a watched cell needs, or if it fails, a cell with ``--need``
    does not run, because its memory was not checked. Other cells run."""
    shell = SimpleNamespace(ast_transformers=[])
    cell = RunningCell(info=SimpleNamespace(raw_cell=f"%%gpuwatch {line}\nx"), thread=0, number=1)
    running: Any = SimpleNamespace(nested=False, find=lambda info: cell)
    watcher = CellWatcher(shell, running)
    later: list[None] = []
    made: list[CellWatch] = []

    def failing_once() -> CellWatch:
        made.append(CellWatch(shell))
        if len(made) == 1:
            raise error
        return made[-1]

    monkeypatch.setattr(watched_cells, "interrupt_soon", lambda: later.append(None))
    monkeypatch.setattr(watcher, "_new_watch", failing_once)
    watcher.before(cell.info)
    assert len(shell.ast_transformers) == skipped
    interrupted = isinstance(error, KeyboardInterrupt)
    assert len(later) == (interrupted and not skipped)
    assert [watch.watching for watch in made[1:]] == ([] if interrupted or skipped else [True])
