"""Find the runs whose process has died, and store why."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from gpuwidget.journal import death, machine
from gpuwidget.journal.messages import REQUESTED, SILENT
from gpuwidget.journal.records import Death, JournaledRun, KernelEnd, ProcessIdentity
from gpuwidget.journal.store import JournalRow, JournalStore, newest, row_of
from gpuwidget.model import units
from gpuwidget.model.boundary import Boundary
from gpuwidget.model.clock import SYSTEM_CLOCK, Clock

_LOG = logging.getLogger(__name__)

SILENT_S = 300.0
"""Seconds without a sample after which a run on another machine counts as died, until it writes again."""

_CLOCK_MARGIN_S = 2.0
_ZOMBIE_S = 60.0
"""Seconds after the last sample for which others wait for the server to read the exit code of a process."""

EndOf = Callable[[JournaledRun], KernelEnd | None]
"""Returns what is known about the end of a run's process."""


class Explain(Protocol):
    """Explains why a run died: see :func:`gpuwidget.journal.death.explain`."""

    def __call__(self, run: JournaledRun, end: KernelEnd | None, now: float) -> Death: ...


def conclude(
    store: JournalStore,
    end_of: EndOf = lambda run: None,
    *,
    explain: Explain = death.explain,
    is_alive: Callable[[ProcessIdentity, float], bool | None] = machine.is_alive,
    is_zombie: Callable[[ProcessIdentity], bool] = machine.is_zombie,
    clock: Clock = SYSTEM_CLOCK,
) -> list[JournalRow]:
    """Move the runs whose process has died to the died ones. Return the rows of the other running runs.

    Count the time of a run whose process is known to be alive until now, and of other runs until their last
    sample.

    A run of another machine or container, whose process can't be seen from here, counts as died while it
    writes no samples. Its file stays where it is, because it may continue.
    """
    running = []
    for row in store.rows("live"):
        with Boundary(_LOG, "a running run of the journal could not be checked"):
            found = store.read("live", row.id)
            if found is None:
                continue  # It has just ended.
            row, run = found
            alive = is_alive(run.process, run.machine.time)
            silent_s = clock.time() - run.machine.time
            if alive is False:
                end = end_of(run)
                if end is None and silent_s < _ZOMBIE_S and is_zombie(run.process):
                    running.append(row)  # Soon the server knows the exit code.
                else:
                    why = explain(run, end, clock.time())
                    store.conclude(row.id, died(run), why)
            elif alive is None and silent_s > SILENT_S:
                running.append(_silent(row, run))
            elif alive:
                # The file is some seconds old, or older if a library keeps Python from running.
                running.append(row._replace(duration_s=row.duration_s + max(0, silent_s)))
            else:
                running.append(row)  # The clock of another machine may differ.
    return running


def explain_interrupted(store: JournalStore, kernel_id: str, end: KernelEnd) -> None:
    """Store why the runs of a kernel were interrupted that Jupyter was asked to end.

    Jupyter interrupts the running cell first. The run then ends, and its notebook has the card.
    """
    if end.requested is None or end.time is None:
        return
    for row in store.rows("ended", containing=[kernel_id]):
        ended = row.started + row.duration_s
        if row.status == "interrupted" and row.death is None and ended >= end.time - _CLOCK_MARGIN_S:
            found = store.read("ended", row.id)
            if found is not None:
                why = Death(end.requested, "certain", REQUESTED[end.requested](), checked=())
                store.write(row.id, found[1], "ended", why)


def _silent(row: JournalRow, run: JournaledRun) -> JournalRow:
    """Return the row of a run of another machine that writes no samples."""
    text = SILENT(host=run.process.host, at=units.date_and_time(run.machine.time))
    return row_of(row.id, died(run), "died", Death("unknown", "unknown", text, checked=()))


def died(run: JournaledRun) -> JournaledRun:
    """Return a run whose report ends with its last sample."""
    cell = replace(run.report.cell, status="died")
    return replace(run, report=replace(run.report, cell=cell))


def newest_runs(store: JournalStore, running: list[JournalRow], most: int | None) -> list[JournalRow]:
    """Return the rows of the runs, the newest first, and at most ``most`` besides those that run.

    ``running`` are those that :func:`conclude` returned.
    """
    others = newest([*store.rows("died"), *store.rows("ended", most)])[:most]
    return newest([*running, *others])
