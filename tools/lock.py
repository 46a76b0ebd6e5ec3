"""Print requirements/lock.txt: the packages that ``make`` installs into .venv, for every supported Python.

``python -m tools.lock torch==VERSION`` resolves the packages together with that version of torch. The lock
omits torch itself, because machines use different builds of torch, which have different hashes.
"""

from __future__ import annotations

import re
import subprocess
import sys

HEADER = """\
# The newest packages this project was tested with, for every supported Python; `make lock` writes this file.
# It has the Python packages that torch needs, not torch itself, whose metadata pins its CUDA libraries.
"""
RESOLVE = (
    *(sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--universal", "--python-version", "3.10"),
    *("--no-python-downloads", "--only-binary", ":all:", "--generate-hashes"),
    *("--no-header", "--no-annotate", "--no-emit-index-url", "--no-emit-find-links"),
    *("--extra", "lab", "--extra", "notebook", "--group", "dev", "pyproject.toml", "-"),
)


def without_torch(resolved: str) -> str:
    """Return uv's output without torch and torch's CUDA libraries.

    The CUDA libraries are recognized by the marker ``sys_platform == 'linux'``, which only they have.
    """
    entries = re.findall(r"^\S.*\n(?:[ \t].*\n)*", resolved, re.MULTILINE)
    return "".join(
        entry
        for entry in entries
        if not entry.startswith("torch==") and "sys_platform == 'linux'" not in entry.partition("\n")[0]
    )


def main(torch: str) -> None:
    """Resolve pyproject.toml's packages together with ``torch`` (``torch==2.13.0``), and print the lock."""
    resolved = subprocess.run(RESOLVE, input=torch, stdout=subprocess.PIPE, text=True, check=True).stdout
    print(HEADER + without_torch(resolved), end="")


if __name__ == "__main__":
    main(*sys.argv[1:])
