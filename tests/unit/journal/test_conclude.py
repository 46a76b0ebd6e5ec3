"""Runs whose process has died are found once, and no running run is taken for one that died."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from fakes import SetClock
from helpers_journal import IDENTITY, MACHINE, STARTED, journaled, run_report

from gpuwidget.journal.conclude import SILENT_S, conclude, explain_interrupted, newest_runs
from gpuwidget.journal.folder import new_id
from gpuwidget.journal.records import Death, JournaledRun, KernelEnd, ProcessIdentity
from gpuwidget.journal.store import JournalRow, JournalStore, death_of
from gpuwidget.model.messages import Template
from gpuwidget.model.report import Status

RUN = "1764486000000-00000001"
DIED = Template("died", "It died.")
END = KernelEnd(STARTED + 20, -9, None)


class Journal:
    """A journal with one running run, whose process a test lets die."""

    def __init__(self, folder: Path) -> None:
        self.clock = SetClock(MACHINE.time + 5)
        self.store = JournalStore(folder, self.clock)
        self.store.write(RUN, journaled())
        self.alive: bool | None = True
        self.zombie = False
        self.explained: list[tuple[KernelEnd | None, float]] = []

    def conclude(self, end: KernelEnd | None = None) -> list[JournalRow]:
        """Conclude the runs, and return those that run. ``end`` is what a server knows."""

        def explain(run: JournaledRun, end: KernelEnd | None, now: float) -> Death:
            self.explained.append((end, now))
            return Death("signal", "certain", DIED(), ())

        def is_alive(identity: ProcessIdentity, seen: float) -> bool | None:
            assert (identity, seen) == (IDENTITY, self.store.read("live", RUN)[1].machine.time)  # type: ignore[index]
            return self.alive

        return conclude(
            self.store,
            lambda run: end,
            explain=explain,
            is_alive=is_alive,
            is_zombie=lambda identity: self.zombie,
            clock=self.clock,
        )

    def states(self) -> dict[str, list[str]]:
        """Return the states of the runs in each place."""
        return {
            "live": [row.state for row in self.store.rows("live")],
            "died": [row.state for row in self.store.rows("died")],
        }


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    """Return a journal with one running run."""
    return Journal(tmp_path / "runs")


def test_a_running_run_stays(journal: Journal) -> None:
    """A run whose process is alive is listed as running, however old its last sample is."""
    journal.clock.now += 10 * SILENT_S
    assert [row.state for row in journal.conclude()] == ["running"]
    assert journal.explained == []


@pytest.mark.parametrize(
    ("alive", "silent_s", "more_s"),
    [
        pytest.param(True, 8, 8, id="on this machine"),
        pytest.param(None, 8, 0, id="on another machine"),
        pytest.param(True, -8, 0, id="the clock was set back"),
        pytest.param(True, 2 * SILENT_S, 2 * SILENT_S, id="a library keeps Python from running"),
    ],
)
def test_the_time_of_a_running_run(
    journal: Journal, alive: bool | None, silent_s: float, more_s: float
) -> None:
    """The time of a run of this machine is counted until now, although its file is some seconds old."""
    journal.alive = alive
    journal.clock.now = MACHINE.time + silent_s

    (row,) = journal.conclude()

    assert row.duration_s == journaled().report.cell.duration_s + more_s


def test_a_run_that_died_is_explained_once(journal: Journal) -> None:
    """The reason is found by the first who looks, with what the server knows, and is kept."""
    journal.alive = False

    assert journal.conclude(END) == []
    assert journal.conclude() == []

    assert journal.explained == [(END, MACHINE.time + 5)]
    (row,) = journal.store.rows("died")
    assert (death_of(row), row.status) == (Death("signal", "certain", DIED(), ()), "died")
    assert journal.states() == {"live": [], "died": ["died"]}


def test_others_wait_for_the_server_to_read_the_exit_code(journal: Journal) -> None:
    """A process that has ended but whose parent does not know yet is not explained without its exit code."""
    journal.alive, journal.zombie = False, True
    assert [row.state for row in journal.conclude()] == ["running"]

    assert journal.conclude(END) == []
    assert journal.explained == [(END, MACHINE.time + 5)]


def test_a_run_that_ended_is_not_taken_for_one_that_died(journal: Journal) -> None:
    """A kernel that dies between the two steps of a run's end leaves the report of the ended run."""
    journal.alive = False
    ended = journal.store.folder / "ended"
    ended.mkdir()
    live = journal.store.folder / "live" / f"{RUN}.json"
    journal.store.write(RUN, journaled(), "ended")
    live.write_bytes((ended / f"{RUN}.json").read_bytes())

    assert journal.conclude() == []

    assert journal.states() == {"live": [], "died": []}
    assert [row.state for row in journal.store.rows("ended")] == ["ended"]


@pytest.mark.parametrize(
    ("silent_s", "states"),
    [pytest.param(SILENT_S - 6, ["running"], id="not long"), pytest.param(SILENT_S, ["died"], id="long")],
)
def test_a_silent_run_of_another_machine(journal: Journal, silent_s: float, states: list[str]) -> None:
    """A run that can't be seen from here counts as died after five minutes, until it writes again."""
    journal.alive = None
    journal.clock.now = MACHINE.time + silent_s + 1

    assert [row.state for row in journal.conclude()] == states
    assert journal.states() == {"live": ["running"], "died": []}

    later = replace(MACHINE, time=journal.clock.now)
    journal.store.write(RUN, journaled(machine=later))
    assert [row.state for row in journal.conclude()] == ["running"]


def test_a_damaged_run_stops_nothing(journal: Journal) -> None:
    """Other runs are concluded although one can't be read."""
    journal.alive = False
    (journal.store.folder / "live" / "1764486000000-00000000.json").write_bytes(b"[]\n{")
    assert journal.conclude() == []
    assert journal.states()["died"] == ["died"]


def test_the_newest_runs_come_first(journal: Journal) -> None:
    """A list has running runs besides the newest others, sorted by their start."""
    for number in range(4):
        report = run_report(started=STARTED + 100 * number)
        journal.store.write(new_id(STARTED + 100 * number), journaled(report), "ended")

    rows = newest_runs(journal.store, journal.conclude(), 2)

    assert [(row.state, row.started - STARTED) for row in rows] == [
        ("ended", 300),
        ("ended", 200),
        ("running", 0),
    ]


@pytest.mark.parametrize(
    ("status", "seconds", "found"),
    [
        pytest.param("interrupted", 100.0, True, id="interrupted by the request"),
        pytest.param("interrupted", 60.0, False, id="interrupted before"),
        pytest.param("ok", 100.0, False, id="finished"),
    ],
)
def test_why_a_run_was_interrupted(journal: Journal, status: Status, seconds: float, found: bool) -> None:
    """Only a run that Jupyter interrupted because it was asked to end the kernel has that reason."""
    end = KernelEnd(STARTED + 100, None, "culled")
    journal.store.write(RUN, journaled(run_report(status, duration_s=seconds)), "ended")

    explain_interrupted(journal.store, "k1", end)

    (row,) = journal.store.rows("ended")
    why = death_of(row)
    assert (row.state, row.status, None if why is None else why.cause) == (
        "ended",
        status,
        "culled" if found else None,
    )


def test_a_process_that_nobody_waits_for_is_explained_after_a_minute(journal: Journal) -> None:
    """If no parent reads the exit code, for example in a container, the run does not run forever."""
    journal.alive, journal.zombie = False, True
    journal.clock.now = MACHINE.time + 61
    assert journal.conclude() == []
    assert journal.states() == {"live": [], "died": ["died"]}
