"""Reduce a report so that its card fits in 20 kB. The 240 points of 16 GPUs alone would take 160 kB.

A card uses the most detailed of the five detail levels that fits.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gpuwidget.measure.notes import gpu_name
from gpuwidget.measure.timeline import longest_gaps
from gpuwidget.model.report import (
    MIME_TYPE,
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
from gpuwidget.views.detail_levels import BRIEF, COMPACT, FEW_WORKERS, FULL, MINIMAL, REDUCED, DetailLevel

LIMIT = 20_000
"""Maximum size of a whole bundle as JSON, in bytes."""
_POINT_SIZE = 24
"""Lower bound of the size of one point of one GPU's series as JSON, in bytes."""
_FEW_POINTS = 80
"""Number of points, over all GPUs, up to which the timeline hardly affects the size of a card."""
_ROW_SIZE = 60
"""Lower bound of the size of one GPU's row in the HTML, in bytes."""
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
_OMITTED = translatable("left out of this card")


@dataclass(frozen=True, slots=True)
class ReducedReport:
    """A report reduced to a detail level, in two versions."""

    level: DetailLevel
    stored: Report
    """The version for the JSON, with fewer points and only the GPUs that fit."""
    drawn: Report
    """The version for text and HTML, with every GPU, all points and all workers. The HTML's chart reduces the
    points itself."""


Bundle = dict[str, Any]
Bins = Sequence[tuple[int, int]]


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
    """Return the bundle and its size in bytes. If the JSON alone is too large, nothing is rendered."""
    data = {MIME_TYPE: to_json(reduced)}
    size = _json_size(data)
    if size > LIMIT:
        return data, size
    rendered = render(reduced)
    # Joining two JSON objects adds ", " and removes "{}", so the size is the sum of both sizes.
    return {**rendered, **data}, _json_size(rendered) + size


def _candidates(report: Report) -> Iterator[ReducedReport]:
    """Yield the report at each detail level that may fit. Levels that can't fit are skipped, because the user
    waits."""
    timeline = report.timeline
    count = len(timeline.t) * len(timeline.gpus) if timeline is not None else 0
    levels = [FULL, REDUCED, COMPACT]
    if count <= _FEW_POINTS:
        # The card of a short run usually fits, so yield this level without the estimate below, which takes
        # longer.
        yield reduce(report, levels.pop(0))
    compact = reduce(report, COMPACT)
    size = _json_size(to_json(compact)) + _ROW_SIZE * len(report.shown)
    for level in levels:
        if size + _POINT_SIZE * min(count, level.points * len(report.gpus)) <= LIMIT:
            yield compact if level is COMPACT else reduce(report, level)
    yield reduce(report, BRIEF)
    if len(report.workers) > FEW_WORKERS.workers:
        yield reduce(report, FEW_WORKERS)
    yield reduce(report, MINIMAL)


def reduce(report: Report, level: DetailLevel) -> ReducedReport:
    """Return ``report`` reduced to ``level``, with a note that lists what is omitted.

    Sizes in bytes stay exact. Other figures are rounded to the precision of the sensors.
    """
    gpus = tuple(_rounded(gpu, level) for gpu in report.gpus)
    first = sorted(range(len(gpus)), key=lambda place: not gpus[place].shown)[: level.gpus]
    kept = tuple(gpus[place] for place in sorted(first))
    timeline = report.timeline
    if timeline is not None:
        timeline = replace(timeline, marks=_select_marks(timeline.marks, level))
    cell = replace(
        report.cell,
        label=None if report.cell.label is None else clean_line(report.cell.label, 80),
        started=round(report.cell.started, 3),
        duration_s=_six_digits(report.cell.duration_s),
        gpu_tail_s=None if report.cell.gpu_tail_s is None else _six_digits(report.cell.gpu_tail_s),
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
        energy_idle_j=None if report.energy_idle_j is None else _short(report.energy_idle_j),
        workers=tuple(_reduce_worker(worker, level) for worker in workers),
    )
    return ReducedReport(
        level=level,
        stored=replace(
            drawn,
            gpus=_reasons_once(kept) if level.terse else kept,
            timeline=None if timeline is None or not level.points else resample(timeline, level.points),
            workers=drawn.workers[: level.workers],
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
        if gpu["mig_parent"] is None:
            del gpu["mig_parent"]
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
        marks=timeline.marks,
        gpus=tuple(
            GpuTimeline(
                uuid=gpu.uuid,
                utilization=bin_means(gpu.utilization, bins),
                device_memory=bin_maxima(gpu.device_memory, bins),
                power_w=bin_means(gpu.power_w, bins),
                sm_activity=bin_means(gpu.sm_activity, bins),
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
    """Return the rounded mean of the known values in each bin."""
    try:
        # Most series have no gaps, so first compute the means without checking each value. The checks would
        # take most of the time needed for a card.
        means = [sum(values[start:end]) / (end - start) for start, end in bins]  # type: ignore[arg-type]
        return tuple(_short(mean) for mean in means)
    except (TypeError, ValueError, OverflowError):  # A bin contains None, NaN or infinity.
        known = [
            [value for value in values[start:end] if value is not None and math.isfinite(value)]
            for start, end in bins
        ]
        return tuple(_short(sum(part) / len(part)) if part else None for part in known)


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
        replace(mark, t=round(mark.t, 3), label=clean_line(mark.label, level.mark_length))
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
            share=_short(line.share),
            gpu_busy=_short_or_none(line.gpu_busy),
            call=_name_or_none(line.call),
            frame=_name_or_none(line.frame),
            call_share=_short_or_none(line.call_share),
            frames=tuple(
                FrameTime(
                    clean_line(frame.frame, 60),
                    _short(frame.share),
                    _short_or_none(frame.gpu_busy),
                    _name_or_none(frame.call),
                    _short_or_none(frame.call_share),
                )
                for frame in line.frames[: level.time_lines // 2]
            ),
        )
        for line in time.lines[: level.time_lines]
    )
    return replace(
        time,
        lines=lines,
        resolution_s=_six_digits(round(time.resolution_s, 3)),
        reason=None if time.reason is None else _short_text(time.reason, level.reason_length),
        cpu=_short_or_none(time.cpu),
        cpu_children=_short_or_none(time.cpu_children),
        warm_up_s=None if time.warm_up_s is None else round(time.warm_up_s, 2),
        steady_until_s=None if time.steady_until_s is None else round(time.steady_until_s, 2),
    )


def _reduce_holder(holder: Holder) -> Holder:
    return replace(
        holder,
        names=tuple(clean_line(name, _HOLDER_NAME_LENGTH) for name in holder.names[:_HOLDER_NAMES]),
        type=None if holder.type is None else clean_line(holder.type, _HOLDER_NAME_LENGTH),
    )


def _reduce_worker(worker: WorkerReport, level: DetailLevel) -> WorkerReport:
    utilization = worker.utilization
    return replace(
        worker,
        name=_name_or_none(worker.name),
        host=_name_or_none(worker.host),
        utilization=None if utilization is None else Level(_short(utilization.mean), _short(utilization.max)),
        energy_j=_short_or_none(worker.energy_j),
        cpu=_short_or_none(worker.cpu),
        step_s=None if worker.step_s is None else _six_digits(worker.step_s),
        started_s=None if worker.started_s is None else round(worker.started_s, 2),
        ended_s=None if worker.ended_s is None else round(worker.ended_s, 2),
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


def _rounded(gpu: GpuReport, level: DetailLevel) -> GpuReport:
    short = _as_shown if level.terse else _short

    def rounded(value: Level | None) -> Level | None:
        if value is None or not (math.isfinite(value.mean) and math.isfinite(value.max)):
            return None
        return Level(short(value.mean), short(value.max))

    def traffic(value: Traffic | None) -> Traffic | None:
        return None if value is None else Traffic(rounded(value.tx), rounded(value.rx))

    return replace(
        gpu,
        name=clean_line(gpu.name, 60),
        utilization=rounded(gpu.utilization),
        sm_activity=rounded(gpu.sm_activity),
        sm_occupancy=rounded(gpu.sm_occupancy),
        tensor_activity=rounded(gpu.tensor_activity),
        fp32_activity=rounded(gpu.fp32_activity),
        dram_activity=rounded(gpu.dram_activity),
        memory_utilization=rounded(gpu.memory_utilization),
        pcie=traffic(gpu.pcie),
        nvlink=traffic(gpu.nvlink),
        power_w=rounded(gpu.power_w),
        throttled=None if gpu.throttled is None else {w: _short(s) for w, s in gpu.throttled.items()},
        # More digits than the sensor has, because the card shows their sum.
        energy_j=_six_digits_or_none(gpu.energy_j),
        energy_at_least_j=_six_digits_or_none(gpu.energy_at_least_j),
        energy_error_j=_short_or_none(gpu.energy_error_j),
        missing={name: _short_text(text, level.reason_length) for name, text in gpu.missing.items()},
        children=tuple(clean_line(command, min(60, level.reason_length)) for command in gpu.children),
    )


def _rounded_totals(totals: RunTotals) -> RunTotals:
    return replace(
        totals,
        utilization=_short_or_none(totals.utilization),
        energy_j=_six_digits_or_none(totals.energy_j),
    )


def _short_text(text: str, max_length: int) -> str:
    """Return a text with at most ``max_length`` characters in English. Its translation is unchanged."""
    return with_english(text, clean_line(text, max_length))


def _json_size(values: object) -> int:
    """Return the size in bytes of the values' JSON, as notebooks contain it."""
    return len(json.dumps(values, ensure_ascii=False).encode(errors="surrogatepass"))


# -- rounding --------------------------------------------------------------------------------------------


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
    return None if value is None or not math.isfinite(value) else _short(value)


def _name_or_none(text: str | None) -> str | None:
    return None if text is None else clean_line(text, 60)


def _six_digits_or_none(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else _six_digits(value)


def _six_digits(seconds: float) -> float:
    return float(f"{seconds:.6g}")
