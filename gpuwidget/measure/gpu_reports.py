"""What a run's report says of one GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpuwidget.measure import notes
from gpuwidget.measure.gpu_totals import Track
from gpuwidget.measure.torch_memory import NO_LIST, UNCHANGED, torch_memory
from gpuwidget.model.report import GpuReport
from gpuwidget.pytorch import cuda_state
from gpuwidget.pytorch.cuda_state import TorchDevice
from gpuwidget.pytorch.peak_tracker import DevicePeaks

_COUNTERS_RESET = "code in this run reset torch's counters"


class GpuReports:
    """Makes them of tracks, and of what torch says of its own memory on its devices."""

    def __init__(
        self,
        devices: Sequence[TorchDevice],
        accounts: Mapping[int, DevicePeaks],
        can_go_back: Mapping[int, int | None],
        *,
        recorded: bool,
    ) -> None:
        """By device index: what the run did to torch's memory, and what of it emptying the cache gives back.

        ``recorded`` says that the tracks are a recording's.
        """
        self._devices = devices
        self._accounts = accounts
        self._can_go_back = can_go_back
        self._recorded = recorded

    def of(self, track: Track, t: float, *, shown: bool) -> GpuReport:
        """The report of a GPU over ``t`` seconds; it says why what is unknown is so, in the track too."""
        gpu = track.gpu
        device = next((d for d in self._devices if cuda_state.same_gpu(gpu.uuid, d.uuid)), None)
        account = self._accounts.get(device.index) if device is not None else None
        process_memory = track.process_memory()
        torch = None
        if device is not None and account is not None:
            torch = torch_memory(account, self._can_go_back.get(device.index))
            if torch.returnable is None:
                track.missing["returnable"] = NO_LIST if device.index in self._can_go_back else UNCHANGED
            if None in (torch.alloc_retries, torch.ooms):
                track.missing["alloc_retries"] = track.missing["ooms"] = _COUNTERS_RESET
        else:
            track.missing["torch"] = self._why_no_torch()
        if gpu.memory_reserved is None:
            track.missing["memory_reserved"] = "what the driver keeps for itself is not known"
        report = GpuReport(
            uuid=gpu.uuid,
            index=gpu.index,
            mig_index=gpu.mig_index,
            name=gpu.name,
            torch_device=device.name if device is not None else None,
            mig_parent=gpu.mig_parent,
            memory_total=gpu.memory_total,
            memory_reserved=gpu.memory_reserved,
            shown=shown,
            device_memory=track.device_memory(),
            process_memory=process_memory,
            torch=torch,
            utilization=track.utilization(t),
            bursts=track.bursts,
            memory_utilization=track.memory_utilization(t),
            sm_activity=track.activity("sm_activity", t),
            sm_occupancy=track.activity("sm_occupancy", t),
            tensor_activity=track.activity("tensor_activity", t),
            fp32_activity=track.activity("fp32_activity", t),
            dram_activity=track.activity("dram_activity", t),
            pcie=track.traffic("pcie", t),
            nvlink=track.traffic("nvlink", t),
            power_w=track.power(t),
            power_limit_w=track.power_limit(),
            throttled=track.throttled(),
            energy_j=track.energy(t),
            lost_since=track.lost_since,
            missing=track.missing,
            children=notes.commands(track.children.values()),
            children_memory=track.children_memory(),
        )
        if process_memory is not None and None not in (process_memory.start, process_memory.end):
            track.missing.pop("process_memory", None)
        return report

    def _why_no_torch(self) -> str:
        if self._recorded:
            return "what torch holds here is no part of a recording"
        return cuda_state.no_counters_reason() or "torch does not see this GPU"
