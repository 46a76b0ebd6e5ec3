"""Install the packages of a lock file: with uv, or with pip where uv can't.

``python tools/install.py FILE [PYTHON]`` verifies the hashes of all packages. PYTHON is the interpreter of
the environment, by default the one that runs this module. uv takes a fraction of pip's CPU time. It comes
from ``requirements/uv.txt``, so that nobody has to install it first.

uv doesn't read pip's configuration. If that names another package index, pip installs the packages. If uv
fails, pip tries once more.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

UV_LOCK = str(Path(__file__).resolve().parent.parent / "requirements" / "uv.txt")
LOCKED = ("install", "--require-hashes", "--requirement")
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")


def has_other_index() -> bool:
    """Return whether pip's configuration or environment variables name a package index."""
    done = subprocess.run([*PIP, "config", "list"], capture_output=True, text=True, check=False)
    names = [line.partition("=")[0].rpartition(".")[2] for line in done.stdout.splitlines()]
    return bool({"index-url", "extra-index-url", "no-index"} & set(names))


def succeeds(*command: str) -> bool:
    """Run a command; return whether its exit status is 0."""
    # Like pip, uv then trusts the certificates of this machine, such as those of a company's proxy.
    return subprocess.run(command, env={"UV_SYSTEM_CERTS": "1", **os.environ}, check=False).returncode == 0


def install(file: str, python: str = sys.executable) -> bool:
    """Install the packages of a lock file into the environment of ``python``. Return whether it succeeded."""
    if not has_other_index() and succeeds(*PIP, *LOCKED, UV_LOCK):
        if succeeds(sys.executable, "-m", "uv", "pip", *LOCKED, file, "--python", python):
            return True
        print("uv failed, so pip installs the packages.", flush=True)
    # Compiling every package would take 56 s of CPU time. Python compiles what it imports.
    return succeeds(python, *PIP[1:], *LOCKED, file, "--no-compile")


if __name__ == "__main__":
    sys.exit(not install(*sys.argv[1:]))
