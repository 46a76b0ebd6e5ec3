"""The input of the rules: a run's figures, and what is known of the code and the host."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gpuwidget.measure.advice.messages import Text, shortened
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
from gpuwidget.pytorch.torch_switches import ComputeSwitches
from gpuwidget.pytorch.torch_variables import Loader, Model
from gpuwidget.system.host_limits import SharedMemory

MIN_RUN_S = 3.0
"""No rule judges the activity of a shorter run: it has a handful of the counters' half-second windows at
most, and much of it is start-up."""
HAS_GAPS = 85.0
"""Percent of mean utilization above which a GPU had work all the time: no wait cost it anything."""
_IPYTHON_CALL = re.compile(r"\bget_ipython\(\)\.(?:run_cell_magic|run_line_magic|system|getoutput)\(")
"""IPython's translation of ``%%`` and ``!`` lines: the code that it quotes is not that line's."""
_PAGE = "docs/advice.md"


@dataclass(frozen=True, slots=True)
class EarlierRun:
    """Memory on one GPU at the start and end of an earlier run of the same code, in bytes."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class RunContext:
    """What is known besides the samples; rules that need an unknown part of it do not apply."""

    cell: str | None = None
    """Source of the cell; None outside of one."""
    loaders: tuple[Loader, ...] = ()
    models: tuple[Model, ...] = ()
    switches: ComputeSwitches | None = None
    can_use_cuda: bool = False
    """Whether torch is loaded and was built for CUDA."""
    cuda_initialized: bool = True
    """Whether torch has initialized CUDA in this process; otherwise it has no tensor on a GPU."""
    cores: float | None = None
    """How many this process may use."""
    shared_memory: SharedMemory | None = None
    process_cpu: float | None = None
    """CPU time of this process, percent of one core."""
    earlier_runs: Mapping[str, Sequence[EarlierRun]] | None = None
    """By GPU: runs of the same code, the oldest first, this one last."""
    source_of: Callable[[str], str] | None = None
    """Returns the source line of a frame such as ``In[2]:4 step``; empty where it is unknown."""
    other_gpu_work: bool = False
    """Whether another GPU library is loaded, or there are child processes that may use a GPU."""


NO_CONTEXT = RunContext()


@dataclass(frozen=True, slots=True)
class RunEvidence:
    """One run, as the rules evaluate it."""

    gpus: tuple[GpuReport, ...]
    """This process's, or all where that is unknown."""
    gpu_count: int
    """How many GPUs there are."""
    attributed: bool
    """Whether it is known which GPUs are this process's."""
    duration_s: float
    """Seconds of the code, which :attr:`time` covers."""
    gpu_s: float
    """Seconds that the GPUs' figures cover: the code's, and the GPU drain after it."""
    time: CodeTime | None
    context: RunContext = NO_CONTEXT
    recorded: bool = False
    """Whether the GPUs are a recording's, which count as the run's."""
    timeline: Timeline | None = None

    @classmethod
    def of(cls, report: Report, context: RunContext = NO_CONTEXT) -> RunEvidence:
        """Return the evidence of a run that has ended."""
        return cls(
            gpus=own_gpus(report.shown, report.attributed),
            gpu_count=len(report.gpus),
            attributed=report.attributed,
            duration_s=report.cell.duration_s,
            gpu_s=measured_s(report.cell),
            time=report.time,
            context=context,
            recorded=report.source.recorded,
            timeline=report.timeline,
        )

    @property
    def long_enough(self) -> bool:
        """Whether the run is long enough for its activity to be judged."""
        return self.gpu_s >= MIN_RUN_S

    @property
    def own(self) -> bool:
        """Whether the GPUs' work counts as this run's."""
        return self.attributed or self.recorded


@dataclass(frozen=True, slots=True)
class Hotspot:
    """A part of a line's time: in the line itself, or in one frame of the user's below it."""

    line: LineTime
    share: float
    gpu_busy: float | None
    call: str | None
    """The call that took most of it."""
    call_share: float | None
    """Percent of the run's time in that call."""
    frame: str | None
    source: str
    """Empty where it is unknown, or was translated by IPython."""

    @property
    def name(self) -> str:
        """``line 7 `for x in loader:```, with the frame below it."""
        return f"{self._line} at {self.frame}" if self.frame is not None else self._line

    @property
    def name_with_call(self) -> str:
        """:attr:`name`, with the call."""
        return f"{self.name} {in_call(self.call)}" if self.call is not None else self.name

    @property
    def _line(self) -> str:
        line = self.line
        if line.line is None:
            return "code of no line of the cell"
        if line.until is not None:
            return f"lines {line.line} to {line.until}"
        source = shortened(line.source)
        return f"line {line.line} `{source}`" if source else f"line {line.line}"


def hotspots(evidence: RunEvidence) -> list[Hotspot]:
    """Return where the time went, as finely as it is known, the largest part first; empty for a short run."""
    found = []
    lines = evidence.time.lines if evidence.time is not None and evidence.duration_s >= MIN_RUN_S else ()
    source_of = evidence.context.source_of
    for reported in lines:
        line = replace(reported, source="") if _IPYTHON_CALL.search(reported.source) else reported
        if not line.frames:
            found.append(
                Hotspot(line, line.share, line.gpu_busy, line.call, line.call_share, None, line.source)
            )
            continue
        # The line's call and activity include its frames': for the rest alone they are unknown.
        rest = line.share - sum(frame.share for frame in line.frames)
        found.append(Hotspot(line, rest, None, None, None, None, line.source))
        for frame in line.frames:
            source = source_of(frame.frame) if source_of is not None else ""
            found.append(
                Hotspot(line, frame.share, frame.gpu_busy, frame.call, frame.call_share, frame.frame, source)
            )
    return sorted(found, key=lambda spot: -spot.share)


def own_gpus(gpus: Sequence[GpuReport], attributed: bool) -> tuple[GpuReport, ...]:
    """Return ``gpus`` without those that this process is known not to use."""
    return tuple(gpu for gpu in gpus if not attributed or not _unused_by_process(gpu))


def measured_s(cell: RunInfo) -> float:
    """Return the seconds that the GPUs' figures of a run cover."""
    return cell.duration_s + (cell.gpu_tail_s or 0.0)


def make_advice(rule: str, text: Text, evidence: Mapping[str, Any], *, sure: bool = True) -> Advice:
    """Return advice of ``rule``; the figures in ``evidence`` are rounded and unknown ones left out."""
    figures = {name: _rounded(value) for name, value in evidence.items() if value is not None}
    return Advice(rule, sure, text.text, text.fix, figures, f"{_PAGE}#{rule}")


def mean(level: Level | None) -> float | None:
    """Return the level's mean; None where it is unknown."""
    return None if level is None else level.mean


def average(values: Sequence[float | None]) -> float | None:
    """Return the mean of the values that are known."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def mean_utilization(gpus: Sequence[GpuReport]) -> float | None:
    """Return the mean utilization over the GPUs."""
    return average([mean(gpu.utilization) for gpu in gpus])


def mean_power(gpus: Sequence[GpuReport]) -> float | None:
    """Return the mean power over the GPUs, watts."""
    return average([mean(gpu.power_w) for gpu in gpus])


def busiest(evidence: RunEvidence) -> float | None:
    """Return the mean utilization of the busiest GPU; the others may not be needed."""
    return max((gpu.utilization.mean for gpu in evidence.gpus if gpu.utilization is not None), default=None)


def traffic(gpu: GpuReport) -> float | None:
    """Return bytes per second, sent and received, over PCIe and NVLink; None without the counters."""
    known = [level.mean for level in (*_levels(gpu.pcie), *_levels(gpu.nvlink)) if level is not None]
    return sum(known) if known else None


def power_share(gpu: GpuReport, *, highest: bool = False) -> float | None:
    """Return the mean or the highest power as percent of the power limit; None where unknown."""
    if gpu.power_w is None or not gpu.power_limit_w:
        return None
    return 100 * (gpu.power_w.max if highest else gpu.power_w.mean) / gpu.power_limit_w


def _unused_by_process(gpu: GpuReport) -> bool:
    held = gpu.torch is not None and gpu.torch.reserved.peak != 0
    return gpu.process_memory is not None and gpu.process_memory.peak == 0 and not held


def _levels(link: Traffic | None) -> tuple[Level | None, ...]:
    return () if link is None else (link.tx, link.rx)


def _rounded(value: Any) -> Any:
    return round(value, 1) if isinstance(value, float) else value
