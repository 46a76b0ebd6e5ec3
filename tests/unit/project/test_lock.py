"""Tests of the lock files: every package that CI installs has a pinned version and hashes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from helpers_programs import skip

from tools import install, lock

ROOT = Path(__file__).parents[3]
LOCK = ROOT / "requirements" / "lock.txt"
PYTHONS = ("3.10.0", "3.11.0", "3.11.2", "3.12.0", "3.13.0", "3.14.0")
"""The first release of each supported minor version of Python, and Debian 12's release. The lock is tested
with first releases, because a package may require a later patch release."""
OF_TORCH = re.compile(r"(torch|triton|cuda-.+|nvidia-(?!ml-py).+)==")


PINNED = re.compile(r"[\w.-]+==[\w.!+]+( ; [^\n]+)?( \\\n    --hash=sha256:[0-9a-f]{64})+\n?")
"""An entry of a lock file."""


def entries(text: str) -> list[str]:
    """Return the entries of a lock file, each with its marker and hashes."""
    return [entry for entry in re.split(r"\n(?=\S)", text) if not entry.startswith("#")]


def pins(name: str) -> dict[str, tuple[str, ...]]:
    """Return the hashes of each pin (``name==version``) of a lock file."""
    found = entries((lock.REQUIREMENTS / name).read_text(encoding="utf-8"))
    return {entry.split()[0]: tuple(re.findall(r"sha256:\w+", entry)) for entry in found}


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


@pytest.mark.parametrize("name", lock.FILES)
def test_every_pin_has_hashes_and_no_index(name: str) -> None:
    """Every package in a lock file has a hash that pip verifies. The file names no package index, so pip uses
    the one that is configured."""
    text = (lock.REQUIREMENTS / name).read_text(encoding="utf-8")
    pinned = entries(text.removeprefix(lock.header(name)))
    assert len(pinned) >= 1
    assert [entry for entry in pinned if not re.fullmatch(PINNED, entry)] == []
    assert re.findall(r"https?://\S+|--\w*index\S*", text) == []


def test_no_lock_file_is_forgotten() -> None:
    """``make lock`` writes every lock file of the folder."""
    assert {path.name for path in lock.REQUIREMENTS.glob("*.txt")} == set(lock.FILES)


def test_the_container_and_the_demo_get_the_packages_that_are_tested() -> None:
    """The container and `make demo` have the versions with which the tests run, with the same hashes. For
    JupyterHub, only the packages that JupyterHub needs in addition may differ."""
    assert pins("lab.txt").items() <= pins("lock.txt").items()
    assert pins("demo.txt").items() <= pins("lock.txt").items()
    assert pins("uv.txt").items() <= pins("lock.txt").items()
    assert pins("lab.txt").items() <= pins("jupyterhub.txt").items()


@pytest.mark.parametrize("name", ["oldest", "oldest-lab"])
def test_the_oldest_versions_are_locked(name: str) -> None:
    """The lock file of an environment with the oldest packages has the versions in the list of the oldest
    versions."""
    listed = requirements((lock.REQUIREMENTS / f"{name}.in").read_text().replace("_", "-"))
    assert listed - requirements((lock.REQUIREMENTS / f"{name}.txt").read_text()) == set()


def test_make_installs_only_packages_with_hashes() -> None:
    """``make`` installs packages only from lock files, with hashes. torch is the exception, because machines
    use different builds. gpuwidget itself is installed without its requirements."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    pip, locked, *installs = re.findall(
        r"^.*(?:pip install|\$\(PIP\)|tools/install|\$\(LOCKED\)).*$", makefile, re.MULTILINE
    )
    assert pip.startswith("PIP := -m pip install ")
    assert locked == "LOCKED := $(VENV)/bin/python tools/install.py"
    assert install.LOCKED == ("install", "--require-hashes", "--requirement")
    assert [re.sub(r"^.*?\$\((?=PIP|LOCKED)", "$(", line) for line in installs] == [
        "$(LOCKED) requirements/demo.txt",
        "$(PIP) --no-deps --no-build-isolation --editable .",
        "$(PIP) $(TORCH_PACKAGE))",
        "$(LOCKED) $(LOCK)",
        "$(LOCKED) requirements/node.txt",
        "$(LOCKED) $(2) $(1)/bin/python",
        "$(PIP) --no-deps --no-index --force-reinstall $(1)/editable/*.whl",
    ]
    oldest = re.findall(r"\$\(call install_oldest,\S+?,(\S+)\)$", makefile, re.MULTILINE)
    assert oldest == ["requirements/oldest.txt", "requirements/oldest-lab.txt"]
    assert "$(RUN) build --no-isolation\n" in makefile


def test_no_npm_package_runs_a_script_when_it_is_installed() -> None:
    """Installing the panel's npm packages runs none of their scripts."""
    settings = yaml.safe_load((ROOT / ".yarnrc.yml").read_text(encoding="utf-8"))
    assert settings["enableScripts"] is False
