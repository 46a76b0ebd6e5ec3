"""Find or install a Chromium for the browser tests: the system's if there is one, else Playwright's.

``python -m tools.chromium`` installs a Chromium if there is none. As root it installs Debian's package,
otherwise Playwright's Chromium in the user's cache. It exits with 0 if there is a Chromium in the end, else
with a message about what to install.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

from tools.programs import can_run, succeeds

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
"""The first is Chromium's headless shell, with which the browser tests use 11 % less CPU time."""
PACKAGES = ("chromium-headless-shell", "fonts-dejavu-core")
MISSING = (
    f"no Chromium: none of {', '.join(NAMES)} on the PATH runs, nor does Playwright's own "
    f"(Debian, as root: apt-get install {' '.join(PACKAGES)})"
)
_PRINT_PATH = (
    "from playwright.sync_api import sync_playwright\n"
    "with sync_playwright() as playwright: print(playwright.chromium.executable_path)"
)


def find() -> str | None:
    """Return the path of a Chromium or Chrome that can run, preferably the system's; None without one."""
    system = (path for name in NAMES if (path := shutil.which(name)) and can_run(path))
    return next(system, None) or (path if can_run(path := playwright_path()) else None)


def playwright_path() -> str:
    """Return the path at which Playwright would install its Chromium."""
    # Run this in a subprocess, because Playwright's synchronous interface does not start inside an event
    # loop.
    command = [sys.executable, "-c", _PRINT_PATH]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def install() -> None:
    """Install Debian's package if this is root and apt-get exists, else download Playwright's Chromium."""
    if shutil.which("apt-get") is not None and os.geteuid() == 0:
        succeeds(["apt-get", "update", "-qq"])
        succeeds(["apt-get", "install", "-qq", "--yes", "--no-install-recommends", *PACKAGES])
    else:
        succeeds([sys.executable, "-m", "playwright", "install", "chromium"])


def main() -> str | None:
    """Install a Chromium if there is none. Return None on success, else what to install and why."""
    if find() is None:
        print("Installing Chromium for the browser tests.", flush=True)
        install()
    return None if find() else MISSING


if __name__ == "__main__":
    sys.exit(main())
