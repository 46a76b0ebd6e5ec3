"""Tests of the NVML source's hardware counters (GPM), and of MIG slices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pynvml
import pytest
from helpers_messages import ids
from helpers_nvml import EPOCH, GIB, NO_PROCESS, UUIDS, Machine

from gpuwidget.model.errors import GpuLostError, SliceRemovedError
from gpuwidget.model.gpu_process import Process
from gpuwidget.model.readings import Activity, SlowReadings
from gpuwidget.sources import nvml_gpm
from gpuwidget.sources.nvml import NvmlSource
from gpuwidget.sources.nvml_device import SLOW_VALUES

# -- the hardware's counters -----------------------------------------------------------------------------


def test_activity_is_the_difference_of_two_samples(machine: Machine) -> None:
    """The first call of `read_activity()` returns None. The second call returns the activity since the first
    one, in percent and in bytes per second."""
    machine.set_scenario(
        "gpu.0.gpm.1=99",
        "gpu.0.gpm.2=62.5",
        "gpu.0.gpm.3=nan",
        "gpu.0.gpm.5=31.25",
        "gpu.0.gpm.10=error 3",
        "gpu.0.gpm.12=2",
        "gpu.0.gpm.20=1.5",
        "gpu.0.gpm.60=2",
    )
    source = machine.source()
    (gpu,) = source.open().gpus
    machine.clock.now = 10.0
    assert source.read_activity(gpu) is None
    machine.clock.now = 10.5
    mib = 1024.0**2
    assert source.read_activity(gpu) == Activity(
        since=EPOCH + 10.0,
        until=EPOCH + 10.5,
        graphics=99.0,
        sm=62.5,
        sm_occupancy=None,
        tensor=31.25,
        dram=None,
        fp64=0.0,
        fp32=2.0,
        fp16=0.0,
        pcie_tx=1.5 * mib,
        pcie_rx=0.0,
        nvlink_tx=0.0,
        nvlink_rx=2 * mib,
    )
    assert ids(source.read_fast(gpu).missing) == {
        "sm_occupancy": "no-data-yet",
        "dram": "not-supported",
    }


@pytest.mark.parametrize("unknown", ["NVML_GPM_METRIC_ANY_TENSOR_UTIL", "NVML_GPM_METRIC_NO_SUCH_COUNTER"])
def test_a_counter_that_the_binding_does_not_know_affects_no_other(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, unknown: str
) -> None:
    """If the installed nvidia-ml-py does not know one hardware counter, only this counter is None, with the
    reason."""
    monkeypatch.delattr(pynvml, unknown, raising=False)
    tensor = [metric for metric in nvml_gpm._COUNTERS if metric.key == "tensor"]
    counters = [
        replace(metric, nvml=unknown) if metric in tensor else metric for metric in nvml_gpm._COUNTERS
    ]
    monkeypatch.setattr(nvml_gpm, "_COUNTERS", tuple(counters))
    machine.set_scenario("gpu.0.gpm.2=62.5", "gpu.0.gpm.61=2")
    source = machine.source()
    (gpu,) = source.open().gpus
    source.read_activity(gpu)
    machine.clock.now = 1.0
    activity = source.read_activity(gpu)
    assert activity is not None
    assert (activity.sm, activity.tensor, activity.nvlink_tx) == (62.5, None, 2 * 1024.0**2)
    assert ids(source.read_fast(gpu).missing) == {"tensor": "counter-unknown"}


def test_counters_are_not_read_faster_than_every_100_ms(machine: Machine) -> None:
    """Less than 100 ms after the last counter sample, `read_activity()` returns None without calling NVML."""
    source = machine.source()
    (gpu,) = source.open().gpus
    source.read_activity(gpu)
    machine.calls()
    machine.clock.now = 0.09
    assert source.read_activity(gpu) is None
    assert machine.calls() == {}
    machine.clock.now = 0.1
    activity = source.read_activity(gpu)
    assert activity is not None
    assert (activity.since, activity.until) == (EPOCH, EPOCH + 0.1)
    assert machine.calls() == {"nvmlGpmSampleAlloc": 1, "nvmlGpmSampleGet": 1, "nvmlGpmMetricsGet": 1}
    machine.clock.now = 0.6
    source.read_activity(gpu)
    assert machine.calls() == {"nvmlGpmSampleGet": 1, "nvmlGpmMetricsGet": 1}


def test_a_gpu_without_counters_has_the_reason(machine: Machine) -> None:
    """On a GPU without GPM, the activity is None with a reason, and NVML is not called again for it. If the
    GPU itself has the counters (Hopper and later), the reason names the driver, not the GPU's age."""
    machine.set_scenario("gpu.0.gpm=0")
    source = machine.source()
    (gpu,) = source.open().gpus
    assert source.read_activity(gpu) is None
    machine.calls()
    assert source.read_activity(gpu) is None
    assert machine.calls() == {}
    assert gpu.compute_capability == "9.0"
    reason = source.read_fast(gpu).missing["activity"]
    assert reason.id == "gpm-not-provided"


def test_counters_that_fail_for_now_are_read_again(machine: Machine) -> None:
    """If the counters can't be read once, the GPU's readings contain the reason. The next activity covers the
    time since the last successful counter sample."""
    source = machine.source()
    (gpu,) = source.open().gpus
    source.read_activity(gpu)
    machine.clock.now = 1.0
    machine.set_scenario("gpu.0.nvmlGpmSampleGet=error 999")
    assert source.read_activity(gpu) is None
    assert ids(source.read_fast(gpu).missing) == {"activity": "driver-unknown-error"}
    machine.set_scenario()
    machine.clock.now = 2.0
    activity = source.read_activity(gpu)
    assert activity is not None
    assert (activity.since, activity.until) == (EPOCH, EPOCH + 2.0)
    assert source.read_fast(gpu).missing == {}


@pytest.mark.parametrize("end", [NvmlSource.stop_activity, NvmlSource.close])
def test_counters_are_freed(machine: Machine, end: Callable[[NvmlSource], None]) -> None:
    """`stop_activity()` and `close()` free the two counter samples of each GPU, and free them only once."""
    machine.set_scenario("gpus=2")
    source = machine.source()
    gpus = source.open().gpus
    for machine.clock.now in (1.0, 2.0, 3.0):
        for gpu in gpus:
            source.read_activity(gpu)
    assert machine.calls()["nvmlGpmSampleAlloc"] == 4
    end(source)
    end(source)
    assert machine.calls()["nvmlGpmSampleFree"] == 4


def test_after_being_freed_the_counters_start_again(machine: Machine) -> None:
    """After `stop_activity()`, the next call of `read_activity()` starts a new window, so that activity from
    before is not reported."""
    source = machine.source()
    (gpu,) = source.open().gpus
    source.read_activity(gpu)
    source.stop_activity()
    machine.clock.now = 5.0
    assert source.read_activity(gpu) is None
    machine.clock.now = 6.0
    activity = source.read_activity(gpu)
    assert activity is not None
    assert activity.since == EPOCH + 5.0


# -- MIG -------------------------------------------------------------------------------------------------


def test_slices_are_listed_after_their_gpu(machine: Machine) -> None:
    """MIG slices are listed after their GPU. The numbers of the slices may have gaps."""
    machine.set_scenario("gpus=2", "gpu.0.mig=0 2 5", f"gpu.0.mig.2.memory_total={18 * GIB}")
    gpus = machine.source().open().gpus
    assert [(gpu.index, gpu.mig_index) for gpu in gpus] == [(0, None), (0, 0), (0, 2), (0, 5), (1, None)]
    slice_ = gpus[2]
    assert slice_.uuid == "MIG-00000002-0000-4000-8000-000000000000"
    assert (slice_.mig_parent, slice_.name) == (UUIDS[0], "NVIDIA H200 MIG 1g.18gb")
    assert (slice_.memory_total, slice_.unified_memory) == (18 * GIB, False)
    assert (slice_.pci_bus_id, slice_.compute_capability) == ("00000000:01:00.0", "9.0")


def test_a_slice_has_memory_and_processes_but_no_utilization(machine: Machine) -> None:
    """A MIG slice has memory and processes. Values that exist only for the whole GPU are None, and NVML is
    not called for them."""
    machine.set_scenario(
        "gpu.0.mig=1", f"gpu.0.mig.1.memory_used={GIB}", f"gpu.0.mig.1.compute={NO_PROCESS}:3"
    )
    source = machine.source()
    _, slice_ = source.open().gpus
    machine.calls()
    fast = source.read_fast(slice_)
    assert (fast.utilization, fast.memory_used, fast.power_w) == (None, GIB, None)
    assert ids(fast.missing) == {
        "utilization": "mig-on",
        "memory_utilization": "mig-on",
        "power_w": "not-per-mig-slice",
    }
    assert machine.calls() == {"nvmlDeviceGetMemoryInfo_v2": 1}
    assert source.read_processes(slice_) == (Process(NO_PROCESS, "compute", 3, None, None),)
    machine.calls()
    steady, slow = source.read_status(slice_), source.read_slow(slice_)
    assert (steady.throttle, steady.missing["throttle"].id) == (None, "not-per-mig-slice")
    unknown = dict.fromkeys(SLOW_VALUES, "not-per-mig-slice")
    assert ids(slow.missing) == {**unknown, "utilization_window": "mig-on"}
    assert replace(slow, missing={}) == SlowReadings(
        energy_j=None, utilization_window=None, ecc_uncorrected=None, xid=None, xid_time=None, missing={}
    )
    assert machine.calls() == {}


def test_a_slice_has_counters(machine: Machine) -> None:
    """While MIG is on, each MIG slice has an activity, and the whole GPU has none."""
    machine.set_scenario("gpu.0.mig=1", "gpu.0.mig.1.gpm.2=12.5")
    source = machine.source()
    whole, slice_ = source.open().gpus
    source.read_activity(slice_)
    machine.clock.now = 1.0
    activity = source.read_activity(slice_)
    assert activity is not None
    assert activity.sm == 12.5
    assert source.read_activity(whole) is None
    assert source.read_fast(whole).missing["activity"].id == "mig-on"


def test_values_that_mig_mode_hides_have_that_reason(machine: Machine) -> None:
    """While MIG is on, the driver reports no utilization of the whole GPU. The reason names MIG, and is not
    'not supported'. What the GPU itself does not support keeps its reason."""
    hidden = ("UtilizationRates", "EncoderUtilization", "DecoderUtilization", "Samples")
    machine.set_scenario("gpu.0.mig=", *(f"gpu.0.nvmlDeviceGet{name}=error 3" for name in hidden))
    source = machine.source()
    (gpu,) = source.open().gpus
    fast, status, slow = source.read_fast(gpu), source.read_status(gpu), source.read_slow(gpu)
    assert ids(fast.missing) == dict.fromkeys(("utilization", "memory_utilization"), "mig-on")
    assert ids(status.missing) == {
        "encoder_utilization": "mig-on",
        "decoder_utilization": "mig-on",
        "fan_speed": "not-supported",
    }
    assert ids(slow.missing) == {"utilization_window": "mig-on"}


def test_a_container_with_one_slice_sees_that_slice(machine: Machine) -> None:
    """If a container has no permission to read the whole GPU's memory, it can still read the memory of its
    MIG slice."""
    machine.set_scenario(
        "gpu.0.mig=3",
        "gpu.0.nvmlDeviceGetMemoryInfo_v2=error 4",
        "gpu.0.mig.3.nvmlDeviceGetMemoryInfo_v2=ok",
        "gpu.0.mig.3.memory_used=9",
    )
    source = machine.source()
    whole, slice_ = source.open().gpus
    assert (whole.memory_total, whole.unified_memory) == (None, False)
    assert source.read_fast(whole).missing["memory_used"].id == "no-permission"
    assert source.read_memory(slice_) == 9


def test_a_slice_that_was_taken_away_is_gone(machine: Machine) -> None:
    """After MIG was reconfigured, reading a slice that no longer exists raises SliceRemovedError. Reopening
    the source lists the current slices, and does not call the removed one lost."""
    machine.set_scenario("gpu.0.mig=0 1")
    source = machine.source()
    _, _, slice_ = source.open().gpus
    machine.set_scenario("gpu.0.mig=0")
    with pytest.raises(SliceRemovedError, match=r"MIG slice 1 of GPU 0 .* no longer exists"):
        source.read_fast(slice_)
    inventory = source.open()
    assert ([gpu.mig_index for gpu in inventory.gpus], inventory.lost) == ([None, 0], ())
    with pytest.raises(GpuLostError, match="no longer exists"):
        source.read_memory(slice_)


def test_a_slice_that_cannot_be_read_does_not_affect_the_others(machine: Machine) -> None:
    """If one MIG slice can't be opened, its GPU and the other slices are still listed, and the slice is
    lost."""
    machine.set_scenario("gpu.0.mig=0 1", "gpu.0.mig.0.nvmlDeviceGetUUID=error 999")
    inventory = machine.source().open()
    assert [gpu.mig_index for gpu in inventory.gpus] == [None, 1]
    assert [(gpu.mig_index, gpu.mig_parent) for gpu, _ in inventory.lost] == [(0, UUIDS[0])]


def test_slices_that_cannot_be_listed_are_unknown(machine: Machine) -> None:
    """If the driver can't list a GPU's slices for now, this is not taken for their removal."""
    machine.set_scenario("gpu.0.mig=0 1", "gpu.0.nvmlDeviceGetMaxMigDeviceCount=error 10")
    inventory = machine.source().open()
    assert [gpu.uuid for gpu in inventory.gpus] == [UUIDS[0]]
    assert inventory.slices_unknown == {UUIDS[0]}
