"""What a card folds away: every figure of memory, the highest readings, what is not known and why."""

from __future__ import annotations

import time
from itertools import groupby

from gpuwidget import units
from gpuwidget.kernel.card_facts import AT_ONCE_S, clean, gpu_names, whose
from gpuwidget.kernel.card_table import is_compact
from gpuwidget.kernel.card_time import time_details
from gpuwidget.measure.notes import gpu_name
from gpuwidget.measure.report import GpuReport, Report, Span

_NAMES = {
    "device_memory": "memory of the whole GPU",
    "process_memory": "memory of this process",
    "torch": "torch's memory",
    "utilization": "utilization",
    "sm_activity": "SM activity",
    "sm_occupancy": "SM occupancy",
    "tensor_activity": "tensor activity",
    "dram_activity": "DRAM activity",
    "power_w": "power",
    "energy_j": "energy",
}


def details(report: Report) -> list[tuple[str, str]]:
    """What is folded away: a name and a line for each."""
    host, cell = report.host_memory, report.cell
    lines: list[tuple[str, str]] = []
    if not is_compact(report.shown):
        for gpu in report.shown:
            lines.append((f"{gpu_name(gpu)}, memory", " · ".join(_courses(report, gpu))))
            highest = _highest(gpu)
            lines += [(f"{gpu_name(gpu)}, highest", " · ".join(highest))] if highest else []
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


def _courses(report: Report, gpu: GpuReport) -> list[str]:
    def of(name: str, span: Span) -> str:
        return f"{name} {units.memory_course(span.start, span.end)}, peak {units.memory(span.peak)}"

    parts = [of("whole GPU", gpu.device_memory)]
    if gpu.process_memory is not None:
        parts.append(of(whose(report), gpu.process_memory))
    if gpu.torch is not None:
        parts += [of("torch allocated", gpu.torch.allocated), of("torch reserved", gpu.torch.reserved)]
    return parts


def _highest(gpu: GpuReport) -> list[str]:
    levels = (
        ("utilization", gpu.utilization, units.percent),
        ("SM", gpu.sm_activity, units.percent),
        ("SM occupancy", gpu.sm_occupancy, units.percent),
        ("tensor", gpu.tensor_activity, units.percent),
        ("DRAM", gpu.dram_activity, units.percent),
        ("power", gpu.power_w, units.power),
    )
    parts = [f"{name} {words(level.max)}" for name, level, words in levels if level is not None]
    if gpu.sm_occupancy is not None:
        parts.append(f"mean SM occupancy {units.percent(gpu.sm_occupancy.mean)}")
    return parts


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
