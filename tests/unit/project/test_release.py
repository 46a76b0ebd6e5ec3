"""Tests of ``make release-check``, and of the files that describe a release to others."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hatchling.metadata.core import ProjectMetadata
from hatchling.plugin.manager import PluginManager

from tools import install, release_check
from tools.release_check import FailedCheck, NotAvailable, Release

ROOT = Path(__file__).parents[3]
FILES = {
    "gpuwidget/version.py": '"""The version."""\n\n__version__ = "1.2.0"\n',
    "package.json": '{\n  "name": "jupyterlab-gpuwidget",\n  "version": "1.2.0"\n}\n',
    "CITATION.cff": 'cff-version: 1.2.0\nversion: "1.2.0"\n',
    "conda/recipe/recipe.yaml": 'context:\n  version: "1.2.0"\n',
    "CHANGELOG.md": "# Changes\n\n## 1.2.0, 2026-12-01\nIt is new.\n\n## 1.1.0, 2026-11-01\n",
    "pyproject.toml": '[tool.hatch.metadata.hooks.custom]\nrepository = ""\n',
}
"""The files of a consistent release that the checks of the version read."""


def core() -> Any:
    """Return the metadata of pyproject.toml."""
    return ProjectMetadata(str(ROOT), PluginManager()).core


@pytest.fixture
def make_release(tmp_path: Path) -> Callable[..., Release]:
    """Return a function that makes a release with the given changes to FILES."""

    def make(changes: dict[str, str] | None = None, tag: str | None = None) -> Release:
        for name, text in {**FILES, **(changes or {})}.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text, encoding="utf-8")
        (tmp_path / "dist").mkdir(exist_ok=True)
        return Release(tmp_path, tmp_path / "dist", tag)

    return make


def test_a_consistent_release_passes(make_release: Callable[..., Release]) -> None:
    """If all files have the version of the tag, the checks pass and show the version and its date."""
    release = make_release(tag="v1.2.0")
    assert release_check.check_version(release) == (
        "1.2.0 in gpuwidget/version.py, package.json, CITATION.cff, conda/recipe/recipe.yaml, the tag"
    )
    assert release_check.check_changelog(release) == "1.2.0, 2026-12-01"


@pytest.mark.parametrize(
    ("changes", "tag", "reason"),
    [
        (
            {"package.json": '{\n  "version": "1.1.0"\n}\n'},
            None,
            "gpuwidget/version.py has 1.2.0, but package.json has 1.1.0",
        ),
        (
            {"CITATION.cff": 'version: "1.1.0"\n', "conda/recipe/recipe.yaml": '  version: "1.0.0"\n'},
            None,
            "gpuwidget/version.py has 1.2.0, but CITATION.cff has 1.1.0; conda/recipe/recipe.yaml has 1.0.0",
        ),
        ({}, "v1.3.0", "gpuwidget/version.py has 1.2.0, but the tag has 1.3.0"),
    ],
)
def test_different_versions_fail(
    make_release: Callable[..., Release], changes: dict[str, str], tag: str | None, reason: str
) -> None:
    """If a file or the tag has another version than the package, the check names it and fails."""
    with pytest.raises(FailedCheck) as failed:
        release_check.check_version(make_release(changes, tag))
    assert str(failed.value) == reason


@pytest.mark.parametrize(
    ("changelog", "tag", "reason"),
    [
        (
            "# Changes\n\n## 1.1.0, 2026-11-01\n",
            None,
            "CHANGELOG.md doesn't begin with a section '## 1.2.0, ' and its date",
        ),
        (
            "# Changes\n\n## 1.2.0, unreleased\n",
            "v1.2.0",
            "CHANGELOG.md has no date for 1.2.0, but 'unreleased'",
        ),
    ],
)
def test_a_forgotten_changelog_fails(
    make_release: Callable[..., Release], changelog: str, tag: str | None, reason: str
) -> None:
    """If the changelog has no section for the version, or no date although the version is tagged, the check
    fails."""
    with pytest.raises(FailedCheck) as failed:
        release_check.check_changelog(make_release({"CHANGELOG.md": changelog}, tag))
    assert str(failed.value) == reason


def test_an_unreleased_version_needs_no_date(make_release: Callable[..., Release]) -> None:
    """Between releases, the changelog may say that the version is unreleased."""
    release = make_release({"CHANGELOG.md": "## 1.2.0, unreleased\n"})
    assert release_check.check_changelog(release) == "1.2.0, unreleased"


def test_a_wheel_without_the_page_fails(make_release: Callable[..., Release]) -> None:
    """If the wheel lacks the built page, the check fails, since its users would have to build JavaScript."""
    release = make_release()
    with zipfile.ZipFile(release.dist / "gpuwidget-1.2.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("gpuwidget/__init__.py", "")
    with pytest.raises(FailedCheck, match="doesn't contain the labextension"):
        release_check.check_page(release)


def test_a_failed_check_does_not_hide_the_others(
    make_release: Callable[..., Release], capsys: pytest.CaptureFixture[str]
) -> None:
    """Each check has a line with its result. If one fails, the others still run, and the exit status is 1.
    A missing Python is not a failure."""

    def fail(_: Release) -> str:
        raise FailedCheck("two builds differ")

    def missing(_: Release) -> str:
        raise NotAvailable("no Python 3.14")

    checks: dict[str, Callable[[Release], str]] = {
        "build": fail,
        "Python 3.14": missing,
        "version": release_check.check_version,
    }
    assert release_check.run_checks(make_release(), checks) is False
    assert [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()] == [
        "build FAILED two builds differ",
        "Python 3.14 not available no Python 3.14",
        "version ok 1.2.0 in gpuwidget/version.py, package.json, CITATION.cff, conda/recipe/recipe.yaml",
    ]
    assert release_check.run_checks(make_release(), {"Python 3.14": missing}) is True


def test_a_failed_command_shows_its_last_lines(tmp_path: Path) -> None:
    """If a program fails, the result contains the last lines that it printed."""
    program = "import sys; print('first', *range(20), 'last', sep='\\n'); sys.exit(1)"
    with pytest.raises(FailedCheck) as failed:
        release_check.output([sys.executable, "-c", program], tmp_path)
    assert str(failed.value).splitlines() == [*map(str, range(9, 20)), "last"]


def test_the_owner_sees_a_missing_address(make_release: Callable[..., Release]) -> None:
    """Until pyproject.toml has the project's address, it is the first thing that only the owner can do."""
    first = release_check.left_to_owner(make_release())[0]
    assert first.startswith("Write the project's address as `repository` in pyproject.toml")
    address = make_release({"pyproject.toml": 'repository = "https://example.org/o/gpuwidget"\n'})
    assert release_check.left_to_owner(address) == list(release_check.OWNER)


def test_the_supported_pythons_are_tested() -> None:
    """The release check and the workflow run on every Python that the classifiers name."""
    named = [one.rpartition(" ")[2] for one in core().classifiers if re.search(r":: 3\.\d+$", one)]
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "tests.yml").read_text(encoding="utf-8"))
    assert list(release_check.PYTHONS) == named
    assert workflow["jobs"]["python"]["strategy"]["matrix"]["python"] == named


def test_conda_installs_the_same_requirements() -> None:
    """The conda recipe requires the same packages as the wheel, with the same minimum versions, and
    constrains those of the extras."""
    recipe = yaml.safe_load((ROOT / "conda" / "recipe" / "recipe.yaml").read_text(encoding="utf-8"))
    _, *run = recipe["requirements"]["run"]
    constrained = recipe["requirements"]["run_constraints"]
    extras = [text for texts in core().optional_dependencies.values() for text in texts]
    assert sorted(one.replace(" ", "") for one in run) == sorted(core().dependencies)
    assert sorted(
        re.sub("^pytorch", "torch", one.replace(" ", "")).replace("_", "-") for one in constrained
    ) == (sorted(extras))


@pytest.mark.parametrize(
    ("configured", "uv_works", "programs"),
    [
        ("global.cert='/etc/ca.pem'\n", True, ["pip uv.txt", "uv some.txt"]),
        ("global.cert='/etc/ca.pem'\n", False, ["pip uv.txt", "uv some.txt", "pip some.txt"]),
        ("global.index-url='https://packages.example/simple'\n", True, ["pip some.txt"]),
        (":env:.extra-index-url='https://packages.example/simple'\n", True, ["pip some.txt"]),
    ],
)
def test_packages_come_from_the_configured_index(
    monkeypatch: pytest.MonkeyPatch, configured: str, uv_works: bool, programs: list[str]
) -> None:
    """`make demo` installs with uv, and with pip if uv fails. If pip is configured with another index, only
    pip installs, because uv would not use that index."""
    ran = []

    def succeeds(*command: str) -> bool:
        (file,) = [Path(one).name for one in command if one.endswith(".txt")]
        ran.append(f"{command[2]} {file}")
        return command[2] != "uv" or uv_works

    def config(*_: object, **__: object) -> Any:
        return type("Done", (), {"stdout": configured})

    monkeypatch.setattr(install, "succeeds", succeeds)
    monkeypatch.setattr(subprocess, "run", config)
    assert install.install("requirements/some.txt") is True
    assert ran == programs
