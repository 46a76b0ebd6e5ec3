"""What a user gets who installs the wheel, looked at away from the sources."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest

import gpuwidget

ROOT = Path(__file__).parent.parent
LARGEST = 1_000_000
LARGEST_PANEL = 100_000
DATA = f"jupyterlab_gpuwidget-{gpuwidget.__version__}.data/data"
LABEXTENSION = "share/jupyter/labextensions/jupyterlab-gpuwidget"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the sdist as a package index would have it."""
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(build, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder it is installed into."""
    target = tmp_path_factory.mktemp("installed")
    install = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--quiet"]
    subprocess.run([*install, "--target", str(target), str(wheel)], check=True)
    return target


def run(installed: Path, program: str) -> str:
    """What ``program`` prints with only the wheel's gpuwidget to be found."""
    prepared = f"import sys; sys.path.insert(0, {str(installed)!r})\n{program}"
    done = subprocess.run(
        [sys.executable, "-I", "-c", prepared], cwd=installed, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def metadata(wheel: Path) -> Message:
    """The wheel's METADATA."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return Parser().parsestr(archive.read(name).decode())


def test_it_imports_away_from_the_sources(installed: Path) -> None:
    """The wheel alone is enough for ``import gpuwidget``."""
    program = "import gpuwidget; print(gpuwidget.__version__, gpuwidget.__file__)"
    assert run(installed, program) == f"{gpuwidget.__version__} {installed / 'gpuwidget' / '__init__.py'}"


def test_it_brings_the_recording(installed: Path) -> None:
    """A machine without GPU sees the four recorded H200s."""
    program = (
        "from gpuwidget.sources import open_source\n"
        "print([gpu.name for gpu in open_source('replay').open().gpus])"
    )
    assert run(installed, program) == str(["NVIDIA H200"] * 4)


def test_it_holds_the_package_and_nothing_else(wheel: Path) -> None:
    """Every file of the package is in it, types and licence included, and no test, note or tool."""
    tracked = subprocess.run(
        ["git", "ls-files", "gpuwidget"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.split()
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assets = {name for name in names if name.startswith(f"{DATA}/{LABEXTENSION}/static/")}
    outside = {name for name in names if not name.startswith("gpuwidget/")} - assets
    information = f"jupyterlab_gpuwidget-{gpuwidget.__version__}.dist-info"
    assert set(tracked) - names == set()
    assert "gpuwidget/py.typed" in names
    assert outside == {
        *(
            f"{information}/{name}"
            for name in ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE")
        ),
        f"{DATA}/etc/jupyter/jupyter_server_config.d/gpuwidget.json",
        f"{DATA}/{LABEXTENSION}/install.json",
        f"{DATA}/{LABEXTENSION}/package.json",
        f"{DATA}/{LABEXTENSION}/schemas/jupyterlab-gpuwidget/package.json.orig",
        f"{DATA}/{LABEXTENSION}/schemas/jupyterlab-gpuwidget/panel.json",
    }
    assert wheel.name == f"jupyterlab_gpuwidget-{gpuwidget.__version__}-py3-none-any.whl"
    assert wheel.stat().st_size < LARGEST


def test_it_brings_the_notebooks(installed: Path, tmp_path: Path) -> None:
    """``gpuwidget examples`` copies out what lies in the sources' folder, without a second copy there."""
    program = (
        "from pathlib import Path; from gpuwidget.examples import copy_out\n"
        f"print(sorted(path.name for path in copy_out(Path({str(tmp_path)!r}))))"
    )
    sources = sorted((ROOT / "notebooks").glob("*.ipynb"))
    assert run(installed, program) == str([path.name for path in sources])
    assert [(tmp_path / path.name).read_bytes() for path in sources] == [
        path.read_bytes() for path in sources
    ]
    assert not (ROOT / "gpuwidget" / "notebooks").exists()


def test_it_brings_the_page_that_advice_names(installed: Path) -> None:
    """``docs/advice.md`` in gpuwidget's folder: what a card's link says is there to be read."""
    page = (installed / "gpuwidget" / "docs" / "advice.md").read_text(encoding="utf-8")
    assert page == (ROOT / "docs" / "advice.md").read_text(encoding="utf-8")


def test_it_brings_the_panel(wheel: Path) -> None:
    """JupyterLab finds the panel without Node and without sources, and loads less than 100 kB of it."""
    with zipfile.ZipFile(wheel) as archive:
        package = json.loads(archive.read(f"{DATA}/{LABEXTENSION}/package.json"))
        scripts = {
            name.removeprefix(f"{DATA}/{LABEXTENSION}/"): archive.read(name)
            for name in archive.namelist()
            if name.endswith(".js")
        }
    assert package["version"] == gpuwidget.__version__
    assert package["jupyterlab"]["_build"]["load"] in scripts
    assert sum(len(gzip.compress(script)) for script in scripts.values()) < LARGEST_PANEL


def test_installing_it_enables_the_server_extension(wheel: Path, installed: Path) -> None:
    """``pip install`` alone: the configuration is put where a Jupyter server of that environment reads it."""
    enabled = installed / "etc" / "jupyter" / "jupyter_server_config.d" / "gpuwidget.json"
    assert json.loads(enabled.read_text()) == {"ServerApp": {"jpserver_extensions": {"gpuwidget": True}}}
    program = (
        "import importlib, gpuwidget\n"
        "(point,) = gpuwidget._jupyter_server_extension_points()\n"
        "print(importlib.import_module(point['module'])._load_jupyter_server_extension.__name__)"
    )
    assert run(installed, program) == "_load_jupyter_server_extension"


def test_it_asks_for_no_jupyterlab_and_no_torch(wheel: Path) -> None:
    """Installing it into a hosted notebook's image changes nothing there: those two are extras."""
    told = metadata(wheel)
    required = [text for text in told.get_all("Requires-Dist") or [] if "extra ==" not in text]
    assert told["Requires-Python"] == ">=3.10"
    assert told["License-Expression"] == "BSD-3-Clause"
    assert sorted(told.get_all("Provides-Extra") or []) == ["lab", "notebook", "torch"]
    assert sorted(required) == [
        "bqplot<0.13,>=0.12.40",
        "ipykernel>=6.17",
        "ipython>=7.34",
        "ipywidgets>=7.7",
        "nvidia-ml-py>=12.535.108",
        "psutil>=5.9.4",
        "six>=1.15",
    ]


def test_it_installs_the_command(wheel: Path, installed: Path) -> None:
    """``gpuwidget --json`` prints the sample of the GPUs there are."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/entry_points.txt")]
        assert archive.read(name).decode() == (
            "[console_scripts]\ngpuwidget = gpuwidget.cli:main\n\n"
            "[jupyterlab.locale]\njupyterlab_gpuwidget = gpuwidget\n"
        )
    program = (
        "import os, sys; os.environ['GPUWIDGET_SOURCE'] = 'replay'; sys.argv = ['gpuwidget', '--json']\n"
        "from gpuwidget.cli import main; sys.exit(main())"
    )
    sample = json.loads(run(installed, program))
    assert [gpu["index"] for gpu in sample["gpus"]] == [0, 1, 2, 3]
