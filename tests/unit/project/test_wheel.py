"""Tests of the wheel that a user installs, without access to the sources."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from hatchling.metadata.core import ProjectMetadata
from hatchling.plugin.manager import PluginManager
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import gpuwidget
from benchmarks.labextensions import compressed_kib
from tools.release_check import DIST_VARIABLE
from tools.sbom import BUNDLED, PYTHON_LICENSES, bill_of_materials
from tools.sbom import pins as locked_pins

pytestmark = pytest.mark.timeout(1200)
"""Building the wheel and installing it with several sets of packages takes minutes on a loaded machine."""

ROOT = Path(__file__).parents[3]
LARGEST = 1_400_000
LARGEST_PANEL_KIB = 95
DATA = f"jupyterlab_gpuwidget-{gpuwidget.__version__}.data/data"
LABEXTENSION = "share/jupyter/labextensions/jupyterlab-gpuwidget"
SBOM = "sboms/jupyterlab-gpuwidget.cdx.json"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the wheel. It is built from the sdist, as it would be for a package index.
    ``make release-check`` has built it already."""
    folder = os.environ.get(DIST_VARIABLE)
    if folder is not None:
        (path,) = Path(folder).glob("*.whl")
        return path
    return build(ROOT, tmp_path_factory.mktemp("dist"))


def build(sources: Path, folder: Path, *options: str) -> Path:
    """Build the sdist, and from it the wheel, into ``folder``, or what ``options`` name. Return the wheel."""
    command = [sys.executable, "-m", "build", "--no-isolation", *options, "--outdir", str(folder)]
    command.append(str(sources))
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel into a folder, and return the folder."""
    target = tmp_path_factory.mktemp("installed")
    install = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--quiet"]
    subprocess.run([*install, "--target", str(target), str(wheel)], check=True)
    return target


def run(installed: Path, program: str) -> str:
    """Run a Python program that imports gpuwidget from the installed wheel, and return its output."""
    prepared = f"import sys; sys.path.insert(0, {str(installed)!r})\n{program}"
    done = subprocess.run(
        [sys.executable, "-I", "-c", prepared], cwd=installed, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def metadata(wheel: Path) -> Message:
    """Return the wheel's METADATA file, parsed."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return Parser().parsestr(archive.read(name).decode())


def test_the_wheel_imports_outside_the_checkout(installed: Path) -> None:
    """After the wheel is installed, ``import gpuwidget`` works without the sources."""
    program = "import gpuwidget; print(gpuwidget.__version__, gpuwidget.__file__)"
    assert run(installed, program) == f"{gpuwidget.__version__} {installed / 'gpuwidget' / '__init__.py'}"


def test_it_contains_the_recording(installed: Path) -> None:
    """The wheel contains the recording of four H200s, which a machine without a GPU can replay."""
    program = (
        "from gpuwidget.sources import open_source\n"
        "print([gpu.name for gpu in open_source('replay').open().gpus])"
    )
    assert run(installed, program) == str(["NVIDIA H200"] * 4)


def test_it_contains_the_package_and_nothing_else(wheel: Path) -> None:
    """The wheel contains all files of the package except the sources of its translations, the marker of its
    type hints, the labextension, the license and the bill of materials. It contains no tests, notes or
    tools."""
    tracked = subprocess.run(
        ["git", "ls-files", "gpuwidget"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assets = {name for name in names if name.startswith(f"{DATA}/{LABEXTENSION}/static/")}
    outside = {name for name in names if not name.startswith("gpuwidget/")} - assets
    information = f"jupyterlab_gpuwidget-{gpuwidget.__version__}.dist-info"
    translations = {name for name in tracked if name.endswith((".po", ".pot"))}
    assert set(tracked) - translations - names == set()
    assert translations & names == set()
    assert "gpuwidget/py.typed" in names
    assert outside == {
        *(
            f"{information}/{name}"
            for name in ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE", SBOM)
        ),
        f"{DATA}/etc/jupyter/jupyter_server_config.d/gpuwidget.json",
        f"{DATA}/{LABEXTENSION}/install.json",
        f"{DATA}/{LABEXTENSION}/package.json",
        f"{DATA}/{LABEXTENSION}/schemas/jupyterlab-gpuwidget/package.json.orig",
        f"{DATA}/{LABEXTENSION}/schemas/jupyterlab-gpuwidget/panel.json",
        f"{DATA}/{LABEXTENSION}/schemas/jupyterlab-gpuwidget/toolbar.json",
    }
    assert wheel.name == f"jupyterlab_gpuwidget-{gpuwidget.__version__}-py3-none-any.whl"
    assert wheel.stat().st_size < LARGEST


def test_it_contains_the_notebooks(installed: Path, tmp_path: Path) -> None:
    """The wheel contains the notebooks that ``gpuwidget examples`` copies. They come from the `notebooks`
    folder; the sources contain no second copy."""
    program = (
        "from pathlib import Path; from gpuwidget.cli.commands.examples import copy_notebooks\n"
        f"print(sorted(path.name for path in copy_notebooks(Path({str(tmp_path)!r}))))"
    )
    sources = sorted((ROOT / "notebooks").glob("*.ipynb"))
    assert run(installed, program) == str([path.name for path in sources])
    assert [(tmp_path / path.name).read_bytes() for path in sources] == [
        path.read_bytes() for path in sources
    ]
    assert not (ROOT / "gpuwidget" / "notebooks").exists()


def test_it_contains_the_page_that_advice_links_to(installed: Path) -> None:
    """The wheel contains ``docs/reference/advice.md``, the page to which the advice on a card links."""
    page = (installed / "gpuwidget" / "docs" / "reference" / "advice.md").read_text(encoding="utf-8")
    assert page == (ROOT / "docs" / "reference" / "advice.md").read_text(encoding="utf-8")


def test_it_contains_the_panel(wheel: Path, tmp_path: Path) -> None:
    """The wheel contains the built labextension, of which a page loads less than 95 KiB of compressed
    JavaScript at its start."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    folder = tmp_path / DATA / LABEXTENSION
    package = json.loads((folder / "package.json").read_text())
    sizes = compressed_kib(folder)
    assert package["version"] == gpuwidget.__version__
    assert (folder / package["jupyterlab"]["_build"]["load"]).is_file()
    assert sizes is not None
    assert sizes.at_start < LARGEST_PANEL_KIB


def test_installing_it_enables_the_server_extension(wheel: Path, installed: Path) -> None:
    """After the wheel is installed, the server extension is enabled without further configuration."""
    enabled = installed / "etc" / "jupyter" / "jupyter_server_config.d" / "gpuwidget.json"
    assert json.loads(enabled.read_text()) == {"ServerApp": {"jpserver_extensions": {"gpuwidget": True}}}
    program = (
        "import importlib, gpuwidget\n"
        "(point,) = gpuwidget._jupyter_server_extension_points()\n"
        "print(importlib.import_module(point['module'])._load_jupyter_server_extension.__name__)"
    )
    assert run(installed, program) == "_load_jupyter_server_extension"


def test_it_requires_no_jupyterlab_and_no_torch(wheel: Path) -> None:
    """The wheel does not require JupyterLab or torch: both are extras. Installing it into a hosted notebook's
    image therefore changes neither."""
    told = metadata(wheel)
    required = [text for text in told.get_all("Requires-Dist") or [] if "extra ==" not in text]
    assert told["Requires-Python"] == ">=3.10"
    assert told["License-Expression"] == "BSD-3-Clause"
    assert sorted(told.get_all("Provides-Extra") or []) == ["lab", "notebook", "torch"]
    assert sorted(required) == [
        "bqplot>=0.12.40",
        "ipykernel>=6.17",
        "ipython>=7.34",
        "ipywidgets>=7.7",
        "numpy>=1.23.2",
        "nvidia-ml-py>=12.535.108",
        "packaging>=21.3",
        "psutil>=5.9.4",
        "six>=1.15",
    ]


def test_package_indexes_and_jupyterlab_list_it(wheel: Path) -> None:
    """The wheel's metadata has the classifiers and URLs from pyproject.toml. JupyterLab finds extensions by
    these classifiers."""
    told, declared = metadata(wheel), ProjectMetadata(str(ROOT), PluginManager()).core
    assert told.get_all("Classifier") == declared.classifiers
    assert "Framework :: Jupyter :: JupyterLab :: Extensions :: Prebuilt" in declared.classifiers
    assert (told.get_all("Project-URL") or []) == [f"{label}, {url}" for label, url in declared.urls.items()]


@pytest.mark.timeout(900)
def test_a_second_build_gives_the_same_bytes(wheel: Path, tmp_path: Path) -> None:
    """Two builds from the same sources give the same wheel, byte for byte, although each build is in another
    folder. Anyone can check that a wheel was built from these sources."""
    (sdist,) = wheel.parent.glob("*.tar.gz")
    shutil.unpack_archive(sdist, tmp_path / "sources")
    (sources,) = (tmp_path / "sources").iterdir()
    again = build(sources, tmp_path / "dist", "--wheel")
    with zipfile.ZipFile(wheel) as first, zipfile.ZipFile(again) as second:
        assert [one.filename for one in first.infolist()] == [one.filename for one in second.infolist()]
        assert [name for name in first.namelist() if first.read(name) != second.read(name)] == []
    assert again.read_bytes() == wheel.read_bytes()


def test_the_bill_of_materials_is_valid(wheel: Path) -> None:
    """The wheel contains a bill of materials (SBOM) at the place of PEP 770. It is valid CycloneDX 1.6, and
    has neither a random number nor the time of the build. ``make build`` puts a copy beside the wheel. The
    files of a release have the time of their commit."""
    text = sbom(wheel)
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    (copy,) = wheel.parent.glob("*.cdx.json")
    assert copy.name == f"jupyterlab_gpuwidget-{gpuwidget.__version__}.cdx.json"
    assert copy.read_text(encoding="utf-8") == text
    told = json.loads(text)
    assert "serialNumber" not in told
    assert set(told["metadata"]) == {"component"} | ({"timestamp"} if DIST_VARIABLE in os.environ else set())
    assert told["metadata"]["component"]["purl"] == f"pkg:pypi/jupyterlab-gpuwidget@{gpuwidget.__version__}"
    assert told["metadata"]["component"]["licenses"] == [{"license": {"id": "BSD-3-Clause"}}]


def test_the_bill_of_materials_lists_what_the_panel_contains(wheel: Path) -> None:
    """The SBOM lists every npm package whose code is in the labextension, with its version, license and
    checksum from yarn.lock."""
    with zipfile.ZipFile(wheel) as archive:
        licenses = json.loads(archive.read(f"{DATA}/{LABEXTENSION}/static/third-party-licenses.json"))
    listed = {
        one["purl"]: (one["licenses"], properties(one))
        for one in json.loads(sbom(wheel))["components"]
        if one["purl"].startswith("pkg:npm/")
    }
    lock = (ROOT / "yarn.lock").read_text(encoding="utf-8")
    assert listed == {
        f"pkg:npm/{one['name']}@{one['versionInfo']}": (
            [{"license": {"id": one["licenseId"]}}],
            {"included": "yes", "yarn-checksum": checksum},
        )
        for one in licenses["packages"]
        for checksum in re.findall(
            rf'"{one["name"]}@npm:{re.escape(one["versionInfo"])}"\n(?:  .*\n)*?  checksum: (\w+)\n', lock
        )
    }
    assert "pkg:npm/uplot@1.6.32" in listed


def test_the_bill_of_materials_lists_the_requirements(wheel: Path) -> None:
    """The SBOM lists every Python package that gpuwidget requires, also in an extra, in each version of the
    lock, with the hashes of its files and its license."""
    listed: dict[str, list[Any]] = {}
    for one in json.loads(sbom(wheel))["components"]:
        if one["purl"].startswith("pkg:pypi/"):
            listed.setdefault(properties(one)["requirement"], []).append(one)
    core = ProjectMetadata(str(ROOT), PluginManager()).core
    extras = {text for texts in core.optional_dependencies.values() for text in texts}
    assert set(listed) == set(core.dependencies) | extras
    pins = locked_pins((ROOT / "requirements" / "lock.txt").read_text(encoding="utf-8"))
    for text, components in listed.items():
        assert {one["scope"] for one in components} == {"optional" if text in extras else "required"}
        pinned = pins.get(canonicalize_name(Requirement(text).name), [])
        hashes = [
            [file["content"] for file in one["externalReferences"][0]["hashes"]]
            for one in components
            if "version" in one
        ]
        assert sorted(map(sorted, hashes)) == sorted(sorted(pin.hashes) for pin in pinned)
        assert {one["version"] for one in components if "version" in one} == {pin.version for pin in pinned}
    assert [one for one in listed["torch>=2.3"] if "version" in one] == []


def test_the_licenses_in_the_bill_of_materials_are_those_of_the_packages() -> None:
    """The licenses of the required Python packages in the SBOM are those that the installed packages
    declare."""
    for name, license_text in PYTHON_LICENSES.items():
        try:
            declared = importlib.metadata.metadata(name).get_all("License-Expression") or []
        except importlib.metadata.PackageNotFoundError:
            assert name == "torch"
            continue
        assert all(license_text in one for one in declared)


def test_the_bill_of_materials_has_the_time_of_the_sources(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """If ``SOURCE_DATE_EPOCH`` is set, the SBOM has this time."""
    built = tmp_path / BUNDLED
    built.parent.mkdir(parents=True)
    built.write_text('{"packages": []}')
    for name in (
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "yarn.lock",
        "requirements/lock.txt",
        "gpuwidget/version.py",
        "tools/metadata_hook.py",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1767225600")
    assert json.loads(bill_of_materials(tmp_path))["metadata"]["timestamp"] == "2026-01-01T00:00:00+00:00"


def sbom(wheel: Path) -> str:
    """Return the text of the wheel's bill of materials."""
    with zipfile.ZipFile(wheel) as archive:
        return archive.read(f"jupyterlab_gpuwidget-{gpuwidget.__version__}.dist-info/{SBOM}").decode()


def properties(component: dict[str, Any]) -> dict[str, str]:
    """Return gpuwidget's properties of a component of the bill of materials."""
    return {one["name"].removeprefix("gpuwidget:"): one["value"] for one in component["properties"]}


IPYWIDGETS_NEEDS = ("ipykernel", "ipython", "traitlets")
BQPLOT_NEEDS = (
    "ipywidgets<9,>=7.5.0",
    "traitlets>=4.3.0",
    "traittypes>=0.0.6",
    "numpy>=1.10.4",
    "pandas>=1.0.0",
)
INDEX = (
    ("bqplot", "0.12.40", BQPLOT_NEEDS),
    ("bqplot", "0.12.47", BQPLOT_NEEDS),
    ("bqplot", "0.13.1", (*BQPLOT_NEEDS, "bqscales<0.4,>=0.3.3")),
    ("bqscales", "0.3.7", ("ipywidgets<9,>=8.0.1", "numpy>=1.10.4", "traitlets>=4.3.0", "traittypes>=0.0.6")),
    ("ipykernel", "7.4.0", ()),
    ("ipython", "9.17.0", ()),
    ("ipywidgets", "8.1.9", IPYWIDGETS_NEEDS),
    ("numpy", "2.4.6", ()),
    ("nvidia-ml-py", "13.590.48", ()),
    ("pandas", "3.1.1", ()),
    ("packaging", "26.3", ()),
    ("psutil", "7.2.2", ()),
    ("six", "1.17.0", ()),
    ("traitlets", "5.16.1", ()),
    ("traittypes", "0.2.3", ("traitlets>=4.2.2",)),
)
"""The packages on the package index that the tests simulate: name, version and the requirements that matter
here."""
OLD_IMAGE = {
    "ipykernel": "6.17.1",
    "ipython": "7.34.0",
    "ipywidgets": "7.7.1",
    "numpy": "1.26.4",
    "pandas": "2.2.2",
    "packaging": "24.1",
    "psutil": "5.9.5",
    "six": "1.16.0",
    "traitlets": "5.7.1",
}
"""Installed packages in the image of a hosted notebook with ipywidgets 7."""
NEW_IMAGE = {
    "ipykernel": "6.30.1",
    "ipython": "8.37.0",
    "ipywidgets": "8.1.5",
    "numpy": "2.0.2",
    "pandas": "2.2.3",
    "packaging": "24.2",
    "psutil": "7.0.0",
    "six": "1.16.0",
    "traitlets": "5.14.3",
}
"""Installed packages in the image of a hosted notebook with ipywidgets 8."""


@pytest.mark.parametrize(
    ("image", "asked", "installed"),
    [
        pytest.param(OLD_IMAGE, ["bqplot<0.13"], {"bqplot": "0.12.47"}, id="ipywidgets 7 and the constraint"),
        pytest.param(OLD_IMAGE | {"bqplot": "0.12.47"}, [], {}, id="ipywidgets 7 and bqplot"),
        pytest.param(NEW_IMAGE, [], {"bqplot": "0.13.1", "bqscales": "0.3.7"}, id="ipywidgets 8"),
        pytest.param(NEW_IMAGE | {"bqplot": "0.12.47"}, [], {}, id="ipywidgets 8 and bqplot 0.12"),
        pytest.param(
            NEW_IMAGE | {"bqplot": "0.13.1", "bqscales": "0.3.7"}, [], {}, id="ipywidgets 8 and bqplot 0.13"
        ),
    ],
)
def test_it_changes_no_package_of_an_image(
    wheel: Path, tmp_path: Path, image: dict[str, str], asked: list[str], installed: dict[str, str]
) -> None:
    """Installing the wheel into a hosted notebook's image adds the packages that are missing, and upgrades
    none."""
    added = {"nvidia-ml-py": "13.590.48", "traittypes": "0.2.3"}
    expected = {"jupyterlab-gpuwidget": gpuwidget.__version__} | added | installed
    assert would_install(wheel, tmp_path, image, asked) == expected


def test_an_image_with_ipywidgets_7_needs_the_constraint(wheel: Path, tmp_path: Path) -> None:
    """In an image with ipywidgets 7, pip upgrades ipywidgets unless bqplot is constrained to a version before
    0.13. docs/using/install.md therefore contains this constraint."""
    assert would_install(wheel, tmp_path, OLD_IMAGE, [])["ipywidgets"] == "8.1.9"
    assert "'bqplot<0.13'" in (ROOT / "docs" / "using" / "install.md").read_text(encoding="utf-8")


def would_install(wheel: Path, folder: Path, image: dict[str, str], asked: list[str]) -> dict[str, str]:
    """Return the packages that pip would install into this image together with the wheel, and their
    versions."""
    index, environment, report = folder / "index", folder / "environment", folder / "report.json"
    index.mkdir()
    for name, version, needs in INDEX:
        _make_distribution(index, name, version, needs, as_wheel=True)
    venv.create(environment, symlinks=True)
    pip = [sys.executable, "-m", "pip", "--isolated", "--python", str(environment / "bin" / "python")]
    (packages,) = environment.glob("lib/python*/site-packages")
    listed = {(name, version): needs for name, version, needs in INDEX}
    newest = {name: needs for name, _, needs in INDEX}
    for name, version in image.items():
        needs = listed.get((name, version), newest[name])
        _make_distribution(packages, name, version, needs, as_wheel=False)
    options = ["--dry-run", "--no-index", "--find-links", str(index), "--report", str(report), "--quiet"]
    subprocess.run([*pip, "install", *options, str(wheel), *asked], check=True)
    found = [one["metadata"] for one in json.loads(report.read_text(encoding="utf-8"))["install"]]
    return {one["name"]: one["version"] for one in found}


def _make_distribution(
    folder: Path, name: str, version: str, needs: tuple[str, ...], *, as_wheel: bool
) -> None:
    """Create a distribution without code: either a wheel in ``folder``, or the metadata of an installed
    package in ``folder``."""
    base = f"{name.replace('-', '_')}-{version}"
    requirements = "".join(f"Requires-Dist: {one}\n" for one in needs)
    files = {
        "METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{requirements}",
        "WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "RECORD": "",
    }
    if as_wheel:
        with zipfile.ZipFile(folder / f"{base}-py3-none-any.whl", "w") as archive:
            for file, text in files.items():
                archive.writestr(f"{base}.dist-info/{file}", text)
        return
    (folder / f"{base}.dist-info").mkdir()
    for file, text in {**files, "INSTALLER": "pip\n"}.items():
        (folder / f"{base}.dist-info" / file).write_text(text)


def test_it_installs_the_command(wheel: Path, installed: Path) -> None:
    """Installing the wheel installs the command `gpuwidget`. ``gpuwidget --json`` prints a sample of the
    GPUs."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/entry_points.txt")]
        assert archive.read(name).decode() == (
            "[console_scripts]\ngpuwidget = gpuwidget.cli.main:main\n\n"
            "[jupyterlab.locale]\njupyterlab_gpuwidget = gpuwidget\n"
        )
    program = (
        "import os, sys; os.environ['GPUWIDGET_SOURCE'] = 'replay'; sys.argv = ['gpuwidget', '--json']\n"
        "from gpuwidget.cli.main import main; sys.exit(main())"
    )
    sample = json.loads(run(installed, program))
    assert [gpu["index"] for gpu in sample["gpus"]] == [0, 1, 2, 3]
