"""Says in one sentence what is missing to make a virtual environment; must run on any Python there is."""

import sys

OLDEST = (3, 10)


def trouble():
    """The sentence, or None where nothing is missing."""
    if sys.version_info[:2] < OLDEST:
        return (
            "gpuwidget needs Python %d.%d or newer, and %s is Python %d.%d: run make with PYTHON=python3.11."
            % (OLDEST + (sys.executable,) + sys.version_info[:2])
        )
    try:
        import ensurepip  # noqa: F401
        import venv  # noqa: F401
    except ImportError as error:
        return "%s has no module %s: install it (Debian, Ubuntu: apt-get install python%d.%d-venv)." % (
            (sys.executable, error.name) + sys.version_info[:2]
        )
    return None


if __name__ == "__main__":
    sys.exit(trouble())
