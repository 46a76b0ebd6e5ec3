"""Watched cells work without a driver, and with GPUs that are lost, hang or are split by MIG."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers_kernel import TIMEOUT_S, Kernel, Ran
from helpers_outputs import sequence
from helpers_pair import check_card
from nvml_standin import Standin, build

GIB = 1024**3
TOTAL = 150_754_820_096
WAIT = "import os, time\nwhile not os.path.exists('go'): time.sleep(0.005)\n'finished'"
SOURCE = "GPUWIDGET_SOURCE"
MEMORY = "nvmlDeviceGetMemoryInfo_v2"
BASE = ("driver=580.95.05", "cuda=13000", f"gpu.*.memory_used={GIB}", f"gpu.*.compute=self:{GIB}")
IDLE = (*BASE, "gpus=2", "gpu.*.util=0", "gpu.*.power=80")


def has_driver() -> bool:
    """Return whether this machine has NVIDIA's NVML library."""
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return False
    return True


def watched(kernel: Kernel, body: str = "6 * 7", options: str = "") -> tuple[Ran, dict[str, Any]]:
    """Run a watched cell, assert that it succeeds,
    and return what the kernel sent together with the report."""
    ran = kernel.ok(f"%%gpuwatch {options}\n{body}")
    return ran, check_card(ran)


def assert_explained(ran: Ran, report: dict[str, Any]) -> str:
    """Assert that the cell works and that its card explains why there is no GPU, and return this reason."""
    assert [name for name, _ in sequence(ran.messages, set())] == ["execute_result"]
    assert (ran.result, report["gpus"], report["source"]["kind"]) == ("42", [], "none")
    assert report["cell"]["duration_s"] > 0
    assert report["host_memory"]["end"] > 0
    reason = report["source"]["reason"]
    assert isinstance(reason, str)
    (card,) = ran.cards
    assert reason in card["text/plain"].replace("\n", " ")
    assert reason.split("'")[0] in card["text/html"]
    return reason


# -- machines without a GPU ----------------------------------------------------------------------------


def test_source_switched_off(start_kernel: Callable[..., Kernel]) -> None:
    """With GPUWIDGET_SOURCE=none, the card explains that this variable turned the GPU readings off."""
    kernel = start_kernel(**{SOURCE: "none"})
    kernel.run("%load_ext gpuwidget")
    assert SOURCE in assert_explained(*watched(kernel))


@pytest.mark.skipif(has_driver(), reason="this machine has an NVIDIA driver")
def test_no_driver(start_kernel: Callable[..., Kernel]) -> None:
    """Without NVIDIA's driver, a watched cell works, and its card explains what is missing."""
    kernel = start_kernel(**{SOURCE: None})
    kernel.run("%load_ext gpuwidget")
    assert "driver" in assert_explained(*watched(kernel)).lower()


@pytest.mark.parametrize("choice", ["nonsense", "replay-once"])
def test_unknown_source(start_kernel: Callable[..., Kernel], choice: str) -> None:
    """If GPUWIDGET_SOURCE names an unknown source,
    %load_ext prints one line and does not load the extension."""
    kernel = start_kernel(**{SOURCE: choice})
    ran = kernel.run("%load_ext gpuwidget")
    assert (ran.reply["status"], ran.reply["ename"]) == ("error", "UsageError")
    assert choice in ran.text
    assert len(ran.text.strip().splitlines()) == 1
    assert kernel.run("1").result == "1"


def test_missing_recording(start_kernel: Callable[..., Kernel]) -> None:
    """If the recording can't be read, a watched cell still works."""
    kernel = start_kernel(**{SOURCE: "replay:nowhere.jsonl"})
    kernel.run("%load_ext gpuwidget")
    ran = kernel.run("%%gpuwatch\n6 * 7")
    assert (ran.reply["status"], ran.result) == ("ok", "42")
    if ran.cards:
        assert "nowhere.jsonl" in ran.cards[0]["text/plain"]


# -- machines with a stand-in for the driver -----------------------------------------------------------


class Machine:
    """A kernel whose NVML library is the stand-in."""

    def __init__(self, kernel: Kernel, standin: Standin) -> None:
        self.kernel = kernel
        self.standin = standin

    def set_scenario(self, *lines: str) -> None:
        """Set what the driver returns from now on."""
        self.standin.scenario(*lines)

    def wait_for_calls(self, times: int = 3, call: str = MEMORY) -> None:
        """Wait until the driver's function ``call`` has been called ``times`` more times."""
        self.standin.calls()
        seen = 0
        deadline = time.monotonic() + TIMEOUT_S
        while seen < times:
            assert time.monotonic() < deadline, f"{call} was not called"
            self.kernel.idle_for(0.01)
            seen += self.standin.calls()[call]

    def during_cell(
        self, *lines: str, times: int = 3, call: str = "nvmlDeviceGetMemoryInfo_v2"
    ) -> tuple[Ran, dict[str, Any]]:
        """Run a watched cell with a live chart, and change what the driver returns while the cell runs."""
        request = self.kernel.send(f"%%gpuwatch\n{WAIT}")
        self.kernel.wait_for_message(request, lambda message: message.shows_chart)
        self.set_scenario(*lines)
        self.wait_for_calls(times, call)
        return self.finish(request)

    def finish(self, request: str) -> tuple[Ran, dict[str, Any]]:
        """Let the waiting cell end, and return what the kernel sent and the report."""
        go = self.kernel.folder / "go"
        go.touch()
        ran = self.kernel.wait(request)
        go.unlink()
        assert (ran.reply["status"], ran.result) == ("ok", "'finished'")
        return ran, check_card(ran)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile the stand-in for NVML, and return its path."""
    library: Path = build(tmp_path_factory.mktemp("nvml"))
    return library


@pytest.fixture
def start_machine(
    start_kernel: Callable[..., Kernel], library: Path, tmp_path: Path
) -> Iterator[Callable[..., Machine]]:
    """Return a function that starts a kernel with gpuwidget loaded,
    whose driver follows the given scenario."""
    kernels: list[Kernel] = []

    def start(*lines: str) -> Machine:
        standin = Standin(library, tmp_path / "driver")
        standin.scenario(*lines)
        path = {"LD_LIBRARY_PATH": standin.environment()["LD_LIBRARY_PATH"]}
        kernels.append(start_kernel(**{SOURCE: None}, **standin.variables, **path))
        kernels[-1].ok("%load_ext gpuwidget")
        return Machine(kernels[-1], standin)

    yield start
    for kernel in kernels:
        kernel.shutdown()


@pytest.fixture
def machine(start_machine: Callable[..., Machine]) -> Machine:
    """Return a machine with two idle GPUs, on which the kernel's process holds memory."""
    return start_machine(*IDLE)


def test_values_of_the_driver(machine: Machine) -> None:
    """The card has the driver's values for each GPU and the peak memory of the run."""
    ran, report = machine.during_cell(*IDLE, f"gpu.1.memory_used={5 * GIB}")
    assert report["source"] == {
        "kind": "nvml",
        "reason": None,
        "recording": None,
        "reason_id": None,
    }
    assert report["environment"]["driver"] == "580.95.05"
    assert [gpu["device_memory"] for gpu in report["gpus"]] == [
        {"start": GIB, "end": GIB, "peak": GIB},
        {"start": GIB, "end": 5 * GIB, "peak": 5 * GIB},
    ]
    assert [gpu["process_memory"] for gpu in report["gpus"]] == [{"start": GIB, "end": GIB, "peak": GIB}] * 2
    assert [gpu["memory_total"] for gpu in report["gpus"]] == [TOTAL, TOTAL]
    assert "recording" not in ran.cards[0]["text/plain"].lower()


def test_gpu_lost_in_a_cell(machine: Machine) -> None:
    """If a GPU is lost during a cell, the cell succeeds and the card shows the loss.
    The other GPU is still measured, in this cell and in the next one."""
    ran, report = machine.during_cell(*IDLE, "gpu.1.*=error 15")
    first, second = report["gpus"]
    assert first["lost_since"] is None
    assert first["device_memory"]["end"] == GIB
    assert report["cell"]["started"] < second["lost_since"]
    assert second["device_memory"]["start"] == GIB
    assert second["device_memory"]["end"] is None
    assert "device_memory" in second["missing"]
    assert "lost" in ran.cards[0]["text/plain"]
    machine.set_scenario(*IDLE)
    request = machine.kernel.send(f"%%gpuwatch\n{WAIT}")
    machine.wait_for_calls(2)
    machine.kernel.wait_for_message(request, lambda message: message.shows_chart)
    _, report = machine.finish(request)
    assert report["gpus"][0]["device_memory"]["end"] == GIB


@pytest.mark.parametrize("call", [MEMORY, "nvmlDeviceGetUtilizationRates", "*"])
def test_call_hangs_in_a_cell(machine: Machine, call: str) -> None:
    """If a driver call for one GPU hangs, neither the cell nor the other GPU is delayed.
    Later cards show that GPU's memory as n/a until the call returns."""
    request = machine.kernel.send(f"%%gpuwatch\n{WAIT}")
    machine.kernel.wait_for_message(request, lambda message: message.shows_chart)
    machine.set_scenario(*IDLE, f"gpu.1.{call}=hang", f"gpu.0.memory_used={2 * GIB}")
    # When the cell ends, the call still hangs. Whether its timeout has passed by then is not certain,
    # so only this GPU's memory at the start of the run is checked.
    _, report = machine.finish(request)
    assert report["gpus"][1]["device_memory"]["start"] == GIB
    request = machine.kernel.send(f"%%gpuwatch\n{WAIT}")
    machine.wait_for_calls(4)
    ran, report = machine.finish(request)
    assert report["gpus"][0]["device_memory"]["end"] == 2 * GIB
    assert report["gpus"][1]["device_memory"]["end"] is None
    assert report["gpus"][1]["missing"]["device_memory"]
    assert "n/a" in ran.cards[0]["text/plain"]
    machine.set_scenario(*IDLE)
    for _ in range(50):
        _, report = watched(machine.kernel)
        if report["gpus"][1]["device_memory"]["end"] is not None:
            break
        machine.kernel.idle_for(0.1)
    assert report["gpus"][1]["device_memory"]["end"] == GIB


def test_driver_goes_away_in_a_cell(machine: Machine) -> None:
    """If the driver goes away while a cell runs, the cell succeeds,
    and the values that could not be read are unknown."""
    _, report = machine.during_cell(*IDLE, "*=error 9", "gpu.*.*=error 9", times=1, call="nvmlInitWithFlags")
    for gpu in report["gpus"]:
        assert gpu["device_memory"]["start"] == GIB
        assert gpu["device_memory"]["end"] is None


@pytest.mark.parametrize("error", [9, 18, 4, 17, 999])
def test_driver_broken(start_machine: Callable[..., Machine], error: int) -> None:
    """If the driver can't be initialized, the card explains why in one sentence."""
    machine = start_machine(f"nvmlInitWithFlags=error {error}", f"nvmlInit_v2=error {error}")
    assert assert_explained(*watched(machine.kernel)).endswith(".")


@pytest.mark.parametrize("call", ["nvmlInitWithFlags", "nvmlDeviceGetCount_v2", f"gpu.1.{MEMORY}"])
def test_driver_hangs_from_the_beginning(start_machine: Callable[..., Machine], call: str) -> None:
    """If a call that opens the driver hangs, watched cells work, and their cards say that the driver did not
    answer. How long such a cell is delayed is tested in ``tests/unit/measure/test_run.py``."""
    machine = start_machine(*IDLE, f"{call}=hang")
    for options in ("", "--gpu 1"):
        ran, report = watched(machine.kernel, options=options)
        assert (ran.result, report["gpus"]) == ("42", [])
        assert report["source"]["reason_id"] == {"id": "not-sampled", "params": {}}
    machine.set_scenario(*IDLE)


@pytest.mark.parametrize(
    ("call", "field"),
    [
        ("nvmlDeviceGetUtilizationRates", "utilization"),
        ("nvmlDeviceGetComputeRunningProcesses_v3", "process_memory"),
        ("nvmlDeviceGetTotalEnergyConsumption", "energy_j"),
        ("nvmlGpmSampleGet", "sm_activity"),
    ],
)
def test_call_hangs_from_the_beginning(start_machine: Callable[..., Machine], call: str, field: str) -> None:
    """If a call for one GPU hangs from the beginning, watched cells work, and their cards have a reason for
    what is unknown of this GPU. The other GPU is measured."""
    machine = start_machine(*IDLE, f"gpu.0.{call}=hang")
    for _ in range(2):
        ran, report = watched(machine.kernel)
        first = next((gpu for gpu in report["gpus"] if gpu["index"] == 0), None)
        assert ran.result == "42"
        assert first is None or (first[field] or first["missing"][field])
    request = machine.kernel.send(f"%%gpuwatch\n{WAIT}")
    machine.wait_for_calls(10)
    _, report = machine.finish(request)
    first, second = report["gpus"]
    # The energy is the integral of the power, so it may be known although the call for the energy hangs.
    assert first[field] or first["missing"][field]
    assert first["device_memory"]["end"] in (None, GIB)
    assert second["device_memory"] == {"start": GIB, "end": GIB, "peak": GIB}
    machine.set_scenario(*IDLE)


def test_slices(start_machine: Callable[..., Machine]) -> None:
    """The card shows each MIG slice of a GPU as a separate device."""
    machine = start_machine(*IDLE, "gpu.0.mig=0 2", f"gpu.0.mig.2.memory_used={3 * GIB}")
    _, report = watched(machine.kernel)
    found = [(gpu["index"], gpu["mig_index"], gpu["device_memory"]["end"]) for gpu in report["gpus"]]
    assert found == [(0, None, GIB), (0, 0, GIB), (0, 2, 3 * GIB), (1, None, GIB)]
    parent = report["gpus"][0]["uuid"]
    assert [gpu["mig_parent"] for gpu in report["gpus"]] == [None, parent, parent, None]


def test_names_are_text(start_machine: Callable[..., Machine]) -> None:
    """The card shows a GPU's name as text, whatever characters the name contains."""
    machine = start_machine(*IDLE, "gpu.*.name=<img src=x onerror=1> & co")
    ran, _ = watched(machine.kernel)
    assert "<img" not in ran.cards[0]["text/html"]
    assert "&lt;img" in ran.cards[0]["text/html"]


def test_many_gpus(start_machine: Callable[..., Machine]) -> None:
    """The card of a run with 16 busy GPUs and 300 printed lines stays small."""
    busy = ("gpus=16", f"gpu.*.memory_used={17 * GIB}", "gpu.*.util=93", "gpu.*.power=612.5")
    machine = start_machine(*BASE, *busy)
    request = machine.kernel.send(f"%%gpuwatch\nfor i in range(300): print('a line of a log', i)\n{WAIT}")
    machine.kernel.wait_for_message(request, lambda message: message.shows_chart)
    _, report = machine.finish(request)
    assert len(report["gpus"]) == 16
