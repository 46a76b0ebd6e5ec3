"""Tests of the lists of processes that the NVML source reads."""

from __future__ import annotations

import os

import pytest
from helpers_nvml import NO_PROCESS, Machine

from gpuwidget.model.gpu_process import Process
from gpuwidget.sources import nvml_messages
from gpuwidget.system import processes


def test_processes_are_listed_once_with_user_and_program(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is in both of the driver's lists, compute and graphics, is listed once as compute, with
    its user and program. This takes two NVML calls."""
    names = {7: processes.Identity("ada", "python train.py")}
    monkeypatch.setattr(
        processes.ProcessDirectory, "look_up", lambda self, pid: names.get(pid, processes.UNKNOWN)
    )
    machine.set_scenario("gpu.0.compute=7:1024 8", "gpu.0.graphics=8:2048 9:4096 7:1024")
    source = machine.source()
    (gpu,) = source.open().gpus
    machine.calls()
    assert source.read(gpu, "processes").values["processes"] == (
        Process(7, "compute", 1024, "ada", "python train.py"),
        Process(8, "compute", 2048, None, None),
        Process(9, "graphics", 4096, None, None),
    )
    assert sum(machine.calls().values()) == 2


def test_this_process_is_found_by_its_pid(machine: Machine) -> None:
    """If the driver reports process ids of this pid namespace, processes are listed with their user and
    program."""
    machine.set_scenario("gpu.0.compute=self:5")
    source = machine.source()
    (gpu,) = source.open().gpus
    listed = source.read(gpu, "processes").values["processes"]
    identity = processes.ProcessDirectory().look_up(os.getpid())
    assert identity.program is not None
    assert listed == (Process(os.getpid(), "compute", 5, *identity),)


def test_in_a_container_no_process_is_named(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a container, the driver reports process ids of the host, which mean nothing in the container. The
    user and program of processes are therefore unknown."""
    monkeypatch.setattr(processes, "in_host_pid_namespace", lambda: False)
    machine.set_scenario("gpu.0.compute=self:5")
    source = machine.source()
    (gpu,) = source.open().gpus
    assert source.read(gpu, "processes").values["processes"] == (
        Process(os.getpid(), "compute", 5, None, None),
    )


def test_no_process_is_an_empty_list(machine: Machine) -> None:
    """For a GPU without processes, the list of processes is empty, not unknown."""
    source = machine.source()
    (gpu,) = source.open().gpus
    assert source.read(gpu, "processes").values["processes"] == ()


def test_many_processes_and_one_on_several_slices(machine: Machine) -> None:
    """Any number of processes can be listed. A process that the driver lists several times, once for each MIG
    slice, is listed once with its total memory."""
    machine.set_scenario(
        "gpu.0.compute=" + " ".join(f"{NO_PROCESS + n}:1" for n in range(70)) + f" {NO_PROCESS}:2"
    )
    source = machine.source()
    (gpu,) = source.open().gpus
    listed = source.read(gpu, "processes").values["processes"]
    assert listed is not None
    assert [process.pid for process in listed] == [NO_PROCESS + n for n in range(70)]
    assert listed[0].memory == 3


def test_processes_that_cannot_be_listed_have_a_reason(machine: Machine) -> None:
    """If the processes on a GPU can't be listed, its readings contain the reason until listing works
    again."""
    machine.set_scenario("gpu.0.nvmlDeviceGetComputeRunningProcesses_v3=error 4")
    source = machine.source()
    (gpu,) = source.open().gpus
    assert source.read(gpu, "processes") == ({"processes": None}, {"processes": nvml_messages.TRANSIENT[4]})
    machine.set_scenario()
    assert source.read(gpu, "processes") == ({"processes": ()}, {})


def test_a_list_that_fails_makes_all_processes_unknown(machine: Machine) -> None:
    """If the driver can't return the compute or the graphics list, all processes are unknown. If the GPU does
    not support graphics, the compute list is complete."""
    machine.set_scenario(
        f"gpu.0.compute={NO_PROCESS}:1", "gpu.0.nvmlDeviceGetGraphicsRunningProcesses_v3=error 999"
    )
    source = machine.source()
    (gpu,) = source.open().gpus
    assert source.read(gpu, "processes").values["processes"] is None
    machine.set_scenario(
        f"gpu.0.compute={NO_PROCESS}:1",
        "gpu.0.nvmlDeviceGetGraphicsRunningProcesses_v3=error 3",
        "gpu.0.nvmlDeviceGetGraphicsRunningProcesses_v2=error 3",
    )
    listed = source.read(gpu, "processes").values["processes"]
    assert listed is not None
    assert [process.pid for process in listed] == [NO_PROCESS]


@pytest.mark.parametrize(
    ("driver", "scrambled"),
    [("535.43.02", True), ("535.54.03", True), ("535.86.05", False), ("580.159.04", False), ("x", False)],
)
def test_process_lists_of_faulty_drivers_are_not_used(machine: Machine, driver: str, scrambled: bool) -> None:
    """Drivers 535.43 to 535.85 report wrong pids and sizes, so with these drivers the processes are unknown,
    and the reason is reported."""
    machine.set_scenario(f"driver={driver}", f"gpu.0.compute={NO_PROCESS}:1")
    source = machine.source()
    (gpu,) = source.open().gpus
    values, missing = source.read(gpu, "processes")
    assert missing == ({"processes": nvml_messages.SCRAMBLED_PROCESS_LISTS} if scrambled else {})
    assert (values["processes"] is None) == scrambled


def test_a_driver_that_always_requires_more_room(machine: Machine) -> None:
    """If the driver finds every list too short, the processes are unknown. The list does not grow until the
    machine has no memory left."""
    machine.set_scenario("gpu.0.nvmlDeviceGetComputeRunningProcesses_v3=error 7")
    source = machine.source()
    (gpu,) = source.open().gpus
    machine.calls()
    listed = source.read(gpu, "processes")
    assert sum(machine.calls().values()) == 10
    assert (listed.values["processes"], set(listed.missing)) == (None, {"processes"})
