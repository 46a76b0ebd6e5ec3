"""``gpuwidget runs`` lists the journal and prints the card of a run."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from fakes import SetClock
from helpers_journal import MACHINE, STARTED, journaled, run_report

from gpuwidget.cli.main import main
from gpuwidget.journal.folder import journal_folder, new_id
from gpuwidget.journal.records import Death
from gpuwidget.journal.store import JournalStore
from gpuwidget.model import units
from gpuwidget.model.messages import Template

NONE = "\N{EN DASH}"
KILLED = Template("killed", "Killed by {signal}.")


@pytest.fixture
def store(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> JournalStore:
    """Return an empty journal, which the command reads."""
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path_factory.mktemp("data")))
    monkeypatch.setenv("COLUMNS", "200")
    return JournalStore(journal_folder(), SetClock(STARTED))


def test_an_empty_journal(store: JournalStore, capsys: pytest.CaptureFixture[str]) -> None:
    """Without runs, the command says what would be in the list."""
    assert main(["runs"]) == 0
    assert capsys.readouterr().out == (
        "The journal is empty. Kernels write watched runs of more than 30 seconds to it.\n"
    )


def test_the_list(store: JournalStore, capsys: pytest.CaptureFixture[str]) -> None:
    """Each run has a row with its notebook, cell, time, peak and end, the newest first."""
    first, second = new_id(STARTED), new_id(STARTED + 60)
    store.write(first, journaled(run_report(label="train")), "ended")
    why = Death("signal", "certain", KILLED(signal="SIGKILL"), ())
    died = journaled(run_report("died", started=STARTED + 60), notebook=None)
    store.write(second, died, "died", why)

    assert main(["runs"]) == 0

    header, *rows = capsys.readouterr().out.splitlines()
    assert header.split() == ["Run", "Began", "Notebook", "Cell", "time", "peak", "Ended"]
    peak = run_report().totals.memory
    assert peak is not None
    figures = ["1", "min", "40", "s", *units.memory(peak.peak).split()]
    assert [row.split() for row in rows] == [
        [second, *began(60), NONE, "[3]", *figures, "died:", "Killed", "by", "SIGKILL."],
        [first, *began(0), "train.ipynb", "[3]", "train", *figures, "finished"],
    ]


def began(seconds: float) -> list[str]:
    """Return the date and the time that the list shows of a run's start."""
    return units.date_and_time(STARTED + seconds).split()


def test_a_long_list_ends_with_how_to_see_more(
    store: JournalStore, capsys: pytest.CaptureFixture[str]
) -> None:
    """With -n N, the list has N rows, and says that there are older runs."""
    for number in range(3):
        store.write(new_id(STARTED + number), journaled(run_report(started=STARTED + number)), "ended")

    assert main(["runs", "-n", "2"]) == 0

    _, *rows, last = capsys.readouterr().out.splitlines()
    assert (len(rows), last) == (2, "Older runs: gpuwidget runs -n 20")


def test_the_list_as_json(store: JournalStore, capsys: pytest.CaptureFixture[str]) -> None:
    """With --json, programs get the same rows with unrounded figures."""
    run_id = new_id(STARTED)
    store.write(run_id, journaled(), "ended")

    assert main(["runs", "--json"]) == 0

    (row,) = json.loads(capsys.readouterr().out)
    assert (row["id"], row["state"], row["duration_s"], row["death"]) == (run_id, "ended", 100.0, None)


def test_why_a_run_died_as_json(store: JournalStore, capsys: pytest.CaptureFixture[str]) -> None:
    """Programs get the cause, its certainty and the sentences."""
    why = Death("signal", "certain", KILLED(signal="SIGKILL"), ())
    store.write(new_id(STARTED), journaled(run_report("died")), "died", why)

    assert main(["runs", "--json"]) == 0

    (row,) = json.loads(capsys.readouterr().out)
    assert row["death"] == {
        "cause": "signal",
        "certainty": "certain",
        "text": "Killed by SIGKILL.",
        "checked": [],
    }


def test_the_card_of_a_run(store: JournalStore, capsys: pytest.CaptureFixture[str]) -> None:
    """The beginning or the end of an id is enough to see a run's card, with the reason why it died."""
    run_id = new_id(STARTED)
    why = Death("signal", "certain", KILLED(signal="SIGKILL"), ())
    store.write(run_id, journaled(run_report("died")), "died", why)

    assert main(["runs", run_id[:12]]) == main(["runs", run_id[-4:]]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "1 min 40 s (died, up to the last sample)" in lines[0]
    assert [line.strip() for line in lines].count("Killed by SIGKILL.") == 2

    assert main(["runs", run_id, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["notes"][0] == "Killed by SIGKILL."


def test_an_unknown_run(store: JournalStore, capsys: pytest.CaptureFixture[str]) -> None:
    """An id that no run has is a usage error, which names the command that lists ids."""
    assert main(["runs", "17"]) == 2
    assert capsys.readouterr().err == (
        "gpuwidget: The journal has no run '17'. gpuwidget runs lists the ids.\n"
    )


def test_a_running_run(store: JournalStore, capsys: pytest.CaptureFixture[str]) -> None:
    """A run of another machine that has just written a sample is running."""
    from gpuwidget.model.clock import SYSTEM_CLOCK

    now = replace(MACHINE, time=SYSTEM_CLOCK.time())
    store.write(new_id(STARTED), journaled(machine=now))
    assert main(["runs"]) == 0
    assert capsys.readouterr().out.splitlines()[1].endswith("running")
