"""What a card folds away: every figure of memory, the highest readings, what is not known and why."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from itertools import groupby
from typing import Any

from gpuwidget.model import units
from gpuwidget.model.report import Advice, GpuReport, Report, Span
from gpuwidget.views import card_gpus, card_lines
from gpuwidget.views.card_summary import AT_ONCE_S, clean, gpu_names
from gpuwidget.views.card_time import time_details
from gpuwidget.views.holders_view import names as holder_names

_NAMES = {
    "device_memory": "memory of the whole GPU",
    "process_memory": "memory of this process",
    "torch": "torch's memory",
    "utilization": "utilization",
    "sm_activity": "SM activity",
    "sm_occupancy": "SM occupancy",
    "tensor_activity": "tensor activity",
    "fp32_activity": "float32 activity",
    "dram_activity": "DRAM activity",
    "pcie": "PCIe",
    "nvlink": "NVLink",
    "power_w": "power",
    "energy_j": "energy",
}


def details(report: Report, *, each: bool) -> list[tuple[str, str]]:
    """What is folded away: a name and a line for each.

    With ``each``, GPUs of which different things are to be said have lines of their own.
    """
    host, cell = report.host_memory, report.cell
    lines = evidence(report)
    lines += card_gpus.memory_and_highest(report, each=each)
    lines += card_gpus.beside_utilization(report, each=each)
    lines += card_lines.details(report)
    lines += [("Left behind", line) for line in left_behind(report)]
    lines += [("Fragmentation", line) for line in card_gpus.fragmentation(report, each=each)]
    lines += time_details(report)
    lines += [("Not known", line) for line in unknowns(report)]
    course = f"{units.memory_course(host.start, host.end)}, peak {units.memory(host.peak)}"
    lines.append(("Host memory", f"{course} of this process"))
    if report.shown:
        lines.append(("After the code", _tail(cell.gpu_tail_s)))
    where = f"In [{cell.execution_count}], " if cell.execution_count is not None else ""
    started = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(cell.started))
    lines.append(("Started", f"{where}{started}"))
    lines.append(("Environment", _environment(report)))
    return lines


def evidence(report: Report) -> list[tuple[str, str]]:
    """What each piece of advice rests on."""
    return [(f"Advice {one.rule}", _evidence(one)) for one in report.advice]


def left_behind(report: Report) -> list[str]:
    """Who holds what the run has allocated and left: ``model (Net), also optimizer: 3.2 GiB``."""
    several = len({holder.device for holder in report.holders}) > 1
    found = []
    for holder in report.holders:
        first, also = holder_names(holder)
        kind = "" if holder.type is None or holder.kind != "variable" else f" ({clean(holder.type, 40)})"
        on = f" on {holder.device}" if several else ""
        found.append(f"{first}{kind}{f', also {also}' if also else ''}: {units.memory(holder.bytes)}{on}")
    return found


def unknowns(report: Report) -> list[str]:
    """Each value nobody knows, with its reason: ``power, energy: not supported by this GPU``."""
    reasons: dict[str, dict[str, list[GpuReport]]] = {}
    for gpu in report.shown:
        for name, words in _NAMES.items():
            value = getattr(gpu, name)
            if value is None or (isinstance(value, Span) and None in (value.start, value.end, value.peak)):
                otherwise = "the GPU is lost" if gpu.lost_since is not None else "no reason was given"
                reason = gpu.missing.get(name, otherwise)
                reasons.setdefault(reason, {}).setdefault(words, []).append(gpu)
    found = []
    for reason, fields in reasons.items():
        for gpus, alike in groupby(fields, key=lambda field: fields[field]):
            where = "" if len(gpus) == len(report.shown) else f" of {gpu_names(gpus)}"
            found.append(f"{', '.join(alike)}{where}: {reason}")
    return found


def _evidence(advice: Advice) -> str:
    figures = [_figure(name, value) for name, value in advice.evidence.items()]
    sections = [f"see {advice.link} in gpuwidget's folder"] if advice.link is not None else []
    return " · ".join([*figures, *sections])


_UNITS: tuple[tuple[str, Callable[[float], str]], ...] = (
    ("_bytes_s", lambda value: f"{units.memory(value)}/s"),
    ("_bytes", units.memory),
    ("_w", units.power),
    ("_s", units.duration),
)
"""How the value of a figure is written, by the end of its name; the others are percent and counts."""


def _figure(name: str, value: object) -> str:
    if isinstance(value, Mapping):
        parts = [_figure(f"{word}_{name.rpartition('_')[2]}", part) for word, part in value.items()]
        return ", ".join(parts)
    for end, words in _UNITS:
        if name.endswith(end):
            values: list[Any] = list(value) if isinstance(value, (list, tuple)) else [value]
            return f"{_words(name.removesuffix(end))} {', '.join(words(one) for one in values)}"
    if isinstance(value, (list, tuple)):
        return f"{_words(name)} {', '.join(map(str, value))}"
    return f"{_words(name)} {value}"


def _words(name: str) -> str:
    return name.replace("_", " ")


def _tail(seconds: float | None) -> str:
    if seconds is None:
        return "not waited for the GPU to finish"
    if seconds < AT_ONCE_S:
        return "the GPU was done at once"
    return f"the GPU went on for {units.duration(seconds)}"


def _environment(report: Report) -> str:
    known = report.environment
    named = (
        ("driver", known.driver),
        ("driver's CUDA", known.cuda_driver),
        ("torch", known.torch),
        ("its CUDA", known.cuda),
        ("cuDNN", known.cudnn),
        ("default device", known.default_device),
    )
    parts = [f"{name} {clean(value, 40)}" for name, value in named if value is not None]
    if known.torch is None:
        parts.append("torch not loaded")
    return " · ".join(parts)
