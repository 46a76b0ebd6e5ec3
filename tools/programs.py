"""Check whether the programs that the tests need can run, and run the commands that install them."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path


def can_run(path: str, option: str = "--version") -> bool:
    """Return whether the program at ``path`` runs and prints its version with ``option``.

    On Ubuntu without the Chromium snap, the program is a script that only prints what to install.
    """
    try:
        done = subprocess.run([path, option], capture_output=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def succeeds(command: Sequence[str], cwd: str | None = None) -> bool:
    """Run a command without input; return whether its exit status is 0."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(command, env=environment, cwd=cwd, stdin=subprocess.DEVNULL, check=False)
    return done.returncode == 0


def unpack_package(package: str, folder: Path) -> bool:
    """If apt-get exists, download Debian's package and unpack it into ``folder``. Return whether that
    succeeded.

    The package is only unpacked, because installing it would start a server that keeps running.
    """
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        return False
    if os.geteuid() == 0:
        # Only root can update apt's package lists. For other users this fails, and the existing lists are
        # used.
        succeeds(["apt-get", "update", "-qq"])
    with tempfile.TemporaryDirectory() as downloads:
        # By default, root's apt downloads as a user who may not write to this folder, and prints a long
        # warning.
        fetch = ["apt-get", "download", "-qq", "-o", "APT::Sandbox::User=root", package]
        if not succeeds(fetch, cwd=downloads):
            return False
        return all(
            succeeds(["dpkg-deb", "--extract", str(deb), str(folder)]) for deb in Path(downloads).iterdir()
        )
