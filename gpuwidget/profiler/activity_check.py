"""Check the GPU activity of each line against the GPU's own counters, and withhold what they contradict.

A query of the stream while code launches kernels of a few microseconds finds it idle almost always: the
kernel ends before the sampling thread gets the interpreter. The counters see such kernels, but not which line
launched them. So a line keeps its activity only where the time that the queries missed is too little to
change it by more than a few points.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from gpuwidget.measure.notes import gpu_name
from gpuwidget.model import units
from gpuwidget.model.report import CodeTime, FrameTime, GpuReport, LineTime, Report
from gpuwidget.profiler.counter_windows import Compared
from gpuwidget.profiler.sample_counts import Tally

AGREE_WITHIN = 5.0
"""Points by which a line's activity may be off."""
_NOISE = 2.0
"""Points by which the queries' mean and the counters' differ where both are right: the worst of the known
loops on an H200 was off by 1.6."""
_LEAST_COMPARED = 0.6
"""Part of the queried time that windows of the counters must cover to speak for all of it."""
_EDGES_S = 0.3
"""Seconds at a run's edges: the driver's mean may leave them out, or contain work from before the run."""
_LEAST_QUERIED = 0.5
"""Part of the run in which the streams must have been queried for a comparison with its mean."""

UNCHECKED = (
    "GPU activity per line is not shown: the run was too short to check it against the GPU's counters, or "
    "they returned no value."
)
BY_WINDOWS = "The GPU's activity is told from the driver's windows instead."
_SHORT_KERNELS = (
    "kernels of a few microseconds end before a query sees them, or the work ran on other streams or in "
    "other processes"
)
_OTHER_STREAMS = "other streams, libraries or processes worked on it"
_STREAM_WORK = "copies and waits for other streams are work of a stream, but not of the GPU's compute engines"


@dataclass(frozen=True, slots=True)
class Comparison:
    """What the stream queries found over a run, and what the GPU's counters say."""

    hidden_s: float
    """Seconds of GPU work that the queries did not see, at most."""
    checked: bool
    """Whether every device that was queried could be compared."""
    contradiction: str | None
    """Why the queries' activity is not the GPU's, as a sentence; None where the two agree."""


def compare(
    report: Report,
    tally: Tally,
    devices: Sequence[int],
    windows: Mapping[int, Compared | None],
    cpu: float | None,
) -> Comparison:
    """Compare the stream queries of a run with the GPUs' counters.

    Args:
        report: The run's report, for the driver's mean utilization and the names of the GPUs.
        tally: The stack samples with their stream queries.
        devices: The N of every ``cuda:N`` that was queried.
        windows: By that N, the comparison over matching windows of GPM's graphics activity, or of the
            driver's utilization; devices without one are compared by the means of the whole run.
        cpu: CPU time of this process over the run, percent of one core; None where unknown.
    """
    duration = report.cell.duration_s
    hidden, checked = 0.0, bool(devices)
    for device in devices:
        gpu = next((one for one in report.gpus if one.torch_device == f"cuda:{device}"), None)
        found, edges = windows.get(device), 0.0
        if found is None or found.seconds < _LEAST_COMPARED * tally.known:
            found = None if gpu is None else _whole_run(gpu, report, tally, device, alone=len(devices) == 1)
            edges = 100 * _EDGES_S / duration
        if gpu is None or found is None:
            checked = False
            continue
        excess = found.counters - found.stream
        if abs(excess) > AGREE_WITHIN + edges:
            return Comparison(duration, checked, _contradiction(gpu, found, cpu))
        # The edges of a short run explain the difference, so that nothing is confirmed.
        checked = checked and abs(excess) <= AGREE_WITHIN
        hidden += max(0.0, excess - _NOISE) / 100 * duration
    return Comparison(hidden, checked, None)


def _whole_run(gpu: GpuReport, report: Report, tally: Tally, device: int, *, alone: bool) -> Compared | None:
    """The queries' mean nearest to the driver's that is possible, and the driver's mean utilization."""
    if gpu.utilization is None or not tally.known or tally.known < _LEAST_QUERIED * tally.whole:
        return None
    busy = sum(seconds for bits, seconds in dict(tally.busy).items() if bits & 1 << device)
    least, most = 100 * busy / tally.whole, 100 * (busy + tally.whole - tally.known) / tally.whole
    # The driver's mean covers the time in which the GPU went on, one of several devices at least.
    duration, tail = report.cell.duration_s, report.cell.gpu_tail_s or 0.0
    whole = duration + tail
    least = (least * duration + 100 * tail * alone) / whole
    most = (most * duration + 100 * tail) / whole
    drivers = gpu.utilization.mean
    return Compared(duration, min(max(drivers, least), most), drivers, 100 * busy / tally.known)


def _contradiction(gpu: GpuReport, found: Compared, cpu: float | None) -> str:
    why = _STREAM_WORK
    if found.counters > found.stream:
        # Launching kernels keeps a CPU core busy.
        launching = cpu is None or cpu >= found.counters - found.stream
        why = _SHORT_KERNELS if launching else _OTHER_STREAMS
    return (
        f"{gpu_name(gpu)}: its default stream had work in {units.percent(found.queried)} of the queries and "
        f"the GPU's counters say {units.percent(found.counters)} busy: {why}."
    )


def without_doubtful(time: CodeTime, hidden_s: float, duration_s: float) -> CodeTime:
    """Return ``time`` without the activity of lines that the work hidden from the queries could change."""
    if hidden_s <= 0:
        return time
    hidden = 100 * hidden_s / duration_s
    lines = tuple(_kept(line, hidden) for line in time.lines)
    if _told(lines) == _told(time.lines):
        return time
    reason = (
        f"The GPU's counters show work in up to {units.percent(hidden)} of the run that queries of its "
        "stream did not see: no activity is given for lines that this work could change."
    )
    return replace(time, lines=lines, reason=_and(time.reason, reason))


def _told(lines: Sequence[LineTime]) -> int:
    return sum(line.gpu_busy is not None for line in lines)


def _kept(line: LineTime, hidden: float) -> LineTime:
    """Return ``line`` and its frames with the activities that ``hidden`` percent of the run can't change."""

    def activity(one: LineTime | FrameTime) -> float | None:
        if one.gpu_busy is None or not one.share:
            return None
        could_hide = min(100 - one.gpu_busy, 100 * hidden / one.share)
        return one.gpu_busy if could_hide <= AGREE_WITHIN else None

    frames = tuple(replace(frame, gpu_busy=activity(frame)) for frame in line.frames)
    return replace(line, gpu_busy=activity(line), frames=frames)


def with_activity(time: CodeTime, activity: Mapping[int | None, float], reason: str | None) -> CodeTime:
    """``time`` with the activities of another measurement, by line, and the reason for that.

    A line that ``activity`` does not name has none.
    """
    return replace(
        time,
        lines=tuple(
            replace(
                line,
                gpu_busy=activity.get(line.line) if line.until is None else None,
                frames=tuple(replace(frame, gpu_busy=None) for frame in line.frames),
            )
            for line in time.lines
        ),
        reason=_and(time.reason, reason),
    )


def _and(first: str | None, second: str | None) -> str | None:
    return " ".join(filter(None, [first, second])) or None
