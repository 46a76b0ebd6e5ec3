"""The text of the live chart as HTML: figures of the run so far, current readings, advice and axes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape

from gpuwidget.measure.progress import GpuProgress, Progress
from gpuwidget.model import units
from gpuwidget.model.readings import Reading
from gpuwidget.model.report import MemoryKind, sum_of_spans
from gpuwidget.model.samples import without_mig_parents
from gpuwidget.model.translation import _, counted, in_view_language, translatable
from gpuwidget.views import chart
from gpuwidget.views.chart import Chart, ChartPanels, Lane, tooltips
from gpuwidget.views.elements import Figure
from gpuwidget.views.headline import kept_qualifier, lead, peak_qualifier
from gpuwidget.views.styles import UTILIZATION, frame, quiet, segments
from gpuwidget.views.time_axis import TimeAxis

NO_GPU_IN_USE = translatable("This notebook holds no GPU memory yet.")
NOT_ATTRIBUTED = translatable("Couldn't tell which GPUs this notebook uses, so all are shown.")

NOT_LIVE = translatable("Not live: no update for over 10 s")
_HOVER_COLUMNS = 40
_BEAT_S = 4.0
"""The text of the readings changes at least this often, in seconds."""


@in_view_language
def run_header(progress: Progress) -> str:
    """Return the figures of the run so far, in the places of the card's figures."""
    time = Figure(units.duration(progress.elapsed_s), _("time"))
    return _header([lead(progress.label, [time, *_figures(progress)])])


def _figures(progress: Progress) -> list[Figure]:
    """Return memory, utilization and power over all GPUs, each counted once as in the card."""
    once = {gpu.uuid for gpu in without_mig_parents(gpu.gpu for gpu in progress.gpus)}
    gpus = [(gpu, gpu.so_far) for gpu in progress.gpus if gpu.so_far is not None and gpu.gpu.uuid in once]
    if not gpus:
        return []
    own = [so_far.process_memory for _gpu, so_far in gpus]
    held = [span for span in own if span is not None]
    kind: MemoryKind = "process" if progress.attributed and len(held) == len(gpus) else "device"
    spans = held if kind == "process" else [so_far.device_memory for _gpu, so_far in gpus]
    total = sum_of_spans(spans)
    highest, _so_far = gpus[max(range(len(spans)), key=lambda place: spans[place].peak or 0)]
    number = units.gpu_number(highest.gpu.index, highest.gpu.mig_index)
    added = units.memory_delta(total.start, total.end)
    only = highest.gpu.memory_total if len(gpus) == 1 else None
    return [
        Figure(
            units.memory(total.peak),
            _("peak memory"),
            ""
            if total.peak is None
            else peak_qualifier(kind, only, f"GPU {number}" if len(gpus) > 1 else None),
        ),
        Figure(added, _("memory added"), "" if added == units.UNKNOWN else kept_qualifier(kind, len(gpus))),
        _busy([so_far.utilization for _gpu, so_far in gpus]),
        _total_power([gpu.reading for gpu, _so_far in gpus]),
    ]


def _busy(means: list[float | None]) -> Figure:
    known = [mean for mean in means if mean is not None]
    return Figure(units.percent(sum(known) / len(known) if known else None), _("GPU busy"), _("mean so far"))


def _total_power(readings: list[Reading]) -> Figure:
    known = [reading.power_w for reading in readings if reading.power_w is not None]
    limits = [reading.power_limit_w for reading in readings if reading.power_limit_w is not None]
    if not known or len(known) < len(readings):
        return Figure(units.UNKNOWN, _("power"))
    limit = sum(limits) if len(limits) == len(readings) else None
    return Figure(
        units.power(sum(known)), _("power"), _("of {limit}", limit=units.power(limit)) if limit else ""
    )


def _legend(progress: Progress) -> str:
    if not progress.gpus:
        return ""
    keys = (("busy", _("GPU utilization, %")), ("memory", _("GPU memory, %")))
    return "".join(
        '<span class="gpuwidget-quiet">'
        f'<i class="gpuwidget-key gpuwidget-key-{name}"></i>{escape(text)}</span>'
        for name, text in keys
    )


def _recording(progress: Progress) -> str:
    label = progress.origin.recording if progress.origin is not None else None
    return "" if label is None else _chip(_(label))


def _workers(progress: Progress) -> str:
    number = _(counted(progress.workers, "{number} worker", "{number} workers"))
    return f"{number}: {_(units.memory(progress.worker_memory))}"


@in_view_language
def dashboard_header(progress: Progress) -> str:
    """Return the header of the dashboard: legend, and notes on the data."""
    if progress.gpus:
        return _header([_legend(progress), _recording(progress)])
    reason = (progress.origin.reason if progress.origin is not None else None) or translatable(
        "No GPU is known yet."
    )
    return _header([f"<span>{escape(_(reason))}</span>", _recording(progress)])


def _header(parts: Iterable[str]) -> str:
    return f'<div class="gpuwidget-header">{"".join(parts)}</div>'


@in_view_language
def readings(progress: Progress, layout: ChartPanels, now: float, *, overview: bool = False) -> str:
    """Return the header, the current readings of each GPU next to its plot, and a run's last line.

    ``now`` is the current time in epoch seconds. If ``overview`` is True, return the readings of the
    dashboard, which has another header and no last line.
    """
    block = _tile if layout.tiles else _row
    grid = _grid(block(gpu, now) for gpu in progress.gpus)
    if overview:
        return _staleness(now) + dashboard_header(progress) + grid
    return _staleness(now) + run_header(progress) + grid + last_line(progress)


def _staleness(now: float) -> str:
    """Return a text that the style sheet shows 10 s after the last update, as when the kernel has died.

    Each update replaces the element. It differs from the one before, because equal texts are not sent.
    """
    beat = int(now // _BEAT_S) % 2
    return f'<i class="gpuwidget-not-live" data-beat="{beat}" data-text="{escape(_(NOT_LIVE))}"></i>'


@in_view_language
def last_line(progress: Progress) -> str:
    """Return the line below a run's charts: the advice, or else the legend, the newest mark and notes.

    The line takes up space even if it is empty.
    """
    advice = progress.advice
    if advice is not None and progress.gpus:
        label = _("Advice") if advice.sure else _("Advice (unsure)")
        text, fix = escape(_(advice.text)), escape(_(advice.fix))
        line = (
            f'<span title="{text} {fix}"><span class="gpuwidget-quiet">{escape(label)}:</span> {text} '
            f'<span class="gpuwidget-quiet">{fix}</span></span>'
        )
    else:
        notes = escape(" · ".join(_notes(progress)))
        line = f'{_legend(progress)}<span class="gpuwidget-quiet" title="{notes}">{notes}</span>'
    return f'<div class="gpuwidget-last">{line}{_recording(progress)}</div>'


def _notes(progress: Progress) -> Iterator[str]:
    mark = next((mark.label for mark in reversed(progress.marks) if mark.kind == "mark"), None)
    if mark is not None:
        yield mark
    if progress.workers:
        yield _workers(progress)
    if not progress.gpus:
        yield _(NO_GPU_IN_USE)
    # Leave out this note for a recording. The recording's label already implies that this notebook does not
    # use the GPUs shown.
    elif not progress.attributed and (progress.origin is None or progress.origin.recording is None):
        yield _(NOT_ATTRIBUTED)


@in_view_language
def hover(progress: Progress, layout: ChartPanels, axis: TimeAxis) -> str:
    """Return columns over the plots of rows, each with the values at its time; tiles have none."""
    if layout.tiles or not progress.gpus or not progress.t:
        return ""
    end = progress.t[-1]
    texts = tooltips(_static_chart(progress, end), _HOVER_COLUMNS, axis.label)
    columns = "".join(f'<i data-text="{escape(text)}"></i>' for text in texts)
    place = f"height:{layout.total_height}px;--gpuwidget-shown:{end / axis.end_s:.4f}"
    return f'<div class="gpuwidget-hover" style="{place}">{columns}</div>'


def _static_chart(progress: Progress, end: float) -> Chart:
    lanes = tuple(
        Lane(
            f"GPU {units.gpu_number(gpu.gpu.index, gpu.gpu.mig_index)}",
            gpu.utilization,
            gpu.device_memory,
            gpu.gpu.memory_total,
        )
        for gpu in progress.gpus
    )
    return Chart(progress.t, end, lanes, progress.marks, _("live GPU chart"))


@in_view_language
def plain_html(progress: Progress, now: float) -> str:
    """Return the view of a run so far for a front end without widgets: figures and chart, as in a card.

    ``now`` is the current time in epoch seconds. It is shown, because the view stays as it is if the kernel
    dies.
    """
    drawn = progress.gpus and len(progress.t) >= chart.MIN_POINTS
    plots = chart.html(_static_chart(progress, progress.t[-1]), 0) if drawn else ""
    updated = _("Live view, updated at {time}", time=units.clock_time(now))
    notes = segments([updated, *_notes(progress)])
    return frame(f"{run_header(progress)}{plots}{quiet(notes)}{_recording(progress)}", UTILIZATION)


@in_view_language
def axes(layout: ChartPanels, axis: TimeAxis) -> str:
    """Return the area of each plot with the labels of its axes; tiles have no labels."""
    numbers = ""
    if not layout.tiles:
        numbers = "".join(f'<span style="left:{place:g}%">{number}</span>' for place, number in axis.labels)
        numbers += "".join(f'<i style="bottom:{percent}%">{percent}</i>' for percent in (0, 50, 100))
    place = f"margin-top:{layout.top}px;height:{layout.height}px"
    plot = f'<div class="gpuwidget-plot" style="{place}">{numbers}</div>'
    return _header([]) + _grid([plot] * layout.panels)


def _grid(blocks: Iterable[str]) -> str:
    return f'<div class="gpuwidget-grid">{"".join(blocks)}</div>'


def _row(gpu: GpuProgress, now: float) -> str:
    reading = gpu.reading
    memory = f"<span>{_memory(gpu)}</span> {_process_memory(gpu)}"
    power = _by_width(_power(reading, limit=True), _power(reading, limit=False))
    return (
        '<div class="gpuwidget-block">'
        f'<div class="gpuwidget-row">{_gpu_name(gpu)}{_utilization(reading)}</div>'
        f"{_bar(gpu)}"
        f'<div class="gpuwidget-values">{memory}</div>'
        f'<div class="gpuwidget-quiet">{escape(_counters(reading))}</div>'
        f'<div class="gpuwidget-quiet">{power} · {_temperature(reading)} {_problem(reading, now)}</div>'
        "</div>"
    )


def _tile(gpu: GpuProgress, now: float) -> str:
    reading = gpu.reading
    power = f"{_power(reading, limit=False)}{_by_width(f' · {_temperature(reading)}', '')}"
    used = "" if reading.lost_since is not None else units.memory(reading.memory_used)
    return (
        '<div class="gpuwidget-block">'
        f'<div class="gpuwidget-row">{_gpu_name(gpu)}{_utilization(reading)}</div>'
        f'<div class="gpuwidget-foot">{_by_width(_memory(gpu), used)}</div>'
        f'<div class="gpuwidget-foot">{_process_memory(gpu)}</div>'
        f'<div class="gpuwidget-foot gpuwidget-quiet">{_problem(reading, now) or power}</div>'
        "</div>"
    )


def _by_width(wide: str, narrow: str) -> str:
    """Return HTML that is ``wide``, or ``narrow`` in a narrow chart."""
    return f'<span class="gpuwidget-wide">{wide}</span><span class="gpuwidget-narrow">{narrow}</span>'


def _counters(reading: Reading) -> str:
    """Return how busy the multiprocessors and the tensor cores are, as far as the GPU counts it."""
    activity = None if reading.lost_since is not None else reading.activity
    if activity is None:
        return ""
    counters = (("SM", activity.sm), (_("tensor"), activity.tensor))
    return " · ".join(f"{name} {units.percent(value)}" for name, value in counters if value is not None)


def _gpu_name(gpu: GpuProgress) -> str:
    name = escape(gpu.gpu.name)
    badge = (
        f'<span class="gpuwidget-badge">{escape(gpu.torch_device)}</span>'
        if gpu.torch_device is not None
        else ""
    )
    return (
        f"<b>{units.gpu_number(gpu.gpu.index, gpu.gpu.mig_index)}</b>"
        f'<span class="gpuwidget-name" title="{name}">{name.removeprefix("NVIDIA ")}</span>{badge}'
    )


def _bar(gpu: GpuProgress) -> str:
    """Return a bar of the GPU's memory, divided into the parts of this notebook and of all other
    processes."""
    total, used = gpu.gpu.memory_total, gpu.reading.memory_used
    if not total or used is None or gpu.reading.lost_since is not None:
        return '<div class="gpuwidget-bar"></div>'
    # The memory of a process and of the GPU are read at different times, so the process may seem to use more
    # memory than the GPU.
    own = min(gpu.process_memory or 0, used)
    parts = (("gpuwidget-bar-here", own), ("gpuwidget-bar-other", used - own))
    bars = "".join(f'<i class="{name}" style="width:{100 * part / total:.1f}%"></i>' for name, part in parts)
    return f'<div class="gpuwidget-bar">{bars}</div>'


def _process_memory(gpu: GpuProgress) -> str:
    if gpu.process_memory is None or gpu.reading.lost_since is not None:
        return ""
    size = units.memory(gpu.process_memory)
    return f'<span class="gpuwidget-here">{escape(_("mine {size}", size=size))}</span>'


def _utilization(reading: Reading) -> str:
    if reading.lost_since is not None or reading.utilization is None:
        return f'<span class="gpuwidget-busy">{_unknown(reading, "utilization")}</span>'
    return f'<span class="gpuwidget-busy"><b>{units.whole_number(reading.utilization)}</b> %</span>'


def _problem(reading: Reading, now: float) -> str:
    """Return a chip if the GPU is lost or does not answer; otherwise an empty string."""
    if reading.lost_since is not None:
        return _chip(_("lost since {time}", time=units.clock_time(reading.lost_since)))
    if reading.silent_since is not None:
        seconds = max(0.0, now - reading.silent_since)
        return _chip(_("no answer for {seconds:.0f} s", seconds=seconds))
    return ""


def _chip(text: str) -> str:
    return f'<span class="gpuwidget-chip" title="{escape(text)}">{escape(text)}</span>'


def _memory(gpu: GpuProgress) -> str:
    if gpu.reading.lost_since is not None or gpu.reading.memory_used is None:
        return _unknown(gpu.reading, "memory_used")
    if gpu.gpu.memory_total is None:
        return _("{size} used", size=units.memory(gpu.reading.memory_used))
    size = units.memory_of(gpu.reading.memory_used, gpu.gpu.memory_total)
    return _("{size} unified", size=size) if gpu.gpu.unified_memory else _(size)


def _power(reading: Reading, limit: bool) -> str:
    if reading.lost_since is not None or reading.power_w is None:
        return _unknown(reading, "power_w")
    return _(units.power_of(reading.power_w, reading.power_limit_w if limit else None))


def _temperature(reading: Reading) -> str:
    if reading.lost_since is not None or reading.temperature_c is None:
        return _unknown(reading, "temperature_c")
    return units.temperature(reading.temperature_c)


def _unknown(reading: Reading, field: str) -> str:
    reason = reading.missing.get(field, translatable("not known yet"))
    return f'<span title="{escape(_(reason))}">{units.UNKNOWN}</span>'
