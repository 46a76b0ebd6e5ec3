"""Compare the reports of two runs, and format the comparison as text for a terminal and as static HTML.

The direction comes first, then both runs' utilization in one chart, then the values that differ.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from html import escape
from typing import Any, NamedTuple, TypeVar

from gpuwidget.measure.notes import SHARED_GPUS, gpu_name
from gpuwidget.measure.steady_state import SteadyMetric, SteadyWindow, steady_mean, stored_window
from gpuwidget.model import units
from gpuwidget.model.metrics import REPORTED
from gpuwidget.model.report import GpuReport, Level, MemoryKind, Report, Span
from gpuwidget.model.terminal_text import clean_line, printable_lines
from gpuwidget.model.translation import (
    _,
    counted,
    in_view_language,
    joined,
    translatable,
    with_english,
    with_params,
)
from gpuwidget.views import card_summary as summary
from gpuwidget.views import elements, styles
from gpuwidget.views.chart import Chart, Lane
from gpuwidget.views.chart import html as chart_html
from gpuwidget.views.saved_outputs import output_metadata
from gpuwidget.views.styles import LEFT, QUIET

_T = TypeVar("_T")
_NAME_LENGTH = 40
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
_TOO_FEW_SAMPLES = translatable("the time series has too few values in the steady part")
_DIFFERENCES = translatable("Differences between the runs' environments")
_WHOLE_RUN = SteadyWindow(0.0, math.inf)
_NONZERO_DIGITS = frozenset("123456789")
_SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
_POINTS = 120
_HOVER_COLUMNS = 30
_COLORS: dict[bool | None, str] = {
    better: f";color:{color}" for better, color in ((True, styles.SUCCESS), (False, styles.ERROR))
}
"""The color of a change for the better and the worse."""
_MANY_TIMES = 10.0
"""From this ratio on, a change is shown as a factor, because a percentage would be hard to read."""
_LEAST_VERDICT, _LEAST_EXACT = 0.03, 0.01
"""A smaller relative change of most values, and of torch's exact peaks, is neither better nor worse, because
equal runs differ as much."""


@dataclass(frozen=True, slots=True)
class ComparisonRow:
    """One metric of both runs."""

    name: str
    values: tuple[str, str]
    change: str = ""
    """The signed change from the first to the second value, such as ``+3 %``; empty if it has no meaning."""
    is_better: bool | None = None
    """Whether the change is for the better; None if it is neither better nor worse."""
    footnotes: tuple[int, int] = (0, 0)
    """The number of the footnote of each value, or 0."""


@dataclass(frozen=True, slots=True, repr=False)
class Comparison:
    """The comparison of two runs, which is displayed as a table."""

    names: tuple[str, str]
    direction: str | None
    """How much faster or slower the second run was; None if a run did not finish."""
    rows: tuple[ComparisonRow, ...]
    differences: tuple[ComparisonRow, ...]
    """The differences between the environments: versions, devices, GPUs."""
    footnotes: tuple[str, ...]
    """The reasons for unknown values, in the order of their numbers."""
    notes: tuple[str, ...]
    """Notes about limits of the comparison."""
    chart: Chart | None
    """The utilization of both runs; None if it is unknown for both."""

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
        differing, equal = self._split()
        lines = [self._headline()]
        lines += styles.text_table([self._header(), *map(_cells, differing)]) if differing else []
        if equal:
            hidden = counted(
                len(equal), "Not shown: {number} equal value", "Not shown: {number} equal values"
            )
            lines.append(f"  {_(hidden)}")
        if self.differences:
            lines += [f"  {_(_DIFFERENCES)}:", *styles.text_table(self._differences(), left=3)]
        return printable_lines("\n".join([*lines, *(f"  {note}" for note in self._notes())]))

    @in_view_language
    def _html(self) -> str:
        differing, equal = self._split()
        parts = [f"<div><b>{escape(self._headline())}</b></div>", self._chart(), self._table(differing)]
        title = counted(len(equal), "{number} equal value", "{number} equal values")
        parts.append(elements.folds([elements.fold(_(title), self._table(equal))]))
        if self.differences:
            table = styles.html_table(self._differences(), left=3)
            parts.append(elements.folds([elements.fold(_(_DIFFERENCES), table, opened=True)]))
        notes = "".join(f"<div>{escape(note)}</div>" for note in self._notes())
        parts += [f"<div style='{QUIET};font-size:11px;margin-top:4px'>{notes}</div>"] if notes else []
        return styles.frame("".join(parts), styles.UTILIZATION)

    def _split(self) -> tuple[list[ComparisonRow], list[ComparisonRow]]:
        """Return the rows whose values differ, and the rows with equal values.

        A change for the better or the worse may be too small to be seen in the rounded values.
        """
        rows: tuple[list[ComparisonRow], list[ComparisonRow]] = [], []
        for row in self.rows:
            rows[row.values[0] == row.values[1] and row.is_better is None].append(row)
        return rows

    def _chart(self) -> str:
        if self.chart is None:
            return ""
        first, second = map(_, self.names)
        title = _(self.chart.label)
        chart = replace(self.chart, label=f"{title}: {first}, {second}", runs=(first, second))
        caption = f"<div style='{QUIET};font-size:11px'>{escape(title)}</div>"
        return f"{caption}{chart_html(chart, _HOVER_COLUMNS)}"

    def _headline(self) -> str:
        runs = f" {units.ARROW} ".join(map(_, self.names))
        return (
            runs
            if self.direction is None
            else _("{runs}: {direction}", runs=runs, direction=_(self.direction))
        )

    def _header(self) -> list[str]:
        return ["", *map(_, self.names), _("change")]

    def _table(self, rows: Sequence[ComparisonRow]) -> str:
        if not rows:
            return ""
        normal = "font-weight:400"
        _corner, *names, last = self._header()
        # An empty header confuses screen readers.
        head = "<td></td>" + "".join(
            f"<th scope='col' style='{normal}'>{escape(name)}</th>" for name in names
        )
        head += f"<th scope='col' style='{normal};{LEFT}'>{escape(last)}</th>"
        body = "".join(
            f"<tr style='background:none'><th scope='row' style='{LEFT};{normal}'>"
            f"<span style='{QUIET}'>{escape(name)}</span></th>"
            f"{''.join(f'<td>{styles.unbroken(value)}</td>' for value in values)}"
            f"<td style='{LEFT}{_COLORS.get(row.is_better, '')}'>{styles.unbroken(changed)}</td></tr>"
            for row in rows
            for name, *values, changed in [_cells(row)]
        )
        return (
            f"<div style='overflow-x:auto'><table cellpadding='4' style='{styles.AUTO_TABLE}font-size:12px'>"
            f"<thead><tr style='{QUIET}'>{head}</tr></thead><tbody>{body}</tbody></table></div>"
        )

    def _differences(self) -> list[list[str]]:
        rows = ([_(row.name), *map(_, row.values)] for row in self.differences)
        return [["", *map(_, self.names)], *rows]

    def _notes(self) -> list[str]:
        footnotes = [f"{_superscript(number)} {_(text)}" for number, text in enumerate(self.footnotes, 1)]
        return [*footnotes, *map(_, self.notes)]


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
    rows = _Rows(a, b)
    _add_time(rows)
    _add_memory(rows)
    _add_metrics(rows)
    _add_workers(rows)
    return Comparison(
        names=names,
        direction=_direction(first, second),
        rows=tuple(rows.rows),
        differences=tuple(_differences(a, b)),
        footnotes=tuple(rows.footnotes),
        notes=(*_notes(a, b), *rows.unknown_in_both()),
        chart=_chart(a, b),
    )


class LastRun(NamedTuple):
    """How a run differs from the last run of the same cell."""

    changes: str
    numbers: tuple[int, int] | None
    """The N of In[N] of both runs, by which ``%gpu compare`` finds them. None if it can't find one."""


def since_last_run(last: Report, report: Report) -> LastRun | None:
    """Return the changes of time and peak memory since ``last``; None if a run did not finish."""
    before, now = last.cell.execution_count, report.cell.execution_count
    numbers = None if before is None or now is None else (before, now)
    if _direction(last, report) is None:
        return None
    a, b = (_Run("", one, one.counted, None) for one in (last, report))
    rows = _Rows(a, b)
    rows.add("time", _until_finished(last, report), units.duration)
    same_gpus = {gpu.uuid for gpu in a.gpus} == {gpu.uuid for gpu in b.gpus}
    if a.gpus and same_gpus and not rows.has_recording:
        rows.add("peak", [memory.peak for memory in _memory(a, b)[1]], units.memory)
    found = {row.name: row.change for row in rows.rows}
    time, peak = found.get("time"), found.get("peak")
    if not time:
        return None
    if not peak:
        return LastRun(translatable("vs. last run: time {time}", time=time), numbers)
    changes = translatable("vs. last run: time {time}, peak {peak}", time=time, peak=peak)
    return LastRun(changes, numbers)


def run_name(report: Report, default: str) -> str:
    """Return the cell number and the label of a report, or ``default`` if it has neither."""
    cell = report.cell
    parts = [] if cell.execution_count is None else [f"In [{cell.execution_count}]"]
    parts += [] if cell.label is None else [clean_line(cell.label, _NAME_LENGTH)]
    return " ".join(parts) or with_english(default, clean_line(default, _NAME_LENGTH))


# -- the direction, and the utilization of both runs -------------------------------------------------------


def _direction(first: Report, second: Report) -> str | None:
    """Return how much faster or slower the second run was; None if one did not finish or took no time, and if
    it is unknown when its GPUs finished."""
    times = [time for time in _until_finished(first, second) if time is not None]
    if any(report.cell.status != "ok" for report in (first, second)) or len(times) < 2 or min(times) <= 0:
        return None
    before, after = times
    is_faster = _verdict(before, after)
    if is_faster is None:
        equal = units.duration(before) == units.duration(after)
        return translatable("the same time") if equal else translatable("about the same time")
    factor = max(times) / min(times)
    text = f"{factor:.0f}" if factor >= 99.5 else f"{factor:.1f}" if factor >= 1.95 else f"{factor:.2f}"
    if is_faster:
        return translatable("{factor}\N{MULTIPLICATION SIGN} faster", factor=text)
    return translatable("{factor}\N{MULTIPLICATION SIGN} slower", factor=text)


def _have_tail(*reports: Report) -> bool:
    """Return whether the GPU worked visibly longer than the code in any of the runs."""
    cells = [report.cell for report in reports]
    tails = [(cell.duration_s, cell.gpu_tail_s or 0.0) for cell in cells]
    return any(
        tail >= summary.NEGLIGIBLE_WAIT_S and units.duration(code) != units.duration(code + tail)
        for code, tail in tails
    )


def _until_finished(*reports: Report) -> list[float | None]:
    """Return how long each run took until its GPUs had finished; None if that is unknown.

    Code that only starts work on the GPU ends early, so the time of the code says little about such runs.
    """
    cells = [report.cell for report in reports]
    if all(cell.gpu_tail_s is None for cell in cells):
        return [cell.duration_s for cell in cells]
    return [None if cell.gpu_tail_s is None else cell.duration_s + cell.gpu_tail_s for cell in cells]


def _chart(a: _Run, b: _Run) -> Chart | None:
    """Return a chart of the mean utilization of each run's GPUs, on one time axis that reaches to the end of
    the longer run."""
    both = [_mean_utilization(run) for run in (a, b)]
    whole = max((t[-1] for t, _values in both if t), default=0.0)
    if not whole:
        return None
    times = [whole * number / _POINTS for number in range(1, _POINTS + 1)]
    first, second = (tuple(_value_at(series, t, whole / _POINTS) for t in times) for series in both)
    label = (
        translatable("mean GPU utilization, %")
        if _has_several_gpus(a, b)
        else translatable("GPU utilization, %")
    )
    return Chart(tuple(times), whole, (Lane("", second, (), None, first),), (), label)


_Series = tuple[Sequence[float], Sequence[float | None]]
"""Times in seconds into the run, and the value at each of them."""


def _mean_utilization(run: _Run) -> _Series:
    """Return the mean utilization of a run's GPUs at the times of its samples; empty if unknown."""
    timeline = run.report.timeline
    uuids = {gpu.uuid for gpu in run.gpus}
    gpus = [gpu for gpu in timeline.gpus if gpu.uuid in uuids] if timeline is not None else []
    if timeline is None or not gpus:
        return (), ()
    rows = zip(*(gpu.utilization for gpu in gpus), strict=True)
    means = [_if_all_known(row, _mean) for row in rows]
    return (timeline.t, means) if any(mean is not None for mean in means) else ((), ())


def _value_at(series: _Series, t: float, step: float) -> float | None:
    """Return the value of the sample at ``t`` or the first one after it; None after the run's end."""
    times, values = series
    place = bisect_left(times, t)
    if place == len(times):
        # The last point of the axis that belongs to the run may be up to a step after its last sample.
        return values[-1] if times and t < times[-1] + step else None
    return values[place]


# -- how a comparison is shown ---------------------------------------------------------------------------


def change(first: float | None, second: float | None) -> str:
    """Return the signed relative change as text; empty if either is unknown, or if ``first`` is zero."""
    if first is None or second is None or not (math.isfinite(first) and math.isfinite(second)):
        return ""
    if first <= 0 or second < 0:
        return ""
    ratio = second / first
    if ratio >= _MANY_TIMES:
        return f"\N{MULTIPLICATION SIGN}{ratio:.0f}"
    percent = units.percent(100 * abs(ratio - 1))
    if percent == "100 %" and 0 < ratio < 1:
        return f"> {units.MINUS}99 %"
    if not set(percent) & _NONZERO_DIGITS:
        return "±0 %"
    return f"{'+' if ratio > 1 else units.MINUS}{percent}"


def _cells(row: ComparisonRow) -> list[str]:
    values = [
        f"{_(value)}{_superscript(number)}" for value, number in zip(row.values, row.footnotes, strict=True)
    ]
    change = _(row.change)
    if row.is_better is not None:
        change = _("{change} better", change=change) if row.is_better else _("{change} worse", change=change)
    return [_(row.name), *values, change]


def _superscript(number: int) -> str:
    return str(number).translate(_SUPERSCRIPTS) if number else ""


# -- the rows of a comparison ----------------------------------------------------------------------------


class _Rows:
    """Collects the rows of a comparison, and the reasons for unknown values."""

    def __init__(self, a: _Run, b: _Run) -> None:
        self.a, self.b = a, b
        self.rows: list[ComparisonRow] = []
        self.footnotes: dict[str, int] = {}
        """The number of each reason for a value that is unknown in one run only."""
        self._unknown: dict[tuple[str, ...], list[str]] = {}
        """The names of the metrics that are unknown in both runs, by the reasons."""

    def add(
        self,
        name: str,
        values: Sequence[float | None],
        text: Callable[[float | None], str],
        *,
        lower_is_better: bool = False,
        field: str | None = None,
        metric: str | None = None,
        least: float = _LEAST_VERDICT,
    ) -> None:
        """Add a row, unless the value is unknown in both runs.

        ``field`` is the GPU field that has the reason for an unknown value, and ``metric`` its name.
        ``least`` is the relative change from which on the second value is better or worse.
        """
        first, second = values
        reasons = [
            "" if field is None or value is not None else _reason(run, field)
            for run, value in zip((self.a, self.b), values, strict=True)
        ]
        if first is None and second is None:
            known = tuple(dict.fromkeys(reason for reason in reasons if reason))
            if known:
                self._unknown.setdefault(known, []).append(metric or name)
            return
        shown = (text(first), text(second))
        changed = ""
        if text is units.percent:
            changed = _points(first, second)
        elif all(set(value) & _NONZERO_DIGITS for value in shown):
            # A relative change is meaningless if either value is displayed as zero.
            changed = change(first, second)
        better = None
        if lower_is_better and changed and first and second is not None and self._finished:
            better = _verdict(first, second, least)
        numbers = [
            self.footnotes.setdefault(reason, len(self.footnotes) + 1) if reason else 0 for reason in reasons
        ]
        self.rows.append(ComparisonRow(name, shown, changed, better, (numbers[0], numbers[1])))

    def unknown_in_both(self) -> list[str]:
        """Return a note for each reason why metrics are unknown in both runs."""
        return [
            translatable("{metrics}: {reason}", metrics=joined(names), reason=joined(reasons, "; "))
            for reasons, names in self._unknown.items()
        ]

    @property
    def has_recording(self) -> bool:
        """Whether values of GPUs come from a recording, which says nothing about the code."""
        return any(run.report.source.recording is not None for run in (self.a, self.b))

    @property
    def _finished(self) -> bool:
        return all(run.report.cell.status == "ok" for run in (self.a, self.b))


def _verdict(first: float, second: float, least: float = _LEAST_VERDICT) -> bool | None:
    """Return whether the lower ``second`` is better; None if the change is smaller than ``least``."""
    return second < first if abs(second / first - 1) >= least else None


def _points(first: float | None, second: float | None) -> str:
    """Return the change of a percentage in percentage points."""
    if first is None or second is None:
        return ""
    difference = second - first
    number = units.percent_number(abs(difference))
    signed = f"{'+' if difference > 0 else units.MINUS}{number}" if set(number) & _NONZERO_DIGITS else "±0"
    return translatable("{number} points", number=signed)


def _reason(run: _Run, field: str) -> str:
    """Return why a field is unknown; empty for a run without GPUs, which has a note."""
    if not run.gpus:
        return ""
    known = [gpu.missing[field] for gpu in run.gpus if field in gpu.missing]
    reason = known[0] if known else _TOO_FEW_SAMPLES
    return with_english(reason, clean_line(reason, summary.NOTE_LENGTH))


def _add_time(rows: _Rows) -> None:
    a, b = rows.a, rows.b
    cells = (a.report.cell, b.report.cell)
    until_finished = _have_tail(a.report, b.report)
    code = [cell.duration_s for cell in cells]
    rows.add(translatable("time"), code, units.duration, lower_is_better=not until_finished)
    if a.part is not None and b.part is not None:
        rows.add(translatable("of which warm-up"), (a.warm_up_s, b.warm_up_s), units.duration)
        parts = [
            max(0.0, min(part.until, cell.duration_s) - part.since)
            for part, cell in zip((a.part, b.part), cells, strict=True)
        ]
        rows.add(translatable("of which steady part"), parts, units.duration)
    if until_finished:
        done = _until_finished(a.report, b.report)
        rows.add(translatable("time until the GPU finished"), done, units.duration, lower_is_better=True)


def _add_memory(rows: _Rows) -> None:
    a, b = rows.a, rows.b
    if a.gpus and b.gpus:
        kind, both = _memory(a, b)
        memory_peak = (
            translatable("{memory}, peak", memory=_MEMORY_KINDS[kind])
            if kind == "torch"
            else translatable("{memory}, sampled peak", memory=_MEMORY_KINDS[kind])
        )
        memory_change = translatable("{memory}, change", memory=_MEMORY_KINDS[kind])
        rise_name = translatable("peak above the start")
        if _has_several_gpus(a, b):
            memory_peak = translatable("{metric}, highest of one GPU", metric=memory_peak)
            rise_name = translatable("{metric}, highest of one GPU", metric=rise_name)
            memory_change = translatable("{metric}, sum of all GPUs", metric=memory_change)
        least = _LEAST_EXACT if kind == "torch" else _LEAST_VERDICT
        add = partial(rows.add, text=units.memory, lower_is_better=not rows.has_recording, least=least)
        add(memory_peak, [memory.peak for memory in both])
        add(rise_name, [_rise(memory.spans) for memory in both])
        first, second = (units.memory_delta(memory.start, memory.end) for memory in both)
        rows.rows.append(ComparisonRow(memory_change, (first, second)))
    host = [run.report.host_memory.peak for run in (a, b)]
    rows.add(translatable("host memory, peak"), host, units.memory, lower_is_better=True)


def _memory(a: _Run, b: _Run) -> tuple[MemoryKind, list[summary.MemorySummary]]:
    """Return the kind of memory in which both runs are compared, and the memory of each."""
    kind = _common_kind(a, b)
    return kind, [summary.summarize_memory(run.report, kind) for run in (a, b)]


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
    rises = [None if span.peak is None or span.start is None else span.peak - span.start for span in spans]
    return _if_all_known(rises, max)


def _add_workers(rows: _Rows) -> None:
    """Add rows about the workers: their number, their highest memory and their longest mean step time."""
    workers = [run.report.workers for run in (rows.a, rows.b)]
    if not any(workers):
        return
    first, second = (len({(worker.host, worker.pid, worker.name) for worker in found}) for found in workers)
    rows.rows.append(ComparisonRow(translatable("workers"), (str(first), str(second))))
    torch = all(worker.torch_allocated is not None for found in workers for worker in found)
    peaks = [
        _highest([worker.torch_allocated if torch else worker.memory for worker in found])
        for found in workers
    ]
    highest = (
        translatable("highest torch memory of a worker")
        if torch
        else translatable("highest memory of a worker")
    )
    rows.add(highest, peaks, units.memory, lower_is_better=True)
    steps = [
        max((worker.step_s for worker in found if worker.step_s is not None), default=None)
        for found in workers
    ]
    rows.add(translatable("longest mean step of a worker"), steps, units.duration, lower_is_better=True)


def _highest(spans: Sequence[Span | None]) -> int | None:
    """Return the highest peak, or None if any peak is unknown."""
    return _if_all_known([None if span is None else span.peak for span in spans], max)


def _add_metrics(rows: _Rows) -> None:
    a, b = rows.a, rows.b
    steady = a.part is not None
    for name, metric, text in _TIMELINE_METRICS:
        is_sum = metric == "power_w"
        values = [_over_gpus(run, metric, sum if is_sum else _mean) for run in (a, b)]
        title = translatable("{metric}, steady part", metric=name) if steady else name
        rows.add(_row_name(title, a, b, is_sum=is_sum), values, text, field=metric, metric=name)
    for of, reported in REPORTED:
        if not reported.compared or reported.label is None:
            continue
        name, field = reported.label, reported.name
        values = [_mean_level([gpu.levels[field] for gpu in run.gpus]) for run in (a, b)]
        title = _row_name(_of_whole_run(name) if steady else name, a, b)
        rows.add(title, values, units.KINDS[of.kind].text, field=field, metric=name)
    name = translatable("energy")
    energies = [_if_all_known([gpu.energy_j for gpu in run.gpus], sum) for run in (a, b)]
    title = _row_name(_of_whole_run(name) if steady else name, a, b, is_sum=True)
    lower_is_better = not rows.has_recording
    rows.add(title, energies, units.energy, lower_is_better=lower_is_better, field="energy_j", metric=name)


def _if_all_known(values: Sequence[_T | None], combine: Callable[[list[_T]], _T]) -> _T | None:
    """Return the values combined into one, or None if there are none or any is unknown."""
    known = [value for value in values if value is not None]
    return combine(known) if known and len(known) == len(values) else None


def _over_gpus(run: _Run, metric: SteadyMetric, combine: Callable[[list[float]], float]) -> float | None:
    """Return a metric combined over the run's GPUs, or None if it is unknown for any GPU."""
    found: list[float | None] = []
    for gpu in run.gpus:
        level: Level | None = gpu.value(metric)
        # Over a whole run, the report has the mean, which needs no time series.
        if run.part not in (None, _WHOLE_RUN) and level is not None:
            found.append(steady_mean(run.report, gpu.uuid, metric, run.part))
        else:
            found.append(None if level is None else level.mean)
    return _if_all_known(found, combine)


def _mean_level(levels: Sequence[Level | None]) -> float | None:
    return _if_all_known([None if level is None else level.mean for level in levels], _mean)


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _has_several_gpus(*runs: _Run) -> bool:
    return any(len(run.gpus) > 1 for run in runs)


def _row_name(metric: str, a: _Run, b: _Run, *, is_sum: bool = False) -> str:
    """Return the name of a row, with how its values are combined if a run has several GPUs."""
    if not _has_several_gpus(a, b):
        return metric
    if is_sum:
        return translatable("{metric}, sum of all GPUs", metric=metric)
    return translatable("{metric}, mean of all GPUs", metric=metric)


def _of_whole_run(metric: str) -> str:
    return translatable("{metric}, whole run", metric=metric)


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
        ComparisonRow(name, (_line(first), _line(other))) for name, first, other in found if first != other
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


_UNFINISHED = {
    "error": translatable("{run} was stopped by an error: its values cover the part that ran.", run="{run}"),
    "interrupted": translatable("{run} was interrupted: its values cover the part that ran.", run="{run}"),
    "died": translatable("{run} died: its values end with its last sample.", run="{run}"),
}


def _notes(a: _Run, b: _Run) -> list[str]:
    found = []
    for run in (a, b):
        status = run.report.cell.status
        if status != "ok":
            found.append(with_params(_UNFINISHED[status], {"run": run.name}))
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
        if any(note.id == SHARED_GPUS.id for note in run.report.note_ids):
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
                    "Couldn't tell which GPUs {run} used, so its values cover all watched GPUs.",
                    run=run.name,
                )
            )
    if _models(a.gpus) != _models(b.gpus) and a.gpus and b.gpus:
        found.append(
            translatable(
                "The GPUs are different models, so the changes reflect the GPUs as well as the code."
            )
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
