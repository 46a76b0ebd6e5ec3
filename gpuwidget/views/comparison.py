"""Two reports side by side, as plain words and figures: the same for HTML and for a terminal."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gpuwidget.measure.steady_state import SteadyMetric, steady_mean, warm_up_s
from gpuwidget.model import units
from gpuwidget.model.report import GpuReport, Level, Report, Span
from gpuwidget.views import card_summary as facts
from gpuwidget.views.card_summary import MemoryKind

_MOST_NAME = 40
_LEAST_RATIO = 0.0095
"""Less would read as next to nothing, or as nothing."""
_MEMORY: dict[MemoryKind, str] = {"torch": "torch", "process": "process", "device": "whole GPU"}
"""The nearest to the user's tensors first."""
_ENVIRONMENT = (
    ("driver", "driver", units.UNKNOWN),
    ("driver's CUDA", "cuda_driver", units.UNKNOWN),
    ("torch", "torch", "not loaded"),
    ("torch's CUDA", "cuda", "not loaded"),
    ("cuDNN", "cudnn", "not loaded"),
    ("default device", "default_device", "not loaded"),
)
_RATES: tuple[tuple[str, SteadyMetric, Callable[[float | None], str]], ...] = (
    ("utilization", "utilization", units.percent),
    ("SM activity", "sm_activity", units.percent),
    ("power", "power_w", units.power),
)
"""Known as a course too, so that the steady part of a run can be told."""
_Reasons = dict[tuple[str, str], list[str]]
"""Which figures of a side are unknown, by that side's name and the reason."""
_MEANS = (("tensor activity", "tensor_activity"), ("DRAM activity", "dram_activity"))


@dataclass(frozen=True, slots=True)
class Row:
    """One quantity of both."""

    name: str
    values: tuple[str, str]
    ratio: str
    """The second over the first, as ``0.52x``; empty where that says nothing."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """What two runs have in common and what not."""

    names: tuple[str, str]
    rows: tuple[Row, ...]
    differences: tuple[Row, ...]
    """What differed around them: versions, devices, GPUs."""
    notes: tuple[str, ...]
    """What the figures don't say, and why some are not there."""


@dataclass(frozen=True, slots=True)
class _Side:
    name: str
    report: Report
    gpus: tuple[GpuReport, ...]
    since: float | None
    """Where its steady part begins, seconds; None where rates are of whole runs."""


def comparison(first: Report, second: Report, names: tuple[str, str]) -> Comparison:
    """``second`` against ``first``, which ``names`` call what they are called."""
    pair = (first, second)
    known = [warm_up_s(report) for report in pair]
    # With a beginning told apart in one, the other's whole is its steady part, provided somebody looked.
    steady = any(seconds is not None for seconds in known) and None not in [report.time for report in pair]
    sides = tuple(
        _Side(name, report, report.shown, (seconds or 0.0) if steady else None)
        for name, report, seconds in zip(names, pair, known, strict=True)
    )
    a, b = sides
    reasons: _Reasons = {}
    rows = [*_times(a, b), *_memory(a, b), *_rates(a, b, reasons), *_energy(a, b, reasons)]
    unknown = (f"{name}, {', '.join(what)}: {why}" for (name, why), what in reasons.items())
    return Comparison(
        names=names,
        rows=tuple(rows),
        differences=tuple(_differences(a, b)),
        notes=(*_notes(a, b), *unknown),
    )


def called(report: Report, otherwise: str) -> str:
    """What a report is called: its cell, its label, or ``otherwise``."""
    cell = report.cell
    parts = [] if cell.execution_count is None else [f"In [{cell.execution_count}]"]
    parts += [] if cell.label is None else [facts.clean(cell.label, _MOST_NAME)]
    return " ".join(parts) or facts.clean(otherwise, _MOST_NAME)


def ratio(first: float | None, second: float | None) -> str:
    """The second over the first; empty where one is unknown or nothing."""
    if first is None or second is None or not (math.isfinite(first) and math.isfinite(second)):
        return ""
    if first <= 0 or second < 0:
        return ""
    value = second / first
    if 0 < value < _LEAST_RATIO:
        return "<0.01x"
    return f"{value:.0f}x" if value >= 99.5 else f"{value:.1f}x" if value >= 9.95 else f"{value:.2f}x"


_NOT_NOTHING = frozenset("123456789")


# -- rows ------------------------------------------------------------------------------------------------


def _row(
    name: str, first: float | None, second: float | None, words: Callable[[float | None], str]
) -> Row | None:
    if first is None and second is None:
        return None
    shown = (words(first), words(second))
    # Of what is nothing but noise in its last digit there is no ratio.
    told = all(set(one) & _NOT_NOTHING for one in shown)
    return Row(name, shown, ratio(first, second) if told else "")


def _times(a: _Side, b: _Side) -> list[Row]:
    first, second = a.report.cell, b.report.cell
    found = [_row("time", first.duration_s, second.duration_s, units.duration)]
    if a.since is not None and b.since is not None:
        parts = [warm_up_s(side.report) for side in (a, b)]
        found.append(_row("of it warm-up", parts[0], parts[1], units.duration))
        rest = [max(0.0, side.report.cell.duration_s - (side.since or 0.0)) for side in (a, b)]
        found.append(_row("of it the steady part", rest[0], rest[1], units.duration))
    done = [
        None if cell.gpu_tail_s is None else cell.duration_s + cell.gpu_tail_s for cell in (first, second)
    ]
    if any((cell.gpu_tail_s or 0.0) >= facts.AT_ONCE_S for cell in (first, second)):
        found.append(_row("time until the GPU was done", done[0], done[1], units.duration))
    return [row for row in found if row is not None]


def _memory(a: _Side, b: _Side) -> list[Row]:
    host = _row("host memory, peak", a.report.host_memory.peak, b.report.host_memory.peak, units.memory)
    rows = [] if host is None else [host]
    if not a.gpus or not b.gpus:
        return rows
    kind = _kind(a, b)
    one, other = facts.memory_as(a.report, kind), facts.memory_as(b.report, kind)
    above = [_above_start(memory.spans) for memory in (one, other)]
    whose = _MEMORY[kind]
    several = max(len(a.gpus), len(b.gpus)) > 1
    of_one, of_all = (", highest of one GPU", ", sum of all GPUs") if several else ("", "")
    change = Row(
        f"{whose} memory, change{of_all}",
        (units.memory_delta(one.start, one.end), units.memory_delta(other.start, other.end)),
        "",
    )
    peak = _row(f"{whose} memory, peak{of_one}", one.peak, other.peak, units.memory)
    own = _row(f"peak above the start{of_one}", above[0], above[1], units.memory)
    return [row for row in (peak, own, change) if row is not None] + rows


def _kind(a: _Side, b: _Side) -> MemoryKind:
    """The nearest to the tensors that is known of both: torch's beside a whole GPU's is no comparison.

    Of what child processes hold, torch here knows nothing, whichever side had them.
    """
    known = [set(facts.memory_kinds(side.report)) for side in (a, b)]
    children = any(gpu.children for side in (a, b) for gpu in side.gpus)
    return next(
        kind for kind in _MEMORY if kind in known[0] & known[1] and not (children and kind == "torch")
    )


def _above_start(spans: Sequence[Span]) -> int | None:
    """The most that any one GPU's memory rose, unknown where it is of one of them."""
    found = [
        None if None in (span.peak, span.start) else (span.peak or 0) - (span.start or 0) for span in spans
    ]
    known = [rise for rise in found if rise is not None]
    return max(known) if known and len(known) == len(found) else None


def _rates(a: _Side, b: _Side, reasons: _Reasons) -> list[Row]:
    found = []
    steady = a.since is not None
    part = ", steady part" if steady else ""
    for name, course, words in _RATES:
        over = sum if course == "power_w" else _mean
        values = [_over(side, course, over) for side in (a, b)]
        row = _row(f"{name}{part}", values[0], values[1], words)
        found += [row] if row is not None else []
        _explain(a, b, values, course, name, reasons)
    for name, field in _MEANS:
        values = [_mean_level([getattr(gpu, field) for gpu in side.gpus]) for side in (a, b)]
        row = _row(f"{name}{', whole run' if steady else ''}", values[0], values[1], units.percent)
        found += [row] if row is not None else []
        _explain(a, b, values, field, name, reasons)
    return found


def _over(side: _Side, field: SteadyMetric, over: Callable[[list[float]], float]) -> float | None:
    """A rate over the side's GPUs, unknown where it is of one of them."""
    found: list[float | None] = []
    for gpu in side.gpus:
        level: Level | None = getattr(gpu, field)
        if side.since is not None and level is not None:
            found.append(steady_mean(side.report, gpu.uuid, field, side.since))
        else:
            found.append(None if level is None else level.mean)
    known = [value for value in found if value is not None]
    return over(known) if known and len(known) == len(found) else None


def _mean_level(levels: Sequence[Level | None]) -> float | None:
    known = [level.mean for level in levels if level is not None]
    return _mean(known) if known and len(known) == len(levels) else None


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _energy(a: _Side, b: _Side, reasons: _Reasons) -> list[Row]:
    sums = []
    for side in (a, b):
        known = [gpu.energy_j for gpu in side.gpus if gpu.energy_j is not None]
        sums.append(sum(known) if known and len(known) == len(side.gpus) else None)
    row = _row(f"energy{', whole run' if a.since is not None else ''}", sums[0], sums[1], units.energy)
    _explain(a, b, sums, "energy_j", "energy", reasons)
    return [] if row is None else [row]


def _explain(
    a: _Side, b: _Side, values: Sequence[float | None], field: str, name: str, reasons: _Reasons
) -> None:
    """Why a figure is there on neither side, or on one alone."""
    for side, value in zip((a, b), values, strict=True):
        if value is None and side.gpus:
            told = [gpu.missing[field] for gpu in side.gpus if field in gpu.missing]
            why = told[0] if told else "its course tells too little of the steady part"
            reasons.setdefault((side.name, facts.clean(why, facts.MOST_NOTE)), []).append(name)


# -- what differed ---------------------------------------------------------------------------------------


def _differences(a: _Side, b: _Side) -> list[Row]:
    first, second = a.report, b.report
    found = [
        (name, *(getattr(report.environment, field) or otherwise for report in (first, second)))
        for name, field, otherwise in _ENVIRONMENT
    ]
    found.append(("source", _source(first), _source(second)))
    found.append(("GPU model", _models(a.gpus), _models(b.gpus)))
    found.append(("GPUs", _which(a.gpus), _which(b.gpus)))
    return [
        Row(name, (facts.clean(one, 80), facts.clean(other, 80)), "")
        for name, one, other in found
        if one != other
    ]


def _source(report: Report) -> str:
    return report.source.kind if report.source.recording is None else report.source.recording


def _models(gpus: Sequence[GpuReport]) -> str:
    return ", ".join(dict.fromkeys(facts.model(gpu) for gpu in gpus)) or "none"


def _which(gpus: Sequence[GpuReport]) -> str:
    # With a piece of the UUID: the same number may be another GPU, on another machine.
    return ", ".join(f"{facts.gpu_number(gpu)} ({gpu.uuid[:12]})" for gpu in gpus) or "none"


def _notes(a: _Side, b: _Side) -> list[str]:
    found = []
    for side in (a, b):
        status = side.report.cell.status
        if status != "ok":
            ended = "stopped by an error" if status == "error" else "interrupted"
            found.append(f"{side.name} was {ended}: its figures are of the part that ran.")
        if not side.gpus:
            found.append(
                f"{side.name} used no GPU that is known of: of it there is only time and host memory."
            )
        if side.report.source.recording is not None:
            found.append(f"{side.name}: the figures are a recording's, not the code's.")
        elif side.gpus and not side.report.attributed:
            found.append(f"{side.name}: which GPUs it used can't be told, so all that were watched count.")
    if _models(a.gpus) != _models(b.gpus) and a.gpus and b.gpus:
        found.append("The GPUs are of different models: the ratios compare them as much as the code.")
    if len(a.gpus) != len(b.gpus) and a.gpus and b.gpus:
        found.append(
            "The numbers of GPUs differ: energy and power are sums over them, activity is their mean."
        )
    return found + _of_warm_up(a, b)


def _of_warm_up(a: _Side, b: _Side) -> list[str]:
    if a.since is not None:
        whole = [side.name for side in (a, b) if warm_up_s(side.report) is None]
        note = "Rates are of the steady part, after the warm-up"
        return [f"{note}; {whole[0]} shows no warm-up and is taken whole." if whole else f"{note}."]
    for side, other in ((a, b), (b, a)):
        seconds = warm_up_s(side.report)
        if seconds is not None:
            return [
                f"{side.name} began with {units.duration(seconds)} of warm-up; of {other.name} nobody knows: "
                "all figures are of the whole runs."
            ]
    return []
