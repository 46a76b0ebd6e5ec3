"""Build the report's time and GPU activity per line from the sample counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from gpuwidget.model.messages import Message
from gpuwidget.model.report import CodeTime, FrameTime, LineTime
from gpuwidget.profiler import messages
from gpuwidget.profiler.code_locations import CodeLocator
from gpuwidget.profiler.sample_counts import Counts, LocationCounts, SampleCounts
from gpuwidget.profiler.sampling_rate import MAX_PERIOD_S

MIN_SAMPLES = 20
_MAX_LINES = 12
_MAX_FRAMES = 4
_MIN_SHARE = 0.5
"""Lines with a smaller percentage of the time are not reported."""
_MAX_AMBIGUOUS = 6.0
"""Maximum percent of the time that may be ambiguous between lines. Above this, lines are merged."""
_MIN_FRAME_SHARE = 0.1
"""A line's entry names the user's function with the largest share of the line's time, if that share is at
least this fraction."""
_MAX_AMBIGUOUS_BUSY = 5.0
_MIN_KNOWN = 90.0
"""A line's GPU activity is reported only if the GPU's state is known for at least this percentage of the
line's time."""
_MAX_MISSED = 10.0
"""If samples are missing for more than this percentage of the run, no lines are reported."""
_MAX_MISSED_S = 0.2
"""If samples are missing for fewer seconds than this, lines are reported, whatever the percentage is."""
_LONG_S = 2.0
_LONG_DELAY_S = 0.25
"""If samples were late for longer, and for most of the run, that is why there are too few of them."""
_MIN_GIL_BLOCKED = 5.0
"""If GIL-blocked time (:attr:`Counts.gil_blocked`) is at least this percentage of the time, the report
mentions it."""
_MAX_SOURCE_LINES = 2000
_CONTENDED = 5.0
"""If samples that waited for the GIL make up at least this percentage of the time, contention for the GIL
limits the resolution."""
_RESOLUTION_S = 0.02
_CONTENDED_RESOLUTION_S = 0.07
"""Resolutions in seconds, without and with contention for the GIL. If a loop takes less time than this, the
line at which Python releases the GIL is sampled too often."""

SourceLine = Callable[[str, int], str]
"""Function that returns the text of a line, given a file name and a line number."""


@dataclass(slots=True)
class _Entry:
    """Time that was counted for a user's frame or for lines of the cell."""

    counts: Counts = field(default_factory=Counts)
    calls: dict[str | None, float] = field(default_factory=dict)

    def add(self, counts: Counts, call: str | None) -> None:
        self.counts.add(counts)
        self.calls[call] = self.calls.get(call, 0.0) + counts.seconds

    def share(self, total: float) -> float:
        return 100 * self.counts.seconds / total

    @property
    def activity(self) -> float | None:
        counts = self.counts
        if counts.seconds <= 0 or 100 * counts.known < _MIN_KNOWN * counts.seconds:
            return None
        return 100 * counts.busy / counts.known

    def longest_call(self, total: float) -> tuple[str | None, float | None]:
        """Return the call that took the most time, and its percent of the total time.

        Both are None if more time was spent outside calls than in any single call.
        """
        call, seconds = max(self.calls.items(), key=lambda item: item[1])
        return call, None if call is None else 100 * seconds / total


@dataclass(slots=True)
class _LineGroup(_Entry):
    """Lines of the cell that cannot be distinguished from each other; usually a single line."""

    lines: set[int] = field(default_factory=set)
    file: str | None = None
    frames: dict[str, _Entry] = field(default_factory=dict)

    def add_location(self, counted: LocationCounts, locator: CodeLocator) -> None:
        call, frame = locator.call(counted.location), locator.frame(counted.location)
        self.add(counted.counts, call)
        if counted.line is not None:
            self.lines.add(counted.line)
        self.file = self.file or locator.cell_file(counted.location)
        if frame is not None:
            self.frames.setdefault(frame, _Entry()).add(counted.counts, call)

    @property
    def flickers(self) -> bool:
        """Whether the GPU's state changed while samples waited for the GIL, and did so too often for a GPU
        activity to be reported."""
        return 0 < _MAX_AMBIGUOUS_BUSY * self.counts.known < 100 * self.counts.ambiguous_busy


def line_profile(
    counts: SampleCounts,
    locator: CodeLocator,
    source: SourceLine,
    *,
    not_queried: Message | None,
    cpu: float | None,
    cpu_children: float | None,
) -> CodeTime:
    """Return the time per line according to the samples taken so far.

    ``not_queried`` is the reason why the GPU's streams were not queried, or None if they were.
    """
    counted = counts.counted()
    total = sum(location.counts.seconds for location in counted)
    samples = sum(location.counts.samples for location in counted)
    reasons: list[Message] = []
    lines: tuple[LineTime, ...] = ()
    contended = total > 0 and 100 * counts.delayed_s / counts.total_s >= _CONTENDED
    blocked = sum(location.counts.gil_blocked for location in counted)
    # A sample that waited for the GIL stands for all samples that were due meanwhile.
    if samples + blocked / MAX_PERIOD_S < MIN_SAMPLES or total <= 0:
        reasons.append(_why_too_few(counts, total))
    else:
        merged = _merged_lines(counts, total, counted, locator, source)
        groups: dict[int | None, _LineGroup] = {}
        for location in counted:
            groups.setdefault(merged.get(location.line, location.line), _LineGroup()).add_location(
                location, locator
            )
        for line, representative in merged.items():
            if representative in groups and line is not None:
                groups[representative].lines.add(line)
        ordered = sorted(groups.values(), key=lambda group: -group.counts.seconds)[:_MAX_LINES]
        lines = tuple(
            _line_time(group, total, source) for group in ordered if group.share(total) >= _MIN_SHARE
        )
        gil_blocked = 100 * blocked / total
        if gil_blocked >= _MIN_GIL_BLOCKED:
            reasons.append(messages.GIL_BLOCKED(percent=round(gil_blocked, 2)))
        elif merged:
            reasons.append(messages.TAKE_TURNS)
        if not_queried is not None:
            reasons.append(not_queried)
        elif any(group.flickers for group in ordered):
            reasons.append(messages.GPU_FLICKERS)
    return CodeTime(
        lines=lines,
        samples=samples,
        resolution_s=_CONTENDED_RESOLUTION_S if contended else _RESOLUTION_S,
        reason=None,
        cpu=cpu,
        cpu_children=cpu_children,
        warm_up_s=None,
    ).with_reasons(*map(messages.sentence, reasons))


def _why_too_few(counts: SampleCounts, total: float) -> Message:
    if counts.total_s < _LONG_S:
        return messages.TOO_SHORT
    if counts.delayed_s > counts.total_s / 2:
        return messages.GIL_BLOCKED_THROUGHOUT
    return messages.CELL_NOT_SEEN if not total else messages.TOO_SHORT


def check_coverage(time: CodeTime, counts: SampleCounts, duration_s: float) -> CodeTime:
    """Return ``time`` without its lines if samples are missing for too much of the run. If there are no lines
    because samples were late or missing, return ``time`` with that reason."""
    missed = max(counts.missed_s, duration_s - counts.total_s)
    percent = 100 * missed / max(duration_s, counts.total_s + counts.missed_s)
    if not time.lines:
        long = max(_LONG_DELAY_S, duration_s / 2)
        if counts.delayed_s + counts.machine_delay_s > long:
            reason = messages.sentence(messages.GIL_BLOCKED_THROUGHOUT)
        elif missed > long:
            reason = messages.PARTLY_NOT_SAMPLED(percent=round(percent, 2))
        else:
            return time
    elif missed < _MAX_MISSED_S or percent < 1:
        return time
    else:
        reason = messages.PARTLY_NOT_SAMPLED(percent=round(percent, 2))
        if percent <= _MAX_MISSED:
            return time.with_reasons(reason)
    # Without lines, the other reasons would be about lines that are not shown.
    return replace(time, lines=(), reason=None, reason_ids=()).with_reasons(reason)


def _merged_lines(
    counts: SampleCounts,
    total: float,
    counted: Iterable[LocationCounts],
    locator: CodeLocator,
    source: SourceLine,
) -> dict[int | None, int | None]:
    """Map each line that cannot be distinguished from others to the line that represents its group."""
    shared = dict(counts.shared_s)
    for pair, seconds in _gil_blocked(counts, counted, locator, source):
        shared[pair] = shared.get(pair, 0.0) + seconds
    merged: dict[int | None, int | None] = {}
    remaining = sum(shared.values())
    for pair, seconds in sorted(shared.items(), key=lambda item: -item[1]):
        if 100 * remaining <= _MAX_AMBIGUOUS * total:
            break
        remaining -= seconds
        first, second = (merged.get(line, line) for line in pair)
        members = [line for line, representative in merged.items() if representative in (first, second)]
        for line in {*members, first, second}:
            merged[line] = first
    return merged


def _gil_blocked(
    counts: SampleCounts, counted: Iterable[LocationCounts], locator: CodeLocator, source: SourceLine
) -> Iterator[tuple[frozenset[int | None], float]]:
    """Yield pairs of lines, and the seconds in which an operation on either line may have held the GIL."""
    last, seconds = counts.gil_blocked_at_end
    if last is not None and seconds:
        file = next(
            (locator.cell_file(location.location) for location in counted if location.location.cell), None
        )
        end = last
        while file is not None and end < _MAX_SOURCE_LINES and source(file, end + 1):
            end += 1
        if end > last:
            yield frozenset((last, end)), seconds
    for location in counted:
        blocked = location.counts.gil_blocked
        # After an operation that held the GIL for long, other threads may have run first. By then, the cell
        # may have gone on into a function that the line calls.
        for seconds, before_call in ((location.counts.preempted - blocked, False), (blocked, True)):
            if seconds > 0:
                lines = locator.candidate_lines(location.location, before_call=before_call) - {location.line}
                for line in lines:
                    yield frozenset((location.line, line)), seconds / len(lines)


def _line_time(group: _LineGroup, total: float, source: SourceLine) -> LineTime:
    numbers = sorted(group.lines)
    line = numbers[0] if numbers else None
    share = group.share(total)
    call, call_share = group.longest_call(total)
    ordered = sorted(group.frames.items(), key=lambda item: -item[1].counts.seconds)
    frames = tuple(
        FrameTime(
            name, frame.share(total), None if group.flickers else frame.activity, *frame.longest_call(total)
        )
        for name, frame in ordered[:_MAX_FRAMES]
    )
    text = source(group.file, line) if group.file is not None and line is not None else ""
    return LineTime(
        line=line,
        source=text.strip(),
        share=share,
        gpu_busy=None if group.flickers else group.activity,
        call=call,
        frame=frames[0].frame if frames and frames[0].share >= _MIN_FRAME_SHARE * share else None,
        until=numbers[-1] if len(numbers) > 1 else None,
        frames=frames,
        call_share=call_share,
        indent=len(text.expandtabs(4)) - len(text.expandtabs(4).lstrip()),
    )
