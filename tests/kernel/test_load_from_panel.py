"""The panel's button "Load gpuwidget" in a real kernel whose working folder contains hostile files.

Each hostile file leaves a mark if any of its code runs. tests/unit/kernel/test_load_from_panel.py tests which
folders the button's code trusts.
"""

from __future__ import annotations

import ast
import inspect
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from helpers_hostile_code import HostileFolder
from helpers_kernel import Kernel

from gpuwidget import __version__
from gpuwidget.kernel import load_from_panel

CODE = Path(inspect.getfile(load_from_panel)).read_text(encoding="utf-8")
EXPRESSION = f"(lambda names: (exec({json.dumps(CODE)}, names), names['load'](get_ipython()))[1])({{}})"
"""The expression that the panel sends (labextension/src/kernel/kernel.ts)."""
MODULES = sorted(
    {*sys.stdlib_module_names, "psutil", "pynvml", "ipywidgets", "bqplot", "numpy", "prometheus_client"}
)
"""The standard library's modules, and packages that gpuwidget imports."""


class Notebook(HostileFolder):
    """A kernel whose working folder contains hostile files."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel.folder, kernel.folder.parent / "mark")
        self.kernel = kernel
        # The kernel's first request imports modules that have nothing to do with gpuwidget.
        kernel.value("1")

    def press(self) -> Any:
        """Press the button, and return the outcome with its detail."""
        ran = self.kernel.run("", silent=True, store_history=False, user_expressions={"load": EXPRESSION})
        value = ran.reply["user_expressions"]["load"]
        assert value["status"] == "ok", value
        outcome, _, detail = ast.literal_eval(value["data"]["text/plain"]).partition(" ")
        return outcome, bytes.fromhex(detail).decode()


def test_a_package_beside_the_notebook(start_kernel: Callable[..., Kernel]) -> None:
    """A package called gpuwidget in the notebook's folder is refused, and its path is reported. Once it is
    renamed, the installed package is loaded. No code of the folder runs, also not that of files that are
    named like modules of the standard library or packages that gpuwidget needs."""
    opened = Notebook(start_kernel())
    opened.write_hostile("gpuwidget/__init__.py", *(f"{name}.py" for name in MODULES))
    before = opened.kernel.value("sorted(globals()), get_ipython().execution_count")
    assert opened.press() == ("refused", str(opened.folder / "gpuwidget"))
    assert opened.ran == ""
    (opened.folder / "gpuwidget").rename(opened.folder / "mine")
    assert opened.press() == ("loaded", __version__)
    assert opened.ran == ""
    assert opened.kernel.value("sorted(globals()), get_ipython().execution_count") == before


def test_what_gpuwidget_imports_later(start_kernel: Callable[..., Kernel]) -> None:
    """What gpuwidget imports on the sampler's thread, and for live charts while the kernel is idle, is not
    imported from the notebook's folder either."""
    opened = Notebook(start_kernel(GPUWIDGET_SOURCE="nvml"))
    opened.write_hostile(*(f"{name}.py" for name in MODULES))
    assert opened.press() == ("loaded", __version__)
    charts = "__import__('gpuwidget.kernel.live.chart_libraries', fromlist=['']).is_imported()"
    assert opened.kernel.value(charts) == "True"
    assert opened.kernel.value("type(__import__('gpuwidget').sample()).__name__") == "'Sample'"
    assert opened.ran == ""


def test_a_folder_without_init(start_kernel: Callable[..., Kernel]) -> None:
    """A folder called gpuwidget without __init__.py does not prevent the installed package from being
    loaded. Its files are not imported."""
    opened = Notebook(start_kernel())
    opened.write_hostile("gpuwidget/version.py", "gpuwidget/kernel/magics.py")
    assert opened.press() == ("loaded", __version__)
    assert opened.ran == ""


def test_a_user_who_trusts_the_package(start_kernel: Callable[..., Kernel]) -> None:
    """``%load_ext gpuwidget`` in a cell loads the package in the notebook's folder, as without the panel. The
    button never calls the function of that package that loads an extension."""
    opened = Notebook(start_kernel())
    opened.write_hostile("gpuwidget.py")
    opened.kernel.ok("import gpuwidget")
    assert opened.press() == ("refused", str(opened.folder / "gpuwidget.py"))
    assert opened.ran == "gpuwidget\n"
    opened.kernel.ok("%load_ext gpuwidget")
    assert opened.ran == "gpuwidget\nloaded"


def test_what_the_code_imports_first_is_loaded(start_kernel: Callable[..., Kernel]) -> None:
    """Every kernel has loaded the modules that the button's code imports before it checks the folder."""
    names = {"__future__", "_frozen_importlib_external", "_thread", "os", "sys"}
    body = ast.parse(CODE).body
    imported = {alias.name for node in body if isinstance(node, ast.Import) for alias in node.names}
    imported |= {str(node.module) for node in body if isinstance(node, ast.ImportFrom)}
    assert imported == names
    assert (
        start_kernel().value(f"{sorted(names)} == sorted({names} & {{*__import__('sys').modules}})") == "True"
    )
