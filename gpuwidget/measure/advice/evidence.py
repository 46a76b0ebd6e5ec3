"""What the rules look at: a run's figures, and what is known of the code around it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gpuwidget.measure.notes import gpu_name
from gpuwidget.model.report import (
    Advice,
    CodeTime,
    GpuReport,
    Level,
    LineTime,
    Report,
    RunInfo,
    Timeline,
    Traffic,
    in_call,
)
from gpuwidget.pytorch.loaders_and_models import Loader, Model
from gpuwidget.pytorch.torch_switches import Switches
from gpuwidget.system.host_limits import SharedMemory

SHORTEST_S = 3.0
"""No rule judges the activity of a shorter run: it has a handful of the counters' half-second windows at
most, and much of it is start-up."""
HAS_GAPS = 85.0
"""Percent of mean utilization from which on a GPU had work all the time: no wait cost it anything."""
_MOST_SOURCE = 60
"""Characters of a line's source within a sentence."""
_NOT_THE_USERS = re.compile(r"\bget_ipython\(\)\.(?:run_cell_magic|run_line_magic|system|getoutput)\(")
"""What IPython makes of ``%%`` and ``!`` lines: it quotes code that is not that line's own."""
PAGE = "docs/advice.md"


@dataclass(frozen=True, slots=True)
class Ends:
    """What an earlier run of the same code left on one GPU, in bytes."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What is known beside the samples; without it the rules that need it are silent."""

    cell: str | None = None
    """Source of the cell; None outside of one."""
    loaders: tuple[Loader, ...] = ()
    models: tuple[Model, ...] = ()
    switches: Switches | None = None
    can_use_cuda: bool = False
    """Whether torch is loaded and was built for CUDA."""
    cuda_up: bool = True
    """Whether torch has started CUDA in this process; without it no tensor of this process is on a GPU."""
    cores: float | None = None
    """How many this process may use."""
    shared_memory: SharedMemory | None = None
    process_cpu: float | None = None
    """Percent of one core that this process took."""
    earlier: Mapping[str, Sequence[Ends]] | None = None
    """By GPU: what earlier runs of the same code left, the oldest first, this one last."""
    source_of: Callable[[str], str] | None = None
    """Gives the text of the line that a frame such as ``In[2]:4 step`` stands at; empty where it is
    unknown."""
    other_gpu_work: bool = False
    """Whether another library that works on GPUs is loaded here, or child processes run that may."""


NOTHING_KNOWN = Surroundings()


@dataclass(frozen=True, slots=True)
class Facts:
    """One run, as the rules see it."""

    gpus: tuple[GpuReport, ...]
    """This process's, or all where that can't be told."""
    seen: int
    """How many GPUs there are."""
    attributed: bool
    """Whether it is known which GPUs are this process's."""
    duration_s: float
    """Seconds of the code, which :attr:`time` tells of."""
    gpu_s: float
    """Seconds that the GPUs' figures tell of: the code's, and those for which the GPU went on after it."""
    time: CodeTime | None
    around: Surroundings = NOTHING_KNOWN
    recorded: bool = False
    """Whether the GPUs are those of a recording, which count as the run's own."""
    timeline: Timeline | None = None

    @classmethod
    def of(cls, report: Report, around: Surroundings = NOTHING_KNOWN) -> Facts:
        """The facts of a run that has ended."""
        return cls(
            gpus=own_gpus(report.shown, report.attributed),
            seen=len(report.gpus),
            attributed=report.attributed,
            duration_s=report.cell.duration_s,
            gpu_s=measured_s(report.cell),
            time=report.time,
            around=around,
            recorded=report.source.recorded,
            timeline=report.timeline,
        )

    @property
    def long_enough(self) -> bool:
        """Whether the run is long enough for its activity to be judged."""
        return self.gpu_s >= SHORTEST_S

    @property
    def own(self) -> bool:
        """Whether what the GPUs did can be taken for this run's."""
        return self.attributed or self.recorded


@dataclass(frozen=True, slots=True)
class Spot:
    """A part of a line's time that was spent in one place: in the line itself, or in the user's code
    below."""

    line: LineTime
    share: float
    gpu_busy: float | None
    call: str | None
    """The call it was in most."""
    call_share: float | None
    """Percent of the run's time in that call."""
    frame: str | None
    source: str
    """Empty where it is unknown, or not what was written."""

    @property
    def where(self) -> str:
        """``line 7 `for x in loader:```, with the frame below it."""
        return f"{self._line} at {self.frame}" if self.frame is not None else self._line

    @property
    def _line(self) -> str:
        line = self.line
        if line.line is None:
            return "code of no line of the cell"
        if line.until is not None:
            return f"lines {line.line} to {line.until}"
        source = _shortened(line.source)
        return f"line {line.line} `{source}`" if source else f"line {line.line}"

    @property
    def within(self) -> str:
        """:attr:`where`, with the call."""
        return f"{self.where} {in_call(self.call)}" if self.call is not None else self.where


def spots(facts: Facts) -> list[Spot]:
    """Where the time went, as finely as it is known, the largest part first; nothing of a short run."""
    found = []
    for seen in facts.time.lines if facts.time is not None and facts.duration_s >= SHORTEST_S else ():
        line = replace(seen, source="") if _NOT_THE_USERS.search(seen.source) else seen
        if not line.frames:
            found.append(Spot(line, line.share, line.gpu_busy, line.call, line.call_share, None, line.source))
            continue
        # The line's call and activity are those of its frames too: of the rest alone neither is known.
        rest = line.share - sum(frame.share for frame in line.frames)
        found.append(Spot(line, rest, None, None, None, None, line.source))
        for frame in line.frames:
            source = facts.around.source_of(frame.frame) if facts.around.source_of is not None else ""
            found.append(
                Spot(line, frame.share, frame.gpu_busy, frame.call, frame.call_share, frame.frame, source)
            )
    return sorted(found, key=lambda spot: -spot.share)


def own_gpus(gpus: Sequence[GpuReport], attributed: bool) -> tuple[GpuReport, ...]:
    """Without those on which this process is known to have nothing: what they did is others' doing."""
    return tuple(gpu for gpu in gpus if not attributed or not _others(gpu))


def measured_s(cell: RunInfo) -> float:
    """Seconds that the GPUs' figures of a run tell of."""
    return cell.duration_s + (cell.gpu_tail_s or 0.0)


def advice(rule: str, text: str, fix: str, evidence: Mapping[str, Any], *, sure: bool = True) -> Advice:
    """Advice with the link to the section of its rule."""
    kept = {name: _plain(value) for name, value in evidence.items() if value is not None}
    return Advice(rule, sure, text, fix, kept, f"{PAGE}#{rule}")


def names(gpus: Sequence[GpuReport]) -> str:
    """``GPU 0``, ``GPUs 0 and 2``, ``GPUs 0, 1 and 2``."""
    if len(gpus) == 1:
        return gpu_name(gpus[0])
    numbers = [gpu_name(gpu).removeprefix("GPU ") for gpu in gpus]
    return f"GPUs {', '.join(numbers[:-1])} and {numbers[-1]}"


def verb(gpus: Sequence[GpuReport], one: str, several: str) -> str:
    """The form of a verb that goes with :func:`names`."""
    return one if len(gpus) == 1 else several


def mean(level: Level | None) -> float | None:
    """Its mean, where it is known."""
    return None if level is None else level.mean


def average(values: Sequence[float | None]) -> float | None:
    """Mean of those that are known."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def busiest(facts: Facts) -> float | None:
    """Mean utilization of the GPU that worked most: the others may be nobody's, or not needed."""
    return max((gpu.utilization.mean for gpu in facts.gpus if gpu.utilization is not None), default=None)


def moved(gpu: GpuReport) -> float | None:
    """Bytes a second that it sent and received over PCIe and NVLink together; None without the counters."""
    known = [level.mean for level in (*_ways(gpu.pcie), *_ways(gpu.nvlink)) if level is not None]
    return sum(known) if known else None


def power_share(gpu: GpuReport, *, highest: bool = False) -> float | None:
    """Percent of the power it may draw that it drew, on average or at its highest; None where unknown."""
    if gpu.power_w is None or not gpu.power_limit_w:
        return None
    return 100 * (gpu.power_w.max if highest else gpu.power_w.mean) / gpu.power_limit_w


def power(gpus: Sequence[GpuReport]) -> str | None:
    """``165 of 700 W``, on average over ``gpus``; None where one is unknown."""
    drawn, limit = average([mean(gpu.power_w) for gpu in gpus]), average([gpu.power_limit_w for gpu in gpus])
    return None if drawn is None or limit is None else f"{drawn:.0f} of {limit:.0f} W"


def _others(gpu: GpuReport) -> bool:
    held = gpu.torch is not None and gpu.torch.reserved.peak != 0
    return gpu.process_memory is not None and gpu.process_memory.peak == 0 and not held


def _shortened(source: str) -> str:
    line = " ".join(source.split())
    return line if len(line) <= _MOST_SOURCE else f"{line[: _MOST_SOURCE - 1].rstrip()}…"


def _ways(traffic: Traffic | None) -> tuple[Level | None, ...]:
    return () if traffic is None else (traffic.tx, traffic.rx)


def _plain(value: Any) -> Any:
    return round(value, 1) if isinstance(value, float) else value
