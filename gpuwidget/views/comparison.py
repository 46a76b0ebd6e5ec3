"""Compare the reports of two runs, and format the comparison as text for a terminal and as static HTML."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from gpuwidget.measure import notes
from gpuwidget.measure.notes import gpu_name
from gpuwidget.measure.steady_state import SteadyMetric, SteadyWindow, steady_mean, stored_window
from gpuwidget.model import units
from gpuwidget.model.report import GpuReport, Level, MemoryKind, Report, Span
from gpuwidget.model.terminal_text import clean_line, printable_lines
from gpuwidget.model.translation import _, in_view_language, joined, translatable, with_english
from gpuwidget.views import card_summary as summary
from gpuwidget.views import styles
from gpuwidget.views.saved_outputs import output_metadata

_NAME_LENGTH = 40
_MIN_RATIO = 0.0095
"""Smallest ratio that is shown as a number. Smaller ratios, which would round to 0.01x or 0.00x, are shown as
``<0.01x``."""
_MEMORY_KINDS: dict[MemoryKind, str] = {
    "torch": translatable("torch memory"),
    "process": translatable("process memory"),
    "device": translatable("whole GPU memory"),
}
"""The label of each kind of memory. The kinds closest to the user's tensors come first."""
_NOT_LOADED = translatable("not loaded")
_ENVIRONMENT = (
    (translatable("driver"), "driver", units.UNKNOWN),
    (translatable("driver's CUDA"), "cuda_driver", units.UNKNOWN),
    ("torch", "torch", _NOT_LOADED),
    (translatable("torch's CUDA"), "cuda", _NOT_LOADED),
    ("cuDNN", "cudnn", _NOT_LOADED),
    (translatable("default device"), "default_device", _NOT_LOADED),
)
_TIMELINE_METRICS: tuple[tuple[str, SteadyMetric, Callable[[float | None], str]], ...] = (
    (translatable("utilization"), "utilization", units.percent),
    (translatable("SM activity"), "sm_activity", units.percent),
    (translatable("power"), "power_w", units.power),
)
"""The metrics that the timeline contains, and that can therefore be averaged over a run's steady part."""
_OTHER_METRICS = (
    (translatable("tensor activity"), "tensor_activity"),
    (translatable("DRAM activity"), "dram_activity"),
)
_TOO_FEW_SAMPLES = translatable("the time series has too few values in the steady part")
_Reasons = dict[tuple[str, str], list[str]]
"""The names of the metrics that are unknown, keyed by the run's name and the reason."""
_DIFFERENCES = translatable("Differences between the runs' environments")
_WHOLE_RUN = SteadyWindow(0.0, math.inf)
_NONZERO_DIGITS = frozenset("123456789")


@dataclass(frozen=True, slots=True)
class ComparisonRow:
    """One metric of both runs."""

    name: str
    values: tuple[str, str]
    ratio: str
    """The second value divided by the first, such as ``0.52x``; empty if the ratio has no meaning."""


@dataclass(frozen=True, slots=True, repr=False)
class Comparison:
    """The comparison of two runs, which is displayed as a table."""

    names: tuple[str, str]
    rows: tuple[ComparisonRow, ...]
    differences: tuple[ComparisonRow, ...]
    """The differences between the environments: versions, devices, GPUs."""
    notes: tuple[str, ...]
    """Notes about limits of the comparison, and the reasons for unknown metrics."""

    def bundle(self) -> dict[str, str]:
        """Return the mime bundle of the table."""
        return {"text/plain": str(self), "text/html": self._html()}

    def _repr_mimebundle_(
        self, include: object = None, exclude: object = None
    ) -> tuple[dict[str, str], dict[str, Any]]:
        return self.bundle(), output_metadata()

    def __repr__(self) -> str:
        return str(self)

    @in_view_language
    def __str__(self) -> str:
        lines = styles.text_table(self._table())
        if self.differences:
            lines += [f"  {_(_DIFFERENCES)}:", *styles.text_table(self._differences(), left=3)]
        notes = [f"  {_('Note')}: {_(note)}" for note in self.notes]
        return printable_lines("\n".join([*lines, *notes]))

    @in_view_language
    def _html(self) -> str:
        parts = [styles.html_table(self._table())]
        if self.differences:
            parts.append(f"<div><b>{escape(_(_DIFFERENCES))}</b></div>")
            parts.append(styles.html_table(self._differences(), left=3))
        parts += [f"<div><em>{escape(_(note))}</em></div>" for note in self.notes]
        return styles.scrollable("".join(parts))

    def _table(self) -> list[list[str]]:
        rows = ([_(row.name), *map(_, row.values), row.ratio] for row in self.rows)
        return [["", *map(_, self.names), _("ratio")], *rows]

    def _differences(self) -> list[list[str]]:
        rows = ([_(row.name), *map(_, row.values)] for row in self.differences)
        return [["", *map(_, self.names)], *rows]


@dataclass(frozen=True, slots=True)
class _Run:
    name: str
    report: Report
    gpus: tuple[GpuReport, ...]
    part: SteadyWindow | None
    """The steady part over which rates are computed; None if they are computed over whole runs."""

    @property
    def warm_up_s(self) -> float | None:
        """Seconds until the steady part began, or None if no warm-up is known."""
        return None if self.report.time is None else self.report.time.warm_up_s


def compare_reports(first: Report, second: Report, names: tuple[str, str]) -> Comparison:
    """Compare ``second`` with ``first``; ``names`` are the headers of their columns."""
    pair = (first, second)
    known = [stored_window(report) for report in pair]
    # If only one run has a warm-up, the other run counts as steady throughout. But if a run's code was not
    # sampled, it is unknown whether it has a warm-up, so whole runs are compared.
    steady = any(window is not None for window in known) and None not in [report.time for report in pair]
    a, b = (
        _Run(name, report, report.counted, (window or _WHOLE_RUN) if steady else None)
        for name, report, window in zip(names, pair, known, strict=True)
    )
    reasons: _Reasons = {}
    rows = [
        *_time_rows(a, b),
        *_memory_rows(a, b),
        *_metric_rows(a, b, reasons),
        *_energy_rows(a, b, reasons),
        *_worker_rows(a, b),
    ]
    unknown = (
        translatable("{run}, {metrics}: {reason}", run=run, metrics=joined(names), reason=reason)
        for (run, reason), names in reasons.items()
    )
    return Comparison(
        names=names,
        rows=tuple(rows),
        differences=tuple(_differences(a, b)),
        notes=(*_notes(a, b), *unknown),
    )


def run_name(report: Report, default: str) -> str:
    """Return the cell number and the label of a report, or ``default`` if it has neither."""
    cell = report.cell
    parts = [] if cell.execution_count is None else [f"In [{cell.execution_count}]"]
    parts += [] if cell.label is None else [clean_line(cell.label, _NAME_LENGTH)]
    return " ".join(parts) or with_english(default, clean_line(default, _NAME_LENGTH))


def ratio(first: float | None, second: float | None) -> str:
    """Return ``second`` divided by ``first`` as text; empty if either is unknown or ``first`` is zero."""
    if first is None or second is None or not (math.isfinite(first) and math.isfinite(second)):
        return ""
    if first <= 0 or second < 0:
        return ""
    value = second / first
    if 0 < value < _MIN_RATIO:
        return "<0.01x"
    return f"{value:.0f}x" if value >= 99.5 else f"{value:.1f}x" if value >= 9.95 else f"{value:.2f}x"


# -- the rows of a comparison ----------------------------------------------------------------------------


def _row(
    name: str, first: float | None, second: float | None, text: Callable[[float | None], str]
) -> ComparisonRow | None:
    if first is None and second is None:
        return None
    values = (text(first), text(second))
    # A ratio is meaningless if either value is displayed as zero.
    nonzero = all(set(value) & _NONZERO_DIGITS for value in values)
    return ComparisonRow(name, values, ratio(first, second) if nonzero else "")


def _time_rows(a: _Run, b: _Run) -> list[ComparisonRow]:
    first, second = a.report.cell, b.report.cell
    found = [_row(translatable("time"), first.duration_s, second.duration_s, units.duration)]
    if a.part is not None and b.part is not None:
        found.append(_row(translatable("of which warm-up"), a.warm_up_s, b.warm_up_s, units.duration))
        parts = [
            max(0.0, min(part.until, cell.duration_s) - part.since)
            for part, cell in ((a.part, first), (b.part, second))
        ]
        found.append(_row(translatable("of which steady part"), parts[0], parts[1], units.duration))
    done = [
        None if cell.gpu_tail_s is None else cell.duration_s + cell.gpu_tail_s for cell in (first, second)
    ]
    if any((cell.gpu_tail_s or 0.0) >= summary.NEGLIGIBLE_WAIT_S for cell in (first, second)):
        found.append(_row(translatable("time until the GPU finished"), done[0], done[1], units.duration))
    return [row for row in found if row is not None]


def _memory_rows(a: _Run, b: _Run) -> list[ComparisonRow]:
    host = _row(
        translatable("host memory, peak"), a.report.host_memory.peak, b.report.host_memory.peak, units.memory
    )
    rows = [] if host is None else [host]
    if not a.gpus or not b.gpus:
        return rows
    kind = _common_kind(a, b)
    first, other = summary.summarize_memory(a.report, kind), summary.summarize_memory(b.report, kind)
    rise = [_rise(memory.spans) for memory in (first, other)]
    memory_peak = (
        translatable("{memory}, peak", memory=_MEMORY_KINDS[kind])
        if kind == "torch"
        else translatable("{memory}, sampled peak", memory=_MEMORY_KINDS[kind])
    )
    memory_change = translatable("{memory}, change", memory=_MEMORY_KINDS[kind])
    rise_name = translatable("peak above the start")
    if max(len(a.gpus), len(b.gpus)) > 1:
        memory_peak = translatable("{metric}, highest of one GPU", metric=memory_peak)
        rise_name = translatable("{metric}, highest of one GPU", metric=rise_name)
        memory_change = translatable("{metric}, sum of all GPUs", metric=memory_change)
    change = ComparisonRow(
        memory_change,
        (units.memory_delta(first.start, first.end), units.memory_delta(other.start, other.end)),
        "",
    )
    peak = _row(memory_peak, first.peak, other.peak, units.memory)
    above = _row(rise_name, rise[0], rise[1], units.memory)
    return [row for row in (peak, above, change) if row is not None] + rows


def _common_kind(a: _Run, b: _Run) -> MemoryKind:
    """Return the kind of memory closest to the user's tensors that is known for both runs.

    If either run had child processes, torch's memory is not used, because torch's counters exclude the memory
    of child processes.
    """
    known = [set(run.report.memory_kinds()) for run in (a, b)]
    children = any(gpu.children for run in (a, b) for gpu in run.gpus)
    return next(
        kind for kind in _MEMORY_KINDS if kind in known[0] & known[1] and not (children and kind == "torch")
    )


def _rise(spans: Sequence[Span]) -> int | None:
    """Return the highest rise of any one GPU's memory, or None if any GPU's rise is unknown."""
    found = [
        None if None in (span.peak, span.start) else (span.peak or 0) - (span.start or 0) for span in spans
    ]
    known = [rise for rise in found if rise is not None]
    return max(known) if known and len(known) == len(found) else None


def _worker_rows(a: _Run, b: _Run) -> list[ComparisonRow]:
    """Return rows about the workers: their number, their highest memory and their longest mean step time."""
    workers = [run.report.workers for run in (a, b)]
    if not any(workers):
        return []
    numbers = [len({(worker.host, worker.pid, worker.name) for worker in rows}) for rows in workers]
    torch = all(worker.torch_allocated is not None for rows in workers for worker in rows)
    peaks = [
        _highest([worker.torch_allocated if torch else worker.memory for worker in rows]) for rows in workers
    ]
    steps = [
        max((worker.step_s for worker in rows if worker.step_s is not None), default=None) for rows in workers
    ]
    highest = (
        translatable("highest torch memory of a worker")
        if torch
        else translatable("highest memory of a worker")
    )
    rows = [
        ComparisonRow(translatable("workers"), (str(numbers[0]), str(numbers[1])), ""),
        _row(highest, peaks[0], peaks[1], units.memory),
        _row(translatable("longest mean step of a worker"), steps[0], steps[1], units.duration),
    ]
    return [row for row in rows if row is not None]


def _highest(spans: Sequence[Span | None]) -> int | None:
    """Return the highest peak, or None if any peak is unknown."""
    peaks = [None if span is None else span.peak for span in spans]
    known = [peak for peak in peaks if peak is not None]
    return max(known) if known and len(known) == len(peaks) else None


def _metric_rows(a: _Run, b: _Run, reasons: _Reasons) -> list[ComparisonRow]:
    found = []
    steady = a.part is not None
    for name, metric, text in _TIMELINE_METRICS:
        over = sum if metric == "power_w" else _mean
        values = [_over_gpus(run, metric, over) for run in (a, b)]
        title = translatable("{metric}, steady part", metric=name) if steady else name
        title = _over_all(title, a, b, is_sum=metric == "power_w")
        row = _row(title, values[0], values[1], text)
        found += [row] if row is not None else []
        _explain(a, b, values, metric, name, reasons)
    for name, field in _OTHER_METRICS:
        values = [_mean_level([getattr(gpu, field) for gpu in run.gpus]) for run in (a, b)]
        title = _over_all(_whole_run(name) if steady else name, a, b)
        row = _row(title, values[0], values[1], units.percent)
        found += [row] if row is not None else []
        _explain(a, b, values, field, name, reasons)
    return found


def _over_gpus(run: _Run, metric: SteadyMetric, over: Callable[[list[float]], float]) -> float | None:
    """Return a metric combined over the run's GPUs by ``over``, or None if it is unknown for any GPU."""
    found: list[float | None] = []
    for gpu in run.gpus:
        level: Level | None = getattr(gpu, metric)
        # Over a whole run, the report has the mean, which needs no time series.
        if run.part not in (None, _WHOLE_RUN) and level is not None:
            found.append(steady_mean(run.report, gpu.uuid, metric, run.part))
        else:
            found.append(None if level is None else level.mean)
    known = [value for value in found if value is not None]
    return over(known) if known and len(known) == len(found) else None


def _mean_level(levels: Sequence[Level | None]) -> float | None:
    known = [level.mean for level in levels if level is not None]
    return _mean(known) if known and len(known) == len(levels) else None


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _energy_rows(a: _Run, b: _Run, reasons: _Reasons) -> list[ComparisonRow]:
    sums = []
    for run in (a, b):
        known = [gpu.energy_j for gpu in run.gpus if gpu.energy_j is not None]
        sums.append(sum(known) if known and len(known) == len(run.gpus) else None)
    name = translatable("energy")
    title = _over_all(_whole_run(name) if a.part is not None else name, a, b, is_sum=True)
    row = _row(title, sums[0], sums[1], units.energy)
    _explain(a, b, sums, "energy_j", name, reasons)
    return [] if row is None else [row]


def _over_all(metric: str, a: _Run, b: _Run, *, is_sum: bool = False) -> str:
    """Return the name of a row, with how its values are combined if a run has several GPUs."""
    if max(len(a.gpus), len(b.gpus)) < 2:
        return metric
    if is_sum:
        return translatable("{metric}, sum of all GPUs", metric=metric)
    return translatable("{metric}, mean of all GPUs", metric=metric)


def _whole_run(metric: str) -> str:
    return translatable("{metric}, whole run", metric=metric)


def _explain(
    a: _Run, b: _Run, values: Sequence[float | None], field: str, name: str, reasons: _Reasons
) -> None:
    """Add the reason why the metric is unknown, for each run in which it is unknown."""
    for run, value in zip((a, b), values, strict=True):
        if value is None and run.gpus:
            known = [gpu.missing[field] for gpu in run.gpus if field in gpu.missing]
            reason = known[0] if known else _TOO_FEW_SAMPLES
            reason = with_english(reason, clean_line(reason, summary.NOTE_LENGTH))
            names = reasons.setdefault((run.name, reason), [])
            if name not in names:  # if both runs have the same name, they share the entry
                names.append(name)


# -- differences between the environments, and notes -----------------------------------------------------


def _differences(a: _Run, b: _Run) -> list[ComparisonRow]:
    first, second = a.report, b.report
    found = [
        (name, *(getattr(report.environment, field) or default for report in (first, second)))
        for name, field, default in _ENVIRONMENT
    ]
    found.append((translatable("source"), _source(first), _source(second)))
    found.append((translatable("GPU model"), _models(a.gpus), _models(b.gpus)))
    found.append(("GPUs", _gpus(a.gpus), _gpus(b.gpus)))
    return [
        ComparisonRow(name, (_line(first), _line(other)), "")
        for name, first, other in found
        if first != other
    ]


def _line(value: str) -> str:
    return with_english(value, clean_line(value, 80))


def _source(report: Report) -> str:
    return report.source.kind if report.source.recording is None else report.source.recording


def _models(gpus: Sequence[GpuReport]) -> str:
    return ", ".join(dict.fromkeys(summary.model_name(gpu) for gpu in gpus)) or translatable("none")


def _gpus(gpus: Sequence[GpuReport]) -> str:
    # The start of the UUID is included, because the same number is a different GPU on another machine.
    return ", ".join(f"{summary.gpu_number(gpu)} ({gpu.uuid[:12]})" for gpu in gpus) or translatable("none")


def _notes(a: _Run, b: _Run) -> list[str]:
    found = []
    for run in (a, b):
        status = run.report.cell.status
        if status != "ok":
            ended = (
                translatable(
                    "{run} was stopped by an error: its values cover the part that ran.", run=run.name
                )
                if status == "error"
                else translatable("{run} was interrupted: its values cover the part that ran.", run=run.name)
            )
            found.append(ended)
        if not run.gpus:
            found.append(
                translatable(
                    "{run}: no GPU use detected; only time and host memory are compared.", run=run.name
                )
            )
        if run.report.source.recording is not None:
            found.append(
                translatable("{run}: the values come from a recording, not from the code.", run=run.name)
            )
        left_out = summary.not_counted_gpus(run.report)
        if run.gpus and left_out:
            found.append(
                translatable(
                    "{run}: its values leave out {gpus}, where no work of it was seen.",
                    run=run.name,
                    gpus=", ".join(map(gpu_name, left_out)),
                )
            )
        if any(note.id == notes.SHARED_GPUS for note in run.report.note_ids):
            found.append(
                translatable(
                    "{run}: other processes used the same GPU, so utilization, power and energy include "
                    "their work.",
                    run=run.name,
                )
            )
        if run.gpus and not run.report.attributed and run.report.source.recording is None:
            found.append(
                translatable(
                    "{run}: couldn't tell which GPUs it used, so its values cover all watched GPUs.",
                    run=run.name,
                )
            )
    if _models(a.gpus) != _models(b.gpus) and a.gpus and b.gpus:
        found.append(
            translatable("The GPUs are different models, so the ratios compare the GPUs as well as the code.")
        )
    if len(a.gpus) != len(b.gpus) and a.gpus and b.gpus:
        found.append(translatable("The numbers of GPUs differ."))
    return found + _warm_up_notes(a, b)


def _warm_up_notes(a: _Run, b: _Run) -> list[str]:
    if a.part is not None:
        whole = [run.name for run in (a, b) if run.part == _WHOLE_RUN]
        shutdown = any(run.part is not None and run.part.until < math.inf for run in (a, b))
        notes: list[str] = [
            translatable("Rates cover the steady part: after the warm-up, and before the workers' shutdown.")
            if shutdown
            else translatable("Rates cover the steady part, after the warm-up.")
        ]
        if whole:
            notes.append(
                translatable(
                    "{run} has no visible warm-up, so its rates cover the whole run.",
                    run=whole[0],
                )
            )
        return notes
    for run, other in ((a, b), (b, a)):
        if run.warm_up_s is not None:
            return [
                translatable(
                    "{run} began with {warm_up} of warm-up; the warm-up of {other} is unknown, so all "
                    "values cover the whole runs.",
                    run=run.name,
                    warm_up=units.duration(run.warm_up_s),
                    other=other.name,
                )
            ]
    return []
