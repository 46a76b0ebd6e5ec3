"""The settings that every benchmark takes, and the environment of measured processes."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

_N = TypeVar("_N", int, float)

ROOT = Path(__file__).resolve().parent.parent
"""The root of the checkout. It is the first entry of PYTHONPATH in measured processes, so they import the
checkout's gpuwidget. If the checkout has no such package, they import the installed one."""


@dataclass(frozen=True)
class Settings:
    """How thoroughly the benchmarks measure."""

    quick: bool = False
    """Whether runs are few and short. Such runs check that everything works, but their figures are not
    reliable."""
    seeds: int | None = None
    """How many seeds a benchmark with random inputs takes; None for its default."""
    first_seed: int = 0
    """The first of these seeds."""

    def pick(self, full: _N, quick: _N) -> _N:
        """Return ``quick`` if runs are to be quick, else ``full``."""
        return quick if self.quick else full


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return a measured process's environment, with the checkout first in PYTHONPATH and NVML as source.

    Python may write bytecode to the checkout, as it does for users. Otherwise each import would compile the
    sources again.
    """
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    ours = {"PYTHONPATH": os.pathsep.join(paths), "GPUWIDGET_SOURCE": "nvml", "PYTHONDONTWRITEBYTECODE": ""}
    return {**os.environ, **(extra or {}), **ours}


def log_progress(text: str) -> None:
    """Print progress to stderr."""
    print(text, file=sys.stderr, flush=True)
