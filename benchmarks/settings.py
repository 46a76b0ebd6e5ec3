"""What every benchmark is told, and the environment its processes run in."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

_N = TypeVar("_N", int, float)

ROOT = Path(__file__).resolve().parent.parent
"""The checkout: what is measured is the gpuwidget beside this package, where there is one."""


@dataclass(frozen=True)
class Settings:
    """How thoroughly to measure."""

    quick: bool = False
    """Fewer and shorter runs: shows that everything works, not how good it is."""

    def pick(self, full: _N, quick: _N) -> _N:
        """``full``, or ``quick`` where that is asked for."""
        return quick if self.quick else full


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment for a measured one: the checkout's packages first, the driver's GPUs.

    Python writes compiled files there, as it does for users; otherwise each import compiles its source again.
    """
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    ours = {"PYTHONPATH": os.pathsep.join(paths), "GPUWIDGET_SOURCE": "nvml", "PYTHONDONTWRITEBYTECODE": ""}
    return {**os.environ, **(extra or {}), **ours}


def complain(text: str) -> None:
    """Tell the person who waits how far it is."""
    print(text, file=sys.stderr, flush=True)
