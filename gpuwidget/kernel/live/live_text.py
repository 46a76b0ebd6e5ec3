"""The text of the live chart as HTML: header, current readings, advice and axes."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from gpuwidget.kernel.live.chart_layout import ChartLayout
from gpuwidget.measure.progress import GpuProgress, Progress
from gpuwidget.model import units
from gpuwidget.model.readings import Reading
from gpuwidget.model.translation import _, counted, in_view_language, translatable
from gpuwidget.views.time_axis import TimeAxis

NO_GPU_IN_USE = translatable("This notebook holds no GPU memory yet.")
NOT_ATTRIBUTED = translatable("Couldn't tell which GPUs this notebook uses, so all are shown.")

NOT_LIVE = translatable("Not live: no update for over 10 s")
_BEAT_S = 4.0
"""The text of the readings changes at least this often, in seconds."""
_EMPTY_HEADER = '<div class="gpuwidget-header"></div>'


@in_view_language
def run_header(progress: Progress) -> str:
    """Return the header of a run: elapsed time, legend, the newest mark, and notes on the data."""
    parts = [f'<b class="gpuwidget-elapsed">{escape(units.duration(progress.elapsed_s))}</b>']
    recording = progress.origin.recording if progress.origin is not None else None
    if progress.gpus:
        parts.append(_legend())
    else:
        parts.append(f"<span>{escape(_(NO_GPU_IN_USE))}</span>")
    # Leave out this note for a recording. The recording's label already implies that this notebook does not
    # use the GPUs shown.
    if progress.gpus and not progress.attributed and recording is None:
        note = 'class="gpuwidget-quiet gpuwidget-note"'
        text = escape(_(NOT_ATTRIBUTED))
        parts.append(f'<span {note} title="{text}">{text}</span>')
    if progress.workers:
        parts.append(f'<span class="gpuwidget-quiet">{escape(_workers(progress))}</span>')
    mark = next((mark.label for mark in reversed(progress.marks) if mark.kind == "mark"), None)
    if mark is not None:
        parts.append(f'<span class="gpuwidget-mark">{escape(mark)}</span>')
    if recording is not None:
        parts.append(_chip(_(recording)))
    return f'<div class="gpuwidget-header">{"".join(parts)}</div>'


def _legend() -> str:
    busy, memory = escape(_("GPU utilization")), escape(_("memory, % of the GPU"))
    return (
        '<span class="gpuwidget-quiet">'
        f'<span class="gpuwidget-key gpuwidget-key-busy"></span>{busy}'
        f'<span class="gpuwidget-key gpuwidget-key-memory"></span>{memory}</span>'
    )


def _workers(progress: Progress) -> str:
    number = _(counted(progress.workers, "{number} worker", "{number} workers"))
    return f"{number}: {_(units.memory(progress.worker_memory))}"


@in_view_language
def dashboard_header(progress: Progress) -> str:
    """Return the header of the dashboard: legend, and notes on the data."""
    origin = progress.origin
    parts = [_legend()]
    if not progress.gpus:
        reason = (origin.reason if origin is not None else None) or translatable("No GPU is known yet.")
        parts = [f"<span>{escape(_(reason))}</span>"]
    if origin is not None and origin.recording is not None:
        parts.append(_chip(_(origin.recording)))
    return f'<div class="gpuwidget-header">{"".join(parts)}</div>'


@in_view_language
def readings(progress: Progress, layout: ChartLayout, now: float, *, overview: bool = False) -> str:
    """Return the header, the current readings of each GPU next to its plot, and the advice for a run.

    ``now`` is the current time in epoch seconds. If ``overview`` is True, return the readings of the
    dashboard, which has another header and no advice.
    """
    block = _tile if layout.tiles else _row
    grid = _grid(block(gpu, now) for gpu in progress.gpus)
    if overview:
        return _staleness(now) + dashboard_header(progress) + grid
    return _staleness(now) + run_header(progress) + grid + advice_line(progress)


def _staleness(now: float) -> str:
    """Return a text that the style sheet shows 10 s after the last update, as when the kernel has died.

    Each update replaces the element. It differs from the one before, because equal texts are not sent.
    """
    beat = int(now // _BEAT_S) % 2
    return f'<i class="gpuwidget-not-live" data-beat="{beat}" data-text="{escape(_(NOT_LIVE))}"></i>'


@in_view_language
def advice_line(progress: Progress) -> str:
    """Return the advice below a run's charts; without advice, an empty line that reserves the space."""
    if not progress.gpus:
        return ""
    advice = progress.advice
    if advice is None:
        return '<div class="gpuwidget-advice"></div>'
    label = _("Advice") if advice.sure else _("Advice (unsure)")
    text, fix = escape(_(advice.text)), escape(_(advice.fix))
    return (
        f'<div class="gpuwidget-advice" title="{text} {fix}">'
        f'<span class="gpuwidget-quiet">{escape(label)}:</span> {text} '
        f'<span class="gpuwidget-quiet">{fix}</span></div>'
    )


@in_view_language
def axes(layout: ChartLayout, axis: TimeAxis) -> str:
    """Return the area of each plot with the labels of its axes; tiles have no labels."""
    numbers = ""
    if not layout.tiles:
        numbers = "".join(f'<span style="left:{place:g}%">{number}</span>' for place, number in axis.labels)
        numbers += "".join(f'<i style="bottom:{percent}%">{percent}</i>' for percent in (0, 50, 100))
    place = f"margin-top:{layout.top}px;height:{layout.height}px"
    plot = f'<div class="gpuwidget-plot" style="{place}">{numbers}</div>'
    return _EMPTY_HEADER + _grid([plot] * layout.panels)


def _grid(blocks: Iterable[str]) -> str:
    return f'<div class="gpuwidget-grid">{"".join(blocks)}</div>'


def _row(gpu: GpuProgress, now: float) -> str:
    reading = gpu.reading
    memory = " · ".join(filter(None, (_memory(gpu), _process_memory(gpu))))
    power = f"{_power(reading, limit=True)} · {_temperature(reading)}"
    return (
        '<div class="gpuwidget-block">'
        f'<div class="gpuwidget-row">{_gpu_name(gpu)}{_utilization(reading)}</div>'
        f"{_bar(gpu)}"
        f"<div>{memory}</div>"
        f'<div class="gpuwidget-quiet">{power} {_problem(reading, now)}</div>'
        "</div>"
    )


def _tile(gpu: GpuProgress, now: float) -> str:
    reading = gpu.reading
    temperature = f'<span class="gpuwidget-quiet">{_temperature(reading)}</span>'
    power = f'<span class="gpuwidget-quiet">{_power(reading, limit=False)}</span>'
    return (
        '<div class="gpuwidget-block">'
        f'<div class="gpuwidget-row">{_gpu_name(gpu)}{_utilization(reading)}</div>'
        f'<div class="gpuwidget-row gpuwidget-foot"><span>{_memory(gpu)}</span>{power}</div>'
        '<div class="gpuwidget-row gpuwidget-foot">'
        f"<span>{_process_memory(gpu)}</span>{_problem(reading, now) or temperature}</div>"
        "</div>"
    )


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
