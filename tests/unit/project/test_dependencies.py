"""The distribution's declarations: the packages that it imports, with tested floors, and its metadata."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest
from hatchling.metadata.core import ProjectMetadata
from hatchling.plugin.manager import PluginManager
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version
from test_imports import PACKAGE, ROOT, imported_by
from trove_classifiers import classifiers

from tools.build_hook import add_urls
from tools.metadata_hook import project_urls

OPTIONAL = {
    "model/flat_metrics.py": {"pandas"},  # to_frame() alone, for users who work with pandas
    "diagnostics/torch_probe.py": {"torch"},  # the doctor imports the user's torch in a child process
    "benchmarks/launch_bound_loads.py": {"transformers"},  # on a GPU machine that has it
}
"""Imports of packages that a user may not have, by module."""
NOT_IMPORTED = {
    "ipykernel",  # runs the magics: found in the shell, never imported
    "six",  # bqplot 0.12 imports it and does not declare it
    "jupyterlab",  # shows the labextension
}
"""Declared packages that no module imports, with the reason."""


def metadata(root: Path = ROOT) -> ProjectMetadata[Any]:
    """The metadata of pyproject.toml as the build backend reads it."""
    return ProjectMetadata(str(root), PluginManager())


def names(requirements: Iterable[str]) -> set[str]:
    """Return the normalized names of the distributions."""
    return {canonicalize_name(Requirement(text).name) for text in requirements}


CORE = names(metadata().core.dependencies)
LAB = names(metadata().core.optional_dependencies["lab"])
NOTEBOOK = names(metadata().core.optional_dependencies["notebook"])
DEV = names(metadata().config["dependency-groups"]["dev"])
DISTRIBUTIONS = packages_distributions()


def undeclared(path: Path, declared: set[str], ours: Iterable[str] = ()) -> set[str]:
    """Return the packages that a module imports and that belong to none of the ``declared`` distributions."""
    return {
        name
        for name in imported_by(path).difference(ours)
        if not declared & {canonicalize_name(one) for one in DISTRIBUTIONS.get(name, ())}
    }


def test_every_import_is_declared_where_it_is_needed() -> None:
    """Installing gpuwidget installs everything that it imports; the extra `lab` adds all for the server
    part."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        module = path.relative_to(PACKAGE).as_posix()
        declared = CORE | LAB if module.startswith("server/") else CORE
        missing = undeclared(path, declared, OPTIONAL.get(module, ()))
        if missing:
            found[module] = missing
    assert found == {}


def test_every_import_of_a_contributors_tool_is_declared() -> None:
    """What tests, tools and benchmarks import is installed with the group `dev` and the extras."""
    folders = [ROOT / name for name in ("benchmarks", "tests", "tools")]
    modules = [path for folder in folders for path in sorted(folder.rglob("*.py"))]
    ours = {"benchmarks", "tests", "tools", *(path.stem for path in modules)}
    ours |= {path.parent.name for path in modules if path.name == "__init__.py"}
    found = {
        module: missing
        for path in modules
        for module in [path.relative_to(ROOT).as_posix()]
        if (missing := undeclared(path, CORE | LAB | NOTEBOOK | DEV, ours | OPTIONAL.get(module, set())))
    }
    assert found == {}


def test_every_declared_package_is_needed() -> None:
    """A declared package is imported, or there is a reason why not."""
    imported = {
        canonicalize_name(one)
        for path in PACKAGE.rglob("*.py")
        for name in imported_by(path)
        for one in DISTRIBUTIONS.get(name, ())
    }
    assert (CORE | LAB) - imported == NOT_IMPORTED


@pytest.mark.parametrize(
    ("requirements", "pins"),
    [
        (metadata().core.dependencies, "oldest.txt"),
        (metadata().core.optional_dependencies["lab"], "oldest-lab.txt"),
        (metadata().core.optional_dependencies["notebook"], "oldest-lab.txt"),
    ],
    ids=["core", "lab", "notebook"],
)
def test_floors_are_tested(requirements: list[str], pins: str) -> None:
    """Each floor is the version in the tests with the oldest packages, and nothing has a cap."""
    lines = (ROOT / "requirements" / pins).read_text(encoding="utf-8").splitlines()
    pinned: dict[str, set[str]] = {}
    for pin in (Requirement(line) for line in lines if line and not line.startswith("#")):
        pinned.setdefault(canonicalize_name(pin.name), set()).update(one.version for one in pin.specifier)
    untested = []
    for requirement in map(Requirement, requirements):
        (floor,) = requirement.specifier
        assert floor.operator == ">="
        tested = pinned.get(canonicalize_name(requirement.name), set())
        if not any(Version(version) == Version(floor.version) for version in tested):
            untested.append(str(requirement))
    assert untested == []


# -- what package indexes show -----------------------------------------------------------------------------


def test_classifiers_are_valid() -> None:
    """A package index accepts the upload, and JupyterLab's extension manager lists the extension."""
    declared = set(metadata().core.classifiers)
    assert declared - classifiers == set()
    assert {
        "Environment :: GPU :: NVIDIA CUDA",
        "Framework :: Jupyter :: JupyterLab",
        "Framework :: Jupyter :: JupyterLab :: 4",
        "Framework :: Jupyter :: JupyterLab :: Extensions",
        "Framework :: Jupyter :: JupyterLab :: Extensions :: Prebuilt",
        "Operating System :: POSIX :: Linux",
    } <= declared
    versions = {text.rpartition(" ")[2] for text in declared if re.search(r"Python :: 3\.\d+$", text)}
    assert versions == {"3.10", "3.11", "3.12", "3.13", "3.14"}


ADDRESS = "https://git.example/owner/name"
URLS = {
    "Homepage": ADDRESS,
    "Documentation": f"{ADDRESS}#readme",
    "Repository": ADDRESS,
    "Issues": f"{ADDRESS}/issues",
    "Changelog": f"{ADDRESS}/blob/main/CHANGELOG.md",
}


@pytest.mark.parametrize(("setting", "urls"), [("", {}), (ADDRESS, URLS), (f"{ADDRESS}/", URLS)])
def test_all_urls_derive_from_one_setting(tmp_path: Path, setting: str, urls: dict[str, str]) -> None:
    """With the project's address set every URL is there; without one there is none."""
    for name in ("README.md", "LICENSE", "gpuwidget/version.py", "tools/metadata_hook.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    changed, count = re.subn(r'^repository = ".*"$', f'repository = "{setting}"', text, flags=re.MULTILINE)
    assert count == 1
    (tmp_path / "pyproject.toml").write_text(changed, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "metadata"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout).get("urls", {}) == urls


def test_an_invalid_address() -> None:
    """A typing error in the setting fails the build."""
    with pytest.raises(ValueError, match="must be an https address, not 'owner/name'"):
        project_urls("owner/name")


def test_the_labextension_has_the_same_urls(tmp_path: Path) -> None:
    """JupyterLab's extension manager links to the same address, and to none while there is none."""
    package = tmp_path / "package.json"
    package.write_text('{"name": "jupyterlab-gpuwidget"}')
    add_urls(package, {})
    assert package.read_text() == '{"name": "jupyterlab-gpuwidget"}'
    add_urls(package, URLS)
    assert json.loads(package.read_text()) == {
        "name": "jupyterlab-gpuwidget",
        "homepage": ADDRESS,
        "repository": {"type": "git", "url": ADDRESS},
        "bugs": {"url": f"{ADDRESS}/issues"},
    }


def test_no_other_file_repeats_the_address() -> None:
    """package.json leaves the project's URLs to the build."""
    package = json.loads((ROOT / "package.json").read_text(encoding="utf-8"))
    assert {"homepage", "repository", "bugs"} & set(package) == set()
