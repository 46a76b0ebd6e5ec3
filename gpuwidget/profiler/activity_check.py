"""Compare each line's GPU activity, which comes from stream queries, with the GPU's counters.

The profiler queries whether the CUDA stream has work. When code launches kernels of a few microseconds, a
query almost always finds the stream idle, because the kernel ends before the sampling thread gets the GIL.
The counters include such kernels, but do not show which line launched them. A line's activity is therefore
reported only if the GPU time that the queries missed could change it by at most a few percentage points.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from gpuwidget.measure.notes import gpu_name
from gpuwidget.model.messages import Message
from gpuwidget.model.report import CodeTime, FrameTime, GpuReport, LineTime, Report
from gpuwidget.profiler import messages
from gpuwidget.profiler.counter_windows import MatchedMeans
from gpuwidget.profiler.regression import WindowMixture, activity_by_line
from gpuwidget.profiler.sample_counts import SampleCounts

AGREE_WITHIN = 5.0
"""A line's activity is reported only if its error is at most this many percentage points. If the means of
queries and counters differ by more, they contradict each other."""
_NOISE = 2.0
"""Percentage points by which the means of queries and counters may differ although both are right. On an
H200, the largest difference in the tested loops was 1.6."""
_MIN_COMPARED = 0.6
"""If the counters' windows cover at least this fraction of the queried time, queries and counters are
compared over these windows. Otherwise, their means over the whole run are compared, provided that streams
were queried in at least this fraction of the run."""
_MAX_MEAN_DIFFERENCE = 3.0
"""The regression's activities are used only if the mean over the run that follows from them differs from the
driver's mean by at most this many percentage points. In a run of 4 s, the driver's windows may cover only
2 s. On an H200, the means then differed by up to 4.9 points, because the load varied."""
_EDGES_S = 0.3
"""Seconds by which the period that the driver's mean covers may differ from the run. The mean may leave out
part of the run, or include work from before the run."""


def check_activity(
    time: CodeTime,
    report: Report,
    counts: SampleCounts,
    windows: Mapping[int, MatchedMeans | None],
    mixtures: Sequence[Sequence[WindowMixture]],
    uuid: str | None,
) -> CodeTime:
    """Return ``time`` with the GPU activities that the counters confirm, or with those from a regression.

    The regression is used if queries and counters contradict each other, or if no stream was queried.

    Args:
        time: The line profile, whose activities come from stream queries.
        report: The run's report, for the driver's mean utilization and the names of the GPUs.
        counts: The stack samples with their stream queries.
        windows: For each queried device (the N of ``cuda:N``), the means of queries and counters over the
            same windows, or None to compare the means of the whole run.
        mixtures: For each counter, its windows with each line's share of them, for the regression. The
            counter whose windows cover most of the run comes first.
        uuid: The UUID of the GPU that these windows are of.
    """
    if not time.lines:
        return time
    contradiction, hidden = _compare(report, counts, windows, time.cpu)
    if counts.known_s and contradiction is None:
        if hidden is not None:
            return _without_uncertain_lines(time, hidden)
        has_activity = any(line.gpu_busy is not None for line in time.lines)
        return _with_activity(time, {}, messages.UNCHECKED) if has_activity else time
    reasons = [contradiction] if contradiction is not None else []
    for windows_of_counter in mixtures:
        activity = activity_by_line(windows_of_counter)
        if activity is not None and _matches_run_mean(activity, time, report, uuid):
            return _with_activity(time, activity, *reasons, messages.BY_WINDOWS)
    return _with_activity(time, {}, *reasons)


def _matches_run_mean(
    activity: Mapping[int | None, float], time: CodeTime, report: Report, uuid: str | None
) -> bool:
    """Return whether the lines' activities add up to the driver's mean utilization over the run.

    Lines without an activity may have any activity from 0 to 100 %.
    """
    utilization = next((gpu.utilization for gpu in report.gpus if gpu.uuid == uuid), None)
    if utilization is None:
        return False
    known = [
        (line.share, activity[line.line])
        for line in time.lines
        if line.until is None and line.line in activity
    ]
    low = sum(share * busy / 100 for share, busy in known)
    high = low + 100 - sum(share for share, _ in known)
    # The driver's mean includes the GPU drain (work after the code's end), during which the GPU was busy.
    duration, drain = report.cell.duration_s, report.cell.gpu_tail_s or 0.0
    low, high = ((mean * duration + 100 * drain) / (duration + drain) for mean in (low, high))
    return bool(known) and (low - _MAX_MEAN_DIFFERENCE <= utilization.mean <= high + _MAX_MEAN_DIFFERENCE)


def _contradiction(gpu: GpuReport, means: MatchedMeans, cpu: float | None) -> Message:
    """Return a sentence which explains why the stream queries and the counters of ``gpu`` disagree.

    ``cpu`` is the CPU time of this process in percent of one core, or None if unknown.
    """
    cause = "stream-work"
    if means.counters > means.stream:
        # Short kernels explain the difference only if this process used enough CPU time to launch them.
        launching = cpu is None or cpu >= means.counters - means.stream
        cause = "short-kernels" if launching else "other-streams"
    return messages.QUERIES_CONTRADICT_COUNTERS(
        gpu=gpu_name(gpu),
        queried=round(means.queried, 2),
        counters=round(means.counters, 2),
        cause=cause,
        shown={"why": messages.CAUSES[cause]},
    )


def _compare(
    report: Report, counts: SampleCounts, windows: Mapping[int, MatchedMeans | None], cpu: float | None
) -> tuple[Message | None, float | None]:
    """Compare the stream queries of a run with the GPUs' counters.

    Return two values. The first is a sentence that describes how queries and counters contradict each other,
    or None if they don't. The second is the largest percentage of the run in which queries can have missed
    work, or None if that is unknown.
    """
    duration = report.cell.duration_s
    hidden: float | None = 0.0 if windows else None
    for device, means in windows.items():
        gpu = next((gpu for gpu in report.gpus if gpu.torch_device == f"cuda:{device}"), None)
        edges = 0.0
        if gpu is not None and (means is None or means.seconds < _MIN_COMPARED * counts.known_s):
            means = _whole_run(gpu, report, counts, device, alone=len(windows) == 1)
            edges = 100 * _EDGES_S / duration
        if gpu is None or means is None:
            hidden = None
            continue
        excess = means.counters - means.stream
        if abs(excess) > AGREE_WITHIN + edges:
            return _contradiction(gpu, means, cpu), None
        # If the run is short, the driver's mean may differ this much only because its period differs from the
        # run's (_EDGES_S). Then the mean neither contradicts nor confirms the queries.
        if abs(excess) > AGREE_WITHIN:
            hidden = None
        elif hidden is not None:
            hidden += max(0.0, excess - _NOISE)
    return None, hidden


def _whole_run(
    gpu: GpuReport, report: Report, counts: SampleCounts, device: int, *, alone: bool
) -> MatchedMeans | None:
    """Return the driver's mean utilization over the run, and the mean according to the stream queries.

    The stream's state is unknown for part of the run, so the queries only yield a range of possible means.
    The value in this range that is nearest to the driver's mean is returned. ``alone`` is true if no other
    device was queried.
    """
    known, unknown = counts.known_s, counts.total_s - counts.known_s
    if gpu.utilization is None or not known or known < _MIN_COMPARED * counts.total_s:
        return None
    busy = sum(seconds for bits, seconds in dict(counts.busy_s).items() if bits & 1 << device)
    queried = 100 * busy / known
    # The driver's mean includes the GPU drain (work after the code's end), during which at least one of the
    # devices was busy. If only one device was queried, that device was busy.
    drain = report.cell.gpu_tail_s or 0.0
    low, high = busy + drain * alone, busy + unknown + drain
    percent = 100 / (counts.total_s + drain)
    utilization = gpu.utilization.mean
    nearest = min(max(utilization, low * percent), high * percent)
    return MatchedMeans(report.cell.duration_s, nearest, utilization, queried)


def _without_uncertain_lines(time: CodeTime, hidden: float) -> CodeTime:
    """Remove activities that are too uncertain if queries missed work in ``hidden`` percent of the run."""

    def activity(row: LineTime | FrameTime) -> float | None:
        if row.gpu_busy is None:
            return None
        could_hide = min(100 - row.gpu_busy, 100 * hidden / max(row.share, 1e-9))
        return row.gpu_busy if could_hide <= AGREE_WITHIN else None

    lines = tuple(
        replace(
            line,
            gpu_busy=activity(line),
            frames=tuple(replace(frame, gpu_busy=activity(frame)) for frame in line.frames),
        )
        for line in time.lines
    )
    if lines == time.lines:
        return time
    return replace(time, lines=lines).with_reasons(messages.HIDDEN_WORK(percent=round(hidden, 2)))


def _with_activity(time: CodeTime, activity: Mapping[int | None, float], *reasons: Message) -> CodeTime:
    """Return ``time`` with its lines' GPU activity replaced by ``activity`` and with ``reasons`` added.

    ``activity`` is keyed by line number. Other lines, and all frames, are left without an activity.
    """
    lines = tuple(
        replace(
            line,
            gpu_busy=activity.get(line.line) if line.until is None else None,
            frames=tuple(replace(frame, gpu_busy=None) for frame in line.frames),
        )
        for line in time.lines
    )
    return replace(time, lines=lines).with_reasons(*reasons)
