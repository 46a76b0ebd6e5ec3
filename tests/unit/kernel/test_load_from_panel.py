"""The code with which the panel's button loads gpuwidget: from which folders it loads the package.

It runs in a process whose working folder is the notebook's. Hostile files leave a mark if their code runs.
tests/kernel/test_load_from_panel.py runs it in a real kernel.
"""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers_hostile_code import HostileFolder

from gpuwidget.kernel import load_from_panel

PROJECT = Path(inspect.getfile(load_from_panel)).parents[2]
RUN = """\
import os, sys
path = list(sys.meta_path)
class ExtensionManager:
    def load_extension(self, name):
        module = __import__(name)
        if not hasattr(module, "load_ipython_extension"):
            return "no load function"
        module.load_ipython_extension(shell)
class shell:
    starting_dir = os.getcwd()
    extension_manager = ExtensionManager()
{setup}
names = {{}}
exec({code!r}, names)
try:
    print(names["load"](shell))
except Exception as error:
    print(type(error).__name__, str(error).encode().hex())
assert sys.meta_path == path
{after}
"""
FAKE = """\
import threading
__version__ = "9.9"
def load_ipython_extension(shell):
    def work():
        import beside_the_notebook
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
"""
"""A package that can be loaded. Another thread meanwhile imports a module of the working folder."""


class Notebook(HostileFolder):
    """A notebook's folder, and a folder of installed packages, which is an absolute entry of PYTHONPATH."""

    def __init__(self, root: Path) -> None:
        super().__init__(root / "notebooks", root / "mark")
        self.site = root / "site"
        self.folder.mkdir()
        self.site.mkdir()

    def write_fake(self, place: Path) -> None:
        """Write a package that can be loaded into the folder ``place``."""
        (place / "gpuwidget").mkdir(parents=True)
        (place / "gpuwidget" / "__init__.py").write_text(FAKE, encoding="utf-8")

    def write_metadata(self, place: Path, *, editable: bool = True) -> None:
        """Write into ``place`` the metadata of a distribution whose source is the notebook's folder."""
        metadata = place / "jupyterlab_gpuwidget-9.9.dist-info"
        metadata.mkdir(parents=True)
        content = {"url": self.folder.as_uri(), "dir_info": {"editable": editable}}
        (metadata / "direct_url.json").write_text(json.dumps(content), encoding="utf-8")

    def press(self, setup: str = "", after: str = "", **environment: str) -> tuple[str, str]:
        """Press the button after the code ``setup`` has run. Return the outcome, or the name of the
        exception, with its detail."""
        forget = f"sys.path[:] = [entry for entry in sys.path if entry != {str(PROJECT)!r}]"
        code = load_from_panel_code()
        done = subprocess.run(
            [sys.executable, "-c", RUN.format(setup=f"{forget}\n{setup}", code=code, after=after)],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(self.site), **environment},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        outcome, _, detail = done.stdout.strip("\n").partition(" ")
        return outcome, bytes.fromhex(detail).decode()


def load_from_panel_code() -> str:
    """Return the code that the panel sends."""
    return Path(inspect.getfile(load_from_panel)).read_text(encoding="utf-8")


@pytest.fixture
def notebook(tmp_path: Path) -> Notebook:
    """Return a notebook's folder without any files, and without an installed gpuwidget."""
    return Notebook(tmp_path.resolve())


@pytest.mark.parametrize("name", ["gpuwidget/__init__.py", "gpuwidget.py"])
def test_a_package_beside_the_notebook_is_refused(notebook: Notebook, name: str) -> None:
    """A package or module called gpuwidget in the notebook's folder is refused, and its path is reported,
    whether or not another one is installed."""
    notebook.write_hostile(name)
    path = str(notebook.folder / name.partition("/")[0])
    assert notebook.press() == ("refused", path)
    notebook.write_fake(notebook.site)
    assert notebook.press() == ("refused", path)
    assert notebook.ran == ""


def test_a_package_in_a_later_entry_is_not_used(notebook: Notebook) -> None:
    """An installed package is loaded if its entry of the search path comes before the notebook's folder."""
    notebook.write_hostile("gpuwidget/__init__.py")
    notebook.write_fake(notebook.site)
    assert notebook.press("sys.path.append(sys.path.pop(0))") == ("loaded", "9.9")
    assert notebook.ran == ""


def test_a_folder_without_init_hides_nothing(notebook: Notebook) -> None:
    """A folder called gpuwidget without __init__.py does not prevent the installed package from being loaded.
    Without an installed package, none is reported."""
    notebook.write_hostile("gpuwidget/version.py")
    assert notebook.press() == ("not-installed", "")
    notebook.write_fake(notebook.site)
    assert notebook.press() == ("loaded", "9.9")
    assert notebook.ran == ""


@pytest.mark.parametrize(
    ("setup", "folder"),
    [
        ("sys.path.insert(0, 'lib')", "lib"),
        ("sys.path[:] = [os.getcwd(), *filter(None, sys.path)]", ""),
        ("sys.path.insert(0, os.getcwd()); os.mkdir('elsewhere'); os.chdir('elsewhere')", ""),
        ("os.mkdir('elsewhere'); os.chdir('elsewhere'); os.rename('../gpuwidget', 'gpuwidget')", "elsewhere"),
        ("os.environ['JPY_SESSION_NAME'] = os.getcwd() + '/a.ipynb'; sys.path.insert(0, os.getcwd())", ""),
    ],
)
def test_folders_that_depend_on_the_working_folder(notebook: Notebook, setup: str, folder: str) -> None:
    """A package is also refused if its folder is a relative entry of the search path, the notebook's, or the
    kernel's first or current working folder, even if the search path has its absolute path."""
    notebook.write_hostile("gpuwidget/__init__.py" if folder != "lib" else "lib/gpuwidget/__init__.py")
    assert notebook.press(setup) == ("refused", str(notebook.folder / folder / "gpuwidget"))
    assert notebook.ran == ""


def test_a_notebook_that_is_not_in_the_working_folder(notebook: Notebook) -> None:
    """A package beside the notebook is refused even if the kernel runs in another folder."""
    notebook.write_hostile("deep/gpuwidget.py")
    deep = notebook.folder / "deep"
    setup = f"sys.path.insert(0, {str(deep)!r})"
    session = str(deep / "a.ipynb")
    assert notebook.press(setup, JPY_SESSION_NAME=session) == ("refused", str(deep / "gpuwidget.py"))
    assert notebook.ran == ""


def test_a_relative_python_path(notebook: Notebook) -> None:
    """A package in a relative entry of PYTHONPATH, which Python makes absolute, is refused."""
    notebook.write_hostile("lib/gpuwidget/__init__.py")
    assert notebook.press(PYTHONPATH="lib") == ("refused", str(notebook.folder / "lib" / "gpuwidget"))
    assert notebook.ran == ""


def test_other_threads_import_as_usual(notebook: Notebook) -> None:
    """While the package is loaded, other threads can import modules of the working folder."""
    notebook.write_fake(notebook.site)
    (notebook.folder / "beside_the_notebook.py").write_text("")
    assert notebook.press(after="assert 'beside_the_notebook' in sys.modules") == ("loaded", "9.9")


@pytest.mark.parametrize("source", ["", "src"])
def test_an_editable_installation(notebook: Notebook, source: str) -> None:
    """A package in the working folder is loaded if it was installed from there with pip install -e. Files
    beside it do not replace modules of the standard library."""
    notebook.write_fake(notebook.folder / source)
    notebook.write_metadata(notebook.site)
    notebook.write_hostile(str(Path(source, "threading.py")))
    assert notebook.press(f"os.chdir({source or '.'!r})") == ("loaded", "9.9")
    assert notebook.ran == ""


@pytest.mark.parametrize(("place", "editable"), [("site", False), ("notebooks", True)])
def test_metadata_that_prove_nothing(notebook: Notebook, place: str, editable: bool) -> None:
    """Metadata in the notebook's folder itself, and those of an installation that copied the package, do not
    make the folder trusted."""
    notebook.write_hostile("gpuwidget/__init__.py")
    notebook.write_metadata(notebook.folder.parent / place, editable=editable)
    assert notebook.press() == ("refused", str(notebook.folder / "gpuwidget"))
    assert notebook.ran == ""


@pytest.mark.parametrize(
    "content",
    [
        *("", "[]", "{}", "\\x"),
        '{"dir_info": {"editable": true}, "url": 3}',
        '{"dir_info": {"editable": true}, "url": ""}',
        '{"dir_info": [], "url": "file:///"}',
    ],
)
def test_metadata_that_are_broken(notebook: Notebook, content: str) -> None:
    """Metadata that can't be read do not make a folder trusted."""
    notebook.write_hostile("gpuwidget/__init__.py")
    notebook.write_metadata(notebook.site)
    (notebook.site / "jupyterlab_gpuwidget-9.9.dist-info" / "direct_url.json").write_text(content)
    assert notebook.press() == ("refused", str(notebook.folder / "gpuwidget"))


def test_a_folder_inside_an_editable_installation(notebook: Notebook) -> None:
    """An editable installation makes only its source folder trusted, and not the folders inside it."""
    notebook.write_hostile("examples/gpuwidget/__init__.py")
    notebook.write_metadata(notebook.site)
    path = str(notebook.folder / "examples" / "gpuwidget")
    assert notebook.press("os.chdir('examples')") == ("refused", path)
    assert notebook.ran == ""


def test_a_package_that_a_cell_has_imported(notebook: Notebook) -> None:
    """If a cell has imported the package in the notebook's folder, the button does not call its function
    that loads an extension."""
    notebook.write_hostile("gpuwidget/__init__.py")
    assert notebook.press("import gpuwidget") == ("refused", str(notebook.folder / "gpuwidget"))
    assert notebook.ran == "gpuwidget\n"


def test_another_package_of_that_name(notebook: Notebook) -> None:
    """An installed package without a function that loads an extension is reported as another package."""
    (notebook.site / "gpuwidget.py").write_text("")
    assert notebook.press() == ("other-package", "")


def test_a_package_that_fails(notebook: Notebook) -> None:
    """If the package can't be imported, the button reports the exception, and later imports are as usual."""
    (notebook.site / "gpuwidget.py").write_text("import not_there")
    (notebook.folder / "later.py").write_text("")
    assert notebook.press(after="import later") == ("ModuleNotFoundError", "No module named 'not_there'")


def test_a_working_folder_that_was_deleted(notebook: Notebook) -> None:
    """If the working folder does not exist any more, the installed package is loaded."""
    notebook.write_fake(notebook.site)
    assert notebook.press("os.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone')") == ("loaded", "9.9")
