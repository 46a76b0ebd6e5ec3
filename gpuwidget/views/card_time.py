"""Where a run's time went, in the card's words."""

from __future__ import annotations

from gpuwidget.model import units
from gpuwidget.model.report import CodeTime, LineTime, Report, in_call
from gpuwidget.views.card_summary import clean

_MOST_LINES = 4
_MOST_SOURCE = 60
_TITLE = "Where the time went"
_ROUNDED = 0.05
"""Points of utilization that the card's figures round away."""


def time_details(report: Report) -> list[tuple[str, str]]:
    """What is folded away of the time: a name and a line for each."""
    found: list[tuple[str, str]] = []
    time = report.time
    if time is not None and time.lines:
        told = [line(one) for one in time.lines[:_MOST_LINES]]
        found += [(_TITLE if not place else "", text) for place, text in enumerate([*told, _limits(time)])]
        if time.cpu is not None:
            found.append(("CPU", _cpu(time)))
    if time is not None and time.warm_up_s is not None:
        found.append(("Warm-up", f"the steady state began after {units.duration(time.warm_up_s)}"))
    idle = _idle_energy(report)
    return found + ([("Energy while idle", idle)] if idle else [])


def line(one: LineTime) -> str:
    """``line 7 for x, y in loader: 61 % of the time, GPU 4 % busy, in DataLoader._next_data``."""
    if one.line is None:
        where = "none of the cell's lines"
    elif one.until is not None:
        where = f"lines {one.line} to {one.until}"
    else:
        where = f"line {one.line}"
    source = clean(one.source, _MOST_SOURCE)
    if source and one.until is None:
        where += f" `{source}`"
    parts = [f"{units.percent(one.share)} of the time"]
    if one.gpu_busy is not None:
        parts.append(f"GPU {units.percent(one.gpu_busy)} busy")
    if one.frame is not None:
        # That of the frames which had most of it.
        had = one.frames[0].share if one.frames else one.share
        mostly = "" if had > 0.9 * one.share else f" ({units.percent(had)})"
        parts.append(f"at {clean(one.frame, _MOST_SOURCE)}{mostly}")
    if one.call is not None:
        share = one.call_share
        mostly = "" if share is None or share > 0.9 * one.share else f" ({units.percent(share)})"
        parts.append(f"{in_call(clean(one.call, _MOST_SOURCE))}{mostly}")
    return f"{where}: {', '.join(parts)}"


def _limits(time: CodeTime) -> str:
    # Twice the standard error of a share of a half.
    error = units.percent_figure(100 / time.samples**0.5)
    limits = (
        f"{time.samples} looks: shares within {error} points; patterns shorter than "
        f"{units.duration(time.resolution_s)} can't be told"
    )
    return f"{limits}. {time.reason}" if time.reason is not None else limits


def _cpu(time: CodeTime) -> str:
    own = f"{units.percent(time.cpu)} of a core by this process"
    if not time.cpu_children:
        return own
    return f"{own}, {units.percent(time.cpu_children)} by its child processes"


def _idle_energy(report: Report) -> str | None:
    total = sum(gpu.energy_j or 0.0 for gpu in report.shown)
    idle = report.energy_idle_j
    if idle is None or not total:
        return None
    # A window of the driver's with a single short kernel in it is not idle: its pauses are left out.
    exact = all(
        gpu.utilization is not None and min(gpu.utilization.mean, 100 - gpu.utilization.mean) < _ROUNDED
        for gpu in report.shown
    )
    if not exact and not idle:
        return None
    least = "" if exact else "at least "
    return f"{least}{units.energy(idle)} of {units.energy(total)} ({units.percent(100 * idle / total)})"
