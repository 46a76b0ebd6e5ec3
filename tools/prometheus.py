"""A Prometheus for the tests: the system's, or Debian's package, unpacked in the tests' environment.

It is unpacked, not installed: an installed package starts a server that keeps running. ``python -m
tools.prometheus`` exits with 0 when there is one, else with a message that names what to install.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

from tools.programs import answers, succeeds

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
    """Return the path of each of the programs, where all exist and run; else None."""
    places = (None, str(UNPACKED / "usr" / "bin"))
    for place in places:
        found = {
            name: path for name in PROGRAMS if (path := shutil.which(name, path=place)) and answers(path)
        }
        if len(found) == len(PROGRAMS):
            return found
    return None


def unpack() -> bool:
    """Download the package with apt-get where there is one, and unpack it; return whether that succeeded."""
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        return False
    if os.geteuid() == 0:
        # A user without the permission has the lists of an earlier update, or none.
        succeeds(["apt-get", "update", "-qq"])
    with tempfile.TemporaryDirectory() as folder:
        # Root's apt downloads as a user who may not write there, and prints a long warning about it.
        fetch = ["apt-get", "download", "-qq", "-o", "APT::Sandbox::User=root", PACKAGE]
        if not succeeds(fetch, cwd=folder):
            return False
        return all(
            succeeds(["dpkg-deb", "--extract", str(deb), str(UNPACKED)]) for deb in Path(folder).iterdir()
        )


def main() -> str | None:
    """Return None when there is a Prometheus, else the reason and what to do."""
    if find() is None:
        print("Fetching Prometheus for the tests of gpuwidget/metrics.", flush=True)
        unpack()
    return None if find() else MISSING


if __name__ == "__main__":
    sys.exit(main())
