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

from gpuwidget import processes
from gpuwidget.clock import SYSTEM_CLOCK, Clock
from gpuwidget.measure.code_time import Source, code_time, disagree, looked_at, stream_busy, with_activity
from gpuwidget.measure.notes import gpu_name
from gpuwidget.measure.operations import has_begun_only, was_made_to_let_go
from gpuwidget.measure.pace import PERIOD_S, SLOWEST_S, period
from gpuwidget.measure.places import Places
from gpuwidget.measure.report import CodeTime, Report
from gpuwidget.measure.steady import warm_up
from gpuwidget.measure.tally import PROMPT_S, Look, Tally
from gpuwidget.measure.unmix import unmix
from gpuwidget.measure.windows import WindowLog, Windows

_ADJUST_EVERY_S = 0.5
_ADJUST_FIRST_S = 0.25
"""After the first look, as short cells are over soon."""
_JOIN_S = 0.25
_AGREE_WITHIN = 10.0
"""Points by which the streams' mean and the driver's may differ."""
_WINDOW_S = 0.3
_UNCHECKED = (
    "The GPU's activity was not checked against the driver, which said too little of this run: work on other "
    "streams is not in it."
)
_BY_WINDOWS = "The GPU's activity is told from the driver's windows instead."


class Streams(Protocol):
    """Whether this process's streams have work; see :class:`gpuwidget.torch_stream.DefaultStreams`."""

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
    """Where the time of one cell went (see :class:`gpuwidget.measure.witness.Witness`)."""

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
        """``time`` where the driver agrees with the streams; else with what its windows say, or nothing."""
        if not time.lines:
            return time
        differ, checked = self._differ(report)
        if differ is None and self._tally.known:
            told = any(line.gpu_busy is not None for line in time.lines)
            return time if checked or not told else replace(time, reason=_and(time.reason, _UNCHECKED))
        found = unmix(self._log.mixtures)
        if found is None:
            return time if differ is None else with_activity(time, {}, differ)
        return with_activity(time, found, _and(differ, _BY_WINDOWS))

    def _differ(self, report: Report) -> tuple[str | None, bool]:
        """Where the streams' mean and the driver's differ, in a sentence; whether all were compared."""
        checked = bool(self._streams.devices)
        duration, tail = report.cell.duration_s, report.cell.gpu_tail_s or 0.0
        for device in self._streams.devices:
            gpu = next((one for one in report.gpus if one.torch_device == f"cuda:{device}"), None)
            ours = stream_busy(self._tally, 1 << device)
            if gpu is None or gpu.utilization is None or ours is None:
                checked = False
                continue
            # The driver's mean covers the time in which the GPU went on, one of several devices at least.
            drivers, whole = gpu.utilization.mean, duration + tail
            alone = len(self._streams.devices) == 1
            least = (ours[0] * duration + 100 * tail * alone) / whole
            most = (ours[1] * duration + 100 * tail) / whole
            within = _AGREE_WITHIN + 100 * _WINDOW_S / duration
            if not least - within <= drivers <= most + within:
                nearest = most if drivers > most else least
                return f"{disagree(nearest, drivers, gpu_name(gpu))}.", checked
        return None, checked

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
        if self._logging:
            self._log.add(t + self._epoch, here.line, seconds)

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


def _and(first: str | None, second: str) -> str:
    return second if first is None else f"{first} {second}"


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
