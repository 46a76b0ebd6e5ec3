"""Find a Prometheus for the tests, or else download and unpack Debian's package.

The package is only unpacked, into the tests' environment, because installing it would start a server that
keeps running. ``python -m tools.prometheus`` exits with 0 if there is a Prometheus in the end, else with a
message about what to install.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

from tools.programs import can_run, succeeds

PACKAGE = "prometheus"
PROGRAMS = ("prometheus", "promtool")
UNPACKED = Path(sys.prefix) / "prometheus"
MISSING = (
    "no Prometheus: "
    + " and ".join(PROGRAMS)
    + " are not on the PATH (Debian, as root: apt-get install prometheus, which also starts a server; "
    "systemctl disable --now prometheus ends it)"
)


def find() -> dict[str, str] | None:
    """Return the paths of the programs if all of them exist and run, else None."""
    places = (None, str(UNPACKED / "usr" / "bin"))
    for place in places:
        found = {
            name: path for name in PROGRAMS if (path := shutil.which(name, path=place)) and can_run(path)
        }
        if len(found) == len(PROGRAMS):
            return found
    return None


def unpack() -> bool:
    """If apt-get exists, download the package and unpack it. Return whether that succeeded."""
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        return False
    if os.geteuid() == 0:
        # Only root can update apt's package lists. For other users this fails, and the existing lists are
        # used.
        succeeds(["apt-get", "update", "-qq"])
    with tempfile.TemporaryDirectory() as folder:
        # By default, root's apt downloads as a user who may not write to this folder, and prints a long
        # warning.
        fetch = ["apt-get", "download", "-qq", "-o", "APT::Sandbox::User=root", PACKAGE]
        if not succeeds(fetch, cwd=folder):
            return False
        return all(
            succeeds(["dpkg-deb", "--extract", str(deb), str(UNPACKED)]) for deb in Path(folder).iterdir()
        )


def main() -> str | None:
    """Unpack a Prometheus if there is none. Return None on success, else what to install and why."""
    if find() is None:
        print("Fetching Prometheus for the tests of gpuwidget/metrics.", flush=True)
        unpack()
    return None if find() else MISSING


if __name__ == "__main__":
    sys.exit(main())
