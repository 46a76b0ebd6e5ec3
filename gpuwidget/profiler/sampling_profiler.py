"""Sampling profiler for the thread that runs a cell. Another thread takes the stack samples.

For each sample, the sampling thread locates the profiled thread in the user's code and queries whether the
GPU is busy. Together, these two steps take microseconds.
"""

from __future__ import annotations

import asyncio
import logging
import random
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import FrameType
from typing import Any, Protocol

from gpuwidget.measure.steady_state import find_warm_up
from gpuwidget.model.boundary import Boundary, stopped
from gpuwidget.model.clock import SYSTEM_CLOCK, Clock
from gpuwidget.model.fork import reset_after_fork
from gpuwidget.model.messages import Message
from gpuwidget.model.report import CodeTime, Report
from gpuwidget.model.thread_frames import caller_of, frames_of_threads
from gpuwidget.model.translation import translatable
from gpuwidget.profiler.activity_check import check_activity
from gpuwidget.profiler.code_locations import CodeLocator
from gpuwidget.profiler.counter_windows import CounterWindows, WindowLog
from gpuwidget.profiler.cpu_times import CpuTimes
from gpuwidget.profiler.gil_waits import GilWaits
from gpuwidget.profiler.line_profile import SourceLine, check_coverage, line_profile
from gpuwidget.profiler.preemption import is_at_function_entry, is_at_preemption_point
from gpuwidget.profiler.sample_counts import PROMPT_S, SampleCounts, StackSample
from gpuwidget.profiler.sampling_rate import MAX_PERIOD_S, PERIOD_S, sampling_period

_LOG = logging.getLogger(__name__)

_ADJUST_EVERY_S = 0.5
_ADJUST_FIRST_S = 0.25
"""Seconds until the sampling rate is first adjusted. The time is short because short cells end soon."""
_JOIN_S = 0.25


class Streams(Protocol):
    """Interface for querying whether CUDA streams have work.

    :class:`~gpuwidget.pytorch.stream_activity.DefaultStreams` implements it.
    """

    @property
    def devices(self) -> tuple[int, ...]: ...
    @property
    def reason(self) -> Message | None: ...
    def open(self) -> bool: ...
    def busy(self) -> int | None: ...


class SamplingProfiler:
    """Profiles one run (see :class:`gpuwidget.measure.collector.Collector`)."""

    measures: str = translatable("time by line")

    def __init__(
        self,
        locator: CodeLocator,
        source: SourceLine,
        streams: Streams,
        *,
        windows: CounterWindows | None = None,
        clock: Clock = SYSTEM_CLOCK,
        frames: Callable[[], dict[int, FrameType]] = frames_of_threads,
    ) -> None:
        self._locator = locator
        self._source = source
        self._streams = streams
        self._windows = windows
        self._clock = clock
        self._frames = frames
        self._counts = SampleCounts()
        self._utilization_log = WindowLog()
        """Matches samples with the driver's utilization windows."""
        self._activity_logs: dict[int, WindowLog] = defaultdict(WindowLog)
        """One log per CUDA device index. It matches samples with the windows of the device's hardware
        counters."""
        self._thread_id = self._native_id = 0
        self._began = 0.0
        self._thread_cpu: Callable[[], float] | None = None
        """Function that returns the CPU seconds of the sampled thread. None if the system has no clock for
        the thread."""
        self._last_thread_cpu = 0.0
        self._gil_waits = GilWaits()
        self._queries_streams = False
        self._epoch = 0.0
        """Seconds to add to a time of the monotonic clock to get epoch seconds."""
        self._thread: threading.Thread | None = None
        self._ending = threading.Lock()
        self._stopped_at: float | None = None
        self._cpu_times = CpuTimes(clock)
        reset_after_fork(self._reset_in_child)

    # -- methods of the Collector interface ----------------------------------------------------------

    def start(self) -> None:
        """Start sampling the calling thread."""
        self._thread_cpu = _thread_cpu(threading.get_ident())
        self._thread_cpu_s()
        self._native_id = threading.get_native_id()
        self.attach(sys._getframe())
        # Not read on the sampling thread, which must wait if the cell's first operation holds the GIL.
        self._began = self._clock.monotonic()
        self._ending.acquire()
        self._thread = threading.Thread(target=self._run, name="gpuwidget-profiler", daemon=True)
        self._thread.start()

    def attach(self, frame: FrameType | None) -> None:
        """Select the calling thread for sampling. ``frame`` and its callers are not part of the run."""
        self._thread_id = threading.get_ident()
        self._locator.begin(frame, _current_task())

    def stop(self) -> None:
        self._stopped_at = self._clock.monotonic()
        if self._thread is not None and self._ending.locked():
            self._ending.release()

    def annotate(self, report: Report) -> Report:
        """Return the report with its ``time`` set, or unchanged if a short run ended without a sample."""
        thread, self._thread = self._thread, None
        if not self._counts.samples and report.cell.duration_s < _JOIN_S:
            return report  # do not wait for the thread, so that a short cell stays short
        if thread is not None:
            thread.join(_JOIN_S)
        self._locator.end()
        time = check_coverage(self._line_profile(), self._counts, report.cell.duration_s)
        return replace(report, time=replace(self._checked(time, report), warm_up_s=find_warm_up(report)))

    def busy_devices(self) -> frozenset[int]:
        """Return the N of each ``cuda:N`` whose default stream was seen working so far."""
        seen = [bits for bits, seconds in dict(self._counts.busy_s).items() if seconds]
        return frozenset(
            device for device in self._streams.devices if any(bits >> device & 1 for bits in seen)
        )

    def abandon(self) -> None:
        """Stop sampling and discard the result."""
        self.stop()
        self._locator.end()

    def _reset_in_child(self) -> None:
        """Drop the samples in a forked child, because the run belongs to the parent."""
        self._counts = SampleCounts()
        self._thread = None

    def snapshot(self) -> CodeTime | None:
        """Return the line profile so far, or None before the first sample.

        The profile has not been compared with the GPU's counters. Any thread may call this method during the
        run.
        """
        return self._line_profile() if self._counts.samples else None

    # -- the result ----------------------------------------------------------------------------------

    def _line_profile(self) -> CodeTime:
        cpu, children = self._cpu_times.percent
        return line_profile(
            self._counts,
            self._locator,
            self._source,
            not_queried=self._streams.reason,
            cpu=cpu,
            cpu_children=children,
        )

    def _checked(self, time: CodeTime, report: Report) -> CodeTime:
        devices = self._streams.devices
        windows = {device: self._activity_logs[device].matched_means for device in devices}
        if list(windows.values()) == [None]:
            windows[devices[0]] = self._utilization_log.matched_means
        # With several devices, the windows of one GPU do not tell what a line did on the others. The driver's
        # windows are read every 2 s, so in a short run the hardware counters cover more of it.
        logs = [self._utilization_log] if len(devices) <= 1 else []
        logs += [self._activity_logs[device] for device in devices if len(devices) == 1]
        logs.sort(key=lambda log: log.covered_s, reverse=True)
        uuid = None if self._windows is None else self._windows.uuid
        return check_activity(time, report, self._counts, windows, [log.mixtures for log in logs], uuid)

    # -- the sampling thread -------------------------------------------------------------------------

    def _run(self) -> None:
        with Boundary(_LOG, "the line profiler failed"):
            self._sample_until_stopped()
            if self._counts.samples:
                self._cpu_times.end()
                self._read_windows()
        if self._windows is not None:
            self._windows.close()

    def _sample_until_stopped(self) -> None:
        monotonic, ending, draw = self._clock.monotonic, self._ending, random.Random().random
        began = accounted = free = adjust_at = self._began
        self._gil_waits.begin(self._native_id, threading.get_native_id())
        period, sampling_s = PERIOD_S, 0.0
        spent_cpu, spent_samples = time.thread_time(), 0
        while True:
            # The time until ``free``, in which this thread did other work, does not count as a delay of the
            # sample.
            due = max(accounted, free) + period * (0.1 + 1.8 * draw())
            ended = ending.acquire(timeout=max(0.0, due - monotonic()))
            if ended or self._stopped_at is not None:
                end = self._stopped_at if self._stopped_at is not None else due
                sample = StackSample(end, end - due, end - accounted, self._thread_cpu_s())
                self._gil_waits.add(sample.cpu_s or 0.0)
                self._counts.end(self._with_cause(sample))
                return
            t = monotonic()
            # A late sample also represents the further samples that would have been due while it was delayed.
            stands_for = max(due, t - 10 * MAX_PERIOD_S)
            while (after := stands_for + period * (0.1 + 1.8 * draw())) <= t:
                stands_for = after
            try:
                self.take_sample(t, t - due, stands_for - accounted)
            except BaseException as error:
                stopped(_LOG, "the running code could not be sampled", error)
                self._counts.missed_s += stands_for - accounted
            accounted = stands_for
            if t < adjust_at:
                sampling_s += monotonic() - t
                continue
            adjust_at = t + min(_ADJUST_EVERY_S, _ADJUST_FIRST_S + t - began)
            self.open()
            self._cpu_times.begin()  # not at the start, because reading CPU times would slow down short cells
            cpu, samples = time.thread_time(), self._counts.samples
            period = sampling_period(
                self._counts,
                t - began,
                queries_streams=self._queries_streams,
                cpu_s=(cpu - spent_cpu) / max(1, samples - spent_samples),
                gil_s=sampling_s / max(1, samples),
            )
            spent_cpu, spent_samples = cpu, samples
            free = monotonic()

    def take_sample(self, t: float, late: float, seconds: float) -> None:
        """Take a sample at ``t`` that was due ``late`` seconds earlier and represents ``seconds`` of the
        run."""
        frame = self._frames().get(self._thread_id)
        at_preemption_point = late > PROMPT_S and frame is not None and is_at_preemption_point(frame)
        sample = StackSample(t, late, seconds, self._thread_cpu_s(), at_preemption_point)
        self._gil_waits.add(sample.cpu_s or 0.0)
        waited = self._counts.was_preempted(sample) or self._counts.waited_without_running(sample)
        if frame is not None and waited and is_at_function_entry(frame):
            frame = caller_of(frame)
        location = self._locator.locate(frame)
        del frame
        bits = self._streams.busy() if self._queries_streams else None
        sample = self._with_cause(sample)
        here = self._counts.at(location, self._locator.cell_line)
        self._counts.add(sample, here, bits)
        if self._windows is not None:
            t += self._epoch
            self._utilization_log.add(t, here.line, seconds, None if bits is None else bool(bits))
            if bits is not None:
                for device in self._streams.devices:
                    self._activity_logs[device].add(t, here.line, seconds, bool(bits & 1 << device))

    def _with_cause(self, sample: StackSample) -> StackSample:
        """Return the sample with its :attr:`StackSample.held`."""
        unexplained = self._counts.waited_without_running(sample)
        return sample._replace(held=unexplained and self._gil_waits.held_while_waiting(sample.late))

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
            self._windows.open()
            self._utilization_log.add_utilization(self._windows.read())
            for device, windows in self._windows.activity().items():
                for window in windows:
                    self._activity_logs[device].add_window(window)


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
