"""Stacks of frames that a test defines, and a sampling profiler that samples them on a fake clock."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import CodeType
from typing import Any

import helpers_reports as reports
from fakes import FakeClock

from gpuwidget.model.cell_source import UNKNOWN_SOURCE, CellSource
from gpuwidget.model.messages import Message
from gpuwidget.model.report import CodeTime, Level
from gpuwidget.profiler.code_locations import CodeLocator
from gpuwidget.profiler.counter_windows import WindowMean
from gpuwidget.profiler.cpu_times import CpuReading
from gpuwidget.profiler.sampling_profiler import SamplingProfiler
from gpuwidget.sources import UtilizationWindow
from gpuwidget.system.processes import ChildrenTime

CELL = "/tmp/ipykernel_1/77.py"
OTHER_CELL = "/tmp/ipykernel_1/12.py"
TRAIN = "/home/me/project/train.py"
LOADER = "/lib/site-packages/torch/utils/data/dataloader.py"
NAMES = {CELL: "In[7]", OTHER_CELL: "In[2]"}
SOURCE = "for x, y in loader:\n    loss = step(x, y)\n    print(loss)\n"


def code(file: str, name: str, lines: int = 40) -> CodeType:
    """Return the code object of a function with this many lines.
    Every line has bytecode, so that a frame of this code can be at any line."""
    body = "".join(f"    x{n} = {n}\n" for n in range(2, lines + 1))
    if name == "<module>":
        text = "x = 0\n" + "".join(f"x{n} = {n}\n" for n in range(2, lines + 1))
        return compile(text, file, "exec")
    owner, _, function = name.rpartition(".")
    text = f"def {function}():\n{body}"
    if owner:
        inner = "".join(f"        x{n} = {n}\n" for n in range(3, lines + 1))
        text = f"class {owner}:\n    def {function}(self):\n{inner}"
    scope: dict[str, Any] = {}
    exec(compile(text, file, "exec"), scope)
    made = scope[owner].__dict__[function] if owner else scope[function]
    found: CodeType = made.__code__
    return found


@dataclass
class Frame:
    """A stand-in for a Python frame, with the attributes that the profiler reads."""

    f_code: CodeType
    f_lasti: int
    f_back: Frame | None
    f_globals: Mapping[str, str]


_CODES: dict[tuple[str, str], CodeType] = {}


def stack(*frames: tuple[str, str, int]) -> Any:
    """Return the innermost frame of a stack.
    Each frame is given as file, function and line, beginning with the outermost frame."""
    top: Frame | None = None
    for file, name, line in frames:
        made = _CODES.setdefault((file, name), code(file, name))
        at = next(start for start, _, number in made.co_lines() if number == line)
        module = file.rpartition("/")[2].removesuffix(".py")
        top = Frame(made, at, top, {"__name__": "torch.utils.data.dataloader" if file == LOADER else module})
    return top


class FakeStreams:
    """Fake CUDA streams. A test sets ``bits``, in which bit N is set if the stream of ``cuda:N`` is busy.
    If ``bits`` is None, the streams can't be queried."""

    def __init__(self, bits: int | None = None, reason: Message | None = None) -> None:
        self.bits = bits
        self.devices: tuple[int, ...] = (0,)
        self.reason = reason

    def open(self) -> bool:
        return self.bits is not None

    def busy(self) -> int | None:
        return self.bits


class FakeWindows:
    """A fake source of the driver's utilization windows (``windows``) of the GPU ``uuid``, and of the mean
    values of hardware counters by GPU (``counted``). A test sets them."""

    def __init__(self) -> None:
        self.uuid: str | None = reports.gpu(0).uuid
        self.windows: Sequence[UtilizationWindow] = ()
        self.counted: dict[int, list[WindowMean]] = {}
        self.closed = 0

    def open(self) -> None:
        pass

    def read(self) -> Sequence[UtilizationWindow]:
        return self.windows

    def activity(self) -> Mapping[int, Sequence[WindowMean]]:
        return self.counted

    def close(self) -> None:
        self.closed += 1


class ProfiledRun:
    """A sampling profiler that takes a sample only when the test calls :meth:`sample`."""

    def __init__(
        self,
        bits: int | None = 0,
        reason: Message | None = None,
        before: Sequence[tuple[str, str, int]] = (),
        source: CellSource = UNKNOWN_SOURCE,
    ) -> None:
        """Start profiling. ``before`` is the stack at the start of the run."""
        self.clock = FakeClock()
        self.streams = FakeStreams(bits, reason)
        self.windows = FakeWindows()
        self.top: Any = None
        self.profiler = SamplingProfiler(
            CodeLocator(NAMES.__contains__, NAMES.get, source),
            lambda file, line: SOURCE.splitlines()[line - 1] if line <= 3 else "",
            self.streams,
            windows=self.windows,
            clock=self.clock,
            frames=lambda: {threading.get_ident(): self.top},
        )
        self.profiler.attach(stack(*before) if before else None)
        self.profiler.open()
        self.began = self.clock.monotonic()

    def set_cpu(self, percent: float) -> None:
        """Set this process's CPU time since the run began, in percent of one core."""
        children = ChildrenTime(0.0, 0.0)
        seconds = self.clock.monotonic() - self.began
        self.profiler._cpu_times._start = CpuReading(0.0, 0.0, children)
        self.profiler._cpu_times._end = CpuReading(seconds, percent / 100 * seconds, children)

    def sample(self, top: Any, seconds: float = 0.01, *, late: float = 0.0, busy: int | None = 0) -> None:
        """Advance the clock by ``seconds``, and then take a sample with the innermost frame ``top``.

        ``late`` is by how many seconds the sample is late. ``busy`` is the value of :attr:`FakeStreams.bits`.
        """
        self.clock.advance(seconds)
        self.top, self.streams.bits = top, busy
        self.profiler.take_sample(self.clock.monotonic(), late, seconds)


KERNEL = ("/lib/site-packages/ipykernel/kernelapp.py", "start", 3)
WAITING = stack(
    KERNEL,
    (CELL, "<module>", 1),
    (LOADER, "_BaseDataLoaderIter.__next__", 9),
    (LOADER, "_MultiProcessingDataLoaderIter._next_data", 12),
    ("/lib/site-packages/torch/multiprocessing/queue.py", "get", 5),
)
STEPPING = stack(KERNEL, (CELL, "<module>", 2), (TRAIN, "step", 31))
PRINTING = stack(KERNEL, (CELL, "<module>", 3))


def report(duration: float = 10.0, utilization: float | None = None, tail: float | None = None) -> Any:
    """Return the report of a run on one GPU, before the profiler has annotated it."""
    level = None if utilization is None else Level(utilization, 100.0)
    made = reports.report(reports.gpu(0, utilization=level), duration=duration, marks=())
    return replace(made, cell=replace(reports.cell(duration), gpu_tail_s=tail), timeline=None)


def time_of(run: ProfiledRun, **options: Any) -> CodeTime:
    """Return the line profile of a run that was sampled from its beginning to its end.

    By default, the driver's mean utilization in the report is the percentage of time for which the stream
    queries found the GPU busy.
    """
    counts = run.profiler._counts
    defaults = {
        "duration": run.clock.monotonic() - run.began,
        "utilization": 100 * sum(counts.busy_s.values()) / counts.total_s,
    }
    time = run.profiler.annotate(report(**{**defaults, **options})).time
    assert time is not None
    return time


def lines(time: CodeTime) -> list[tuple[int | None, float, float | None]]:
    """Return the line, share of time and GPU activity of each entry of the line profile."""
    return [
        (one.line, round(one.share, 6), None if one.gpu_busy is None else round(one.gpu_busy, 6))
        for one in time.lines
    ]


def line_ranges(time: CodeTime) -> list[tuple[int | None, int | None, float]]:
    """Return the first line, last line and share of time of each entry of the line profile."""
    return [(one.line, one.until, round(one.share, 6)) for one in time.lines]
