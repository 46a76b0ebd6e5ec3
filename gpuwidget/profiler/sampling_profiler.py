"""Sampling profiler for the thread that runs a cell. Another thread takes the stack samples.

A sample locates the profiled thread in the user's code and queries whether the GPU is busy, which takes
microseconds in all. The sampling rate depends on the measured cost of a sample.
"""

from __future__ import annotations

import asyncio
import random
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from types import FrameType
from typing import Any, Protocol

from gpuwidget.measure.steady_state import find_warm_up
from gpuwidget.model.clock import SYSTEM_CLOCK, Clock
from gpuwidget.model.fork import reset_after_fork
from gpuwidget.model.report import CodeTime, Report
from gpuwidget.profiler import messages
from gpuwidget.profiler.activity_check import (
    ActivityCheck,
    compare_with_counters,
    replace_activity,
    withhold_uncertain,
)
from gpuwidget.profiler.code_locations import CodeLocator
from gpuwidget.profiler.counter_windows import CounterWindows, WindowLog, activity_by_line
from gpuwidget.profiler.line_profile import SourceLine, check_coverage, line_profile
from gpuwidget.profiler.preemption import is_at_function_entry, is_at_preemption_point
from gpuwidget.profiler.sample_counts import PROMPT_S, SampleCounts, StackSample
from gpuwidget.system import processes

_PERIOD_S = 0.005
"""Mean seconds between samples when samples query the GPU, as long as samples are cheap."""
_PERIOD_WITHOUT_GPU_S = 0.02
"""Mean seconds between samples when there is no GPU to query, as long as samples are cheap."""
_MAX_PERIOD_S = 0.05
_MAX_CPU = 0.02
"""Maximum fraction of one CPU core that sampling may use in a longer run. Waking the thread takes most of
it."""
_MAX_GIL_SHARE = 0.005
"""Maximum fraction of the run by which sampling may slow down code that holds the GIL all the time."""
_HANDOVER_S = 1e-4
"""Seconds that a preempted thread loses until it has the GIL again."""
_FULL_RATE_S = 1.0
_MAX_EXPOSED_SHARE = 0.008
"""Maximum fraction of the run by which sampling may slow down code for which the GPU waits."""
_WAKING_S = 2e-4
"""Seconds that a thread loses in addition if it releases the GIL for a moment, as torch's operations do, and
a sample takes the GIL: the thread then sleeps and must be woken. On an H200 machine, a launch-bound loop
whose thread ran for half of the time lost 0.13 ms to each sample of 0.07 ms."""
_FULL_RATE_EXPOSED_S = 0.25
_ENOUGH_SAMPLES = 10_000
"""Number of samples at which a share is uncertain by at most one percentage point. The sampling rate of a
longer run is lowered to take no more than these."""
_ADJUST_EVERY_S = 0.5
_ADJUST_FIRST_S = 0.25
"""Seconds until the sampling rate is first adjusted. The time is short because short cells end soon."""
_JOIN_S = 0.25


class Streams(Protocol):
    """Interface to query whether streams have work.

    :class:`~gpuwidget.pytorch.stream_activity.DefaultStreams` implements it.
    """

    @property
    def devices(self) -> tuple[int, ...]: ...  # noqa: D102 - documented there
    @property
    def reason(self) -> str | None: ...  # noqa: D102
    def open(self) -> bool: ...  # noqa: D102
    def busy(self) -> int | None: ...  # noqa: D102


@dataclass(slots=True)
class _CpuTimes:
    """CPU seconds that this process and its children have used up to the moment ``t``."""

    t: float
    own: float
    children: processes.ChildrenTime


class SamplingProfiler:
    """Profiles one run (see :class:`gpuwidget.measure.collector.Collector`)."""

    def __init__(
        self,
        locator: CodeLocator,
        source: SourceLine,
        streams: Streams,
        *,
        windows: CounterWindows | None = None,
        clock: Clock = SYSTEM_CLOCK,
        frames: Callable[[], dict[int, FrameType]] = sys._current_frames,
    ) -> None:
        self._locator = locator
        self._source = source
        self._streams = streams
        self._windows = windows
        self._utilization_log = WindowLog()
        """Matches samples with the driver's utilization windows."""
        self._has_utilization = False
        self._activity_logs: dict[int, WindowLog] = {}
        """Match samples with the hardware counters' windows, by the N of ``cuda:N``."""
        self._clock = clock
        self._frames = frames
        self._counts = SampleCounts()
        self._thread_id = 0
        reset_after_fork(self._reset_in_child)
        self._thread_cpu: Callable[[], float] | None = None
        """Returns the CPU seconds of the sampled thread. None if the system has no clock for that thread."""
        self._last_thread_cpu = 0.0
        self._ending = threading.Lock()
        self._thread: threading.Thread | None = None
        self._random = random.Random()
        self._stopped_at: float | None = None
        self._period = _PERIOD_S
        self._sampling_s = 0.0
        """Seconds for which samples have held the GIL."""
        self._queries_streams = False
        self._epoch = 0.0
        """Seconds to add to the monotonic clock to get epoch seconds."""
        self._cpu_start: _CpuTimes | None = None
        self._cpu_end: _CpuTimes | None = None
        self._counting: threading.Thread | None = None

    # -- the collector -------------------------------------------------------------------------------

    def start(self) -> None:
        """Start sampling the calling thread."""
        self._thread_cpu = _thread_cpu(threading.get_ident())
        self.attach(sys._getframe())
        self._ending.acquire()
        self._thread = threading.Thread(target=self._run, name="gpuwidget-profiler", daemon=True)
        self._thread.start()

    def attach(self, frame: FrameType | None) -> None:
        """Select the calling thread for sampling. ``frame`` and its callers are not part of the run."""
        self._thread_id = threading.get_ident()
        self._locator.begin(frame, _current_task())

    def stop(self) -> None:
        """Stop sampling."""
        self._stopped_at = self._clock.monotonic()
        if self._thread is not None and self._ending.locked():
            self._ending.release()

    def annotate(self, report: Report) -> Report:
        """Return the report with its ``time`` set, or unchanged if the run ended before the first sample."""
        thread, self._thread = self._thread, None
        if not self._counts.samples:
            return report  # without waiting for the thread: a short cell must stay short
        if thread is not None:
            thread.join(_JOIN_S)
        self._locator.end()
        time = check_coverage(self._line_profile(), self._counts, report.cell.duration_s)
        return replace(report, time=replace(self._checked(time, report), warm_up_s=find_warm_up(report)))

    def abandon(self) -> None:
        """Stop without a result."""
        self.stop()
        self._locator.end()

    def _reset_in_child(self) -> None:
        """Drop the samples in a forked child, because the run belongs to the parent."""
        self._counts = SampleCounts()
        self._thread = None

    def snapshot(self) -> CodeTime | None:
        """Return the line profile so far, or None before the first sample.

        It has not been compared with the GPU's counters. May be called from any thread during the run.
        """
        return self._line_profile() if self._counts.samples else None

    # -- the result ----------------------------------------------------------------------------------

    def _line_profile(self) -> CodeTime:
        cpu = children = None
        start, end = self._cpu_start, self._cpu_end
        if start is not None and end is not None and end.t > start.t:
            wall = end.t - start.t
            cpu = 100 * (end.own - start.own) / wall
            ended = end.children.ended - start.children.ended
            children = 100 * max(0.0, ended + end.children.alive - start.children.alive) / wall
        return line_profile(
            self._counts,
            self._locator,
            self._source,
            not_queried=self._streams.reason,
            cpu=cpu,
            cpu_children=children,
        )

    def _checked(self, time: CodeTime, report: Report) -> CodeTime:
        """Return ``time`` with the activities that the counters confirm, else those from the regression."""
        if not time.lines:
            return time
        check = self._check(time, report)
        if self._counts.known_s and check.contradiction is None:
            if check.checked:
                return withhold_uncertain(time, check.hidden_s, report.cell.duration_s)
            has_activity = any(line.gpu_busy is not None for line in time.lines)
            return replace_activity(time, {}, messages.UNCHECKED) if has_activity else time
        activity = activity_by_line(self._utilization_log.mixtures)
        if activity is None:
            return replace_activity(time, {}, check.contradiction)
        return replace_activity(time, activity, messages.joined(check.contradiction, messages.BY_WINDOWS))

    def _check(self, time: CodeTime, report: Report) -> ActivityCheck:
        devices = self._streams.devices
        windows = {device: log.matched_means for device, log in self._activity_logs.items()}
        if len(devices) == 1 and windows.get(devices[0]) is None:
            windows = {devices[0]: self._utilization_log.matched_means}
        return compare_with_counters(report, self._counts, devices, windows, time.cpu)

    # -- the sampling thread -------------------------------------------------------------------------

    def _run(self) -> None:
        with suppress(Exception):
            self._sample_until_stopped()
            if self._cpu_start is not None:
                self._cpu_end = self._cpu_times()
                self._read_windows()
        if self._windows is not None:
            self._windows.close()

    def _sample_until_stopped(self) -> None:
        monotonic, ending, draw = self._clock.monotonic, self._ending, self._random.random
        began = accounted = free = monotonic()
        adjust_at = began
        spent_cpu, spent_samples = time.thread_time(), 0
        while True:
            # Other work of this thread, before ``free``, does not count as a delay of the sample.
            due = max(accounted, free) + self._period * (0.1 + 1.8 * draw())
            ended = ending.acquire(timeout=max(0.0, due - monotonic()))
            if ended or self._stopped_at is not None:
                end = self._stopped_at if self._stopped_at is not None else due
                self._counts.end(StackSample(end, end - due, end - accounted, self._thread_cpu_s()))
                return
            t = monotonic()
            # After a long delay, the sample stands for the time until the last moment when a sample was due.
            stands_for = due
            while t - stands_for > _MAX_PERIOD_S * 10:
                stands_for += _MAX_PERIOD_S * 5
            after = stands_for + self._period * (0.1 + 1.8 * draw())
            while after <= t:
                stands_for, after = after, after + self._period * (0.1 + 1.8 * draw())
            try:
                self.take_sample(t, t - due, stands_for - accounted)
            except Exception:
                self._counts.add_missed(stands_for - accounted)
            accounted = stands_for
            if t >= adjust_at:
                adjust_at = t + min(_ADJUST_EVERY_S, _ADJUST_FIRST_S + t - began)
                self.open()
                self._begin_cpu_times()
                cpu, samples = time.thread_time(), self._counts.samples
                self._period = sampling_period(
                    self._counts,
                    t - began,
                    queries_streams=self._queries_streams,
                    cpu_s=(cpu - spent_cpu) / max(1, samples - spent_samples),
                    gil_s=self._sampling_s / max(1, samples),
                )
                spent_cpu, spent_samples = cpu, samples
                free = monotonic()
            else:
                self._sampling_s += monotonic() - t

    def take_sample(self, t: float, late: float, seconds: float) -> None:
        """Take a sample at ``t`` that was due ``late`` seconds earlier and stands for ``seconds``."""
        counts = self._counts
        frame = self._frames().get(self._thread_id)
        at_preemption_point = late > PROMPT_S and frame is not None and is_at_preemption_point(frame)
        sample = StackSample(t, late, seconds, self._thread_cpu_s(), at_preemption_point)
        if frame is not None and counts.was_preempted(sample) and is_at_function_entry(frame):
            frame = frame.f_back
        location = self._locator.locate(frame)
        del frame
        bits = self._streams.busy() if self._queries_streams else None
        here = counts.find(location) or counts.add_location(
            location, self._locator.line(location.cell, location.cell_offset)
        )
        counts.add(sample, here, bits)
        if self._windows is not None:
            self._log_sample(t + self._epoch, here.line, seconds, bits)

    def _log_sample(self, t: float, line: int | None, seconds: float, bits: int | None) -> None:
        if self._has_utilization:
            self._utilization_log.add(t, line, seconds, None if bits is None else bool(bits))
        if bits is not None:
            for device in self._streams.devices:
                log = self._activity_logs.get(device)
                if log is None:
                    log = self._activity_logs[device] = WindowLog()
                log.add(t, line, seconds, bool(bits & 1 << device))

    def _thread_cpu_s(self) -> float | None:
        """Return the CPU seconds that the sampled thread has used since the last call."""
        if self._thread_cpu is None:
            return None
        before, self._last_thread_cpu = self._last_thread_cpu, self._thread_cpu()
        return self._last_thread_cpu - before

    def open(self) -> None:
        """Open the streams and counter windows that are available by now. Called on the sampling thread."""
        self._queries_streams = self._streams.open()
        self._read_windows()

    def _read_windows(self) -> None:
        if self._windows is not None:
            self._epoch = self._clock.time() - self._clock.monotonic()
            self._has_utilization = self._windows.open()
            self._utilization_log.add_utilization(self._windows.read())
            for device, windows in self._windows.activity().items():
                for window in windows if device in self._activity_logs else ():
                    self._activity_logs[device].add_window(window)

    def _begin_cpu_times(self) -> None:
        """Read the CPU times near the run's start, but after a sample, to spare short cells the cost."""
        if self._cpu_start is not None or self._counting is not None:
            return
        if not processes.has_children():
            self._cpu_start = self._cpu_times()
            return
        # Reading the children's CPU times takes many system calls. While the cell runs pure Python, this
        # thread would have to wait for the GIL after each of them, so another thread reads them.
        self._counting = threading.Thread(target=self._read_cpu_start, name="gpuwidget-children", daemon=True)
        self._counting.start()

    def _read_cpu_start(self) -> None:
        with suppress(Exception):
            self._cpu_start = self._cpu_times()

    def _cpu_times(self) -> _CpuTimes:
        return _CpuTimes(self._clock.monotonic(), time.process_time(), processes.children_cpu_time())


def sampling_period(
    counts: SampleCounts, elapsed_s: float, *, queries_streams: bool, cpu_s: float, gil_s: float
) -> float:
    """Return the mean seconds between further samples: the shortest period within the overhead limits.

    Args:
        counts: The samples so far.
        elapsed_s: Seconds since sampling began. Short runs are sampled at the full rate.
        queries_streams: Whether samples query the GPU.
        cpu_s: CPU seconds per sample, including the time to wake the sampling thread.
        gil_s: Seconds per sample for which the sampling thread holds the GIL.
    """
    period = _PERIOD_S if queries_streams else _PERIOD_WITHOUT_GPU_S
    if not counts.total_s:
        return period
    if elapsed_s >= _FULL_RATE_EXPOSED_S:
        period = max(period, counts.exposed_s / counts.total_s * (gil_s + _WAKING_S) / _MAX_EXPOSED_SHARE)
    if elapsed_s >= _FULL_RATE_S:
        period = max(
            period,
            cpu_s / _MAX_CPU,
            counts.delayed_s / counts.total_s * (gil_s + _HANDOVER_S) / _MAX_GIL_SHARE,
            elapsed_s / _ENOUGH_SAMPLES,
        )
    return min(_MAX_PERIOD_S, period)


def _thread_cpu(ident: int) -> Callable[[], float] | None:
    try:
        clock = time.pthread_getcpuclockid(ident)
        time.clock_gettime(clock)
    except (AttributeError, OSError):
        return None
    return partial(time.clock_gettime, clock)


def _current_task() -> Any:
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None
