"""The PyTorch switches in the panel, tested with a real kernel and torch's CPU build."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from helpers_lab import Notebook, runs_until
from helpers_panel import NOTICE, PANEL, open_part, show, wait_for_text

Open = Callable[..., Notebook]
SETTINGS = f"{PANEL} .jp-gpuwidget-switches"
SUMMARY = f"{SETTINGS} > summary"
LOG = f"{SETTINGS} .jp-gpuwidget-switches-log"
BENCHMARK = f"{SETTINGS} label:has-text('cuDNN benchmark') input"
MATMUL = f"{SETTINGS} label:has-text('float32 matmul') select"
UNAVAILABLE = "The switches are available once gpuwidget is loaded in the kernel."
LOAD_BOTH = "%load_ext gpuwidget\nimport torch"
NOW = "torch.backends.cudnn.benchmark, torch.get_float32_matmul_precision()"
FEWER_SWITCHES = """import gpuwidget.kernel.devices.switch_requests as ours
ours.TORCH_SWITCHES = tuple(kind for kind in ours.TORCH_SWITCHES if kind.name != "cudnn.benchmark")"""


def result(notebook: Notebook, cell: int) -> str:
    """Run a cell, and return the text of its result."""
    notebook.run_to_the_end(cell)
    text: str = notebook.outputs(cell)[-1]["data"]["text/plain"]
    return text


@pytest.fixture
def notebook(open_notebook: Open, tmp_path: Path) -> Notebook:
    """Open a notebook that has loaded gpuwidget and torch, and expand the panel's PyTorch switches."""
    made = open_notebook([LOAD_BOTH, NOW, runs_until(tmp_path / "end"), "%gpu switches cudnn.benchmark on"])
    show(made, 300)
    made.run_to_the_end(0)
    open_part(made, "switches")
    wait_for_text(made, SUMMARY, "all default")
    made.page.wait_for_selector(f"{BENCHMARK}:enabled")
    return made


def test_a_toggle_runs_its_statement(notebook: Notebook) -> None:
    """If the user changes a switch in the panel, the kernel runs a torch statement, which the panel shows.
    The new value applies to the next cell."""
    assert "Changes appear here as the Python code" in notebook.page.inner_text(LOG)
    notebook.page.click(BENCHMARK)
    wait_for_text(notebook, LOG, "Ran: torch.backends.cudnn.benchmark = True")
    wait_for_text(notebook, SUMMARY, "1 changed")
    notebook.page.select_option(MATMUL, "high")
    wait_for_text(notebook, LOG, 'Ran: torch.set_float32_matmul_precision("high")')
    assert result(notebook, 1) == "(True, 'high')"


def test_a_switch_is_pending_while_a_cell_runs(notebook: Notebook, tmp_path: Path) -> None:
    """If the user changes a switch while a cell is running, the change is pending until the next cell, and
    the panel shows the new value and that it is pending."""
    height = notebook.page.evaluate(f"document.querySelector('{SETTINGS}').offsetHeight")
    notebook.run(2)
    notebook.page.wait_for_selector(f"{PANEL} .jp-gpuwidget-device-busy:text('busy')")
    notebook.page.click(BENCHMARK)
    wait_for_text(notebook, LOG, "Takes effect in the next cell: torch.backends.cudnn.benchmark = True")
    wait_for_text(notebook, SUMMARY, "1 change in the next cell")
    assert notebook.page.is_checked(BENCHMARK)
    assert not notebook.script("return window.gpuwidgetDone;")
    (tmp_path / "end").touch()
    notebook.wait_until_done()
    assert result(notebook, 1) == "(True, 'highest')"
    wait_for_text(notebook, LOG, "Ran: torch.backends.cudnn.benchmark = True")
    assert notebook.page.evaluate(f"document.querySelector('{SETTINGS}').offsetHeight") == height


def test_the_panel_shows_what_a_cell_sets(notebook: Notebook) -> None:
    """If a cell sets a switch with %gpu switches, the panel shows the new value."""
    notebook.run_to_the_end(3)
    notebook.page.wait_for_function(
        "() => [...document.querySelectorAll('.jp-gpuwidget-switches-row')]"
        ".some(row => row.innerText.includes('cuDNN benchmark') && row.querySelector('input').checked)"
    )
    assert "Ran: torch.backends.cudnn.benchmark = True" in notebook.page.inner_text(LOG)


def test_a_restarted_kernel(notebook: Notebook) -> None:
    """After a restart of the kernel, the switches are disabled, the panel shows when they are available, and
    the log of statements is empty."""
    notebook.page.click(BENCHMARK)
    wait_for_text(notebook, LOG, "Ran: ")
    notebook.script("await panel.sessionContext.session.kernel.restart();")
    wait_for_text(notebook, LOG, UNAVAILABLE)
    assert "Ran: " not in notebook.page.inner_text(LOG)
    assert notebook.page.is_disabled(BENCHMARK)
    notebook.run_to_the_end(0)
    notebook.page.wait_for_selector(f"{BENCHMARK}:enabled")
    assert not notebook.page.is_checked(BENCHMARK)


def test_without_torch(open_notebook: Open) -> None:
    """Until torch is imported, every switch is disabled without a value, and the section shows what to do.
    That gpuwidget is not loaded is shown once in the panel."""
    notebook = open_notebook(["%load_ext gpuwidget", "import torch"])
    show(notebook, 300)
    wait_for_text(notebook, SUMMARY, "PyTorch switches")
    open_part(notebook, "switches")
    wait_for_text(notebook, NOTICE, "gpuwidget is not loaded in this kernel.")
    assert notebook.page.inner_text(LOG) == UNAVAILABLE
    open_part(notebook, "health")
    assert notebook.page.inner_text(PANEL).count("gpuwidget is not loaded in this kernel.") == 1
    notebook.run_to_the_end(0)
    wait_for_text(notebook, LOG, "Import torch in a cell to use the switches.")
    assert notebook.page.is_disabled(BENCHMARK)
    assert notebook.page.locator(f"{SETTINGS} label").count() == 6
    notebook.run_to_the_end(1)
    notebook.page.wait_for_selector(f"{BENCHMARK}:enabled")


def test_a_switch_that_the_kernel_lacks_is_not_shown(open_notebook: Open) -> None:
    """If the kernel's version of gpuwidget lacks a switch, the panel does not show it."""
    notebook = open_notebook([LOAD_BOTH, FEWER_SWITCHES])
    show(notebook, 300)
    notebook.run_to_the_end(0)
    open_part(notebook, "switches")
    wait_for_text(notebook, SUMMARY, "all default")
    notebook.page.wait_for_selector(f"{BENCHMARK}:enabled")
    notebook.run_to_the_end(1)
    notebook.page.wait_for_selector(BENCHMARK, state="detached")
    assert notebook.page.locator(f"{SETTINGS} label").count() == 5


def test_the_keyboard(notebook: Notebook) -> None:
    """Each switch has an accessible name, can be toggled with the space bar, and has a tooltip that explains
    its trade-off."""
    notebook.page.focus(SUMMARY)
    notebook.page.keyboard.press("Tab")
    notebook.page.keyboard.press("Tab")
    notebook.page.keyboard.press("Space")
    wait_for_text(notebook, LOG, "Ran: torch.backends.cudnn.benchmark = True")
    toggle = notebook.page.get_by_role("switch", name="cuDNN benchmark")
    assert toggle.is_checked()
    title = notebook.page.get_attribute(f"{SETTINGS} label:has-text('cuDNN benchmark')", "title") or ""
    assert title.startswith("On: cuDNN times its algorithms on each new shape and keeps the fastest.")
