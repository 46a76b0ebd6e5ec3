"""Sources of GPU readings: the protocol, one module per source, and the choice among them.

A source reads one GPU per call, so that the sampler can tell which GPU hangs or is lost and go on with the
others. Two threads (the sampler's fast and slow one) may call the ``read_*`` methods at once, and a call may
block for as long as the driver does; ``open`` and ``close`` are called by one thread at a time. No code that
a user waits for may call a source. Start with the protocol :class:`Source`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from gpuwidget.model.clock import SYSTEM_CLOCK, Clock
from gpuwidget.model.errors import OptionError
from gpuwidget.model.gpu_process import Process
from gpuwidget.model.readings import Activity, FastReadings, SlowReadings, StatusReadings
from gpuwidget.model.samples import Gpu, Origin

SOURCE_VARIABLE = "GPUWIDGET_SOURCE"
"""Environment variable that selects the source of kernels, CLI and server."""


class Xid(NamedTuple):
    """An error of a GPU that the driver reported."""

    number: int
    time: float
    """When the source read it, epoch seconds."""


@dataclass(frozen=True, slots=True)
class Inventory:
    """The result of opening a source. Finding no GPU is no error: ``origin.reason`` then gives the reason."""

    origin: Origin
    gpus: tuple[Gpu, ...]
    xids: Mapping[str, Xid] = field(default_factory=dict)
    """The newest known XID of each GPU by UUID, also of GPUs that were not found again."""


@dataclass(frozen=True, slots=True)
class UtilizationWindow:
    """One window over which the driver averages utilization."""

    until: float
    """Its end, epoch seconds."""
    utilization: float
    """Percent of it in which any kernel ran."""


class Source(Protocol):
    """A source of GPU readings.

    Every ``read_*`` raises :class:`gpuwidget.model.errors.GpuLostError` where that GPU is lost and
    :class:`gpuwidget.model.errors.SourceLostError` where the source must be opened again. It raises nothing
    else: after any other failure the value is None, with its reason.
    """

    def open(self) -> Inventory:
        """Find the GPUs and renew their handles; may be called again at any time.

        Never raises: where the driver is absent or broken, the result has no GPUs and the reason.
        """
        ...

    def close(self) -> None:
        """Close the driver. Safe to call twice, and while another thread's call hangs."""
        ...

    def read_fast(self, gpu: Gpu) -> FastReadings:
        """Return utilization, memory and power of one GPU."""
        ...

    def read_memory(self, gpu: Gpu) -> int | None:
        """Return the bytes in use of one GPU, the same number as ``read_fast().memory_used``."""
        ...

    def read_processes(self, gpu: Gpu) -> tuple[Process, ...] | None:
        """Return the processes with a context on one GPU; None where the driver does not list them."""
        ...

    def read_status(self, gpu: Gpu) -> StatusReadings:
        """Return temperatures, clock, power limit, P-state and throttle reasons of one GPU."""
        ...

    def read_slow(self, gpu: Gpu) -> SlowReadings:
        """Return the values whose calls take milliseconds."""
        ...

    def read_utilization_windows(self, gpu: Gpu) -> tuple[UtilizationWindow, ...]:
        """Return the last utilization windows, oldest first; empty where none are kept. Takes
        milliseconds."""
        ...

    def read_activity(self, gpu: Gpu) -> Activity | None:
        """Return the hardware counters since the previous call for this GPU.

        None at the first call, less than 100 ms after the last one, and where there is no GPM.
        """
        ...

    def stop_activity(self) -> None:
        """Free the samples of the hardware counters, which no subscription wants any more."""
        ...


def open_source(choice: str | None = None, clock: Clock = SYSTEM_CLOCK) -> Source:
    """Return the source that ``choice`` names, not opened yet.

    ``choice`` is ``auto`` (NVML, or no GPU and the reason), ``nvml``, ``replay`` or ``replay:PATH`` (loops),
    ``replay-once:PATH`` or ``none``. Without it the environment variable GPUWIDGET_SOURCE applies, and
    without that ``auto``. Raises OptionError for anything else.
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
