"""Where a run's time went, made from the looks at its code: shares, the GPU's activity there, and doubts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from gpuwidget import units
from gpuwidget.measure.places import Places
from gpuwidget.measure.report import CodeTime, FrameTime, LineTime
from gpuwidget.measure.tally import Spent, Tally

FEWEST_LOOKS = 20
_MOST_LINES = 12
_MOST_FRAMES = 4
_LEAST_SHARE = 0.5
_MOST_DOUBT = 6.0
"""Percent of the time that two lines may owe each other before they count as one."""
_FEWEST_TURNS = 2
"""Lines that follow each other less often than this are no pattern."""
_MOST_BUSY_DOUBT = 5.0
_LEAST_KNOWN = 90.0
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
    reasons: list[str] = []
    lines: tuple[LineTime, ...] = ()
    contended = total > 0 and 100 * tally.held / total >= _CONTENDED
    if tally.looks < FEWEST_LOOKS or total <= 0:
        reasons.append("the run was too short to tell where its time went")
    else:
        together = _together(tally, total)
        if together:
            reasons.append(_TAKE_TURNS)
        groups: dict[int | None, _Group] = {}
        for one in spent:
            groups.setdefault(together.get(one.line, one.line), _Group()).add(one, places)
        ordered = sorted(groups.values(), key=lambda group: -group.seconds)
        lines = tuple(
            _line(group, total, places, source)
            for group in ordered[:_MOST_LINES]
            if 100 * group.seconds / total >= _LEAST_SHARE
        )
        if why_unknown is not None and not any(line.gpu_busy is not None for line in lines):
            reasons.append(why_unknown)
        elif any(_flickers(group) for group in ordered[:_MOST_LINES]):
            reasons.append(_FLICKERS)
    return CodeTime(
        lines=lines,
        samples=tally.looks,
        resolution_s=_CONTENDED_RESOLUTION_S if contended else _RESOLUTION_S,
        reason=sentences(reasons),
        cpu=cpu,
        cpu_children=cpu_children,
        warm_up_s=None,
    )


def sentences(reasons: Iterable[str]) -> str | None:
    """Reasons as sentences; None without one."""
    made = [f"{reason[0].upper()}{reason[1:]}." for reason in reasons]
    return " ".join(made) or None


def stream_busy(tally: Tally, bit: int) -> float | None:
    """Percent of the time in which one device's stream had work; None where it was not known throughout."""
    total = sum(one.seconds for one in list(tally.spent.values()))
    if not total or 100 * tally.known < _LEAST_KNOWN * total:
        return None
    busy = sum(seconds for bits, seconds in dict(tally.busy).items() if bits & bit)
    return 100 * busy / tally.known


def with_activity(time: CodeTime, activity: Mapping[int | None, float], reason: str) -> CodeTime:
    """``time`` with another witness's activity for each line, and why; None where that says nothing."""
    return replace(
        time,
        lines=tuple(
            replace(
                line,
                gpu_busy=activity.get(line.line) if line.until is None else None,
                frames=tuple(replace(frame, gpu_busy=None) for frame in line.frames),
            )
            for line in time.lines
        ),
        reason=" ".join(filter(None, [time.reason, reason])),
    )


def _together(tally: Tally, total: float) -> dict[int | None, int | None]:
    """For each line that can't be told from another, the one that stands for all of them."""
    turns = dict(tally.turns)
    owed = {
        both: seconds for both, seconds in dict(tally.doubts).items() if turns.get(both, 0) >= _FEWEST_TURNS
    }
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
    call = max(group.calls.items(), key=lambda item: item[1])[0] if group.calls else None
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
        most = max(calls.items(), key=lambda item: item[1])[0]
        frames.append(FrameTime(name, 100 * seconds / total, busy, most))
    frames.sort(key=lambda frame: -frame.share)
    return LineTime(
        line=line,
        source=text,
        share=100 * group.seconds / total,
        gpu_busy=None if flickers else _busy(group.known, group.busy, group.seconds),
        call=call,
        frame=frames[0].frame if frames else None,
        until=numbers[-1] if len(numbers) > 1 else None,
        frames=tuple(frames[:_MOST_FRAMES]),
    )


def disagree(stream: float, driver: float, name: str) -> str:
    """The sentence where the two witnesses differ."""
    return (
        f"{name}: its default stream had work {units.percent(stream)} of the time and the driver saw it "
        f"busy {units.percent(driver)}, so that other streams, libraries or processes worked on it"
    )
