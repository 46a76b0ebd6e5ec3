"""The compressed size of the scripts of a labextension, which a browser loads."""

from __future__ import annotations

import gzip
from pathlib import Path


def compressed_kib(folder: Path) -> float | None:
    """Return the total size in KiB of the scripts in the labextension ``folder``, each compressed separately;
    None if there are no scripts."""
    scripts = sorted((folder / "static").glob("*.js"))
    return sum(len(gzip.compress(script.read_bytes())) for script in scripts) / 1024 if scripts else None
