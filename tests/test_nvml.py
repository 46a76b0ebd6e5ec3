"""The NVML source, through the real Python binding and ctypes, on a C library that answers as NVML."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pynvml
import pytest
from nvml_standin import OLD_DRIVER, Standin, build

from gpuwidget import processes
from gpuwidget.errors import GpuLostError, SourceLostError
from gpuwidget.samples import Activity, Process
from gpuwidget.sources import Fast, Slow, Steady
from gpuwidget.sources import nvml_words as words
from gpuwidget.sources.nvml import NvmlSource
from gpuwidget.sources.nvml_device import SLOW_VALUES

EPOCH = 1_700_000_000.0
GIB = 1024**3
STRANGER = 2**30
"""A process id that no process here has."""
H200_MEMORY = 150_754_820_096
H200_RESERVED = 644_939_776
UUIDS = [f"GPU-00000000-0000-4000-8000-{index:012d}" for index in range(4)]


class ManualClock:
    """Goes on only when told to, or by as much as somebody would have waited."""

    def __init__(self) -> None:
        self.now = 0.0

    def time(self) -> float:
        return EPOCH + self.now

    def monotonic(self) -> float:
        return self.now

    def wait(self, condition: threading.Condition, seconds: float | None) -> None:
        self.now += seconds or 0.0


class Machine:
    """A stand-in that this process takes for its driver, and sources that read it."""

    def __init__(self, standin: Standin) -> None:
        self.standin = standin
        self.clock = ManualClock()
        self.sources: list[NvmlSource] = []

    def says(self, *lines: str) -> None:
        self.standin.scenario(*lines)

    def source(self) -> NvmlSource:
        source = NvmlSource(self.clock)
        self.sources.append(source)
        return source

    def calls(self) -> dict[str, int]:
        return dict(self.standin.calls())


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stand-in, compiled once."""
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture(scope="session")
def old_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same without what a driver of the 470 series lacks."""
    return build(tmp_path_factory.mktemp("nvml-old"), absent=OLD_DRIVER)


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Path], Machine]]:
    """Puts a library in the place of this process's driver."""
    machines: list[Machine] = []

    def put(library: Path) -> Machine:
        standin = Standin(library, tmp_path / "standin")
        for name, value in standin.variables.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(pynvml, "nvmlLib", ctypes.CDLL(str(standin.library)))
        monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
        monkeypatch.setattr(processes, "in_host_pid_namespace", lambda: True)
        machines.append(Machine(standin))
        return machines[-1]

    yield put
    for machine in machines:
        machine.says()
        for source in machine.sources:
            source.close()


@pytest.fixture
def machine(install: Callable[[Path], Machine], library: Path) -> Machine:
    """A machine with one H200."""
    return install(library)


@pytest.fixture
def old_machine(install: Callable[[Path], Machine], old_library: Path) -> Machine:
    """A machine whose driver is old."""
    return install(old_library)


def in_a_process(standin: Standin, code: str, **variables: str) -> object:
    """What ``code`` prints as JSON, run by a Python of its own that finds the stand-in as its driver."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**standin.environment(), **variables},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


# -- who is there ----------------------------------------------------------------------------------------


def test_identity_is_what_the_driver_says(machine: Machine) -> None:
    """Name, number, bus id, memory and versions are those of nvidia-smi."""
    machine.says("gpus=2", "driver=580.95.05", "cuda=13010", "gpu.1.name=NVIDIA L4")
    inventory = machine.source().open()
    origin = inventory.origin
    assert (origin.kind, origin.reason, origin.recording) == ("nvml", None, None)
    assert (origin.driver, origin.cuda_driver) == ("580.95.05", "13.1")
    first, second = inventory.gpus
    assert (first.uuid, first.index, first.name) == (UUIDS[0], 0, "NVIDIA H200")
    assert (second.uuid, second.index, second.name) == (UUIDS[1], 1, "NVIDIA L4")
    assert (second.pci_bus_id, second.compute_capability) == ("00000000:02:00.0", "9.0")
    assert (second.memory_total, second.unified_memory) == (H200_MEMORY, False)
    assert (second.mig_index, second.mig_parent) == (None, None)


@pytest.mark.parametrize("raw", [b"NVIDIA H200", "NVIDIA H200"])
def test_names_are_text_whichever_the_binding_gives(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, raw: str | bytes
) -> None:
    """Versions of nvidia-ml-py that return bytes work as those that return text."""
    monkeypatch.setattr(pynvml, "nvmlDeviceGetName", lambda handle: raw)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetUUID", lambda handle: raw)
    gpu = machine.source().open().gpus[0]
    assert (gpu.name, gpu.uuid) == ("NVIDIA H200", "NVIDIA H200")


def test_a_detail_that_fails_leaves_the_gpu_there(machine: Machine) -> None:
    """A bus id or compute capability that can't be read is unknown, and nothing else is."""
    machine.says(
        "gpu.0.nvmlDeviceGetPciInfo_v3=error 999", "gpu.0.nvmlDeviceGetCudaComputeCapability=error 3"
    )
    gpu = machine.source().open().gpus[0]
    assert (gpu.pci_bus_id, gpu.compute_capability, gpu.memory_total) == (None, None, H200_MEMORY)


def test_a_gpu_that_cannot_be_opened_does_not_spoil_the_others(machine: Machine) -> None:
    """With one GPU off the bus, the others are read; it comes back when the source is opened again."""
    machine.says("gpus=3", "gpu.1.*=error 15")
    source = machine.source()
    assert [gpu.index for gpu in source.open().gpus] == [0, 2]
    machine.says("gpus=3", "gpu.1.nvmlDeviceGetMemoryInfo_v2=error 16")
    assert [gpu.index for gpu in source.open().gpus] == [0, 2]
    machine.says("gpus=3")
    assert [gpu.index for gpu in source.open().gpus] == [0, 1, 2]


# -- starting --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        (4, "Ask for read and write access to /dev/nvidia*"),
        (9, "Load it with 'sudo modprobe nvidia' or reboot"),
        (17, "See whether /dev/nvidiactl and /dev/nvidia0 are there"),
        (18, "Reboot or reload the driver modules"),
        (20, "(NVML error 20: Insufficient Memory). See what nvidia-smi says."),
        (999, "Containers that lost cgroup access"),
    ],
)
def test_an_absent_driver_is_explained(machine: Machine, code: int, sentence: str) -> None:
    """Whatever keeps the driver from starting, a sentence says what to do; nothing is raised."""
    machine.says(f"nvmlInitWithFlags=error {code}")
    inventory = machine.source().open()
    assert (inventory.origin.kind, inventory.gpus) == ("none", ())
    assert inventory.origin.reason is not None
    assert sentence in inventory.origin.reason


def test_a_driver_without_gpus_is_explained_and_let_go_of(machine: Machine) -> None:
    """No GPU at all is said, with the driver's version, and keeps nothing open."""
    machine.says("gpus=0")
    origin = machine.source().open().origin
    assert (origin.kind, origin.reason, origin.driver) == ("none", words.NO_GPU, "580.159.04")
    calls = machine.calls()
    assert calls["nvmlInitWithFlags"] == calls["nvmlShutdown"] == 1


def test_a_driver_that_fails_after_starting_is_explained(machine: Machine) -> None:
    """A driver that goes away while it is being read is no error either."""
    machine.says("nvmlDeviceGetCount_v2=error 9")
    assert machine.source().open().origin.reason == words.cannot_start(9, "")
    machine.says("nvmlDeviceGetUUID=error 18")
    assert machine.source().open().origin.reason == words.cannot_start(18, "")
    machine.says("nvmlDeviceGetMaxMigDeviceCount=error 9")
    assert machine.source().open().origin.reason == words.cannot_start(9, "")


def test_a_binding_that_misbehaves_breaks_nothing(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unforeseen failure of the binding is told, not raised."""
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCount", lambda: 1 / 0)
    origin = machine.source().open().origin
    assert origin.reason == "The NVIDIA driver could not be read (ZeroDivisionError: division by zero)."


def test_a_machine_without_the_library_is_told_what_to_install(library: Path, tmp_path: Path) -> None:
    """Where there is no driver at all, the sentence says so (error 12)."""
    (tmp_path / "empty").mkdir()
    standin = Standin(library, tmp_path / "standin")
    standin.library.write_bytes(b"no library")
    reason = in_a_process(
        standin,
        """
        import json
        from gpuwidget.sources.nvml import NvmlSource
        print(json.dumps(NvmlSource().open().origin.reason))
        """,
    )
    assert reason == words.cannot_start(12, "")


@pytest.mark.parametrize(
    ("module", "sentence"),
    [("raise ImportError", words.NO_PYNVML), ("nvmlInit = None", words.FOREIGN_PYNVML)],
)
def test_a_wrong_binding_is_explained(library: Path, tmp_path: Path, module: str, sentence: str) -> None:
    """Without nvidia-ml-py, or with an old fork of pynvml in its place, the sentence says what to do."""
    (tmp_path / "pynvml.py").write_text(module)
    reason = in_a_process(
        Standin(library, tmp_path / "standin"),
        """
        import json
        from gpuwidget.sources.nvml import NvmlSource
        print(json.dumps(NvmlSource().open().origin.reason))
        """,
        PYTHONPATH=str(tmp_path),
    )
    assert reason == sentence


def test_the_real_loader_finds_the_driver(library: Path, tmp_path: Path) -> None:
    """A process of its own, with nothing patched, reads the GPUs through the system's loader."""
    standin = Standin(library, tmp_path / "standin")
    standin.scenario("gpus=2", "gpu.1.util=97")
    read = in_a_process(
        standin,
        """
        import json
        from gpuwidget.sources import open_source
        source = open_source("nvml")
        gpus = source.open().gpus
        print(json.dumps([source.read_fast(gpu).utilization for gpu in gpus]))
        source.close()
        """,
    )
    assert read == [0.0, 97.0]


# -- the fast calls --------------------------------------------------------------------------------------


def test_fast_readings_are_three_calls(machine: Machine) -> None:
    """Utilization, memory and power now cost three calls a GPU, memory alone one."""
    machine.says("gpu.0.util=97", "gpu.0.memory_util=41", f"gpu.0.memory_used={GIB}", "gpu.0.power=649.25")
    source = machine.source()
    (gpu,) = source.open().gpus
    machine.calls()
    assert source.read_fast(gpu) == Fast(97.0, 41.0, GIB, 649.25, {})
    assert machine.calls() == {
        "nvmlDeviceGetUtilizationRates": 1,
        "nvmlDeviceGetMemoryInfo_v2": 1,
        "nvmlDeviceGetFieldValues": 1,
    }
    assert source.read_memory(gpu) == GIB
    assert machine.calls() == {"nvmlDeviceGetMemoryInfo_v2": 1}


def test_readings_follow_the_machine(machine: Machine) -> None:
    """What changes on the GPU is read at the next look."""
    source = machine.source()
    (gpu,) = source.open().gpus
    assert source.read_memory(gpu) == 0
    machine.says(f"gpu.0.memory_used={GIB}")
    assert source.read_memory(gpu) == GIB


@pytest.mark.parametrize("code", [2, 3])
def test_power_falls_back_where_the_instant_field_is_not_there(machine: Machine, code: int) -> None:
    """A GPU or driver without instant power gives the driver's mean, and is not asked again."""
    machine.says(f"gpu.0.field.186=error {code}", "gpu.0.power_average=123.5")
    source = machine.source()
    (gpu,) = source.open().gpus
    assert source.read_fast(gpu).power_w == 123.5
    machine.calls()
    assert source.read_fast(gpu).power_w == 123.5
    assert machine.calls() == {
        "nvmlDeviceGetUtilizationRates": 1,
        "nvmlDeviceGetMemoryInfo_v2": 1,
        "nvmlDeviceGetPowerUsage": 1,
    }


def test_power_for_which_a_passing_error_is_reported_does_not_fall_back(machine: Machine) -> None:
    """One failed look at instant power does not turn it into another quantity."""
    machine.says("gpu.0.field.186=error 999", "gpu.0.power_average=123.5")
    source = machine.source()
    (gpu,) = source.open().gpus
    fast = source.read_fast(gpu)
    assert (fast.power_w, fast.missing) == (None, {"power_w": "the driver reports an unknown error"})
    machine.says("gpu.0.power=200", "gpu.0.power_average=123.5")
    assert source.read_fast(gpu).power_w == 200.0


def test_one_metric_never_spoils_the_others(machine: Machine) -> None:
    """A value that can't be read is None with its reason, and is tried again; the rest is there."""
    machine.says("gpu.0.nvmlDeviceGetUtilizationRates=error 10", f"gpu.0.memory_used={GIB}")
    source = machine.source()
    (gpu,) = source.open().gpus
    late = "the driver did not answer in time"
    assert source.read_fast(gpu) == Fast(
        None, None, GIB, 76.0, {"utilization": late, "memory_utilization": late}
    )
    machine.says("gpu.0.util=5")
    assert source.read_fast(gpu) == Fast(5.0, 0.0, 0, 76.0, {})


def test_an_error_without_words_of_ours_is_told_in_the_drivers(machine: Machine) -> None:
    """A rare error still has a reason that a person can read."""
    machine.says("gpu.0.nvmlDeviceGetUtilizationRates=error 20")
    source = machine.source()
    (gpu,) = source.open().gpus
    assert source.read_fast(gpu).missing["utilization"] == "the driver says: Insufficient Memory"


@pytest.mark.parametrize(("code", "reason"), [(3, words.PERMANENT[3]), (13, words.PERMANENT[13])])
def test_what_a_gpu_does_not_have_is_not_asked_again(machine: Machine, code: int, reason: str) -> None:
    """Not supported, or too old a driver: remembered for that value of that GPU only."""
    machine.says("gpus=2", f"gpu.0.nvmlDeviceGetUtilizationRates=error {code}")
    source = machine.source()
    first, second = source.open().gpus
    assert source.read_fast(first).missing["utilization"] == reason
    machine.says("gpus=2")
    machine.calls()
    assert source.read_fast(first).missing["utilization"] == reason
    assert "nvmlDeviceGetUtilizationRates" not in machine.calls()
    assert source.read_fast(second).utilization == 0.0


# -- memory ----------------------------------------------------------------------------------------------


def test_memory_is_without_what_the_driver_reserves(machine: Machine) -> None:
    """An idle GPU reads 0 bytes, as in nvidia-smi, not the driver's 615 MiB."""
    source = machine.source()
    (gpu,) = source.open().gpus
    assert source.read_memory(gpu) == 0


def test_memory_versions_are_never_mixed(old_machine: Machine, library: Path) -> None:
    """Only a library without v2 is asked by v1, and then always."""
    source = old_machine.source()
    (gpu,) = source.open().gpus
    assert source.read_memory(gpu) == H200_RESERVED
    assert source.read_fast(gpu).memory_used == H200_RESERVED
    assert old_machine.calls()["nvmlDeviceGetMemoryInfo"] == 3


def test_a_failing_v2_does_not_become_v1(machine: Machine) -> None:
    """An error in between gives no number, rather than one of another meaning."""
    source = machine.source()
    (gpu,) = source.open().gpus
    machine.says("gpu.0.nvmlDeviceGetMemoryInfo_v2=error 999")
    fast = source.read_fast(gpu)
    assert (fast.memory_used, fast.missing) == (
        None,
        {"memory_used": "the driver reports an unknown error"},
    )
    assert source.read_memory(gpu) is None
    assert "nvmlDeviceGetMemoryInfo" not in machine.calls()


@pytest.mark.parametrize("line", ["gpu.0.nvmlDeviceGetMemoryInfo_v2=error 3", "gpu.0.memory_total=0"])
def test_a_gpu_without_memory_of_its_own_shows_the_hosts(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    """GB10 and Jetson work in the host's memory: it is shown, labelled as unified."""
    monkeypatch.setattr(processes, "host_memory", lambda: processes.HostMemory(total=100, used=40))
    machine.says(line, "gpu.0.memory_reserved=0")
    source = machine.source()
    (gpu,) = source.open().gpus
    assert (gpu.unified_memory, gpu.memory_total) == (True, 100)
    fast = source.read_fast(gpu)
    assert (fast.memory_used, fast.missing, source.read_memory(gpu)) == (40, {}, 40)


# -- the steady and the slow calls -----------------------------------------------------------------------


def test_steady_readings(machine: Machine) -> None:
    """Temperatures, clock, state, limit and throttle reasons, in one round of six calls."""
    machine.says(
        "gpu.0.power_limit=650",
        "gpu.0.temperature=61",
        "gpu.0.memory_temperature=72",
        "gpu.0.sm_clock=1755",
        "gpu.0.pstate=2",
        "gpu.0.throttle=4",
    )
    source = machine.source()
    (gpu,) = source.open().gpus
    machine.calls()
    assert source.read_steady(gpu) == Steady(650.0, 61.0, 72.0, 1755.0, 2, ("power cap",), {})
    assert sum(machine.calls().values()) == 6


def test_every_steady_value_can_be_missing(machine: Machine) -> None:
    """Each has its reason, none is 0."""
    machine.says(
        "gpu.0.nvmlDeviceGetEnforcedPowerLimit=error 3",
        "gpu.0.nvmlDeviceGetTemperature=error 4",
        "gpu.0.field.82=error 3",
        "gpu.0.nvmlDeviceGetClockInfo=error 10",
        "gpu.0.pstate=32",
        "gpu.0.nvmlDeviceGetCurrentClocksEventReasons=error 999",
    )
    source = machine.source()
    (gpu,) = source.open().gpus
    assert source.read_steady(gpu) == Steady(
        None,
        None,
        None,
        None,
        None,
        None,
        {
            "power_limit_w": "not supported by this GPU",
            "temperature_c": "this user or container may not read it",
            "memory_temperature_c": "not supported by this GPU",
            "sm_clock_mhz": "the driver did not answer in time",
            "pstate": "the driver has no data for it yet",
            "throttle": "the driver reports an unknown error",
        },
    )


@pytest.mark.skipif(
    not hasattr(pynvml, "nvmlDeviceGetTemperatureV"), reason="this nvidia-ml-py is older than the new call"
)
def test_temperature_goes_on_when_its_old_call_is_gone(
    install: Callable[[Path], Machine], tmp_path: Path
) -> None:
    """A driver that dropped the deprecated call is asked by the one in its place."""
    machine = install(build(tmp_path / "new", absent=["nvmlDeviceGetTemperature"]))
    machine.says("gpu.0.temperature=44")
    source = machine.source()
    (gpu,) = source.open().gpus
    assert source.read_steady(gpu).temperature_c == 44.0


def test_a_binding_without_the_deprecated_calls_works(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A future nvidia-ml-py that dropped them gives the same readings."""
    monkeypatch.delattr(pynvml, "nvmlDeviceGetCurrentClocksThrottleReasons")
    machine.says("gpu.0.throttle=4")
    source = machine.source()
    (gpu,) = source.open().gpus
    assert source.read_steady(gpu).throttle == ("power cap",)


def test_energy_and_the_utilization_window(machine: Machine) -> None:
    """Joules from the driver's millijoules; the window is measured once, not assumed."""
    machine.says("gpu.0.energy=2706.5", "gpu.0.power=0", "gpu.0.window=0.1666")
    source = machine.source()
    (gpu,) = source.open().gpus
    machine.calls()
    assert source.read_slow(gpu) == Slow(2706.5, 0.167, 0, None, None, {})
    assert source.read_slow(gpu) == Slow(2706.5, 0.167, 0, None, None, {})
    calls = machine.calls()
    assert (calls["nvmlDeviceGetTotalEnergyConsumption"], calls["nvmlDeviceGetSamples"]) == (2, 2)


def test_errors_reported_while_somebody_watches(machine: Machine) -> None:
    """The newest one with the time it was noticed; one from before is not told as new. No call waits."""
    machine.says("gpu.0.xids=31")
    source = machine.source()
    (gpu,) = source.open().gpus
    slow = source.read_slow(gpu)
    assert (slow.xid, slow.xid_time, slow.missing) == (None, None, {})
    machine.says("gpu.0.xids=31 13 79", "gpu.0.ecc=2")
    machine.clock.now = 60.0
    slow = source.read_slow(gpu)
    assert (slow.ecc_uncorrected, slow.xid, slow.xid_time) == (2, 79, EPOCH + 60.0)
    machine.clock.now = 120.0
    assert source.read_slow(gpu).xid_time == EPOCH + 60.0
    calls = machine.calls()
    assert (calls["nvmlEventSetCreate"], calls["nvmlDeviceRegisterEvents"]) == (1, 1)


def test_errors_while_another_gpu_is_lost(machine: Machine) -> None:
    """NVML is opened anew again and again while a GPU is lost: no error of any GPU is missed by that."""
    machine.says("gpus=2")
    source = machine.source()
    first, second = source.open().gpus
    lost = "gpu.1.nvmlDeviceGetName=error 15"
    machine.says("gpus=2", "gpu.0.xids=31", "gpu.1.xids=79", lost)
    machine.clock.now = 5.0
    inventory = source.open()
    assert inventory.gpus == (first,)
    assert inventory.xids == {first.uuid: (31, EPOCH + 5.0), second.uuid: (79, EPOCH + 5.0)}
    machine.clock.now = 60.0
    slow = source.read_slow(first)
    assert (slow.xid, slow.xid_time) == (31, EPOCH + 5.0)
    machine.says("gpus=2", "gpu.0.xids=31 13", "gpu.1.xids=79", lost)
    assert source.read_slow(first).xid == 13
    source.close()
    calls = machine.calls()
    assert calls["nvmlEventSetFree"] == calls["nvmlEventSetCreate"] == 3
    assert source.open().xids[first.uuid] == (13, EPOCH + 60.0)


def test_errors_that_came_under_a_hung_call(machine: Machine) -> None:
    """A driver that is not shut down, since a call hangs in it, keeps for us what it was asked to."""
    machine.says("gpus=2")
    source = machine.source()
    first, second = source.open().gpus
    hung = Hung(machine, "nvmlDeviceGetUtilizationRates", lambda: source.read_fast(first))
    machine.says("gpus=2", "gpu.0.nvmlDeviceGetUtilizationRates=hang", "gpu.1.xids=48")
    source.open()
    assert source.read_slow(second).xid == 48
    hung.let_go(machine)


def test_a_driver_that_keeps_no_errors_any_more_is_asked_anew(machine: Machine) -> None:
    """Where the driver no longer knows what it was asked to keep, that is said, and it is asked again."""
    source = machine.source()
    (gpu,) = source.open().gpus
    machine.says("gpu.0.nvmlEventSetWait_v2=error 999")
    slow = source.read_slow(gpu)
    assert (slow.xid, slow.missing) == (None, {"xid": "the driver reports an unknown error"})
    machine.says("gpu.0.xids=31")
    assert source.read_slow(gpu).missing == {}
    machine.says("gpu.0.xids=31 13")
    assert source.read_slow(gpu).xid == 13


@pytest.mark.parametrize(
    ("error", "reason"),
    [(3, "not supported by this GPU"), (4, "this user or container may not read it")],
)
def test_errors_that_nobody_may_see_are_unknown(machine: Machine, error: int, reason: str) -> None:
    """No permission, no ECC memory: the value is unknown and says why, and what was made is let go of."""
    machine.says(
        f"gpu.0.nvmlDeviceRegisterEvents=error {error}",
        f"gpu.0.nvmlDeviceGetTotalEccErrors=error {error}",
    )
    source = machine.source()
    (gpu,) = source.open().gpus
    slow = source.read_slow(gpu)
    assert (slow.ecc_uncorrected, slow.xid, slow.xid_time) == (None, None, None)
    assert slow.missing == {"ecc_uncorrected": reason, "xid": reason}
    calls = machine.calls()
    assert calls["nvmlEventSetFree"] == calls["nvmlEventSetCreate"]


def test_the_drivers_windows_of_utilization(machine: Machine) -> None:
    """Each window has the driver's own time; a GPU without any has none, and that is no error."""
    machine.says("gpus=2", "gpu.0.util=37", "gpu.0.window=0.2", "gpu.1.samples=0")
    source = machine.source()
    first, second = source.open().gpus
    windows = source.read_windows(first)
    assert {window.utilization for window in windows} == {37.0}
    steps = {round(later.until - earlier.until, 3) for earlier, later in pairwise(windows)}
    assert steps == {0.2}
    assert source.read_windows(second) == ()


@pytest.mark.parametrize("line", ["gpu.0.samples=0", "gpu.0.samples=3"])
def test_a_window_that_is_not_known_yet_is_asked_for_again(machine: Machine, line: str) -> None:
    """A driver that has kept too few samples so far gives no window, until it has."""
    machine.says(line, "gpu.0.nvmlDeviceGetTotalEnergyConsumption=error 3")
    source = machine.source()
    (gpu,) = source.open().gpus
    assert source.read_slow(gpu) == Slow(
        None,
        None,
        0,
        None,
        None,
        {
            "energy_j": "not supported by this GPU",
            "utilization_window": "the driver has no data for it yet",
        },
    )
    machine.says()
    assert source.read_slow(gpu).utilization_window == 0.2


# -- processes -------------------------------------------------------------------------------------------


def test_processes_are_listed_once_with_user_and_command(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process in both lists is one, as compute; names come from this machine; two calls."""
    names = {7: processes.Identity("ada", "python train.py")}
    monkeypatch.setattr(
        processes.Directory, "look_up", lambda self, pid: names.get(pid, processes.Identity(None, None))
    )
    machine.says("gpu.0.compute=7:1024 8", "gpu.0.graphics=8:2048 9:4096 7:1024")
    source = machine.source()
    (gpu,) = source.open().gpus
    machine.calls()
    assert source.read_processes(gpu) == (
        Process(7, "compute", 1024, "ada", "python train.py"),
        Process(8, "compute", 2048, None, None),
        Process(9, "graphics", 4096, None, None),
    )
    assert sum(machine.calls().values()) == 2


def test_this_process_is_found_by_its_pid(machine: Machine) -> None:
    """Where the driver's process ids are ours, user and command are those of the process."""
    machine.says("gpu.0.compute=self:5")
    source = machine.source()
    (gpu,) = source.open().gpus
    listed = source.read_processes(gpu)
    identity = processes.Directory().look_up(os.getpid())
    assert identity.command is not None
    assert listed == (Process(os.getpid(), "compute", 5, *identity),)


def test_in_a_container_nobody_is_named(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The host's process ids name strangers here: user and command stay unknown."""
    monkeypatch.setattr(processes, "in_host_pid_namespace", lambda: False)
    machine.says("gpu.0.compute=self:5")
    source = machine.source()
    (gpu,) = source.open().gpus
    assert source.read_processes(gpu) == (Process(os.getpid(), "compute", 5, None, None),)


def test_no_process_is_an_empty_list(machine: Machine) -> None:
    """A GPU that nobody uses has no processes, which is not the same as not knowing."""
    source = machine.source()
    (gpu,) = source.open().gpus
    assert source.read_processes(gpu) == ()


def test_many_processes_and_one_on_several_slices(machine: Machine) -> None:
    """However many there are, all are listed; one that works on several slices has the sum."""
    machine.says("gpu.0.compute=" + " ".join(f"{STRANGER + n}:1" for n in range(70)) + f" {STRANGER}:2")
    source = machine.source()
    (gpu,) = source.open().gpus
    listed = source.read_processes(gpu)
    assert listed is not None
    assert [process.pid for process in listed] == [STRANGER + n for n in range(70)]
    assert listed[0].memory == 3


def test_processes_that_cannot_be_listed_have_a_reason(machine: Machine) -> None:
    """The reason goes with the next readings, and goes away when they can be listed again."""
    machine.says("gpu.0.nvmlDeviceGetComputeRunningProcesses_v3=error 4")
    source = machine.source()
    (gpu,) = source.open().gpus
    assert source.read_processes(gpu) is None
    assert source.read_fast(gpu).missing == {"processes": "this user or container may not read it"}
    machine.says()
    assert source.read_processes(gpu) == ()
    assert source.read_fast(gpu).missing == {}


def test_a_list_that_fails_for_now_makes_the_whole_unknown(machine: Machine) -> None:
    """Half of the processes are not shown as if they were all; a GPU without graphics has only the other."""
    machine.says(f"gpu.0.compute={STRANGER}:1", "gpu.0.nvmlDeviceGetGraphicsRunningProcesses_v3=error 999")
    source = machine.source()
    (gpu,) = source.open().gpus
    assert source.read_processes(gpu) is None
    machine.says(
        f"gpu.0.compute={STRANGER}:1",
        "gpu.0.nvmlDeviceGetGraphicsRunningProcesses_v3=error 3",
        "gpu.0.nvmlDeviceGetGraphicsRunningProcesses_v2=error 3",
    )
    listed = source.read_processes(gpu)
    assert listed is not None
    assert [process.pid for process in listed] == [STRANGER]


@pytest.mark.parametrize(
    ("driver", "scrambled"),
    [("535.43.02", True), ("535.54.03", True), ("535.86.05", False), ("580.159.04", False), ("x", False)],
)
def test_drivers_that_scramble_processes_are_not_believed(
    machine: Machine, driver: str, scrambled: bool
) -> None:
    """535.43 to 535.85 gave wrong pids and sizes: unknown, with the reason."""
    machine.says(f"driver={driver}", f"gpu.0.compute={STRANGER}:1")
    source = machine.source()
    (gpu,) = source.open().gpus
    assert source.read_fast(gpu).missing == ({"processes": words.SCRAMBLED} if scrambled else {})
    assert (source.read_processes(gpu) is None) == scrambled


# -- an old driver ---------------------------------------------------------------------------------------


def test_an_old_driver_works_with_what_it_has(old_machine: Machine) -> None:
    """A library of the 470 series gives all but the hardware's counters, by its older calls."""
    old_machine.says("driver=470.256.02", "cuda=11040", "gpu.0.throttle=4", f"gpu.0.compute={STRANGER}:1")
    source = old_machine.source()
    inventory = source.open()
    assert inventory.origin.cuda_driver == "11.4"
    (gpu,) = inventory.gpus
    assert source.read_fast(gpu).missing == {}
    assert source.read_steady(gpu) == Steady(700.0, 29.0, 33.0, 345.0, 0, ("power cap",), {})
    assert source.read_processes(gpu) == (Process(STRANGER, "compute", 1, None, None),)
    assert source.read_slow(gpu).missing == {}
    assert source.read_activity(gpu) is None
    assert source.read_fast(gpu).missing == {"activity": "this driver is too old for it"}


# -- the hardware's counters -----------------------------------------------------------------------------


def test_activity_is_the_difference_of_two_samples(machine: Machine) -> None:
    """The first call only begins; the next ones tell what was between, in percent and bytes a second."""
    machine.says(
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
    assert source.read_fast(gpu).missing == {}


def test_counters_are_not_read_faster_than_they_can_tell(machine: Machine) -> None:
    """Within 100 ms of the last sample nothing is asked and nothing is said."""
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


def test_a_gpu_without_counters_says_so(machine: Machine) -> None:
    """Before Hopper there is no GPM: no activity, the reason, and no further question."""
    machine.says("gpu.0.gpm=0")
    source = machine.source()
    (gpu,) = source.open().gpus
    assert source.read_activity(gpu) is None
    machine.calls()
    assert source.read_activity(gpu) is None
    assert machine.calls() == {}
    assert source.read_fast(gpu).missing == {"activity": words.NO_GPM}


def test_counters_that_fail_for_now_are_read_again(machine: Machine) -> None:
    """A failed sample has its reason; the next one is measured from the last good one."""
    source = machine.source()
    (gpu,) = source.open().gpus
    source.read_activity(gpu)
    machine.clock.now = 1.0
    machine.says("gpu.0.nvmlGpmSampleGet=error 999")
    assert source.read_activity(gpu) is None
    assert source.read_fast(gpu).missing == {"activity": "the driver reports an unknown error"}
    machine.says()
    machine.clock.now = 2.0
    activity = source.read_activity(gpu)
    assert activity is not None
    assert (activity.since, activity.until) == (EPOCH, EPOCH + 2.0)
    assert source.read_fast(gpu).missing == {}


@pytest.mark.parametrize("end", [NvmlSource.forget_activity, NvmlSource.close])
def test_counters_are_given_back(machine: Machine, end: Callable[[NvmlSource], None]) -> None:
    """When nobody asks any more, or at the end, both samples of each GPU are freed, once."""
    machine.says("gpus=2")
    source = machine.source()
    gpus = source.open().gpus
    for machine.clock.now in (1.0, 2.0, 3.0):
        for gpu in gpus:
            source.read_activity(gpu)
    assert machine.calls()["nvmlGpmSampleAlloc"] == 4
    end(source)
    end(source)
    assert machine.calls()["nvmlGpmSampleFree"] == 4


def test_after_being_forgotten_the_counters_begin_anew(machine: Machine) -> None:
    """A new watcher gets no window that began before it came."""
    source = machine.source()
    (gpu,) = source.open().gpus
    source.read_activity(gpu)
    source.forget_activity()
    machine.clock.now = 5.0
    assert source.read_activity(gpu) is None
    machine.clock.now = 6.0
    activity = source.read_activity(gpu)
    assert activity is not None
    assert activity.since == EPOCH + 5.0


# -- MIG -------------------------------------------------------------------------------------------------


def test_slices_are_devices_of_their_own(machine: Machine) -> None:
    """A GPU comes before its slices; gaps in their numbering are passed over."""
    machine.says("gpus=2", "gpu.0.mig=0 2 5", f"gpu.0.mig.2.memory_total={18 * GIB}")
    gpus = machine.source().open().gpus
    assert [(gpu.index, gpu.mig_index) for gpu in gpus] == [(0, None), (0, 0), (0, 2), (0, 5), (1, None)]
    slice_ = gpus[2]
    assert slice_.uuid == "MIG-00000002-0000-4000-8000-000000000000"
    assert (slice_.mig_parent, slice_.name) == (UUIDS[0], "NVIDIA H200 MIG 1g.18gb")
    assert (slice_.memory_total, slice_.unified_memory) == (18 * GIB, False)
    assert (slice_.pci_bus_id, slice_.compute_capability) == ("00000000:01:00.0", "9.0")


def test_a_slice_has_memory_and_processes_but_no_utilization(machine: Machine) -> None:
    """What only the whole GPU has is None with that reason, and costs no call."""
    machine.says("gpu.0.mig=1", f"gpu.0.mig.1.memory_used={GIB}", f"gpu.0.mig.1.compute={STRANGER}:3")
    source = machine.source()
    _, slice_ = source.open().gpus
    machine.calls()
    fast = source.read_fast(slice_)
    assert (fast.utilization, fast.memory_used, fast.power_w) == (None, GIB, None)
    assert fast.missing == dict.fromkeys(
        ("utilization", "memory_utilization", "power_w"), words.OF_THE_WHOLE_GPU
    )
    assert machine.calls() == {"nvmlDeviceGetMemoryInfo_v2": 1}
    assert source.read_processes(slice_) == (Process(STRANGER, "compute", 3, None, None),)
    machine.calls()
    steady, slow = source.read_steady(slice_), source.read_slow(slice_)
    assert (steady.throttle, steady.missing["throttle"]) == (None, words.OF_THE_WHOLE_GPU)
    assert slow == Slow(None, None, None, None, None, dict.fromkeys(SLOW_VALUES, words.OF_THE_WHOLE_GPU))
    assert machine.calls() == {}


def test_a_slice_has_counters_of_its_own(machine: Machine) -> None:
    """Its activity is read through its GPU, by its instance; the cut GPU has none."""
    machine.says("gpu.0.mig=1", "gpu.0.mig.1.gpm.2=12.5")
    source = machine.source()
    whole, slice_ = source.open().gpus
    source.read_activity(slice_)
    machine.clock.now = 1.0
    activity = source.read_activity(slice_)
    assert activity is not None
    assert activity.sm == 12.5
    assert source.read_activity(whole) is None
    assert source.read_fast(whole).missing["activity"] == "not supported by this GPU"


def test_a_container_with_one_slice_sees_that_slice(machine: Machine) -> None:
    """The GPU it is cut from may not be read there; the slice is."""
    machine.says(
        "gpu.0.mig=3",
        "gpu.0.nvmlDeviceGetMemoryInfo_v2=error 4",
        "gpu.0.mig.3.nvmlDeviceGetMemoryInfo_v2=ok",
        "gpu.0.mig.3.memory_used=9",
    )
    source = machine.source()
    whole, slice_ = source.open().gpus
    assert (whole.memory_total, whole.unified_memory) == (None, False)
    assert source.read_fast(whole).missing["memory_used"] == "this user or container may not read it"
    assert source.read_memory(slice_) == 9


def test_a_slice_that_was_taken_away_is_lost(machine: Machine) -> None:
    """After MIG is set up anew, an old slice is lost, and opening again finds the new ones."""
    machine.says("gpu.0.mig=0 1")
    source = machine.source()
    _, _, slice_ = source.open().gpus
    machine.says("gpu.0.mig=0")
    with pytest.raises(GpuLostError, match=r"MIG slice 1 of GPU 0 .* is not there any more"):
        source.read_fast(slice_)
    assert [gpu.mig_index for gpu in source.open().gpus] == [None, 0]
    with pytest.raises(GpuLostError, match="is not there any more"):
        source.read_memory(slice_)


def test_a_slice_that_cannot_be_named_does_not_spoil_the_others(machine: Machine) -> None:
    """One slice's trouble is its own."""
    machine.says("gpu.0.mig=0 1", "gpu.0.mig.0.nvmlDeviceGetUUID=error 999")
    assert [gpu.mig_index for gpu in machine.source().open().gpus] == [None, 1]


# -- losing a GPU or the driver --------------------------------------------------------------------------

READERS: list[Callable[..., object]] = [
    NvmlSource.read_fast,
    NvmlSource.read_memory,
    NvmlSource.read_processes,
    NvmlSource.read_steady,
    NvmlSource.read_slow,
    NvmlSource.read_activity,
]


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("code", [15, 16])
def test_a_lost_gpu_is_known_by_every_call(machine: Machine, read: Callable[..., object], code: int) -> None:
    """Off the bus or in need of a reset: that GPU is lost, the other goes on."""
    source = machine.source()
    machine.says("gpus=2")
    first, second = source.open().gpus
    machine.says("gpus=2", f"gpu.0.*=error {code}")
    with pytest.raises(GpuLostError, match=r"GPU 0 \(NVIDIA H200\)"):
        read(source, first)
    read(source, second)


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("code", [1, 9, 18, 28])
def test_a_lost_driver_is_known_by_every_call(
    machine: Machine, read: Callable[..., object], code: int
) -> None:
    """The driver went away under us: whoever reads is told to open it again, and why."""
    source = machine.source()
    (gpu,) = source.open().gpus
    machine.says(f"*=error {code}")
    with pytest.raises(SourceLostError, match="driver"):
        read(source, gpu)


def test_opening_again_starts_anew(machine: Machine) -> None:
    """After a loss, NVML is shut down and started, and every handle is a fresh one."""
    machine.says("gpus=2")
    source = machine.source()
    source.open()
    machine.calls()
    source.open()
    calls = machine.calls()
    assert (calls["nvmlShutdown"], calls["nvmlInitWithFlags"]) == (1, 1)
    assert calls["nvmlDeviceGetHandleByIndex_v2"] == 2


def test_what_was_given_up_is_asked_anew_after_opening(machine: Machine) -> None:
    """A new driver may have what the old one had not."""
    machine.says("gpu.0.nvmlDeviceGetUtilizationRates=error 13")
    source = machine.source()
    (gpu,) = source.open().gpus
    assert source.read_fast(gpu).utilization is None
    machine.says("gpu.0.util=3")
    source.open()
    assert source.read_fast(gpu).utilization == 3.0


def test_closing_lets_go_of_the_driver_once(machine: Machine) -> None:
    """Close may be called twice, and on a source that was never opened; then nothing can be read."""
    source = machine.source()
    source.close()
    assert machine.calls() == {}
    (gpu,) = source.open().gpus
    source.close()
    source.close()
    assert machine.calls()["nvmlShutdown"] == 1
    with pytest.raises(SourceLostError, match="closed"):
        source.read_memory(gpu)


# -- calls that hang -------------------------------------------------------------------------------------


class Hung:
    """A thread in a call that does not return before the scenario lets it."""

    def __init__(self, machine: Machine, function: str, call: Callable[[], object]) -> None:
        machine.says("gpus=2", f"gpu.0.{function}=hang")
        machine.calls()
        self.answer: list[object] = []
        self.thread = threading.Thread(target=lambda: self.answer.append(call()), daemon=True)
        self.thread.start()
        while function not in machine.calls():
            assert self.thread.is_alive()

    def let_go(self, machine: Machine) -> object:
        machine.says("gpus=2")
        self.thread.join(timeout=30)
        return self.answer[0]


def test_a_hung_call_holds_up_nobody(machine: Machine) -> None:
    """While one GPU does not answer, another is read, by the same source."""
    machine.says("gpus=2")
    source = machine.source()
    first, second = source.open().gpus
    hung = Hung(machine, "nvmlDeviceGetMemoryInfo_v2", lambda: source.read_memory(first))
    assert source.read_memory(second) == 0
    assert hung.let_go(machine) == 0


def test_opening_under_a_hung_call_does_not_shut_it_down(machine: Machine) -> None:
    """The driver is started once more beside it, and put right at the next chance."""
    machine.says("gpus=2")
    source = machine.source()
    first, _ = source.open().gpus
    hung = Hung(machine, "nvmlDeviceGetUtilizationRates", lambda: source.read_fast(first))
    assert [gpu.index for gpu in source.open().gpus] == [0, 1]
    calls = machine.calls()
    assert (calls["nvmlInitWithFlags"], calls.get("nvmlShutdown", 0)) == (1, 0)
    hung.let_go(machine)
    source.close()
    assert machine.calls()["nvmlShutdown"] == 2


def test_closing_under_a_hung_call_shuts_down_when_it_returns(machine: Machine) -> None:
    """Close does not wait; what it could not do is done by the call that returns late."""
    machine.says("gpus=2")
    source = machine.source()
    first, _ = source.open().gpus
    hung = Hung(machine, "nvmlDeviceGetUtilizationRates", lambda: source.read_fast(first))
    source.close()
    assert "nvmlShutdown" not in machine.calls()
    hung.let_go(machine)
    assert machine.calls()["nvmlShutdown"] == 1


def test_counters_in_use_are_freed_only_by_their_user(machine: Machine) -> None:
    """Forgetting while a sample hangs in the driver frees it when the driver is done with it."""
    machine.says("gpus=2")
    source = machine.source()
    first, second = source.open().gpus
    for gpu in (first, second):
        source.read_activity(gpu)
    machine.clock.now = 1.0
    hung = Hung(machine, "nvmlGpmSampleGet", lambda: source.read_activity(first))
    assert source.read_activity(second) is not None
    machine.calls()
    source.forget_activity()
    assert machine.calls() == {"nvmlGpmSampleFree": 2}
    hung.let_go(machine)
    calls = machine.calls()
    assert calls["nvmlGpmSampleFree"] == 2
    assert "freed while in use" not in calls


def test_a_reader_does_not_wait_for_an_opening_that_hangs(machine: Machine) -> None:
    """While the driver hangs in being opened again, readings are unknown, with the reason."""
    machine.says("gpus=2")
    source = machine.source()
    first, _ = source.open().gpus
    hung = Hung(machine, "nvmlDeviceGetHandleByIndex_v2", source.open)
    fast = source.read_fast(first)
    assert (fast.memory_used, fast.missing["memory_used"]) == (None, words.REOPENING)
    assert source.read_steady(first).missing["pstate"] == words.REOPENING
    assert source.read_slow(first).missing["energy_j"] == words.REOPENING
    assert (source.read_memory(first), source.read_processes(first)) == (None, None)
    assert source.read_activity(first) is None
    hung.let_go(machine)
    assert source.read_fast(first).missing == {}


# -- forks -----------------------------------------------------------------------------------------------


def test_a_forked_child_starts_its_own(library: Path, tmp_path: Path) -> None:
    """A child may not read by what its parent opened, starts NVML itself, and never ends the parent's."""
    standin = Standin(library, tmp_path / "standin")
    standin.scenario("gpu.0.compute=self:1")
    result = in_a_process(
        standin,
        """
        import json, os
        from gpuwidget.errors import SourceLostError
        from gpuwidget.sources.nvml import NvmlSource

        source, unopened = NvmlSource(), NvmlSource()
        (gpu,) = source.open().gpus
        source.read_activity(gpu)
        unopened.open()
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            try:
                source.read_memory(gpu)
                said = None
            except SourceLostError as error:
                said = str(error)
            unopened.close()
            source.open()
            pids = [process.pid == os.getpid() for process in source.read_processes(gpu)]
            source.close()
            os.write(writing, json.dumps([said, pids]).encode())
            os._exit(0)
        os.waitpid(child, 0)
        in_child = json.loads(os.read(reading, 4096))
        print(json.dumps([*in_child, source.read_memory(gpu)]))
        """,
    )
    assert result == [
        "This process was forked from the one that opened the NVIDIA driver.",
        [True],
        0,
    ]
    calls = standin.calls()
    assert (calls["nvmlInitWithFlags"], calls["nvmlShutdown"]) == (3, 1)
    assert "nvmlGpmSampleFree" not in calls
