"""Where readings come from: one protocol, one module a source, and the choice among them.

A source answers for one GPU at a time, so that a call that hangs, or a GPU that is lost, is known by
name and the others go on. Its ``read_*`` methods may be called from two threads at once (the sampler's
fast and slow one) and may block for as long as the driver likes; ``open`` and ``close`` are called by
one thread at a time. No method may be called on a path that a user waits for.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from gpuwidget.model.clock import SYSTEM_CLOCK, Clock
from gpuwidget.model.errors import OptionError
from gpuwidget.model.samples import Activity, Gpu, Origin, Process

SOURCE_VARIABLE = "GPUWIDGET_SOURCE"
"""Environment variable that chooses the source of kernels, CLI and server."""


class Xid(NamedTuple):
    """An error that the driver reported of a GPU."""

    number: int
    time: float
    """When it was noticed, epoch seconds."""


@dataclass(frozen=True, slots=True)
class Inventory:
    """What opening a source found. No GPU is no error: ``origin.reason`` then says why."""

    origin: Origin
    gpus: tuple[Gpu, ...]
    xids: Mapping[str, Xid] = field(default_factory=dict)
    """By UUID the newest that is known of each GPU, also of those that were not found again."""


@dataclass(frozen=True, slots=True)
class FastReadings:
    """The cheap calls, made several times a second. Fields as in :class:`gpuwidget.model.samples.Reading`."""

    utilization: float | None
    memory_utilization: float | None
    memory_used: int | None
    power_w: float | None
    missing: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class StatusReadings:
    """Cheap calls for what changes slowly or is shown seldom, made about once a second."""

    power_limit_w: float | None
    temperature_c: float | None
    memory_temperature_c: float | None
    sm_clock_mhz: float | None
    pstate: int | None
    throttle: tuple[str, ...] | None
    missing: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class SlowReadings:
    """Calls that take milliseconds, made every few seconds on a thread of their own."""

    energy_j: float | None
    utilization_window: float | None
    ecc_uncorrected: int | None
    xid: int | None
    xid_time: float | None
    missing: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class UtilizationWindow:
    """One of the windows over which the driver takes utilization, with its own time."""

    until: float
    """Its end, epoch seconds."""
    utilization: float
    """Percent of it in which any kernel ran."""


class Source(Protocol):
    """Anything that can say what GPUs there are and what they read.

    Every ``read_*`` raises :class:`gpuwidget.model.errors.GpuLostError` where that GPU is lost,
    :class:`gpuwidget.model.errors.SourceLostError` where the source must be opened again, and nothing else:
    any other trouble is a None with its reason.
    """

    def open(self) -> Inventory:
        """Find the GPUs, with fresh handles; may be called again at any time to look anew.

        Never raises: a driver that is absent or broken gives no GPUs and the reason.
        """
        ...

    def close(self) -> None:
        """Let go of the driver. Safe to call twice, and while another thread's call hangs."""
        ...

    def read_fast(self, gpu: Gpu) -> FastReadings:
        """Utilization, memory and power of one GPU."""
        ...

    def read_memory(self, gpu: Gpu) -> int | None:
        """Bytes in use of one GPU, the same number as ``read_fast().memory_used``."""
        ...

    def read_processes(self, gpu: Gpu) -> tuple[Process, ...] | None:
        """Who has a context on one GPU; None where the driver does not say."""
        ...

    def read_status(self, gpu: Gpu) -> StatusReadings:
        """Temperature, clocks, power limit and throttle reasons of one GPU."""
        ...

    def read_slow(self, gpu: Gpu) -> SlowReadings:
        """What takes milliseconds to ask."""
        ...

    def read_utilization_windows(self, gpu: Gpu) -> tuple[UtilizationWindow, ...]:
        """The last windows of utilization, oldest first; empty where none are kept. Takes milliseconds."""
        ...

    def read_activity(self, gpu: Gpu) -> Activity | None:
        """The hardware counters since the previous call for this GPU.

        None at the first call, less than 100 ms after the last one, and where there is no GPM.
        """
        ...

    def stop_activity(self) -> None:
        """Let go of the counters' samples: nobody asks for activity any more."""
        ...


def open_source(choice: str | None = None, clock: Clock = SYSTEM_CLOCK) -> Source:
    """The source that ``choice`` names, not opened yet.

    ``choice`` is ``auto`` (NVML, else none with its reason), ``nvml``, ``replay`` or ``replay:PATH``
    (loops), ``replay-once:PATH`` or ``none``; without it the environment variable GPUWIDGET_SOURCE
    decides, and without that ``auto``. Raises OptionError for anything else.
    """
    text = choice if choice is not None else os.environ.get(SOURCE_VARIABLE, "")
    kind, _, path = (text.strip() or "auto").partition(":")
    if kind in ("auto", "nvml") and not path:
        from gpuwidget.sources.nvml import NvmlSource

        return NvmlSource(clock)
    if kind == "none" and not path:
        from gpuwidget.sources.none import NoSource

        return NoSource(f"{SOURCE_VARIABLE} is 'none': unset it to see this machine's GPUs.")
    if kind in ("replay", "replay-once") and (path or kind == "replay"):
        from gpuwidget.sources.replay import ReplaySource

        return ReplaySource(path or None, loop=kind == "replay", clock=clock)
    raise OptionError(
        f"{text!r} names no source of GPU readings. Use auto, nvml, replay, replay:PATH, "
        "replay-once:PATH or none."
    )
