"""The input of the advice rules: a run's figures, and facts about the user's code and the host."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gpuwidget.measure.steady_state import SteadyWindow
from gpuwidget.model.report import (
    CodeTime,
    GpuReport,
    Level,
    LineTime,
    Report,
    RunInfo,
    Timeline,
    Traffic,
    WorkerReport,
    in_call,
)
from gpuwidget.model.samples import Gpu, without_mig_parents
from gpuwidget.model.torch_state import CodeLine, ComputeSwitches, DeviceChanges, Loader, Model
from gpuwidget.model.translation import joined, translatable
from gpuwidget.system.host_limits import SharedMemory

MIN_RUN_S = 3.0
"""Minimum duration, in seconds, of a run whose activity the rules judge. A shorter run has only a few of the
hardware counters' half-second windows, and much of it is start-up."""
HAS_GAPS = 85.0
"""Mean utilization, in percent, above which a GPU counts as always busy. Waiting cannot have slowed down a
run that kept its GPU busy."""
WORKING = 20.0
"""Mean utilization, in percent, at or above which a GPU counts as working."""
UNUSED, UNUSED_MAX = 1.0, 10.0
"""A GPU counts as unused if its utilization, in percent, has at most this mean and this maximum."""
_NEARLY_ALL = 0.95
"""Fraction of a run from which the steady part counts as the whole run."""
_IPYTHON_CALL = re.compile(r"\bget_ipython\(\)\.(?:run_cell_magic|run_line_magic|system|getoutput)\(")
"""Matches IPython's translation of magics and ``!`` lines. The translation quotes code that the line itself
does not run, so the rules ignore the source of such a line."""
_MAX_SOURCE = 60
"""Maximum number of characters of a source line that is quoted in a sentence."""


@dataclass(frozen=True, slots=True)
class EarlierRun:
    """Memory on one GPU at the start and end of an earlier run of the same code, in bytes."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class RunContext:
    """Facts about a run besides its samples. A rule that needs an unknown fact gives no advice."""

    cell: str | None = None
    """Source of the cell, or None if the code ran outside a cell."""
    loaders: tuple[Loader, ...] = ()
    models: tuple[Model, ...] = ()
    switches: ComputeSwitches | None = None
    can_use_cuda: bool = False
    """Whether torch is loaded and was built for CUDA."""
    cuda_initialized: bool = True
    """Whether torch has initialized CUDA in this process. Before that, torch has no tensor on a GPU."""
    cores: float | None = None
    """Number of CPU cores that this process may use."""
    shared_memory: SharedMemory | None = None
    process_cpu: float | None = None
    """CPU time of this process in percent of one core."""
    earlier_runs: Mapping[str, Sequence[EarlierRun]] | None = None
    """Runs of the same code, keyed by GPU UUID. The oldest is first, and this run is last."""
    source_of: Callable[[str], str] | None = None
    """Function that returns the source line of a frame such as ``In[2]:4 step``, or an empty string if the
    line is unknown."""
    cuda_variables: Mapping[str, str] = field(default_factory=dict)
    """CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER, as far as they are set."""
    device_changes: DeviceChanges | None = None
    new_contexts: frozenset[str] = frozenset()
    """The devices (``cuda:N``) on which this process opened its CUDA context during the run."""
    line_name: Callable[[CodeLine], str] | None = None
    """Function that returns the name and the source of a line, such as ``In[5]:4 `step(x)```."""
    other_gpu_work: bool = False
    """Whether this process has loaded another GPU library, or has child processes that may use a GPU."""


NO_CONTEXT = RunContext()


@dataclass(frozen=True, slots=True)
class MachineGpu:
    """A GPU of the machine, whether this process uses it or not."""

    report: GpuReport
    gpu: Gpu


@dataclass(frozen=True, slots=True)
class SteadyPart:
    """The part of a run in which its workers did their work, without their start-up and shutdown."""

    window: SteadyWindow
    gpus: tuple[GpuReport, ...]
    """The GPUs that the card shows, with the rates of this part of the run and without torch's memory. The
    driver's memory and energy are those of the whole run."""

    @property
    def seconds(self) -> float:
        """Length of the part."""
        return self.window.until - self.window.since


@dataclass(frozen=True, slots=True)
class RunEvidence:
    """The data about one run that the rules evaluate."""

    gpus: tuple[GpuReport, ...]
    """The GPUs that this process uses, or all GPUs if that is unknown."""
    gpu_count: int
    """Number of all GPUs in the report, including those that this process does not use."""
    attributed: bool
    """Whether it is known which GPUs this process uses."""
    duration_s: float
    """Seconds for which the code ran; :attr:`time` covers the same span."""
    gpu_s: float
    """Seconds that the GPU figures cover: the code, and the GPU drain (the GPU's work after the code's
    end)."""
    time: CodeTime | None
    context: RunContext = NO_CONTEXT
    recorded: bool = False
    """Whether the readings come from a recording. The recording's GPUs then count as used by the run."""
    timeline: Timeline | None = None
    workers: tuple[WorkerReport, ...] = ()
    steady: SteadyPart | None = None
    """The part of the run in which its workers worked, or None if there was none or it was not found."""
    machine: tuple[MachineGpu, ...] = ()
    """All GPUs of the report, including those that this process does not use. Empty while the run lasts."""

    @classmethod
    def of(
        cls,
        report: Report,
        context: RunContext = NO_CONTEXT,
        steady: SteadyPart | None = None,
        gpus: Iterable[Gpu] = (),
    ) -> RunEvidence:
        """Return the evidence of a run that has ended. ``gpus`` are the GPUs of the report."""
        by_uuid = {gpu.uuid: gpu for gpu in gpus}
        return cls(
            gpus=own_gpus(report.shown, report.attributed, report.workers),
            gpu_count=len(report.gpus),
            attributed=report.attributed,
            duration_s=report.cell.duration_s,
            gpu_s=measured_s(report.cell),
            time=report.time,
            context=context,
            recorded=report.source.recorded,
            timeline=report.timeline,
            workers=report.workers,
            steady=steady,
            machine=tuple(MachineGpu(gpu, by_uuid[gpu.uuid]) for gpu in report.gpus if gpu.uuid in by_uuid),
        )

    def in_steady_part(self) -> RunEvidence:
        """Return the evidence with the GPU figures of the steady part only.

        Return it unchanged if there is no :attr:`steady_part`. If workers did all of the GPU work, the
        evidence contains neither the line profile nor the loaders of this process.
        """
        part = self.steady_part
        if part is None:
            return self
        steady = {gpu.uuid: gpu for gpu in part.gpus}
        gpus = tuple(
            replace(steady[gpu.uuid], torch=gpu.torch, torch_device=gpu.torch_device)
            for gpu in self.gpus
            if gpu.uuid in steady
        )
        made = replace(self, gpus=gpus, gpu_s=part.seconds)
        if self.only_workers:
            made = replace(made, time=None, context=replace(self.context, loaders=()))
        return made

    @property
    def steady_part(self) -> SteadyPart | None:
        """The steady part, or None if there is none or if it is nearly the whole run."""
        part = self.steady
        return None if part is None or part.seconds >= _NEARLY_ALL * self.gpu_s else part

    @property
    def only_workers(self) -> bool:
        """Whether workers did all GPU work, as far as it was done with torch."""
        return bool(self.workers) and not any(gpu.torch and gpu.torch.allocated.peak for gpu in self.gpus)

    @property
    def long_enough(self) -> bool:
        """Whether the run is long enough for its activity to be judged."""
        return self.gpu_s >= MIN_RUN_S

    @property
    def own(self) -> bool:
        """Whether all work on :attr:`gpus` counts as work of this run."""
        return self.attributed or self.recorded or _gpus_reported(self.workers)

    def workers_on(self, gpu: GpuReport) -> tuple[WorkerReport, ...]:
        return tuple(worker for worker in self.workers if worker.gpu == gpu.uuid)


@dataclass(frozen=True, slots=True)
class Hotspot:
    """Part of a line's time: the time in the line itself, or in one of the user's functions that it calls."""

    line: LineTime
    share: float
    gpu_busy: float | None
    call: str | None
    """The call that took most of this part of the time."""
    call_share: float | None
    """Percent of the run's time in that call."""
    frame: str | None
    source: str
    """Source of the line or frame. Empty if it is unknown or if IPython translated it."""

    @property
    def name(self) -> str:
        """The line and its frame, if any, such as ``line 7 `for x in loader:` at In[2]:4 step``."""
        if self.frame is None:
            return self._line
        return translatable("{line} at {frame}", line=self._line, frame=self.frame)

    @property
    def name_with_call(self) -> str:
        """:attr:`name` followed by :attr:`call`, if the call is known."""
        return joined([self.name, in_call(self.call)], " ") if self.call is not None else self.name

    @property
    def _line(self) -> str:
        line = self.line
        if line.line is None:
            return translatable("code outside the cell's lines")
        if line.until is not None:
            return translatable("lines {line} to {until}", line=line.line, until=line.until)
        source = shortened(line.source)
        if not source:
            return translatable("line {line}", line=line.line)
        return translatable("line {line} `{source}`", line=line.line, source=source)


def hotspots(evidence: RunEvidence) -> list[Hotspot]:
    """Return the parts of the run's time per line and frame, the largest first.

    The list is empty for a short run.
    """
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
        # The line's call and GPU activity also cover its frames. For the line's time outside the frames, both
        # are unknown.
        rest = line.share - sum(frame.share for frame in line.frames)
        found.append(Hotspot(line, rest, None, None, None, None, line.source))
        for frame in line.frames:
            source = source_of(frame.frame) if source_of is not None else ""
            found.append(
                Hotspot(line, frame.share, frame.gpu_busy, frame.call, frame.call_share, frame.frame, source)
            )
    return sorted(found, key=lambda spot: -spot.share)


def own_gpus(
    gpus: Sequence[GpuReport], attributed: bool, workers: Sequence[WorkerReport] = ()
) -> tuple[GpuReport, ...]:
    """Return ``gpus`` without those that this process and its workers are known not to use, each once."""
    gpus = without_mig_parents(gpus)
    if attributed:
        return tuple(gpu for gpu in gpus if not _unused_by_process(gpu) and not gpu.used_by_others_only)
    if _gpus_reported(workers):
        return tuple(gpu for gpu in gpus if any(worker.gpu == gpu.uuid for worker in workers))
    return gpus


def measured_s(cell: RunInfo) -> float:
    """Return the seconds that the GPU figures of a run cover: its code and the GPU drain."""
    return cell.duration_s + (cell.gpu_tail_s or 0.0)


def shortened(source: str) -> str:
    """Return a source line, shortened so that it can be quoted in a sentence."""
    line = " ".join(source.split())
    return line if len(line) <= _MAX_SOURCE else f"{line[: _MAX_SOURCE - 1].rstrip()}…"


def mean(level: Level | None) -> float | None:
    return None if level is None else level.mean


def average(values: Sequence[float | None]) -> float | None:
    """Return the mean of the known values, or None if there are none."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def mean_utilization(gpus: Sequence[GpuReport]) -> float | None:
    """Return the mean utilization of all ``gpus``, in percent."""
    return average([mean(gpu.utilization) for gpu in gpus])


def mean_level(gpus: Sequence[GpuReport], name: str) -> float | None:
    """Return the mean of an entry of ``levels`` over all ``gpus``."""
    return average([mean(gpu.levels[name]) for gpu in gpus])


def mean_power(gpus: Sequence[GpuReport]) -> float | None:
    """Return the mean power of all ``gpus``, in watts."""
    return average([mean(gpu.power_w) for gpu in gpus])


def busiest(evidence: RunEvidence) -> float | None:
    """Return the mean utilization of the busiest GPU. The other GPUs do not count, because the code may not
    need them."""
    return max((gpu.utilization.mean for gpu in evidence.gpus if gpu.utilization is not None), default=None)


def is_working(gpu: GpuReport) -> bool:
    """Return whether the GPU counts as working; False if that is unknown."""
    return (mean(gpu.utilization) or 0) >= WORKING


def is_unused(gpu: GpuReport) -> bool:
    """Return whether the GPU did nothing; False if that is unknown."""
    level = gpu.utilization
    return level is not None and level.mean <= UNUSED and level.max <= UNUSED_MAX


def traffic(gpu: GpuReport) -> float | None:
    """Return bytes per second, sent plus received over PCIe and NVLink, or None without hardware counters."""
    known = [level.mean for level in (*_levels(gpu.pcie), *_levels(gpu.nvlink)) if level is not None]
    return sum(known) if known else None


def power_share(gpu: GpuReport, *, highest: bool = False) -> float | None:
    """Return the mean or the highest power in percent of the power limit, or None if it is unknown."""
    if gpu.power_w is None or not gpu.power_limit_w:
        return None
    return 100 * (gpu.power_w.max if highest else gpu.power_w.mean) / gpu.power_limit_w


def _unused_by_process(gpu: GpuReport) -> bool:
    held = gpu.torch is not None and gpu.torch.reserved.peak != 0
    return gpu.process_memory is not None and gpu.process_memory.peak == 0 and not held


def _gpus_reported(workers: Sequence[WorkerReport]) -> bool:
    return bool(workers) and all(worker.gpu is not None for worker in workers)


def _levels(link: Traffic | None) -> tuple[Level | None, ...]:
    return () if link is None else (link.tx, link.rx)
