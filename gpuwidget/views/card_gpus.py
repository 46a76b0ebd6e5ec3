"""What a card tells of each GPU beside its table: a line for those that say the same, or for all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from gpuwidget.model import units
from gpuwidget.model.report import GpuReport, Level, Report, Span, TorchMemory
from gpuwidget.views.card_summary import gpu_names, whose
from gpuwidget.views.card_table import is_compact

_MUCH_STUCK = 256 * units.MIB
_MUCH_OF_RESERVED = 0.1
_Words = Callable[[Sequence[GpuReport]], list[str]]
"""What is said of one GPU, or of several at once: from the lowest to the highest of them."""


def memory_and_highest(report: Report, *, each: bool) -> list[tuple[str, str]]:
    """Every figure of memory and the highest readings; nothing of so many GPUs that their rows are slight."""
    gpus = report.shown
    if is_compact(gpus):
        return []

    def courses(of: Sequence[GpuReport]) -> list[str]:
        return _courses(report, of)

    # One after the other for each GPU, as far as they differ.
    return [
        (f"{gpu_names(some)}, {name}", " · ".join(parts))
        for some in _groups(gpus, lambda of: [*courses(of), *_highest(of)], each)
        for name, parts in (("memory", courses(some)), ("highest", _highest(some)))
        if parts
    ]


def beside_utilization(report: Report, *, each: bool) -> list[tuple[str, str]]:
    """Means for which the table has no column: what utilization does not tell."""
    each = each and not is_compact(report.shown)
    return [
        (f"{gpu_names(some)}, mean", " · ".join(parts))
        for some in _groups(report.shown, _beside, each)
        if (parts := _beside(some))
    ]


def fragmentation(report: Report, *, each: bool, only_much: bool = False) -> list[str]:
    """What torch's cache holds in no tensor, and how much of that could be given back."""
    gpus = [gpu for gpu in report.shown if _cached(gpu) is not None]
    if (only_much or is_compact(gpus)) and not any(map(_is_much, gpus)):
        return []
    each = each and not is_compact(gpus)
    found = []
    for some in _groups(gpus, _cache, each):
        on = f" on {'each of ' if len(some) > 1 else ''}{gpu_names(some)}" if len(report.shown) > 1 else ""
        of, *rest = _cache(some)
        found.append("; ".join([f"{of}{on}", *rest]))
    return found


def _groups(gpus: Sequence[GpuReport], words: _Words, each: bool) -> list[list[GpuReport]]:
    """Those of which the same is said, or all of them."""
    if not each:
        return [list(gpus)] if gpus else []
    groups: dict[tuple[str, ...], list[GpuReport]] = {}
    for gpu in gpus:
        groups.setdefault(tuple(words([gpu])), []).append(gpu)
    return list(groups.values())


def _span_of(values: Sequence[float | None], words: Callable[[float | None], str]) -> str:
    """``4.4 %``, or ``4.4 to 23 %`` of those that are known; ``n/a`` of none."""
    known = [value for value in values if value is not None]
    if not known:
        return units.UNKNOWN
    low, high = words(min(known)), words(max(known))
    if low == high:
        return low
    number, _, unit = low.partition(" ")
    # The unit once, where it is the same and there is one.
    return f"{number if high.partition(' ')[2] == unit else low} to {high}"


def _courses(report: Report, gpus: Sequence[GpuReport]) -> list[str]:
    parts = [_course("whole GPU", [gpu.device_memory for gpu in gpus])]
    parts += [_course(whose(report), [gpu.process_memory for gpu in gpus])]
    parts += [_course("of which child processes", [gpu.children_memory for gpu in gpus])]
    torch = [gpu.torch for gpu in gpus if gpu.torch is not None]
    parts += [_course("torch allocated", [one.allocated for one in torch])]
    parts += [_course("torch reserved", [one.reserved for one in torch])]
    return [part for part in parts if part]


def _course(name: str, spans: Sequence[Span | None]) -> str:
    known = [span for span in spans if span is not None]
    if not known:
        return ""
    courses = {units.memory_course(span.start, span.end) for span in known}
    if len(courses) > 1:
        changes = [None if None in (s.start, s.end) else (s.end or 0) - (s.start or 0) for s in known]
        courses = {_span_of(changes, lambda change: units.memory_delta(0, change))}
    return f"{name} {courses.pop()}, peak {_span_of([span.peak for span in known], units.memory)}"


def _highest(gpus: Sequence[GpuReport]) -> list[str]:
    return _levels(
        (
            ("utilization", [gpu.utilization for gpu in gpus], units.percent),
            ("SM", [gpu.sm_activity for gpu in gpus], units.percent),
            ("SM occupancy", [gpu.sm_occupancy for gpu in gpus], units.percent),
            ("tensor", [gpu.tensor_activity for gpu in gpus], units.percent),
            ("DRAM", [gpu.dram_activity for gpu in gpus], units.percent),
            ("power", [gpu.power_w for gpu in gpus], units.power),
        ),
        lambda level: level.max,
    )


def _beside(gpus: Sequence[GpuReport]) -> list[str]:
    parts = _levels(
        (
            ("SM occupancy", [gpu.sm_occupancy for gpu in gpus], units.percent),
            ("float32 pipes", [gpu.fp32_activity for gpu in gpus], units.percent),
        ),
        lambda level: level.mean,
    )
    for name, links in (("PCIe", [gpu.pcie for gpu in gpus]), ("NVLink", [gpu.nvlink for gpu in gpus])):
        known = [traffic for traffic in links if traffic is not None]
        if known:
            received, sent = (
                _span_of([None if one is None else one.mean for one in levels], _rate)
                for levels in ([traffic.rx for traffic in known], [traffic.tx for traffic in known])
            )
            parts.append(f"{name} {received} in, {sent} out")
    held = _held_down([gpu.throttled for gpu in gpus if gpu.throttled is not None])
    return [*parts, f"clock held down: {held}"] if held else parts


def _levels(
    named: Sequence[tuple[str, Sequence[Level | None], Callable[[float | None], str]]],
    value: Callable[[Level], float],
) -> list[str]:
    return [
        f"{name} {_span_of([value(level) for level in levels if level is not None], words)}"
        for name, levels, words in named
        if any(level is not None for level in levels)
    ]


def _rate(value: float | None) -> str:
    return units.UNKNOWN if value is None else f"{units.memory(value)}/s"


def _held_down(throttled: Sequence[Mapping[str, float]]) -> str:
    """By each reason the longest of them."""
    longest: dict[str, float] = {}
    for reasons in throttled:
        for word, seconds in reasons.items():
            longest[word] = max(seconds, longest.get(word, 0.0))
    up_to = "up to " if any(dict(one) != longest for one in throttled) else ""
    return ", ".join(f"{word} {up_to}{units.duration(seconds)}" for word, seconds in longest.items())


# -- torch's cache ---------------------------------------------------------------------------------------


def _cached(gpu: GpuReport) -> int | None:
    """Bytes reserved at the end that are in no tensor; None where torch has reserved nothing."""
    if gpu.torch is None or not gpu.torch.reserved.end or gpu.torch.allocated.end is None:
        return None
    return gpu.torch.reserved.end - gpu.torch.allocated.end


def _stuck(torch: TorchMemory, cached: int) -> int | None:
    """What lies between tensors, by torch's segments or else by its counter."""
    if torch.returnable is not None:
        return max(0, cached - torch.returnable)
    return None if torch.inactive_split is None else min(torch.inactive_split, cached)


def _is_much(gpu: GpuReport) -> bool:
    cached = _cached(gpu)
    if gpu.torch is None or cached is None:
        return False
    stuck = _stuck(gpu.torch, cached) or 0
    return stuck >= max(_MUCH_STUCK, _MUCH_OF_RESERVED * (gpu.torch.reserved.end or 0))


def _cache(gpus: Sequence[GpuReport]) -> list[str]:
    torch = [gpu.torch for gpu in gpus if gpu.torch is not None]
    cached = [_cached(gpu) or 0 for gpu in gpus]
    reserved = _span_of([one.reserved.end for one in torch], units.memory)
    parts = [f"{_span_of(cached, units.memory)} of the {reserved} that torch has reserved are in no tensor"]
    stuck = [_stuck(one, size) for one, size in zip(torch, cached, strict=True)]
    returnable = [one.returnable for one in torch if one.returnable is not None]
    if len(returnable) < len(torch):
        parts += [f"{_span_of(stuck, units.memory)} of it lie beside tensors"] if any(stuck) else []
    elif any(returnable):
        # Of expandable segments torch may give back less than their free pages.
        rest = ", the rest lies between tensors" if any(stuck) else ""
        parts.append(f"up to {units.memory(max(returnable))} of it can be given back (%gpu free){rest}")
    elif any(stuck):
        parts.append("none of it can be given back: it lies between tensors")
    flushes = [one.alloc_retries for one in torch]
    if None in flushes:
        return [*parts, "how often the cache was flushed is not known"]
    low, high = min(flush or 0 for flush in flushes), max(flush or 0 for flush in flushes)
    if high == 0:
        return [*parts, "the cache was not flushed"]
    times = f"{high}" if low == high else f"{low} to {high}"
    return [*parts, f"the cache was flushed {times} time{'' if high == 1 else 's'}"]
