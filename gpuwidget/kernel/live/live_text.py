"""What the live chart says in words and figures: HTML that a widget shows beside and above the charts."""

from __future__ import annotations

import time
from collections.abc import Iterable
from html import escape

from gpuwidget.kernel.live.chart_layout import Layout
from gpuwidget.kernel.live.time_axis import TimeAxis
from gpuwidget.measure.progress import GpuProgress, Progress
from gpuwidget.model import units
from gpuwidget.model.readings import Reading
from gpuwidget.model.samples import Gpu

NO_GPU_IN_USE = "This notebook holds no memory on a GPU yet."
NOT_ATTRIBUTED = "All GPUs are shown: which of them this notebook uses can't be told."

_HEADER_ROOM = '<div class="gpuwidget-header"></div>'
_LEGEND = (
    '<span class="gpuwidget-key gpuwidget-key-busy"></span>busy'
    '<span class="gpuwidget-key gpuwidget-key-memory"></span>memory, % of the GPU'
)


def header(progress: Progress) -> str:
    """The line on top: elapsed time, legend, the newest mark, and what the reader must know."""
    parts = [f'<b class="gpuwidget-elapsed">{escape(units.duration(progress.elapsed_s))}</b>']
    recording = progress.origin.recording if progress.origin is not None else None
    if progress.gpus:
        parts.append(f'<span class="gpuwidget-quiet">{_LEGEND}</span>')
    else:
        parts.append(f"<span>{NO_GPU_IN_USE}</span>")
    # That a recording's GPUs are nobody's here goes without saying.
    if progress.gpus and not progress.attributed and recording is None:
        note = 'class="gpuwidget-quiet gpuwidget-note"'
        parts.append(f'<span {note} title="{NOT_ATTRIBUTED}">{NOT_ATTRIBUTED}</span>')
    mark = next((mark.label for mark in reversed(progress.marks) if mark.kind == "mark"), None)
    if mark is not None:
        parts.append(f'<span class="gpuwidget-mark">{escape(mark)}</span>')
    if recording is not None:
        parts.append(_chip(recording))
    return f'<div class="gpuwidget-header">{"".join(parts)}</div>'


def overview_header(progress: Progress) -> str:
    """The line on top of all GPUs: legend, and what the reader must know."""
    origin = progress.origin
    parts = [f'<span class="gpuwidget-quiet">{_LEGEND}</span>']
    if not progress.gpus:
        reason = (origin.reason if origin is not None else None) or "No GPU is known yet."
        parts = [f"<span>{escape(reason)}</span>"]
    if origin is not None and origin.recording is not None:
        parts.append(_chip(origin.recording))
    return f'<div class="gpuwidget-header">{"".join(parts)}</div>'


def words(progress: Progress, layout: Layout, now: float, *, overview: bool = False) -> str:
    """The line on top, and the current values of each GPU beside (in tiles: around) its plot.

    ``now`` is in epoch seconds, to say for how long a GPU has not answered; ``overview`` for all GPUs, rather
    than for a run.
    """
    block = _tile if layout.tiles else _row
    grid = _grid(block(gpu, now) for gpu in progress.gpus)
    return overview_header(progress) + grid if overview else header(progress) + grid + advice(progress)


def advice(progress: Progress) -> str:
    """The line below a run's charts, which has its place from the beginning: nothing moves when it comes."""
    if not progress.gpus:
        return ""
    one = progress.advice
    if one is None:
        return '<div class="gpuwidget-advice"></div>'
    seen, fix = escape(one.text), escape(one.fix)
    return (
        f'<div class="gpuwidget-advice" title="{seen} {fix}">'
        f'<span class="gpuwidget-quiet">Advice:</span> {seen} '
        f'<span class="gpuwidget-quiet">{fix}</span></div>'
    )


def frame(layout: Layout, axis: TimeAxis) -> str:
    """The axes of each plot."""
    numbers = ""
    if not layout.tiles:
        numbers = "".join(f'<span style="left:{place:g}%">{text}</span>' for place, text in axis.labels)
        numbers += "".join(f'<i style="bottom:{percent}%">{percent}</i>' for percent in (0, 50, 100))
    place = f"margin-top:{layout.top}px;height:{layout.height}px"
    plot = f'<div class="gpuwidget-plot" style="{place}">{numbers}</div>'
    return _HEADER_ROOM + _grid([plot] * layout.panels)


def _grid(blocks: Iterable[str]) -> str:
    return f'<div class="gpuwidget-grid">{"".join(blocks)}</div>'


def number(gpu: Gpu) -> str:
    """The GPU's number as nvidia-smi counts, ``1:0`` for the first MIG slice of GPU 1."""
    return str(gpu.index) if gpu.mig_index is None else f"{gpu.index}:{gpu.mig_index}"


def _row(gpu: GpuProgress, now: float) -> str:
    reading = gpu.reading
    memory = " · ".join(filter(None, (_memory(gpu), _here(gpu))))
    power = f"{_power(reading, limit=True)} · {_temperature(reading)}"
    return (
        '<div class="gpuwidget-block">'
        f'<div class="gpuwidget-row">{_who(gpu)}{_utilization(reading)}</div>'
        f"{_bar(gpu)}"
        f"<div>{memory}</div>"
        f'<div class="gpuwidget-quiet">{power} {_trouble(reading, now)}</div>'
        "</div>"
    )


def _tile(gpu: GpuProgress, now: float) -> str:
    reading = gpu.reading
    temperature = f'<span class="gpuwidget-quiet">{_temperature(reading)}</span>'
    power = f'<span class="gpuwidget-quiet">{_power(reading, limit=False)}</span>'
    return (
        '<div class="gpuwidget-block">'
        f'<div class="gpuwidget-row">{_who(gpu)}{_utilization(reading)}</div>'
        f'<div class="gpuwidget-row gpuwidget-foot"><span>{_memory(gpu)}</span>{power}</div>'
        '<div class="gpuwidget-row gpuwidget-foot">'
        f"<span>{_here(gpu)}</span>{_trouble(reading, now) or temperature}</div>"
        "</div>"
    )


def _who(gpu: GpuProgress) -> str:
    name = escape(gpu.gpu.name)
    badge = (
        f'<span class="gpuwidget-badge">{escape(gpu.torch_device)}</span>'
        if gpu.torch_device is not None
        else ""
    )
    return (
        f"<b>{number(gpu.gpu)}</b>"
        f'<span class="gpuwidget-name" title="{name}">{name.removeprefix("NVIDIA ")}</span>{badge}'
    )


def _bar(gpu: GpuProgress) -> str:
    """The GPU's memory as a bar: this notebook's part, and the others'."""
    total, used = gpu.gpu.memory_total, gpu.reading.memory_used
    if not total or used is None or gpu.reading.lost_since is not None:
        return '<div class="gpuwidget-bar"></div>'
    # The driver counts a process's memory and the GPU's at two moments: the part may exceed the whole.
    here = min(gpu.process_memory or 0, used)
    parts = (("gpuwidget-bar-here", here), ("gpuwidget-bar-other", used - here))
    bars = "".join(f'<i class="{name}" style="width:{100 * part / total:.1f}%"></i>' for name, part in parts)
    return f'<div class="gpuwidget-bar">{bars}</div>'


def _here(gpu: GpuProgress) -> str:
    if gpu.process_memory is None or gpu.reading.lost_since is not None:
        return ""
    return f'<span class="gpuwidget-here">{units.memory(gpu.process_memory)} here</span>'


def _utilization(reading: Reading) -> str:
    if reading.lost_since is not None or reading.utilization is None:
        return f'<span class="gpuwidget-busy">{_unknown(reading, "utilization")}</span>'
    return f'<span class="gpuwidget-busy"><b>{units.whole_number(reading.utilization)}</b> %</span>'


def _trouble(reading: Reading, now: float) -> str:
    """What a person must see first: the GPU is gone, or does not answer."""
    if reading.lost_since is not None:
        since = time.strftime("%H:%M:%S", time.localtime(reading.lost_since))
        return _chip(f"lost since {since}")
    if reading.silent_since is not None:
        seconds = max(0.0, now - reading.silent_since)
        return _chip(f"no answer for {seconds:.0f} s")
    return ""


def _chip(text: str) -> str:
    return f'<span class="gpuwidget-chip" title="{escape(text)}">{escape(text)}</span>'


def _memory(gpu: GpuProgress) -> str:
    if gpu.reading.lost_since is not None or gpu.reading.memory_used is None:
        return _unknown(gpu.reading, "memory_used")
    if gpu.gpu.memory_total is None:
        return f"{units.memory(gpu.reading.memory_used)} used"
    kind = " unified" if gpu.gpu.unified_memory else ""
    return f"{units.memory_of(gpu.reading.memory_used, gpu.gpu.memory_total)}{kind}"


def _power(reading: Reading, limit: bool) -> str:
    if reading.lost_since is not None or reading.power_w is None:
        return _unknown(reading, "power_w")
    return units.power_of(reading.power_w, reading.power_limit_w if limit else None)


def _temperature(reading: Reading) -> str:
    if reading.lost_since is not None or reading.temperature_c is None:
        return _unknown(reading, "temperature_c")
    return units.temperature(reading.temperature_c)


def _unknown(reading: Reading, field: str) -> str:
    reason = (
        "the GPU is lost" if reading.lost_since is not None else reading.missing.get(field, "not known yet")
    )
    return f'<span title="{escape(reason)}">{units.UNKNOWN}</span>'
