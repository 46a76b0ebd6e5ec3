"""Helpers that run programs on a real GPU. Each program runs in a subprocess, because its CUDA context lasts
until its process ends.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from typing import Any

import pytest

from gpuwidget.system.processes import in_host_pid_namespace

HOST_PIDS = pytest.mark.skipif(
    not in_host_pid_namespace(), reason="in a container the driver's process ids are not the processes' own"
)
"""Skips a test that needs the driver's values per process, unless this process is in the host's pid
namespace. In a container, the driver's process ids are not valid.
"""
_TIMEOUT_S = 240


def run_program(code: str, **environment: str) -> Any:
    """Run ``code`` in a subprocess, and return the final value of its variable ``result``, which must be a
    JSON value.
    """
    program = textwrap.dedent(code) + "\nimport json\nprint('RESULT ' + json.dumps(result))\n"
    process = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    assert process.returncode == 0, process.stdout + process.stderr
    result_line = next(each for each in reversed(process.stdout.splitlines()) if each.startswith("RESULT "))
    return json.loads(result_line.removeprefix("RESULT "))


def nvidia_smi(query: str) -> list[list[str]]:
    """Return the rows that ``nvidia-smi --query-gpu=QUERY`` prints."""
    process = subprocess.run(
        ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader,nounits"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return [[field.strip() for field in row.split(",")] for row in process.stdout.splitlines()]
