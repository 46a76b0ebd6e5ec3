"""Format the figures of each GPU for the card: the table of GPUs, and the tables of the details.

In the details, GPUs with equal figures share columns. In a smaller card, all GPUs share them, with the lowest
and the highest figure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuwidget.model import units
from gpuwidget.model.metrics import REPORTED, Kind
from gpuwidget.model.report import GpuReport, Level, Report, Span, TorchMemory, Traffic
from gpuwidget.model.terminal_text import clean_line
from gpuwidget.model.translation import _
from gpuwidget.views.card_summary import (
    DELTA,
    PROGRAMS_LENGTH,
    gpu_names,
    gpu_number,
    model_name,
    process_label,
    sampled,
)

_MAX_FULL_ROWS = 4
_MIN_FRAGMENTED = 256 * units.MIB
_MIN_FRAGMENTED_SHARE = 0.1
"""torch's memory counts as fragmented if torch can't release some of the memory that no tensor uses. This
part must be at least this fraction of the reserved memory, and at least ``_MIN_FRAGMENTED`` bytes."""
_Describe = Callable[[Sequence[GpuReport]], Sequence[Any]]
"""Function that describes the figures of one GPU, or the range of the figures of several GPUs."""


# -- the table -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GpuColumn:
    """A column of the table: one metric of every GPU. Only the header contains the unit."""

    title: str
    unit: str
    cells: tuple[str, ...]


def is_compact(gpus: Sequence[GpuReport]) -> bool:
    """Return whether there are too many GPUs to show all columns and details."""
    return len(gpus) > _MAX_FULL_ROWS


def row_names(gpus: Sequence[GpuReport]) -> list[tuple[str, ...]]:
    """Return the parts of the name of each GPU's row: its number and model, and its device in torch.

    If there are many GPUs of one model, the names omit the model. They also omit torch's device names if each
    of them has the same number as its GPU.
    """
    if not is_compact(gpus) or len({gpu.name for gpu in gpus}) > 1:
        return [_row_name(gpu, model_name(gpu)) for gpu in gpus]
    if all(gpu.torch_device in (None, f"cuda:{gpu_number(gpu)}") and gpu.lost_since is None for gpu in gpus):
        return [(gpu_number(gpu),) for gpu in gpus]
    return [_row_name(gpu, "") for gpu in gpus]


def chart_names(gpus: Sequence[GpuReport]) -> list[tuple[str, ...]]:
    """Return the parts of the name of each GPU's panel in the chart."""
    return [(f"GPU {first}", *rest) for first, *rest in row_names(gpus)]


def table_columns(gpus: Sequence[GpuReport]) -> list[GpuColumn]:
    """Return the columns of the table. A table of many GPUs has fewer columns.

    A metric that is unknown for all GPUs has no column; the details contain the reason.
    """
    compact = is_compact(gpus)
    found: list[GpuColumn] = []
    torch = [gpu.torch for gpu in gpus]
    process = [gpu.process_memory for gpu in gpus]
    with_process = any(span is not None for span in process)
    # This process's torch counters exclude the memory of child processes, so the table does not show torch's
    # memory if child processes held memory.
    children = with_process and any(gpu.children for gpu in gpus)
    with_torch = any(memory is not None for memory in torch) and not children
    device = [gpu.device_memory for gpu in gpus]
    if not compact or not (with_torch or with_process):
        found.append(_delta(_("whole GPU"), device))
    if with_torch:
        allocated = [memory.allocated if memory is not None else None for memory in torch]
        found += [
            _delta("torch", allocated),
            _sizes(_("torch peak"), [_span_peak(span) for span in allocated]),
        ]
        if not compact:
            reserved = [memory.reserved.end if memory is not None else None for memory in torch]
            found.append(_sizes(_("reserved"), reserved))
    if with_process and not with_torch:
        found += [
            _delta(_("this process"), process),
            _sizes(_("process peak (sampled)"), [_span_peak(span) for span in process]),
        ]
    elif not with_torch:
        found.append(_sizes(_("whole GPU peak (sampled)"), [_span_peak(span) for span in device]))
    found.append(_means(_("util"), "percent", [gpu.utilization for gpu in gpus]))
    found += _metric_columns(gpus)
    found.append(_means(_("power"), "power", [gpu.power_w for gpu in gpus]))
    unit = units.energy_unit([gpu.energy_j or gpu.energy_at_least_j for gpu in gpus])
    found.append(GpuColumn(_("energy"), unit, tuple(_energy(gpu, unit) for gpu in gpus)))
    return found


def _energy(gpu: GpuReport, unit: str) -> str:
    if gpu.energy_j is None and gpu.energy_at_least_j is not None:
        return f"≥ {units.number_in_unit(gpu.energy_at_least_j, unit)}"
    return units.number_in_unit(gpu.energy_j, unit, error=gpu.energy_error_j)


def _row_name(gpu: GpuReport, model: str) -> tuple[str, ...]:
    name = f"{gpu_number(gpu)} {model}".rstrip()
    if gpu.lost_since is not None:
        name = _("{gpu} (lost)", gpu=name)
    return (name,) if gpu.torch_device is None else (name, clean_line(gpu.torch_device, 16))


def _span_peak(span: Span | None) -> int | None:
    return None if span is None else span.peak


def _delta(title: str, spans: Sequence[Span | None]) -> GpuColumn:
    changes = [None if span is None else _change(span) for span in spans]
    unit = units.memory_unit(changes)
    cells = tuple(units.number_in_unit(change, unit, signed=True) for change in changes)
    return GpuColumn(f"{title} {DELTA}", unit, cells)


def _change(span: Span) -> int | None:
    return None if span.start is None or span.end is None else span.end - span.start


def _sizes(title: str, sizes: Sequence[int | None]) -> GpuColumn:
    unit = units.memory_unit(sizes)
    return GpuColumn(title, unit, tuple(units.number_in_unit(size, unit) for size in sizes))


def _means(title: str, kind: Kind, levels: Sequence[Level | None]) -> GpuColumn:
    shown = units.KINDS[kind]
    cells = tuple(shown.number(None if level is None else level.mean) for level in levels)
    return GpuColumn(title, shown.unit, cells)


def _metric_columns(gpus: Sequence[GpuReport]) -> Iterator[GpuColumn]:
    """Yield the columns of the metrics of :data:`REPORTED` that have a column and are known."""
    for metric, reported in REPORTED:
        levels = [gpu.levels[reported.name] for gpu in gpus]
        has_column = reported.column == "always" or (reported.column is not None and not is_compact(gpus))
        if reported.title is not None and has_column and any(level is not None for level in levels):
            yield _means(_(reported.title), metric.kind, levels)


# -- the details -----------------------------------------------------------------------------------------


def memory_table(report: Report, *, per_gpu: bool) -> list[list[str]]:
    """Return a table of the change and the peak of every kind of memory, with the header.

    With ``per_gpu``, GPUs whose figures differ have separate columns, unless there are many.
    """
    return _table(
        report, lambda gpus: _memory_cells(report, gpus), (_("start → end"), _("peak")), per_gpu=per_gpu
    )


def hardware_table(report: Report, *, per_gpu: bool) -> list[list[str]]:
    """Return a table of the mean and the highest reading of every hardware metric, with the header."""
    return _table(report, _hardware_cells, (_("mean"), _("highest")), per_gpu=per_gpu)


def _table(report: Report, describe: _Describe, titles: tuple[str, str], *, per_gpu: bool) -> list[list[str]]:
    per_gpu = per_gpu and not is_compact(report.shown)
    groups = [group for alike in _by_counters(report.shown) for group in _groups(alike, describe, per_gpu)]
    columns = [{name: values for name, *values in describe(group)} for group in groups]
    names = dict.fromkeys(name for column in columns for name in column)
    header = [
        f"{gpu_names(group)}, {title}" if len(groups) > 1 else title for group in groups for title in titles
    ]
    rows = [
        [name, *(cell for column in columns for cell in column.get(name, ("", "")) or (units.UNKNOWN,) * 2)]
        for name in names
        if any(any(column.get(name, ())) for column in columns)
    ]
    return [["", *header], *rows] if rows else []


def fragmentation(report: Report, *, per_gpu: bool, only_large: bool = False) -> list[str]:
    """Return sentences on how much of torch's reserved memory is in no tensor, and how much of this can be
    freed."""
    gpus = [gpu for gpu in report.shown if _cached(gpu) is not None]
    if (only_large or is_compact(gpus)) and not any(map(_is_fragmented, gpus)):
        return []
    per_gpu = per_gpu and not is_compact(gpus)
    found = []
    for group in _groups(gpus, _describe_cache, per_gpu):
        first, *rest = _describe_cache(group)
        if len(group) > 1:
            first = _("{what} on each of {gpus}", what=first, gpus=gpu_names(group))
        elif len(report.shown) > 1:
            first = _("{what} on {gpu}", what=first, gpu=gpu_names(group))
        found.append("; ".join([first, *rest]))
    return found


def _by_counters(gpus: Sequence[GpuReport]) -> list[list[GpuReport]]:
    """Return the GPUs with and those without hardware counters, so that a line holds for all of its GPUs."""
    halves = [
        [gpu for gpu in gpus if (gpu.levels["sm_activity"] is None) == missing] for missing in (False, True)
    ]
    return [half for half in halves if half]


def _groups(gpus: Sequence[GpuReport], describe: _Describe, per_gpu: bool) -> list[list[GpuReport]]:
    """Return the GPUs in groups with equal descriptions. If ``per_gpu`` is false, return a single group."""
    if not per_gpu:
        return [list(gpus)] if gpus else []
    groups: dict[tuple[Any, ...], list[GpuReport]] = {}
    for gpu in gpus:
        groups.setdefault(tuple(describe([gpu])), []).append(gpu)
    return list(groups.values())


def _range(values: Sequence[float | None], text: Callable[[float | None], str]) -> str:
    """Return the range of the known values, such as ``4.4 to 23 %`` or ``4.4 %``, or else ``n/a``."""
    known = [value for value in values if value is not None]
    if not known:
        return units.UNKNOWN
    low, high = text(min(known)), text(max(known))
    if low == high:
        return low
    number, unit = low.partition(" ")[::2]
    # Write the unit only once if both values have the same unit.
    return _("{low} to {high}", low=number if high.partition(" ")[2] == unit else low, high=high)


def _known_for(text: str, known: int, gpus: int) -> str:
    """Return ``text``, followed by the number of GPUs for which it is known unless that is all or none."""
    if known in (0, gpus):
        return text
    return f"{text} ({_('known for {known} of {number} GPUs', known=known, number=gpus)})"


def _memory_cells(report: Report, gpus: Sequence[GpuReport]) -> list[tuple[str, ...]]:
    """Return the name, change and peak of each kind of memory, or only the name if none is known."""
    torch = [gpu.torch for gpu in gpus]
    kinds: tuple[tuple[str, Sequence[Span | None], bool], ...] = (
        (_("whole GPU"), [gpu.device_memory for gpu in gpus], False),
        (process_label(report), [gpu.process_memory for gpu in gpus], False),
        (_("torch allocated"), [None if memory is None else memory.allocated for memory in torch], True),
        (_("torch reserved"), [None if memory is None else memory.reserved for memory in torch], True),
    )
    found = [(name, *_memory_change(spans, exact=exact)) for name, spans, exact in kinds]
    children = [gpu.children_memory for gpu in gpus if gpu.children_memory is not None]
    if children:  # other GPUs may have had no child processes
        found.insert(2, (_children(gpus), *_memory_change(children, exact=False)))
    return found


def _children(gpus: Sequence[GpuReport]) -> str:
    programs = ", ".join(dict.fromkeys(name for gpu in gpus for name in gpu.children))
    name = _("of which child processes")
    return f"{name} ({clean_line(programs, PROGRAMS_LENGTH)})" if programs else name


def _memory_change(spans: Sequence[Span | None], *, exact: bool) -> tuple[str, ...]:
    """Return the change and the peak as text; nothing if no memory is known. ``exact`` is whether the peak is
    a count, not a sample."""
    known = [span for span in spans if span is not None]
    if not known:
        return ()
    texts = {units.memory_change(span.start, span.end) for span in known}
    changes = [size for span in known if (size := _change(span)) is not None]
    change = texts.pop() if len(texts) == 1 else _range(changes, lambda size: units.memory_delta(0, size))
    peaks = [span.peak for span in known if span.peak is not None]
    peak = sampled(_range(peaks, units.memory), exact=exact) if peaks else units.UNKNOWN
    return _known_for(change, len(changes), len(spans)), _known_for(peak, len(peaks), len(spans))


def _hardware_cells(gpus: Sequence[GpuReport]) -> list[tuple[str, ...]]:
    """Return the name, mean and highest reading of each metric, or only the name if none is known."""
    metrics: tuple[tuple[str, Sequence[Level | None], Callable[[float | None], str]], ...] = (
        (_("utilization"), [gpu.utilization for gpu in gpus], units.percent),
        *(
            (_(reported.title), [gpu.levels[reported.name] for gpu in gpus], units.KINDS[metric.kind].text)
            for metric, reported in REPORTED
            if reported.title is not None
        ),
        (_("power"), [gpu.power_w for gpu in gpus], units.power),
        *_links("PCIe", [gpu.pcie for gpu in gpus]),
        *_links("NVLink", [gpu.nvlink for gpu in gpus]),
    )
    cells = [(name, *_levels(levels, text)) for name, levels, text in metrics]
    throttled = [gpu.throttled for gpu in gpus if gpu.throttled is not None]
    reasons = _throttle_reasons(throttled)
    if reasons or not throttled:
        known = (_known_for(reasons, len(throttled), len(gpus)), "") if throttled else ()
        cells.append((_("throttled"), *known))
    return cells


def _levels(levels: Sequence[Level | None], text: Callable[[float | None], str]) -> tuple[str, ...]:
    """Return the range of the means and of the highest readings as text; nothing if none is known."""
    known = [level for level in levels if level is not None]
    ranges = [_range([level.mean for level in known], text), _range([level.max for level in known], text)]
    return tuple(_known_for(found, len(known), len(levels)) for found in ranges) if known else ()


def _links(
    name: str, links: Sequence[Traffic | None]
) -> list[tuple[str, list[Level | None], Callable[[float | None], str]]]:
    return [
        (_("{name} in", name=name), [None if link is None else link.rx for link in links], _rate),
        (_("{name} out", name=name), [None if link is None else link.tx for link in links], _rate),
    ]


def _rate(value: float | None) -> str:
    return units.UNKNOWN if value is None else f"{units.memory(value)}/s"


def _throttle_reasons(throttled: Sequence[Mapping[str, float]]) -> str:
    """Return the throttle reasons as text, each with its longest duration on any one GPU."""
    longest: dict[str, float] = {}
    for reasons in throttled:
        for reason, seconds in reasons.items():
            longest[reason] = max(seconds, longest.get(reason, 0.0))
    differ = any(dict(seconds) != longest for seconds in throttled)
    times = {reason: units.duration(seconds) for reason, seconds in longest.items()}
    return ", ".join(
        _("{reason} up to {time}", reason=reason, time=time) if differ else f"{reason} {time}"
        for reason, time in times.items()
    )


def _cached(gpu: GpuReport) -> int | None:
    """Return torch's reserved bytes that are in no tensor at the run's end.

    Return None if torch has reserved no bytes, or if it is unknown how many are in tensors.
    """
    if gpu.torch is None or not gpu.torch.reserved.end or gpu.torch.allocated.end is None:
        return None
    return gpu.torch.reserved.end - gpu.torch.allocated.end


def _fragmented(torch: TorchMemory, cached: int) -> int | None:
    """Return the cached bytes that torch can't release, because they lie beside tensors in the same segments.

    If the segments are unknown, the result is torch's counter ``inactive_split``, limited to ``cached``.
    """
    if torch.returnable is not None:
        return max(0, cached - torch.returnable)
    return None if torch.inactive_split is None else min(torch.inactive_split, cached)


def _is_fragmented(gpu: GpuReport) -> bool:
    cached = _cached(gpu)
    if gpu.torch is None or cached is None:
        return False
    fragmented = _fragmented(gpu.torch, cached) or 0
    return fragmented >= max(_MIN_FRAGMENTED, _MIN_FRAGMENTED_SHARE * (gpu.torch.reserved.end or 0))


def _describe_cache(gpus: Sequence[GpuReport]) -> list[str]:
    torch = [gpu.torch for gpu in gpus if gpu.torch is not None]
    cached = [_cached(gpu) or 0 for gpu in gpus]
    reserved = _range([memory.reserved.end for memory in torch], units.memory)
    parts = [
        _(
            "{cached} of the {reserved} reserved by torch is not in tensors",
            cached=_range(cached, units.memory),
            reserved=reserved,
        )
    ]
    fragmented = [_fragmented(memory, size) for memory, size in zip(torch, cached, strict=True)]
    returnable = [memory.returnable for memory in torch if memory.returnable is not None]
    if len(returnable) < len(torch):
        parts += (
            [
                _(
                    "{size} of it can't be freed, because it shares segments with tensors (fragmentation)",
                    size=_range(fragmented, units.memory),
                )
            ]
            if any(fragmented)
            else []
        )
    elif any(returnable):
        # "up to", because torch may release fewer pages of expandable segments than are free.
        size = units.memory(max(returnable))
        parts.append(
            _(
                "up to {size} of it can be freed (%gpu free --yes), the rest shares segments with tensors",
                size=size,
            )
            if any(fragmented)
            else _("up to {size} of it can be freed (%gpu free --yes)", size=size)
        )
    elif any(fragmented):
        parts.append(_("none of it can be freed, because it shares segments with tensors"))
    flushes = [memory.alloc_retries for memory in torch]
    if None in flushes:
        return [*parts, _("the number of cache flushes is unknown")]
    low, high = min(flush or 0 for flush in flushes), max(flush or 0 for flush in flushes)
    if high == 0:
        return [*parts, _("the cache was not flushed")]
    times = f"{high}" if low == high else _("{low} to {high}", low=low, high=high)
    if high == 1:
        return [*parts, _("the cache was flushed {number} time", number=times)]
    return [*parts, _("the cache was flushed {number} times", number=times)]
