"""What the server sends besides samples. The labextension's types are generated from these classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NewType

from gpuwidget.model.samples import Sample

SCHEMA = 2
"""Version of the stream's shape, sent with its first message."""

PartialReading = NewType("PartialReading", Mapping[str, object])
"""Some fields of a :class:`gpuwidget.model.readings.Reading`, by name."""


@dataclass(frozen=True, slots=True)
class GpuHistory:
    """The past of one GPU. Every list is as long as ``History.t``; a value nobody knew is None."""

    uuid: str
    utilization: tuple[float | None, ...]
    """Percent, as ``Reading.utilization``."""
    memory_used: tuple[int | None, ...]
    """Bytes, as ``Reading.memory_used``."""
    power_w: tuple[float | None, ...]
    """Watts, as ``Reading.power_w``."""


@dataclass(frozen=True, slots=True)
class History:
    """What was read while somebody looked, oldest first. While nobody did there is a gap in ``t``."""

    t: tuple[float, ...]
    """Epoch seconds, rising."""
    gpus: tuple[GpuHistory, ...]


@dataclass(frozen=True, slots=True)
class Steps:
    """One quantity's course. Every list is as long as ``Course.t``; a value nobody knew is None."""

    mean: tuple[float | None, ...]
    min: tuple[float | None, ...] | None
    """The lowest value read in each step, exactly; None where it is the mean throughout."""
    max: tuple[float | None, ...] | None
    """The highest, exactly; None where ``min`` is."""


@dataclass(frozen=True, slots=True)
class GpuCourse:
    """A part of the past of one GPU."""

    uuid: str
    metrics: Mapping[str, Steps]
    """By the name that a :class:`~gpuwidget.model.readings.Reading` or its ``activity`` has for it, in their
    units. What was never known in that time is not there."""


@dataclass(frozen=True, slots=True)
class Course:
    """A part of the past in steps that fit what was asked for: what ``history?metrics=…`` answers."""

    since: float
    """What part was asked for, from here, epoch seconds."""
    until: float
    """To here."""
    step_s: float
    """Seconds that each entry of ``t`` stands for, from that moment on; 0 where each is one sample."""
    newest: float | None
    """Time of the newest sample that is in it: later ones of the stream go on from it. None without any."""
    t: tuple[float, ...]
    """Epoch seconds, rising; where nobody looked there is none."""
    samples: tuple[int, ...]
    """How many samples each step is made of."""
    gpus: tuple[GpuCourse, ...]


@dataclass(frozen=True, slots=True)
class ActivityRequest:
    """What a client may say: whether it looks at the hardware's counters. They are read while one does."""

    type: Literal["activity"]
    wanted: bool


@dataclass(frozen=True, slots=True)
class RateRequest:
    """What a client may say: that it wants fewer samples than there are."""

    type: Literal["rate"]
    interval_s: float
    """Seconds from one sample to the next at least, 0 to 60. The server's own are the fewest."""


@dataclass(frozen=True, slots=True)
class Hello:
    """The first message of a stream."""

    type: Literal["hello"]
    schema: int
    version: str
    """gpuwidget's version in the server."""
    interval_s: float
    """Seconds from one sample to the next."""
    history_s: float
    """Seconds of the past that the server holds at most."""
    install: str | None
    """The command that installs gpuwidget, quoted for a shell, as ``pip install 'my wheel.whl'``; None where
    the administrator configured none."""
    documentation: str | None
    """Address of the documentation; None while there is none that everybody can reach."""
    sample: Sample | None
    """The newest sample, None where nobody else is looking; the next message then brings one."""
    history: History
    """What is held of the past, ``sample`` included."""


@dataclass(frozen=True, slots=True)
class Tick:
    """A message of a stream: a sample."""

    type: Literal["sample"]
    sample: Sample


@dataclass(frozen=True, slots=True)
class Changes:
    """A message of a stream: a sample, as the differences from the one that the client was sent before.

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
    """Jupyter's id of it, as in ``GET api/kernels``."""
    spec: str
    """Name of its kernelspec, as ``python3``."""
    state: Literal["starting", "idle", "busy", "restarting", "dead", "unknown"]
    idle_since: float | None
    """Since when it has had nothing to do, epoch seconds; None while it works or where nobody knows."""
    session: str | None
    """Jupyter's id of the session that it belongs to, None for a kernel without one."""
    kind: str | None
    """What the session is: ``notebook``, ``console`` or a word of another front end; None without one."""
    path: str | None
    """Path of the notebook's file under the server's root, None where it has none."""
    name: str | None
    """Name of the notebook's file, or what the session is called; None without one."""


@dataclass(frozen=True, slots=True)
class Holding:
    """What one kernel, one terminal or one other process holds on a GPU; a kernel's children count for it."""

    kernel: str | None
    """``ServerKernel.id`` of the kernel, None where it is none of this server's."""
    terminal: str | None
    """Name of the server's terminal, as in ``GET api/terminals``; None where it is in none."""
    pid: int | None
    """Process id as NVML reports it; None where it is not one process."""
    user: str | None
    """Login name of its owner; None where unreadable or for a kernel or a terminal."""
    program: str | None
    """File name of its executable, with its script or module; None where unreadable or for a kernel."""
    arguments: str | None
    """Its other arguments, shortened and without what may be secret; None where ``program`` is."""
    memory: int | None
    """Bytes; None where nobody says."""
    source: Literal["driver", "torch"]
    """Who says how much: the driver's list of processes, or torch in the kernel (its reserved bytes, without
    the CUDA context), where process ids can't be matched."""


@dataclass(frozen=True, slots=True)
class MeanUtilization:
    """How busy a GPU was lately."""

    seconds: float
    """Length of the window that ends now."""
    utilization: float | None
    """Percent, the mean over the window; None where it was not read all that time."""


@dataclass(frozen=True, slots=True)
class GpuUsage:
    """Who holds the memory of one GPU."""

    uuid: str
    holdings: tuple[Holding, ...]
    """Most memory first."""
    unattributed: int | None
    """Bytes in use that belong to none of these, None where that can't be told."""
    reason: str | None
    """Why some of it can't be told apart, as a sentence; None where all can."""
    means: tuple[MeanUtilization, ...]
    """Shortest window first."""


@dataclass(frozen=True, slots=True)
class Usage:
    """A message of a stream: who holds what. Sent after the first one, and again when it is another."""

    type: Literal["usage"]
    time: float
    """Epoch seconds."""
    kernels: tuple[ServerKernel, ...]
    """All of this server's, also those that hold nothing."""
    gpus: tuple[GpuUsage, ...]
    """One for each of the sample's, in the same order."""
