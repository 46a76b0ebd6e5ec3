"""Other programs of the kind, run beside ours in a Python that has them."""

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
    """A Python that has what is compared with."""

    python: str
    versions: Mapping[str, str]
    """Of each package that was asked for."""
    data: Path
    """What its packages have installed beside their modules: ``share/jupyter`` and the like."""


def find(*packages: str) -> Peer | None:
    """The Python that GPUWIDGET_BENCH_PEER_PYTHON names, or else this one, where it has all of these."""
    python = os.environ.get(_VARIABLE, sys.executable)
    probe = [python, "-c", _PROBE, *packages]
    try:
        found = subprocess.run(probe, env=environment({}), capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    versions, data = json.loads(found.stdout)
    return Peer(python, versions, Path(data))


def missing(*packages: str) -> str:
    """Why a peer is not measured, where it was not found."""
    there = "names none" if _VARIABLE in os.environ else "may name one"
    return f"it takes a Python with {' and '.join(packages)}: {_VARIABLE} {there}"


def environment(extra: Mapping[str, str]) -> dict[str, str]:
    """This process's environment for a peer's: without the checkout's packages."""
    return {**os.environ, **extra, "PYTHONPATH": ""}
