"""Tests of finding the lines that switch the current CUDA device or first use a device."""

from __future__ import annotations

import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from gpuwidget.model.torch_state import CodeLine, DeviceChanges
from gpuwidget.pytorch.device_changes import DeviceChangeTracker

CODE = """\
def work(torch, count):
    for number in range(count):
        torch._C._cuda_setDevice(number % 2)
    torch._C._cuda_setDevice(0)
    with torch.cuda.device(2):
        pass
    torch.cuda.mem_get_info("cuda:3")
    torch.cuda.mem_get_info(device=4)
"""
FILE = "/home/me/train.py"


class Block:
    """A stand-in for ``torch.cuda.device``."""

    def __init__(self, index: int) -> None:
        self.idx = index

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a stand-in for torch that counts the calls of ``_cuda_setDevice``."""
    calls: list[int] = []
    made = SimpleNamespace(
        calls=calls,
        _C=SimpleNamespace(_cuda_setDevice=calls.append),
        cuda=SimpleNamespace(
            is_initialized=lambda: True,
            device=type("Block", (Block,), dict(vars(Block))),
            mem_get_info=lambda device=None: (device, 0),
        ),
    )
    monkeypatch.setitem(sys.modules, "torch", made)
    return made


def work(torch: Any, count: int) -> None:
    """Run :data:`CODE` as code of the user's file :data:`FILE`."""
    names: dict[str, Any] = {}
    exec(compile(CODE, FILE, "exec"), names)
    names["work"](torch, count)


def test_switches_and_first_lines(torch: Any) -> None:
    """The switches are counted, and each device has the line that first used it. torch's functions run as
    before."""
    tracker = DeviceChangeTracker()
    scope = tracker.open()
    work(torch, 1000)
    assert torch.calls == [*range(2)] * 500 + [0]
    assert torch.cuda.mem_get_info("cuda:0") == ("cuda:0", 0)
    assert scope.changes() == DeviceChanges(
        switches=1000,
        switching_line=CodeLine(FILE, 3),
        first_lines={
            0: CodeLine(FILE, 3),
            1: CodeLine(FILE, 3),
            2: CodeLine(FILE, 5),
            3: CodeLine(FILE, 7),
            4: CodeLine(FILE, 8),
        },
    )
    tracker.close(scope)


def test_setting_the_same_device_again_is_no_switch(torch: Any) -> None:
    """A call that selects the thread's current device again is not counted. Each thread has its own."""
    tracker = DeviceChangeTracker()
    scope = tracker.open()
    for index in range(2):
        thread = threading.Thread(
            target=lambda *devices: [*map(torch._C._cuda_setDevice, devices)], args=[index] * 9
        )
        thread.start()
        thread.join()
    assert scope.changes().switches == 0
    tracker.close(scope)


def test_torchs_functions_are_restored(torch: Any) -> None:
    """When the last of several runs ends, torch's functions are the original ones."""
    before = (torch._C._cuda_setDevice, torch.cuda.device.__enter__, torch.cuda.mem_get_info)
    tracker = DeviceChangeTracker()
    first, second = tracker.open(), tracker.open()
    tracker.close(first)
    work(torch, 4)
    tracker.close(second)
    tracker.close(second)
    assert (first.changes().switches, second.changes().switches) == (0, 4)
    assert (torch._C._cuda_setDevice, torch.cuda.device.__enter__, torch.cuda.mem_get_info) == before


def test_the_real_torch() -> None:
    """The functions of the real torch are observed, and restored at the end."""
    real: Any = pytest.importorskip("torch")
    before = (real.cuda.device.__enter__, real.cuda.mem_get_info)
    tracker = DeviceChangeTracker()
    scope = tracker.open()
    assert (real.cuda.device.__enter__, real.cuda.mem_get_info) != before
    with real.cuda.device(-1):  # does nothing, also without a GPU
        pass
    assert scope.changes() == DeviceChanges()
    tracker.close(scope)
    assert (real.cuda.device.__enter__, real.cuda.mem_get_info) == before


def test_a_torch_that_the_run_imports(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """If torch is imported during the run, its functions are observed from the next sample on."""
    monkeypatch.delitem(sys.modules, "torch")
    tracker = DeviceChangeTracker()
    scope = tracker.open()
    monkeypatch.setitem(sys.modules, "torch", torch)
    tracker.watch()
    work(torch, 3)
    assert scope.changes().switches == 2
    tracker.close(scope)


def test_the_device_switch_is_not_the_users_code(torch: Any) -> None:
    """If gpuwidget's device switch selects a device in a call of the user's code, no line is recorded."""
    tracker = DeviceChangeTracker()
    scope = tracker.open()
    ours: dict[str, Any] = {"__name__": "gpuwidget.pytorch.device_switch"}
    exec("def select(torch): torch._C._cuda_setDevice(1)", ours)
    names: dict[str, Any] = {}
    exec(compile("def work(torch, select): select(torch)", FILE, "exec"), names)
    names["work"](torch, ours["select"])
    assert scope.changes().first_lines == {}
    tracker.close(scope)
