"""Stacks of frames as a test draws them, and a whole witness of them on a clock of its own."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import CodeType
from typing import Any

import helpers_reports as reports
from fakes import FakeClock

from gpuwidget.model.cell_source import UNKNOWN_SOURCE, CellSource
from gpuwidget.model.report import CodeTime, Level
from gpuwidget.profiler.code_places import Places
from gpuwidget.profiler.counter_windows import WindowMean
from gpuwidget.profiler.sampling_profiler import CodeWitness, _Cpu
from gpuwidget.sources import UtilizationWindow
from gpuwidget.system.processes import ChildrenTime

CELL = "/tmp/ipykernel_1/77.py"
OTHER_CELL = "/tmp/ipykernel_1/12.py"
TRAIN = "/home/me/project/train.py"
LOADER = "/lib/site-packages/torch/utils/data/dataloader.py"
NAMES = {CELL: "In[7]", OTHER_CELL: "In[2]"}
SOURCE = "for x, y in loader:\n    loss = step(x, y)\n    print(loss)\n"


def code(file: str, name: str, lines: int = 40) -> CodeType:
    """A function's code of so many lines, line ``n`` of which is at instruction ``at(code, n)``."""
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
    """As much of a frame as is looked at."""

    f_code: CodeType
    f_lasti: int
    f_back: Frame | None
    f_globals: Mapping[str, str]


_CODES: dict[tuple[str, str], CodeType] = {}


def stack(*frames: tuple[str, str, int]) -> Any:
    """The deepest frame of a stack, given from the outermost on as file, name and line."""
    top: Frame | None = None
    for file, name, line in frames:
        made = _CODES.setdefault((file, name), code(file, name))
        at = next(start for start, _, number in made.co_lines() if number == line)
        module = file.rpartition("/")[2].removesuffix(".py")
        top = Frame(made, at, top, {"__name__": "torch.utils.data.dataloader" if file == LOADER else module})
    return top


class FakeStreams:
    """Streams that are as busy as a test says; ``bits`` None: not asked."""

    def __init__(self, bits: int | None = None, reason: str | None = None) -> None:
        self.bits = bits
        self.devices: tuple[int, ...] = (0,)
        self.reason = reason

    def open(self) -> bool:
        return self.bits is not None

    def busy(self) -> int | None:
        return self.bits


class FakeWindows:
    """The driver's windows and those of the hardware counters, as a test says."""

    def __init__(self) -> None:
        self.windows: Sequence[UtilizationWindow] = ()
        self.counted: dict[int, list[WindowMean]] = {}
        self.closed = 0

    def open(self) -> bool:
        return True

    def read(self) -> Sequence[UtilizationWindow]:
        return self.windows

    def activity(self) -> Mapping[int, Sequence[WindowMean]]:
        return self.counted

    def close(self) -> None:
        self.closed += 1


class Watched:
    """A witness whose looks a test makes, one by one."""

    def __init__(
        self,
        bits: int | None = 0,
        reason: str | None = None,
        before: Sequence[tuple[str, str, int]] = (),
        text: CellSource = UNKNOWN_SOURCE,
    ) -> None:
        """``before`` is the stack on which the run begins."""
        self.clock = FakeClock()
        self.streams = FakeStreams(bits, reason)
        self.windows = FakeWindows()
        self.top: Any = None
        self.witness = CodeWitness(
            Places(NAMES.__contains__, NAMES.get, text),
            lambda file, line: SOURCE.splitlines()[line - 1] if line <= 3 else "",
            self.streams,
            windows=self.windows,
            clock=self.clock,
            frames=lambda: {threading.get_ident(): self.top},
        )
        self.witness.observe(stack(*before) if before else None)
        self.witness.open()
        self.began = self.clock.monotonic()

    def set_cpu(self, percent: float) -> None:
        """This process and its threads have had so much of a core since the run began."""
        children = ChildrenTime(0.0, 0.0)
        seconds = self.clock.monotonic() - self.began
        self.witness._cpu_start = _Cpu(0.0, 0.0, children)
        self.witness._cpu_end = _Cpu(seconds, percent / 100 * seconds, children)

    def look(self, top: Any, seconds: float = 0.01, *, late: float = 0.0, busy: int | None = 0) -> None:
        """So many seconds pass, then it looks."""
        self.clock.advance(seconds)
        self.top, self.streams.bits = top, busy
        self.witness.look(self.clock.monotonic(), late, seconds)


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
    """The report of a run on one GPU, before the witness has testified."""
    level = None if utilization is None else Level(utilization, 100.0)
    made = reports.report(reports.gpu(0, utilization=level), duration=duration, marks=())
    return replace(made, cell=replace(reports.cell(duration), gpu_tail_s=tail), timeline=None)


def said(watched: Watched, **options: Any) -> CodeTime:
    """What is said of a run that was looked at from its beginning to its end.

    Unless a test gives another, the driver's mean utilization is that of the stream queries.
    """
    tally = watched.witness._tally
    looked = {
        "duration": watched.clock.monotonic() - watched.began,
        "utilization": 100 * sum(tally.busy.values()) / tally.whole,
    }
    time = watched.witness.testify(report(**{**looked, **options})).time
    assert time is not None
    return time


def lines(time: CodeTime) -> list[tuple[int | None, float, float | None]]:
    """Line, share and activity of each row."""
    return [
        (one.line, round(one.share, 6), None if one.gpu_busy is None else round(one.gpu_busy, 6))
        for one in time.lines
    ]


def rows(time: CodeTime) -> list[tuple[int | None, int | None, float]]:
    """First line, last line and share of each row."""
    return [(one.line, one.until, round(one.share, 6)) for one in time.lines]
