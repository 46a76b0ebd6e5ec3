"""Keeping a card small: a saved notebook has many, and 240 points of 16 GPUs alone are 160 kB."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from gpuwidget.kernel.card_facts import MOST_ADVICE, clean, shortened
from gpuwidget.measure.notes import gpu_name
from gpuwidget.measure.report import (
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
_FEW_ROWS = 16
"""Rows of the plans that are so bare that they have room for one piece of advice, cut short."""
SPARED = (
    *("memory_reserved", "bursts", "memory_utilization", "fp32_activity", "pcie", "nvlink"),
    *("power_limit_w", "throttled"),
)
"""Of each GPU: what a terse card leaves out of its JSON. What advice rests on of it is in the advice."""


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
    rows: int
    """GPUs, those shown first."""
    reason: int
    """Characters of the reason for a missing value, and of a note."""
    holders: int
    """Holders of what the run has left behind."""
    code: int = 8
    """Lines of where the time went, those with the largest share first."""
    terse: bool = False
    """Whether figures lose the digits that no card shows, reasons are given once for all GPUs, and what is
    :data:`SPARED` is left out."""

    @property
    def lines(self) -> int:
        """Lines of code whose memory is told."""
        return self.marks // 4


PLANS = (
    Plan(points=120, drawn=120, hover=40, marks=60, label=80, rows=64, reason=300, holders=10),
    Plan(points=80, drawn=120, hover=32, marks=40, label=80, rows=64, reason=300, holders=8),
    Plan(points=60, drawn=120, hover=24, marks=30, label=60, rows=64, reason=300, holders=8),
    Plan(points=40, drawn=120, hover=16, marks=24, label=48, rows=64, reason=200, holders=6),
    Plan(points=24, drawn=100, hover=12, marks=16, label=40, rows=64, reason=160, holders=5),
    Plan(
        points=16, drawn=80, hover=8, marks=16, label=40, rows=64, reason=160, holders=5, code=6, terse=True
    ),
    Plan(
        points=12, drawn=60, hover=0, marks=12, label=40, rows=64, reason=120, holders=4, code=4, terse=True
    ),
    Plan(points=0, drawn=60, hover=0, marks=12, label=40, rows=64, reason=120, holders=3, code=4, terse=True),
    Plan(points=0, drawn=30, hover=0, marks=6, label=32, rows=64, reason=80, holders=2, code=4, terse=True),
    Plan(points=0, drawn=16, hover=0, marks=0, label=0, rows=64, reason=80, holders=1, code=3, terse=True),
    Plan(points=0, drawn=16, hover=0, marks=0, label=0, rows=16, reason=40, holders=0, code=2, terse=True),
    Plan(points=0, drawn=0, hover=0, marks=0, label=0, rows=16, reason=24, holders=0, code=1, terse=True),
    Plan(points=0, drawn=0, hover=0, marks=0, label=0, rows=12, reason=24, holders=0, code=1, terse=True),
    Plan(points=0, drawn=0, hover=0, marks=0, label=0, rows=8, reason=16, holders=0, code=0, terse=True),
)
"""From roomy to bare; a card is made by the first that fits."""


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
    notes = tuple(clean(note, plan.reason) for note in report.notes)
    left_out = _left_out(report, plan, len(marks), len(kept))
    if left_out:
        notes += (f"To keep the notebook small, this card leaves out {', '.join(left_out)}.",)
    drawn = replace(
        report,
        gpus=gpus,
        cell=cell,
        notes=notes,
        holders=_some_holders(report.holders, plan),
        advice=tuple(_tidy(one, plan) for one in report.advice[: _advice(plan)]),
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
        drawn=_without_evidence(drawn) if plan.terse else drawn,
    )


def as_json(fitted: Fitted, plan: Plan) -> dict[str, Any]:
    """The JSON of what is stored."""
    values = fitted.stored.to_dict()
    for gpu in values["gpus"] if plan.terse else ():
        for name in SPARED:
            del gpu[name]
            gpu["missing"].pop(name, None)
        if not gpu["children"]:
            del gpu["children"]
        if gpu["torch"] is not None:
            del gpu["torch"]["inactive_split"]
    return values


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
    if report.timeline is not None and plan.points == 0:
        found.append("the course from its JSON")
    if plan.terse and report.gpus:
        found.append("links and clocks from its JSON")
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


def _advice(plan: Plan) -> int:
    """How much advice there is room for."""
    return 3 if plan.rows > _FEW_ROWS else 1


def _tidy(advice: Advice, plan: Plan) -> Advice:
    """Advice holds names and source lines of the user's."""
    most = MOST_ADVICE if _advice(plan) > 1 else _SHORT_ADVICE
    text, fix = clean(advice.text, most), clean(advice.fix, most)
    evidence = {
        name: clean(value, 80) if isinstance(value, str) else value for name, value in advice.evidence.items()
    }
    return replace(advice, text=text, fix=fix, evidence=evidence)


def _without_evidence(report: Report) -> Report:
    """The texts say the figures that matter; the rest is in the JSON."""
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
