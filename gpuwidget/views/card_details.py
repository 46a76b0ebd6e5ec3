"""Format the card's collapsed details as named lines of text.

The details contain every memory figure, the highest readings, the lines of code with the most memory
(``--lines``) and the most time, and the reasons for unknown values.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from itertools import groupby
from typing import Any

from gpuwidget.model import units
from gpuwidget.model.report import Advice, CodeTime, GpuReport, LineMemory, LineTime, Report, Span, in_call
from gpuwidget.model.terminal_text import clean_line
from gpuwidget.model.translation import _, counted, translatable
from gpuwidget.views import card_gpus, card_workers
from gpuwidget.views.card_summary import NEGLIGIBLE_WAIT_S, gpu_names
from gpuwidget.views.holders_view import names as holder_names

_FIELD_NAMES = {
    "device_memory": translatable("memory of the whole GPU"),
    "process_memory": translatable("memory of this process"),
    "torch": translatable("torch's memory"),
    "utilization": translatable("utilization"),
    "sm_activity": translatable("SM activity"),
    "sm_occupancy": translatable("SM occupancy"),
    "tensor_activity": translatable("tensor activity"),
    "fp32_activity": translatable("float32 activity"),
    "dram_activity": translatable("DRAM activity"),
    "pcie": "PCIe",
    "nvlink": "NVLink",
    "power_w": translatable("power"),
    "energy_j": translatable("energy"),
}
_CELL = re.compile(r"^In\[(\d+)\]")
_MAX_MEMORY_LINES = 8
_MAX_MEMORY_ROWS = 12
_MAX_TIME_LINES = 4
_SOURCE_LENGTH = 60
_ROUNDED = 0.05
"""If a utilization is less than this many percentage points away from 0 or 100, a card shows it as 0 or 100
percent."""


def details(report: Report, *, per_gpu: bool) -> list[tuple[str, str]]:
    """Return the name and the text of each line of the details.

    A line without a name continues the line above. With ``per_gpu``, GPUs whose figures differ have separate
    lines.
    """
    host, cell = report.host_memory, report.cell
    lines = evidence(report)
    lines += card_gpus.memory_and_maxima(report, per_gpu=per_gpu)
    lines += card_gpus.extra_means(report, per_gpu=per_gpu)
    lines += _memory_lines(report)
    lines += [(_("Left behind"), line) for line in left_behind(report)]
    lines += [(_("Fragmentation"), line) for line in card_gpus.fragmentation(report, per_gpu=per_gpu)]
    lines += time_details(report)
    lines += [(_("Not known"), line) for line in unknown_values(report)]
    lines.append(
        (
            _("Host memory"),
            _(
                "{change}, peak {peak} of this process",
                change=units.memory_change(host.start, host.end),
                peak=units.memory(host.peak),
            ),
        )
    )
    if report.shown:
        lines.append(_after_the_code(cell.gpu_tail_s))
    where = f"In [{cell.execution_count}], " if cell.execution_count is not None else ""
    started = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(cell.started))
    lines.append((_("Started"), f"{where}{started}"))
    lines.append((_("Environment"), _environment(report)))
    return lines


def left_behind(report: Report) -> list[str]:
    """Return the holders of the run's remaining memory, such as ``model (Net), also optimizer: 3.2 GiB``."""
    several = len({holder.device for holder in report.holders}) > 1
    found = []
    for holder in report.holders:
        first, also = holder_names(holder)
        named = holder.type is not None and holder.kind == "variable"
        kind = f" ({clean_line(holder.type or '', 40)})" if named else ""
        on = _(" on {device}", device=holder.device) if several else ""
        others = _(", also {names}", names=also) if also else ""
        found.append(f"{first}{kind}{others}: {units.memory(holder.bytes)}{on}")
    return found


def unknown_values(report: Report) -> list[str]:
    """Return the unknown values grouped by reason, such as ``power, energy: not supported by this GPU``."""
    reasons: dict[str, dict[str, list[GpuReport]]] = {}
    shown = report.shown
    for gpu in shown:
        for field, name in _FIELD_NAMES.items():
            value = getattr(gpu, field)
            if value is None or (isinstance(value, Span) and None in (value.start, value.end, value.peak)):
                default = _("the GPU is lost") if gpu.lost_since is not None else _("no reason was given")
                reason = gpu.missing.get(field, default)
                reasons.setdefault(_(reason), {}).setdefault(_(name), []).append(gpu)
    found = []
    for reason, fields in reasons.items():
        for gpus, names in groupby(fields, key=lambda name: fields[name]):
            where = "" if len(gpus) == len(shown) else _(" of {gpus}", gpus=gpu_names(gpus))
            found.append(f"{', '.join(names)}{where}: {reason}")
    return found + card_workers.unknown_values(report)


def _after_the_code(seconds: float | None) -> tuple[str, str]:
    """Return the line of the details about the GPU's work that was left when the code had ended."""
    if seconds is None:
        return _("Synchronization"), _("GPU not synchronized after the cell")
    if seconds < NEGLIGIBLE_WAIT_S:
        return _("After the code"), _("the GPU had no work left")
    return _("After the code"), _("the GPU worked {seconds} more", seconds=units.duration(seconds))


def _environment(report: Report) -> str:
    known = report.environment
    named = (
        ("driver", known.driver),
        (_("driver's CUDA"), known.cuda_driver),
        ("torch", known.torch),
        (_("its CUDA"), known.cuda),
        ("cuDNN", known.cudnn),
        (_("default device"), known.default_device),
    )
    parts = [f"{name} {clean_line(value, 40)}" for name, value in named if value is not None]
    if known.torch is None:
        parts.append(_("torch not loaded"))
    return " · ".join(parts)


# -- advice ----------------------------------------------------------------------------------------------


def evidence(report: Report) -> list[tuple[str, str]]:
    """Return a named line for each piece of advice, with the figures on which the advice is based.

    The last line names the page that explains the rules. A wheel contains this page beside ``gpuwidget``'s
    ``__init__``; a clone has it in its root.
    """
    found = [(_("Advice {rule}", rule=advice.rule), _evidence(advice)) for advice in report.advice]
    pages = dict.fromkeys(
        advice.link.partition("#")[0] for advice in report.advice if advice.link is not None
    )
    if pages:
        where = _(
            "{pages} explains each rule; it is in the folder of gpuwidget.__file__ (in a clone: in its root)",
            pages=", ".join(pages),
        )
        found.append((_("Rules"), where))
    return found


def _evidence(advice: Advice) -> str:
    return " · ".join(_figure(name, value) for name, value in advice.evidence.items())


_FORMATS: tuple[tuple[str, Callable[[float], str]], ...] = (
    ("_bytes_s", lambda value: f"{units.memory(value)}/s"),
    ("_bytes", units.memory),
    ("_w", units.power),
    ("_s", units.duration),
)
"""How a figure is formatted, by the end of its name. All other figures are percentages or counts."""


def _figure(name: str, value: object) -> str:
    if isinstance(value, Mapping):
        suffix = name.rpartition("_")[2]
        return ", ".join(_figure(f"{key}_{suffix}", part) for key, part in value.items())
    for suffix, text in _FORMATS:
        if name.endswith(suffix):
            values: list[Any] = list(value) if isinstance(value, (list, tuple)) else [value]
            return f"{_spaced(name.removesuffix(suffix))} {', '.join(text(item) for item in values)}"
    if isinstance(value, (list, tuple)):
        return f"{_spaced(name)} {', '.join(map(str, value))}"
    return f"{_spaced(name)} {value}"


def _spaced(name: str) -> str:
    return name.replace("_", " ")


# -- where the memory went -------------------------------------------------------------------------------


def memory_rows(report: Report) -> list[list[str]]:
    """Return a header and one row per line of code, the line with the most memory first.

    The result is empty if the report has no lines.
    """
    if not report.lines:
        return []
    rows = [
        [
            f"{_memory_line_name(line, report)}: {_(line.source)}"[:90],
            units.memory(line.at_peak),
            units.memory(line.held),
            units.memory(line.allocated),
        ]
        for line in report.lines[:_MAX_MEMORY_ROWS]
    ]
    rows += [[text, "", "", ""] for text in _further_lines(report, _MAX_MEMORY_ROWS)]
    return [["", _("at the peak"), _("at the end"), _("total")], *rows]


def _memory_lines(report: Report) -> list[tuple[str, str]]:
    texts = [_memory_line(line, report) for line in report.lines[:_MAX_MEMORY_LINES]]
    texts += _further_lines(report, _MAX_MEMORY_LINES)
    return [("" if n else _("Where the memory went"), text) for n, text in enumerate(texts)]


def _memory_line(line: LineMemory, report: Report) -> str:
    source = f", {_(line.source)}" if line.file is None else f" `{line.source}`"
    caller = (
        "" if line.called_from is None else _(", called from {file}", file=_displayed_file(line.called_from))
    )
    return _(
        "{line}{source}: {at_peak} at the peak, {held} at the end, {allocated} in total{caller}",
        line=_memory_line_name(line, report),
        source=source,
        at_peak=units.memory(line.at_peak),
        held=units.memory(line.held),
        allocated=units.memory(line.allocated),
        caller=caller,
    )


def _memory_line_name(line: LineMemory, report: Report) -> str:
    where = (
        "torch"
        if line.file is None
        else _("{file} line {line}", file=_displayed_file(line.file), line=line.line)
    )
    if line.function is not None:
        where += _(" in {function}", function=line.function)
    if len({line.device for line in report.lines}) > 1:
        where += f", {line.device}"
    return where


def _displayed_file(file: str) -> str:
    """Return a file name as displayed. A cell becomes ``In [5]``, as in Jupyter and the rest of the card."""
    return _CELL.sub(r"In [\1]", file)


def _further_lines(report: Report, shown: int) -> list[str]:
    left = len(report.lines) - shown
    if left <= 0:
        return []
    return [
        _(
            counted(
                left,
                "{number} more line, which held less at the peak",
                "{number} more lines, which held less at the peak",
            )
        )
    ]


# -- where the time went ---------------------------------------------------------------------------------


def time_details(report: Report) -> list[tuple[str, str]]:
    """Return named lines about lines of code, CPU time, warm-up and idle energy, as far as they are known.

    The lines of code are those that took the most time.
    """
    found: list[tuple[str, str]] = []
    time = report.time
    if time is not None and time.lines:
        texts = [*map(time_line, time.lines[:_MAX_TIME_LINES]), _limits(time)]
        found += [("" if n else _("Where the time went"), text) for n, text in enumerate(texts)]
        if time.cpu is not None:
            found.append(("CPU", _cpu(time)))
    if time is not None and time.warm_up_s is not None:
        found.append(
            (
                _("Warm-up"),
                _("the steady state began after {warm_up_s}", warm_up_s=units.duration(time.warm_up_s)),
            )
        )
    idle = _idle_energy(report)
    return found + ([(_("Energy while idle"), idle)] if idle else [])


def time_line(line: LineTime) -> str:
    """Return a code line's time: ``line 7 `for x in loader:`: 61 % of the time, GPU 4 % busy``."""
    if line.line is None:
        where = _("outside the cell's lines")
    elif line.until is not None:
        where = _("lines {line} to {until}", line=line.line, until=line.until)
    else:
        where = _("line {line}", line=line.line)
    source = clean_line(line.source, _SOURCE_LENGTH)
    if source and line.until is None:
        where += f" `{source}`"
    parts = [_("{share} of the time", share=units.percent(line.share))]
    if line.gpu_busy is not None:
        parts.append(_("GPU {mean} busy", mean=units.percent(line.gpu_busy)))
    if line.frame is not None:
        # Name only the frame with the largest share.
        share = line.frames[0].share if line.frames else line.share
        share_text = "" if share > 0.9 * line.share else f" ({units.percent(share)})"
        parts.append(_("at {frame}{share}", frame=clean_line(line.frame, _SOURCE_LENGTH), share=share_text))
    if line.call is not None:
        call_share = line.call_share
        share_text = (
            "" if call_share is None or call_share > 0.9 * line.share else f" ({units.percent(call_share)})"
        )
        parts.append(f"{_(in_call(clean_line(line.call, _SOURCE_LENGTH)))}{share_text}")
    return f"{where}: {', '.join(parts)}"


def _limits(time: CodeTime) -> str:
    # The error is twice the standard error of a share. It is computed for a share of one half, where the
    # standard error is largest.
    error = units.percent_number(100 / time.samples**0.5)
    limits = _(
        "{samples} samples, ±{error} points; patterns under {resolution_s} not resolved",
        samples=time.samples,
        error=error,
        resolution_s=units.duration(time.resolution_s),
    )
    return f"{limits}. {_(time.reason)}" if time.reason is not None else limits


def _cpu(time: CodeTime) -> str:
    own = _("{cpu} of a core by this process", cpu=units.percent(time.cpu))
    if not time.cpu_children:
        return own
    return _(
        "{own}, {cpu_children} by its child processes", own=own, cpu_children=units.percent(time.cpu_children)
    )


def _idle_energy(report: Report) -> str | None:
    total = report.totals.energy_j
    idle = report.energy_idle_j
    if idle is None or not total:
        return None
    # The driver counts a window with a single short kernel as busy, so the idle energy is a lower bound. It
    # is exact if every GPU was idle or busy throughout.
    exact = all(
        gpu.utilization is not None and min(gpu.utilization.mean, 100 - gpu.utilization.mean) < _ROUNDED
        for gpu in report.counted
    )
    if not exact and not idle:
        return None
    idle_text = units.energy(idle) if exact else _("at least {energy}", energy=units.energy(idle))
    return _(
        "{idle} of {total} ({percent})",
        idle=idle_text,
        total=units.energy(total),
        percent=units.percent(100 * idle / total),
    )
