"""Render a sample as a table for a terminal: one row per GPU, then one row per process."""

from __future__ import annotations

import textwrap
from datetime import datetime
from typing import TYPE_CHECKING

from gpuwidget.model.metrics import METRICS, Metric
from gpuwidget.model.terminal_text import TableColumn, format_table, printable, truncate
from gpuwidget.model.units import UNKNOWN, duration, gib, whole_number
from gpuwidget.sources.throttle_reasons import IDLE, needing_attention

if TYPE_CHECKING:
    from datetime import tzinfo

    from gpuwidget.model.readings import Reading
    from gpuwidget.model.samples import Gpu, Sample

_MIN_WIDTH = 40
_MAX_NAME = 18
_YELLOW, _RESET = "\x1b[33m", "\x1b[0m"

_GPU_COLUMNS = (
    TableColumn("GPU"),
    TableColumn("Name", right=False, shrinks_to=8),
    *(TableColumn(metric.table_title) for metric in METRICS if metric.table_title is not None),
    TableColumn("Throttled", right=False, shrinks_to=18),
)
_PROCESS_COLUMNS = (
    TableColumn("GPU"),
    TableColumn("PID"),
    TableColumn("User", right=False, shrinks_to=8),
    TableColumn("GiB"),
    TableColumn("Program", right=False, shrinks_to=16),
)


def render_table(sample: Sample, *, width: int = 80, tz: tzinfo | None = None, color: bool = False) -> str:
    """Return the sample as lines of at most ``width`` characters (at least 40), without a final newline.

    Times are shown in the time zone ``tz``, or in the machine's if ``tz`` is None. With ``color``, rows that
    need attention are yellow; the problem is also shown as text, with or without color. Control characters in
    names and commands are escaped.
    """
    width = max(width, _MIN_WIDTH)
    lines = [truncate(line, width) for line in _heading(sample, tz)]
    if sample.origin.reason is not None:
        lines += ["", *textwrap.wrap(printable(sample.origin.reason), width)]
    if sample.gpus:
        lines += ["", *_gpu_table(sample, width, tz, color)]
        lines += [*_lost_gpus(sample, width), *_process_table(sample, width)]
    return "\n".join(lines)


def _heading(sample: Sample, tz: tzinfo | None) -> list[str]:
    origin = sample.origin
    facts = [datetime.fromtimestamp(sample.time, tz).strftime("%Y-%m-%d %H:%M:%S")]
    if origin.driver is not None:
        facts.append(f"driver {printable(origin.driver)}")
    if origin.cuda_driver is not None:
        facts.append(f"CUDA {printable(origin.cuda_driver)}")
    label = [] if origin.recording is None else [printable(origin.recording)]
    return [*label, " · ".join(facts)]


def _gpu_table(sample: Sample, width: int, tz: tzinfo | None, color: bool) -> list[str]:
    pairs = list(zip(sample.gpus, sample.readings, strict=True))
    rows = [_gpu_row(gpu, reading, sample.time, tz) for gpu, reading in pairs]
    titles, *lines = format_table(_GPU_COLUMNS, rows, width)
    if not color:
        return [titles, *lines]
    return [titles] + [
        f"{_YELLOW}{line}{_RESET}" if _needs_attention(reading) else line
        for line, (_, reading) in zip(lines, pairs, strict=True)
    ]


def _lost_gpus(sample: Sample, width: int) -> list[str]:
    """Return lines that state why GPUs are lost."""
    return [
        line
        for gpu, reading in zip(sample.gpus, sample.readings, strict=True)
        if reading.lost_since is not None and "memory_used" in reading.missing
        for line in textwrap.wrap(
            f"GPU {_gpu_number(gpu)}: {printable(reading.missing['memory_used'])}.", width
        )
    ]


def _needs_attention(reading: Reading) -> bool:
    return is_unreachable(reading) or bool(needing_attention(reading.throttle or ()))


def is_unreachable(reading: Reading) -> bool:
    """Return whether the GPU is lost or a call to it hangs."""
    return reading.lost_since is not None or reading.silent_since is not None


def _gpu_row(gpu: Gpu, reading: Reading, now: float, tz: tzinfo | None) -> tuple[str, ...]:
    first_cells = (_gpu_number(gpu), _name(gpu))
    if reading.lost_since is not None:
        return (*first_cells, f"lost since {_moment(reading.lost_since, now, tz)}")
    if reading.silent_since is not None:
        return (*first_cells, f"no answer for {duration(now - reading.silent_since)}")
    if reading.answered is None:
        return (*first_cells, "no answer yet")
    return (
        *first_cells,
        *(_figure(metric, gpu, reading) for metric in METRICS if metric.table_title is not None),
        UNKNOWN
        if reading.throttle is None
        else ", ".join(printable(reason) for reason in reading.throttle if reason != IDLE),
    )


def _process_table(sample: Sample, width: int) -> list[str]:
    rows = [
        row
        for gpu, reading in zip(sample.gpus, sample.readings, strict=True)
        for row in _process_rows(gpu, reading)
    ]
    if rows:
        return ["", *format_table(_PROCESS_COLUMNS, rows, width)]
    all_known = all(reading.processes is not None for reading in sample.readings)
    return ["", "No process uses a GPU."] if all_known else []


def _process_rows(gpu: Gpu, reading: Reading) -> list[tuple[str, ...]]:
    if is_unreachable(reading) or reading.answered is None:
        return []  # The GPU's row in the table of GPUs already shows that the GPU does not respond.
    if reading.processes is None:
        return [(_gpu_number(gpu), UNKNOWN, reading.missing.get("processes", "not reported by the driver"))]
    largest_first = sorted(reading.processes, key=lambda process: (-(process.memory or 0), process.pid))
    return [
        (
            _gpu_number(gpu),
            str(process.pid),
            UNKNOWN if process.user is None else printable(process.user),
            gib(process.memory),
            printable(process.program or UNKNOWN),
        )
        for process in largest_first
    ]


def _gpu_number(gpu: Gpu) -> str:
    return str(gpu.index) if gpu.mig_index is None else f"{gpu.index}:{gpu.mig_index}"


def _name(gpu: Gpu) -> str:
    # If the name is too long, drop the manufacturer rather than the end, which is more specific: "NVIDIA
    # GeForce RTX 4090 Laptop GPU".
    name = gpu.name if len(gpu.name) <= _MAX_NAME else gpu.name.removeprefix("NVIDIA ")
    return printable(f"{name} (unified)" if gpu.unified_memory else name)


def _moment(epoch: float, now: float, tz: tzinfo | None) -> str:
    then, today = datetime.fromtimestamp(epoch, tz), datetime.fromtimestamp(now, tz)
    return then.strftime("%H:%M:%S" if then.date() == today.date() else "%Y-%m-%d %H:%M:%S")


def _figure(metric: Metric, gpu: Gpu, reading: Reading) -> str:
    """Return the metric's value, followed by its limit if the metric has one."""
    show, width = (gib, 5) if metric.kind == "memory" else (whole_number, 3)
    value = show(getattr(reading, metric.key))
    if metric.limit is None:
        return value
    limit = getattr(reading if hasattr(reading, metric.limit) else gpu, metric.limit)
    return f"{value:>{width}} / {show(limit):>{width}}"
