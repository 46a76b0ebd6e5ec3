"""Run the measured part of a benchmark in a fresh Python process."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from benchmarks.settings import environment


def run_python(*arguments: str, variables: Mapping[str, str] | None = None) -> Any:
    """Run Python with these arguments. Return the JSON in the last line of its output.

    ``variables`` are added to the environment. Raises CalledProcessError if the process fails.
    """
    done = subprocess.run(
        [sys.executable, *arguments],
        env=environment(variables),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])
