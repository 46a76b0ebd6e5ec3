"""Find similar packages to compare with, in a Python environment that has them installed."""

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
    """A Python environment in which the packages to compare with are installed."""

    python: str
    versions: Mapping[str, str]
    """The installed version of each requested package."""
    data: Path
    """The folder with the data files of the environment's packages, such as ``share/jupyter``."""


def find(*packages: str) -> Peer | None:
    """Return the Python in GPUWIDGET_BENCH_PEER_PYTHON, else this one; None unless it has all packages."""
    python = os.environ.get(_VARIABLE, sys.executable)
    probe = [python, "-c", _PROBE, *packages]
    try:
        found = subprocess.run(probe, env=environment({}), capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    versions, data = json.loads(found.stdout)
    return Peer(python, versions, Path(data))


def missing(*packages: str) -> str:
    """Return the reason why a peer is not measured, for a peer that was not found."""
    there = "names none" if _VARIABLE in os.environ else "may name one"
    return f"it takes a Python with {' and '.join(packages)}: {_VARIABLE} {there}"


def environment(extra: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for a peer's process: the current one without the checkout on PYTHONPATH."""
    return {**os.environ, **extra, "PYTHONPATH": ""}
