"""Tests of the NVML source's process lists."""

from __future__ import annotations

import os

import pytest
from helpers_nvml import STRANGER, Machine

from gpuwidget.model.gpu_process import Process
from gpuwidget.sources import nvml_messages
from gpuwidget.system import processes


def test_processes_are_listed_once_with_user_and_program(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process in both of the driver's lists is listed once, as compute, with its user and program; listing
    takes two NVML calls."""
    names = {7: processes.Identity("ada", "python train.py", "--lr 1")}
    monkeypatch.setattr(
        processes.ProcessDirectory, "look_up", lambda self, pid: names.get(pid, processes.UNKNOWN)
    )
    machine.says("gpu.0.compute=7:1024 8", "gpu.0.graphics=8:2048 9:4096 7:1024")
    source = machine.source()
    (gpu,) = source.open().gpus
    machine.calls()
    assert source.read_processes(gpu) == (
        Process(7, "compute", 1024, "ada", "python train.py", "--lr 1"),
        Process(8, "compute", 2048, None, None, None),
        Process(9, "graphics", 4096, None, None, None),
    )
    assert sum(machine.calls().values()) == 2


def test_this_process_is_found_by_its_pid(machine: Machine) -> None:
    """If the driver reports this pid namespace's process ids, a process is listed with its user and
    program."""
    machine.says("gpu.0.compute=self:5")
    source = machine.source()
    (gpu,) = source.open().gpus
    listed = source.read_processes(gpu)
    identity = processes.ProcessDirectory().look_up(os.getpid())
    assert identity.program is not None
    assert listed == (Process(os.getpid(), "compute", 5, *identity),)


def test_in_a_container_no_process_is_named(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a container, the host's process ids do not match, so the user and program of a process are
    unknown."""
    monkeypatch.setattr(processes, "in_host_pid_namespace", lambda: False)
    machine.says("gpu.0.compute=self:5")
    source = machine.source()
    (gpu,) = source.open().gpus
    assert source.read_processes(gpu) == (Process(os.getpid(), "compute", 5, None, None, None),)


def test_no_process_is_an_empty_list(machine: Machine) -> None:
    """A GPU without processes has an empty process list, not an unknown one."""
    source = machine.source()
    (gpu,) = source.open().gpus
    assert source.read_processes(gpu) == ()


def test_many_processes_and_one_on_several_slices(machine: Machine) -> None:
    """All processes are listed, however many; one that appears several times, once per MIG slice, is listed
    with its total memory."""
    machine.says("gpu.0.compute=" + " ".join(f"{STRANGER + n}:1" for n in range(70)) + f" {STRANGER}:2")
    source = machine.source()
    (gpu,) = source.open().gpus
    listed = source.read_processes(gpu)
    assert listed is not None
    assert [process.pid for process in listed] == [STRANGER + n for n in range(70)]
    assert listed[0].memory == 3


def test_processes_that_cannot_be_listed_have_a_reason(machine: Machine) -> None:
    """If a GPU's processes can't be listed, its readings contain the reason until they can be listed
    again."""
    machine.says("gpu.0.nvmlDeviceGetComputeRunningProcesses_v3=error 4")
    source = machine.source()
    (gpu,) = source.open().gpus
    assert source.read_processes(gpu) is None
    assert source.read_fast(gpu).missing == {"processes": "this user or container may not read it"}
    machine.says()
    assert source.read_processes(gpu) == ()
    assert source.read_fast(gpu).missing == {}


def test_a_list_that_fails_makes_all_processes_unknown(machine: Machine) -> None:
    """If either the compute or the graphics list fails, all processes are unknown; if the GPU does not
    support graphics, the compute list is enough."""
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
def test_process_lists_of_faulty_drivers_are_not_used(machine: Machine, driver: str, scrambled: bool) -> None:
    """With drivers 535.43 to 535.85, which report wrong pids and sizes, the process list is unknown, and the
    reason is reported."""
    machine.says(f"driver={driver}", f"gpu.0.compute={STRANGER}:1")
    source = machine.source()
    (gpu,) = source.open().gpus
    assert source.read_fast(gpu).missing == (
        {"processes": nvml_messages.SCRAMBLED_PROCESS_LISTS} if scrambled else {}
    )
    assert (source.read_processes(gpu) is None) == scrambled
