"""A stand-in for torch that uses the first of two GPUs,
and a GPU monitor with samples that a test provides."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
from fakes import FakeClock, FakeSource
from helpers_torch import make_torch

from gpuwidget.kernel.devices import default_device
from gpuwidget.kernel.devices.device_choices import GpuMonitor
from gpuwidget.model.samples import Sample
from gpuwidget.sampler import Sampler
from gpuwidget.system import processes


def torch_in_use(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Replace torch by a stand-in that has a context on ``cuda:0``; return the stand-in."""
    made = make_torch()
    made.cuda.init()
    made.cuda.set_device(0)
    monkeypatch.setitem(sys.modules, "torch", made)
    return made


def fake_monitor(
    monkeypatch: pytest.MonkeyPatch,
    read: Callable[[float], Sample | None],
    *,
    pids_match: bool,
    clock: FakeClock,
) -> None:
    """Replace this process's GPU monitor with one whose samples come from ``read(timeout_s)``."""
    monkeypatch.setattr(processes, "in_host_pid_namespace", lambda: pids_match)
    monitor = GpuMonitor(Sampler(FakeSource(), clock), clock)
    monkeypatch.setattr(monitor, "read", read)
    monkeypatch.setattr(default_device, "monitor", lambda: monitor)
