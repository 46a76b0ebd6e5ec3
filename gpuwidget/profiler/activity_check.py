"""Check each line's GPU activity against the GPU's counters, and withhold values that they contradict.

The profiler queries whether the CUDA stream has work. When code launches kernels of a few microseconds, a
query almost always finds the stream idle, because the kernel ends before the sampling thread gets the GIL.
The counters include such kernels, but do not show which line launched them. A line therefore keeps its
activity only if the GPU time that the queries missed could change it by at most a few percentage points.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from gpuwidget.model.report import CodeTime, FrameTime, GpuReport, LineTime, Report
from gpuwidget.profiler import messages
from gpuwidget.profiler.counter_windows import MatchedMeans
from gpuwidget.profiler.sample_counts import SampleCounts

AGREE_WITHIN = 5.0
"""Percentage points by which a line's activity may be wrong."""
_NOISE = 2.0
"""Percentage points by which the means of queries and counters may differ although both are right. On an
H200, the largest difference over the tested loops was 1.6."""
_MIN_COMPARED = 0.6
"""Fraction of the queried time that the counters' windows must cover to represent all of it."""
_EDGES_S = 0.3
"""Seconds at a run's start and end that the driver's mean may leave out, or in which it may include work from
before the run."""
_MIN_QUERIED = 0.5
"""Fraction of the run in which the streams must have been queried to compare them with the run's mean
utilization."""


@dataclass(frozen=True, slots=True)
class ActivityCheck:
    """Result of comparing a run's stream queries with the GPU's counters."""

    hidden_s: float
    """Upper limit of the seconds of GPU work that the queries missed."""
    checked: bool
    """Whether every device that was queried could be compared."""
    contradiction: str | None
    """A sentence that explains why queries and counters disagree, or None if they agree."""


def compare_with_counters(
    report: Report,
    counts: SampleCounts,
    devices: Sequence[int],
    windows: Mapping[int, MatchedMeans | None],
    cpu: float | None,
) -> ActivityCheck:
    """Compare the stream queries of a run with the GPUs' counters.

    Args:
        report: The run's report, for the driver's mean utilization and the names of the GPUs.
        counts: The stack samples with their stream queries.
        devices: The N of every ``cuda:N`` that was queried.
        windows: By the same N, the means over matching windows of GPM's graphics activity or of the driver's
            utilization. Devices without an entry are compared by the means of the whole run.
        cpu: CPU time of this process over the run in percent of one core, or None if unknown.
    """
    duration = report.cell.duration_s
    hidden, checked = 0.0, bool(devices)
    for device in devices:
        gpu = next((one for one in report.gpus if one.torch_device == f"cuda:{device}"), None)
        means, edges = windows.get(device), 0.0
        if means is None or means.seconds < _MIN_COMPARED * counts.known_s:
            means = None if gpu is None else _whole_run(gpu, report, counts, device, alone=len(devices) == 1)
            edges = 100 * _EDGES_S / duration
        if gpu is None or means is None:
            checked = False
            continue
        excess = means.counters - means.stream
        if abs(excess) > AGREE_WITHIN + edges:
            return ActivityCheck(duration, checked, messages.contradiction(gpu, means, cpu))
        # A difference that the edges of a short run can explain neither contradicts nor confirms the queries.
        checked = checked and abs(excess) <= AGREE_WITHIN
        hidden += max(0.0, excess - _NOISE) / 100 * duration
    return ActivityCheck(hidden, checked, None)


def _whole_run(
    gpu: GpuReport, report: Report, counts: SampleCounts, device: int, *, alone: bool
) -> MatchedMeans | None:
    """Compare the driver's mean utilization over the run with the nearest mean that the queries allow."""
    total, known = counts.total_s, counts.known_s
    if gpu.utilization is None or not known or known < _MIN_QUERIED * total:
        return None
    busy = sum(seconds for bits, seconds in dict(counts.busy_s).items() if bits & 1 << device)
    low, high = 100 * busy / total, 100 * (busy + total - known) / total
    # The driver's mean includes the GPU drain, during which at least one of the devices was busy.
    duration, drain = report.cell.duration_s, report.cell.gpu_tail_s or 0.0
    low = (low * duration + 100 * drain * alone) / (duration + drain)
    high = (high * duration + 100 * drain) / (duration + drain)
    utilization = gpu.utilization.mean
    return MatchedMeans(duration, min(max(utilization, low), high), utilization, 100 * busy / known)


def withhold_uncertain(time: CodeTime, hidden_s: float, duration_s: float) -> CodeTime:
    """Return ``time`` without the activity of lines that could change too much due to the hidden GPU work.

    ``hidden_s`` is the number of seconds of GPU work that the stream queries missed.
    """
    if hidden_s <= 0:
        return time
    hidden = 100 * hidden_s / duration_s
    lines = tuple(_without_uncertain(line, hidden) for line in time.lines)
    if _lines_with_activity(lines) == _lines_with_activity(time.lines):
        return time
    return replace(time, lines=lines, reason=messages.joined(time.reason, messages.hidden_work(hidden)))


def _lines_with_activity(lines: Sequence[LineTime]) -> int:
    return sum(line.gpu_busy is not None for line in lines)


def _without_uncertain(line: LineTime, hidden: float) -> LineTime:
    """Remove activities of ``line`` and its frames that ``hidden`` percent of the run could change."""

    def activity(one: LineTime | FrameTime) -> float | None:
        if one.gpu_busy is None or not one.share:
            return None
        could_hide = min(100 - one.gpu_busy, 100 * hidden / one.share)
        return one.gpu_busy if could_hide <= AGREE_WITHIN else None

    frames = tuple(replace(frame, gpu_busy=activity(frame)) for frame in line.frames)
    return replace(line, gpu_busy=activity(line), frames=frames)


def replace_activity(time: CodeTime, activity: Mapping[int | None, float], reason: str | None) -> CodeTime:
    """Return ``time`` with its activities replaced by those of another measurement, and ``reason`` added.

    ``activity`` is by line number. A line that it does not contain gets no activity.
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
        reason=messages.joined(time.reason, reason),
    )
