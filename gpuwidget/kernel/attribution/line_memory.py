"""``--lines``: which lines of a watched cell allocated torch's memory."""

from __future__ import annotations

from dataclasses import replace

from gpuwidget.kernel.shell.interrupts import defer_interrupts
from gpuwidget.measure.line_allocations import Code, Lines, Requested, by_line
from gpuwidget.model import units
from gpuwidget.model.report import Note, Report
from gpuwidget.pytorch.allocation_history import (
    ALLOCATION_HISTORY,
    MAX_EVENTS,
    HistoryScope,
    RecordedHistory,
    RequestedBytes,
)
from gpuwidget.sampler import Subscription, process_sampler


class LineCollector:
    """Looks at what torch allocates during one run; see :class:`gpuwidget.measure.collector.Collector`."""

    def __init__(self, code: Code) -> None:
        self._code = code
        self._listener: HistoryScope | None = None
        self._looking: Subscription | None = None

    def start(self) -> None:
        """Begin to record."""
        with defer_interrupts():
            self._listener = ALLOCATION_HISTORY.open()
        if not self._listener.recording:
            # The cell may import torch itself: look for it now and then.
            self._looking = process_sampler().subscribe(lambda sample: ALLOCATION_HISTORY.poll_torch())

    def stop(self) -> None:
        """The code has ended."""
        self._look_no_more()
        if self._listener is not None:
            self._listener.stop()

    def annotate(self, report: Report) -> Report:
        """Add up what was allocated, by line."""
        if self._listener is None:
            return report
        recorded = ALLOCATION_HISTORY.read(self._listener)
        self.abandon()
        if isinstance(recorded, str):
            return report.with_notes(_note(f"Memory by line: {recorded}."))
        lines = by_line(
            recorded.snapshot,
            self._code,
            since_us=recorded.since_us,
            until_us=recorded.until_us,
            requested=_requested(recorded),
            recorded_before=recorded.recorded_before,
        )
        notes = ([recorded.note] if recorded.note is not None else []) + _left_out(lines, recorded)
        return replace(report, lines=lines.lines).with_notes(*(_note(text) for text in notes))

    def abandon(self) -> None:
        """Record no longer."""
        self._look_no_more()
        listener, self._listener = self._listener, None
        if listener is not None:
            ALLOCATION_HISTORY.close(listener)

    def _look_no_more(self) -> None:
        looking, self._looking = self._looking, None
        if looking is not None:
            looking.close()


def _note(text: str) -> Note:
    return Note("memory-by-line", {}, text)


def _requested(recorded: RecordedHistory) -> dict[int, Requested]:
    nothing = RequestedBytes(0, 0, 0)
    return {
        index: Requested(
            after.allocated - recorded.before.get(index, nothing).allocated, after.current, after.peak
        )
        for index, after in recorded.after.items()
    }


def _left_out(lines: Lines, recorded: RecordedHistory) -> list[str]:
    """What the lines do not show, and why."""
    notes = []
    for index, unseen in sorted(lines.unseen.items()):
        traces = recorded.snapshot.get("device_traces") or ()
        full = index < len(traces) and len(traces[index]) >= MAX_EVENTS
        asked = (
            recorded.after[index].allocated - recorded.before.get(index, RequestedBytes(0, 0, 0)).allocated
        )
        why = (
            f"torch's history holds the last {MAX_EVENTS:,} events, and what is older has no line"
            if full
            else "it was allocated before the history began or is not in it"
        )
        known = ", nor which lines held the peak" if index in lines.peak_unknown else ""
        notes.append(
            f"Memory by line: of {units.memory(asked)} that code asked for on cuda:{index} in all, "
            f"{units.memory(unseen)} can't be told{known}: {why}."
        )
    return notes
