"""A process that uses the first of two GPUs, and the driver's readings of it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
from fakes import FakeClock, FakeSource
from helpers_torch import make_torch

from gpuwidget.kernel.devices import default_device, device_choices
from gpuwidget.kernel.devices.device_choices import Observer
from gpuwidget.model.samples import Sample
from gpuwidget.sampler import Sampler
from gpuwidget.system import processes


def torch_in_use(monkeypatch: pytest.MonkeyPatch) -> Any:
    """torch's stand-in, with a context on ``cuda:0``."""
    made = make_torch()
    made.cuda.init()
    made.cuda.set_device(0)
    monkeypatch.setitem(sys.modules, "torch", made)
    return made


def observe(
    monkeypatch: pytest.MonkeyPatch,
    answer: Callable[[float], Sample | None],
    *,
    pids_match: bool,
    clock: FakeClock,
) -> None:
    """Set the readings of the process's one observer to ``answer``, which gets the timeout."""
    monkeypatch.setattr(device_choices, "in_host_pid_namespace", lambda: pids_match)
    monkeypatch.setattr(processes, "in_host_pid_namespace", lambda: pids_match)
    observer = Observer(Sampler(FakeSource(), clock), clock)
    monkeypatch.setattr(observer, "look", answer)
    monkeypatch.setattr(default_device, "observer", lambda: observer)
