"""Prints requirements/newest.txt: every package of this Python's environment, pinned."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable

HEADER = """\
# The newest packages this project was tested with: constraints for `make demo`, `make test` and CI.
# Made anew by `make lock`. Python 3.10, which the newest no longer support, takes the newest that do.
"""


def constraints(frozen: Iterable[str]) -> str:
    """The lines of ``pip freeze`` as constraints for Python 3.11 and newer.

    A local version (torch's +cpu) is one machine's choice of build, not a version of the package.
    """
    pins = (re.sub(r"\+\S+$", "", line.strip()) for line in frozen if re.match(r"[A-Za-z0-9]", line))
    return HEADER + "".join(f'{pin} ; python_version >= "3.11"\n' for pin in pins)


def main() -> None:
    """Print the constraints."""
    command = [sys.executable, "-m", "pip", "freeze", "--all", "--exclude-editable"]
    frozen = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    print(constraints(frozen.splitlines()), end="")


if __name__ == "__main__":
    main()
