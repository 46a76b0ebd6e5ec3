"""Sources of GPU readings: the protocol, the function that selects a source, and one module per source.

A source reads one GPU per call, so that the sampler can tell which GPU hangs or is lost, and can continue
with the others. The sampler's fast and slow threads may call ``read`` at the same time, and a call may block
for as long as the driver blocks. Only one thread at a time calls ``open`` or ``close``. Code
that a user waits for must not call a source. Start with the protocol :class:`Source`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from gpuwidget.model.clock import SYSTEM_CLOCK, Clock
from gpuwidget.model.errors import OptionError
from gpuwidget.model.messages import Message
from gpuwidget.model.metrics import GROUPS, Group
from gpuwidget.model.samples import Gpu, Origin

SOURCE_VARIABLE = "GPUWIDGET_SOURCE"
"""Environment variable that selects the source of GPU readings for the kernels, the CLI and the server."""


class Xid(NamedTuple):
    """An error of a GPU that the driver reported, identified by NVIDIA's XID number."""

    number: int
    time: float
    """Time at which the source read the error, in epoch seconds."""


class LostGpu(NamedTuple):
    """A GPU that the driver counts but that can't be opened."""

    gpu: Gpu
    """What is known about it; see :func:`gpuwidget.model.samples.unopened_gpu`."""
    reason: Message


@dataclass(frozen=True, slots=True)
class Inventory:
    """The result of opening a source. Finding no GPU is not an error; ``origin.reason`` then states why."""

    origin: Origin
    gpus: tuple[Gpu, ...]
    xids: Mapping[str, Xid] = field(default_factory=dict)
    """The newest known XID of each GPU, by UUID. Includes GPUs that were found earlier but not this time."""
    lost: tuple[LostGpu, ...] = ()
    slices_unknown: frozenset[str] = frozenset()
    """UUIDs of the GPUs in ``gpus`` whose MIG slices the driver could not list."""


@dataclass(frozen=True, slots=True)
class UtilizationWindow:
    """One interval over which the driver averages utilization."""

    until: float
    """End of the interval in epoch seconds."""
    utilization: float
    """Percentage of the interval during which any GPU kernel ran."""


class WorkingProcesses(NamedTuple):
    """The processes that ran something on a GPU between two readings."""

    time: float
    """Time of the later reading in epoch seconds."""
    pids: frozenset[int] | None
    """Process ids as in :class:`gpuwidget.model.gpu_process.Process`; None if the driver does not report
    them."""


class PowerRecord(NamedTuple):
    """What the driver has recorded about the power of a GPU. All times are in monotonic seconds."""

    samples: tuple[tuple[float, float], ...] = ()
    """Times and watts, oldest first. Each is the power since the previous one."""
    counter: tuple[float, float] | None = None
    """When the energy counter was last read, and its value in joules."""


class GroupReading(NamedTuple):
    """What a source has read of one GPU with one group of metrics."""

    values: Mapping[str, Any]
    """The values by key. An unknown value is None. For the groups that contain no metric of the table,
    :meth:`Source.read` states the type of their value."""
    missing: Mapping[str, Message]
    """The reason for each unknown value, by key."""


def unknown(group: Group, reason: Message) -> GroupReading:
    """Return the reading in which every value of ``group`` is unknown for ``reason``."""
    return GroupReading(dict.fromkeys(GROUPS[group]), dict.fromkeys(GROUPS[group], reason))


class Source(Protocol):
    """A source of GPU readings."""

    def open(self) -> Inventory:
        """Open the source and find the GPUs. May be called again at any time, also without a call of
        ``close``.

        Never raises: if the driver is absent or broken, the result contains no GPUs and gives the reason.
        """
        ...

    def close(self) -> None:
        """Close the driver. Safe to call twice, and safe to call while a call on another thread hangs."""
        ...

    def read(self, gpu: Gpu, group: Group) -> GroupReading:
        """Return the values of one GPU that belong to ``group``.

        Raises :class:`gpuwidget.model.errors.GpuLostError` if the GPU is lost (a
        :class:`gpuwidget.model.errors.SliceRemovedError` if it is a MIG slice that was removed) and
        :class:`gpuwidget.model.errors.SourceLostError` if the source must be opened again. Raises no other
        exception: after any other failure, the affected value is None, with its reason.

        These values are no metrics:

        - ``xid`` of the group ``slow``: the newest :class:`Xid`. None without a reason if there was none.
        - ``processes``: a tuple of the :class:`gpuwidget.model.gpu_process.Process` that have a context on
          the GPU.
        - ``activity``: what the hardware counters have measured since the previous call for this GPU, as
          :class:`gpuwidget.model.readings.Activity`. The reasons include those of the counters that it does
          not contain. None without a reason on the first call, and if the previous call was less than 100 ms
          ago.
        - ``windows``: a tuple of the latest :class:`UtilizationWindow`, oldest first. The call takes
          milliseconds.
        - ``power_samples``: the driver's samples of the power, as in :class:`PowerRecord`. A driver keeps
          those of the last two seconds.
        - ``working_processes``: a frozenset of the ids of the processes that have run something since the
          previous call, at first in the time for which the driver keeps its records. A process with little
          work may be missing, because the driver rounds its share of time to a percentage. The call takes
          milliseconds.
        """
        ...

    def rewound(self, clock: Clock) -> Source | None:
        """Return a source that plays the same recording at the times of ``clock``, which may be in the past.

        None if nobody can read the past: if the GPUs are live, or if opening the source could take long.
        """
        ...

    def stop_activity(self) -> None:
        """Free the samples of the hardware counters. The sampler calls this when no subscription needs the
        counters."""
        ...


def open_source(choice: str | None = None, clock: Clock = SYSTEM_CLOCK) -> Source:
    """Return the source that ``choice`` selects, without opening it.

    ``choice`` is ``auto`` or ``nvml`` (both read NVML), ``replay`` or ``replay:PATH`` (plays a recording in a
    loop), ``replay-once:PATH`` or ``none``. If ``choice`` is None, the value of the environment variable
    GPUWIDGET_SOURCE is used instead, by default ``auto``. Raises OptionError for any other value.
    """
    text = choice if choice is not None else os.environ.get(SOURCE_VARIABLE, "")
    kind, _, path = (text.strip() or "auto").partition(":")
    if kind in ("auto", "nvml") and not path:
        from gpuwidget.sources.nvml import NvmlSource

        return NvmlSource(clock)
    if kind == "none" and not path:
        from gpuwidget.sources.none import NoSource, switched_off

        return NoSource(switched_off(SOURCE_VARIABLE))
    if kind in ("replay", "replay-once") and (path or kind == "replay"):
        from gpuwidget.sources.replay import ReplaySource

        return ReplaySource(path or None, loop=kind == "replay", clock=clock)
    raise OptionError(
        f"{text!r} is not a source of GPU readings. Use auto, nvml, replay, replay:PATH, "
        "replay-once:PATH or none."
    )
