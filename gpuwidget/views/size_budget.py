"""Reduce a report so that its card fits in 20 kB. The 240 points of 16 GPUs alone would take 160 kB.

A card uses the most detailed of the detail levels that fits.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar, overload

from gpuwidget.measure.notes import gpu_name
from gpuwidget.measure.timeline import longest_gaps
from gpuwidget.model import units
from gpuwidget.model.mime_types import MIME_TYPE
from gpuwidget.model.report import (
    Advice,
    CodeTime,
    FrameTime,
    GpuReport,
    GpuTimeline,
    Holder,
    Level,
    LineMemory,
    LineTime,
    Mark,
    Report,
    RunTotals,
    Timeline,
    Traffic,
    WorkerReport,
)
from gpuwidget.model.terminal_text import clean_line, shorten_path
from gpuwidget.model.to_json import to_json as values_of
from gpuwidget.model.translation import joined, translatable, with_english
from gpuwidget.views import card_workers
from gpuwidget.views.card_summary import ADVICE_LENGTH
from gpuwidget.views.detail_levels import (
    BRIEF,
    COMPACT,
    FEW_POINTS,
    FEW_ROWS,
    FEWER_LINES,
    FULL,
    LEAST_CHART,
    MINIMAL,
    REDUCED,
    DetailLevel,
)

LIMIT = 20_000
"""Maximum size of a whole bundle as JSON, in bytes."""
_POINT_SIZE = 24
"""Lower bound of the size of one point of one GPU's series as JSON, in bytes."""
_FEW_POINTS = 80
"""Number of points, over all GPUs, up to which the timeline hardly affects the size of a card."""
_ROW_SIZE = 60
"""Lower bound of the size of one GPU's row in the HTML, in bytes."""
_MANY_GPUS = 9
"""Number of GPUs from which the chart consists of strips."""
_BASE_SIZE = 1500
"""Lower bound of the size of a card's text and HTML without rows and panels, in bytes."""
_PANEL_SIZE = 200
_STRIP_SIZE = 12
"""Lower bound of the size of one GPU's panel of the chart in the HTML, and of a strip, in bytes."""
_SOURCE_LENGTH = 100
_PATH_LENGTH = 60
_FUNCTION_LENGTH = 40
_HOLDER_NAMES = 4
_HOLDER_NAME_LENGTH = 40
_SHORT_ADVICE_LENGTH = 150
OPTIONAL_FIELDS = (
    *("memory_reserved", "bursts", "memory_utilization", "fp32_activity", "pcie", "nvlink"),
    *("power_limit_w", "throttled"),
)
"""The GPU fields that the JSON of a small card omits. Advice still contains the figures on which it is based,
even if they come from these fields."""
_OPTIONAL_TORCH_FIELDS = ("inactive_split", "returnable")
_RARE_FIELDS = ("energy_at_least_j", "energy_error_j", "unified_memory")
"""The GPU fields that the JSON of a small card contains only with a value other than None and False."""
_FIGURES = (
    *("utilization", "memory_utilization", "sm_activity", "sm_occupancy", "tensor_activity"),
    *("fp32_activity", "dram_activity", "pcie", "nvlink", "power_w"),
    *("energy_j", "energy_at_least_j", "energy_error_j"),
)
"""The GPU fields that the card omits if a value is NaN or infinity."""
_OMITTED = translatable("left out of this card")


@dataclass(frozen=True, slots=True)
class ReducedReport:
    """A report reduced to a detail level, in two versions."""

    level: DetailLevel
    stored: Report
    """The version for the JSON, with fewer points and only the GPUs that fit. Its figures have only as many
    digits as are shown."""
    drawn: Report
    """The version for text and HTML, with every GPU, all points, all workers and unrounded figures. The
    HTML's chart reduces the points itself."""


Bundle = dict[str, Any]
Bins = Sequence[tuple[int, int]]
_LineOrFrame = TypeVar("_LineOrFrame", LineTime, FrameTime)


def fit(report: Report, render: Callable[[ReducedReport], dict[str, str]]) -> Bundle:
    """Return the most detailed bundle of at most 20 kB. It contains the result of ``render`` and the JSON."""
    for reduced in _candidates(report):
        bundle, size = _bundle(reduced, render)
        if size <= LIMIT:
            return bundle
    gpus = len(report.gpus)
    while size > LIMIT and gpus > 1:
        gpu_size = _json_size(bundle[MIME_TYPE]["gpus"]) // gpus + _ROW_SIZE
        gpus = max(1, gpus - math.ceil((size - LIMIT) / gpu_size))
        bundle, size = _bundle(reduce(report, replace(MINIMAL, gpus=gpus)), render)
    return bundle


def _bundle(reduced: ReducedReport, render: Callable[[ReducedReport], dict[str, str]]) -> tuple[Bundle, int]:
    """Return the bundle and its size in bytes. If the HTML can't fit beside the JSON, nothing is rendered,
    and the size is a lower bound."""
    data = {MIME_TYPE: to_json(reduced)}
    size = _json_size(data)
    rest = _smallest_rest(reduced)
    if size + rest > LIMIT:
        return data, size + rest
    rendered = render(reduced)
    # Joining two JSON objects adds ", " and removes "{}", so the size is the sum of both sizes.
    return {**rendered, **data}, _json_size(rendered) + size


def _smallest_rest(reduced: ReducedReport) -> int:
    """Return a lower bound of the size of the text and the HTML of a card with a chart."""
    if reduced.drawn.timeline is None or not reduced.level.drawn_points:
        return 0
    gpus = len(reduced.drawn.shown)
    panels = gpus * (_PANEL_SIZE if gpus < _MANY_GPUS else _STRIP_SIZE)
    return _BASE_SIZE + min(gpus, reduced.level.gpu_rows) * _ROW_SIZE + panels


def _candidates(report: Report) -> Iterator[ReducedReport]:
    """Yield the report at each detail level that may fit. Levels that can't fit are skipped, because the user
    waits."""
    timeline = report.timeline
    count = len(timeline.t) * len(timeline.gpus) if timeline is not None else 0
    levels = [FULL, FEWER_LINES, REDUCED, COMPACT]
    if count <= _FEW_POINTS:
        # The card of a short run usually fits, so yield this level without the estimate below, which takes
        # longer.
        yield reduce(report, levels.pop(0))
    compact = reduce(report, COMPACT)
    size = _json_size(to_json(compact)) + _smallest_rest(compact)
    for level in levels:
        if size + _POINT_SIZE * min(count, level.points * len(report.gpus)) <= LIMIT:
            yield compact if level is COMPACT else reduce(report, level)
    if size <= LIMIT:
        yield reduce(report, BRIEF)
    yield reduce(report, LEAST_CHART)
    yield reduce(report, FEW_POINTS)
    yield reduce(report, FEW_ROWS)
    yield reduce(report, MINIMAL)


def reduce(report: Report, level: DetailLevel) -> ReducedReport:
    """Return ``report`` reduced to ``level``, with a note that lists what is omitted."""
    gpus = tuple(_reduce_gpu(gpu, level) for gpu in report.gpus)
    first = sorted(range(len(gpus)), key=lambda place: not gpus[place].shown)[: level.gpus]
    kept = tuple(gpus[place] for place in sorted(first))
    timeline = report.timeline
    if timeline is not None:
        timeline = replace(timeline, marks=_select_marks(timeline.marks, level))
    cell = replace(
        report.cell,
        label=None if report.cell.label is None else clean_line(report.cell.label, 80),
    )
    notes = tuple(_short_text(note, level.note_length) for note in report.notes)
    omitted = _omitted(report, level, len(timeline.marks) if timeline is not None else 0, len(kept))
    if omitted:
        notes += (
            translatable("To keep the notebook small, this card omits {omitted}.", omitted=joined(omitted)),
        )
    workers = report.workers if len(report.workers) <= level.workers else card_workers.by_interest(report)
    drawn = replace(
        report,
        gpus=gpus,
        cell=cell,
        notes=notes,
        holders=tuple(map(_reduce_holder, report.holders[: level.holders])),
        advice=tuple(_reduce_advice(advice, level) for advice in report.advice[: level.advice]),
        timeline=timeline,
        lines=tuple(map(_reduce_line, report.lines[: level.memory_lines])),
        time=_reduce_time(report.time, level),
        workers=tuple(_reduce_worker(worker, level) for worker in workers),
    )
    return ReducedReport(
        level=level,
        stored=_rounded(
            replace(
                drawn,
                gpus=_reasons_once(kept) if level.terse else kept,
                timeline=None if timeline is None or not level.points else resample(timeline, level.points),
                workers=drawn.workers[: level.workers],
            ),
            level,
            drawn.totals,
        ),
        drawn=drawn if level.evidence else _without_evidence(drawn),
    )


def to_json(reduced: ReducedReport) -> dict[str, Any]:
    """Return the JSON of the report's stored version."""
    # The totals include the GPUs that the stored version omits.
    values = {**reduced.stored.to_dict(), "totals": values_of(_rounded_totals(reduced.drawn.totals))}
    optional = reduced.level.optional_fields
    if optional == "kept":
        return values
    if optional == "absent":
        del values["source"]["reason_id"]
        if values["time"] is not None:
            del values["time"]["reason_ids"]
    for worker in values["workers"]:
        del worker["missing"], worker["missing_ids"]
        if worker["energy_error_j"] is None:
            del worker["energy_error_j"]
        if optional == "absent":
            del worker["torch_reserved"]
            if worker["host"] is None:
                del worker["host"]
    if not values["workers"]:
        del values["workers"]
    has_torch = any(gpu["torch"] is not None for gpu in values["gpus"])
    omitted = (*OPTIONAL_FIELDS, *_OPTIONAL_TORCH_FIELDS) if has_torch else OPTIONAL_FIELDS
    for place, gpu in enumerate(values["gpus"]):
        for name in _RARE_FIELDS:
            if not gpu[name]:
                del gpu[name]
        _omit(gpu, OPTIONAL_FIELDS, optional)
        if gpu["torch"] is not None:
            _omit(gpu["torch"], _OPTIONAL_TORCH_FIELDS, optional)
        for name in omitted:
            gpu["missing"].pop(name, None)
        if optional == "null":
            gpu["missing_ids"] = {}
            if not place:
                # Only the first GPU contains the reason why the optional fields are missing, which applies to
                # all GPUs.
                gpu["missing"] |= dict.fromkeys(omitted, _OMITTED)
            continue
        del gpu["missing_ids"]
        if gpu["worked"] is None:
            del gpu["worked"]
        for name in ("mig_parent", "mig_index", "lost_since"):
            if gpu[name] is None:
                del gpu[name]
        if not gpu["missing"]:
            del gpu["missing"]
        if not gpu["children"]:
            del gpu["children"], gpu["children_memory"]
    return values


def _omit(values: dict[str, Any], names: Sequence[str], replacement: str) -> None:
    for name in names:
        if replacement == "null":
            values[name] = None
        else:
            del values[name]


def _omitted(report: Report, level: DetailLevel, marks: int, gpus: int) -> list[str]:
    found: list[str] = []
    if report.timeline is not None and marks < len(report.timeline.marks):
        total = len(report.timeline.marks)
        steps = any(mark.kind == "step" for mark in report.timeline.marks)
        names = (
            translatable("marks, printed lines and steps")
            if steps
            else translatable("marks and printed lines")
        )
        found.append(
            translatable("{number} of {total} {names}", number=total - marks, total=total, names=names)
        )
    if gpus < len(report.gpus):
        found.append(
            translatable("{number} of {total} GPUs", number=len(report.gpus) - gpus, total=len(report.gpus))
        )
    if len(report.lines) > level.memory_lines:
        found.append(
            translatable(
                "{number} of {total} lines of code",
                number=len(report.lines) - level.memory_lines,
                total=len(report.lines),
            )
        )
    if len(report.workers) > level.workers:
        found.append(
            translatable(
                "{number} of {total} rows of workers",
                number=len(report.workers) - level.workers,
                total=len(report.workers),
            )
        )
    if level.holders < len(report.holders):
        found.append(
            translatable(
                "{number} of {total} holders",
                number=len(report.holders) - level.holders,
                total=len(report.holders),
            )
        )
    if report.timeline is not None and not level.drawn_points:
        found.append(translatable("the chart"))
    advice = min(len(report.advice), FULL.advice) - level.advice
    if advice > 0:
        found.append(translatable("{advice} pieces of advice", advice=advice))
    fields = [translatable("time series")] if report.timeline is not None and level.points == 0 else []
    fields += [translatable("link and clock data")] if level.optional_fields != "kept" and report.gpus else []
    if fields:
        found.append(translatable("in its JSON: {fields}", fields=joined(fields)))
    return found


# -- the timeline ----------------------------------------------------------------------------------------


def resample(timeline: Timeline, points: int) -> Timeline:
    """Return the timeline with each series reduced to at most ``points`` points."""
    bins = make_bins(len(timeline.t), points)
    return Timeline(
        t=tuple(round(t, 3) for t in bin_ends(timeline.t, bins)),
        marks=tuple(replace(mark, t=_as_drawn(mark.t, units.duration)) for mark in timeline.marks),
        gpus=tuple(
            GpuTimeline(
                uuid=gpu.uuid,
                utilization=tuple(map(_short_or_none, bin_means(gpu.utilization, bins))),
                device_memory=bin_maxima(gpu.device_memory, bins),
                power_w=tuple(map(_short_or_none, bin_means(gpu.power_w, bins))),
                sm_activity=tuple(map(_short_or_none, bin_means(gpu.sm_activity, bins))),
            )
            for gpu in timeline.gpus
        ),
        gaps=tuple(
            (round(since, 3), round(until, 3)) for since, until in longest_gaps(timeline.gaps, points // 4)
        ),
    )


def make_bins(count: int, points: int) -> Bins:
    """Return the start and end indices of at most ``points`` bins of equal length."""
    points = min(count, points)
    return [(n * count // points, (n + 1) * count // points) for n in range(points)]


def bin_ends(t: Sequence[float], bins: Bins) -> tuple[float, ...]:
    """Return the last time in each bin."""
    return tuple(t[end - 1] for _, end in bins)


def bin_means(values: Sequence[float | None], bins: Bins) -> tuple[float | None, ...]:
    """Return the mean of the known values in each bin."""
    try:
        # Most series have no gaps, so first compute the means without checking each value. The checks would
        # take most of the time needed for a card.
        means = [sum(values[start:end]) / (end - start) for start, end in bins]  # type: ignore[arg-type]
        if math.isfinite(sum(means)):
            return tuple(means)
    except TypeError:  # A bin contains None.
        pass
    known = [
        [value for value in values[start:end] if value is not None and math.isfinite(value)]
        for start, end in bins
    ]
    return tuple(sum(part) / len(part) if part else None for part in known)


def bin_maxima(values: Sequence[int | None], bins: Bins) -> tuple[int | None, ...]:
    """Return the highest known value in each bin, so that a peak stays visible."""
    try:
        return tuple(max(values[start:end]) for start, end in bins)  # type: ignore[type-var]
    except TypeError:  # A bin contains None.
        known = [[value for value in values[start:end] if value is not None] for start, end in bins]
        return tuple(max(part, default=None) for part in known)


def _select_marks(marks: Sequence[Mark], level: DetailLevel) -> tuple[Mark, ...]:
    """Return an even selection of marks in order of time.

    The user's marks take precedence over printed lines and steps, which share the rest. All ranks have the
    same number of steps.
    """
    own, printed, steps = (
        [mark for mark in marks if mark.kind == kind] for kind in ("mark", "printed", "step")
    )
    kept = _evenly(own, level.marks)
    rest = level.marks - len(kept)
    kept += _evenly(printed, max(rest // 2, rest - len(steps)))
    kept += _steps_of_each_rank(steps, level.marks - len(kept))
    return tuple(
        replace(mark, label=clean_line(mark.label, level.mark_length))
        for mark in sorted(kept, key=lambda mark: mark.t)
    )


def _steps_of_each_rank(steps: Sequence[Mark], count: int) -> list[Mark]:
    by_rank: dict[str, list[Mark]] = {}
    for step in steps:
        by_rank.setdefault(step.label.partition(":")[0], []).append(step)
    each = count // len(by_rank) if by_rank else 0
    if not each:
        return _evenly(steps, count)
    return [step for of_rank in by_rank.values() for step in _evenly(of_rank, each)]


def _evenly(marks: Sequence[Mark], count: int) -> list[Mark]:
    if len(marks) <= count:
        return list(marks)
    return [marks[n * len(marks) // count] for n in range(count)]


# -- reducing the parts of a report ----------------------------------------------------------------------


def _reduce_time(time: CodeTime | None, level: DetailLevel) -> CodeTime | None:
    if time is None:
        return None
    lines = tuple(
        replace(
            line,
            source=clean_line(line.source, 80),
            call=_name_or_none(line.call),
            frame=_name_or_none(line.frame),
            frames=tuple(
                replace(frame, frame=clean_line(frame.frame, 60), call=_name_or_none(frame.call))
                for frame in line.frames[: level.time_lines // 2]
            ),
        )
        for line in time.lines[: level.time_lines]
    )
    return replace(
        time,
        lines=lines,
        reason=None if time.reason is None else _short_text(time.reason, level.reason_length),
    )


def _reduce_holder(holder: Holder) -> Holder:
    return replace(
        holder,
        names=tuple(clean_line(name, _HOLDER_NAME_LENGTH) for name in holder.names[:_HOLDER_NAMES]),
        type=None if holder.type is None else clean_line(holder.type, _HOLDER_NAME_LENGTH),
    )


def _reduce_worker(worker: WorkerReport, level: DetailLevel) -> WorkerReport:
    return replace(
        worker,
        name=_name_or_none(worker.name),
        host=_name_or_none(worker.host),
        missing={name: _short_text(text, level.reason_length) for name, text in worker.missing.items()},
    )


def _reduce_line(line: LineMemory) -> LineMemory:
    return replace(
        line,
        file=None if line.file is None else shorten_path(line.file, _PATH_LENGTH),
        function=None if line.function is None else clean_line(line.function, _FUNCTION_LENGTH),
        source=clean_line(line.source, _SOURCE_LENGTH),
    )


def _reduce_advice(advice: Advice, level: DetailLevel) -> Advice:
    """Return ``advice`` with texts of limited length.

    The texts contain the user's names and source lines, which may be long.
    """
    length = ADVICE_LENGTH if level.advice > 1 else _SHORT_ADVICE_LENGTH
    evidence = {
        name: clean_line(value, 80) if isinstance(value, str) else value
        for name, value in advice.evidence.items()
    }
    return replace(
        advice, text=_short_text(advice.text, length), fix=_short_text(advice.fix, length), evidence=evidence
    )


def _without_evidence(report: Report) -> Report:
    return replace(report, advice=tuple(replace(advice, evidence={}) for advice in report.advice))


def _reasons_once(gpus: tuple[GpuReport, ...]) -> tuple[GpuReport, ...]:
    """Return the GPUs with each repeated reason replaced by a reference to the first GPU that has the reason.

    A replaced reason has no id.
    """
    first: dict[tuple[str, str], GpuReport] = {}
    references = {gpu.uuid: translatable("as for {gpu}", gpu=gpu_name(gpu)) for gpu in gpus}
    result = []
    for gpu in gpus:
        given_by = {name: first.setdefault((name, text), gpu) for name, text in gpu.missing.items()}
        missing = {
            name: text if given_by[name] is gpu else references[given_by[name].uuid]
            for name, text in gpu.missing.items()
        }
        ids = {name: message_id for name, message_id in gpu.missing_ids.items() if given_by.get(name) is gpu}
        result.append(replace(gpu, missing=missing, missing_ids=ids))
    return tuple(result)


def _reduce_gpu(gpu: GpuReport, level: DetailLevel) -> GpuReport:
    unknown: dict[str, Any] = {name: None for name in _FIGURES if not _is_finite(getattr(gpu, name))}
    return replace(
        gpu,
        **unknown,
        name=clean_line(gpu.name, 60),
        missing={name: _short_text(text, level.reason_length) for name, text in gpu.missing.items()},
        children=tuple(clean_line(command, min(60, level.reason_length)) for command in gpu.children),
    )


def _is_finite(value: Level | Traffic | float | None) -> bool:
    if isinstance(value, Level):
        return math.isfinite(value.mean) and math.isfinite(value.max)
    if isinstance(value, Traffic):
        return _is_finite(value.tx) and _is_finite(value.rx)
    return value is None or math.isfinite(value)


def _short_text(text: str, max_length: int) -> str:
    """Return a text with at most ``max_length`` characters in English. Its translation is unchanged."""
    return with_english(text, clean_line(text, max_length))


def _json_size(values: object) -> int:
    """Return the size in bytes of the values' JSON, as notebooks contain it."""
    return len(json.dumps(values, ensure_ascii=False).encode(errors="surrogatepass"))


# -- rounding --------------------------------------------------------------------------------------------

_Format = Callable[[float], str]
_Round = Callable[[float], float]
_ENERGY: tuple[_Format, ...] = (
    units.energy,
    *(partial(units.number_in_unit, unit=unit) for unit in ("J", "kJ", "MJ")),
)
"""How views show energies. The unit in a column depends on the column's largest energy."""


def _rounded(report: Report, level: DetailLevel, totals: RunTotals) -> Report:
    """Return ``report``, whose totals are ``totals``, with figures of only as many digits as are shown.

    Each view shows a rounded figure as it shows the unrounded one. Sizes in bytes stay exact.
    """
    cell, idle = report.cell, report.energy_idle_j
    energy = totals.energy_j

    def share(joules: float) -> str:
        return units.percent(100 * joules / energy) if energy else ""

    return replace(
        report,
        cell=replace(
            cell,
            # Rounded down, because views show the second in which the run started.
            started=math.floor(cell.started * 1e3) / 1e3,
            duration_s=_as_drawn(cell.duration_s, units.duration, short=_six_digits),
            gpu_tail_s=_as_drawn(cell.gpu_tail_s, units.duration, short=_six_digits),
        ),
        gpus=tuple(_rounded_gpu(gpu, _as_shown if level.terse else _short) for gpu in report.gpus),
        time=None if report.time is None else _rounded_time(report.time),
        energy_idle_j=_as_drawn(idle, *_ENERGY, share, short=_six_digits),
        workers=tuple(map(_rounded_worker, report.workers)),
    )


def _rounded_gpu(gpu: GpuReport, short: _Round) -> GpuReport:
    def rounded(value: Level | None, text: _Format = units.percent) -> Level | None:
        return None if value is None else _rounded_level(value, text, short)

    def traffic(value: Traffic | None) -> Traffic | None:
        return (
            None
            if value is None
            else Traffic(rounded(value.tx, units.memory), rounded(value.rx, units.memory))
        )

    throttled = gpu.throttled
    return replace(
        gpu,
        utilization=rounded(gpu.utilization),
        sm_activity=rounded(gpu.sm_activity),
        sm_occupancy=rounded(gpu.sm_occupancy),
        tensor_activity=rounded(gpu.tensor_activity),
        fp32_activity=rounded(gpu.fp32_activity),
        dram_activity=rounded(gpu.dram_activity),
        memory_utilization=rounded(gpu.memory_utilization),
        pcie=traffic(gpu.pcie),
        nvlink=traffic(gpu.nvlink),
        power_w=rounded(gpu.power_w, units.power),
        throttled=throttled and {why: _as_drawn(time, units.duration) for why, time in throttled.items()},
        # More digits than the sensor has, because views show their sum.
        energy_j=_as_drawn(gpu.energy_j, *_ENERGY, short=_six_digits),
        energy_at_least_j=_as_drawn(gpu.energy_at_least_j, *_ENERGY, short=_six_digits),
        energy_error_j=_as_drawn(gpu.energy_error_j, *_error_formats(gpu.energy_j), short=_six_digits),
    )


def _rounded_time(time: CodeTime) -> CodeTime:
    def rounded(part: _LineOrFrame) -> _LineOrFrame:
        return replace(
            part,
            share=_as_drawn(part.share, units.percent),
            gpu_busy=_as_drawn(part.gpu_busy, units.percent),
            call_share=_as_drawn(part.call_share, units.percent),
        )

    return replace(
        time,
        lines=tuple(replace(rounded(line), frames=tuple(map(rounded, line.frames))) for line in time.lines),
        resolution_s=_as_drawn(time.resolution_s, units.duration),
        cpu=_as_drawn(time.cpu, units.percent),
        cpu_children=_as_drawn(time.cpu_children, units.percent),
        warm_up_s=_as_drawn(time.warm_up_s, units.duration),
        steady_until_s=_as_drawn(time.steady_until_s, units.duration),
    )


def _rounded_worker(worker: WorkerReport) -> WorkerReport:
    utilization = worker.utilization
    return replace(
        worker,
        utilization=None if utilization is None else _rounded_level(utilization, units.percent, _short),
        energy_j=_as_drawn(worker.energy_j, *_ENERGY),
        energy_error_j=_as_drawn(worker.energy_error_j, *_error_formats(worker.energy_j)),
        cpu=_as_drawn(worker.cpu, units.percent),
        step_s=_as_drawn(worker.step_s, units.duration, short=_six_digits),
        started_s=_as_drawn(worker.started_s, units.duration),
        ended_s=_as_drawn(worker.ended_s, units.duration),
    )


def _rounded_totals(totals: RunTotals) -> RunTotals:
    return replace(
        totals,
        utilization=_as_drawn(totals.utilization, units.percent),
        energy_j=_as_drawn(totals.energy_j, *_ENERGY, short=_six_digits),
    )


def _rounded_level(level: Level, text: _Format, short: _Round) -> Level:
    return Level(_as_drawn(level.mean, text, short=short), _as_drawn(level.max, text, short=short))


def _error_formats(joules: float | None) -> tuple[_Format, ...]:
    """Return how views show an error of this energy: with the energy's unit and decimals."""
    columns = (
        lambda error, unit=unit: units.number_in_unit(joules, unit, error=error) for unit in ("J", "kJ", "MJ")
    )
    return (lambda error: units.energy(joules, error), *columns)


@overload
def _as_drawn(value: float, *texts: _Format, short: _Round = ...) -> float: ...
@overload
def _as_drawn(value: float | None, *texts: _Format, short: _Round = ...) -> float | None: ...
def _as_drawn(value: float | None, *texts: _Format, short: _Round | None = None) -> float | None:
    """Return ``value`` rounded by ``short``, or with more digits if one of ``texts`` would differ.

    A value that is rounded twice can differ in its last digit: 2349.6 J is 2.3 kJ, but 2350 J is 2.4 kJ.
    """
    if value is None or not math.isfinite(value):
        return value
    rounded = (short or _short)(value)
    if rounded == value:
        return rounded
    drawn = [text(value) for text in texts]
    digits = 4
    while [text(rounded) for text in texts] != drawn:
        rounded = float(f"{value:.{digits}g}")
        digits += 1
    return rounded


def _short(value: float) -> float:
    """Round to 2 decimals below 1, to 1 decimal below 100, and to integers from 100 on.

    This loses nothing, because no sensor is more precise.
    """
    magnitude = abs(value)
    rounded = round(value, 0 if magnitude >= 100 else 1 if magnitude >= 1 else 2)
    # An integer is shorter in JSON: 96 takes two bytes less than 96.0.
    return int(rounded) if rounded == int(rounded) else rounded


def _as_shown(value: float) -> float:
    """Round to the digits that the card shows: from 10 on, to integers."""
    return round(value) if abs(value) >= 9.95 else _short(value)


def _short_or_none(value: float | None) -> float | None:
    return None if value is None else _short(value)


def _name_or_none(text: str | None) -> str | None:
    return None if text is None else clean_line(text, 60)


def _six_digits(value: float) -> float:
    return float(f"{value:.6g}")
