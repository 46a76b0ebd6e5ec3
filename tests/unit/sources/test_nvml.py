"""Tests of opening and closing the NVML source and of identifying GPUs, with the real Python binding and a C
library that stands in for NVML."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pynvml
import pytest
from helpers_nvml import H200_MEMORY, NO_PROCESS, UUIDS, Machine, run_in_subprocess
from helpers_samples import status_reading
from nvml_standin import Standin

from gpuwidget.model.gpu_process import Process
from gpuwidget.model.samples import unopened_gpu
from gpuwidget.sources import LostGpu, nvml_messages

# -- the list of GPUs ------------------------------------------------------------------------------------


def test_identity_comes_from_the_driver(machine: Machine) -> None:
    """A GPU's name, index, bus id and memory, and the versions of the driver, are those that NVML reports."""
    machine.set_scenario("gpus=2", "driver=580.95.05", "cuda=13010", "gpu.1.name=NVIDIA L4")
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
def test_names_are_text_whatever_the_binding_returns(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, raw: str | bytes
) -> None:
    """GPU names and UUIDs are strings, even with versions of nvidia-ml-py that return bytes."""
    monkeypatch.setattr(pynvml, "nvmlDeviceGetName", lambda handle: raw)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetUUID", lambda handle: raw)
    gpu = machine.source().open().gpus[0]
    assert (gpu.name, gpu.uuid) == ("NVIDIA H200", "NVIDIA H200")


def test_a_detail_that_fails_does_not_hide_the_gpu(machine: Machine) -> None:
    """If a GPU's bus id and compute capability can't be read, these two are None, and everything else about
    the GPU is known."""
    machine.set_scenario(
        "gpu.0.nvmlDeviceGetPciInfo_v3=error 999", "gpu.0.nvmlDeviceGetCudaComputeCapability=error 3"
    )
    gpu = machine.source().open().gpus[0]
    assert (gpu.pci_bus_id, gpu.compute_capability, gpu.memory_total) == (None, None, H200_MEMORY)


def test_a_gpu_that_cannot_be_opened_does_not_affect_the_others(machine: Machine) -> None:
    """If one GPU can't be opened, the other GPUs are still listed, and it is listed as lost, with the reason
    and what is known about it. Once it works again, reopening the source lists it with the others."""
    machine.set_scenario("gpus=3", "gpu.1.*=error 15")
    source = machine.source()
    inventory = source.open()
    assert [gpu.index for gpu in inventory.gpus] == [0, 2]
    assert inventory.lost == (
        LostGpu(unopened_gpu(1), nvml_messages.LOST(problem=nvml_messages.GPU_LOST[15])),
    )
    machine.set_scenario("gpus=3", "gpu.1.nvmlDeviceGetMemoryInfo_v2=error 16")
    inventory = source.open()
    assert [gpu.index for gpu in inventory.gpus] == [0, 2]
    known = replace(unopened_gpu(1), uuid=UUIDS[1], name="NVIDIA H200")
    assert inventory.lost == (LostGpu(known, nvml_messages.LOST(problem=nvml_messages.GPU_LOST[16])),)
    machine.set_scenario("gpus=3")
    inventory = source.open()
    assert ([gpu.index for gpu in inventory.gpus], inventory.lost) == ([0, 1, 2], ())


@pytest.mark.parametrize("call", ["*", "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetUUID"])
def test_a_machine_whose_gpus_are_all_lost_is_explained(machine: Machine, call: str) -> None:
    """If no GPU can be opened, each is listed as lost, and the origin's reason explains what to do."""
    machine.set_scenario(
        "gpus=2", f"gpu.*.{call}=error 999", f"gpu.0.{call}=error 999", f"gpu.1.{call}=error 999"
    )
    inventory = machine.source().open()
    assert (inventory.origin.kind, inventory.gpus) == ("nvml", ())
    assert inventory.origin.reason == nvml_messages.start_error(999, "")
    assert [gpu.index for gpu, _ in inventory.lost] == [0, 1]
    assert {reason for _, reason in inventory.lost} == {"the GPU can't be opened (Unknown Error)"}


def test_a_gpu_that_this_user_may_not_use_is_not_lost(machine: Machine) -> None:
    """A GPU that belongs to another container or job, so that this process has no permission to open it, is
    neither listed nor lost."""
    machine.set_scenario("gpus=2", "gpu.1.nvmlDeviceGetHandleByIndex_v2=error 4")
    inventory = machine.source().open()
    assert ([gpu.index for gpu in inventory.gpus], inventory.lost) == ([0], ())


# -- errors while the driver is opened -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        (4, "Ask for read and write access to /dev/nvidia*"),
        (9, "Load it with 'sudo modprobe nvidia', or reboot"),
        (17, "Check that /dev/nvidiactl and /dev/nvidia0 exist"),
        (18, "Reboot, or reload the driver's modules"),
        (20, "(NVML error 20: Insufficient Memory). See the output of nvidia-smi."),
        (999, "A container that has lost cgroup access"),
    ],
)
def test_an_absent_driver_is_explained(machine: Machine, code: int, sentence: str) -> None:
    """If NVML can't be initialized, opening the source raises no exception. The origin contains a reason that
    explains the failure and what the user can do."""
    machine.set_scenario(f"nvmlInitWithFlags=error {code}")
    inventory = machine.source().open()
    assert (inventory.origin.kind, inventory.gpus) == ("none", ())
    assert inventory.origin.reason is not None
    assert sentence in inventory.origin.reason


def test_a_driver_without_gpus_is_explained_and_closed(machine: Machine) -> None:
    """If the driver finds no GPU, the origin contains this reason and the driver's version, and NVML is shut
    down."""
    machine.set_scenario("gpus=0")
    origin = machine.source().open().origin
    assert (origin.kind, origin.reason, origin.driver) == ("none", nvml_messages.NO_GPU, "580.159.04")
    calls = machine.calls()
    assert calls["nvmlInitWithFlags"] == calls["nvmlShutdown"] == 1


def test_a_driver_that_fails_after_starting_is_explained(machine: Machine) -> None:
    """If the driver fails after NVML was initialized, opening the source raises no exception, and the
    origin's reason explains the failure."""
    machine.set_scenario("nvmlDeviceGetCount_v2=error 9")
    assert machine.source().open().origin.reason == nvml_messages.start_error(9, "")
    machine.set_scenario("nvmlDeviceGetUUID=error 18")
    assert machine.source().open().origin.reason == nvml_messages.start_error(18, "")
    machine.set_scenario("nvmlDeviceGetMaxMigDeviceCount=error 9")
    assert machine.source().open().origin.reason == nvml_messages.start_error(9, "")


def test_an_unexpected_error_of_the_binding_is_reported(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the binding raises an unexpected exception, opening the source raises none, and the origin's reason
    contains the exception."""
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCount", lambda: 1 / 0)
    origin = machine.source().open().origin
    assert origin.reason == "The NVIDIA driver could not be read (ZeroDivisionError: division by zero)."


def test_without_the_library_the_reason_names_what_to_install(library: Path, tmp_path: Path) -> None:
    """If the NVML library can't be loaded (error 12), the origin's reason explains what to install."""
    (tmp_path / "empty").mkdir()
    standin = Standin(library, tmp_path / "standin")
    standin.library.write_bytes(b"no library")
    reason = run_in_subprocess(
        standin,
        """
        import json
        from gpuwidget.sources.nvml import NvmlSource
        print(json.dumps(NvmlSource().open().origin.reason))
        """,
    )
    assert reason == nvml_messages.start_error(12, "")


@pytest.mark.parametrize(
    ("module", "sentence"),
    [("raise ImportError", nvml_messages.NO_PYNVML), ("nvmlInit = None", nvml_messages.FOREIGN_PYNVML)],
)
def test_a_wrong_binding_is_explained(library: Path, tmp_path: Path, module: str, sentence: str) -> None:
    """If nvidia-ml-py is missing, or an old fork of pynvml hides it, the origin's reason explains what
    to do."""
    (tmp_path / "pynvml.py").write_text(module)
    reason = run_in_subprocess(
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
    """In a process in which the tests have replaced nothing, the system's loader finds the NVML library, and
    GPUs are read."""
    standin = Standin(library, tmp_path / "standin")
    standin.scenario("gpus=2", "gpu.1.util=97")
    read = run_in_subprocess(
        standin,
        """
        import json
        from gpuwidget.sources import open_source
        source = open_source("nvml")
        gpus = source.open().gpus
        print(json.dumps([source.read(gpu, "fast").values["utilization"] for gpu in gpus]))
        source.close()
        """,
    )
    assert read == [0.0, 97.0]


# -- an old driver ---------------------------------------------------------------------------------------


def test_an_old_driver_works_with_what_it_has(old_machine: Machine) -> None:
    """With an NVML library of the 470 series, which lacks newer calls, older calls are used, and everything
    except the hardware counters is read."""
    old_machine.set_scenario(
        "driver=470.256.02", "cuda=11040", "gpu.0.throttle=4", f"gpu.0.compute={NO_PROCESS}:1"
    )
    source = old_machine.source()
    inventory = source.open()
    assert inventory.origin.cuda_driver == "11.4"
    (gpu,) = inventory.gpus
    assert source.read(gpu, "fast").missing == {}
    assert source.read(gpu, "status") == status_reading(
        {"fan_speed": nvml_messages.PERMANENT[3]},
        power_limit_w=700.0,
        temperature_c=29.0,
        memory_temperature_c=33.0,
        sm_clock_mhz=345.0,
        memory_clock_mhz=3201.0,
        pstate=0,
        decoder_utilization=0.0,
        encoder_utilization=0.0,
        throttle=("power cap",),
    )
    assert source.read(gpu, "processes").values["processes"] == (
        Process(NO_PROCESS, "compute", 1, None, None),
    )
    assert source.read(gpu, "slow").missing == {}
    assert source.read(gpu, "activity") == ({"activity": None}, {"activity": nvml_messages.PERMANENT[13]})


# -- forks -----------------------------------------------------------------------------------------------


def test_a_forked_child_starts_its_own(library: Path, tmp_path: Path) -> None:
    """A forked child process can't use the source that its parent opened, but can open its own. It never
    shuts down the parent's NVML."""
    standin = Standin(library, tmp_path / "standin")
    standin.scenario("gpu.0.compute=self:1")
    result = run_in_subprocess(
        standin,
        """
        import json, os
        from gpuwidget.model.errors import SourceLostError
        from gpuwidget.sources.nvml import NvmlSource

        source, unopened = NvmlSource(), NvmlSource()
        (gpu,) = source.open().gpus
        source.read(gpu, "activity")
        unopened.open()
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            try:
                source.read(gpu, "memory")
                said = None
            except SourceLostError as error:
                said = str(error)
            unopened.close()
            source.open()
            listed = source.read(gpu, "processes").values["processes"]
            pids = [process.pid == os.getpid() for process in listed]
            source.close()
            os.write(writing, json.dumps([said, pids]).encode())
            os._exit(0)
        os.waitpid(child, 0)
        in_child = json.loads(os.read(reading, 4096))
        print(json.dumps([*in_child, source.read(gpu, "memory").values["memory_used"]]))
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
