"""Find an nginx for the tests, or else download and unpack Debian's package.

The package is only unpacked, into the tests' environment. ``python -m tools.nginx`` exits with 0 if there is
an nginx in the end, else with a message about what to install.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from tools.programs import can_run, unpack_package

PACKAGE = "nginx"
UNPACKED = Path(sys.prefix) / "nginx"
MISSING = (
    "no nginx: it is neither on the PATH nor in /usr/sbin (Debian, as root: apt-get install nginx, which "
    "also starts a server; systemctl disable --now nginx ends it)"
)


def find() -> str | None:
    """Return the path of the program if it exists and runs, else None."""
    # Debian installs it in a folder that is not on the PATH of users other than root.
    places = (os.environ.get("PATH", ""), "/usr/sbin", str(UNPACKED / "usr" / "sbin"))
    path = shutil.which("nginx", path=os.pathsep.join(places))
    return path if path is not None and can_run(path, "-v") else None


def main() -> str | None:
    """Unpack an nginx if there is none. Return None on success, else what to install and why."""
    if find() is None:
        print("Fetching nginx for the tests of deploy/nginx.", flush=True)
        unpack_package(PACKAGE, UNPACKED)
    return None if find() else MISSING


if __name__ == "__main__":
    sys.exit(main())
