"""Which devices are offered, with which GPU behind each, before CUDA is up and after."""

from __future__ import annotations

import os
import sys
import threading
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest
from fakes import FakeClock, FakeSource
from helpers_samples import GIB, LIVE, h200, process, reading, sample
from helpers_torch import make_torch

from gpuwidget.kernel.devices import default_device, device_choices
from gpuwidget.kernel.devices.device_choices import CPU, Choices, Observer, check
from gpuwidget.model.errors import OptionError
from gpuwidget.model.kernel_state import DeviceChoice
from gpuwidget.sampler import Sampler
from gpuwidget.sources import Inventory
from gpuwidget.system.processes import own_user

_PATIENCE_S = 30.0

ONE, TWO = h200(0), h200(1)
NOW = sample((ONE, reading(ONE)), (TWO, reading(TWO, memory_used=20 * GIB)))
NOBODY = replace(
    NOW, origin=replace(LIVE, kind="none", reason="No NVIDIA driver was found."), gpus=(), readings=()
)


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Any:
    made = make_torch()
    monkeypatch.setitem(sys.modules, "torch", made)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return made


@pytest.fixture
def observer(monkeypatch: pytest.MonkeyPatch) -> Observer:
    monkeypatch.setattr(device_choices, "in_host_pid_namespace", lambda: True)
    return Observer(Sampler(FakeSource(), FakeClock()))


def of(choices: Choices) -> list[tuple[str, int | None]]:
    """Each device with NVML's index of the GPU behind it."""
    return [(choice.device, choice.index) for choice in choices.devices]


def test_each_device_has_its_gpu(torch: Any, observer: Observer) -> None:
    """Model, capability, free memory and who is on it, as the driver says."""
    torch.cuda.init()
    held = (
        process(11, GIB, program="train.py", arguments="--lr 1"),
        process(13, GIB, user=own_user(), program="python x.py", arguments="--lr 2"),
        process(os.getpid(), GIB),
        process(12, GIB, user=None, program=None),
    )
    now = sample((ONE, reading(ONE)), (TWO, reading(TWO, memory_used=20 * GIB, processes=held)))
    assert observer.choices(now).devices[2] == DeviceChoice(
        device="cuda:1",
        uuid=TWO.uuid,
        index=1,
        name="NVIDIA H200",
        compute_capability="9.0",
        memory_total=140 * GIB,
        memory_free=120 * GIB,
        holders=(
            "this notebook",
            "another process of another user",
            "another process: python x.py",
            "another process (12)",
        ),
    )
    assert default_device.label(observer.choices(now).devices[2]) == (
        "cuda:1 · GPU 1 H200 · 9.0 · 120.0 GiB free · this notebook, another process of another user, "
        "another process: python x.py, another process (12)"
    )
    # The panel's list is not saved.
    assert observer.choices(now, live=True).devices[2].holders == (
        "this notebook",
        "anna: train.py --lr 1",
        f"{own_user()}: python x.py --lr 2",
        "process 12",
    )


def test_before_cuda_is_up(torch: Any, observer: Observer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which GPU each will be is told without starting CUDA, CUDA_VISIBLE_DEVICES considered."""
    assert of(observer.choices(NOW)) == [("cpu", None), ("cuda:0", 0), ("cuda:1", 1)]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert of(observer.choices(NOW)) == [("cpu", None), ("cuda:0", 1)]
    assert torch.cuda.is_initialized() is False


def test_gpus_that_differ(torch: Any, observer: Observer) -> None:
    """Where nobody can say yet which is which, the devices are offered without a GPU."""
    mixed = sample((ONE, reading(ONE)), (h200(1, name="NVIDIA T4"), reading(TWO)))
    choices = observer.choices(mixed)
    assert of(choices) == [("cpu", None), ("cuda:0", None), ("cuda:1", None)]
    assert (
        default_device.label(choices.devices[1])
        == "cuda:0 · which GPU will be known once your code has started CUDA"
    )


def test_a_recordings_gpus_are_not_this_machines(torch: Any, observer: Observer) -> None:
    """They are no choice, and CUDA's devices can't be counted yet: any cuda:N is taken."""
    choices = observer.choices(replace(NOW, origin=replace(LIVE, kind="replay")))
    assert (of(choices), choices.complete) == ([("cpu", None)], False)
    check("cuda:3", choices, NOW)


def test_no_gpu(torch: Any, observer: Observer) -> None:
    """The driver's own reason is given."""
    choices = observer.choices(NOBODY)
    assert choices == Choices((CPU,), "No NVIDIA driver was found.", complete=True)
    with pytest.raises(OptionError, match=r"^cuda:0: No NVIDIA driver was found\.$"):
        check("cuda:0", choices, NOBODY)


def test_torch_is_not_installed(observer: Observer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing can be chosen in an environment without torch, and that is said."""
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    choices = observer.choices(NOW)
    reason = "torch is not installed in this kernel's environment."
    assert choices == Choices((), reason, complete=True)
    for device in ("cpu", "cuda:0"):
        with pytest.raises(OptionError, match=f"^{device}: {reason}$"):
            check(device, choices, NOW)


def test_names_before_cuda_is_up(torch: Any, observer: Observer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A card has this notebook's name for its GPU from the first, joined as the choices are."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,0")
    assert [gpu.torch_device for gpu in observer.gpus(NOW)] == ["cuda:1", "cuda:0"]


def test_what_the_driver_keeps_is_not_free(torch: Any, observer: Observer) -> None:
    """Free is what is left of the total without what is used and without what the driver reserves."""
    now = sample((replace(ONE, memory_reserved=GIB), reading(ONE)))
    assert observer.choices(now).devices[1].memory_free == (140 - 60 - 1) * GIB


def test_what_this_kernel_has_on_each_gpu(torch: Any, observer: Observer) -> None:
    """A context shows from its first moment, and stays after 'none'."""
    torch.cuda.set_device(1)
    assert [(gpu.uuid, gpu.torch_device, gpu.context) for gpu in observer.gpus(NOW)] == [
        (ONE.uuid, "cuda:0", False),
        (TWO.uuid, "cuda:1", True),
    ]


def test_a_look_sees_what_is_now() -> None:
    """A view that asks after a cell sees what that cell took, and nothing goes on sampling for it."""
    source = FakeSource(2)
    sampler = Sampler(source)
    observer = Observer(sampler)
    for used in (2 * GIB, 3 * GIB):
        source.memory[1] = used
        now = observer.look(_PATIENCE_S)
        assert now is not None
        assert [reading.memory_used for reading in now.readings] == [1_000_000, used]
        assert not sampler.wanted
    sampler.stop()


def test_a_silent_driver_is_asked_once() -> None:
    """However often a view asks while the driver is silent, one question waits for its answer."""
    source, asked = FakeSource(), threading.Event()

    def silent() -> Inventory:
        asked.wait(10)
        return found()

    found, source.open = source.open, silent  # type: ignore[method-assign]
    sampler = Sampler(source)
    observer = Observer(sampler)
    for _ in range(5):
        assert observer.look(0.0) is None
    assert len(sampler._subscriptions._all) == 1
    asked.set()
    sampler.stop()


def test_a_module_that_only_bears_torchs_name(monkeypatch: pytest.MonkeyPatch, observer: Observer) -> None:
    """A stand-in of the user's, which came from no file, is no torch, and no error either."""
    monkeypatch.setitem(sys.modules, "torch", ModuleType("torch"))
    assert observer.choices(NOW).unavailable == "torch is not installed in this kernel's environment."
