"""Summarize a report in words and figures, for the card's HTML, the card's text and the table of reports."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from gpuwidget.measure import notes
from gpuwidget.measure.notes import gpu_name
from gpuwidget.measure.run_report import GPUS_UNKNOWN
from gpuwidget.model import units
from gpuwidget.model.report import GpuReport, MemoryKind, Report, Span, sum_of_spans
from gpuwidget.model.samples import without_mig_parents
from gpuwidget.model.terminal_text import clean_line
from gpuwidget.model.translation import _

DELTA = "\N{GREEK CAPITAL LETTER DELTA}"
NOTE_LENGTH = 400
"""Maximum number of characters shown of a sentence from a report or a source."""
ADVICE_LENGTH = 300
"""Maximum number of characters shown of an advice's text, and of its fix."""
NEGLIGIBLE_WAIT_S = 1e-3
"""Waits for the GPU that are shorter than this are within the measurement error."""
_PROGRAMS_LENGTH = 80
"""Maximum number of characters shown of the child processes' programs."""
_MIN_TAIL_SHARE = 0.05
"""The headline shows how long the GPU worked after the code ended only if this took at least this fraction of
the code's time."""


@dataclass(frozen=True, slots=True)
class MemorySummary:
    """The memory in a card's headline, over :attr:`~gpuwidget.model.report.Report.memory_gpus`."""

    kind: MemoryKind
    spans: tuple[Span, ...]
    """One per GPU."""
    start: int | None
    end: int | None
    peak: int | None
    """The highest peak of any single GPU. Peaks are not added, because they may occur at different times."""
    peak_gpu: GpuReport | None
    """The GPU that has the highest peak. If several GPUs show the same figure, the one whose memory changed
    most, because a GPU that only kept its memory had no part in the run."""


def headline(report: Report) -> list[str]:
    """Return the segments of the card's first line: time, memory, utilization, energy."""
    first = _time(report)
    if not report.shown:
        host = report.host_memory
        gpu_text = no_gpu(report)
        change = units.memory_delta(host.start, host.end)
        return [
            first,
            gpu_text,
            _("host memory {change}, peak {peak}", change=change, peak=units.memory(host.peak)),
        ]
    segments, gpus = [first, _memory_segment(report)], report.counted
    if not gpus:
        return segments
    utilization, energy = _utilization(gpus), _energy(gpus)
    if utilization is None and energy is None:
        return [*segments, _("GPU utilization and energy {unknown}", unknown=units.UNKNOWN)]
    segments.append(utilization or _("GPU utilization {unknown}", unknown=units.UNKNOWN))
    return [*segments, energy or _("energy {unknown}", unknown=units.UNKNOWN)]


def short_line(report: Report) -> list[str]:
    """Return the segments of the one-line card of ``%gpu watch on``. Unknown figures are omitted."""
    gpus = report.memory_gpus
    segments = [_time(report)]
    if not gpus:
        segments.append(no_gpu(report))
    else:
        memory = headline_memory(report)
        whole = _("whole ") if memory.kind == "device" else ""
        place = (
            _("on {whole}{gpu}", whole=whole, gpu=gpu_name(gpus[0]))
            if len(gpus) == 1
            else _("summed over {number} GPUs, all processes", number=len(gpus))
            if whole
            else _("summed over {number} GPUs", number=len(gpus))
        )
        segments.append(f"{units.memory_delta(memory.start, memory.end)} {place}")
        segments.append(_peak(memory, gpus))
        counted = report.counted
        segments += [part for part in (_utilization(counted), _energy(counted)) if part is not None]
        segments += not_counted(report)
    named = zip(report.notes, report.note_ids, strict=False)
    segments += [_(note) for note, note_id in named if note_id.id == notes.NOT_MEASURED]
    return segments + ([_("a recording")] if report.source.recording is not None else [])


def no_gpu(report: Report) -> str:
    """Return why a report shows no GPU: none was used, there is none, or this is unknown."""
    reason = report.source.reason_id
    if report.gpus:
        return _("no GPU used")
    if reason is not None and reason.id in GPUS_UNKNOWN:
        return _("GPUs {unknown}", unknown=units.UNKNOWN)
    return _("no GPU")


def second_line(report: Report) -> list[str]:
    """Return the segments of the card's second line: the GPUs, whose memory the headline shows, the start.

    The start has its date, because a saved card can't know on which day it is read.
    """
    started = _("started {at}", at=time.strftime("%Y-%m-%d %H:%M", time.localtime(report.cell.started)))
    return [*_gpus_and_memory(report), started]


def warnings(report: Report) -> list[str]:
    """Return warnings about lost GPUs and exhausted memory, which the card always shows."""
    lost: dict[str, list[GpuReport]] = {}
    for gpu in report.shown:
        if gpu.lost_since is not None:
            lost.setdefault(units.clock_time(gpu.lost_since), []).append(gpu)
    found = [_("{gpus} lost since {at}", gpus=gpu_names(gpus), at=at) for at, gpus in lost.items()]
    torch = [(gpu, gpu.torch) for gpu in report.shown if gpu.torch is not None]
    failed = [(gpu, memory.ooms) for gpu, memory in torch if memory.ooms]
    if failed:
        number, most = _counts(failed)
        if most == 1:
            errors = _("{number} out-of-memory error", number=number)
        else:
            errors = _("{number} out-of-memory errors", number=number)
        found.append(_("{errors} on {each}", errors=errors, each=_each(failed)))
    flushed = [(gpu, memory.alloc_retries) for gpu, memory in torch if memory.alloc_retries]
    if flushed:
        number, most = _counts(flushed)
        times = _("{number} time", number=number) if most == 1 else _("{number} times", number=number)
        found.append(
            _("torch flushed its cache {times} on {each} to find memory", times=times, each=_each(flushed))
        )
    return found


def advice(report: Report) -> list[tuple[str, str, str]]:
    """Return the label, text and fix of each piece of advice, the most important first."""
    return [
        (
            _("Advice") if advice.sure else _("Advice (unsure)"),
            clean_line(_(advice.text), ADVICE_LENGTH),
            clean_line(_(advice.fix), ADVICE_LENGTH),
        )
        for advice in report.advice
    ]


def recording_label(report: Report) -> str | None:
    """Return the sentence that marks a report as based on a recording, or None for live data."""
    label = report.source.recording
    if label is None:
        return None
    return _(
        "{recording}: the values come from the recording, not from {process}",
        recording=clean_line(label, 120),
        process=process_label(report),
    )


def explanations(report: Report) -> list[str]:
    """Return sentences that prevent a misreading of the figures, for example if no GPU was in use."""
    found = []
    source = report.source
    if source.reason is not None:
        found.append(clean_line(_(source.reason), NOTE_LENGTH))
    if not report.gpus:
        return found or [_("No GPU was found.")]
    if not report.shown:
        gpu_text = (
            _("any of the {number} GPUs here", number=len(report.gpus))
            if len(report.gpus) > 1
            else _("the GPU here")
        )
        found.append(
            _(
                "{process} holds no memory on {gpu}.",
                process=process_label(report).capitalize(),
                gpu=gpu_text,
            )
        )
    elif not report.attributed and source.recording is None:
        found.append(
            _(
                "Couldn't tell which GPUs {process} uses, so all watched GPUs are shown.",
                process=process_label(report),
            )
        )
    return found


def headline_memory(report: Report) -> MemorySummary:
    """Summarize the memory that the headline shows: the first of the report's memory kinds."""
    memory = summarize_memory(report, report.memory_kinds()[0])
    # What changed in a recording is not what this run kept.
    return memory if report.source.recording is None else replace(memory, start=None, end=None)


def sampled(peak: str, kind: MemoryKind) -> str:
    """Return ``peak`` as text, marked if it is the highest sample. Only torch counts its peak exactly."""
    return peak if kind == "torch" else _("{peak} (sampled)", peak=peak)


def summarize_memory(report: Report, kind: MemoryKind) -> MemorySummary:
    """Return the summary of one of the report's memory kinds."""
    gpus, spans = report.memory_gpus, report.memory_spans(kind)
    total = sum_of_spans(spans)
    return MemorySummary(
        kind=kind,
        spans=tuple(spans),
        start=total.start,
        end=total.end,
        peak=total.peak,
        peak_gpu=None if total.peak is None else _highest_gpu(gpus, spans, units.memory(total.peak)),
    )


def not_counted_gpus(report: Report) -> list[GpuReport]:
    """Return the shown GPUs on which this notebook did not work.

    Other processes may have worked there, so these GPUs do not count in the headline.
    """
    counted = {gpu.uuid for gpu in report.counted}
    return [gpu for gpu in without_mig_parents(report.shown) if gpu.uuid not in counted]


def not_counted(report: Report) -> list[str]:
    """Return a phrase that names the GPUs of :func:`not_counted_gpus`, or nothing if there are none."""
    rest = not_counted_gpus(report)
    if not rest:
        return []
    return [_("no sign of work by {process} on {gpus}", process=process_label(report), gpus=gpu_names(rest))]


def gpu_number(gpu: GpuReport) -> str:
    """Return the GPU's number as text, such as ``0``, or ``0:1`` for a MIG slice."""
    return units.gpu_number(gpu.index, gpu.mig_index)


def gpu_names(gpus: Sequence[GpuReport]) -> str:
    """Return ``GPU 1`` or ``GPUs 0, 2, 5``. Three or more consecutive numbers become a range."""
    if len(gpus) == 1:
        return gpu_name(gpus[0])
    indices = [gpu.index for gpu in gpus]
    if len(gpus) > 2 and indices == list(range(indices[0], indices[0] + len(gpus))):
        return _("GPUs {first}\N{EN DASH}{last}", first=indices[0], last=indices[-1])
    return _("GPUs {gpus}", gpus=", ".join(gpu_number(gpu) for gpu in gpus))


def model_name(gpu: GpuReport) -> str:
    """Return the product name without the vendor, and whether the GPU uses the host's memory."""
    name = clean_line(gpu.name, 40).removeprefix("NVIDIA ")
    return _("{name}, unified memory", name=name) if gpu.unified_memory else name


def process_label(report: Report) -> str:
    """Return the label of the process that ``process_memory`` belongs to."""
    return _("this notebook") if report.cell.execution_count is not None else _("this process")


def mean_utilization(gpus: Sequence[GpuReport]) -> str:
    """Return the mean utilization, as text, over the GPUs whose utilization is known."""
    known = [gpu.utilization.mean for gpu in gpus if gpu.utilization is not None]
    return units.percent(sum(known) / len(known) if known else None)


def total_energy(gpus: Sequence[GpuReport]) -> str:
    """Return the energy of all GPUs as text, with ``at least`` in front if any GPU's energy is unknown.

    The error is added if it is stated for any GPU.
    """
    known = [joules for gpu in gpus for joules in (gpu.energy_j, gpu.energy_at_least_j) if joules is not None]
    if not known:
        return units.UNKNOWN
    if any(gpu.energy_j is None for gpu in gpus):
        return _("at least {energy}", energy=units.energy(sum(known)))
    return units.energy(sum(known), math.hypot(*(gpu.energy_error_j or 0.0 for gpu in gpus)))


# -- the first line --------------------------------------------------------------------------------------


def _time(report: Report) -> str:
    cell = report.cell
    took = units.duration(cell.duration_s)
    if cell.status == "error":
        return _("Stopped by an error after {took}", took=took)
    if cell.status == "interrupted":
        return _("Interrupted after {took}", took=took)
    tail = cell.gpu_tail_s
    if tail is not None and tail >= NEGLIGIBLE_WAIT_S and tail >= _MIN_TAIL_SHARE * cell.duration_s:
        return _("{took} + {tail} on the GPU", took=took, tail=units.duration(tail))
    return took


def _memory_segment(report: Report) -> str:
    memory, gpus = headline_memory(report), report.memory_gpus
    whole = _("whole ") if memory.kind == "device" else ""
    change = units.memory_delta(memory.start, memory.end)
    if memory.start is None or memory.end is None:
        change = _("memory {change}", change=change)
    over = (
        _(" summed over {number} GPUs, all processes", number=len(gpus))
        if len(gpus) > 1 and whole
        else _(" summed over {number} GPUs", number=len(gpus))
        if len(gpus) > 1
        else _(" on the whole GPU")
        if whole
        else ""
    )
    text = _("{change}{over}, {peak}", change=change, over=over, peak=_peak(memory, gpus))
    pool = next((note.params for note in report.note_ids if note.id == notes.JAX_POOL), None)
    if pool is None:
        return text
    return _("{memory} (JAX reserved {size} in advance)", memory=text, size=units.memory(pool["reserved"]))


def _peak(memory: MemorySummary, gpus: Sequence[GpuReport]) -> str:
    """Return the highest memory peak of any one GPU as text, and note if child processes held part of it."""
    gpu = memory.peak_gpu
    size = units.memory(memory.peak)
    peak = _("peak {peak}", peak=size) if memory.kind == "torch" else _("sampled peak {peak}", peak=size)
    if gpu is None:
        return peak
    if len(gpus) > 1:
        peak += _(" on {gpu}", gpu=gpu_name(gpu))
    children = gpu.children_memory
    if memory.kind != "process" or children is None:
        return peak
    if gpu.process_memory is not None and children.peak == gpu.process_memory.peak:
        return _("{peak} in child processes", peak=peak)
    return _("{peak} with child processes", peak=peak)


def _utilization(gpus: Sequence[GpuReport]) -> str | None:
    known = sum(gpu.utilization is not None for gpu in gpus)
    if not known:
        return None
    mean = mean_utilization(gpus)
    text = (
        _("mean GPU utilization {mean}", mean=mean) if known > 1 else _("GPU utilization {mean}", mean=mean)
    )
    if known < len(gpus):
        return _("{text} (known for {known} of {number} GPUs)", text=text, known=known, number=len(gpus))
    return text


def _energy(gpus: Sequence[GpuReport]) -> str | None:
    total = total_energy(gpus)
    return None if total == units.UNKNOWN else total


# -- the second line -------------------------------------------------------------------------------------


def _gpus_and_memory(report: Report) -> list[str]:
    gpus = report.memory_gpus
    if not gpus:
        return []
    memory = headline_memory(report)
    total = _sum(gpu.memory_total for gpu in gpus)
    segments = [_gpus_and_devices(gpus)]
    if memory.kind == "torch":
        segments.append(f"torch {units.memory_change(memory.start, memory.end)}")
    process = [gpu.process_memory for gpu in gpus if gpu.process_memory is not None]
    if len(process) == len(gpus):
        held = f"{process_label(report)} {_start_to_end(process, total)}{_first_use(process)}"
        segments.append(", ".join(filter(None, (held, _in_children(gpus)))))
    else:
        whole = _("whole GPU") if len(gpus) == 1 else _("whole GPUs")
        segments.append(f"{whole} {_start_to_end([gpu.device_memory for gpu in gpus], total)}")
    return segments + not_counted(report)


def _gpus_and_devices(gpus: Sequence[GpuReport]) -> str:
    models = {model_name(gpu) for gpu in gpus}
    devices = [clean_line(gpu.torch_device, 16) for gpu in gpus if gpu.torch_device is not None]
    name = f"{gpu_names(gpus)} {models.pop()}" if len(models) == 1 else gpu_names(gpus)
    if not devices:
        return name
    in_a_row = [f"cuda:{n}" for n in range(len(devices))]
    if len(devices) > 2 and devices == in_a_row:
        return _("{name} ({first} to {last})", name=name, first=devices[0], last=devices[-1])
    return f"{name} ({', '.join(devices)})" if len(devices) <= 4 else name


def _start_to_end(spans: Iterable[Span], total: int | None) -> str:
    held = sum_of_spans(spans)
    change = units.memory_change(held.start, held.end)
    if total is None:
        return change
    return f"{change.rpartition(units.ARROW)[0]}{units.ARROW} {_(units.memory_of(held.end, total))}"


def _first_use(spans: Sequence[Span]) -> str:
    first = any(span.start == 0 and span.end for span in spans)
    return _(", first use: its CUDA context included") if first else ""


def _in_children(gpus: Sequence[GpuReport]) -> str:
    """Return the child processes' peak and programs: ``in child processes up to 3.7 GiB (python a.py)``."""
    held = [(gpu.children_memory.peak or 0, gpu) for gpu in gpus if gpu.children_memory is not None]
    if not held:
        return ""
    most, where = max(held, key=lambda pair: pair[0])
    on = _(" on {gpu}", gpu=gpu_name(where)) if len(gpus) > 1 else ""
    programs = clean_line(
        ", ".join(dict.fromkeys(name for _, gpu in held for name in gpu.children)), _PROGRAMS_LENGTH
    )
    return _(
        "in child processes up to {most}{on} ({programs})", most=units.memory(most), on=on, programs=programs
    )


# -- helpers ---------------------------------------------------------------------------------------------


def _highest_gpu(gpus: Sequence[GpuReport], spans: Sequence[Span], peak: str) -> GpuReport:
    """Return the GPU whose peak is shown as ``peak``; of several, the one whose memory changed most."""
    found = [place for place, span in enumerate(spans) if units.memory(span.peak) == peak]
    return gpus[max(found, key=lambda place: (_largest_change(spans[place]), -place))]


def _largest_change(span: Span) -> int:
    known = [value for value in (span.peak, span.end) if value is not None]
    return 0 if span.start is None else max((abs(value - span.start) for value in known), default=0)


def _sum(values: Iterable[int | None]) -> int | None:
    """Return the sum of the values, or None if any value is unknown."""
    total = 0
    for value in values:
        if value is None:
            return None
        total += value
    return total


def _counts(found: Sequence[tuple[GpuReport, int]]) -> tuple[str, int]:
    """Return a count as text, such as ``3``, or ``1 to 3`` if the GPUs differ, and the highest count."""
    low, high = min(number for _, number in found), max(number for _, number in found)
    return str(low) if low == high else _("{low} to {high}", low=low, high=high), high


def _each(found: Sequence[tuple[GpuReport, int]]) -> str:
    names = gpu_names([gpu for gpu, _ in found])
    return names if len(found) == 1 else _("each of {names}", names=names)
