"""torch's switches in the panel, with a real kernel and torch's CPU build."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from helpers_lab import Notebook
from helpers_panel import PANEL, show, wait_for_text

Open = Callable[..., Notebook]
FOLD = f"{PANEL} .jp-gpuwidget-settings"
HEAD = f"{FOLD} > summary"
SAID = f"{FOLD} .jp-gpuwidget-settings-log"
BENCHMARK = f"{FOLD} label:has-text('cuDNN benchmark') input"
MATMUL = f"{FOLD} label:has-text('float32 matmul') select"
LOAD_BOTH = "%load_ext gpuwidget\nimport torch"
NOW = "torch.backends.cudnn.benchmark, torch.get_float32_matmul_precision()"
FEWER = """import gpuwidget.kernel.devices.switch_requests as ours
ours.TORCH_SWITCHES = tuple(kind for kind in ours.TORCH_SWITCHES if kind.name != "cudnn.benchmark")"""
SLEEP = "import time; time.sleep(8)"


def run(notebook: Notebook, cell: int) -> None:
    """Run a cell to its end."""
    notebook.run(cell)
    notebook.wait_until_done()


def result(notebook: Notebook, cell: int) -> str:
    """The text of a cell's result, run now."""
    run(notebook, cell)
    text: str = notebook.outputs(cell)[-1]["data"]["text/plain"]
    return text


@pytest.fixture
def notebook(open_notebook: Open) -> Notebook:
    """A notebook with gpuwidget and torch, and the switches unfolded."""
    made = open_notebook([LOAD_BOTH, NOW, SLEEP, "%gpu switches cudnn.benchmark on"])
    show(made, 300)
    run(made, 0)
    wait_for_text(made, HEAD, "torch's defaults")
    made.page.click(HEAD)
    made.page.wait_for_selector(f"{BENCHMARK}:enabled")
    return made


def test_a_toggle_runs_its_statement(notebook: Notebook) -> None:
    """It says exactly what it ran, and the next cell has it; so does a list of choices."""
    assert "What is set here is told here" in notebook.page.inner_text(SAID)
    notebook.page.click(BENCHMARK)
    wait_for_text(notebook, SAID, "ran: torch.backends.cudnn.benchmark = True")
    wait_for_text(notebook, HEAD, "1 changed")
    notebook.page.select_option(MATMUL, "high")
    wait_for_text(notebook, SAID, 'ran: torch.set_float32_matmul_precision("high")')
    assert result(notebook, 1) == "(True, 'high')"


def test_while_a_cell_runs_it_waits(notebook: Notebook) -> None:
    """The running cell is left alone; the panel says so, and what it ran once the next one has begun."""
    height = notebook.page.evaluate(f"document.querySelector('{FOLD}').offsetHeight")
    notebook.run(2)
    notebook.page.wait_for_selector(f"{PANEL} .jp-gpuwidget-device-busy:text('busy')")
    notebook.page.click(BENCHMARK)
    wait_for_text(notebook, SAID, "from the next cell: torch.backends.cudnn.benchmark = True", seconds=5)
    wait_for_text(notebook, HEAD, "1 from the next cell")
    assert notebook.page.is_checked(BENCHMARK)
    assert not notebook.script("return window.gpuwidgetDone;")
    notebook.wait_until_done()
    assert result(notebook, 1) == "(True, 'highest')"
    wait_for_text(notebook, SAID, "ran: torch.backends.cudnn.benchmark = True")
    assert notebook.page.evaluate(f"document.querySelector('{FOLD}').offsetHeight") == height


def test_what_a_cell_sets_shows(notebook: Notebook) -> None:
    """The panel and %gpu switches are in step."""
    run(notebook, 3)
    notebook.page.wait_for_function(
        "() => [...document.querySelectorAll('.jp-gpuwidget-settings-row')]"
        ".some(row => row.innerText.includes('cuDNN benchmark') && row.querySelector('input').checked)"
    )
    assert "ran: torch.backends.cudnn.benchmark = True" in notebook.page.inner_text(SAID)


def test_a_restarted_kernel_begins_anew(notebook: Notebook) -> None:
    """Nothing is set any more, nothing can be, and the panel says why; nothing is said to have been run."""
    notebook.page.click(BENCHMARK)
    wait_for_text(notebook, SAID, "ran: ")
    notebook.script("await panel.sessionContext.session.kernel.restart();")
    wait_for_text(notebook, SAID, "The kernel was restarted")
    assert "ran: " not in notebook.page.inner_text(SAID)
    assert notebook.page.is_disabled(BENCHMARK)
    run(notebook, 0)
    notebook.page.wait_for_selector(f"{BENCHMARK}:enabled")
    assert not notebook.page.is_checked(BENCHMARK)


def test_without_torch_they_say_so(open_notebook: Open) -> None:
    """Before torch is imported every switch is there, without a value, disabled with the reason."""
    notebook = open_notebook(["%load_ext gpuwidget", "import torch"])
    show(notebook, 300)
    wait_for_text(notebook, HEAD, "Torch switches")
    notebook.page.click(HEAD)
    wait_for_text(notebook, SAID, "gpuwidget is not loaded in this kernel.")
    run(notebook, 0)
    wait_for_text(notebook, SAID, "torch is not imported in this kernel: import it in a cell first.")
    assert notebook.page.is_disabled(BENCHMARK)
    assert notebook.page.locator(f"{FOLD} label").count() == 6
    run(notebook, 1)
    notebook.page.wait_for_selector(f"{BENCHMARK}:enabled")


def test_a_switch_that_the_kernel_lacks_is_not_shown(open_notebook: Open) -> None:
    """Another version has other switches: none keeps the value that another kernel gave it."""
    notebook = open_notebook([LOAD_BOTH, FEWER])
    show(notebook, 300)
    run(notebook, 0)
    wait_for_text(notebook, HEAD, "torch's defaults")
    notebook.page.click(HEAD)
    notebook.page.wait_for_selector(f"{BENCHMARK}:enabled")
    run(notebook, 1)
    notebook.page.wait_for_selector(BENCHMARK, state="detached")
    assert notebook.page.locator(f"{FOLD} label").count() == 5


def test_they_are_reached_by_keyboard(notebook: Notebook) -> None:
    """Each has its name, is toggled by the space bar, and tells what it trades under the pointer."""
    notebook.page.focus(HEAD)
    notebook.page.keyboard.press("Tab")
    notebook.page.keyboard.press("Tab")
    notebook.page.keyboard.press("Space")
    wait_for_text(notebook, SAID, "ran: torch.backends.cudnn.benchmark = True")
    toggle = notebook.page.get_by_role("switch", name="cuDNN benchmark")
    assert toggle.is_checked()
    title = notebook.page.get_attribute(f"{FOLD} label:has-text('cuDNN benchmark')", "title") or ""
    assert title.startswith("On: cuDNN tries its algorithms on each new shape and keeps the fastest.")
