"""Check whether the programs that the tests need can run, and run the commands that install them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence


def can_run(path: str) -> bool:
    """Return whether the program at ``path`` runs and prints its version.

    On Ubuntu without the Chromium snap, the program is a script that only prints what to install.
    """
    try:
        done = subprocess.run([path, "--version"], capture_output=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def succeeds(command: Sequence[str], cwd: str | None = None) -> bool:
    """Run a command without input; return whether its exit status is 0."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(command, env=environment, cwd=cwd, stdin=subprocess.DEVNULL, check=False)
    return done.returncode == 0
