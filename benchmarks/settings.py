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
"""The root of the checkout; its gpuwidget package is measured, if it has one."""


@dataclass(frozen=True)
class Settings:
    """How thoroughly the benchmarks measure."""

    quick: bool = False
    """Whether runs are few and short, which checks that everything works but measures nothing reliably."""

    def pick(self, full: _N, quick: _N) -> _N:
        """Return ``quick`` for a quick run, else ``full``."""
        return quick if self.quick else full


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment of a measured process, with the checkout first on its path and the driver's
    GPUs.

    Python may write bytecode to the checkout, as it does for users; otherwise each import would compile the
    sources again.
    """
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    ours = {"PYTHONPATH": os.pathsep.join(paths), "GPUWIDGET_SOURCE": "nvml", "PYTHONDONTWRITEBYTECODE": ""}
    return {**os.environ, **(extra or {}), **ours}


def log_progress(text: str) -> None:
    """Print progress to stderr."""
    print(text, file=sys.stderr, flush=True)
