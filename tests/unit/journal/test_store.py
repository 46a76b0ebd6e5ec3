"""The journal's files are whole, private and bounded, and a damaged one costs only itself."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from fakes import SetClock
from helpers_journal import STARTED, journaled, run_report
from helpers_reports import sixteen

from gpuwidget.journal import store as store_module
from gpuwidget.journal.folder import PLACES, new_id
from gpuwidget.journal.records import Death
from gpuwidget.journal.store import JournalStore, RunState, death_of, without_printed
from gpuwidget.model.errors import JournalError
from gpuwidget.model.messages import Template
from gpuwidget.model.report import Mark, MarkKind, Report

DAY_S = 86400.0
KILLED = Template("killed", "Killed by {signal}.")


@pytest.fixture
def store(tmp_path: Path, clock: SetClock) -> JournalStore:
    """Return a journal in an empty folder, some minutes after the runs."""
    clock.now = STARTED + 600
    return JournalStore(tmp_path / "gpuwidget" / "runs", clock)


@pytest.fixture
def clock() -> SetClock:
    """Return a clock that stands still."""
    return SetClock()


def test_an_ended_run_is_read_as_it_was_written(store: JournalStore) -> None:
    """The report, the place and the machine of a run outlast its kernel."""
    run = journaled(oom={"text/plain": "out of memory"})
    store.write("1764486000000-00000001", run, "ended")

    found = store.find("1764486000000-00000001")

    assert found is not None
    assert found[1] == replace(run, report=found[1].report)
    assert found[1].report.to_dict() == run.report.to_dict()


def test_a_run_has_one_place(store: JournalStore) -> None:
    """A run that has ended no longer runs."""
    store.write("1764486000000-00000001", journaled())
    assert [row.state for row in store.rows("live")] == ["running"]

    store.write("1764486000000-00000001", journaled(), "ended")

    assert (store.rows("live"), [row.state for row in store.rows("ended")]) == ([], ["ended"])


def test_why_a_run_died_can_be_translated_later(store: JournalStore) -> None:
    """The reason keeps its id, its parameters and its template."""
    why = Death("signal", "certain", KILLED(signal="SIGKILL"), ())
    store.write("1764486000000-00000001", journaled(run_report("died")), "died", why)

    (row,) = store.rows("died")
    found = death_of(row)

    assert found == why
    assert found is not None
    assert (found.text.id, found.text.template, found.text.params) == (
        "killed",
        "Killed by {signal}.",
        {"signal": "SIGKILL"},
    )


def test_a_shown_run_that_died_stays_in_the_list(store: JournalStore) -> None:
    """After a kernel has shown it, the run is listed as died, and is shown no more."""
    why = Death("signal", "certain", KILLED(signal="SIGKILL"), ())
    store.write("1764486000000-00000001", journaled(run_report("died")), "died", why)

    store.mark_shown("1764486000000-00000001")

    assert (store.rows("died"), [row.state for row in store.rows("ended")]) == ([], ["died"])


def test_only_the_user_can_read_files_and_folders(store: JournalStore) -> None:
    """The mode is 0600 for files and 0700 for folders, whatever the umask is."""
    old = os.umask(0)
    try:
        store.write("1764486000000-00000001", journaled())
        for number in range(store_module._MIN_NEW):
            store.write(f"1764486000000-{number + 16:08x}", journaled(), "ended")
        store.rows("ended")
    finally:
        os.umask(old)
    modes = {
        path.relative_to(store.folder.parent).parts[1:2] == ("index.jsonl",) or path.is_file(): stat.S_IMODE(
            path.stat().st_mode
        )
        for path in (store.folder.parent, *store.folder.parent.rglob("*"))
    }
    assert modes == {True: 0o600, False: 0o700}


def test_lists_are_the_same_with_and_without_the_index(store: JournalStore) -> None:
    """The index is only a cache: deleted, damaged or old, it changes nothing."""
    ids = [new_id(STARTED + number) for number in range(30)]
    for run_id in ids:
        store.write(run_id, journaled(), "ended")
    listed = [row.id for row in JournalStore(store.folder).rows("ended")]
    index = store.folder / "index.jsonl"

    assert listed == ids[::-1]
    assert len(index.read_bytes().splitlines()) == 30
    for content in (b"[1, 2]\n{", b'["1764486000000-00000001", 1', b""):
        index.write_bytes(content)
        assert [row.id for row in JournalStore(store.folder).rows("ended")] == listed
    index.unlink()
    assert [row.id for row in JournalStore(store.folder).rows("ended")] == listed


def test_deleted_runs_leave_the_list(store: JournalStore) -> None:
    """A run that somebody deleted is not listed, although the index had it."""
    for number in range(30):
        store.write(new_id(STARTED + number), journaled(), "ended")
    first, *rest = store.rows("ended")

    (store.folder / "ended" / f"{first.id}.json").unlink()

    assert store.rows("ended") == rest
    assert JournalStore(store.folder).rows("ended") == rest


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda data: b"", id="empty"),
        pytest.param(lambda data: data[:100], id="cut in the first line"),
        pytest.param(lambda data: data[: len(data) // 2], id="cut in the report"),
        pytest.param(lambda data: b"\0" * len(data), id="zeros after a crash"),
        pytest.param(lambda data: b"[1]\n{}", id="another form"),
        pytest.param(lambda data: data.replace(b'"schema":1,"texts"', b'"schema":2,"texts"'), id="newer"),
    ],
)
def test_a_damaged_file_costs_only_itself(store: JournalStore, damage: Callable[[bytes], bytes]) -> None:
    """Other runs are listed and read, and the damaged one is left out or has no card."""
    store.write("1764486000000-00000001", journaled(), "ended")
    store.write("1764486000000-00000002", journaled(), "ended")
    path = store.folder / "ended" / "1764486000000-00000001.json"
    path.write_bytes(damage(path.read_bytes()))

    assert store.find("1764486000000-00000001") is None
    assert store.find("1764486000000-00000002") is not None
    assert "1764486000000-00000002" in [row.id for row in store.rows("ended")]


@pytest.mark.parametrize("run_id", ["../../etc/passwd", "1764486000000-0000000g", "", "x" * 5000, "index"])
def test_only_ids_find_runs(store: JournalStore, run_id: str) -> None:
    """No text that a page sends is used as a path."""
    assert store.find(run_id) is None


def test_a_link_in_place_of_a_run_is_not_followed(store: JournalStore, tmp_path: Path) -> None:
    """A file elsewhere can't be read through the journal."""
    store.write("1764486000000-00000001", journaled(), "ended")
    real = store.folder / "ended" / "1764486000000-00000001.json"
    moved = real.rename(tmp_path / "elsewhere.json")
    real.symlink_to(moved)

    assert (store.find("1764486000000-00000001"), store.rows("ended")) == (None, [])


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ESTALE])
def test_a_failed_write_keeps_what_was_there(
    store: JournalStore, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a full disk, a read-only home or a stale NFS handle, the last state stays whole, and an error says
    why."""
    store.write("1764486000000-00000001", journaled(run_report(label="first")))

    def fail(descriptor: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(JournalError, match=os.strerror(code)):
        store.write("1764486000000-00000001", journaled(run_report(label="second")))

    assert [row.label for row in store.rows("live")] == ["first"]
    assert [path.name for path in (store.folder / "live").iterdir()] == ["1764486000000-00000001.json"]


def test_a_file_in_place_of_the_folder_is_an_error(tmp_path: Path) -> None:
    """A sentence says why the journal can't be created."""
    (tmp_path / "gpuwidget").write_text("")
    with pytest.raises(JournalError, match="The journal of runs can't be written in"):
        JournalStore(tmp_path / "gpuwidget" / "runs").write("1764486000000-00000001", journaled())


def test_old_runs_are_deleted(store: JournalStore, clock: SetClock) -> None:
    """30 days after its end a run is deleted, also one that died or was never ended."""
    states: tuple[RunState, ...] = ("running", "died", "ended")
    for state in states:
        for age_days in (0, 1):
            run_id = new_id(STARTED - 100 * DAY_S)  # The age does not count from the start.
            store.write(run_id, journaled(), state)
            path = next(store.folder.rglob(f"{run_id}.json"))
            os.utime(path, (STARTED - DAY_S * age_days, STARTED - DAY_S * age_days))
    clock.now = STARTED + 29.5 * DAY_S

    store.prune()

    assert [len(store.rows(place)) for place in PLACES] == [1, 1, 1]


def test_the_oldest_runs_are_deleted_when_all_are_too_large(
    store: JournalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All runs together stay below 200 MB."""
    ids = [new_id(STARTED + number) for number in range(10)]
    for run_id in ids:
        store.write(run_id, journaled(), "ended")
    size = (store.folder / "ended" / f"{ids[0]}.json").stat().st_size
    monkeypatch.setattr(store_module, "MAX_BYTES", 4 * size + size // 2)

    store.prune()

    assert store_module.MAX_RUN_BYTES == 2_000_000
    assert [row.id for row in store.rows("ended")] == ids[:5:-1]


def test_what_interrupted_writing_left_is_deleted(store: JournalStore, clock: SetClock) -> None:
    """A process that was killed while it wrote leaves a temporary file, which is deleted after an hour."""
    store.write("1764486000000-00000001", journaled())
    left = [store.folder / "live" / ".1764486000000-00000002.json.0a0b", store.folder / ".index.jsonl.0a0b"]
    for path in left:
        path.write_bytes(b"half")
        os.utime(path, (STARTED, STARTED))
    clock.now = STARTED + 3500
    store.prune()
    assert [path.exists() for path in left] == [True, True]
    clock.now = STARTED + 3700

    store.prune()

    assert [path.exists() for path in left] == [False, False]
    assert [path.name for path in (store.folder / "live").iterdir()] == ["1764486000000-00000001.json"]


def test_a_report_that_is_too_large_loses_its_timeline_first(
    store: JournalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run of many GPUs takes at most 2 MB, and its figures stay."""
    report = sixteen()
    assert report.timeline is not None
    monkeypatch.setattr(store_module, "MAX_RUN_BYTES", 100_000)

    store.write("1764486000000-00000001", journaled(report), "ended")

    found = store.find("1764486000000-00000001")
    assert found is not None
    assert (found[1].report.timeline, len(found[1].report.gpus)) == (None, 16)


def test_a_report_that_is_too_large_in_any_form_is_an_error(
    store: JournalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is cut silently."""
    monkeypatch.setattr(store_module, "MAX_RUN_BYTES", 1000)
    with pytest.raises(JournalError, match="the report is larger than"):
        store.write("1764486000000-00000001", journaled())


def test_printed_lines_are_left_out() -> None:
    """Only the marks that the user set, and steps, stay in the timeline."""
    made: Report = run_report()
    assert made.timeline is not None
    kinds: tuple[MarkKind, ...] = ("mark", "printed", "step")
    three = tuple(Mark(float(number), "label", kind) for number, kind in enumerate(kinds))

    left = without_printed(replace(made, timeline=replace(made.timeline, marks=three))).timeline

    assert left is not None
    assert [mark.kind for mark in left.marks] == ["mark", "step"]


def test_a_run_that_is_written_again_has_its_new_row(store: JournalStore) -> None:
    """A list never has the row of an earlier version of a run's file, also not from the index."""
    for number in range(30):
        store.write(new_id(STARTED + number), journaled(), "ended")
    first = store.rows("ended")[0]
    why = Death("culled", "certain", KILLED(signal="culling"), ())

    store.write(first.id, journaled(), "ended", why)

    for reader in (store, JournalStore(store.folder)):
        assert [death_of(row) for row in reader.rows("ended")] == [why, *([None] * 29)]


def test_a_file_that_cant_be_read_now_is_read_later(
    store: JournalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a process has no descriptors for a moment, its list is complete again afterwards."""
    store.write("1764486000000-00000001", journaled(), "ended")
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", no_descriptors)
        assert store.rows("ended") == []
    assert len(store.rows("ended")) == 1


def no_descriptors(*given: object) -> int:
    """Fail like a process that has too many open files."""
    raise OSError(errno.EMFILE, "Too many open files")


def test_the_reason_of_a_later_version_is_left_out(store: JournalStore) -> None:
    """A cause that this version does not know costs the reason, and not the list."""
    why = Death("signal", "certain", KILLED(signal="SIGKILL"), ())
    store.write("1764486000000-00000001", journaled(run_report("died")), "died", why)
    path = store.folder / "died" / "1764486000000-00000001.json"
    path.write_bytes(path.read_bytes().replace(b'"signal","certainty"', b'"meteorite","certainty"'))
    (row,) = store.rows("died")
    assert (row.status, death_of(row)) == ("died", None)


def test_a_run_that_ended_is_not_concluded(store: JournalStore) -> None:
    """If a run has ended, or somebody has concluded it, meanwhile, the explanation comes too late."""
    why = Death("signal", "certain", KILLED(signal="SIGKILL"), ())
    store.write("1764486000000-00000001", journaled(), "ended")
    store.conclude("1764486000000-00000001", journaled(run_report("died")), why)
    store.conclude("1764486000000-00000002", journaled(run_report("died")), why)
    assert ([row.state for row in store.rows("ended")], store.rows("died")) == (["ended"], [])
