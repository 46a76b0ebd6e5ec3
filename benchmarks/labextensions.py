"""The size of a labextension: what a browser loads of it."""

from __future__ import annotations

import gzip
from pathlib import Path


def compressed_kib(folder: Path) -> float | None:
    """All of its scripts, each compressed by itself, in KiB; None where there are none in ``folder``."""
    scripts = sorted((folder / "static").glob("*.js"))
    return sum(len(gzip.compress(script.read_bytes())) for script in scripts) / 1024 if scripts else None
