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
from gpuwidget.model.metrics import REPORTED
from gpuwidget.model.report import GpuReport, MemoryKind, Report, Span, sum_of_spans
from gpuwidget.model.samples import without_mig_parents
from gpuwidget.model.terminal_text import clean_line
from gpuwidget.model.translation import _, capitalized
from gpuwidget.views import styles
from gpuwidget.views.elements import Figure
from gpuwidget.views.headline import kept_qualifier, peak_qualifier
from gpuwidget.views.holders_view import names as holder_names

DELTA = "\N{GREEK CAPITAL LETTER DELTA}"
NOTE_LENGTH = 400
"""Maximum number of characters shown of a sentence from a report or a source."""
ADVICE_LENGTH = 300
"""Maximum number of characters shown of an advice's text, and of its fix."""
NEGLIGIBLE_WAIT_S = 1e-3
"""Waits for the GPU that are shorter than this are within the measurement error."""
SHORT_S = 1.0
"""A cell that takes less time than this may go without a card."""
PROGRAMS_LENGTH = 80
"""Maximum number of characters shown of the child processes' programs."""
_HOLDER_LENGTH = 24
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


def figures(report: Report) -> list[Figure]:
    """Return the figures of the card's first row: time, memory, utilization, energy."""
    time = _time(report)
    if not report.shown:
        host = report.host_memory
        return [
            time,
            Figure(units.memory(host.peak), _("host memory peak"), process_label(report)),
            Figure(units.memory_delta(host.start, host.end), _("host memory kept"), process_label(report)),
        ]
    memory = headline_memory(report)
    found = [time, _peak(report, memory), _kept(report, memory)]
    counted = report.counted
    return [*found, _busy(counted), _energy(counted)] if counted else found


def headline(report: Report) -> list[str]:
    """Return the figures as segments of a line of text, with their labels."""
    segments = [_segment(figure) for figure in figures(report)]
    return segments if report.shown else [segments[0], no_gpu(report), *segments[1:]]


def short_line(report: Report) -> list[str]:
    """Return the segments of the one-line card of ``%gpu watch on``. Unknown figures are omitted.

    If only memory changed that the figures don't show, such as that of a library beside torch, it follows.
    """
    time, *others = figures(report)
    segments = [_segment(time)]
    if not report.shown:
        segments.append(no_gpu(report))
    else:
        memory, rest = others[:2], [replace(figure, qualifier="") for figure in others[2:]]
        segments += [_segment(figure) for figure in (*memory, *rest) if figure.value != units.UNKNOWN]
        changed = [] if report.source.recording is not None else _changed_kinds(report)
        hidden = changed and report.memory_kinds()[0] not in changed
        segments += gpus_and_memory(report) if hidden else [gpu_names(report.memory_gpus)]
        segments += not_counted(report)
    named = zip(report.notes, report.note_ids, strict=False)
    segments += [_(note) for note, note_id in named if note_id.id == notes.NOT_MEASURED.id]
    return segments + ([_("a recording")] if report.source.recording is not None else [])


def is_silent(report: Report) -> bool:
    """Return whether there is nothing to say below a cell that the user did not ask to watch.

    This is so if the cell ended well, was short and changed nothing that a card shows. A failure to measure
    is never silent.
    """
    cell = report.cell
    if cell.status != "ok" or cell.duration_s + (cell.gpu_tail_s or 0.0) >= SHORT_S:
        return False
    measured = all(note.id != notes.NOT_MEASURED.id for note in report.note_ids)
    reason = report.source.reason
    if not measured or report.advice or report.workers or warnings(report):
        return False
    if not report.shown:
        return reason is None or reason.id not in GPUS_UNKNOWN
    # What changed in a recording is not what this run changed.
    return report.source.recording is not None or not _changed_kinds(report)


def _changed_kinds(report: Report) -> list[MemoryKind]:
    """Return the kinds of memory that the run changed, or of which this is unknown.

    Where the process's memory is known, the rest of the GPU's memory is that of other processes.
    """
    kinds = report.memory_kinds()
    return [
        kind
        for kind in kinds
        if (kind != "device" or "process" not in kinds)
        and not all(map(_is_unchanged, report.memory_spans(kind)))
    ]


def _is_unchanged(span: Span) -> bool:
    known = None not in (span.start, span.end, span.peak)
    return known and span.start == span.end and units.memory(span.peak) == units.memory(span.start)


def no_gpu(report: Report) -> str:
    """Return why a report shows no GPU: none was used, there is none, or this is unknown."""
    reason = report.source.reason
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
    return [*gpus_and_memory(report), started]


def warnings(report: Report) -> list[str]:
    """Return warnings about lost GPUs and exhausted memory, which the card always shows.

    The card of a run that died begins with the reason.
    """
    died = report.notes[: notes_begin(report)]
    return [*map(_, died), *lost_gpus(report), *_exhausted_memory(report)]


def notes_begin(report: Report) -> int:
    """Return the index of the first note that the card shows with the other notes.

    The first note of a run that died is the reason, which the card shows above them.
    """
    return int(report.cell.status == "died" and bool(report.notes))


def lost_gpus(report: Report) -> list[str]:
    """Return a warning for each time at which GPUs were lost."""
    lost: dict[str, list[GpuReport]] = {}
    for gpu in report.shown:
        if gpu.lost_since is not None:
            lost.setdefault(units.clock_time(gpu.lost_since), []).append(gpu)
    return [_("{gpus} lost since {at}", gpus=gpu_names(gpus), at=at) for at, gpus in lost.items()]


def _exhausted_memory(report: Report) -> list[str]:
    found = []
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


def advice(report: Report) -> list[tuple[bool, str, str]]:
    """Return whether each piece of advice is sure, its text and its fix, the most important first."""
    return [
        (
            advice.sure,
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
        process = process_label(report).capitalize()
        found.append(
            _(
                "{process} holds no memory on any of the {number} GPUs.",
                process=process,
                number=len(report.gpus),
            )
            if len(report.gpus) > 1
            else _("{process} holds no memory on the GPU.", process=process)
        )
    elif not report.attributed and source.recording is None:
        found.append(
            _(
                "Couldn't tell which GPUs {process} uses, so all watched GPUs are shown.",
                process=process_label(report),
            )
        )
    return found + [f"{capitalized(text)}." for text in not_counted(report)]


def headline_memory(report: Report) -> MemorySummary:
    """Summarize the memory that the headline shows: the first of the report's memory kinds."""
    memory = summarize_memory(report, report.memory_kinds()[0])
    # What changed in a recording is not what this run kept.
    return memory if report.source.recording is None else replace(memory, start=None, end=None)


def sampled(peak: str, *, exact: bool) -> str:
    """Return ``peak`` as text, marked if it is the highest sample. Only torch counts its peak exactly."""
    return peak if exact else _("{peak} (sampled)", peak=peak)


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
    """Return the energy of all GPUs as text, with ``≥`` in front if any GPU's energy is unknown.

    The error is added if it is stated for any GPU.
    """
    known = [joules for gpu in gpus for joules in (gpu.energy_j, gpu.energy_at_least_j) if joules is not None]
    if not known:
        return units.UNKNOWN
    if any(gpu.energy_j is None for gpu in gpus):
        return f"≥ {units.energy(sum(known))}"
    return units.energy(sum(known), math.hypot(*(gpu.energy_error_j or 0.0 for gpu in gpus)))


# -- the figures -----------------------------------------------------------------------------------------


def _segment(figure: Figure) -> str:
    qualifier = figure.qualifier.replace("\n", ", ").replace(" · ", ", ")
    return f"{figure.label} {figure.value}" + (f" ({qualifier})" if qualifier else "")


def _lines(*qualifiers: str) -> str:
    return "\n".join(filter(None, qualifiers))


def _time(report: Report) -> Figure:
    cell = report.cell
    took, label = units.duration(cell.duration_s), _("time")
    if cell.status == "error":
        return Figure(took, label, _("stopped by an error"), color=styles.ERROR)
    if cell.status == "interrupted":
        return Figure(took, label, _("interrupted"), color=styles.WARNING)
    if cell.status == "died":
        return Figure(took, label, _("died, up to the last sample"), color=styles.ERROR)
    tail = cell.gpu_tail_s
    if tail is not None and tail >= NEGLIGIBLE_WAIT_S and tail >= _MIN_TAIL_SHARE * cell.duration_s:
        return Figure(took, label, _("+ {tail} on the GPU", tail=units.duration(tail)))
    return Figure(took, label)


def _peak(report: Report, memory: MemorySummary) -> Figure:
    """Return the highest memory peak of any one GPU, and whether child processes held part of it."""
    if memory.peak is None:
        return Figure(units.UNKNOWN, _("peak memory"), title=_why_no_memory(report, memory.kind))
    gpus, gpu = report.memory_gpus, memory.peak_gpu
    children = pool = ""
    where = gpu_name(gpu) if gpu is not None and len(gpus) > 1 else None
    if gpu is not None and memory.kind == "process" and gpu.children_memory is not None:
        only = gpu.process_memory is not None and gpu.children_memory.peak == gpu.process_memory.peak
        children = _("in child processes") if only else _("with child processes")
    reserved = next((note.params for note in report.note_ids if note.id == notes.JAX_POOL.id), None)
    if reserved is not None:
        pool = _("JAX reserved {size}", size=units.memory(reserved["reserved"]))
    how = peak_qualifier(memory.kind, gpus[0].memory_total if len(gpus) == 1 else None, where)
    qualifier = _lines(how, children, pool)
    return Figure(units.memory(memory.peak), _("peak memory"), qualifier)


def _kept(report: Report, memory: MemorySummary) -> Figure:
    """Return the change of the memory of all GPUs."""
    change, label = units.memory_delta(memory.start, memory.end), _("memory kept")
    if report.source.recording is not None:
        return Figure(change, label, _("a recording"))
    if change == units.UNKNOWN:
        return Figure(change, label, title=_why_no_memory(report, memory.kind))
    below = [kept_qualifier(memory.kind, len(report.memory_gpus))]
    if memory.kind == "torch" and report.holders and change.startswith("+"):
        largest = clean_line(holder_names(report.holders[0])[0], _HOLDER_LENGTH)
        below.append(_("largest: {name}", name=largest))
    return Figure(change, label, " · ".join(filter(None, below)))


def _why_no_memory(report: Report, kind: MemoryKind) -> str:
    """Return why a figure of the headline's memory is unknown."""
    field = "torch" if kind == "torch" else f"{kind}_memory"
    return next((reason for gpu in report.memory_gpus if (reason := _reason(gpu, field))), "")


def _busy(gpus: Sequence[GpuReport]) -> Figure:
    known = [gpu for gpu in gpus if gpu.utilization is not None]
    mean, label = mean_utilization(gpus), _("GPU busy")
    if not known:
        return Figure(mean, label, title=_reason(gpus[0], "utilization"))
    if len(known) < len(gpus):
        known_for = _("known for {known} of {number} GPUs", known=len(known), number=len(gpus))
        return Figure(mean, label, known_for)
    if len(gpus) > 1:
        return Figure(mean, label, _("mean of {number} GPUs", number=len(gpus)))
    below = [
        f"{_(reported.title)} {units.KINDS[metric.kind].text(level.mean)}"
        for metric, reported in REPORTED
        if reported.headline and reported.title is not None
        if (level := gpus[0].levels[reported.name]) is not None
    ]
    return Figure(mean, label, " · ".join(below))


def _energy(gpus: Sequence[GpuReport]) -> Figure:
    total, label = total_energy(gpus), _("energy")
    if total == units.UNKNOWN:
        return Figure(total, label, title=_reason(gpus[0], "energy_j"))
    number, _sign, error = total.partition(" ± ")
    value = f"{number} {error.split()[1]}" if error else total
    power = gpus[0].power_w if len(gpus) == 1 else None
    below = [f"± {error}"] if error else []
    below += [] if power is None else [units.power(power.mean)]
    return Figure(value, label, " · ".join(below))


def _reason(gpu: GpuReport, field: str) -> str:
    return _(gpu.missing[field]) if field in gpu.missing else ""


# -- the second line -------------------------------------------------------------------------------------


def gpus_and_memory(report: Report) -> list[str]:
    """Return the GPUs, and the memory at the run's start and end, as segments of a line."""
    gpus = report.memory_gpus
    if not gpus:
        return []
    memory = headline_memory(report)
    total = _sum(gpu.memory_total for gpu in gpus)
    segments = [gpus_and_devices(gpus)]
    if memory.kind == "torch":
        segments.append(f"torch {units.memory_change(memory.start, memory.end)}")
    process = [gpu.process_memory for gpu in gpus if gpu.process_memory is not None]
    if len(process) == len(gpus):
        held = _first_use(process, f"{process_label(report)} {_start_to_end(process, total)}")
        segments.append(", ".join(filter(None, (held, _in_children(gpus)))))
    else:
        whole = _("whole GPU") if len(gpus) == 1 else _("whole GPUs")
        segments.append(f"{whole} {_start_to_end([gpu.device_memory for gpu in gpus], total)}")
    return segments


def gpus_and_devices(gpus: Sequence[GpuReport]) -> str:
    """Return the GPUs with their model and their devices in torch, such as ``GPU 1 H200 (cuda:1)``."""
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


def _first_use(spans: Sequence[Span], memory: str) -> str:
    """Return ``memory``, with a note if the process began to use a GPU."""
    if not any(span.start == 0 and span.end for span in spans):
        return memory
    return _("{memory}, first use: its CUDA context included", memory=memory)


def _in_children(gpus: Sequence[GpuReport]) -> str:
    """Return the child processes' peak and programs: ``in child processes up to 3.7 GiB (python a.py)``."""
    held = [(gpu.children_memory.peak or 0, gpu) for gpu in gpus if gpu.children_memory is not None]
    if not held:
        return ""
    most, where = max(held, key=lambda pair: pair[0])
    programs = clean_line(
        ", ".join(dict.fromkeys(name for _, gpu in held for name in gpu.children)), PROGRAMS_LENGTH
    )
    if len(gpus) == 1:
        return _("in child processes up to {most} ({programs})", most=units.memory(most), programs=programs)
    return _(
        "in child processes up to {most} on {gpu} ({programs})",
        most=units.memory(most),
        gpu=gpu_name(where),
        programs=programs,
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
