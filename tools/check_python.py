"""Print one sentence about what this machine lacks for ``make demo`` or ``make test``, if anything.

``python3 tools/check_python.py [demo|test]`` exits with 0 if nothing is missing. ``test``, the default, also
checks for a C compiler. This file must run on every version of Python, however old.
"""

import os
import shutil
import subprocess
import sys

OLDEST = (3, 10)


def has_compiler():
    """Return whether ``$CC``, or ``cc`` if that is not set, runs and finds the headers of the C library."""
    try:
        command = [os.environ.get("CC", "cc"), "-E", "-x", "c", "-"]
        done = subprocess.run(command, input=b"#include <stdio.h>\n", capture_output=True, check=False)
    except OSError:
        return False
    return done.returncode == 0


def missing_requirement(target="test"):
    """Return a sentence about what ``make target`` lacks, or None if nothing is missing."""
    if sys.version_info[:2] < OLDEST:
        return (
            "gpuwidget needs Python %d.%d or newer, and %s is Python %d.%d: run make with PYTHON=python3.11."
            % (OLDEST + (sys.executable,) + sys.version_info[:2])
        )
    missing, packages = [], []
    try:
        import ensurepip  # noqa: F401
        import venv  # noqa: F401
    except ImportError as error:
        missing.append("the module %s of %s" % (error.name, sys.executable))
        packages.append("python%d.%d-venv" % sys.version_info[:2])
    # make sets MAKELEVEL for the programs that it runs, so if MAKELEVEL is set, make is installed.
    if "MAKELEVEL" not in os.environ and shutil.which("make") is None:
        missing.append("make")
        packages.append("make")
    if target == "test" and shutil.which("git") is None:
        missing.append("git")
        packages.append("git")
    if target == "test" and not has_compiler():
        missing.append("a C compiler with the C library's headers")
        packages += ["gcc", "libc6-dev"]
    if not missing:
        return None
    return "Missing for 'make %s': %s (Debian, Ubuntu: apt-get install %s)." % (
        target,
        ", ".join(missing),
        " ".join(packages),
    )


if __name__ == "__main__":
    sys.exit(missing_requirement(*sys.argv[1:]))
