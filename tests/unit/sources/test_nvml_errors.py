"""Tests of the NVML source when a GPU or the driver is lost, and while an NVML call hangs."""

from __future__ import annotations

import pytest
from helpers_nvml import Hung, Machine

from gpuwidget.model.errors import GpuLostError, SourceLostError
from gpuwidget.model.metrics import GROUPS, Group
from gpuwidget.sources import nvml_messages

# -- losing a GPU or the driver --------------------------------------------------------------------------


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("code", [15, 16])
def test_every_call_reports_a_lost_gpu(machine: Machine, group: Group, code: int) -> None:
    """If a GPU has fallen off the bus or needs a reset, every call that reads it raises GpuLostError. Other
    GPUs are still read."""
    source = machine.source()
    machine.set_scenario("gpus=2")
    first, second = source.open().gpus
    machine.set_scenario("gpus=2", f"gpu.0.*=error {code}")
    with pytest.raises(GpuLostError, match=r"GPU 0 \(NVIDIA H200\)"):
        source.read(first, group)
    source.read(second, group)


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("code", [1, 9, 18, 28])
def test_every_call_reports_a_lost_driver(machine: Machine, group: Group, code: int) -> None:
    """If the driver is unloaded, every call that reads a GPU raises SourceLostError with the reason, so that
    the caller can reopen the source."""
    source = machine.source()
    (gpu,) = source.open().gpus
    machine.set_scenario(f"*=error {code}")
    with pytest.raises(SourceLostError, match="driver"):
        source.read(gpu, group)


def test_opening_again_renews_every_handle(machine: Machine) -> None:
    """Reopening the source shuts NVML down, initializes it again and gets new handles for all GPUs."""
    machine.set_scenario("gpus=2")
    source = machine.source()
    source.open()
    machine.calls()
    source.open()
    calls = machine.calls()
    assert (calls["nvmlShutdown"], calls["nvmlInitWithFlags"]) == (1, 1)
    assert calls["nvmlDeviceGetHandleByIndex_v2"] == 2


def test_unsupported_values_are_tried_again_after_opening(machine: Machine) -> None:
    """After the source was reopened, values that were unsupported before are read again, because a new driver
    may support them."""
    machine.set_scenario("gpu.0.nvmlDeviceGetUtilizationRates=error 13")
    source = machine.source()
    (gpu,) = source.open().gpus
    assert source.read(gpu, "fast").values["utilization"] is None
    machine.set_scenario("gpu.0.util=3")
    source.open()
    assert source.read(gpu, "fast").values["utilization"] == 3.0


def test_closing_shuts_the_driver_down_once(machine: Machine) -> None:
    """`close()` may be called twice, or on a source that was never opened. Reading from a closed source
    raises SourceLostError."""
    source = machine.source()
    source.close()
    assert machine.calls() == {}
    (gpu,) = source.open().gpus
    source.close()
    source.close()
    assert machine.calls()["nvmlShutdown"] == 1
    with pytest.raises(SourceLostError, match="closed"):
        source.read(gpu, "memory")


# -- calls that hang -------------------------------------------------------------------------------------


def test_a_hung_call_does_not_delay_other_gpus(machine: Machine) -> None:
    """While a call to one GPU hangs, the other GPUs can still be read."""
    machine.set_scenario("gpus=2")
    source = machine.source()
    first, second = source.open().gpus
    hung = Hung(
        machine, "nvmlDeviceGetMemoryInfo_v2", lambda: source.read(first, "memory").values["memory_used"]
    )
    assert source.read(second, "memory").values["memory_used"] == 0
    assert hung.resume(machine) == 0


def test_opening_under_a_hung_call_does_not_shut_it_down(machine: Machine) -> None:
    """If the source is reopened while a call hangs, NVML is not shut down but initialized a second time. When
    the source is closed later, NVML is shut down twice, once per initialization."""
    machine.set_scenario("gpus=2")
    source = machine.source()
    first, _ = source.open().gpus
    hung = Hung(machine, "nvmlDeviceGetUtilizationRates", lambda: source.read(first, "fast"))
    assert [gpu.index for gpu in source.open().gpus] == [0, 1]
    calls = machine.calls()
    assert (calls["nvmlInitWithFlags"], calls.get("nvmlShutdown", 0)) == (1, 0)
    hung.resume(machine)
    source.close()
    assert machine.calls()["nvmlShutdown"] == 2


def test_closing_under_a_hung_call_shuts_down_when_it_returns(machine: Machine) -> None:
    """`close()` does not wait for a hung call. NVML is shut down when that call returns."""
    machine.set_scenario("gpus=2")
    source = machine.source()
    first, _ = source.open().gpus
    hung = Hung(machine, "nvmlDeviceGetUtilizationRates", lambda: source.read(first, "fast"))
    source.close()
    assert "nvmlShutdown" not in machine.calls()
    hung.resume(machine)
    assert machine.calls()["nvmlShutdown"] == 1


def test_counters_in_use_are_freed_only_by_their_user(machine: Machine) -> None:
    """A counter sample that a hung call still uses is freed only after that call has returned."""
    machine.set_scenario("gpus=2")
    source = machine.source()
    first, second = source.open().gpus
    for gpu in (first, second):
        source.read(gpu, "activity")
    machine.clock.now = 1.0
    hung = Hung(machine, "nvmlGpmSampleGet", lambda: source.read(first, "activity").values["activity"])
    assert source.read(second, "activity").values["activity"] is not None
    machine.calls()
    source.stop_activity()
    assert machine.calls() == {"nvmlGpmSampleFree": 2}
    hung.resume(machine)
    calls = machine.calls()
    assert calls["nvmlGpmSampleFree"] == 2
    assert "freed while in use" not in calls


def test_a_reader_does_not_wait_for_an_opening_that_hangs(machine: Machine) -> None:
    """While reopening NVML hangs, other reads return at once. Their values are None, and the reason is that
    NVML is being opened again."""
    machine.set_scenario("gpus=2")
    source = machine.source()
    first, _ = source.open().gpus
    hung = Hung(machine, "nvmlDeviceGetHandleByIndex_v2", source.open)
    fast = source.read(first, "fast")
    assert (fast.values["memory_used"], fast.missing["memory_used"]) == (None, nvml_messages.REOPENING)
    assert source.read(first, "status").missing["pstate"] == nvml_messages.REOPENING
    assert source.read(first, "slow").missing["energy_j"] == nvml_messages.REOPENING
    assert (
        source.read(first, "memory").values["memory_used"],
        source.read(first, "processes").values["processes"],
    ) == (None, None)
    assert source.read(first, "activity").values["activity"] is None
    hung.resume(machine)
    assert source.read(first, "fast").missing == {}
