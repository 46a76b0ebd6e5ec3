"""Tests of the NVML source's hardware counters (GPM), and of MIG slices."""

from __future__ import annotations

from collections.abc import Callable

import pynvml
import pytest
from helpers_nvml import EPOCH, GIB, NO_PROCESS, UUIDS, Machine
from helpers_samples import group_reading

from gpuwidget.model.errors import GpuLostError, SliceRemovedError
from gpuwidget.model.gpu_process import Process
from gpuwidget.model.metrics import GROUPS, METRICS, keys
from gpuwidget.model.readings import Activity
from gpuwidget.sources import nvml_messages
from gpuwidget.sources.nvml import NvmlSource

# -- the hardware's counters -----------------------------------------------------------------------------


def test_activity_is_the_difference_of_two_samples(machine: Machine) -> None:
    """The first read of the counters returns no activity. The second one returns the activity since the first
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
    assert source.read(gpu, "activity").values["activity"] is None
    machine.clock.now = 10.5
    mib = 1024.0**2
    values, missing = source.read(gpu, "activity")
    assert values["activity"] == Activity(
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
    assert missing == {
        "sm_occupancy": nvml_messages.TRANSIENT[21],
        "dram": nvml_messages.PERMANENT[3],
    }


def test_counters_have_the_ids_of_nvml() -> None:
    """The table's ids of the hardware counters are those of the constants that the docs name."""
    counters = [metric for metric in METRICS if metric.gpm is not None]
    assert {metric.nvml: metric.gpm for metric in counters} == {
        metric.nvml: getattr(pynvml, metric.nvml) for metric in counters
    }
    assert tuple(metric.key for metric in counters) == keys("activity")


def test_counters_are_not_read_faster_than_every_100_ms(machine: Machine) -> None:
    """Less than 100 ms after the last counter sample, the activity is None, and NVML is not called."""
    source = machine.source()
    (gpu,) = source.open().gpus
    source.read(gpu, "activity")
    machine.calls()
    machine.clock.now = 0.09
    assert source.read(gpu, "activity").values["activity"] is None
    assert machine.calls() == {}
    machine.clock.now = 0.1
    activity = source.read(gpu, "activity").values["activity"]
    assert activity is not None
    assert (activity.since, activity.until) == (EPOCH, EPOCH + 0.1)
    assert machine.calls() == {"nvmlGpmSampleAlloc": 1, "nvmlGpmSampleGet": 1, "nvmlGpmMetricsGet": 1}
    machine.clock.now = 0.6
    source.read(gpu, "activity")
    assert machine.calls() == {"nvmlGpmSampleGet": 1, "nvmlGpmMetricsGet": 1}


def test_a_gpu_without_counters_has_the_reason(machine: Machine) -> None:
    """On a GPU without GPM, the activity is None with a reason, and NVML is not called again for it. If the
    GPU itself has the counters (Hopper and later), the reason names the driver, not the GPU's age."""
    machine.set_scenario("gpu.0.gpm=0")
    source = machine.source()
    (gpu,) = source.open().gpus
    assert source.read(gpu, "activity").values["activity"] is None
    machine.calls()
    assert source.read(gpu, "activity").values["activity"] is None
    assert machine.calls() == {}
    assert gpu.compute_capability == "9.0"
    reason = source.read(gpu, "activity").missing["activity"]
    assert reason == (
        "the driver does not provide this GPU's performance counters (for example in some virtual machines)"
    )


def test_counters_that_fail_for_now_are_read_again(machine: Machine) -> None:
    """If the counters can't be read once, the GPU's readings contain the reason. The next activity covers the
    time since the last successful counter sample."""
    source = machine.source()
    (gpu,) = source.open().gpus
    source.read(gpu, "activity")
    machine.clock.now = 1.0
    machine.set_scenario("gpu.0.nvmlGpmSampleGet=error 999")
    failed = {"activity": nvml_messages.TRANSIENT[999]}
    assert source.read(gpu, "activity") == ({"activity": None}, failed)
    machine.set_scenario()
    machine.clock.now = 2.0
    values, missing = source.read(gpu, "activity")
    assert (values["activity"].since, values["activity"].until) == (EPOCH, EPOCH + 2.0)
    assert missing == {}


@pytest.mark.parametrize("end", [NvmlSource.stop_activity, NvmlSource.close])
def test_counters_are_freed(machine: Machine, end: Callable[[NvmlSource], None]) -> None:
    """`stop_activity()` and `close()` free the two counter samples of each GPU, and free them only once."""
    machine.set_scenario("gpus=2")
    source = machine.source()
    gpus = source.open().gpus
    for machine.clock.now in (1.0, 2.0, 3.0):
        for gpu in gpus:
            source.read(gpu, "activity")
    assert machine.calls()["nvmlGpmSampleAlloc"] == 4
    end(source)
    end(source)
    assert machine.calls()["nvmlGpmSampleFree"] == 4


def test_after_being_freed_the_counters_start_again(machine: Machine) -> None:
    """After `stop_activity()`, the next read of the counters starts a new window, so that activity from
    before is not reported."""
    source = machine.source()
    (gpu,) = source.open().gpus
    source.read(gpu, "activity")
    source.stop_activity()
    machine.clock.now = 5.0
    assert source.read(gpu, "activity").values["activity"] is None
    machine.clock.now = 6.0
    activity = source.read(gpu, "activity").values["activity"]
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
    fast = source.read(slice_, "fast")
    assert (fast.values["utilization"], fast.values["memory_used"], fast.values["power_w"]) == (
        None,
        GIB,
        None,
    )
    assert fast.missing == {
        "utilization": nvml_messages.MIG_ON,
        "memory_utilization": nvml_messages.MIG_ON,
        "power_w": nvml_messages.NOT_PER_MIG_SLICE,
    }
    assert machine.calls() == {"nvmlDeviceGetMemoryInfo_v2": 1}
    assert source.read(slice_, "processes").values["processes"] == (
        Process(NO_PROCESS, "compute", 3, None, None),
    )
    machine.calls()
    steady, slow = source.read(slice_, "status"), source.read(slice_, "slow")
    assert (steady.values["throttle"], steady.missing["throttle"]) == (None, nvml_messages.NOT_PER_MIG_SLICE)
    unknown = dict.fromkeys(GROUPS["slow"], nvml_messages.NOT_PER_MIG_SLICE)
    assert slow == group_reading(
        energy_j=None,
        utilization_window=None,
        ecc_uncorrected=None,
        xid=None,
        missing={**unknown, "utilization_window": nvml_messages.MIG_ON},
    )
    assert machine.calls() == {}


def test_a_slice_has_counters(machine: Machine) -> None:
    """While MIG is on, each MIG slice has an activity, and the whole GPU has none."""
    machine.set_scenario("gpu.0.mig=1", "gpu.0.mig.1.gpm.2=12.5")
    source = machine.source()
    whole, slice_ = source.open().gpus
    source.read(slice_, "activity")
    machine.clock.now = 1.0
    activity = source.read(slice_, "activity").values["activity"]
    assert activity is not None
    assert activity.sm == 12.5
    assert source.read(whole, "activity") == ({"activity": None}, {"activity": nvml_messages.MIG_ON})


def test_values_that_mig_mode_hides_have_that_reason(machine: Machine) -> None:
    """While MIG is on, the driver reports no utilization of the whole GPU. The reason names MIG, and is not
    'not supported'. What the GPU itself does not support keeps its reason."""
    hidden = ("UtilizationRates", "EncoderUtilization", "DecoderUtilization", "Samples")
    machine.set_scenario("gpu.0.mig=", *(f"gpu.0.nvmlDeviceGet{name}=error 3" for name in hidden))
    source = machine.source()
    (gpu,) = source.open().gpus
    fast, status, slow = source.read(gpu, "fast"), source.read(gpu, "status"), source.read(gpu, "slow")
    assert fast.missing == dict.fromkeys(("utilization", "memory_utilization"), nvml_messages.MIG_ON)
    assert status.missing == {
        "encoder_utilization": nvml_messages.MIG_ON,
        "decoder_utilization": nvml_messages.MIG_ON,
        "fan_speed": nvml_messages.PERMANENT[3],
    }
    assert slow.missing == {"utilization_window": nvml_messages.MIG_ON}


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
    assert source.read(whole, "fast").missing["memory_used"].id == "no-permission"
    assert source.read(slice_, "memory").values["memory_used"] == 9


def test_a_slice_that_was_taken_away_is_gone(machine: Machine) -> None:
    """After MIG was reconfigured, reading a slice that no longer exists raises SliceRemovedError. Reopening
    the source lists the current slices, and does not call the removed one lost."""
    machine.set_scenario("gpu.0.mig=0 1")
    source = machine.source()
    _, _, slice_ = source.open().gpus
    machine.set_scenario("gpu.0.mig=0")
    with pytest.raises(SliceRemovedError, match=r"MIG slice 1 of GPU 0 .* no longer exists"):
        source.read(slice_, "fast")
    inventory = source.open()
    assert ([gpu.mig_index for gpu in inventory.gpus], inventory.lost) == ([None, 0], ())
    with pytest.raises(GpuLostError, match="no longer exists"):
        source.read(slice_, "memory")


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
