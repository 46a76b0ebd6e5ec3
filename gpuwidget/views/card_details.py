"""Format the card's details as rows of small tables, and as lines of code.

The details contain the lines of code with the most memory (``--lines``) and the most time, the holders of
memory, the figures behind advice, the reasons for unknown values, and facts about the run.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from itertools import groupby
from typing import Any

from gpuwidget.model import units
from gpuwidget.model.metrics import REPORTED
from gpuwidget.model.report import Advice, CodeTime, GpuReport, LineMemory, LineTime, Report, Span, in_call
from gpuwidget.model.terminal_text import clean_line
from gpuwidget.model.translation import _, translatable
from gpuwidget.views import card_summary as summary
from gpuwidget.views import card_workers
from gpuwidget.views.card_summary import gpu_names
from gpuwidget.views.elements import CodeLine
from gpuwidget.views.holders_view import names as holder_names
from gpuwidget.views.styles import BLUE, IDLE, UNKNOWN

_FIELD_NAMES = {
    "device_memory": translatable("memory of the whole GPU"),
    "process_memory": translatable("memory of this process"),
    "torch": translatable("torch's memory"),
    "utilization": translatable("utilization"),
    **{reported.name: reported.label for _metric, reported in REPORTED if reported.label is not None},
    "pcie": "PCIe",
    "nvlink": "NVLink",
    "power_w": translatable("power"),
    "energy_j": translatable("energy"),
}
_CELL = re.compile(r"^In\[(\d+)\]")
_MEMORY_LINE_LENGTH = 90
_SOURCE_LENGTH = 60
_MAX_INDENT = 16
_ROUNDED = 0.05
"""If a utilization is less than this many percentage points away from 0 or 100, a card shows it as 0 or 100
percent."""


def run_facts(report: Report) -> list[list[str]]:
    """Return rows about the run as a whole: start, GPUs, sums, the end of the GPU's work, versions."""
    cell, gpus = report.cell, report.memory_gpus
    where = f"In [{cell.execution_count}], " if cell.execution_count is not None else ""
    started = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(cell.started))
    rows = [[_("Started"), f"{where}{started}"]]
    if gpus:
        rows.append([_("GPUs"), summary.gpus_and_devices(gpus)])
    if len(gpus) > 1:
        sums = _("summed over {number} GPUs, all processes", number=len(gpus))
        if summary.headline_memory(report).kind != "device":
            sums = _("summed over {number} GPUs", number=len(gpus))
        rows.append([_("Memory kept, energy"), sums])
    if report.shown:
        rows.append(_after_the_code(cell.gpu_tail_s))
    return [*rows, [_("Environment"), _environment(report)]]


def left_behind(report: Report) -> list[list[str]]:
    """Return rows with the holders of the run's remaining memory, such as ``model (Net), also optimizer``,
    and its size."""
    several = len({holder.device for holder in report.holders}) > 1
    found = []
    for holder in report.holders:
        first, also = holder_names(holder)
        named = holder.type is not None and holder.kind == "variable"
        kind = f" ({clean_line(holder.type or '', 40)})" if named else ""
        name, size = f"{first}{kind}", units.memory(holder.bytes)
        found.append(
            [
                _("{name}, also {names}", name=name, names=also) if also else name,
                _("{size} on {device}", size=size, device=holder.device) if several else size,
            ]
        )
    return found


def unknown_values(report: Report) -> list[list[str]]:
    """Return rows with the unknown values that have the same reason, such as ``power, energy``, and this
    reason."""
    reasons: dict[str, dict[str, list[GpuReport]]] = {}
    shown = report.shown
    fields = {field: _(name) for field, name in _FIELD_NAMES.items()}
    for gpu in shown:
        default = _("the GPU is lost") if gpu.lost_since is not None else _("no reason was given")
        for field, name in fields.items():
            value = gpu.value(field)
            if value is None or (isinstance(value, Span) and None in (value.start, value.end, value.peak)):
                reason = gpu.missing.get(field, default)
                reasons.setdefault(_(reason), {}).setdefault(name, []).append(gpu)
    found = []
    for reason, names_of_reason in reasons.items():
        for gpus, names in groupby(names_of_reason, key=lambda name: names_of_reason[name]):
            values = ", ".join(names)
            if len(gpus) < len(shown):
                values = _("{values} of {gpus}", values=values, gpus=gpu_names(gpus))
            found.append([values, reason])
    return found + card_workers.unknown_values(report)


def _after_the_code(seconds: float | None) -> list[str]:
    """Return a row about the GPU's work that was left when the code had ended."""
    if seconds is None:
        return [_("Synchronization"), _("GPU not synchronized after the cell")]
    if seconds < summary.NEGLIGIBLE_WAIT_S:
        return [_("After the code"), _("the GPU had no work left")]
    return [_("After the code"), _("the GPU worked {seconds} more", seconds=units.duration(seconds))]


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


def evidence(report: Report) -> list[list[str]]:
    """Return a row for each piece of advice: its rule, and the figures on which the advice is based.

    The last row names the page that explains the rules. A wheel contains this page beside ``gpuwidget``'s
    ``__init__``; a clone has it in ``docs/reference``.
    """
    found = [[advice.rule, _evidence(advice)] for advice in report.advice if advice.evidence]
    pages = dict.fromkeys(
        advice.link.partition("#")[0] for advice in report.advice if advice.link is not None
    )
    if found and pages:
        where = _(
            "{pages} explains each rule; it is in the folder of gpuwidget.__file__ (in a clone: in its root)",
            pages=", ".join(pages),
        )
        found.append([_("Rules"), where])
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
            f"{_memory_line_name(line, report)}: {_(line.source)}"[:_MEMORY_LINE_LENGTH],
            units.memory(line.at_peak),
            units.memory(line.held),
            units.memory(line.allocated),
        ]
        for line in report.lines
    ]
    return [["", _("at the peak"), _("at the end"), _("total")], *rows]


def _memory_line_name(line: LineMemory, report: Report) -> str:
    where = (
        "torch"
        if line.file is None
        else _("{file} line {line}", file=_displayed_file(line.file), line=line.line)
    )
    if line.function is not None:
        where = _("{line} in {function}", line=where, function=line.function)
    if len({line.device for line in report.lines}) > 1:
        where += f", {line.device}"
    if line.called_from is not None:
        where = _("{line}, called from {file}", line=where, file=_displayed_file(line.called_from))
    return where


def _displayed_file(file: str) -> str:
    """Return a file name as displayed. A cell becomes ``In [5]``, as in Jupyter and the rest of the card."""
    return _CELL.sub(r"In [\1]", file)


# -- where the time went ---------------------------------------------------------------------------------


def time_lines(report: Report) -> list[CodeLine]:
    """Return the lines of code in their order, each with the time it took and how busy the GPU was."""
    if report.time is None:
        return []
    return list(map(_time_line, sorted(report.time.lines, key=lambda line: (line.line is None, line.line))))


def time_facts(report: Report) -> list[list[str]]:
    """Return rows about the precision of the times, CPU time, warm-up and idle energy, as far as they are
    known."""
    found, time = [], report.time
    if time is not None and time.lines:
        found.append([_("Samples"), _limits(time)])
        if time.cpu is not None:
            found.append(["CPU", _cpu(time)])
    if time is not None and time.warm_up_s is not None:
        after = _("the steady state began after {warm_up_s}", warm_up_s=units.duration(time.warm_up_s))
        found.append([_("Warm-up"), after])
    idle = _idle_energy(report)
    return found + ([[_("Energy while idle"), idle]] if idle else [])


def _time_line(line: LineTime) -> CodeLine:
    source = " " * min(line.indent, _MAX_INDENT) + clean_line(line.source, _SOURCE_LENGTH)
    if line.line is None:
        source = _("outside the cell's lines")
    parts, places = [units.percent(line.share)], []
    share_shown = _shown(line.share)
    bar = [(share_shown, UNKNOWN)]
    if line.gpu_busy is not None:
        parts.append(_("GPU {mean} busy", mean=units.percent(line.gpu_busy)))
        busy = share_shown * _shown(line.gpu_busy) / 100
        # In an untrusted notebook, JupyterLab removes bars whose colors are variables of the theme.
        bar = [(busy, BLUE), (share_shown - busy, IDLE)]
    if line.frame is not None:
        # Name only the frame with the largest share.
        share = line.frames[0].share if line.frames else line.share
        share_text = "" if share > 0.9 * line.share else f" ({units.percent(share)})"
        places.append(_("at {frame}{share}", frame=clean_line(line.frame, _SOURCE_LENGTH), share=share_text))
    if line.call is not None:
        call_share = line.call_share
        share_text = (
            "" if call_share is None or call_share > 0.9 * line.share else f" ({units.percent(call_share)})"
        )
        places.append(f"{_(in_call(clean_line(line.call, _SOURCE_LENGTH)))}{share_text}")
    number = "" if line.line is None else f"{line.line}"
    if line.until is not None:
        number += f"\N{EN DASH}{line.until}"
    return CodeLine(number, source, bar, " · ".join(parts), " · ".join(places))


def _shown(percentage: float) -> float:
    """Return a percentage as it is shown, because a saved report has no more digits."""
    return float(units.percent_number(percentage))


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
