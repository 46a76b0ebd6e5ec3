"""What a card says of a report, as plain words and figures: the same for HTML, a terminal and a table."""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from gpuwidget.measure.notes import gpu_name
from gpuwidget.model import units
from gpuwidget.model.report import GpuReport, Report, Span

MemoryKind = Literal["torch", "process", "device"]

DELTA = "\N{GREEK CAPITAL LETTER DELTA}"
_UNWANTED = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
MOST_NOTE = 400
"""Characters of a sentence from elsewhere."""
MOST_ADVICE = 300
"""Characters of what advice says, and of its remedy."""
AT_ONCE_S = 1e-3
"""A wait for the GPU that is shorter says nothing."""
_MOST_PROGRAMS = 80
"""Characters of the programs of child processes."""
_LEAST_TAIL = 0.05
"""Part of the run's time from which on the GPU's going on after it belongs beside that time."""


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory that a card's first line is about, over all GPUs shown."""

    kind: MemoryKind
    """``torch`` for what torch has allocated, ``process`` for this process, ``device`` for whole GPUs."""
    spans: tuple[Span, ...]
    """One for each GPU shown."""
    start: int | None
    end: int | None
    peak: int | None
    """The highest of any one GPU: peaks at different moments add up to nothing."""
    peak_gpu: GpuReport | None
    """Where that was."""


@functools.lru_cache(maxsize=1024)  # the same names and reasons come again on every card
def clean(text: str, most: int) -> str:
    """User text in one printable line of at most ``most`` characters."""
    line = "".join(c if c.isprintable() else " " for c in _UNWANTED.sub("", text[: 4 * most]))
    line = " ".join(line.split())
    return line if len(line) <= most else line[: most - 1].rstrip() + "…"


def shortened(path: str, most: int) -> str:
    """A path in at most ``most`` characters: its end says more than its beginning."""
    line = clean(path, 1000)
    return line if len(line) <= most else "…" + line[1 - most :]


def headline(report: Report) -> list[str]:
    """The line to read first, in segments: time, memory, utilization, energy."""
    gpus = report.shown
    first = _time(report)
    if not gpus:
        host = report.host_memory
        which = "no GPU used" if report.gpus else "no GPU"
        change = units.memory_delta(host.start, host.end)
        return [first, which, f"host memory {change}, peak {units.memory(host.peak)}"]
    segments = [first, _memory_segment(report)]
    busy, energy = _busy(gpus), _energy(gpus)
    if busy is None and energy is None:
        return [*segments, f"busy and energy {units.UNKNOWN}"]
    segments.append(busy or f"busy {units.UNKNOWN}")
    return [*segments, energy or f"energy {units.UNKNOWN}"]


def one_line(report: Report) -> list[str]:
    """The quiet line under every cell, in segments: only what is known."""
    gpus = report.shown
    segments = [_time(report)]
    if not gpus:
        segments.append("no GPU used" if report.gpus else "no GPU")
    else:
        memory = memory_shown(report)
        whole = "whole " if memory.kind == "device" else ""
        place = f"on {whole}{gpu_name(gpus[0])}" if len(gpus) == 1 else f"over {len(gpus)} {whole}GPUs"
        segments.append(f"{units.memory_delta(memory.start, memory.end)} {place}")
        segments.append(_peak(memory, gpus))
        segments += [part for part in (_busy(gpus), _energy(gpus)) if part is not None]
    return segments + (["a recording"] if report.source.recording is not None else [])


def second_line(report: Report) -> list[str]:
    """Which GPUs, and whose memory the first line is about, in segments; empty without a GPU."""
    gpus = report.shown
    if not gpus:
        return []
    memory = memory_shown(report)
    total = _sum(gpu.memory_total for gpu in gpus)
    segments = [_who(gpus)]
    if memory.kind == "torch":
        segments.append(f"torch {units.memory_course(memory.start, memory.end)}")
    process = _process_spans(gpus)
    if process is not None:
        held = f"{whose(report)} {_course_of(process, total)}{_first_use(process)}"
        segments.append(", ".join(filter(None, (held, _in_children(gpus)))))
    else:
        whole = "whole GPU" if len(gpus) == 1 else "whole GPUs"
        segments.append(f"{whole} {_course_of([gpu.device_memory for gpu in gpus], total)}")
    return segments


def warnings(report: Report) -> list[str]:
    """What a person must see at once: GPUs lost, memory that ran out."""
    lost: dict[str, list[GpuReport]] = {}
    for gpu in report.shown:
        if gpu.lost_since is not None:
            lost.setdefault(clock_time(gpu.lost_since), []).append(gpu)
    found = [f"{gpu_names(gpus)} lost since {at}" for at, gpus in lost.items()]
    torch = [(gpu, gpu.torch) for gpu in report.shown if gpu.torch is not None]
    failed = [(gpu, memory.ooms) for gpu, memory in torch if memory.ooms]
    if failed:
        found.append(f"{_counts(failed, 'out-of-memory error')} on {_each(failed)}")
    flushed = [(gpu, memory.alloc_retries) for gpu, memory in torch if memory.alloc_retries]
    if flushed:
        times = _counts(flushed, "time")
        found.append(f"torch flushed its cache {times} on {_each(flushed)} to find memory")
    return found


def advice(report: Report) -> list[tuple[str, str, str]]:
    """What may be worth a change, the weightiest first: the word before it, what was seen, how to mend it."""
    return [
        (
            "Advice" if one.sure else "Advice (unsure)",
            clean(one.text, MOST_ADVICE),
            clean(one.fix, MOST_ADVICE),
        )
        for one in report.advice
    ]


def recording(report: Report) -> str | None:
    """The words that label a recording."""
    label = report.source.recording
    if label is None:
        return None
    return f"{clean(label, 120)}: the figures are the recording's, not {whose(report)}'s"


def explanations(report: Report) -> list[str]:
    """Sentences without which the figures would mislead: no GPU, none in use, nobody knows whose."""
    found = []
    source = report.source
    if source.reason is not None:
        found.append(clean(source.reason, MOST_NOTE))
    if not report.gpus:
        return found or ["No GPU was seen."]
    if not report.shown:
        which = f"any of the {len(report.gpus)} GPUs here" if len(report.gpus) > 1 else "the GPU here"
        found.append(f"{whose(report).capitalize()} holds no memory on {which}.")
    elif not report.attributed and source.recording is None:
        found.append(f"Which GPUs {whose(report)} uses can't be told: all that were watched are shown.")
    return found


def memory_shown(report: Report) -> Memory:
    """torch's allocations where its allocator was used, else this process's memory, else whole GPUs'."""
    return memory_as(report, memory_kinds(report)[0])


def memory_kinds(report: Report) -> list[MemoryKind]:
    """Whose memory can be told for all GPUs shown, the nearest to the user's tensors first.

    The same for all GPUs: sums of different things are no figure.
    """
    gpus = report.shown
    torch = [gpu.torch for gpu in gpus if gpu.torch is not None]
    process = _process_spans(gpus)
    found: list[MemoryKind] = []
    if len(torch) == len(gpus) and any(one.reserved.peak for one in torch):
        found.append("torch")
    if process is not None and any(span.peak is not None for span in process):
        # Of what child processes hold, torch here knows nothing.
        found.insert(0 if any(gpu.children for gpu in gpus) else len(found), "process")
    return [*found, "device"]


def memory_as(report: Report, kind: MemoryKind) -> Memory:
    """The memory of that kind, one of those of :func:`memory_kinds`."""
    gpus = report.shown
    if kind == "torch":
        return _memory(kind, [gpu.torch.allocated for gpu in gpus if gpu.torch is not None], gpus)
    if kind == "process":
        return _memory(kind, _process_spans(gpus) or [], gpus)
    return _memory(kind, [gpu.device_memory for gpu in gpus], gpus)


def gpu_number(gpu: GpuReport) -> str:
    """``0``, or ``0:1`` for a MIG slice."""
    return str(gpu.index) if gpu.mig_index is None else f"{gpu.index}:{gpu.mig_index}"


def gpu_names(gpus: Sequence[GpuReport]) -> str:
    """``GPU 1``, ``GPUs 0, 2, 5``, from three in a row on the first and the last."""
    if len(gpus) == 1:
        return gpu_name(gpus[0])
    indices = [gpu.index for gpu in gpus]
    if len(gpus) > 2 and indices == list(range(indices[0], indices[0] + len(gpus))):
        return f"GPUs {indices[0]}\N{EN DASH}{indices[-1]}"
    return f"GPUs {', '.join(gpu_number(gpu) for gpu in gpus)}"


def model(gpu: GpuReport) -> str:
    """The product's name without its maker's."""
    return clean(gpu.name, 40).removeprefix("NVIDIA ")


def clock_time(epoch: float) -> str:
    """The time of day, as the machine's clock shows it."""
    return time.strftime("%H:%M:%S", time.localtime(epoch))


# -- the first line --------------------------------------------------------------------------------------


def _time(report: Report) -> str:
    cell = report.cell
    took = units.duration(cell.duration_s)
    if cell.status == "error":
        return f"Stopped by an error after {took}"
    if cell.status == "interrupted":
        return f"Interrupted after {took}"
    tail = cell.gpu_tail_s
    if tail is not None and tail >= AT_ONCE_S and tail >= _LEAST_TAIL * cell.duration_s:
        return f"{took} + {units.duration(tail)} on the GPU"
    return took


def _memory_segment(report: Report) -> str:
    memory, gpus = memory_shown(report), report.shown
    whole = "whole " if memory.kind == "device" else ""
    change = units.memory_delta(memory.start, memory.end)
    if change == units.UNKNOWN:
        change = f"memory {change}"
    over = f" over {len(gpus)} {whole}GPUs" if len(gpus) > 1 else " on the whole GPU" if whole else ""
    return f"{change}{over}, {_peak(memory, gpus)}"


def _peak(memory: Memory, gpus: Sequence[GpuReport]) -> str:
    """The highest of any one GPU, and whether child processes held it."""
    gpu = memory.peak_gpu
    peak = f"peak {units.memory(memory.peak)}"
    if gpu is None:
        return peak
    if len(gpus) > 1:
        peak += f" on {gpu_name(gpu)}"
    children = gpu.children_memory
    if memory.kind != "process" or children is None:
        return peak
    return f"{peak} {'in' if children.peak == memory.peak else 'with'} child processes"


def mean_utilization(gpus: Sequence[GpuReport]) -> str:
    """The mean over the GPUs for which it is known."""
    known = [gpu.utilization.mean for gpu in gpus if gpu.utilization is not None]
    return units.percent(sum(known) / len(known) if known else None)


def energy_sum(gpus: Sequence[GpuReport]) -> str:
    """The sum, ``at least`` that much where a GPU's part is unknown."""
    known = [gpu.energy_j for gpu in gpus if gpu.energy_j is not None]
    if not known:
        return units.UNKNOWN
    return f"{'at least ' if len(known) < len(gpus) else ''}{units.energy(sum(known))}"


def _busy(gpus: Sequence[GpuReport]) -> str | None:
    known = sum(gpu.utilization is not None for gpu in gpus)
    if not known:
        return None
    which = "GPU" if len(gpus) == 1 else "GPUs" if known == len(gpus) else f"{known} of {len(gpus)} GPUs"
    return f"{which} {mean_utilization(gpus)} busy"


def _energy(gpus: Sequence[GpuReport]) -> str | None:
    total = energy_sum(gpus)
    return None if total == units.UNKNOWN else total


# -- the second line -------------------------------------------------------------------------------------


def _who(gpus: Sequence[GpuReport]) -> str:
    models = {model(gpu) for gpu in gpus}
    devices = [clean(gpu.torch_device, 16) for gpu in gpus if gpu.torch_device is not None]
    name = f"{gpu_names(gpus)} {models.pop()}" if len(models) == 1 else gpu_names(gpus)
    if not devices:
        return name
    in_a_row = [f"cuda:{n}" for n in range(len(devices))]
    if len(devices) > 2 and devices == in_a_row:
        return f"{name} ({devices[0]} to {devices[-1]})"
    return f"{name} ({', '.join(devices)})" if len(devices) <= 4 else name


def whose(report: Report) -> str:
    """Whose memory ``process_memory`` is, in words."""
    return "this notebook" if report.cell.execution_count is not None else "this process"


def _course_of(spans: Iterable[Span], total: int | None) -> str:
    spans = list(spans)
    start, end = _sum(span.start for span in spans), _sum(span.end for span in spans)
    course = units.memory_course(start, end)
    if total is None:
        return course
    return f"{course.rpartition(units.ARROW)[0]}{units.ARROW} {units.memory_of(end, total)}"


def _first_use(spans: Sequence[Span]) -> str:
    first = any(span.start == 0 and span.end for span in spans)
    return ", first use: its CUDA context included" if first else ""


def _in_children(gpus: Sequence[GpuReport]) -> str:
    """What child processes held at most, and which: ``in child processes up to 3.7 GiB (python a.py)``."""
    held = [(gpu.children_memory.peak or 0, gpu) for gpu in gpus if gpu.children_memory is not None]
    if not held:
        return ""
    most, where = max(held, key=lambda one: one[0])
    on = f" on {gpu_name(where)}" if len(gpus) > 1 else ""
    programs = clean(
        ", ".join(dict.fromkeys(name for _, gpu in held for name in gpu.children)), _MOST_PROGRAMS
    )
    return f"in child processes up to {units.memory(most)}{on} ({programs})"


# -- memory ----------------------------------------------------------------------------------------------


def _process_spans(gpus: Sequence[GpuReport]) -> list[Span] | None:
    spans = [gpu.process_memory for gpu in gpus if gpu.process_memory is not None]
    return spans if spans and len(spans) == len(gpus) else None


def _memory(kind: MemoryKind, spans: Sequence[Span], gpus: Sequence[GpuReport]) -> Memory:
    peaks = [(span.peak, -place) for place, span in enumerate(spans) if span.peak is not None]
    peak, place = max(peaks, default=(None, 0))
    return Memory(
        kind=kind,
        spans=tuple(spans),
        start=_sum(span.start for span in spans),
        end=_sum(span.end for span in spans),
        peak=peak,
        peak_gpu=gpus[-place] if peak is not None else None,
    )


def _sum(values: Iterable[int | None]) -> int | None:
    """The sum, unknown where a part of it is."""
    total = 0
    for value in values:
        if value is None:
            return None
        total += value
    return total


def _counts(found: Sequence[tuple[GpuReport, int]], noun: str) -> str:
    """``3 times``, ``1 to 3 times`` where the GPUs differ."""
    low, high = min(number for _, number in found), max(number for _, number in found)
    number = str(low) if low == high else f"{low} to {high}"
    return f"{number} {noun}" if high == 1 else f"{number} {noun}s"


def _each(found: Sequence[tuple[GpuReport, int]]) -> str:
    names = gpu_names([gpu for gpu, _ in found])
    return names if len(found) == 1 else f"each of {names}"
