"""Keeping a card small: a saved notebook has many, and 240 points of 16 GPUs alone are 160 kB."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from gpuwidget.measure.notes import gpu_name
from gpuwidget.model.report import (
    Advice,
    CodeTime,
    FrameTime,
    GpuReport,
    GpuTimeline,
    Holder,
    Level,
    LineMemory,
    Mark,
    Report,
    Timeline,
    Traffic,
)
from gpuwidget.views.card_summary import MOST_ADVICE, clean, shortened

LIMIT = 20_000
"""Bytes of a whole bundle as JSON."""
_LONGEST_SOURCE = 100
_LONGEST_PATH = 60
_LONGEST_FUNCTION = 40
_MOST_HOLDERS_NAMES = 4
_MOST_HOLDERS_NAME = 40
_LEAST_GPU = 500
"""Bytes below which no GPU's figures come out as JSON."""
_LEAST_POINT = 24
"""Bytes below which no point of a GPU's courses comes out as JSON."""
_SHORT_ADVICE = 150
_MOST_ADVICE = 3
SPARED = (
    *("memory_reserved", "bursts", "memory_utilization", "fp32_activity", "pcie", "nvlink"),
    *("power_limit_w", "throttled"),
)
"""Of each GPU: what a tight card's JSON does without. What advice rests on of it is in the advice."""
_SPARED_OF_TORCH = ("inactive_split", "returnable")
_NO_ROOM = "left out of this card"
Without = Literal["", "null", "absent"]


@dataclass(frozen=True, slots=True)
class Plan:
    """How much of a report a card has room for."""

    points: int
    """Points of each course in the JSON; 0 leaves the timeline out."""
    drawn: int
    """Points of each line in the picture."""
    hover: int
    """Columns of values to hover over."""
    marks: int
    label: int
    """Characters of a mark's label."""
    reason: int
    """Characters of the reason for a missing value."""
    holders: int
    """Holders of what the run has left behind."""
    code: int = 8
    """Lines of where the time went, those with the largest share first."""
    lines: int = 15
    """Lines of code whose memory is told."""
    note: int = 300
    """Characters of a note."""
    advice: int = _MOST_ADVICE
    evidence: bool = True
    """Whether the details say what advice rests on, or the JSON alone."""
    rows: int = 64
    """GPUs, those shown first."""
    each: bool = True
    """Whether GPUs have lines of their own in the details; else one line has the lowest and the highest."""
    terse: bool = False
    """Whether figures lose the digits that no card shows, and reasons are given once for all GPUs."""
    without: Without = ""
    """Of the JSON's :data:`SPARED`: whether they are null, or are left out altogether."""
    brief: bool = False
    """Whether the text form is without what else only the details tell."""


_ROOMY = (
    Plan(points=120, drawn=120, hover=40, marks=60, label=80, reason=300, holders=10),
    Plan(points=80, drawn=120, hover=32, marks=40, label=80, reason=300, holders=8, lines=10),
    Plan(points=60, drawn=120, hover=24, marks=30, label=60, reason=300, holders=8, lines=8),
    Plan(points=60, drawn=120, hover=16, marks=30, label=60, reason=300, holders=8, lines=8, each=False),
    Plan(points=40, drawn=120, hover=12, marks=24, label=48, reason=200, holders=6, lines=6, each=False),
    Plan(points=24, drawn=100, hover=8, marks=16, label=40, reason=160, holders=5, lines=5, each=False),
)
_TIGHT = replace(_ROOMY[-1], points=16, drawn=80, hover=0, code=6, note=200, terse=True)
_TIGHTER = replace(_TIGHT, points=0, drawn=60, marks=12, reason=120, holders=4, code=4, lines=4)
_BRIEF = replace(
    _TIGHTER, drawn=30, marks=6, label=32, holders=3, lines=3, note=120, without="null", brief=True
)
_BARE = replace(_BRIEF, drawn=16, marks=0, reason=40, holders=1, code=2, lines=2, advice=1, without="absent")
_BAREST = replace(_BARE, drawn=0, holders=0, code=1, lines=0, note=40, reason=24, evidence=False)
PLANS = (
    *_ROOMY,
    _TIGHT,
    replace(_TIGHT, points=12, drawn=60, marks=12, reason=120),
    _TIGHTER,
    replace(_TIGHTER, drawn=30, marks=6, without="null"),
    _BRIEF,
    replace(_BRIEF, drawn=16, marks=3, reason=80, holders=2, code=3),
    replace(_BRIEF, drawn=16, marks=0, reason=80, holders=2, code=2),
    replace(_BRIEF, drawn=16, marks=0, reason=80, holders=2, code=2, without="absent"),
    _BARE,
    replace(_BARE, holders=0, code=1, lines=0, note=80, reason=24),
    _BAREST,
    replace(_BAREST, note=24, rows=12),
    replace(_BAREST, note=24, rows=8, reason=16, code=0),
)
"""From roomy to bare; a card is made by the first that fits.

First go points and what is said of each GPU, last the notes, what advice rests on and the lines asked for.
"""


@dataclass(frozen=True, slots=True)
class Fitted:
    """A report cut to a plan, twice: what is stored, and what is drawn."""

    stored: Report
    """For the JSON: fewer points, and fewer GPUs where not all fit."""
    drawn: Report
    """For reading: every GPU, and as many points as the picture shows."""


def fitted(report: Report, plan: Plan) -> Fitted:
    """``report`` with what ``plan`` has room for, and a note that says what was left out.

    Sizes in bytes stay exact; other figures are rounded to what the sensors can tell.
    """
    gpus = tuple(_rounded(gpu, plan) for gpu in report.gpus)
    first = sorted(gpus, key=lambda gpu: not gpu.shown)[: plan.rows]
    kept = tuple(gpu for gpu in gpus if gpu in first)
    marks = _some_marks(report.timeline.marks, plan) if report.timeline is not None else ()
    cell = replace(
        report.cell,
        label=None if report.cell.label is None else clean(report.cell.label, 80),
        started=round(report.cell.started, 3),
        duration_s=_significant(report.cell.duration_s),
        gpu_tail_s=None if report.cell.gpu_tail_s is None else _significant(report.cell.gpu_tail_s),
    )
    notes = tuple(clean(note, plan.note) for note in report.notes)
    left_out = _left_out(report, plan, len(marks), len(kept))
    if left_out:
        notes += (f"To keep the notebook small, this card leaves out {', '.join(left_out)}.",)
    drawn = replace(
        report,
        gpus=gpus,
        cell=cell,
        notes=notes,
        holders=_some_holders(report.holders, plan),
        advice=tuple(_tidy(one, plan) for one in report.advice[: plan.advice]),
        timeline=_timeline(report.timeline, plan.drawn, marks),
        lines=tuple(_short_line(line) for line in report.lines[: plan.lines]),
        time=_code_time(report.time, plan),
        energy_idle_j=None if report.energy_idle_j is None else _short(report.energy_idle_j),
    )
    return Fitted(
        stored=replace(
            drawn,
            gpus=_once(kept) if plan.terse else kept,
            timeline=_timeline(report.timeline, plan.points, marks),
        ),
        drawn=drawn if plan.evidence else _without_evidence(drawn),
    )


def as_json(fitted: Fitted, plan: Plan) -> dict[str, Any]:
    """The JSON of what is stored."""
    values = fitted.stored.to_dict()
    gpus = values["gpus"] if plan.without else []
    for place, gpu in enumerate(gpus):
        _spare(gpu, SPARED, plan)
        if gpu["torch"] is not None:
            _spare(gpu["torch"], _SPARED_OF_TORCH, plan)
        for name in SPARED:
            gpu["missing"].pop(name, None)
        if plan.without == "null" and not place:
            # Once: there are seven for each GPU.
            gpu["missing"] |= dict.fromkeys(SPARED, _NO_ROOM)
        if plan.without == "absent" and not gpu["children"]:
            del gpu["children"], gpu["children_memory"]
    return values


def _spare(values: dict[str, Any], names: Sequence[str], plan: Plan) -> None:
    for name in names:
        if plan.without == "null":
            values[name] = None
        else:
            del values[name]


def may_fit(report: Report, plan: Plan) -> bool:
    """False where the stored courses alone are certain to be too large; spares the making of the rest."""
    points = min(plan.points, len(report.timeline.t)) if report.timeline is not None else 0
    return _LEAST_GPU * min(plan.rows, len(report.gpus)) + _LEAST_POINT * points * len(report.shown) < LIMIT


def resampled(timeline: Timeline, points: int) -> Timeline:
    """At most ``points`` of each course: of what falls together, the highest memory, else the mean."""
    count = len(timeline.t)
    if count <= points:
        bins = [(n, n + 1) for n in range(count)]
    else:
        bins = [(n * count // points, (n + 1) * count // points) for n in range(points)]
    return Timeline(
        t=tuple(round(timeline.t[until - 1], 3) for _, until in bins),
        marks=timeline.marks,
        gpus=tuple(
            GpuTimeline(
                uuid=gpu.uuid,
                utilization=_means(gpu.utilization, bins),
                device_memory=_highest(gpu.device_memory, bins),
                power_w=_means(gpu.power_w, bins),
                sm_activity=_means(gpu.sm_activity, bins),
            )
            for gpu in timeline.gpus
        ),
    )


def _timeline(timeline: Timeline | None, points: int, marks: tuple[Mark, ...]) -> Timeline | None:
    if timeline is None or points == 0:
        return None
    return resampled(replace(timeline, marks=marks), points)


def _code_time(time: CodeTime | None, plan: Plan) -> CodeTime | None:
    if time is None:
        return None

    def short(value: float | None) -> float | None:
        return None if value is None or not math.isfinite(value) else _short(value)

    def named(text: str | None) -> str | None:
        return None if text is None else clean(text, 60)

    lines = tuple(
        replace(
            line,
            source=clean(line.source, 80),
            share=_short(line.share),
            gpu_busy=short(line.gpu_busy),
            call=named(line.call),
            frame=named(line.frame),
            call_share=short(line.call_share),
            frames=tuple(
                FrameTime(
                    clean(frame.frame, 60),
                    _short(frame.share),
                    short(frame.gpu_busy),
                    named(frame.call),
                    short(frame.call_share),
                )
                for frame in line.frames[: plan.code // 2]
            ),
        )
        for line in time.lines[: plan.code]
    )
    return replace(
        time,
        lines=lines,
        resolution_s=_significant(round(time.resolution_s, 3)),
        reason=None if time.reason is None else clean(time.reason, plan.reason),
        cpu=short(time.cpu),
        cpu_children=short(time.cpu_children),
        warm_up_s=None if time.warm_up_s is None else round(time.warm_up_s, 2),
    )


def _left_out(report: Report, plan: Plan, marks: int, gpus: int) -> list[str]:
    found = []
    if report.timeline is not None and marks < len(report.timeline.marks):
        missing, set_ = len(report.timeline.marks) - marks, len(report.timeline.marks)
        found.append(f"{missing} of {set_} marks and printed lines")
    if gpus < len(report.gpus):
        found.append(f"{len(report.gpus) - gpus} of {len(report.gpus)} GPUs")
    if len(report.lines) > plan.lines:
        found.append(f"{len(report.lines) - plan.lines} of {len(report.lines)} lines of code")
    if plan.holders < len(report.holders):
        found.append(f"{len(report.holders) - plan.holders} of {len(report.holders)} holders")
    if plan.advice < len(report.advice[:_MOST_ADVICE]):
        found.append(f"{len(report.advice[:_MOST_ADVICE]) - plan.advice} pieces of advice")
    json = ["the course"] if report.timeline is not None and plan.points == 0 else []
    json += ["links", "clocks"] if plan.without and report.gpus else []
    if json:
        found.append(f"from its JSON {' and '.join(json)}")
    return found


def _some_marks(marks: Sequence[Mark], plan: Plan) -> tuple[Mark, ...]:
    """The user's own marks before printed lines, evenly chosen, in the order of time."""
    own = [mark for mark in marks if mark.kind == "mark"]
    printed = [mark for mark in marks if mark.kind != "mark"]
    kept = _evenly(own, plan.marks)
    kept += _evenly(printed, plan.marks - len(kept))
    return tuple(
        replace(mark, t=round(mark.t, 3), label=clean(mark.label, plan.label))
        for mark in sorted(kept, key=lambda mark: mark.t)
    )


def _some_holders(holders: Sequence[Holder], plan: Plan) -> tuple[Holder, ...]:
    return tuple(
        replace(
            holder,
            names=tuple(clean(name, _MOST_HOLDERS_NAME) for name in holder.names[:_MOST_HOLDERS_NAMES]),
            type=None if holder.type is None else clean(holder.type, _MOST_HOLDERS_NAME),
        )
        for holder in holders[: plan.holders]
    )


def _evenly(marks: Sequence[Mark], most: int) -> list[Mark]:
    if len(marks) <= most:
        return list(marks)
    return [marks[n * len(marks) // most] for n in range(most)]


def _short_line(line: LineMemory) -> LineMemory:
    return replace(
        line,
        file=None if line.file is None else shortened(line.file, _LONGEST_PATH),
        function=None if line.function is None else clean(line.function, _LONGEST_FUNCTION),
        source=clean(line.source, _LONGEST_SOURCE),
    )


def _means(values: Sequence[float | None], bins: Sequence[tuple[int, int]]) -> tuple[float | None, ...]:
    found: list[float | None] = []
    for since, until in bins:
        known = [value for value in values[since:until] if value is not None and math.isfinite(value)]
        found.append(_short(sum(known) / len(known)) if known else None)
    return tuple(found)


def _highest(values: Sequence[int | None], bins: Sequence[tuple[int, int]]) -> tuple[int | None, ...]:
    return tuple(
        max((value for value in values[since:until] if value is not None), default=None)
        for since, until in bins
    )


def _tidy(advice: Advice, plan: Plan) -> Advice:
    """Advice holds names and source lines of the user's."""
    most = MOST_ADVICE if plan.advice > 1 else _SHORT_ADVICE
    text, fix = clean(advice.text, most), clean(advice.fix, most)
    evidence = {
        name: clean(value, 80) if isinstance(value, str) else value for name, value in advice.evidence.items()
    }
    return replace(advice, text=text, fix=fix, evidence=evidence)


def _without_evidence(report: Report) -> Report:
    return replace(report, advice=tuple(replace(one, evidence={}) for one in report.advice))


def _once(gpus: tuple[GpuReport, ...]) -> tuple[GpuReport, ...]:
    """A reason that an earlier GPU has given already, by that GPU's name."""
    first: dict[tuple[str, str], str] = {}
    return tuple(
        replace(
            gpu,
            missing={
                name: as_before if (as_before := first.setdefault((name, text), named)) != named else text
                for name, text in gpu.missing.items()
            },
        )
        for gpu, named in ((gpu, f"as for {gpu_name(gpu)}") for gpu in gpus)
    )


def _rounded(gpu: GpuReport, plan: Plan) -> GpuReport:
    short = _terse if plan.terse else _short

    def level(value: Level | None) -> Level | None:
        if value is None or not (math.isfinite(value.mean) and math.isfinite(value.max)):
            return None
        return Level(short(value.mean), short(value.max))

    def traffic(value: Traffic | None) -> Traffic | None:
        return None if value is None else Traffic(level(value.tx), level(value.rx))

    energy = gpu.energy_j

    return replace(
        gpu,
        name=clean(gpu.name, 60),
        utilization=level(gpu.utilization),
        sm_activity=level(gpu.sm_activity),
        sm_occupancy=level(gpu.sm_occupancy),
        tensor_activity=level(gpu.tensor_activity),
        fp32_activity=level(gpu.fp32_activity),
        dram_activity=level(gpu.dram_activity),
        memory_utilization=level(gpu.memory_utilization),
        pcie=traffic(gpu.pcie),
        nvlink=traffic(gpu.nvlink),
        power_w=level(gpu.power_w),
        throttled=None if gpu.throttled is None else {w: _short(s) for w, s in gpu.throttled.items()},
        energy_j=_short(energy) if energy is not None and math.isfinite(energy) else None,
        missing={name: clean(text, plan.reason) for name, text in gpu.missing.items()},
        children=tuple(clean(command, min(60, plan.reason)) for command in gpu.children),
    )


def _short(value: float) -> float:
    """Whole from 100 on, with one decimal from 1 on, with two below: no sensor tells more."""
    magnitude = abs(value)
    rounded = round(value, 0 if magnitude >= 100 else 1 if magnitude >= 1 else 2)
    # 96 is two bytes shorter than 96.0, and there are many.
    return int(rounded) if rounded == int(rounded) else rounded


def _terse(value: float) -> float:
    """As the card shows it: whole from 10 on."""
    return round(value) if abs(value) >= 9.95 else _short(value)


def _significant(seconds: float) -> float:
    return float(f"{seconds:.6g}")
