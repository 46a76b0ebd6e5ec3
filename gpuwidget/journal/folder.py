"""The journal's folder. This module is imported with the extension, so it imports little."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Literal

from jupyter_core.paths import jupyter_data_dir

Place = Literal["live", "died", "ended"]
PLACES: tuple[Place, ...] = ("live", "died", "ended")
SUFFIX = ".json"


def journal_folder() -> Path:
    """Return the folder of this user's journal: ``gpuwidget/runs`` in Jupyter's data folder."""
    return Path(jupyter_data_dir()) / "gpuwidget" / "runs"


def run_ids(folder: Path, place: Place) -> list[str]:
    """Return the ids of the runs in a place, the oldest first; none if the place can't be read."""
    try:
        names = os.listdir(folder / place)
    except OSError:
        return []  # Nothing was written yet, or nothing can be read.
    return sorted([name[: -len(SUFFIX)] for name in names if name.endswith(SUFFIX)])


def new_id(started: float) -> str:
    """Return an id for a run that began at ``started`` (epoch seconds). Ids sort by that time."""
    return f"{max(0, int(started * 1000)):013d}-{secrets.token_hex(4)}"
