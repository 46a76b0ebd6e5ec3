"""Tests of the declared dependencies, of their oldest supported versions, and of the distribution's
metadata."""

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
from trove_classifiers import classifiers
from unit.project.test_imports import PACKAGE, ROOT, imported_by

from tools.build_hook import add_urls
from tools.metadata_hook import project_urls

OPTIONAL = {
    "model/flat_metrics.py": {"pandas"},  # only for to_frame(), for users who have pandas
    "diagnostics/torch_probe.py": {"torch"},  # the doctor's probe process imports the user's torch
    "dask/worker_plugin.py": {"distributed"},  # only for users who have Dask
    "cli/jupyter_config.py": {"jupyter_core"},  # only for users whose servers Jupyter configures
    "journal/folder.py": {"jupyter_core"},  # ipykernel requires it
    "ranks/rank_socket.py": {
        "jupyter_core"
    },  # ipykernel requires it; without it, there are no reports of ranks
    "benchmarks/launch_bound_loads.py": {"transformers"},  # only for benchmarks on a GPU machine that has it
}
"""Packages that a module imports although they are optional, by module."""
NOT_IMPORTED = {
    "ipykernel",  # runs the magics: they use the shell's kernel without importing ipykernel
    "six",  # bqplot 0.12 imports it without declaring it
    "jupyterlab",  # shows the labextension
}
"""Packages that are declared as dependencies although no module of gpuwidget imports them, each with the
reason."""


def metadata(root: Path = ROOT) -> ProjectMetadata[Any]:
    """Return the metadata of pyproject.toml as the build backend reads it."""
    return ProjectMetadata(str(root), PluginManager())


def names(requirements: Iterable[str]) -> set[str]:
    """Return the normalized names of the distributions in a list of requirements."""
    return {canonicalize_name(Requirement(text).name) for text in requirements}


CORE = names(metadata().core.dependencies)
LAB = names(metadata().core.optional_dependencies["lab"])
NOTEBOOK = names(metadata().core.optional_dependencies["notebook"])
GROUPS = metadata().config["dependency-groups"]
DEV = names([*GROUPS["demo"], *(one for one in GROUPS["dev"] if isinstance(one, str))])
DISTRIBUTIONS = packages_distributions()


def undeclared(path: Path, declared: set[str], ours: Iterable[str] = ()) -> set[str]:
    """Return the packages that a module imports and that no distribution in ``declared`` provides. Packages
    in ``ours`` are ignored."""
    return {
        name
        for name in imported_by(path).difference(ours)
        if not declared & {canonicalize_name(one) for one in DISTRIBUTIONS.get(name, ())}
    }


def test_every_import_is_declared_where_it_is_needed() -> None:
    """Every package that gpuwidget imports is declared as a dependency, unless it is optional. Packages that
    only the server extension imports may be declared in the extra `lab`."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        module = path.relative_to(PACKAGE).as_posix()
        declared = CORE | LAB if module.startswith("server/") else CORE
        missing = undeclared(path, declared, OPTIONAL.get(module, ()))
        if missing:
            found[module] = missing
    assert found == {}


def test_every_import_of_a_contributors_tool_is_declared() -> None:
    """Every package that tests, tools and benchmarks import is declared in the dependency group `dev`, in an
    extra or as a dependency."""
    folders = [ROOT / name for name in ("benchmarks", "tests", "tools")]
    modules = [path for folder in folders for path in sorted(folder.rglob("*.py"))]
    ours = {"benchmarks", "tests", "tools", *(path.stem for path in modules)}
    ours |= {part for path in modules for part in path.relative_to(ROOT).parts}
    found = {
        module: missing
        for path in modules
        for module in [path.relative_to(ROOT).as_posix()]
        if (missing := undeclared(path, CORE | LAB | NOTEBOOK | DEV, ours | OPTIONAL.get(module, set())))
    }
    assert found == {}


def test_every_declared_package_is_needed() -> None:
    """Every package that is declared as a dependency is imported by gpuwidget or listed in NOT_IMPORTED."""
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
        (metadata().core.dependencies, "oldest.in"),
        (metadata().core.optional_dependencies["lab"], "oldest-lab.in"),
        (metadata().core.optional_dependencies["notebook"], "oldest-lab.in"),
    ],
    ids=["core", "lab", "notebook"],
)
def test_floors_are_tested(requirements: list[str], pins: str) -> None:
    """The tests with the oldest packages install exactly the minimum version that is declared for each
    dependency. No dependency has a maximum version."""
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
    """All classifiers are valid, so a package index accepts them. They include those by which JupyterLab's
    extension manager finds extensions."""
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
    """All project URLs derive from one setting in pyproject.toml, the project's address. If the address is
    empty, there are no project URLs."""
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
    """If the project's address is not an https URL, the build fails with an error."""
    with pytest.raises(ValueError, match="must be an https address, not 'owner/name'"):
        project_urls("owner/name")


def test_the_labextension_has_the_same_urls(tmp_path: Path) -> None:
    """The build adds the project's URLs to package.json. If there are none, it does not change the file."""
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
    """package.json in the sources contains no project URLs, because the build adds them."""
    package = json.loads((ROOT / "package.json").read_text(encoding="utf-8"))
    assert {"homepage", "repository", "bugs"} & set(package) == set()


def test_the_package_has_what_jupyterlabs_template_has(tmp_path: Path) -> None:
    """With the project's URLs, package.json has the fields and scripts of JupyterLab's template for
    extensions."""
    copy = tmp_path / "package.json"
    shutil.copy(ROOT / "package.json", copy)
    add_urls(copy, URLS)
    package = json.loads(copy.read_text(encoding="utf-8"))
    fields = """name version description keywords homepage bugs license author repository files main types
        style styleModule scripts dependencies devDependencies sideEffects jupyterlab"""
    assert [name for name in fields.split() if not package.get(name)] == []
    assert "jupyterlab-extension" in package["keywords"]
    assert {"build", "watch", "check", "test"} <= set(package["scripts"])
