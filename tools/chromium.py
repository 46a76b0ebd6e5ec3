"""A Chromium for the browser tests: the system's, installed where that is possible.

``python -m tools.chromium`` ends with 0 when one is there, else with a sentence that says what to install.
"""

from __future__ import annotations

import os
import shutil
import sys

from tools.programs import answers, succeeds

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PACKAGES = ("chromium", "fonts-dejavu-core")
MISSING = (
    "The browser tests need Chromium, and none of " + ", ".join(NAMES) + " is on the PATH: install it "
    "(Debian, as root: apt-get install chromium fonts-dejavu-core) and run again."
)


def find() -> str | None:
    """The path of the system's Chromium or Chrome that answers, or None."""
    return next((path for name in NAMES if (path := shutil.which(name)) and answers(path)), None)


def install() -> bool:
    """Install it with apt-get where this process may; whether that went well."""
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        return False
    return all(
        succeeds(command)
        for command in (
            ["apt-get", "update", "-qq"],
            ["apt-get", "install", "-qq", "--yes", "--no-install-recommends", *PACKAGES],
        )
    )


def main() -> str | None:
    """None when there is a Chromium, else why not and what to do."""
    if find() is None:
        print("Installing Chromium for the browser tests.", flush=True)
        install()
    return None if find() else MISSING


if __name__ == "__main__":
    sys.exit(main())
