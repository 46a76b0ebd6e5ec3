"""Reduce a report to a detail level. Tables list what is reduced, by path in the report; one walker applies
them.

In a path, ``[]`` stands for each item of a list or mapping, and ``a|b`` for both fields.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import product
from operator import not_
from typing import Any, Literal

from gpuwidget.measure.notes import gpu_name
from gpuwidget.model import units
from gpuwidget.model.metrics import REPORTED
from gpuwidget.model.report import Advice, GpuReport, Level, Report, Traffic
from gpuwidget.model.terminal_text import clean_line, shorten_path
from gpuwidget.model.to_json import to_json
from gpuwidget.model.translation import Text, joined, translatable, with_english, with_params
from gpuwidget.views import card_workers
from gpuwidget.views.card_summary import ADVICE_LENGTH
from gpuwidget.views.detail_levels import FULL, DetailLevel
from gpuwidget.views.resampling import resample, select_marks
from gpuwidget.views.rounding import (
    ENERGY,
    Format,
    Round,
    as_drawn,
    as_shown,
    error_formats,
    short,
    six_digits,
)

OPTIONAL_FIELDS = (
    *("memory_reserved", "bursts", *(reported.name for _, reported in REPORTED if reported.secondary)),
    *("pcie", "nvlink", "power_limit_w", "throttled"),
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
    stored: dict[str, Any]
    """The JSON, with fewer points and only the GPUs that fit. Its figures have only as many digits as are
    shown."""
    drawn: Report
    """The version for text and HTML, with every GPU, all points, all workers and unrounded figures. The
    HTML's chart reduces the points itself."""


def reduce(report: Report, level: DetailLevel) -> ReducedReport:
    """Return ``report`` reduced to ``level``, with a note that lists what is omitted."""
    if len(report.workers) > level.workers:
        report = replace(report, workers=card_workers.by_interest(report))
    drawn: Report = _walk(report, _limits(level))
    kept = sorted(range(len(drawn.gpus)), key=lambda place: not drawn.gpus[place].shown)[: level.gpus]
    gpus = tuple(drawn.gpus[place] for place in sorted(kept))
    stored = replace(drawn, gpus=gpus, workers=drawn.workers[: level.workers])
    notes = drawn.notes + _omitted_note(report, stored, level)
    drawn = replace(drawn, notes=notes, advice=drawn.advice if level.evidence else _no_evidence(drawn.advice))
    timeline = stored.timeline if level.points else None
    stored = replace(
        stored, notes=notes, timeline=None if timeline is None else resample(timeline, level.points)
    )
    if level.terse:
        # Done before the conversion to JSON, so that ids of repeated reasons are not converted.
        stored = replace(stored, gpus=_with_reasons_once(gpus))
    # The totals include the GPUs that the stored version omits.
    values = {**to_json(stored), "totals": to_json(drawn.totals)}
    if level.optional_fields != "kept":
        values = _walk(values, _omissions(level.optional_fields))
    # Done after the omissions, so that omitted figures are not rounded.
    values = _walk(values, _digits(level))
    if level.optional_fields == "null" and gpus:
        # Only the first GPU contains the reason why the optional fields are missing, which applies to all.
        has_torch = any(gpu.torch is not None for gpu in gpus)
        names = (*OPTIONAL_FIELDS, *_OPTIONAL_TORCH_FIELDS) if has_torch else OPTIONAL_FIELDS
        values["gpus"][0]["missing"] |= dict.fromkeys(names, _OMITTED)
    return ReducedReport(level, stored=values, drawn=drawn)


# -- the walker ------------------------------------------------------------------------------------------

_Change = Callable[[Any, Any], Any]
"""Returns the new value of a field. Its arguments are the value and the object that contains the field."""
_EACH = "[]"


@dataclass(frozen=True, slots=True)
class _Node:
    """The changes to a value, and to the parts of it."""

    changes: list[_Change] = field(default_factory=list)
    parts: dict[str, _Node] = field(default_factory=dict)


def _tree(table: Iterable[tuple[str, _Change]]) -> _Node:
    """Return a table of changes by path as a tree, so that the walker replaces each object only once."""
    root = _Node()
    for path, change in table:
        names = path.replace(_EACH, f".{_EACH}").split(".")
        for keys in product(*(name.split("|") for name in names)):
            node = root
            for key in filter(None, keys):
                node = node.parts.setdefault(key, _Node())
            node.changes.append(change)
    return root


def _walk(value: Any, node: _Node, owner: Any = None) -> Any:
    """Return ``value`` with the changes of ``node``. Dicts are changed in place. None stays None."""
    if value is None:
        return None
    for change in node.changes:
        value = change(value, owner)
    if not value or not node.parts:
        return value
    if each := node.parts.get(_EACH):
        if isinstance(value, dict):
            return {name: _walk(item, each, value) for name, item in value.items()}
        return type(value)([_walk(item, each, value) for item in value])
    if isinstance(value, dict):
        value |= {name: _walk(value[name], part, value) for name, part in node.parts.items() if name in value}
        return value
    return replace(
        value, **{name: _walk(getattr(value, name), part, value) for name, part in node.parts.items()}
    )


# -- lists and texts -------------------------------------------------------------------------------------


@cache
def _limits(level: DetailLevel) -> _Node:
    """Return the limits of lists and texts at a detail level.

    The texts contain the user's names and source lines, which may be long.
    """
    reason = _english(level.reason_length)
    advice = _english(ADVICE_LENGTH if level.advice > 1 else 150)
    return _tree(
        (
            ("cell.label", _line(80)),
            ("notes[]", _english(level.note_length)),
            ("gpus[].name", _line(60)),
            ("gpus[].levels[]", _if_finite),
            ("gpus[].utilization|pcie|nvlink|power_w|energy_j|energy_at_least_j|energy_error_j", _if_finite),
            ("gpus[].missing[]", reason),
            ("gpus[].children[]", _line(min(60, level.reason_length))),
            ("timeline.marks", lambda marks, _: select_marks(marks, level.marks)),
            ("timeline.marks[].label", _line(level.mark_length)),
            ("holders", _first(level.holders)),
            ("holders[].names", _first(4)),
            ("holders[].names[]", _line(40)),
            ("holders[].type", _line(40)),
            ("advice", _first(level.advice)),
            ("advice[].text|fix", advice),
            (
                "advice[].evidence[]",
                lambda value, _: clean_line(value, 80) if isinstance(value, str) else value,
            ),
            ("lines", _first(level.memory_lines)),
            ("lines[].file", lambda path, _: shorten_path(path, 60)),
            ("lines[].function", _line(40)),
            ("lines[].source", _line(100)),
            ("time.reason", reason),
            ("time.lines", _first(level.time_lines)),
            ("time.lines[].source", _line(80)),
            ("time.lines[].call|frame", _line(60)),
            ("time.lines[].frames", _first(level.time_lines // 2)),
            ("time.lines[].frames[].call|frame", _line(60)),
            ("workers[].name|host", _line(60)),
            ("workers[].missing[]", reason),
        )
    )


def _first(count: int) -> _Change:
    return lambda items, _: items[:count]


def _line(length: int) -> _Change:
    return lambda text, _: clean_line(text, length)


def _english(length: int) -> _Change:
    """Limit the text's length in English. Its translation is unchanged."""
    return lambda text, _: with_english(text, clean_line(text, length))


def _if_finite(value: Level | Traffic | float, _: object) -> Level | Traffic | float | None:
    """Return None instead of a value that is NaN or infinity, or that contains one."""
    return value if _is_finite(value) else None


def _is_finite(value: Level | Traffic | float | None) -> bool:
    if isinstance(value, Level):
        return math.isfinite(value.mean) and math.isfinite(value.max)
    if isinstance(value, Traffic):
        return _is_finite(value.tx) and _is_finite(value.rx)
    return value is None or math.isfinite(value)


def _no_evidence(advice: Sequence[Advice]) -> tuple[Advice, ...]:
    return tuple(replace(piece, evidence={}) for piece in advice)


def _omitted_note(report: Report, reduced: Report, level: DetailLevel) -> tuple[str, ...]:
    """Return the note that lists what the reduced report omits, if it omits something."""
    marks, kept = (() if made.timeline is None else made.timeline.marks for made in (report, reduced))
    has_steps = any(mark.kind == "step" for mark in marks)
    lists: tuple[tuple[Text, Sized, Sized], ...] = (
        (
            translatable("{number} of {total} marks, printed lines and steps")
            if has_steps
            else translatable("{number} of {total} marks and printed lines"),
            marks,
            kept,
        ),
        (translatable("{number} of {total} GPUs"), report.gpus, reduced.gpus),
        (translatable("{number} of {total} lines of code"), report.lines, reduced.lines),
        (translatable("{number} of {total} rows of workers"), report.workers, reduced.workers),
        (translatable("{number} of {total} holders"), report.holders, reduced.holders),
    )
    found = [
        with_params(text, {"number": len(items) - len(kept), "total": len(items)})
        for text, items, kept in lists
        if len(kept) < len(items)
    ]
    if report.timeline is not None and not level.drawn_points:
        found.append(translatable("the chart"))
    advice = min(len(report.advice), FULL.advice) - level.advice
    if advice > 0:
        found.append(translatable("{advice} pieces of advice", advice=advice))
    fields = [translatable("time series")] if report.timeline is not None and not level.points else []
    fields += [translatable("link and clock data")] if level.optional_fields != "kept" and report.gpus else []
    if fields:
        found.append(translatable("in its JSON: {fields}", fields=joined(fields)))
    if not found:
        return ()
    return (translatable("To keep the notebook small, this card omits {omitted}.", omitted=joined(found)),)


# -- the digits of the JSON ------------------------------------------------------------------------------


@cache
def _digits(level: DetailLevel) -> _Node:
    """Return how the JSON's figures are rounded. Sizes in bytes stay exact."""
    short_gpu = as_shown if level.terse else short
    energy = _as_drawn(*ENERGY, by=six_digits)
    percent, duration = _as_drawn(units.percent), _as_drawn(units.duration)
    return _tree(
        (
            # Rounded down, because views show the second in which the run started.
            ("cell.started", lambda started, _: math.floor(started * 1e3) / 1e3),
            ("cell.duration_s|gpu_tail_s", _as_drawn(units.duration, by=six_digits)),
            # Before the totals are rounded, because views show its share of their energy.
            ("energy_idle_j", _round_idle_energy),
            ("totals.utilization", percent),
            ("totals.energy_j", energy),
            ("timeline.t[]", _round_to_ms),
            ("timeline.gaps[][]", _round_to_ms),
            ("timeline.marks[].t", duration),
            ("timeline.gpus[].utilization|power_w|sm_activity[]", lambda value, _: short(value)),
            *(
                (f"gpus[].{reported.name}.mean|max", _as_drawn(units.KINDS[metric.kind].text, by=short_gpu))
                for metric, reported in REPORTED
            ),
            ("gpus[].utilization.mean|max", _as_drawn(units.percent, by=short_gpu)),
            ("gpus[].pcie|nvlink.tx|rx.mean|max", _as_drawn(units.memory, by=short_gpu)),
            ("gpus[].power_w.mean|max", _as_drawn(units.power, by=short_gpu)),
            ("gpus[].throttled[]", duration),
            ("gpus[].energy_j|energy_at_least_j", energy),
            ("gpus[].energy_error_j", _energy_error(six_digits)),
            ("time.lines[].share|gpu_busy|call_share", percent),
            ("time.lines[].frames[].share|gpu_busy|call_share", percent),
            ("time.cpu|cpu_children", percent),
            ("time.resolution_s|warm_up_s|steady_until_s", duration),
            ("workers[].utilization.mean|max", percent),
            ("workers[].energy_j", _as_drawn(*ENERGY)),
            ("workers[].energy_error_j", _energy_error(short)),
            ("workers[].cpu", percent),
            ("workers[].step_s", _as_drawn(units.duration, by=six_digits)),
            ("workers[].started_s|ended_s", duration),
        )
    )


def _round_to_ms(t: float, _: object) -> float:
    return round(t, 3)


def _as_drawn(*texts: Format, by: Round = short) -> _Change:
    return lambda value, _: as_drawn(value, *texts, by=by)


def _energy_error(by: Round) -> _Change:
    return lambda error, owner: as_drawn(error, *error_formats(owner["energy_j"]), by=by)


def _round_idle_energy(idle: float, report: Mapping[str, Any]) -> float:
    energy = report["totals"]["energy_j"]

    def share(joules: float) -> str:
        return units.percent(100 * joules / energy) if energy else ""

    return as_drawn(idle, *ENERGY, share, by=six_digits)


# -- the fields of the JSON ------------------------------------------------------------------------------


@cache
def _omissions(optional: Literal["null", "absent"]) -> _Node:
    """Return which fields the JSON of a small card omits."""
    always = (
        ("workers[]", _omit("missing", "missing_ids")),
        ("workers[]", _omit("energy_error_j", when=_is_none)),
        ("", _omit("workers", when=not_)),
        ("gpus[]", _omit(*_RARE_FIELDS, when=not_)),
        ("gpus[]", _omit_optional_reasons),
    )
    if optional == "null":
        return _tree(
            (
                *always,
                (f"gpus[].{'|'.join(OPTIONAL_FIELDS)}", lambda _, __: None),
                (f"gpus[].torch.{'|'.join(_OPTIONAL_TORCH_FIELDS)}", lambda _, __: None),
                ("gpus[].missing_ids", lambda _, __: {}),
            )
        )
    return _tree(
        (
            *always,
            ("source", _omit("reason_id")),
            ("time", _omit("reason_ids")),
            ("workers[]", _omit("torch_reserved")),
            ("workers[]", _omit("host", when=_is_none)),
            ("gpus[]", _omit(*OPTIONAL_FIELDS, "missing_ids")),
            ("gpus[].torch", _omit(*_OPTIONAL_TORCH_FIELDS)),
            ("gpus[]", _omit("worked", "mig_parent", "mig_index", "lost_since", when=_is_none)),
            ("gpus[]", _omit("missing", when=not_)),
            ("gpus[]", _omit_children),
        )
    )


def _omit(*names: str, when: Callable[[Any], bool] = lambda _: True) -> _Change:
    """Omit the fields whose value fulfills ``when``."""

    def change(values: dict[str, Any], _: object) -> dict[str, Any]:
        for name in names:
            if when(values[name]):
                del values[name]
        return values

    return change


def _is_none(value: object) -> bool:
    return value is None


def _omit_optional_reasons(gpu: dict[str, Any], _: object) -> dict[str, Any]:
    for name in (*OPTIONAL_FIELDS, *_OPTIONAL_TORCH_FIELDS):
        gpu["missing"].pop(name, None)
    return gpu


def _omit_children(gpu: dict[str, Any], _: object) -> dict[str, Any]:
    if not gpu["children"]:
        del gpu["children"], gpu["children_memory"]
    return gpu


def _with_reasons_once(gpus: Sequence[GpuReport]) -> tuple[GpuReport, ...]:
    """Replace each repeated reason of ``gpus`` by a reference to the first GPU that has it.

    A replaced reason has no id.
    """
    first: dict[tuple[str, str], GpuReport] = {}
    references = {gpu.uuid: translatable("as for {gpu}", gpu=gpu_name(gpu)) for gpu in gpus}
    found = []
    for gpu in gpus:
        missing: dict[str, Any] = dict(gpu.missing)
        for name, text in gpu.missing.items():
            source = first.setdefault((name, text), gpu)
            if source is not gpu:
                missing[name] = references[source.uuid]
        found.append(replace(gpu, missing=missing))
    return tuple(found)
