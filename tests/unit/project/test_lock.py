"""Tests that requirements/lock.txt pins a package version for everything that a supported Python needs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from helpers_programs import skip

from tools import lock

ROOT = Path(__file__).parents[3]
LOCK = ROOT / "requirements" / "lock.txt"
PYTHONS = ("3.10.0", "3.11.0", "3.11.2", "3.12.0", "3.13.0", "3.14.0")
"""The first release of each supported minor version of Python, and Debian 12's release. The lock is tested
with first releases, because a package may require a later patch release."""
OF_TORCH = re.compile(r"(torch|triton|cuda-.+|nvidia-(?!ml-py).+)==")


def requirements(text: str) -> set[str]:
    """Return the pinned packages (``name==version``) of a requirements file, without markers and hashes."""
    return set(re.findall(r"^[\w.-]+==[\w.!]+", text, re.MULTILINE))


def resolve(python: str) -> set[str]:
    """Return the packages that uv selects for one Python version on Linux, given pyproject.toml, the
    Makefile's version of torch, and the lock."""
    torch = re.search(r"^TORCH_PACKAGE := (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert torch is not None
    done = subprocess.run(
        [
            *(sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--no-header", "--no-annotate"),
            *("--no-python-downloads", "--only-binary", ":all:"),
            *("--python-version", python, "--python-platform", "x86_64-manylinux_2_28"),
            *("--extra", "lab", "--extra", "notebook", "--group", "dev", "pyproject.toml", str(LOCK), "-"),
        ],
        cwd=ROOT,
        input=torch[1],
        capture_output=True,
        text=True,
        check=False,
    )
    if "Failed to fetch" in done.stderr:
        skip("no package index can be reached")
    assert done.returncode == 0, f"Run make lock. {done.stderr}"
    return requirements(done.stdout)


@pytest.mark.parametrize("python", PYTHONS)
def test_every_python_has_a_wheel_of_every_pin(python: str) -> None:
    """For every supported Python, the lock pins every package that is needed, except torch and its CUDA
    libraries."""
    resolved = resolve(python)
    left_out = {pin for pin in resolved if OF_TORCH.match(pin)}
    assert resolved - left_out - requirements(LOCK.read_text()) == set()


def test_every_pin_has_hashes_and_no_index() -> None:
    """Every package in the lock has a hash that pip verifies. The lock names no package index, so pip uses
    the one that is configured."""
    text = LOCK.read_text()
    entries = re.split(r"\n(?=\S)", text.removeprefix(lock.HEADER))
    assert [entry for entry in entries if not re.search(r"\n +--hash=sha256:[0-9a-f]{64}", entry)] == []
    assert re.findall(r"https?://\S+|--\w*index\S*", text) == []


def test_torch_is_left_out_of_the_lock_but_not_its_python_packages() -> None:
    """`without_torch()` removes torch, triton and the CUDA libraries from the lock, since they differ between
    machines. It keeps the other packages that torch requires."""
    resolved = (
        "filelock==4.2.11 ; python_full_version >= '3.11' \\\n    --hash=sha256:1\n"
        "nvidia-cublas==13.1.1.3 ; sys_platform == 'linux' \\\n    --hash=sha256:2\n"
        "nvidia-ml-py==13.615.71 \\\n    --hash=sha256:3 \\\n    --hash=sha256:4\n"
        "torch==2.13.0 \\\n    --hash=sha256:5\n"
        "triton==3.7.1 ; python_full_version < '3.15' and sys_platform == 'linux' \\\n    --hash=sha256:6\n"
    )
    assert lock.without_torch(resolved) == (
        "filelock==4.2.11 ; python_full_version >= '3.11' \\\n    --hash=sha256:1\n"
        "nvidia-ml-py==13.615.71 \\\n    --hash=sha256:3 \\\n    --hash=sha256:4\n"
    )
