"""Programs for a real GPU, each in a process of its own, since a CUDA context stays until a process ends."""

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
"""For tests of what the driver tells by process."""
_TIMEOUT_S = 240


def run_program(code: str, **environment: str) -> Any:
    """Run ``code``, and give what it put into its variable ``result``, through JSON."""
    program = textwrap.dedent(code) + "\nimport json\nprint('RESULT ' + json.dumps(result))\n"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    line = next(line for line in reversed(done.stdout.splitlines()) if line.startswith("RESULT "))
    return json.loads(line.removeprefix("RESULT "))


def nvidia_smi(query: str) -> list[list[str]]:
    """Rows of ``nvidia-smi --query-gpu``."""
    done = subprocess.run(
        ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader,nounits"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return [[word.strip() for word in line.split(",")] for line in done.stdout.splitlines()]
