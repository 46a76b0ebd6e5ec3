"""Find a Python environment in which packages similar to gpuwidget ("peers") are installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_VARIABLE = "GPUWIDGET_BENCH_PEER_PYTHON"
_PROBE = """\
import importlib.metadata, json, sys, sysconfig
versions = {name: importlib.metadata.version(name) for name in sys.argv[1:]}
print(json.dumps([versions, sysconfig.get_path("data")]))
"""


@dataclass(frozen=True)
class Peer:
    """A Python environment with packages that gpuwidget is compared with."""

    python: str
    versions: Mapping[str, str]
    """The installed version of each requested package."""
    data: Path
    """The folder with the data files of the environment's packages, such as ``share/jupyter``."""


def find(*packages: str) -> Peer | None:
    """Return a Python environment in which all ``packages`` are installed, or None.

    If GPUWIDGET_BENCH_PEER_PYTHON names an interpreter, only that interpreter's environment is considered,
    otherwise only the current interpreter's.
    """
    python = os.environ.get(_VARIABLE, sys.executable)
    probe = [python, "-c", _PROBE, *packages]
    try:
        found = subprocess.run(probe, env=environment({}), capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    versions, data = json.loads(found.stdout)
    return Peer(python, versions, Path(data))


def missing(*packages: str) -> str:
    """Return the reason, for the results table, why a peer is not measured if :func:`find` returned None."""
    setting = "names none" if _VARIABLE in os.environ else "may name one"
    return f"it takes a Python with {' and '.join(packages)}: {_VARIABLE} {setting}"


def environment(extra: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables for a peer's process. PYTHONPATH is empty, so that the process does
    not import from the checkout."""
    return {**os.environ, **extra, "PYTHONPATH": ""}
