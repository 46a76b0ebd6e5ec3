"""Record which lines of a watched cell allocated torch's memory (``--lines``)."""

from __future__ import annotations

from dataclasses import replace

from gpuwidget.kernel.shell.interrupts import defer_interrupts
from gpuwidget.measure.line_allocations import Code, LineAllocations, RunRequests, allocations_by_line
from gpuwidget.model import units
from gpuwidget.model.messages import Message, Sentences, message
from gpuwidget.model.report import Report
from gpuwidget.model.torch_state import RecordedHistory
from gpuwidget.model.translation import joined, translatable
from gpuwidget.pytorch import ALLOCATION_HISTORY, MAX_HISTORY_EVENTS, HistoryScope
from gpuwidget.sampler import Subscription, process_sampler

_LINES_UNKNOWN = Sentences(
    "Memory by line: couldn't tell which lines allocated {missing} of the {allocated} that this run "
    "allocated on cuda:{index}, because {why}."
)
_WHY_NO_LINE = Sentences(
    (
        "torch's history holds the last {number:,} events, so older allocations have no line",
        "these allocations are missing from torch's history or were made before it began",
    )
)


class LineCollector:
    """A :class:`gpuwidget.measure.collector.Collector` that records torch's allocations during one run."""

    measures: str = translatable("memory by line")

    def __init__(self, code: Code) -> None:
        self._code = code
        self._scope: HistoryScope | None = None
        self._subscription: Subscription | None = None

    def start(self) -> None:
        """Start recording torch's allocation history."""
        with defer_interrupts():
            self._scope = ALLOCATION_HISTORY.open()
        if not self._scope.recording:
            # torch may not be imported yet. The cell may import it, so check for torch at each GPU sample.
            self._subscription = process_sampler().subscribe(lambda sample: ALLOCATION_HISTORY.poll_torch())

    def stop(self) -> None:
        """Mark the end of the cell's code. Later allocations do not count."""
        self._unsubscribe()
        if self._scope is not None:
            self._scope.stop()

    def annotate(self, report: Report) -> Report:
        """Return the report with the memory that each line allocated."""
        if self._scope is None:
            return report
        recorded = ALLOCATION_HISTORY.read(self._scope)
        self.abandon()
        if isinstance(recorded, str):
            return report.with_notes(_note(translatable("Memory by line: {reason}.", reason=recorded)))
        requests = _run_requests(recorded)
        found = allocations_by_line(
            recorded.snapshot,
            self._code,
            since_us=recorded.since_us,
            until_us=recorded.until_us,
            requests=requests,
            recorded_before=recorded.recorded_before,
        )
        notes = [recorded.note] if recorded.note is not None else []
        notes += _missing_notes(found, requests, recorded)
        return replace(report, lines=found.lines).with_notes(*(_note(text) for text in notes))

    def abandon(self) -> None:
        """Stop recording, without adding anything to a report."""
        self._unsubscribe()
        scope, self._scope = self._scope, None
        if scope is not None:
            ALLOCATION_HISTORY.close(scope)

    def _unsubscribe(self) -> None:
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            subscription.close()


def _note(text: str) -> Message:
    return message("memory-by-line", text)


def _run_requests(recorded: RecordedHistory) -> dict[int, RunRequests]:
    found = {}
    for index, after in recorded.after.items():
        before = recorded.before.get(index)
        during = after.allocated - (before.allocated if before is not None else 0)
        found[index] = RunRequests(during, after.current, after.peak)
    return found


def _missing_notes(
    found: LineAllocations, requests: dict[int, RunRequests], recorded: RecordedHistory
) -> list[str]:
    """Return notes that state how much memory the history attributes to no line, and why."""
    notes: list[str] = []
    for index, missing in sorted(found.missing.items()):
        traces = recorded.snapshot.get("device_traces") or ()
        full = index < len(traces) and len(traces[index]) >= MAX_HISTORY_EVENTS
        note = _LINES_UNKNOWN(
            allocated=units.memory(requests[index].during),
            index=index,
            missing=units.memory(missing),
            why=_WHY_NO_LINE(number=MAX_HISTORY_EVENTS if full else None),
        )
        if index in found.peak_unknown:
            note = joined([note, translatable("The lines that held the peak are unknown too.")], " ")
        notes.append(note)
    return notes
