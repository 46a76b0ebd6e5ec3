"""The journal's files, which kernels write and everybody of the same user reads.

Each run is one file, which its kernel writes: first in ``live/``, and at its end in ``ended/``. Whoever finds
that the process of a run has died moves the run to ``died/``, and a kernel that shows it to ``ended/``. Files
are written under another name, flushed and renamed, so that a file is always whole.

The journal isn't a database, because home folders of shared machines lie on NFS, where SQLite's locks hang or
fail. A file that one process writes at a time needs no lock. Its first line is the :class:`JournalRow`, so
that a list need not parse reports. ``index.jsonl`` caches the rows of ended runs. It may be deleted at any
time.
"""

from __future__ import annotations

import json
import logging
import math
import os
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from gpuwidget.journal.folder import PLACES, SUFFIX, Place, journal_folder, run_ids
from gpuwidget.journal.records import Death, JournaledRun
from gpuwidget.model.boundary import Boundary
from gpuwidget.model.clock import SYSTEM_CLOCK, Clock
from gpuwidget.model.errors import JournalError
from gpuwidget.model.from_json import from_json, restore, text_table
from gpuwidget.model.report import MemoryKind, Report, Status
from gpuwidget.model.to_json import encodable, to_json

_LOG = logging.getLogger(__name__)

RunState = Literal["running", "ended", "died"]
MAX_RUN_BYTES = 2_000_000
"""Maximum size of a run's file. A longer report loses its timeline and its lists."""
MAX_BYTES = 200_000_000
"""Maximum size of all files of ended runs. The oldest are deleted."""
MAX_AGE_S = 30 * 86400.0
"""Seconds after which a run is deleted."""
PRUNE_EVERY_S = 3600.0
"""Seconds between two calls of :meth:`JournalStore.prune` in one process."""
_MAX_TEMPORARY_AGE_S = 3600.0
_SCHEMA = 1
_ID = re.compile(r"[0-9]{13}-[0-9a-f]{8}")
_STATUSES: tuple[str, ...] = get_args(Status)
_INDEX = "index.jsonl"
_MIN_NEW = 20
"""The index is written when a list has at least this many rows that it lacks."""
_MAX_FIRST_LINE = 16_384
_SECRET_MODE, _FOLDER_MODE = 0o600, 0o700


class JournalRow(NamedTuple):
    """What a list shows of a run. The first line of its file has these values as JSON."""

    id: str
    """Milliseconds of the start and random digits, so that ids sort by time."""
    state: RunState
    status: Status
    notebook: str | None
    """Absolute path of the notebook."""
    cell_id: str | None
    code: str | None
    kernel_id: str | None
    execution_count: int | None
    label: str | None
    started: float
    """Epoch seconds, rounded down to milliseconds."""
    duration_s: float
    peak: int | None
    """Bytes, as in the card's headline."""
    peak_kind: MemoryKind | None
    host: str
    gpus: int
    """Number of GPUs on which the run worked or may have worked."""
    energy_j: float | None
    death: Mapping[str, Any] | None
    """Why the run died or was interrupted: the JSON of a :class:`Death` with the table of its texts."""


def row_of(run_id: str, run: JournaledRun, state: RunState, death: Death | None = None) -> JournalRow:
    """Return the row of a run."""
    report, totals = run.report, run.report.totals
    cell = report.cell
    return JournalRow(
        id=run_id,
        state=state,
        status=cell.status,
        notebook=run.notebook,
        cell_id=run.cell_id,
        code=run.code,
        kernel_id=run.kernel_id,
        execution_count=cell.execution_count,
        label=cell.label,
        # Rounded down like a card's, so that a page can tell whether an output is the card of the run.
        started=math.floor(cell.started * 1e3) / 1e3,
        duration_s=cell.duration_s,
        peak=None if totals.memory is None else totals.memory.peak,
        peak_kind=totals.memory_kind,
        host=run.process.host,
        gpus=totals.gpus,
        energy_j=totals.energy_j,
        death=None if death is None else {"death": to_json(death), "texts": text_table(death)},
    )


def death_of(row: JournalRow) -> Death | None:
    """Return why a run died or was interrupted; None if it ended by itself, and for the reason of a later
    version that this one doesn't know."""
    if row.death is None:
        return None
    try:
        return from_json(Death, restore(row.death["death"], row.death["texts"]))
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


class JournalStore:
    """The files of one user's journal. Methods that write raise JournalError.

    An instance may be used by one thread at a time.
    """

    def __init__(self, folder: Path | None = None, clock: Clock = SYSTEM_CLOCK) -> None:
        """``folder`` is :func:`~gpuwidget.journal.folder.journal_folder` by default."""
        self.folder = journal_folder() if folder is None else folder
        self._clock = clock
        self._lines: dict[str, bytes] = {}
        """The first lines of the files of ended runs that were read, by id."""
        self._index_read: tuple[int, int] | None = None
        """The time and the size of the index that was read last."""

    # -- writing ---------------------------------------------------------------------------------------------

    def write(
        self,
        run_id: str,
        run: JournaledRun,
        state: RunState = "running",
        death: Death | None = None,
    ) -> None:
        """Write a run, or replace what was written of it.

        ``death`` is why the run died, or why somebody interrupted it.
        """
        place: Place = "live" if state == "running" else state
        row = row_of(run_id, run, state, death)
        try:
            self._write(place, run_id, _encoded(row, run))
            for other in () if place == "live" else PLACES:
                if other != place:
                    self._path(other, run_id).unlink(missing_ok=True)
            if place == "ended" and self._lines.pop(run_id, None) is not None:
                (self.folder / _INDEX).unlink(missing_ok=True)  # It has the run's old row.
        except OSError as error:
            raise JournalError(
                f"The journal of runs can't be written in {self.folder}: {error.strerror or error}."
            ) from error

    def conclude(self, run_id: str, run: JournaledRun, death: Death) -> None:
        """Move a running run to the died ones, unless it has ended or somebody else has moved it."""
        if self._path("ended", run_id).exists():
            self.discard(run_id)
        elif self._path("live", run_id).exists():
            self.write(run_id, run, "died", death)

    def discard(self, run_id: str) -> None:
        """Delete what was written of a running run."""
        with suppress(OSError):
            self._path("live", run_id).unlink(missing_ok=True)

    def mark_shown(self, run_id: str) -> None:
        """Move a run that died to the ended ones, because its user has seen it."""
        with suppress(OSError):
            self._make_folder("ended")
            os.replace(self._path("died", run_id), self._path("ended", run_id))

    def prune(self) -> None:
        """Delete runs that are too old, the oldest runs if all together are too large, and what was left of
        interrupted writing."""
        now, total = self._clock.time(), 0
        for place in PLACES:
            for run_id in reversed(self._ids(place)):
                path = self._path(place, run_id)
                with suppress(OSError):
                    status = path.stat()
                    total += status.st_size
                    # The file is as old as the run's end, which may be long after its start.
                    is_old = status.st_mtime < now - MAX_AGE_S
                    if is_old or (place != "live" and total > MAX_BYTES):
                        path.unlink()
        for folder in (self.folder, *(self.folder / place for place in PLACES)):
            _remove_temporary(folder, now)

    # -- reading ---------------------------------------------------------------------------------------------

    def rows(
        self, place: Place, most: int | None = None, *, containing: Sequence[str] = ()
    ) -> list[JournalRow]:
        """Return the rows of the runs in a place, the newest first. Files that can't be read are left out.

        Return at most ``most`` rows. If there are texts ``containing``, return only rows that contain one.
        """
        ids = self._ids(place)
        lines = self._ended_lines(ids) if place == "ended" else [self._first_line(place, id_) for id_ in ids]
        if containing:
            texts = [json.dumps(text, ensure_ascii=False).encode() for text in containing]
            lines = [line for line in lines if any(text in line for text in texts)]
        lines.reverse()
        return _rows([line for line in lines if line][:most])

    def find(self, run_id: str) -> tuple[JournalRow, JournaledRun] | None:
        """Return a run with its row; None if there is none with this id."""
        if _ID.fullmatch(run_id):
            for place in PLACES:
                found = self.read(place, run_id)
                if found is not None:
                    return found
        return None

    def read(self, place: Place, run_id: str) -> tuple[JournalRow, JournaledRun] | None:
        """Return a run in a place with its row; None if it is not there or can't be read."""
        with Boundary(_LOG, "a run of the journal could not be read", foreign=True):
            data = self._bytes(place, run_id, MAX_RUN_BYTES + _MAX_FIRST_LINE)
            if data is not None:
                first, _, rest = data.partition(b"\n")
                row = next(iter(_rows([first])), None)
                return None if row is None else (row, _decoded(json.loads(rest)))
        return None

    # -- files -----------------------------------------------------------------------------------------------

    def _path(self, place: Place, run_id: str) -> Path:
        return self.folder / place / f"{run_id}{SUFFIX}"

    def _ids(self, place: Place) -> list[str]:
        return run_ids(self.folder, place)

    def _write(self, place: Place, run_id: str, data: bytes) -> None:
        self._make_folder(place)
        # Without the flush, the file may be empty after the machine has crashed.
        _replace(self._path(place, run_id), data, flush=True)

    def _make_folder(self, place: Place) -> Path:
        folder = self.folder / place
        for parent in (self.folder.parent, self.folder, folder):
            parent.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
        return folder

    def _bytes(self, place: Place, run_id: str, most: int) -> bytes | None:
        try:
            descriptor = os.open(self._path(place, run_id), os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
        except OSError:
            return None
        try:
            return _read_bytes(descriptor, most)
        finally:
            os.close(descriptor)

    def _first_line(self, place: Place, run_id: str) -> bytes:
        """Return the first line of a run's file; nothing if it can't be read."""
        with Boundary(_LOG, "a run of the journal could not be read", foreign=True):
            data = self._bytes(place, run_id, _MAX_FIRST_LINE) or b""
            line, end, _rest = data.partition(b"\n")
            return line if end and line.startswith(b'["' + run_id.encode()) else b""
        return b""

    # -- the index -------------------------------------------------------------------------------------------

    def _ended_lines(self, ids: list[str]) -> list[bytes]:
        """Return the first lines of the files of ended runs, in the order of ``ids``."""
        if not self._lines.keys() >= set(ids):
            self._read_index()
        lines = self._lines
        missing = [run_id for run_id in ids if run_id not in lines]
        for run_id in missing:
            line = self._first_line("ended", run_id)
            if line:  # A file that can't be read now may be readable later.
                lines[run_id] = line
        found = [lines.get(run_id, b"") for run_id in ids]
        # The row of a deleted run leaves the index at once, because it names a notebook.
        if len(missing) >= _MIN_NEW or len(lines) > len(ids):
            self._lines = {run_id: line for run_id, line in zip(ids, found, strict=True) if line}
            self._write_index()
        return found

    def _read_index(self) -> None:
        with Boundary(_LOG, "the journal's index could not be read", foreign=True), suppress(OSError):
            path = self.folder / _INDEX
            status = os.stat(path)
            if (status.st_mtime_ns, status.st_size) == self._index_read:
                return
            # A line begins with its id: ["1764486000000-0a1b2c3d",
            lines = path.read_bytes().split(b"\n")
            self._lines.update((line[2:24].decode(), line) for line in lines)
            self._index_read = status.st_mtime_ns, status.st_size

    def _write_index(self) -> None:
        with suppress(OSError):  # The next list takes longer.
            _replace(self.folder / _INDEX, b"\n".join(self._lines.values()), flush=False)


def _replace(path: Path, data: bytes, *, flush: bool) -> None:
    """Replace the content of a file, or create it. Other processes see the old content or the new one."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _SECRET_MODE)
        with open(descriptor, "wb") as file:
            file.write(data)
            if flush:
                file.flush()
                os.fsync(descriptor)
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def _remove_temporary(folder: Path, now: float) -> None:
    """Delete the files that processes have left that were killed while they wrote."""
    with suppress(OSError):
        for entry in os.scandir(folder):
            if entry.name[0] == "." and entry.stat().st_mtime < now - _MAX_TEMPORARY_AGE_S:
                os.unlink(entry.path)


def _read_bytes(descriptor: int, most: int) -> bytes:
    pieces, left = [], most
    while left > 0 and (piece := os.read(descriptor, left)):
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)


def _rows(lines: list[bytes]) -> list[JournalRow]:
    """Return the rows that these lines contain, without those of another version."""
    try:
        values = json.loads(b"[" + b",".join(lines) + b"]")
    except ValueError:  # The index is damaged.
        values = [json.loads(line) for line in lines if _is_json(line)]
    # This does the same as JournalRow._make() in a third of the time.
    rows = (tuple.__new__(JournalRow, row) for row in values if len(row) == len(JournalRow._fields))
    return [row for row in rows if row.status in _STATUSES]


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


def _encoded(row: JournalRow, run: JournaledRun) -> bytes:
    """Return the content of a run's file. Raise OSError if it is too large in any form."""
    for form in _forms(run):
        values = {
            "schema": _SCHEMA,
            "texts": text_table(form),
            "run": {**to_json(form), "report": form.report.to_dict()},
        }
        lines = [
            json.dumps(part, ensure_ascii=False, separators=(",", ":")) for part in (to_json(row), values)
        ]
        data = encodable("\n".join(lines)).encode()
        if len(data) <= MAX_RUN_BYTES and len(encodable(lines[0]).encode()) < _MAX_FIRST_LINE:
            return data
    raise OSError(None, f"the report is larger than {MAX_RUN_BYTES / 1e6:g} MB")


def _forms(run: JournaledRun) -> Iterator[JournaledRun]:
    """Return the run, and then without the parts of its report that take most."""
    yield run
    yield replace(run, report=replace(run.report, timeline=None))
    yield replace(
        run, report=replace(run.report, timeline=None, time=None, holders=(), lines=(), workers=(), advice=())
    )


def _decoded(values: Mapping[str, Any]) -> JournaledRun:
    if values["schema"] != _SCHEMA:
        raise ValueError(f"The run was written by another version (schema {values['schema']!r}).")
    return from_json(JournaledRun, restore(values["run"], values["texts"]))


def without_printed(report: Report) -> Report:
    """Return the report without the lines that the code printed."""
    timeline = report.timeline
    if timeline is None:
        return report
    marks = tuple(mark for mark in timeline.marks if mark.kind != "printed")
    return replace(report, timeline=replace(timeline, marks=marks))


def newest(rows: Iterable[JournalRow]) -> list[JournalRow]:
    """Return rows sorted by their start, the newest first."""
    return sorted(rows, key=lambda row: (row.started, row.id), reverse=True)
