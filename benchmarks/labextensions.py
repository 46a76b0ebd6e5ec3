"""The compressed size of the scripts of a labextension, which a browser loads."""

from __future__ import annotations

import gzip
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple


class Sizes(NamedTuple):
    """Sizes of scripts in KiB, each compressed separately."""

    at_start: float
    """The scripts that every page loads."""
    later: float
    """The scripts that a page loads when somebody opens the views that need them."""


def compressed_kib(folder: Path) -> Sizes | None:
    """Return the sizes of the scripts in the labextension ``folder``; None if there are no scripts.

    The bundler numbers the scripts that are loaded at the start, apart from the entry. A script that
    ``import()`` loads is named in the import. Without a name, it counts as loaded at the start.
    """
    scripts = sorted((folder / "static").glob("*.js"))
    if not scripts:
        return None
    at_start = [script for script in scripts if _name(script).isdigit() or _name(script) == "remoteEntry"]
    return Sizes(_kib(at_start), _kib(script for script in scripts if script not in at_start))


def _name(script: Path) -> str:
    return script.name.partition(".")[0]


def _kib(scripts: Iterable[Path]) -> float:
    return sum(len(gzip.compress(script.read_bytes())) for script in scripts) / 1024
