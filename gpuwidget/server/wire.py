"""What the server sends and receives besides samples. The labextension's types are generated from it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NewType

from gpuwidget.model.samples import Sample
from gpuwidget.sampler import MAX_INTERVAL_S

SCHEMA = 2
"""Version of the stream's format, sent with its first message."""
_MAX_REQUEST = 200
"""Length of the longest request that is parsed."""

PartialReading = NewType("PartialReading", Mapping[str, object])
"""Some fields of a :class:`gpuwidget.model.readings.Reading`, by name."""


# -- history -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GpuHistory:
    """The history of one GPU. Every list has the length of ``History.t``; an unknown value is None."""

    uuid: str
    utilization: tuple[float | None, ...]
    """Percent, as ``Reading.utilization``."""
    memory_used: tuple[int | None, ...]
    """Bytes, as ``Reading.memory_used``."""
    power_w: tuple[float | None, ...]
    """Watts, as ``Reading.power_w``."""


@dataclass(frozen=True, slots=True)
class History:
    """The samples taken while there were clients, oldest first; without clients there is a gap in ``t``."""

    t: tuple[float, ...]
    """Epoch seconds, rising."""
    gpus: tuple[GpuHistory, ...]


@dataclass(frozen=True, slots=True)
class MetricSeries:
    """The time series of one metric. Every list has the length of ``MetricHistory.t``; unknown is None."""

    mean: tuple[float | None, ...]
    min: tuple[float | None, ...] | None
    """The lowest sample of each step, exactly; None if it equals the mean everywhere."""
    max: tuple[float | None, ...] | None
    """The highest sample of each step, exactly; None if ``min`` is None."""


@dataclass(frozen=True, slots=True)
class GpuMetricHistory:
    """The time series of one GPU."""

    uuid: str
    metrics: Mapping[str, MetricSeries]
    """By the field name of a ``Reading`` or its ``activity``, in their units.
    Metrics without a known value in that time are left out."""


@dataclass(frozen=True, slots=True)
class MetricHistory:
    """A part of the history at the requested resolution: the answer to ``history?metrics=…``."""

    since: float
    """Begin of the requested time, epoch seconds."""
    until: float
    """End of the requested time, epoch seconds."""
    step_s: float
    """Seconds that each entry of ``t`` stands for, from that time on; 0 if each is one sample."""
    newest: float | None
    """Time of the newest sample in it; later samples of the stream continue it. None without a sample."""
    t: tuple[float, ...]
    """Epoch seconds, rising; steps without a sample are left out."""
    samples: tuple[int, ...]
    """Number of samples in each step."""
    gpus: tuple[GpuMetricHistory, ...]


# -- requests ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ActivityRequest:
    """A client's request for the hardware counters, which are read while any client requests them."""

    type: Literal["activity"]
    wanted: bool

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> ActivityRequest | None:
        """Return the request; None if its values are invalid."""
        wanted = values.get("wanted")
        return cls("activity", wanted) if isinstance(wanted, bool) else None


@dataclass(frozen=True, slots=True)
class RateRequest:
    """A client's request for fewer samples than the server takes."""

    type: Literal["rate"]
    interval_s: float
    """Minimum seconds from one sample to the next, 0 to 60; never less than the server's own interval."""

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> RateRequest | None:
        """Return the request; None if its values are invalid."""
        interval_s = values.get("interval_s")
        if isinstance(interval_s, bool) or not isinstance(interval_s, int | float):
            return None
        return cls("rate", interval_s) if 0 <= interval_s <= MAX_INTERVAL_S else None


def parse_request(message: str | bytes) -> ActivityRequest | RateRequest | None:
    """Return the request in a client's message; None if it is not a valid one."""
    if len(message) > _MAX_REQUEST:
        return None
    try:
        values = json.loads(message)
    except ValueError:
        return None
    if not isinstance(values, dict):
        return None
    match values.get("type"):
        case "activity":
            return ActivityRequest.parse(values)
        case "rate":
            return RateRequest.parse(values)
        case _:
            return None


# -- messages of the stream ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class InitialMessage:
    """The first message of a stream."""

    type: Literal["hello"]
    schema: int
    version: str
    """Version of gpuwidget in the server."""
    interval_s: float
    """Seconds from one sample to the next."""
    history_s: float
    """Seconds of history that the server stores at most."""
    install: str | None
    """The command that installs gpuwidget, quoted for a shell, as ``pip install 'my wheel.whl'``; None if the
    administrator configured none."""
    documentation: str | None
    """Address of the documentation; None while there is no public one."""
    sample: Sample | None
    """The newest sample; None if there were no clients before; the next message then contains one."""
    history: History
    """The stored history, including ``sample``."""


@dataclass(frozen=True, slots=True)
class SampleMessage:
    """A message of a stream: a sample."""

    type: Literal["sample"]
    sample: Sample


@dataclass(frozen=True, slots=True)
class SampleChanges:
    """A message of a stream: a sample as the changes since the one that the client was sent before.

    Its ``origin`` and ``gpus`` are the same.
    """

    type: Literal["changes"]
    time: float
    """``Sample.time``."""
    readings: tuple[PartialReading, ...]
    """For each of the sample's readings, in the same order: the fields whose values changed."""


@dataclass(frozen=True, slots=True)
class ServerKernel:
    """One of this server's kernels."""

    id: str
    """Jupyter's id of the kernel, as in ``GET api/kernels``."""
    spec: str
    """Name of its kernelspec, as ``python3``."""
    state: Literal["starting", "idle", "busy", "restarting", "dead", "unknown"]
    idle_since: float | None
    """Since when it has been idle, epoch seconds; None while it is busy or if unknown."""
    session: str | None
    """Jupyter's id of its session; None without a session."""
    kind: str | None
    """Type of the session: ``notebook``, ``console`` or another front end's; None without a session."""
    path: str | None
    """Path of the notebook's file under the server's root; None without a file."""
    name: str | None
    """Name of the notebook's file, or of the session; None without a session."""


@dataclass(frozen=True, slots=True)
class MemoryHolder:
    """GPU memory of one kernel with its child processes, one terminal or one other process."""

    kernel: str | None
    """``ServerKernel.id`` of the kernel; None if it is none of this server's."""
    terminal: str | None
    """Name of the server's terminal, as in ``GET api/terminals``; None if it is none."""
    pid: int | None
    """Process id as NVML reports it; None for several processes."""
    user: str | None
    """Login name of its owner; None if unreadable, and for a kernel or a terminal."""
    program: str | None
    """File name of its executable, with its script or module; None if unreadable, and for a kernel."""
    arguments: str | None
    """Its other arguments, shortened and without possible secrets; None if ``program`` is None."""
    memory: int | None
    """Bytes; None if unknown."""
    source: Literal["driver", "torch"]
    """Source of ``memory``: the driver's process list, or torch in the kernel (its reserved bytes, without
    the CUDA context) if process ids can't be matched."""


@dataclass(frozen=True, slots=True)
class MeanUtilization:
    """The mean utilization of a GPU over a window that ends now."""

    seconds: float
    """Length of the window."""
    utilization: float | None
    """Percent; None if the window was not sampled completely."""


@dataclass(frozen=True, slots=True)
class GpuMemoryOwnership:
    """The holders of the memory of one GPU."""

    uuid: str
    holdings: tuple[MemoryHolder, ...]
    """Most memory first."""
    unattributed: int | None
    """Used bytes that belong to none of them; None if unknown."""
    reason: str | None
    """Why some memory can't be attributed, as a sentence; None if all can."""
    means: tuple[MeanUtilization, ...]
    """Shortest window first."""


@dataclass(frozen=True, slots=True)
class MemoryOwnership:
    """A message of a stream: who owns the memory. Sent after the initial message, resent when it changes."""

    type: Literal["usage"]
    time: float
    """Epoch seconds."""
    kernels: tuple[ServerKernel, ...]
    """All of this server's kernels, including those without GPU memory."""
    gpus: tuple[GpuMemoryOwnership, ...]
    """One for each of the sample's GPUs, in the same order."""
