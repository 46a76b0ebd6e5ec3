"""Check a clean clone of the last commit as the release that it would be.

``python -m tools.release_check [--tag TAG] [--keep FOLDER]`` runs the checks of CHECKS and prints a line for
each. Nothing that is untracked or uncommitted counts. ``--tag`` also compares the version with a tag, and
``--keep`` copies the checked files into FOLDER, so that exactly these can be published. The exit status is 1
if a check failed. The last lines list what only the project's owner can do.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.install import has_other_index

ROOT = Path(__file__).resolve().parent.parent
DIST_VARIABLE = "GPUWIDGET_TEST_DIST"
"""If this environment variable names a folder, ``tests/unit/project/test_wheel.py`` tests the wheel there
instead of building one."""
WHEEL_TESTS = "tests/unit/project/test_wheel.py"
SMOKE_TESTS = "tests/kernel/test_executed_notebooks.py"
"""The tests of a notebook that nbclient executes. They run with the wheel and the packages it requires."""
PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
LARGEST_SDIST = 4_000_000
OWNER = (
    "Reserve the name jupyterlab-gpuwidget on PyPI and on conda-forge.",
    "On PyPI, add a trusted publisher: workflow release.yml, environment pypi.",
    "On the repository's host, turn on private vulnerability reporting, to which SECURITY.md and "
    "CODE_OF_CONDUCT.md refer, and GitHub Pages from a workflow.",
    "In CHANGELOG.md and CITATION.cff, write the date of the release.",
    "Register a DOI, and add it to CITATION.cff.",
    "Send conda/recipe to conda-forge, with the sdist's address and checksum as its source.",
)
"""What no check can do."""


class FailedCheck(Exception):
    """A check failed, for the reason in the message."""


class NotAvailable(Exception):
    """A check can't run on this machine, for the reason in the message."""


@dataclass(frozen=True)
class Release:
    """A clone of the last commit, and the folder with the files that were built from it. ``tag`` is the tag
    that will be released, if it is known."""

    clone: Path
    dist: Path
    tag: str | None = None

    def text(self, name: str) -> str:
        """Return the content of a file of the clone."""
        return (self.clone / name).read_text(encoding="utf-8")

    @property
    def version(self) -> str:
        """Return the version of the package."""
        (version,) = re.findall(r'^__version__ = "(.+)"$', self.text("gpuwidget/version.py"), re.MULTILINE)
        return str(version)

    def built(self, pattern: str) -> Path:
        """Return the path of the file in ``dist`` that matches ``pattern``."""
        paths = list(self.dist.glob(pattern))
        if len(paths) != 1:
            raise FailedCheck(f"{len(paths)} files match {pattern}, because the build failed")
        return paths[0]


def output(command: Sequence[str], cwd: Path, **variables: str) -> str:
    """Run a command and return what it printed. Raises FailedCheck with its last lines if it fails."""
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, **variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise FailedCheck("\n".join(done.stdout.strip().splitlines()[-12:]))
    return done.stdout.strip()


def tool(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module of this environment."""
    return [sys.executable, "-m", module, *arguments]


def last_line(text: str) -> str:
    """Return the last line of a command's output, without the ornaments of pytest."""
    return text.splitlines()[-1].strip("= ") if text else ""


# -- the checks ------------------------------------------------------------------------------------------


def check_version(release: Release) -> str:
    """Compare the versions of the package, the labextension, the citation, the conda recipe and the tag."""
    patterns = {
        "package.json": r'^  "version": "(.+)"',
        "CITATION.cff": r'^version: "(.+)"',
        "conda/recipe/recipe.yaml": r'^  version: "(.+)"',
    }
    found = {name: re.findall(one, release.text(name), re.MULTILINE) for name, one in patterns.items()}
    if release.tag is not None:
        found["the tag"] = [release.tag.removeprefix("v")]
    others = [f"{name} has {', '.join(one)}" for name, one in found.items() if one != [release.version]]
    if others:
        raise FailedCheck(f"gpuwidget/version.py has {release.version}, but {'; '.join(others)}")
    return f"{release.version} in gpuwidget/version.py, {', '.join(found)}"


def check_changelog(release: Release) -> str:
    """Check that the changelog begins with this version and, if there is a tag, with its date."""
    heading = re.search(r"^## (\S+), (.+)$", release.text("CHANGELOG.md"), re.MULTILINE)
    if heading is None or heading[1] != release.version:
        raise FailedCheck(f"CHANGELOG.md doesn't begin with a section '## {release.version}, ' and its date")
    if release.tag is not None and not re.fullmatch(r"\d{4}-\d\d-\d\d", heading[2]):
        raise FailedCheck(f"CHANGELOG.md has no date for {heading[1]}, but '{heading[2]}'")
    return heading[0].removeprefix("## ")


def build(release: Release, folder: Path) -> None:
    """Build the sdist, and the wheel from the sdist, with the time of the last commit."""
    time = output(["git", "log", "-1", "--format=%ct"], release.clone)
    command = tool("build", "--no-isolation", "--outdir", str(folder), str(release.clone))
    output(command, release.clone, SOURCE_DATE_EPOCH=time)


def check_build(release: Release) -> str:
    """Build the files of the release, and check the size of the sdist. The tests check that of the wheel."""
    build(release, release.dist)
    sizes = {path.name: path.stat().st_size for path in sorted(release.dist.iterdir())}
    if release.built("*.tar.gz").stat().st_size > LARGEST_SDIST:
        raise FailedCheck(f"the sdist has more than {LARGEST_SDIST / 1e6:g} MB: {sizes}")
    return ", ".join(f"{name} {size / 1e6:.2f} MB" for name, size in sizes.items())


def check_reproducible(release: Release) -> str:
    """Build once more, in another clone, and compare the files byte for byte."""
    first = sorted(release.dist.iterdir())
    with tempfile.TemporaryDirectory() as folder:
        again = Release(clone(release.clone, Path(folder) / "again"), Path(folder) / "dist")
        build(again, again.dist)
        second = sorted(again.dist.iterdir())
        different = [path.name for path, other in zip(first, second, strict=False) if not same(path, other)]
    if different or len(first) != len(second):
        raise FailedCheck(f"two builds differ: {', '.join(different)}")
    return f"{len(first)} files are identical in a second build"


def same(path: Path, other: Path) -> bool:
    """Return whether two files have the same name and content."""
    return path.name == other.name and path.read_bytes() == other.read_bytes()


def check_contents(release: Release) -> str:
    """Run the tests of the wheel: contents, size, licenses, metadata and bill of materials."""
    release.built("*.whl")
    command = tool("pytest", WHEEL_TESTS, "--quiet", "--numprocesses=0", "-k", "not second_build")
    return last_line(output(command, release.clone, **{DIST_VARIABLE: str(release.dist)}))


def check_page(release: Release) -> str:
    """Check that the wheel contains the built page, so that nobody who installs it builds JavaScript."""
    with zipfile.ZipFile(release.built("*.whl")) as archive:
        names = [name for name in archive.namelist() if "/labextensions/jupyterlab-gpuwidget/" in name]
        packages = [name for name in names if name.endswith("/jupyterlab-gpuwidget/package.json")]
        if not packages:
            raise FailedCheck("the wheel doesn't contain the labextension")
        load = json.loads(archive.read(packages[0]))["jupyterlab"]["_build"]["load"]
    if not any(name.endswith(load) for name in names):
        raise FailedCheck(f"the wheel doesn't contain {load}")
    scripts = sum(name.endswith(".js") for name in names)
    return f"{scripts} scripts, which begin with {load}"


def check_twine(release: Release) -> str:
    """Check that a package index can show the description."""
    files = [str(release.built("*.whl")), str(release.built("*.tar.gz"))]
    printed = output(tool("twine", "--no-color", "check", "--strict", *files), release.clone)
    return f"{printed.count(': PASSED')} of {len(files)} files passed"


def check_wheel_contents(release: Release) -> str:
    """Look for files in the wheel that don't belong there."""
    return last_line(output(tool("check_wheel_contents", release.built("*.whl").name), release.dist))


def check_pyproject(release: Release) -> str:
    """Validate pyproject.toml."""
    return last_line(output(tool("validate_pyproject", "pyproject.toml"), release.clone))


def check_python(release: Release, version: str) -> str:
    """Install the wheel into an empty environment of this Python, and execute a notebook there."""
    wheel = str(release.built("*.whl"))
    with tempfile.TemporaryDirectory() as folder:
        python = str(Path(folder) / "bin" / "python")
        try:
            output(tool("uv", "venv", "--quiet", "--python", version, folder), release.clone)
        except FailedCheck as error:
            raise NotAvailable(f"no Python {version} is installed or can be downloaded") from error
        # uv doesn't read pip's configuration.
        install = (
            tool("pip", "--python", python, "--disable-pip-version-check", "install", "--no-compile", wheel)
            if has_other_index()
            else tool("uv", "pip", "install", "--python", python, wheel)
        )
        output(install, Path(folder))
        printed = output([str(Path(folder) / "bin" / "gpuwidget"), "--version"], Path(folder))
        # Only the tests' process sees the clone: the kernel's folder is another one.
        tests = output(
            tool("pytest", SMOKE_TESTS, "--quiet", "--numprocesses=0"),
            release.clone,
            GPUWIDGET_TEST_PYTHON=python,
        )
    return f"{printed}; an executed notebook: {last_line(tests)}"


CHECKS: dict[str, Callable[[Release], str]] = {
    "version": check_version,
    "changelog": check_changelog,
    "build": check_build,
    "reproducible": check_reproducible,
    "contents": check_contents,
    "page": check_page,
    "twine check": check_twine,
    "wheel contents": check_wheel_contents,
    "pyproject": check_pyproject,
    **{
        f"Python {version}": lambda release, version=version: check_python(release, version)  # type: ignore[misc]
        for version in PYTHONS
    },
}
"""The checks by name, in the order in which they run. Each returns its result in one line, or raises
FailedCheck or NotAvailable."""


# -- running them ----------------------------------------------------------------------------------------


def clone(repository: Path, folder: Path) -> Path:
    """Clone the last commit of a repository into ``folder``, and return ``folder``."""
    output(["git", "clone", "--quiet", f"file://{repository}", str(folder)], repository)
    return folder


def run_checks(release: Release, checks: dict[str, Callable[[Release], str]] = CHECKS) -> bool:
    """Run the checks, and print the result of each. Return whether none failed."""
    ok = True
    for name, check in checks.items():
        try:
            status, result = "ok", check(release)
        except NotAvailable as error:
            status, result = "not available", str(error)
        except FailedCheck as error:
            status, result, ok = "FAILED", str(error), False
        print(f"{name:15} {status:14} {result}", flush=True)
    return ok


def left_to_owner(release: Release) -> list[str]:
    """Return what only the project's owner can do before this release."""
    address = re.search(r'^repository = "(.*)"', release.text("pyproject.toml"), re.MULTILINE)
    unset = (
        "Write the project's address as `repository` in pyproject.toml, [tool.hatch.metadata.hooks.custom]."
    )
    return [*([] if address and address[1] else [unset]), *OWNER]


def main() -> int:
    """Run all checks in a clean clone. Return 1 if one failed, else 0."""
    parser = argparse.ArgumentParser(description="Check the last commit as a release.")
    parser.add_argument("--tag", help="the tag of the release, such as v0.1.0")
    parser.add_argument("--keep", type=Path, help="the folder to which the checked files are copied")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        release = Release(clone(ROOT, Path(folder) / "clone"), Path(folder) / "dist", options.tag)
        ok = run_checks(release)
        if ok and options.keep is not None:
            shutil.rmtree(options.keep, ignore_errors=True)
            shutil.copytree(release.dist, options.keep)
        print("\nOnly the owner can do this:")
        print("\n".join(f"- {line}" for line in left_to_owner(release)))
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
