"""Programs of this machine that the tests need: whether they answer, and running what fetches them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence


def answers(path: str) -> bool:
    """Whether the program at ``path`` tells its version.

    Ubuntu's Chromium without its snap is a script that only prints what to install.
    """
    try:
        done = subprocess.run([path, "--version"], capture_output=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def succeeds(command: Sequence[str], cwd: str | None = None) -> bool:
    """Run a command that must ask nobody anything; whether it went well."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(command, env=environment, cwd=cwd, stdin=subprocess.DEVNULL, check=False)
    return done.returncode == 0
