"""Tests of the values that the NVML source reads: each is what the driver reports, or None with a reason."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pynvml
import pytest
from helpers_nvml import EPOCH, GIB, H200_MEMORY, H200_RESERVED, NO_PROCESS, Hung, Machine
from helpers_samples import group_reading, status_reading
from nvml_standin import build, profiles

from gpuwidget.model.clock import SYSTEM_CLOCK
from gpuwidget.model.messages import Message, MessageId
from gpuwidget.model.metrics import METRICS, Group
from gpuwidget.sources import nvml_messages
from gpuwidget.sources.nvml import NvmlSource
from gpuwidget.sources.plausible import BOUNDS
from gpuwidget.system import processes

# -- fast readings ---------------------------------------------------------------------------------------


def test_fast_readings_are_three_calls(machine: Machine) -> None:
    """Utilization, memory and power of a GPU are read with three NVML calls. Reading only the memory takes
    one call."""
    machine.set_scenario(
        "gpu.0.util=97", "gpu.0.memory_util=41", f"gpu.0.memory_used={GIB}", "gpu.0.power=649.25"
    )
    source = machine.source()
    (gpu,) = source.open().gpus
    machine.calls()
    assert source.read(gpu, "fast") == group_reading(
        utilization=97.0, memory_utilization=41.0, memory_used=GIB, power_w=649.25, missing={}
    )
    assert machine.calls() == {
        "nvmlDeviceGetUtilizationRates": 1,
        "nvmlDeviceGetMemoryInfo_v2": 1,
        "nvmlDeviceGetFieldValues": 1,
    }
    assert source.read(gpu, "memory").values["memory_used"] == GIB
    assert machine.calls() == {"nvmlDeviceGetMemoryInfo_v2": 1}


def test_readings_follow_the_machine(machine: Machine) -> None:
    """If a GPU's memory in use changes, the next reading contains the new value."""
    source = machine.source()
    (gpu,) = source.open().gpus
    assert source.read(gpu, "memory").values["memory_used"] == 0
    machine.set_scenario(f"gpu.0.memory_used={GIB}")
    assert source.read(gpu, "memory").values["memory_used"] == GIB


@pytest.mark.parametrize("code", [2, 3])
def test_power_falls_back_if_the_instant_field_is_missing(machine: Machine, code: int) -> None:
    """If a GPU or its driver can't report instantaneous power, the driver's average power is read instead.
    Instantaneous power is not requested again."""
    machine.set_scenario(f"gpu.0.field.186=error {code}", "gpu.0.power_average=123.5")
    source = machine.source()
    (gpu,) = source.open().gpus
    assert source.read(gpu, "fast").values["power_w"] == 123.5
    machine.calls()
    assert source.read(gpu, "fast").values["power_w"] == 123.5
    assert machine.calls() == {
        "nvmlDeviceGetUtilizationRates": 1,
        "nvmlDeviceGetMemoryInfo_v2": 1,
        "nvmlDeviceGetPowerUsage": 1,
    }


def test_power_does_not_fall_back_after_a_transient_error(machine: Machine) -> None:
    """If instantaneous power can't be read temporarily, the power in that reading is None. The average power
    is not used."""
    machine.set_scenario("gpu.0.field.186=error 999", "gpu.0.power_average=123.5")
    source = machine.source()
    (gpu,) = source.open().gpus
    fast = source.read(gpu, "fast")
    assert (fast.values["power_w"], fast.missing) == (None, {"power_w": nvml_messages.TRANSIENT[999]})
    machine.set_scenario("gpu.0.power=200", "gpu.0.power_average=123.5")
    assert source.read(gpu, "fast").values["power_w"] == 200.0


def test_one_metric_never_affects_the_others(machine: Machine) -> None:
    """If one value can't be read temporarily, it is None with the reason, and is read again next time. The
    other values are not affected."""
    machine.set_scenario("gpu.0.nvmlDeviceGetUtilizationRates=error 10", f"gpu.0.memory_used={GIB}")
    source = machine.source()
    (gpu,) = source.open().gpus
    late = nvml_messages.TRANSIENT[10]
    assert late == "the driver did not answer in time"
    assert source.read(gpu, "fast") == group_reading(
        utilization=None,
        memory_utilization=None,
        memory_used=GIB,
        power_w=76.0,
        missing={"utilization": late, "memory_utilization": late},
    )
    machine.set_scenario("gpu.0.util=5")
    assert source.read(gpu, "fast") == group_reading(
        utilization=5.0, memory_utilization=0.0, memory_used=0, power_w=76.0, missing={}
    )


def test_an_error_without_a_message_quotes_the_driver(machine: Machine) -> None:
    """If gpuwidget has no message for an NVML error, the reason for the missing value quotes the driver's
    text."""
    machine.set_scenario("gpu.0.nvmlDeviceGetUtilizationRates=error 20")
    source = machine.source()
    (gpu,) = source.open().gpus
    reason = source.read(gpu, "fast").missing["utilization"]
    assert reason == "the driver reports: Insufficient Memory"
    assert reason.message_id == MessageId("driver-error", {"code": 20, "error": "Insufficient Memory"})


@pytest.mark.parametrize(
    ("code", "reason"), [(3, nvml_messages.PERMANENT[3]), (13, nvml_messages.PERMANENT[13])]
)
def test_an_unsupported_value_is_not_read_again(machine: Machine, code: int, reason: Message) -> None:
    """A value that the GPU or the driver does not support is not requested again for that GPU. Other GPUs are
    not affected."""
    machine.set_scenario("gpus=2", f"gpu.0.nvmlDeviceGetUtilizationRates=error {code}")
    source = machine.source()
    first, second = source.open().gpus
    assert source.read(first, "fast").missing["utilization"] == reason
    machine.set_scenario("gpus=2")
    machine.calls()
    assert source.read(first, "fast").missing["utilization"] == reason
    assert "nvmlDeviceGetUtilizationRates" not in machine.calls()
    assert source.read(second, "fast").values["utilization"] == 0.0


# -- memory ----------------------------------------------------------------------------------------------


def test_memory_is_without_what_the_driver_reserves(machine: Machine) -> None:
    """Memory in use excludes memory that the driver reserves for itself. As in nvidia-smi, an idle H200 has 0
    bytes in use, not 615 MiB."""
    source = machine.source()
    (gpu,) = source.open().gpus
    assert source.read(gpu, "memory").values["memory_used"] == 0


def test_memory_versions_are_never_mixed(old_machine: Machine, library: Path) -> None:
    """If the NVML library lacks nvmlDeviceGetMemoryInfo_v2, all memory readings use the first version of that
    call."""
    source = old_machine.source()
    (gpu,) = source.open().gpus
    assert source.read(gpu, "memory").values["memory_used"] == H200_RESERVED
    assert source.read(gpu, "fast").values["memory_used"] == H200_RESERVED
    assert old_machine.calls()["nvmlDeviceGetMemoryInfo"] == 3


def test_a_failing_v2_does_not_become_v1(machine: Machine) -> None:
    """If nvmlDeviceGetMemoryInfo_v2 fails temporarily, the memory is unknown. The first version of the call
    is not used instead, because it would include reserved memory."""
    source = machine.source()
    (gpu,) = source.open().gpus
    machine.set_scenario("gpu.0.nvmlDeviceGetMemoryInfo_v2=error 999")
    fast = source.read(gpu, "fast")
    assert (fast.values["memory_used"], fast.missing) == (
        None,
        {"memory_used": nvml_messages.TRANSIENT[999]},
    )
    assert source.read(gpu, "memory").values["memory_used"] is None
    assert "nvmlDeviceGetMemoryInfo" not in machine.calls()


HOST = processes.HostMemory(total=128 * GIB - 4096, used=40 * GIB)


@pytest.mark.parametrize(
    "lines",
    [
        profiles.machine("GB10"),
        ["gpu.0.name=NVIDIA GB10", "gpu.0.nvmlDeviceGetMemoryInfo_v2=error 3"],
        ["gpu.0.memory_total=0", "gpu.0.memory_reserved=0"],
        [f"gpu.0.memory_total={HOST.total}", f"gpu.0.memory_used={GIB}"],
    ],
    ids=["no memory call or clock", "no memory call", "total 0", "the host's total"],
)
def test_a_gpu_with_unified_memory_shows_the_hosts(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, lines: list[str]
) -> None:
    """For a GPU that shares the host's memory, such as GB10 or Jetson, the host's memory is reported and
    marked as unified. What is free is what Linux calls available."""
    monkeypatch.setattr(processes, "host_memory", lambda: HOST)
    machine.set_scenario(*lines)
    source = machine.source()
    (gpu,) = source.open().gpus
    assert (gpu.unified_memory, gpu.memory_total, gpu.memory_reserved) == (True, HOST.total, 0)
    fast = source.read(gpu, "fast")
    assert (fast.values["memory_used"], fast.missing, source.read(gpu, "memory").values["memory_used"]) == (
        HOST.used,
        {},
        HOST.used,
    )


def test_a_gpu_with_its_own_memory_is_not_unified(machine: Machine) -> None:
    """If the driver does not support the memory call for a GPU with its own memory, that memory is unknown,
    and the host's is not shown instead."""
    machine.set_scenario("gpu.0.nvmlDeviceGetMemoryInfo_v2=error 3", "gpu.0.nvmlDeviceGetMemoryInfo=error 3")
    source = machine.source()
    (gpu,) = source.open().gpus
    assert (gpu.unified_memory, gpu.memory_total, gpu.memory_reserved) == (False, None, None)
    assert source.read(gpu, "fast").missing == {"memory_used": nvml_messages.PERMANENT[3]}


# -- impossible values -----------------------------------------------------------------------------------

WITHHELD = {
    "gpu.0.util=101": {"utilization"},
    "gpu.0.memory_util=4294967295": {"memory_utilization"},
    f"gpu.0.memory_used={H200_MEMORY + 1}": {"memory_used"},
    "gpu.0.power=3294322": {"power_w"},
    "gpu.0.power_limit=4294967": {"power_limit_w"},
    "gpu.0.temperature=255": {"temperature_c"},
    "gpu.0.memory_temperature=4294967295": {"memory_temperature_c"},
    "gpu.0.sm_clock=4294967295": {"sm_clock_mhz"},
    "gpu.0.memory_clock=99999": {"memory_clock_mhz"},
    "gpu.0.fan=4294967295": {"fan_speed"},
    "gpu.0.encoder=101": {"encoder_utilization"},
    "gpu.0.decoder=4294967295": {"decoder_utilization"},
    "gpu.0.energy=1e15": {"energy_j"},
    "gpu.0.window=3600": {"utilization_window"},
    "gpu.0.ecc=4294967295": {"ecc_uncorrected"},
}


@pytest.mark.parametrize("line", WITHHELD)
def test_an_impossible_value_is_unknown(machine: Machine, line: str) -> None:
    """If the driver returns a value that can't be true, the value is None with that reason. No other value is
    affected, and the next possible value is shown."""
    ordinary = "gpu.0.fan=30"
    machine.set_scenario(ordinary, line)
    source = machine.source()
    (gpu,) = source.open().gpus
    groups: tuple[Group, ...] = ("fast", "status", "slow")
    readings = [source.read(gpu, group) for group in groups]
    missing = {name: why for reading in readings for name, why in reading.missing.items()}
    assert missing == dict.fromkeys(WITHHELD[line], nvml_messages.IMPOSSIBLE)
    unknown = {name for reading in readings for name, value in reading.values.items() if value is None}
    assert unknown - {"xid"} == WITHHELD[line]
    if "memory_used" in missing:
        assert source.read(gpu, "memory").values["memory_used"] is None
    machine.set_scenario(ordinary)
    assert source.read(gpu, "fast").missing == {}


@pytest.mark.parametrize(
    "entry", [f"{NO_PROCESS}:{97656 * GIB}", "0:1", "4294967295:1"], ids=["memory", "pid 0", "pid -1"]
)
@pytest.mark.parametrize("kind", ["compute", "graphics"])
def test_a_list_with_an_impossible_process_is_unknown(machine: Machine, kind: str, entry: str) -> None:
    """If a list of processes contains an impossible pid, or a process with more memory than the GPU has, the
    list is unknown, with that reason."""
    machine.set_scenario(f"gpu.0.{kind}=4711:1 {entry}", f"gpu.0.working={entry.partition(':')[0]}:50")
    source = machine.source()
    (gpu,) = source.open().gpus
    assert source.read(gpu, "processes") == ({"processes": None}, {"processes": nvml_messages.IMPOSSIBLE})
    worked = source.read(gpu, "working_processes").values["working_processes"]
    assert worked == (frozenset({NO_PROCESS}) if entry.startswith(str(NO_PROCESS)) else None)
    machine.set_scenario(f"gpu.0.{kind}=4711:1")
    listed = source.read(gpu, "processes")
    assert [process.pid for process in listed.values["processes"]] == [4711]
    assert listed.missing == {}


@pytest.mark.parametrize(("milliwatts", "count"), [(700_000, 3), (3_294_322_000, 0)])
def test_power_samples_with_an_impossible_one_are_not_used(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, milliwatts: int, count: int
) -> None:
    """If one of the driver's samples of the power is impossible, none of them is used."""
    source = machine.source()
    (gpu,) = source.open().gpus
    values = [(seconds, 76_000 if seconds else milliwatts) for seconds in (0.0, -0.1, -0.2)]
    samples = [
        SimpleNamespace(timeStamp=int((EPOCH + seconds) * 1e6), sampleValue=SimpleNamespace(uiVal=value))
        for seconds, value in values
    ]
    monkeypatch.setattr(pynvml, "nvmlDeviceGetSamples", lambda *arguments: (1, samples))
    assert len(source.read(gpu, "power_samples").values["power_samples"]) == count


def test_an_impossible_constant_is_unknown(machine: Machine) -> None:
    """A total memory, clock or number of cores that no GPU can have is unknown."""
    machine.set_scenario(f"gpu.0.memory_total={2**60}", "gpu.0.sm_clock_max=4294967295", "gpu.0.bus_width=0")
    (gpu,) = machine.source().open().gpus
    assert (gpu.memory_total, gpu.memory_reserved) == (None, None)
    assert (gpu.peak_fp32_flops, gpu.memory_bandwidth) == (None, None)


def test_an_impossible_counter_is_unknown(machine: Machine) -> None:
    """A hardware counter above 101 % is unknown, with that reason. The other counters are not affected."""
    machine.set_scenario("gpu.0.gpm.2=250", "gpu.0.gpm.1=100.5", "gpu.0.gpm.20=1e12")
    source = machine.source()
    (gpu,) = source.open().gpus
    source.read(gpu, "activity")
    machine.clock.now = 1.0
    values, missing = source.read(gpu, "activity")
    activity = values["activity"]
    assert (activity.sm, activity.pcie_tx, activity.graphics) == (None, None, 100.5)
    assert missing == dict.fromkeys(("sm", "pcie_tx"), nvml_messages.IMPOSSIBLE)


def test_every_metric_has_bounds() -> None:
    """Each metric of the table has a lowest and a highest plausible value."""
    assert [metric.key for metric in METRICS if not BOUNDS[metric.key][0] < BOUNDS[metric.key][1]] == []


# -- status readings and slow readings -------------------------------------------------------------------


def test_status_reading(machine: Machine) -> None:
    """The group `status` is all status metrics and the throttle reasons. It takes ten NVML calls."""
    machine.set_scenario(
        "gpu.0.power_limit=650",
        "gpu.0.temperature=61",
        "gpu.0.memory_temperature=72",
        "gpu.0.sm_clock=1755",
        "gpu.0.pstate=2",
        "gpu.0.fan=42",
        "gpu.0.memory_clock=3201",
        "gpu.0.encoder=12",
        "gpu.0.decoder=7",
        "gpu.0.throttle=4",
    )
    source = machine.source()
    (gpu,) = source.open().gpus
    machine.calls()
    assert source.read(gpu, "status") == status_reading(
        power_limit_w=650.0,
        temperature_c=61.0,
        memory_temperature_c=72.0,
        sm_clock_mhz=1755.0,
        pstate=2,
        fan_speed=42.0,
        memory_clock_mhz=3201.0,
        encoder_utilization=12.0,
        decoder_utilization=7.0,
        throttle=("power cap",),
    )
    assert sum(machine.calls().values()) == 10


def test_every_status_value_can_be_missing(machine: Machine) -> None:
    """A status value that can't be read is None with a reason, never 0."""
    machine.set_scenario(
        "gpu.0.nvmlDeviceGetEnforcedPowerLimit=error 3",
        "gpu.0.nvmlDeviceGetTemperature=error 4",
        "gpu.0.field.82=error 3",
        "gpu.0.nvmlDeviceGetClockInfo=error 10",
        "gpu.0.pstate=32",
        "gpu.0.nvmlDeviceGetFanSpeed=error 3",
        "gpu.0.nvmlDeviceGetEncoderUtilization=error 3",
        "gpu.0.nvmlDeviceGetDecoderUtilization=error 3",
        "gpu.0.nvmlDeviceGetCurrentClocksEventReasons=error 999",
    )
    source = machine.source()
    (gpu,) = source.open().gpus
    unsupported = nvml_messages.PERMANENT[3]
    assert source.read(gpu, "status") == status_reading(
        {
            "power_limit_w": unsupported,
            "temperature_c": nvml_messages.TRANSIENT[4],
            "memory_temperature_c": unsupported,
            "sm_clock_mhz": nvml_messages.TRANSIENT[10],
            "pstate": nvml_messages.TRANSIENT[21],
            "fan_speed": unsupported,
            "memory_clock_mhz": nvml_messages.TRANSIENT[10],
            "encoder_utilization": unsupported,
            "decoder_utilization": unsupported,
            "throttle": nvml_messages.TRANSIENT[999],
        },
    )


@pytest.mark.skipif(
    not hasattr(pynvml, "nvmlDeviceGetTemperatureV"), reason="this nvidia-ml-py is older than the new call"
)
def test_temperature_is_read_without_the_old_call(install: Callable[[Path], Machine], tmp_path: Path) -> None:
    """If the driver no longer has nvmlDeviceGetTemperature, the call that replaces it is used."""
    machine = install(build(tmp_path / "new", absent=["nvmlDeviceGetTemperature"]))
    machine.set_scenario("gpu.0.temperature=44")
    source = machine.source()
    (gpu,) = source.open().gpus
    assert source.read(gpu, "status").values["temperature_c"] == 44.0


def test_a_binding_without_the_deprecated_calls_works(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If nvidia-ml-py no longer has the deprecated function for throttle reasons, the reasons are still
    read."""
    monkeypatch.delattr(pynvml, "nvmlDeviceGetCurrentClocksThrottleReasons")
    machine.set_scenario("gpu.0.throttle=4")
    source = machine.source()
    (gpu,) = source.open().gpus
    assert source.read(gpu, "status").values["throttle"] == ("power cap",)


def test_energy_and_the_utilization_window(machine: Machine) -> None:
    """Energy is converted from the driver's millijoules to joules. The length of the utilization window is
    computed once, from the times of the driver's utilization samples."""
    machine.set_scenario("gpu.0.energy=2706.5", "gpu.0.power=0", "gpu.0.window=0.1666")
    source = machine.source()
    (gpu,) = source.open().gpus
    machine.calls()
    assert source.read(gpu, "slow") == group_reading(
        energy_j=2706.5, utilization_window=0.167, ecc_uncorrected=0, xid=None, missing={}
    )
    assert source.read(gpu, "slow") == group_reading(
        energy_j=2706.5, utilization_window=0.167, ecc_uncorrected=0, xid=None, missing={}
    )
    calls = machine.calls()
    assert (calls["nvmlDeviceGetTotalEnergyConsumption"], calls["nvmlDeviceGetSamples"]) == (2, 2)


def test_errors_reported_while_the_source_is_open(machine: Machine) -> None:
    """The newest XID is returned with the time at which it was read. XIDs from before the source was opened
    are not returned."""
    machine.set_scenario("gpu.0.xids=31")
    source = machine.source()
    (gpu,) = source.open().gpus
    slow = source.read(gpu, "slow")
    assert (slow.values["xid"], slow.missing) == (None, {})
    machine.set_scenario("gpu.0.xids=31 13 79", "gpu.0.ecc=2")
    machine.clock.now = 60.0
    slow = source.read(gpu, "slow")
    assert (slow.values["ecc_uncorrected"], slow.values["xid"]) == (2, (79, EPOCH + 60.0))
    machine.clock.now = 120.0
    assert source.read(gpu, "slow").values["xid"] == (79, EPOCH + 60.0)
    calls = machine.calls()
    assert (calls["nvmlEventSetCreate"], calls["nvmlDeviceRegisterEvents"]) == (1, 1)


def test_errors_while_another_gpu_is_lost(machine: Machine) -> None:
    """While one GPU is lost, NVML is reopened repeatedly. The XIDs of all GPUs, including the lost one, are
    still reported."""
    machine.set_scenario("gpus=2")
    source = machine.source()
    first, second = source.open().gpus
    lost = "gpu.1.nvmlDeviceGetName=error 15"
    machine.set_scenario("gpus=2", "gpu.0.xids=31", "gpu.1.xids=79", lost)
    machine.clock.now = 5.0
    inventory = source.open()
    assert inventory.gpus == (first,)
    assert inventory.xids == {first.uuid: (31, EPOCH + 5.0), second.uuid: (79, EPOCH + 5.0)}
    machine.clock.now = 60.0
    assert source.read(first, "slow").values["xid"] == (31, EPOCH + 5.0)
    machine.set_scenario("gpus=2", "gpu.0.xids=31 13", "gpu.1.xids=79", lost)
    assert source.read(first, "slow").values["xid"].number == 13
    source.close()
    calls = machine.calls()
    assert calls["nvmlEventSetFree"] == calls["nvmlEventSetCreate"] == 3
    assert source.open().xids[first.uuid] == (13, EPOCH + 60.0)


def test_errors_during_a_hung_call(machine: Machine) -> None:
    """If NVML was initialized a second time without a shutdown because a call hangs, XIDs are still
    reported."""
    machine.set_scenario("gpus=2")
    source = machine.source()
    first, second = source.open().gpus
    hung = Hung(machine, "nvmlDeviceGetUtilizationRates", lambda: source.read(first, "fast"))
    machine.set_scenario("gpus=2", "gpu.0.nvmlDeviceGetUtilizationRates=hang", "gpu.1.xids=48")
    source.open()
    assert source.read(second, "slow").values["xid"].number == 48
    hung.resume(machine)


def test_a_lost_event_set_is_registered_again(machine: Machine) -> None:
    """If waiting for XIDs fails, the reason is reported once. A new event set is then registered, and later
    XIDs are reported."""
    source = machine.source()
    (gpu,) = source.open().gpus
    machine.set_scenario("gpu.0.nvmlEventSetWait_v2=error 999")
    slow = source.read(gpu, "slow")
    assert (slow.values["xid"], slow.missing) == (None, {"xid": nvml_messages.TRANSIENT[999]})
    machine.set_scenario("gpu.0.xids=31")
    assert source.read(gpu, "slow").missing == {}
    machine.set_scenario("gpu.0.xids=31 13")
    assert source.read(gpu, "slow").values["xid"].number == 13


@pytest.mark.parametrize(
    ("error", "reason"),
    [(3, "not supported by this GPU"), (4, "this user or container has no permission to read this value")],
)
def test_errors_that_may_not_be_read_are_unknown(machine: Machine, error: int, reason: str) -> None:
    """If XIDs and ECC errors are not supported, or this user has no permission to read them, both are None
    with the reason, and all event sets are freed."""
    machine.set_scenario(
        f"gpu.0.nvmlDeviceRegisterEvents=error {error}",
        f"gpu.0.nvmlDeviceGetTotalEccErrors=error {error}",
    )
    source = machine.source()
    (gpu,) = source.open().gpus
    slow = source.read(gpu, "slow")
    assert (slow.values["ecc_uncorrected"], slow.values["xid"]) == (None, None)
    assert slow.missing == {"ecc_uncorrected": reason, "xid": reason}
    calls = machine.calls()
    assert calls["nvmlEventSetFree"] == calls["nvmlEventSetCreate"]


def test_the_drivers_windows_of_utilization(machine: Machine) -> None:
    """The group `windows` is the driver's utilization samples with their times. If there are none, it is
    unknown."""
    machine.set_scenario("gpus=2", "gpu.0.util=37", "gpu.0.window=0.2", "gpu.1.samples=0")
    source = machine.source()
    first, second = source.open().gpus
    windows = source.read(first, "windows").values["windows"]
    assert {window.utilization for window in windows} == {37.0}
    steps = {round(later.until - earlier.until, 3) for earlier, later in pairwise(windows)}
    assert steps == {0.2}
    assert source.read(second, "windows") == ({"windows": None}, {"windows": nvml_messages.TRANSIENT[21]})


def test_the_drivers_samples_of_the_power(machine: Machine) -> None:
    """The group `power_samples` is the driver's samples, 20 ms apart, with times of the monotonic clock. If
    the driver has none, and for a MIG slice, it is unknown. If the system's clock was set, it is empty."""
    supported = (
        "gpus=3",
        "gpu.0.power=650",
        "gpu.0.power_samples=119",
        "gpu.1.power_samples=0",
        "gpu.2.mig=0",
    )
    machine.set_scenario(*supported)
    source = NvmlSource()
    machine.sources.append(source)
    first, second, _, part = source.open().gpus
    samples = source.read(first, "power_samples").values["power_samples"]
    now = SYSTEM_CLOCK.monotonic()
    assert len(samples) == 119
    assert {watts for _, watts in samples} == {650.0}
    assert {round(later[0] - earlier[0], 3) for earlier, later in pairwise(samples)} == {0.02}
    assert now - 1.0 < samples[-1][0] <= now
    reasons = {second: nvml_messages.PERMANENT[3], part: nvml_messages.NOT_PER_MIG_SLICE}
    for gpu, reason in reasons.items():
        assert source.read(gpu, "power_samples") == ({"power_samples": None}, {"power_samples": reason})
    machine.set_scenario(*supported, "gpu.0.power_samples_ahead=-3600")
    assert source.read(first, "power_samples").values["power_samples"] == ()


def test_the_processes_that_have_worked(machine: Machine) -> None:
    """The group `working_processes` is the processes with a record of work since the last read. It is empty
    if there is none, and None for a MIG slice and if the driver keeps no records."""
    machine.set_scenario("gpus=2", "gpu.0.working=11:40 12:0 13:1", "gpu.1.mig=0")
    source = machine.source()
    first, second, part = source.open().gpus
    assert source.read(first, "working_processes").values["working_processes"] == frozenset({11, 13})
    assert source.read(second, "working_processes").values["working_processes"] == frozenset()
    assert source.read(part, "working_processes").values["working_processes"] is None
    machine.set_scenario("gpus=2", "gpu.0.nvmlDeviceGetProcessUtilization=error 3", "gpu.1.mig=0")
    assert source.read(first, "working_processes").values["working_processes"] is None


@pytest.mark.parametrize("line", ["gpu.0.samples=0", "gpu.0.samples=3"])
def test_an_unknown_window_is_measured_again(machine: Machine, line: str) -> None:
    """While the driver has too few utilization samples, the length of the utilization window is unknown. Once
    it has enough, the length is computed."""
    machine.set_scenario(line, "gpu.0.nvmlDeviceGetTotalEnergyConsumption=error 3")
    source = machine.source()
    (gpu,) = source.open().gpus
    assert source.read(gpu, "slow") == group_reading(
        energy_j=None,
        utilization_window=None,
        ecc_uncorrected=0,
        xid=None,
        missing={
            "energy_j": nvml_messages.PERMANENT[3],
            "utilization_window": nvml_messages.TRANSIENT[21],
        },
    )
    machine.set_scenario()
    assert source.read(gpu, "slow").values["utilization_window"] == 0.2
