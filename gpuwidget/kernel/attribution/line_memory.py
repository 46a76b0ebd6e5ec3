"""``--lines``: which lines of a watched cell allocated torch's memory."""

from __future__ import annotations

from dataclasses import replace

from gpuwidget.kernel.shell.interrupts import defer_interrupts
from gpuwidget.measure.line_allocations import Code, Lines, Requested, by_line
from gpuwidget.model import units
from gpuwidget.model.report import Report
from gpuwidget.pytorch.allocation_history import HISTORY, MOST_EVENTS, Count, Listener, Recorded
from gpuwidget.sampler import Subscription, process_sampler


class LineCollector:
    """Looks at what torch allocates during one run; see :class:`gpuwidget.measure.collector.Witness`."""

    def __init__(self, code: Code) -> None:
        self._code = code
        self._listener: Listener | None = None
        self._looking: Subscription | None = None

    def start(self) -> None:
        """Begin to record."""
        with defer_interrupts():
            self._listener = HISTORY.open()
        if not self._listener.joined:
            # The cell may import torch itself: look for it now and then.
            self._looking = process_sampler().subscribe(lambda sample: HISTORY.listen())

    def stop(self) -> None:
        """The code has ended."""
        self._look_no_more()
        if self._listener is not None:
            self._listener.stop()

    def testify(self, report: Report) -> Report:
        """Add up what was allocated, by line."""
        if self._listener is None:
            return report
        recorded = HISTORY.take(self._listener)
        self.abandon()
        if isinstance(recorded, str):
            return replace(report, notes=(*report.notes, f"Memory by line: {recorded}."))
        lines = by_line(
            recorded.snapshot,
            self._code,
            since_us=recorded.since_us,
            until_us=recorded.until_us,
            requested=_requested(recorded),
            recorded_before=recorded.older,
        )
        notes = ([recorded.note] if recorded.note is not None else []) + _left_out(lines, recorded)
        return replace(report, lines=lines.lines, notes=(*report.notes, *notes))

    def abandon(self) -> None:
        """Record no longer."""
        self._look_no_more()
        listener, self._listener = self._listener, None
        if listener is not None:
            HISTORY.close(listener)

    def _look_no_more(self) -> None:
        looking, self._looking = self._looking, None
        if looking is not None:
            looking.close()


def _requested(recorded: Recorded) -> dict[int, Requested]:
    nothing = Count(0, 0, 0)
    return {
        index: Requested(after.ever - recorded.before.get(index, nothing).ever, after.now, after.peak)
        for index, after in recorded.after.items()
    }


def _left_out(lines: Lines, recorded: Recorded) -> list[str]:
    """What the lines do not show, and why."""
    notes = []
    for index, unseen in sorted(lines.unseen.items()):
        traces = recorded.snapshot.get("device_traces") or ()
        full = index < len(traces) and len(traces[index]) >= MOST_EVENTS
        asked = recorded.after[index].ever - recorded.before.get(index, Count(0, 0, 0)).ever
        why = (
            f"torch's history holds the last {MOST_EVENTS:,} events, and what is older has no line"
            if full
            else "it was allocated before the history began or is not in it"
        )
        known = ", nor which lines held the peak" if index in lines.peak_unknown else ""
        notes.append(
            f"Memory by line: of {units.memory(asked)} that code asked for on cuda:{index} in all, "
            f"{units.memory(unseen)} can't be told{known}: {why}."
        )
    return notes
