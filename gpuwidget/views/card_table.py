"""A report's row per GPU, as columns of figures that say their unit once, in their head."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gpuwidget.model import units
from gpuwidget.model.report import GpuReport, Level, Span
from gpuwidget.views.card_summary import DELTA, clean, gpu_number, model

_FEW = 4


@dataclass(frozen=True, slots=True)
class Column:
    """One quantity of every GPU."""

    title: str
    unit: str
    cells: tuple[str, ...]


def is_compact(gpus: Sequence[GpuReport]) -> bool:
    """Whether there are so many rows that each must be slight."""
    return len(gpus) > _FEW


def row_names(gpus: Sequence[GpuReport]) -> list[str]:
    """Who each row is about; of many GPUs of one model only their numbers."""
    if not is_compact(gpus) or len({gpu.name for gpu in gpus}) > 1:
        return [_row_name(gpu, model(gpu)) for gpu in gpus]
    if all(gpu.torch_device in (None, f"cuda:{gpu_number(gpu)}") and gpu.lost_since is None for gpu in gpus):
        return [gpu_number(gpu) for gpu in gpus]
    return [_row_name(gpu, "") for gpu in gpus]


def columns(gpus: Sequence[GpuReport]) -> list[Column]:
    """The quantities worth a column, fewer of them for many GPUs.

    What is unknown throughout has no column of its own: its reason is among the details.
    """
    compact = is_compact(gpus)
    found: list[Column | None] = []
    torch = [gpu.torch for gpu in gpus]
    process = [gpu.process_memory for gpu in gpus]
    with_process = any(one is not None for one in process)
    # Of what child processes hold, torch here knows nothing.
    children = with_process and any(gpu.children for gpu in gpus)
    with_torch = any(one is not None for one in torch) and not children
    device = [gpu.device_memory for gpu in gpus]
    if not compact or not (with_torch or with_process):
        found.append(_delta("device", device))
    if with_torch:
        allocated = [one.allocated if one is not None else None for one in torch]
        found += [_delta("torch", allocated), _sizes("torch peak", [_peak(span) for span in allocated])]
        if not compact:
            reserved = [one.reserved.end if one is not None else None for one in torch]
            found.append(_sizes("reserved", reserved))
    if children and len(gpus) == 1:
        # The first line has the process's change and peak.
        pass
    elif with_process and not with_torch:
        found += [_delta("process", process), _sizes("process peak", [_peak(span) for span in process])]
    elif not with_torch:
        found.append(_sizes("device peak", [_peak(span) for span in device]))
    found.append(_means("util", "%", [gpu.utilization for gpu in gpus], units.percent_figure))
    found.append(_optional("SM", [gpu.sm_activity for gpu in gpus]))
    if not compact:
        found.append(_optional("tensor", [gpu.tensor_activity for gpu in gpus]))
        found.append(_optional("DRAM", [gpu.dram_activity for gpu in gpus]))
    found.append(_means("power", "W", [gpu.power_w for gpu in gpus], _watts))
    energies = [gpu.energy_j for gpu in gpus]
    unit = units.energy_unit(energies)
    found.append(Column("energy", unit, tuple(units.figure(joules, unit) for joules in energies)))
    return [column for column in found if column is not None]


def _row_name(gpu: GpuReport, model_name: str) -> str:
    name = f"{gpu_number(gpu)} {model_name}".rstrip()
    if gpu.lost_since is not None:
        name += " (lost)"
    return name if gpu.torch_device is None else f"{name} · {clean(gpu.torch_device, 16)}"


def _peak(span: Span | None) -> int | None:
    return None if span is None else span.peak


def _delta(title: str, spans: Sequence[Span | None]) -> Column:
    changes = [
        None if span is None or span.start is None or span.end is None else span.end - span.start
        for span in spans
    ]
    unit = units.memory_unit(changes)
    cells = tuple(units.figure(change, unit, signed=True) for change in changes)
    return Column(f"{title} {DELTA}", unit, cells)


def _sizes(title: str, sizes: Sequence[int | None]) -> Column:
    unit = units.memory_unit(sizes)
    return Column(title, unit, tuple(units.figure(size, unit) for size in sizes))


def _means(title: str, unit: str, levels: Sequence[Level | None], figure: Callable[[float], str]) -> Column:
    cells = tuple(units.UNKNOWN if level is None else figure(level.mean) for level in levels)
    return Column(title, unit, cells)


def _watts(value: float) -> str:
    return units.power(value).removesuffix(" W")


def _optional(title: str, levels: Sequence[Level | None]) -> Column | None:
    if all(level is None for level in levels):
        return None
    return _means(title, "%", levels, units.percent_figure)
