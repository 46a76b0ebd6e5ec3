"""The settings of every benchmark, and the environment of its processes."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

_N = TypeVar("_N", int, float)

ROOT = Path(__file__).resolve().parent.parent
"""The checkout; its gpuwidget is measured, if it has one."""


@dataclass(frozen=True)
class Settings:
    """How thoroughly to measure."""

    quick: bool = False
    """Fewer and shorter runs: a check that everything works, not a measurement."""

    def pick(self, full: _N, quick: _N) -> _N:
        """Return ``quick`` for a quick run, else ``full``."""
        return quick if self.quick else full


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment for a measured process: the checkout's packages first, the driver's GPUs.

    Python writes compiled files there, as it does for users; otherwise each import compiles its source again.
    """
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    ours = {"PYTHONPATH": os.pathsep.join(paths), "GPUWIDGET_SOURCE": "nvml", "PYTHONDONTWRITEBYTECODE": ""}
    return {**os.environ, **(extra or {}), **ours}


def log_progress(text: str) -> None:
    """Print progress to stderr."""
    print(text, file=sys.stderr, flush=True)
