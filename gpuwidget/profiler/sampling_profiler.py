"""A witness of where the code is: looks at the running thread from a thread of its own, now and then.

A look finds the thread's position and asks whether the GPU is busy, some microseconds together. How often it
looks follows what a look costs.
"""

from __future__ import annotations

import asyncio
import os
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

from gpuwidget.model.clock import SYSTEM_CLOCK, Clock
from gpuwidget.model.report import CodeTime, Report
from gpuwidget.profiler.activity_check import (
    BY_WINDOWS,
    UNCHECKED,
    Comparison,
    compare,
    with_activity,
    without_doubtful,
)
from gpuwidget.profiler.blocking_operations import has_begun_only, was_made_to_let_go
from gpuwidget.profiler.code_places import Places
from gpuwidget.profiler.counter_windows import WindowLog, Windows
from gpuwidget.profiler.line_profile import Source, code_time, looked_at
from gpuwidget.profiler.regression import unmix
from gpuwidget.profiler.sample_counts import PROMPT_S, Look, Tally
from gpuwidget.profiler.sampling_rate import PERIOD_S, SLOWEST_S, period
from gpuwidget.profiler.steady_state import warm_up
from gpuwidget.system import processes

_ADJUST_EVERY_S = 0.5
_ADJUST_FIRST_S = 0.25
"""After the first look, as short cells are over soon."""
_JOIN_S = 0.25


class Streams(Protocol):
    """Whether the process's streams have work: :class:`~gpuwidget.pytorch.stream_activity.DefaultStreams`."""

    @property
    def devices(self) -> tuple[int, ...]: ...  # noqa: D102 - said there
    @property
    def reason(self) -> str | None: ...  # noqa: D102
    def open(self) -> bool: ...  # noqa: D102
    def busy(self) -> int | None: ...  # noqa: D102


@dataclass(slots=True)
class _Cpu:
    """CPU seconds of this process and of its children at one moment."""

    t: float
    own: float
    children: processes.ChildrenTime


class CodeWitness:
    """Where the time of one cell went (see :class:`gpuwidget.measure.collector.Witness`)."""

    def __init__(
        self,
        places: Places,
        source: Source,
        streams: Streams,
        *,
        windows: Windows | None = None,
        clock: Clock = SYSTEM_CLOCK,
        frames: Callable[[], dict[int, FrameType]] = sys._current_frames,
    ) -> None:
        self._places = places
        self._source = source
        self._streams = streams
        self._windows = windows
        self._log = WindowLog()
        self._logging = False
        self._counted: dict[int, WindowLog] = {}
        """The same for the hardware counters' windows, by the N of ``cuda:N``."""
        self._clock = clock
        self._frames = frames
        self._tally = Tally()
        self._watched = 0
        self._process = os.getpid()
        self._thread_cpu: Callable[[], float] | None = None
        """CPU seconds of the watched thread; None where the system does not say."""
        self._had_run = 0.0
        self._ending = threading.Lock()
        self._thread: threading.Thread | None = None
        self._random = random.Random()
        self._stopped_at: float | None = None
        self._period = PERIOD_S
        self._taken = 0.0
        """Seconds for which looks have held the interpreter."""
        self._asked = False
        self._epoch = 0.0
        """What makes epoch seconds of the clock's own."""
        self._cpu_start: _Cpu | None = None
        self._cpu_end: _Cpu | None = None
        self._counting: threading.Thread | None = None

    # -- the witness ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to look at the thread that calls."""
        self._thread_cpu = _thread_cpu(threading.get_ident())
        self.observe(sys._getframe())
        self._ending.acquire()
        self._thread = threading.Thread(target=self._run, name="gpuwidget-code", daemon=True)
        self._thread.start()

    def observe(self, frame: FrameType | None) -> None:
        """Look at the thread that calls, from now on; what ``frame`` stands on is no part of the run."""
        self._watched = threading.get_ident()
        self._places.begin(frame, _current_task())

    def stop(self) -> None:
        """Look no more."""
        self._stopped_at = self._clock.monotonic()
        if self._thread is not None and self._ending.locked():
            self._ending.release()

    def testify(self, report: Report) -> Report:
        """The report with its ``time``; as it was where the run was over before the first look."""
        thread, self._thread = self._thread, None
        if not self._tally.looks or os.getpid() != self._process:
            return report  # a short cell does not wait for the thread to end, either
        if thread is not None:
            thread.join(_JOIN_S)
        self._places.end()
        time = self._judged(looked_at(self._said(), self._tally, report.cell.duration_s), report)
        return replace(report, time=replace(time, warm_up_s=warm_up(report)))

    def abandon(self) -> None:
        """End without a word."""
        self.stop()
        self._places.end()

    def so_far(self) -> CodeTime | None:
        """What the looks so far say, not yet compared with the driver; None before the first.

        May be called from any thread while the run goes on.
        """
        return self._said() if self._tally.looks else None

    # -- what it saw ---------------------------------------------------------------------------------

    def _said(self) -> CodeTime:
        cpu = children = None
        start, end = self._cpu_start, self._cpu_end
        if start is not None and end is not None and end.t > start.t:
            wall = end.t - start.t
            cpu = 100 * (end.own - start.own) / wall
            ended = end.children.ended - start.children.ended
            children = 100 * max(0.0, ended + end.children.alive - start.children.alive) / wall
        return code_time(
            self._tally,
            self._places,
            self._source,
            why_unknown=self._streams.reason,
            cpu=cpu,
            cpu_children=children,
        )

    def _judged(self, time: CodeTime, report: Report) -> CodeTime:
        """``time`` with those activities that the GPU's counters confirm, else by the driver's windows."""
        if not time.lines:
            return time
        found = self._comparison(time, report)
        if self._tally.known and found.contradiction is None:
            if found.checked:
                return without_doubtful(time, found.hidden_s, report.cell.duration_s)
            told = any(line.gpu_busy is not None for line in time.lines)
            return with_activity(time, {}, UNCHECKED) if told else time
        by_windows = unmix(self._log.mixtures)
        if by_windows is None:
            return with_activity(time, {}, found.contradiction)
        return with_activity(time, by_windows, " ".join(filter(None, [found.contradiction, BY_WINDOWS])))

    def _comparison(self, time: CodeTime, report: Report) -> Comparison:
        devices = self._streams.devices
        windows = {device: log.compared for device, log in self._counted.items()}
        if len(devices) == 1 and windows.get(devices[0]) is None:
            windows = {devices[0]: self._log.compared}
        return compare(report, self._tally, devices, windows, time.cpu)

    # -- the thread ----------------------------------------------------------------------------------

    def _run(self) -> None:
        with suppress(Exception):
            self._look_on()
            if self._cpu_start is not None:
                self._cpu_end = self._cpu()
                self._take_windows()
        if self._windows is not None:
            self._windows.close()

    def _look_on(self) -> None:
        monotonic, ending, draw = self._clock.monotonic, self._ending, self._random.random
        began = accounted = free = monotonic()
        adjust_at = began
        spent_cpu, spent_looks = time.thread_time(), 0
        while True:
            # What this thread did for itself meanwhile kept no look waiting.
            due = max(accounted, free) + self._period * (0.1 + 1.8 * draw())
            ended = ending.acquire(timeout=max(0.0, due - monotonic()))
            if ended or self._stopped_at is not None:
                end = self._stopped_at if self._stopped_at is not None else due
                self._tally.end(Look(end, end - due, end - accounted, self._ran()))
                return
            t = monotonic()
            stands_for = due
            while t - stands_for > SLOWEST_S * 10:
                stands_for += SLOWEST_S * 5
            after = stands_for + self._period * (0.1 + 1.8 * draw())
            while after <= t:
                stands_for, after = after, after + self._period * (0.1 + 1.8 * draw())
            try:
                self.look(t, t - due, stands_for - accounted)
            except Exception:
                self._tally.miss(stands_for - accounted)
            accounted = stands_for
            if t >= adjust_at:
                adjust_at = t + min(_ADJUST_EVERY_S, _ADJUST_FIRST_S + t - began)
                self.open()
                self._begin_cpu()
                cpu, looks = time.thread_time(), self._tally.looks
                self._period = period(
                    self._tally,
                    t - began,
                    asked=self._asked,
                    cpu_s=(cpu - spent_cpu) / max(1, looks - spent_looks),
                    taken_s=self._taken / max(1, looks),
                )
                spent_cpu, spent_looks = cpu, looks
                free = monotonic()
            else:
                self._taken += monotonic() - t

    def look(self, t: float, late: float, seconds: float) -> None:
        """Look at the thread at ``t``, ``late`` seconds after that was due, for ``seconds`` of its time."""
        tally = self._tally
        frame = self._frames().get(self._watched)
        made_to = late > PROMPT_S and frame is not None and was_made_to_let_go(frame)
        look = Look(t, late, seconds, self._ran(), made_to)
        if frame is not None and tally.was_made_to(look) and has_begun_only(frame):
            frame = frame.f_back
        place = self._places.find(frame)
        del frame
        bits = self._streams.busy() if self._asked else None
        here = tally.known_place(place) or tally.meet(place, self._places.line(place.own, place.own_at))
        tally.add(look, here, bits)
        if self._windows is not None:
            self._log_sample(t + self._epoch, here.line, seconds, bits)

    def _log_sample(self, t: float, line: int | None, seconds: float, bits: int | None) -> None:
        if self._logging:
            self._log.add(t, line, seconds, None if bits is None else bool(bits))
        if bits is not None:
            for device in self._streams.devices:
                log = self._counted.get(device)
                if log is None:
                    log = self._counted[device] = WindowLog()
                log.add(t, line, seconds, bool(bits & 1 << device))

    def _ran(self) -> float | None:
        if self._thread_cpu is None:
            return None
        before, self._had_run = self._had_run, self._thread_cpu()
        return self._had_run - before

    def open(self) -> None:
        """Meet the streams and windows there are by now; on the thread that looks."""
        self._asked = self._streams.open()
        self._take_windows()

    def _take_windows(self) -> None:
        if self._windows is not None:
            self._epoch = self._clock.time() - self._clock.monotonic()
            self._logging = self._windows.open()
            self._log.digest(self._windows.read())
            for device, counted in self._windows.activity().items():
                for window in counted if device in self._counted else ():
                    self._counted[device].take(window)

    def _begin_cpu(self) -> None:
        """Take the CPU times that the run's are counted from; after a look: short cells don't pay for it."""
        if self._cpu_start is not None or self._counting is not None:
            return
        if not processes.has_children():
            self._cpu_start = self._cpu()
            return
        # Many system calls, at each of which a cell in pure Python keeps their caller waiting.
        self._counting = threading.Thread(target=self._count, name="gpuwidget-children", daemon=True)
        self._counting.start()

    def _count(self) -> None:
        with suppress(Exception):
            self._cpu_start = self._cpu()

    def _cpu(self) -> _Cpu:
        return _Cpu(self._clock.monotonic(), time.process_time(), processes.children_cpu_time())


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
