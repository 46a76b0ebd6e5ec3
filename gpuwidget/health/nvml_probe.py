"""In a child: what NVML says, which may hang with a broken driver."""

from __future__ import annotations

from collections.abc import Sequence

from gpuwidget.health.children import say
from gpuwidget.plain import plain
from gpuwidget.sources.nvml_health import examine


def main(_path: Sequence[str]) -> None:
    """Say all of it."""
    say(step="nvml")
    say(step="end", nvml=plain(examine()))
