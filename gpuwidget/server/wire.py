"""What the server sends besides samples. The labextension's types are generated from these classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gpuwidget.samples import Sample

SCHEMA = 1
"""Version of the stream's shape, sent with its first message."""


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
    sample: Sample | None
    """The newest sample, None where nobody else is looking; the next message then brings one."""
    history: History
    """What is held of the past, ``sample`` included."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Every further message of a stream."""

    type: Literal["sample"]
    sample: Sample
