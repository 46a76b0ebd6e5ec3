"""Build the report of a run from the totals of its GPUs and from torch's counters."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from gpuwidget import pytorch
from gpuwidget.measure import notes, reasons
from gpuwidget.measure.gpu_totals import GpuTotals
from gpuwidget.measure.jax_pool import jax_pools, reserves_in_advance
from gpuwidget.measure.run_gpus import RunGpus
from gpuwidget.measure.timeline import TimelineMarks
from gpuwidget.measure.torch_memory import has_allocated, torch_memory
from gpuwidget.model.messages import Message, message
from gpuwidget.model.report import (
    REPORT_SCHEMA,
    GpuReport,
    GpuTimeline,
    Report,
    RunInfo,
    SoftwareVersions,
    SourceInfo,
    Span,
    Timeline,
)
from gpuwidget.model.samples import Origin
from gpuwidget.model.torch_state import DevicePeaks, TorchDevice, same_gpu
from gpuwidget.pytorch import PeakScope
from gpuwidget.sampler import NO_THREAD

NOT_SAMPLED = message("not-sampled", "The NVIDIA driver did not answer in time.")
_NOT_MEASURED = message("run-not-measured", "The GPUs were not measured.")
GPUS_UNKNOWN = frozenset({NOT_SAMPLED.id, NO_THREAD.id, _NOT_MEASURED.id})
"""The ids of the reasons why it is unknown whether there is a GPU."""


class GpuReportBuilder:
    """Builds the report of each GPU from its totals and from torch's memory on its device."""

    def __init__(
        self,
        devices: Sequence[TorchDevice],
        peaks: Mapping[int, DevicePeaks],
        returnable: Mapping[int, int | None],
        *,
        recorded: bool,
        busy: Collection[int] = (),
    ) -> None:
        """Store the data for all reports. ``peaks`` and ``returnable`` are keyed by device index.

        ``peaks`` contains the changes of torch's memory during the run, and ``returnable`` the bytes that
        emptying the cache would release. ``recorded`` is True if the totals come from a recording. ``busy``
        contains the indices of the devices on which a CUDA stream of this process was seen working.
        """
        self._devices = devices
        self._peaks = peaks
        self._returnable = returnable
        self._recorded = recorded
        self._busy = busy

    def build(self, totals: GpuTotals, t: float, *, shown: bool) -> GpuReport:
        """Return the report of a GPU over ``t`` seconds. Add the reasons for unknown values to ``totals``."""
        gpu = totals.gpu
        device = next((d for d in self._devices if same_gpu(gpu.uuid, d.uuid)), None)
        device_peaks = self._peaks.get(device.index) if device is not None else None
        process_memory = totals.process_memory()
        torch = None
        if device is not None and device_peaks is not None:
            torch = torch_memory(device_peaks, self._returnable.get(device.index))
            if torch.returnable is None:
                read = device.index in self._returnable
                totals.missing["returnable"] = reasons.NO_SEGMENTS if read else reasons.SEGMENTS_NOT_READ
            if None in (torch.alloc_retries, torch.ooms):
                totals.missing["alloc_retries"] = totals.missing["ooms"] = reasons.COUNTERS_RESET
        else:
            totals.missing["torch"] = self._why_no_torch()
        if gpu.memory_reserved is None:
            totals.missing["memory_reserved"] = reasons.RESERVED_UNKNOWN
        if process_memory is not None and None not in (process_memory.start, process_memory.end):
            totals.missing.pop("process_memory", None)
        return GpuReport(
            uuid=gpu.uuid,
            index=gpu.index,
            mig_index=gpu.mig_index,
            name=gpu.name,
            torch_device=device.name if device is not None else None,
            mig_parent=gpu.mig_parent,
            memory_total=gpu.memory_total,
            memory_reserved=gpu.memory_reserved,
            shown=shown,
            device_memory=totals.device_memory(),
            process_memory=process_memory,
            torch=torch,
            utilization=totals.utilization(t),
            bursts=totals.bursts,
            levels=totals.levels(t),
            pcie=totals.traffic("pcie", t),
            nvlink=totals.traffic("nvlink", t),
            power_w=totals.power(t),
            power_limit_w=totals.power_limit(),
            throttled=totals.throttled(),
            energy_j=totals.energy(t),
            lost_since=totals.lost_since,
            missing=dict(totals.missing),
            children=notes.programs(totals.children.values()),
            children_memory=totals.children_memory(),
            energy_at_least_j=totals.energy_at_least(t),
            energy_error_j=totals.energy_error(t),
            unified_memory=gpu.unified_memory,
        )

    def worked(self, totals: GpuTotals) -> bool | None:
        """Return whether this process or its children worked on the GPU during the run; None if unknown."""
        device = next((d for d in self._devices if same_gpu(totals.gpu.uuid, d.uuid)), None)
        peaks = self._peaks.get(device.index) if device is not None else None
        allocated = None if peaks is None else has_allocated(peaks)
        return totals.worked(allocated, device is not None and device.index in self._busy)

    def _why_no_torch(self) -> Message:
        if self._recorded:
            return reasons.RECORDED_TORCH
        return pytorch.no_counters_reason() or reasons.NOT_A_TORCH_DEVICE


def build_report(
    report_type: type[Report],
    cell: RunInfo,
    t: float,
    run_gpus: RunGpus,
    marks: TimelineMarks,
    host_memory: Span,
    peak_scope: PeakScope | None,
    peaks: Mapping[int, DevicePeaks],
    returnable: Mapping[int, int | None],
    contexts_before: frozenset[int],
    busy: Collection[int],
    not_sampled: Message = NOT_SAMPLED,
) -> Report:
    """Return the report of a run that took ``t`` seconds, including the wait for the GPU at its end.

    ``contexts_before`` contains the indices of the devices on which this process had a context at the start,
    and ``busy`` those on which a CUDA stream of this process was seen working. ``not_sampled`` is the reason
    if there was no sample.
    """
    devices = run_gpus.devices()
    builder = GpuReportBuilder(devices, peaks, returnable, recorded=run_gpus.recorded, busy=busy)
    shown = {totals.gpu.uuid for totals in run_gpus.shown()}
    gpus = tuple(builder.build(totals, t, shown=totals.gpu.uuid in shown) for totals in run_gpus.all)
    if run_gpus.attributed and not run_gpus.selected:
        gpus = tuple(
            replace(gpu, worked=builder.worked(totals))
            for gpu, totals in zip(gpus, run_gpus.all, strict=True)
        )
    report = report_type(
        schema=REPORT_SCHEMA,
        source=_source(run_gpus.origin, not_sampled),
        environment=_environment(run_gpus.origin),
        cell=cell,
        host_memory=host_memory,
        gpus=gpus,
        attributed=run_gpus.attributed,
        timeline=_timeline(run_gpus, marks, shown),
        notes=(),
        time=None,
        advice=(),
        holders=(),
        lines=(),
        workers=run_gpus.workers.rows(t, [gpu.uuid for gpu in gpus]),
    )
    report = replace(report, energy_idle_j=_idle_energy(run_gpus, report.counted, t))
    found = _notes(run_gpus, gpus, devices, peak_scope, contexts_before)
    pools = {} if run_gpus.recorded or report.memory_kinds()[0] == "torch" else jax_pools()
    if pools and reserves_in_advance():
        found.append(notes.jax_pool(pools.values()))
    return report.with_notes(*found, *marks.notes())


def empty_report(report_type: type[Report], cell: RunInfo) -> Report:
    """Return the report of a run of which only the duration is known."""
    return report_type(
        schema=REPORT_SCHEMA,
        source=SourceInfo("none", _NOT_MEASURED, None),
        environment=SoftwareVersions(None, None, None, None, None, None),
        cell=cell,
        host_memory=Span(None, None, None),
        gpus=(),
        attributed=False,
        timeline=None,
        notes=(),
        time=None,
        advice=(),
        holders=(),
        lines=(),
    )


def _source(origin: Origin | None, not_sampled: Message) -> SourceInfo:
    if origin is None:
        return SourceInfo("none", not_sampled, None)
    return SourceInfo(origin.kind, origin.reason, origin.recording)


def _environment(origin: Origin | None) -> SoftwareVersions:
    versions = pytorch.versions()
    return SoftwareVersions(
        driver=origin.driver if origin is not None else None,
        cuda_driver=origin.cuda_driver if origin is not None else None,
        torch=versions.torch,
        cuda=versions.cuda,
        cudnn=versions.cudnn,
        default_device=versions.default_device,
    )


def _idle_energy(run_gpus: RunGpus, counted: Sequence[GpuReport], t: float) -> float | None:
    uuids = {gpu.uuid for gpu in counted}
    idle = [totals.energy_idle(t) for totals in run_gpus.all if totals.gpu.uuid in uuids]
    return sum(energy for energy in idle if energy is not None) if idle and None not in idle else None


def _timeline(run_gpus: RunGpus, marks: TimelineMarks, shown: set[str]) -> Timeline:
    t, time_series = run_gpus.time_series()
    return Timeline(
        t=t,
        marks=marks.all(),
        gpus=tuple(
            GpuTimeline(
                uuid=uuid,
                utilization=series.utilization,
                device_memory=tuple(None if value is None else int(value) for value in series.memory_used),
                power_w=series.power_w,
                sm_activity=series.sm_activity,
            )
            for uuid, series in time_series.items()
            if uuid in shown
        ),
        gaps=run_gpus.gaps,
    )


def _notes(
    run_gpus: RunGpus,
    gpus: Sequence[GpuReport],
    devices: Sequence[TorchDevice],
    peak_scope: PeakScope | None,
    contexts_before: frozenset[int],
) -> list[Message]:
    new = {f"cuda:{index}" for index in pytorch.devices_with_context() if index not in contexts_before}
    found = notes.gpu_notes(list(zip(gpus, run_gpus.all, strict=True)), new)
    if peak_scope is not None:
        gpu_names = {gpu.torch_device: notes.gpu_name(gpu) for gpu in gpus}
        names = {device.index: gpu_names.get(device.name, device.name) for device in devices}
        found += notes.peak_resets(peak_scope, names)
    if not run_gpus.attributed and run_gpus.origin is not None:
        found += notes.unattributed(gpus, run_gpus.origin, run_gpus.unlisted_gpus())
    return found
