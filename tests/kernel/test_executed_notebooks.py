"""Notebooks that a program executes: nbclient, which nbconvert and papermill use."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest
from helpers_kernel import KERNEL_PYTHON, Kernel
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient

CARD = "application/vnd.gpuwidget.report+json"
LONG = "%%gpuwatch\nimport time\ntime.sleep(0.8)"
CLEARS = (
    "%%gpuwatch\nfrom IPython.display import clear_output\n"
    "for i in range(3):\n    clear_output(wait=True)\n    print(i)\nclear_output(wait=True)"
)
REFUSED = "%%gpuwatch --need 900GiB\n1"
WRONG = "%%gpuwatch --gpu 99\n1"


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return a notebook after nbclient has executed it."""
    folder = tmp_path_factory.mktemp("executed")
    sources = ("%load_ext gpuwidget", LONG, CLEARS, REFUSED, WRONG, "%gpu device nonsense")
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
    manager = KernelManager(transport="ipc", connection_file=str(folder / "c.json"))
    manager._kernel_spec = KernelSpec(
        argv=[KERNEL_PYTHON, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        display_name="test",
        language="python",
    )
    environment = {**os.environ, "GPUWIDGET_SOURCE": "replay", "HOME": str(folder)}
    client = NotebookClient(made, km=manager, timeout=120, allow_errors=True)
    client.execute(env=environment, cwd=str(folder), cleanup_kc=True)
    return made


def _outputs(notebook: Any, source: str) -> list[Any]:
    (found,) = [cell.outputs for cell in notebook.cells if cell.source == source]
    assert isinstance(found, list)
    return found


@pytest.mark.parametrize("source", [LONG, CLEARS])
def test_no_chart_is_left(executed: Any, source: str) -> None:
    """A watched cell of an executed notebook leaves its card, and neither widgets nor an empty output."""
    outputs = [output for output in _outputs(executed, source) if output.output_type == "display_data"]
    assert [CARD in output.data for output in outputs] == [True]
    assert "widgets" not in executed.metadata


def test_conversions_do_not_warn(executed: Any) -> None:
    """nbconvert converts an executed notebook without a warning."""
    exporters = pytest.importorskip("nbconvert.exporters")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        html, _ = exporters.HTMLExporter(template_name="basic").from_notebook_node(executed)
    assert "GPU 0" in html


@pytest.mark.parametrize(
    ("source", "reason"),
    [(REFUSED, "900.0 GiB"), (WRONG, "--gpu"), ("%gpu device nonsense", "nonsense")],
)
def test_a_refused_cell_has_its_reason(executed: Any, source: str, reason: str) -> None:
    """The reason why a cell was refused is in the cell's error, from which papermill makes its exception."""
    (error,) = _outputs(executed, source)
    assert (error.output_type, error.ename) == ("error", "UsageError")
    assert reason in error.evalue
    assert error.traceback == [f"UsageError: {error.evalue}"]


@pytest.mark.parametrize("value", ["0", "1"])
def test_the_live_chart_can_be_turned_off(
    start_kernel: Callable[..., Kernel], tmp_path: Path, value: str
) -> None:
    """With GPUWIDGET_LIVE=0, a cell in a front end has its card and no live chart."""
    kernel = start_kernel(GPUWIDGET_LIVE=value)
    kernel.ok("%load_ext gpuwidget")
    ran = kernel.ok("%%gpuwatch\nimport time; time.sleep(1.5)")
    assert (len(ran.cards), bool(ran.live)) == (1, value == "1")
