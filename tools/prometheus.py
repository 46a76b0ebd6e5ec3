"""Find a Prometheus for the tests, or else download and unpack Debian's package.

The package is only unpacked, into the tests' environment. ``python -m tools.prometheus`` exits with 0 if
there is a Prometheus in the end, else with a message about what to install.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from tools.programs import can_run, unpack_package

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


def main() -> str | None:
    """Unpack a Prometheus if there is none. Return None on success, else what to install and why."""
    if find() is None:
        print("Fetching Prometheus for the tests of gpuwidget/metrics.", flush=True)
        unpack_package(PACKAGE, UNPACKED)
    return None if find() else MISSING


if __name__ == "__main__":
    sys.exit(main())
