"""The journal's thread writes a run's state every ten seconds and its end at once, and delays nothing."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from fakes import EPOCH, FakeClock
from helpers_journal import journaled, run_report
from helpers_wait import until

from gpuwidget.journal.folder import new_id
from gpuwidget.journal.store import JournalRow, JournalStore
from gpuwidget.kernel.cells import run_journal
from gpuwidget.kernel.cells.run_journal import INTERVAL_S, CellContext, RunJournal, checksum
from gpuwidget.measure.run import Run
from gpuwidget.model.report import Report

CELL = "c1", "%%gpuwatch\ntrain()"


class SimulatedRun:
    """A run whose time a test sets."""

    def __init__(self) -> None:
        self.started = EPOCH
        self.seconds = 30.0
        self.later: list[tuple[float, Callable[[], None]]] = []
        self.states = 0

    def call_after(self, seconds: float, function: Callable[[], None]) -> None:
        """Keep the function. :meth:`begin` calls it."""
        self.later.append((seconds, function))

    def begin(self) -> None:
        """Let the run take long enough to get into the journal."""
        for _, function in self.later:
            function()

    def report_so_far(self) -> Report | None:
        """Return a report, and count it."""
        self.states += 1
        return run_report("died", started=self.started, duration_s=self.seconds)


class Journal:
    """A journal with a clock that stands still, and one run."""

    def __init__(self, folder: Path) -> None:
        self.clock = FakeClock()
        self.store = JournalStore(folder, self.clock)
        self.journal = RunJournal(self.store, self.clock)
        self.run = SimulatedRun()

    @property
    def of_run(self) -> Run:
        """The run, as the journal sees it."""
        return cast(Run, self.run)

    def begin(self) -> None:
        """Follow the run until its first state is written."""
        self.journal.add_run(self.of_run, CELL)
        self.run.begin()
        until(self.is_waiting)

    def is_waiting(self) -> bool:
        """Whether the thread waits for the next state."""
        return self.run.states > 0 and self.clock.is_awaited(INTERVAL_S, "gpuwidget-journal")

    def rows(self) -> tuple[list[JournalRow], list[JournalRow]]:
        """Return the running and the ended runs."""
        return self.store.rows("live"), self.store.rows("ended")


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Journal]:
    """Return a journal of a kernel of one notebook."""
    monkeypatch.setenv("JPY_SESSION_NAME", "/home/ann/train.ipynb")
    made = Journal(tmp_path / "runs")
    yield made
    made.journal.discard(made.of_run)
    assert made.journal.flush(20)


def test_a_run_gets_into_the_journal_after_30_seconds(journal: Journal) -> None:
    """A shorter run has no file and no thread."""
    journal.journal.add_run(journal.of_run, CELL)

    assert [seconds for seconds, _ in journal.run.later] == [30.0]
    journal.journal.end(journal.of_run, run_report())
    assert journal.rows() == ([], [])


def test_states_are_ten_seconds_apart(journal: Journal) -> None:
    """While the run lasts, its file is written again every ten seconds, and not more often."""
    journal.begin()
    assert journal.run.states == 1

    journal.clock.advance(INTERVAL_S - 1)
    assert journal.run.states == 1
    journal.run.seconds = 40.0
    journal.clock.advance(1)
    until(lambda: journal.run.states == 2)
    until(lambda: [row.duration_s for row in journal.store.rows("live")] == [40.0])

    ((row,), ended) = journal.rows()
    assert (row.state, row.notebook, row.cell_id) == ("running", "/home/ann/train.ipynb", "c1")
    assert (row.code, ended) == (checksum(CELL[1]), [])


def test_the_end_is_written_at_once(journal: Journal) -> None:
    """The end of a run replaces its state without a wait, and the thread ends."""
    journal.begin()

    journal.journal.end(journal.of_run, run_report("error"), {"text/plain": "out of memory"})

    assert journal.journal.flush(20)
    live, (row,) = journal.rows()
    assert (live, row.state, row.status) == ([], "ended", "error")
    found = journal.store.find(row.id)
    assert found is not None
    assert found[1].oom == {"text/plain": "out of memory"}
    until(lambda: all(thread.name != "gpuwidget-journal" for thread in threading.enumerate()))


def test_a_run_without_report_leaves_nothing(journal: Journal) -> None:
    """A watch that was abandoned is not in the journal."""
    journal.begin()
    journal.journal.discard(journal.of_run)
    assert journal.journal.flush(20)
    assert journal.rows() == ([], [])


def test_a_problem_is_noted_once(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first card says that the disk is full, later ones only if there is another problem."""
    monkeypatch.setattr(os, "fsync", no_room)
    journal.begin()

    note, folder = journal.journal.note(journal.of_run), journal.store.folder

    assert note is not None
    assert (note.id, note.message_id.params) == (
        "not-in-journal",
        {"reason": f"The journal of runs can't be written in {folder}: No space left on device."},
    )
    assert journal.journal.note(journal.of_run) is None


def test_the_end_is_written_again_when_there_is_room(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that ended while the disk was full is in the journal ten seconds after there is room."""
    journal.begin()
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", no_room)
        journal.journal.end(journal.of_run, run_report())
        until(lambda: journal.clock.is_awaited(INTERVAL_S, "gpuwidget-journal"))
        assert [len(rows) for rows in journal.rows()] == [1, 0]

    journal.clock.advance(INTERVAL_S)

    until(lambda: [len(rows) for rows in journal.rows()] == [0, 1])


def test_a_run_that_could_not_be_ended_is_not_called_died(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the end can't be written before the process ends, its state is deleted."""
    journal.begin()
    monkeypatch.setattr(os, "fsync", no_room)
    journal.journal.end(journal.of_run, run_report())
    until(lambda: journal.clock.is_awaited(INTERVAL_S, "gpuwidget-journal"))

    assert not journal.journal.flush(0)

    assert journal.rows() == ([], [])
    monkeypatch.undo()


def no_room(descriptor: int) -> None:
    """Fail like a full disk."""
    raise OSError(28, "No space left on device")


def test_without_threads_a_run_is_not_written(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the system allows no further thread, the cell runs as always, and a later run can be written."""
    monkeypatch.setattr(threading.Thread, "start", no_thread)
    journal.journal.add_run(journal.of_run, CELL)
    journal.run.begin()
    note = journal.journal.note(journal.of_run)
    assert note is not None
    assert note.message_id.params == {"reason": "The system allows this process no further thread."}
    journal.journal.end(journal.of_run, run_report())
    assert journal.journal.flush(0)
    assert journal.rows() == ([], [])

    monkeypatch.undo()
    journal.begin()
    assert [row.state for row in journal.store.rows("live")] == ["running"]


def no_thread(thread: threading.Thread) -> None:
    """Fail like a system without threads."""
    raise RuntimeError("can't start new thread")


@pytest.mark.parametrize(
    ("place", "found"),
    [
        pytest.param({"cell_id": "c1", "code": "11111111"}, True, id="same cell, edited"),
        pytest.param({"cell_id": "c2", "code": checksum(CELL[1])}, True, id="same code, another cell"),
        pytest.param(
            {"cell_id": "c2", "code": checksum(CELL[1]), "notebook": "/b.ipynb"},
            False,
            id="same code, another notebook",
        ),
        pytest.param({"cell_id": "c2", "code": "11111111"}, False, id="another cell"),
        pytest.param(
            {"cell_id": "c1", "code": "11111111", "notebook": "/b.ipynb"}, False, id="a copied notebook"
        ),
        pytest.param({"cell_id": None, "code": None}, False, id="outside a cell"),
    ],
)
def test_the_last_run_of_a_cell(journal: Journal, place: dict[str, Any], found: bool) -> None:
    """A run is compared with the last one in its notebook of the same cell, or else of the same code."""
    values = {"notebook": "/home/ann/train.ipynb", **place}
    older = journaled(run_report(started=EPOCH - 900, duration_s=1.0), **values)
    newer = journaled(run_report(started=EPOCH - 800, duration_s=2.0), **values)
    journal.store.write(new_id(EPOCH - 900), older, "ended")
    journal.store.write(new_id(EPOCH - 800), newer, "ended")

    journal.begin()

    last = journal.journal.last_run(journal.of_run)
    expected = replace(newer.report, cell=replace(newer.report.cell, execution_count=None))
    assert (None if last is None else last.cell) == (expected.cell if found else None)


def test_the_same_cell_comes_before_the_same_code(journal: Journal) -> None:
    """A later run of another cell with the same code does not hide the last run of this cell."""
    notebook = "/home/ann/train.ipynb"
    cell = journaled(run_report(started=EPOCH - 900, duration_s=1.0), notebook=notebook, cell_id="c1")
    code = journaled(run_report(duration_s=2.0), notebook=notebook, cell_id="c2", code=checksum(CELL[1]))
    journal.store.write(new_id(EPOCH - 900), cell, "ended")
    journal.store.write(new_id(EPOCH - 800), code, "ended")

    journal.begin()

    last = journal.journal.last_run(journal.of_run)
    assert last is not None
    assert last.cell.duration_s == 1.0


@pytest.mark.parametrize(
    ("path", "namespace", "notebook"),
    [
        ("/home/ann/train.ipynb", {}, "/home/ann/train.ipynb"),
        ("/home/ann/console-1", {}, None),
        ("", {"__vsc_ipynb_file__": "/home/ann/code.ipynb"}, "/home/ann/code.ipynb"),
        ("", {"__vsc_ipynb_file__": 3}, None),
        ("", {}, None),
    ],
)
def test_the_notebook_of_a_kernel(
    monkeypatch: pytest.MonkeyPatch, path: str, namespace: dict[str, object], notebook: str | None
) -> None:
    """Jupyter and VS Code tell a kernel its notebook, each in another way."""
    monkeypatch.setenv("JPY_SESSION_NAME", path)
    shell = SimpleNamespace(user_ns=namespace)
    assert run_journal.notebook_of(shell) == notebook


def test_the_id_of_a_kernel() -> None:
    """The kernel's id is the one in the name of its connection file."""
    app = SimpleNamespace(connection_file="/run/user/1000/jupyter/kernel-857101a7-3cc7.json")
    shell = SimpleNamespace(kernel=SimpleNamespace(parent=app), user_ns={})
    assert CellContext.of(shell, None).kernel_id == "857101a7-3cc7"
    app.connection_file = "/tmp/connection.json"
    assert CellContext.of(shell, None).kernel_id is None


def test_the_checksum_of_code() -> None:
    """The page computes the same CRC-32, also of text outside ASCII."""
    assert (checksum("x = 1\n"), checksum("größe = 'é'")) == ("8bf6893b", "aef3b2ed")
