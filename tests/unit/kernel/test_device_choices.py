"""Tests of the devices that a user can choose and of each device's GPU, before and after CUDA is
initialized."""

from __future__ import annotations

import os
import sys
import threading
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest
from fakes import FakeClock, FakeSource
from helpers_nvml import Machine
from helpers_samples import GIB, LIVE, h200, process, reading, sample
from helpers_torch import make_torch
from nvml_standin import profiles

from gpuwidget import pytorch
from gpuwidget.kernel.devices import default_device
from gpuwidget.kernel.devices.device_choices import CPU, DeviceChoices, GpuMonitor, check_device
from gpuwidget.measure.device_order import ORDER_UNKNOWN
from gpuwidget.model.errors import OptionError
from gpuwidget.model.kernel_state import CandidateGpu, DeviceChoice
from gpuwidget.model.messages import MessageId, message
from gpuwidget.model.samples import Sample, unopened_gpu
from gpuwidget.sampler import Sampler
from gpuwidget.sources import Inventory
from gpuwidget.sources.nvml import NvmlSource
from gpuwidget.system import processes
from gpuwidget.system.processes import own_user

_TIMEOUT_S = 30.0

ONE, TWO = h200(0), h200(1)
T4 = h200(1, name="NVIDIA T4", compute_capability="7.5", memory_total=16 * GIB)
NOW = sample((ONE, reading(ONE)), (TWO, reading(TWO, memory_used=20 * GIB)))
NOBODY = replace(
    NOW,
    origin=replace(LIVE, kind="none", reason=message("test", "No NVIDIA driver was found.")),
    gpus=(),
    readings=(),
)


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Any:
    made = make_torch()
    monkeypatch.setitem(sys.modules, "torch", made)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return made


@pytest.fixture
def monitor(monkeypatch: pytest.MonkeyPatch) -> GpuMonitor:
    monkeypatch.setattr(processes, "in_host_pid_namespace", lambda: True)
    return GpuMonitor(Sampler(FakeSource(), FakeClock()))


def of(choices: DeviceChoices) -> list[tuple[str, int | None]]:
    """Return the name of each device with the NVML index of its GPU."""
    return [(choice.device, choice.index) for choice in choices.devices]


def test_each_device_has_its_gpu(torch: Any, monitor: GpuMonitor) -> None:
    """Each device is listed with its GPU's model, compute capability, free memory and the holders of its
    memory."""
    torch.cuda.init()
    held = (
        process(11, GIB, program="train.py"),
        process(13, GIB, user=own_user(), program="python x.py"),
        process(os.getpid(), GIB),
        process(12, GIB, user=None, program=None),
        process(0, GIB, user=None, program=None),
    )
    now = sample((ONE, reading(ONE)), (TWO, reading(TWO, memory_used=20 * GIB, processes=held)))
    assert monitor.device_choices(now).devices[2] == DeviceChoice(
        device="cuda:1",
        uuid=TWO.uuid,
        index=1,
        name="NVIDIA H200",
        compute_capability="9.0",
        memory_total=140 * GIB,
        memory_free=120 * GIB,
        unified_memory=False,
        holders=(
            "this notebook",
            "another process of another user",
            "another process: python x.py",
            "another process (12)",
            "another process",
        ),
        candidates=(),
    )
    assert default_device.label(monitor.device_choices(now).devices[2]) == (
        "cuda:1 · GPU 1 H200 (compute capability 9.0) · 120.0 GiB free · this notebook, "
        "another process of another user, another process: python x.py, another process (12), another process"
    )
    # With live=True, the list is for the side panel. Unlike a cell's output, it is not saved in the
    # notebook, so it may contain user names.
    assert monitor.device_choices(now, live=True).devices[2].holders == (
        "this notebook",
        "anna: train.py",
        f"{own_user()}: python x.py",
        "process 12",
        "unknown process",
    )


def test_this_notebook_in_a_container(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a container, a holder is called this notebook once this process has a CUDA context on a GPU and is
    in the driver's list of that GPU."""
    monkeypatch.setattr(processes, "in_host_pid_namespace", lambda: False)
    monitor = GpuMonitor(Sampler(FakeSource(), FakeClock()))
    held = reading(ONE, processes=(process(os.getpid(), GIB, user=None, program=None),))
    now = sample((ONE, held), (TWO, reading(TWO)))
    assert monitor.holders(now, held) == [(f"another process ({os.getpid()})", GIB)]
    torch.cuda.set_device(0)
    assert monitor.holders(now, held) == [("this notebook", GIB)]
    assert monitor.device_choices(now).devices[1].holders == ("this notebook",)


def test_a_gpu_with_unified_memory_is_labeled(
    torch: Any, monitor: GpuMonitor, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`%gpu device` says that a GPU uses the host's memory. Of this memory, what Linux calls available is
    free, also for `--need`."""
    host = processes.HostMemory(total=128 * GIB, used=40 * GIB)
    monkeypatch.setattr(processes, "host_memory", lambda: host)
    machine.set_scenario(*profiles.machine("GB10"))
    clock = FakeClock()
    sampler = Sampler(NvmlSource(clock), clock)
    taken: list[Sample] = []
    with sampler.subscribe(taken.append):
        clock.until(lambda: bool(taken))
    sampler.stop()
    choice = monitor.device_choices(taken[-1]).devices[1]
    assert (choice.unified_memory, choice.memory_free) == (True, host.total - host.used)
    assert (
        default_device.label(choice)
        == "cuda:0 · GPU 0 GB10 (compute capability 12.1) · 88.0 GiB free (unified memory)"
    )


def test_a_gpu_that_could_not_be_opened_is_no_device(torch: Any, monitor: GpuMonitor) -> None:
    """A GPU that was lost before CUDA started is not counted among CUDA's devices."""
    lost = unopened_gpu(0)
    now = sample((lost, reading(lost, lost_since=1.0, memory_used=None)), (TWO, reading(TWO)))
    assert of(monitor.device_choices(now)) == [("cpu", None), ("cuda:0", 1)]


def test_choices_before_cuda_is_initialized(
    torch: Any, monitor: GpuMonitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The GPU of each device is known before CUDA is initialized, with CUDA_VISIBLE_DEVICES taken into
    account."""
    assert of(monitor.device_choices(NOW)) == [("cpu", None), ("cuda:0", 0), ("cuda:1", 1)]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert of(monitor.device_choices(NOW)) == [("cpu", None), ("cuda:0", 1)]
    assert torch.cuda.is_initialized() is False


def test_gpus_that_differ(torch: Any, monitor: GpuMonitor) -> None:
    """If the GPUs are of different models, their CUDA order is unknown until CUDA is initialized.

    Until then, each device is listed with the GPUs that it may be. Their models and memory are known.
    """
    mixed = sample((ONE, reading(ONE)), (T4, reading(T4, memory_used=GIB)))
    choices = monitor.device_choices(mixed)
    assert of(choices) == [("cpu", None), ("cuda:0", None), ("cuda:1", None)]
    assert default_device.label(choices.devices[1]) == (
        "cuda:0 · H200 / T4 · known once your code has started CUDA"
    )
    candidates = (
        CandidateGpu(ONE.uuid, 0, "NVIDIA H200", "9.0", 140 * GIB, 80 * GIB, unified_memory=False),
        CandidateGpu(T4.uuid, 1, "NVIDIA T4", "7.5", 16 * GIB, 15 * GIB, unified_memory=False),
    )
    assert [choice.candidates for choice in choices.devices] == [(), candidates, candidates]
    assert (choices.order.source, [note.id for note in choices.order.note_ids]) == (
        None,
        ["device-order-unknown"],
    )
    assert torch.cuda.is_initialized() is False


def test_the_order_is_verified_once_cuda_has_started(
    torch: Any, monitor: GpuMonitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before CUDA starts, the order follows from the environment. Then it is CUDA's, and a note says which
    GPU a device is if it is not the expected one."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,0")
    expected = monitor.device_choices(NOW)
    assert (expected.order.source, of(expected)[1]) == ("environment", ("cuda:0", 1))
    torch.cuda.init()
    verified = monitor.device_choices(NOW)
    assert (verified.order.source, of(verified)[1]) == ("cuda", ("cuda:0", 0))
    assert verified.order.note_ids == (
        MessageId("device-order-unlike-expected", {"device": "cuda:0", "gpu": 0, "expected": 1}),
    )


def test_listing_different_gpus(torch: Any, monitor: GpuMonitor, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before CUDA starts, %gpu device lists every GPU's model and memory, and says why the order is
    unknown."""
    mixed = sample((ONE, reading(ONE)), (T4, reading(T4, memory_used=GIB)))
    monkeypatch.setattr(monitor, "read", lambda timeout_s: mixed)
    monkeypatch.setattr(default_device, "monitor", lambda: monitor)
    assert default_device.describe_devices().splitlines()[1:-1] == [
        "  cpu",
        "  cuda:0 · H200 / T4 · known once your code has started CUDA",
        "  cuda:1 · H200 / T4 · known once your code has started CUDA",
        "GPUs of this machine, with nvidia-smi's numbers:",
        "  GPU 0 H200 (compute capability 9.0) · 80.0 of 140.0 GiB free",
        "  GPU 1 T4 (compute capability 7.5) · 15.0 of 16.0 GiB free",
    ]
    assert default_device.describe_devices().splitlines()[-1] == ORDER_UNKNOWN


def test_gpus_of_a_recording_are_no_devices(torch: Any, monitor: GpuMonitor) -> None:
    """The GPUs of a recording are not listed as devices.

    The CUDA devices of this machine are unknown in that case, so any cuda:N is accepted.
    """
    choices = monitor.device_choices(replace(NOW, origin=replace(LIVE, kind="replay")))
    assert (of(choices), choices.complete) == ([("cpu", None)], False)
    check_device("cuda:3", choices)


def test_no_gpu(torch: Any, monitor: GpuMonitor) -> None:
    """On a machine without a GPU, choosing a CUDA device raises an error with the reason why there is no
    GPU."""
    choices = monitor.device_choices(NOBODY)
    assert choices == DeviceChoices((CPU,), "No NVIDIA driver was found.", complete=True)
    with pytest.raises(OptionError, match=r"^cuda:0: No NVIDIA driver was found\.$"):
        check_device("cuda:0", choices)


def test_torch_is_not_installed(monitor: GpuMonitor, monkeypatch: pytest.MonkeyPatch) -> None:
    """If torch is not installed, no device can be chosen, and the error gives that reason."""
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    choices = monitor.device_choices(NOW)
    reason = "torch is not installed in this kernel's environment."
    assert choices == DeviceChoices((), reason, complete=True)
    for device in ("cpu", "cuda:0"):
        with pytest.raises(OptionError, match=f"^{device}: {reason}$"):
            check_device(device, choices)


def test_names_before_cuda_is_initialized(
    torch: Any, monitor: GpuMonitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before CUDA is initialized, each GPU has the same device name on cards as in the list of device
    choices."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,0")
    assert [gpu.torch_device for gpu in monitor.kernel_gpus(NOW)] == ["cuda:1", "cuda:0"]


def test_a_torch_without_cuda_has_no_name_for_a_gpu(
    torch: Any, monitor: GpuMonitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a torch that was built for the CPU only, no GPU is labeled cuda:N."""
    monkeypatch.setattr(pytorch, "no_cuda_build_reason", lambda: "torch was built without CUDA")
    assert [gpu.torch_device for gpu in monitor.kernel_gpus(NOW)] == [None, None]


def test_memory_reserved_by_the_driver_is_not_free(torch: Any, monitor: GpuMonitor) -> None:
    """Free memory is the total minus the used memory and the memory that the driver reserves."""
    now = sample((replace(ONE, memory_reserved=GIB), reading(ONE)))
    assert monitor.device_choices(now).devices[1].memory_free == (140 - 60 - 1) * GIB


def test_contexts_of_this_kernel(torch: Any, monitor: GpuMonitor) -> None:
    """If this kernel has opened a CUDA context on one GPU, the context is reported for that GPU and for no
    other GPU."""
    torch.cuda.set_device(1)
    assert [(gpu.uuid, gpu.torch_device, gpu.context) for gpu in monitor.kernel_gpus(NOW)] == [
        (ONE.uuid, "cuda:0", False),
        (TWO.uuid, "cuda:1", True),
    ]


def test_a_reading_is_new() -> None:
    """A reading includes memory that was allocated just before the reading, and sampling stops afterwards."""
    source = FakeSource(2)
    sampler = Sampler(source)
    monitor = GpuMonitor(sampler)
    for used in (2 * GIB, 3 * GIB):
        source.memory[1] = used
        now = monitor.read(_TIMEOUT_S)
        assert now is not None
        assert [reading.memory_used for reading in now.readings] == [1_000_000, used]
        assert not sampler.wanted
    sampler.stop()


def test_one_pending_reading_of_a_silent_driver() -> None:
    """If the driver does not answer, repeated attempts to read it leave only one subscription open."""
    source, answered = FakeSource(), threading.Event()

    def silent() -> Inventory:
        answered.wait(10)
        return found()

    found, source.open = source.open, silent  # type: ignore[method-assign]
    sampler = Sampler(source)
    monitor = GpuMonitor(sampler)
    for _ in range(5):
        assert monitor.read(0.0) is None
    assert len(sampler._subscriptions._all) == 1
    answered.set()
    sampler.stop()


def test_another_module_named_torch(monkeypatch: pytest.MonkeyPatch, monitor: GpuMonitor) -> None:
    """If a user's own module is named torch, the device list reports that torch is not installed."""
    monkeypatch.setitem(sys.modules, "torch", ModuleType("torch"))
    assert monitor.device_choices(NOW).unavailable == "torch is not installed in this kernel's environment."
