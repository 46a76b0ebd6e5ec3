"""The options of a measured run."""

from __future__ import annotations

from dataclasses import dataclass

from gpuwidget.sampler import INTERVAL_S


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The options of a measured run."""

    gpus: tuple[str, ...] = ()
    """Indices, UUIDs (or prefixes of them) or ``cuda:N`` of the GPUs to report. Empty for all GPUs."""
    interval_s: float = INTERVAL_S
    """Seconds between samples."""
    sync: bool = True
    """Whether to wait at the run's end until the GPU has finished, and report how long that took."""


DEFAULT_OPTIONS = RunOptions()
