"""Where a run's time went, made from the looks at its code: shares, the GPU's activity there, and doubts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from gpuwidget.model import units
from gpuwidget.model.report import CodeTime, FrameTime, LineTime
from gpuwidget.profiler.code_places import Places
from gpuwidget.profiler.sample_counts import Spent, Tally

FEWEST_LOOKS = 20
_MOST_LINES = 12
_MOST_FRAMES = 4
_LEAST_SHARE = 0.5
_MOST_DOUBT = 6.0
"""Percent of the time that two lines may owe each other before they count as one."""
_LEAST_OF_LINE = 0.1
"""Part of a line's time that a frame below it must have had to be named beside it."""
_FEWEST_TURNS = 2
"""Lines that follow each other less often than this are no pattern."""
_MOST_BUSY_DOUBT = 5.0
_LEAST_KNOWN = 90.0
_MOST_MISSED = 10.0
"""Percent of the time without looks up to which the others speak for the whole."""
_MOST_MISSED_S = 0.2
_LONG_S = 2.0
_LEAST_KEPT = 5.0
"""Percent of the time that looks had to wait long for the interpreter, from which on it is said."""
_MOST_SOURCE_LINES = 2000
_CONTENDED = 5.0
"""Percent of the time with waiting looks from which on the interpreter limits the resolution."""
_RESOLUTION_S = 0.02
_CONTENDED_RESOLUTION_S = 0.07
"""Below these, the line at which Python lets go of its interpreter is seen too often."""

_TAKE_TURNS = (
    "some lines take turns faster than can be told while Python's interpreter, or this machine, is busy, and "
    "are shown as one"
)
_FLICKERS = (
    "the GPU's state changes faster than can be told while Python's interpreter, or this machine, is busy"
)

_TOO_SHORT = "the run was too short to tell where its time went"
_NOT_ITS_CODE = "the cell's own code was not seen at work"
_KEPT_THROUGHOUT = (
    "most of the time single operations kept Python's interpreter, or this machine was busy, so that there "
    "were too few looks to tell where it went"
)

Source = Callable[[str, int], str]
"""The text of a line of a file."""


@dataclass(slots=True)
class _Group:
    """Lines of the cell that can't be told apart; one, as a rule."""

    seconds: float = 0.0
    known: float = 0.0
    busy: float = 0.0
    doubtful: float = 0.0
    lines: dict[int | None, float] = field(default_factory=dict)
    file: str | None = None
    calls: dict[str | None, float] = field(default_factory=dict)
    frames: dict[str, list[Spent]] = field(default_factory=dict)

    def add(self, spent: Spent, places: Places) -> None:
        self.seconds += spent.seconds
        self.known += spent.known
        self.busy += spent.busy
        self.doubtful += spent.doubtful
        self.lines[spent.line] = self.lines.get(spent.line, 0.0) + spent.seconds
        self.file = self.file or places.file(spent.place.own)
        call = places.call(spent.place.call)
        self.calls[call] = self.calls.get(call, 0.0) + spent.seconds
        user = spent.place.user
        if user:
            name = places.frame(user, places.line(user, spent.place.user_at))
            if name is not None:
                self.frames.setdefault(name, []).append(spent)


def code_time(
    tally: Tally,
    places: Places,
    source: Source,
    *,
    why_unknown: str | None,
    cpu: float | None,
    cpu_children: float | None,
) -> CodeTime:
    """What the looks so far say. ``why_unknown`` says why the GPU's streams were not asked, if so."""
    spent = [replace(one) for one in list(tally.spent.values())]
    total = sum(one.seconds for one in spent)
    counted = tally.counted
    reasons: list[str] = []
    lines: tuple[LineTime, ...] = ()
    contended = total > 0 and 100 * tally.held / tally.whole >= _CONTENDED
    if counted < FEWEST_LOOKS or total <= 0:
        reasons.append(_why_too_few(tally, total))
    else:
        together = _together(tally, total, spent, places, source)
        groups: dict[int | None, _Group] = {}
        for one in spent:
            groups.setdefault(together.get(one.line, one.line), _Group()).add(one, places)
        for line, stands in together.items():
            if stands in groups:
                groups[stands].lines.setdefault(line, 0.0)
        ordered = sorted(groups.values(), key=lambda group: -group.seconds)
        lines = tuple(
            _line(group, total, places, source)
            for group in ordered[:_MOST_LINES]
            if 100 * group.seconds / total >= _LEAST_SHARE
        )
        kept = 100 * sum(one.kept for one in spent) / total
        if kept >= _LEAST_KEPT:
            reasons.append(
                f"{units.percent(kept)} of the time looks had to wait long, for one operation that kept "
                "Python's interpreter or for this machine: it may be that of what ran just before"
            )
        elif together:
            reasons.append(_TAKE_TURNS)
        if why_unknown is not None:
            reasons.append(why_unknown)
        elif any(_flickers(group) for group in ordered[:_MOST_LINES]):
            reasons.append(_FLICKERS)
    return CodeTime(
        lines=lines,
        samples=counted,
        resolution_s=_CONTENDED_RESOLUTION_S if contended else _RESOLUTION_S,
        reason=sentences(reasons),
        cpu=cpu,
        cpu_children=cpu_children,
        warm_up_s=None,
    )


def _why_too_few(tally: Tally, total: float) -> str:
    if tally.whole < _LONG_S:
        return _TOO_SHORT
    return _KEPT_THROUGHOUT if tally.held > tally.whole / 2 else _NOT_ITS_CODE if not total else _TOO_SHORT


def looked_at(time: CodeTime, tally: Tally, duration_s: float) -> CodeTime:
    """``time`` of a run so long; without its lines where the looks have missed too much of it."""
    missed = max(tally.missed, duration_s - tally.whole)
    percent = 100 * missed / max(duration_s, tally.whole + tally.missed)
    if not time.lines or missed < _MOST_MISSED_S or percent < 1:
        return time
    reason = f"For {units.percent(percent)} of the run its code could not be looked at."
    lines = time.lines if percent <= _MOST_MISSED else ()
    return replace(time, lines=lines, reason=" ".join(filter(None, [time.reason, reason])))


def sentences(reasons: Iterable[str]) -> str | None:
    """Reasons as sentences; None without one."""
    made = [f"{reason[0].upper()}{reason[1:]}." for reason in reasons]
    return " ".join(made) or None


def _together(
    tally: Tally, total: float, spent: Iterable[Spent], places: Places, source: Source
) -> dict[int | None, int | None]:
    """For each line that can't be told from another, the one that stands for all of them."""
    turns = dict(tally.turns)
    owed = {
        both: seconds for both, seconds in dict(tally.doubts).items() if turns.get(both, 0) >= _FEWEST_TURNS
    }
    for both, seconds in _kept_between(tally, spent, places, source):
        if len(both) > 1:
            owed[both] = owed.get(both, 0.0) + seconds
    found: dict[int | None, int | None] = {}
    left = sum(owed.values())
    for both, seconds in sorted(owed.items(), key=lambda item: -item[1]):
        if 100 * left <= _MOST_DOUBT * total:
            break
        left -= seconds
        first, second = (found.get(line, line) for line in both)
        members = [line for line, stands in found.items() if stands in (first, second)]
        for line in {*members, first, second}:
            found[line] = first
    return found


def _kept_between(
    tally: Tally, spent: Iterable[Spent], places: Places, source: Source
) -> Iterator[tuple[frozenset[int | None], float]]:
    """Lines of which any may hold the operation that kept the interpreter, and for how long."""
    for (since, until), seconds in dict(tally.kept).items():
        yield frozenset((1 if since is None else since, until)), seconds
    last, seconds = tally.kept_at_end
    if last is not None and seconds:
        file = next((places.file(one.place.own) for one in spent if one.place.own), None)
        end = last
        while file is not None and end < _MOST_SOURCE_LINES and source(file, end + 1):
            end += 1
        yield frozenset((last, end)), seconds
    for one in spent:
        others = (places.lines_before(one.place) if one.forced else frozenset()) - {one.line}
        for line in others:
            yield frozenset((one.line, line)), one.forced / len(others)


def _flickers(group: _Group) -> bool:
    return group.known > 0 and 100 * group.doubtful > _MOST_BUSY_DOUBT * group.known


def _busy(known: float, busy: float, seconds: float) -> float | None:
    if seconds <= 0 or 100 * known < _LEAST_KNOWN * seconds:
        return None
    return 100 * busy / known


def _line(group: _Group, total: float, places: Places, source: Source) -> LineTime:
    numbers = sorted(line for line in group.lines if line is not None)
    line = numbers[0] if numbers else None
    text = source(group.file, line).strip() if group.file is not None and line is not None else ""
    call, call_share = _most(group.calls, total)
    flickers = _flickers(group)
    frames = []
    for name, parts in group.frames.items():
        seconds = sum(part.seconds for part in parts)
        known = sum(part.known for part in parts)
        busy = None if flickers else _busy(known, sum(part.busy for part in parts), seconds)
        calls: dict[str | None, float] = {}
        for part in parts:
            name_of_call = places.call(part.place.call)
            calls[name_of_call] = calls.get(name_of_call, 0.0) + part.seconds
        frames.append(FrameTime(name, 100 * seconds / total, busy, *_most(calls, total)))
    frames.sort(key=lambda frame: -frame.share)
    share = 100 * group.seconds / total
    return LineTime(
        line=line,
        source=text,
        share=share,
        gpu_busy=None if flickers else _busy(group.known, group.busy, group.seconds),
        call=call,
        frame=frames[0].frame if frames and frames[0].share >= _LEAST_OF_LINE * share else None,
        until=numbers[-1] if len(numbers) > 1 else None,
        frames=tuple(frames[:_MOST_FRAMES]),
        call_share=call_share,
    )


def _most(calls: Mapping[str | None, float], total: float) -> tuple[str | None, float | None]:
    """The call that took most of the time, and its percentage of all time; None for no call."""
    call, seconds = max(calls.items(), key=lambda item: item[1])
    return call, None if call is None else 100 * seconds / total
