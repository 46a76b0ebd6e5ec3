"""The doctor in the panel: asked when it is unfolded, link by link, each with its remedy."""

from __future__ import annotations

import json
from collections.abc import Callable

from helpers_doctor import COMMAND, answer_server, ill, kernel_cell, well
from helpers_lab import Notebook
from helpers_panel import NOTICE, PANEL, show, wait_for_text

Open = Callable[..., Notebook]
HEALTH = f"{PANEL} .jp-gpuwidget-diagnostics"
HEAD = f"{HEALTH} > summary"
PLACE = f"{HEALTH} .jp-gpuwidget-diagnostics-environment"
LINK = f"{PLACE} .jp-gpuwidget-diagnostics-check"
AGAIN = f"{HEALTH} .jp-gpuwidget-diagnostics-run"


def texts(notebook: Notebook, selector: str) -> list[str]:
    """What each of these says, in one line."""
    said: list[str] = notebook.page.eval_on_selector_all(
        selector, "nodes => nodes.map(node => node.innerText.replace(/\\s+/g, ' ').trim())"
    )
    return said


def run(notebook: Notebook, cell: int) -> None:
    """Run a cell to its end."""
    notebook.run(cell)
    notebook.wait_until_done()


def examined(open_notebook: Open, kernel: dict[str, object], server: object, status: int = 200) -> Notebook:
    """A notebook whose kernel and server have these doctors, with the section unfolded."""
    notebook = open_notebook(["%load_ext gpuwidget", kernel_cell(kernel)])
    show(notebook, 300)
    answer_server(notebook, (status, server))
    for cell in (0, 1):
        run(notebook, cell)
    notebook.page.wait_for_selector(f"{PANEL} .jp-gpuwidget-device-watch:enabled")
    notebook.page.click(HEAD)
    notebook.page.wait_for_selector(LINK)
    return notebook


def test_it_asks_nobody_until_it_is_opened(open_notebook: Open) -> None:
    """Shown, folded, it costs nothing; unfolded it asks once, and again on request."""
    notebook = open_notebook(["1"])
    asked = answer_server(notebook, (200, well()))
    show(notebook, 300)
    wait_for_text(notebook, NOTICE, "gpuwidget is not loaded in this kernel.")
    assert texts(notebook, HEAD) == ["Health not looked at yet"]
    assert asked == []
    notebook.page.click(HEAD)
    wait_for_text(notebook, HEAD, "all links found")
    assert texts(notebook, f"{PLACE} .jp-gpuwidget-diagnostics-summary") == [
        "gpuwidget is not loaded in this kernel.",
        "All links are found: PyTorch can use 4 GPUs.",
    ]
    for _ in range(2):
        notebook.page.click(HEAD)
    assert len(asked) == 1
    notebook.page.click(AGAIN)
    notebook.page.wait_for_selector(f"{AGAIN}:enabled")
    assert len(asked) == 2


def test_the_chain_of_kernel_and_server(open_notebook: Open) -> None:
    """Each link has a sign, its name, what was found and a word; what is broken stands in the first line."""
    notebook = examined(open_notebook, ill(), well())
    wait_for_text(notebook, HEAD, "1 link broken: PyTorch")
    heads = texts(notebook, f"{PLACE}:first-child .jp-gpuwidget-diagnostics-check-head")
    assert heads[:2] == ["✕ PyTorch broken", "✓ CUDA runtime 13.0 found"]
    assert heads[6] == "? GPU unknown"
    assert heads[8:10] == ["\N{EN DASH} MIG and sharing MIG off skipped", "▲ Shared memory warning"]
    found = texts(
        notebook,
        f"{PLACE}:first-child .jp-gpuwidget-diagnostics-check[open] .jp-gpuwidget-diagnostics-check-result",
    )
    assert found == ["2.13.0+cpu, built for the CPU only", "not to be seen", "64 MiB"]
    assert texts(notebook, f"{PLACE} .jp-gpuwidget-diagnostics-title") == [
        f"Kernel of {notebook.path.name}",
        "Jupyter server",
    ]


def test_a_broken_link_is_unfolded_with_its_remedy(open_notebook: Open) -> None:
    """Reason and remedy are read at once, the command is copied by a button, the evidence is folded; what
    was read there is text and never markup."""
    notebook = examined(open_notebook, ill(), well())
    broken = notebook.page.locator(f"{LINK}[data-status=broken]")
    assert broken.get_attribute("open") is not None
    text = " ".join(broken.inner_text().split())
    assert "This build of PyTorch can't use a GPU: it has no CUDA. Do: Install a build with CUDA:" in text
    notebook.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    assert broken.locator("code").inner_text() == COMMAND
    broken.get_by_role("button", name="Copy").click()
    assert broken.get_by_role("button").inner_text() == "Copied"
    assert notebook.page.evaluate("navigator.clipboard.readText()") == COMMAND
    assert not broken.locator(".jp-gpuwidget-diagnostics-evidence").is_visible()
    broken.locator(".jp-gpuwidget-diagnostics-evidence-head").click()
    assert (
        "torch <b>2.13.0+cpu</b> (pip)" in broken.locator(".jp-gpuwidget-diagnostics-evidence").inner_text()
    )
    assert broken.locator("dd b").count() == 0
    warned = notebook.page.locator(f"{LINK}[data-status=warning]")
    assert "docker run --shm-size=8g …" in warned.inner_text()
    assert warned.locator("code").count() == 0  # none that could be run as it stands


def test_json_is_the_command_line_s(open_notebook: Open) -> None:
    """What is copied is the diagnosis as `gpuwidget doctor --json` has it, for --diff."""
    notebook = examined(open_notebook, ill(), well())
    notebook.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    notebook.page.locator(PLACE).nth(1).get_by_role("button", name="Copy as JSON").click()
    assert json.loads(notebook.page.evaluate("navigator.clipboard.readText()")) == well()


def test_a_server_that_cannot_look(open_notebook: Open) -> None:
    """Its reason stands in the place of the chain, and nothing is called well that was not looked at."""
    sentence = "The examination came to no end within 60 seconds."
    notebook = examined(open_notebook, well("kernel"), {"message": sentence}, 503)
    wait_for_text(notebook, HEAD, "could not be looked at")
    assert texts(notebook, f"{PLACE} .jp-gpuwidget-diagnostics-summary")[1] == sentence
    assert texts(notebook, f"{PLACE}:nth-child(2) .jp-gpuwidget-diagnostics-check") == []


def test_an_older_server(open_notebook: Open) -> None:
    """One without a doctor is told as such."""
    notebook = examined(open_notebook, well("kernel"), {"message": "Not Found"}, 404)
    wait_for_text(notebook, PLACE, "The server's gpuwidget is older than this page: restart the server.")


def test_the_servers_own_answer(open_notebook: Open) -> None:
    """A real server examines itself: the page's question, with its XSRF token, is let through."""
    notebook = open_notebook(["1"])
    show(notebook, 300)
    notebook.page.click(HEAD)
    notebook.page.wait_for_selector(LINK)
    titles = texts(notebook, f"{PLACE}:nth-child(2) .jp-gpuwidget-diagnostics-check-title")
    assert titles[:4] == ["PyTorch", "CUDA runtime", "cuDNN", "NCCL"]
    assert len(titles) == 14


def test_another_notebook_is_another_kernel(open_notebook: Open) -> None:
    """What was said of a kernel is not said of the one that a restart brings."""
    notebook = examined(open_notebook, ill(), well())
    wait_for_text(notebook, HEAD, "1 link broken")
    notebook.script("await panel.sessionContext.session.kernel.restart();")
    wait_for_text(notebook, PLACE, "The kernel was restarted")
    wait_for_text(notebook, HEAD, "all links found")
    run(notebook, 0)
    wait_for_text(notebook, PLACE, "Not looked at yet.")


def test_by_the_palette_and_by_keyboard(open_notebook: Open) -> None:
    """The command opens it and has the keyboard there; links unfold by Enter."""
    notebook = open_notebook(["1"])
    answer_server(notebook, (200, well()))
    notebook.script("await app.commands.execute('gpuwidget:examine');")
    notebook.page.wait_for_selector(LINK)
    assert notebook.page.evaluate("document.activeElement.innerText").startswith("Health")
    notebook.page.keyboard.press("Tab")
    notebook.page.keyboard.press("Enter")
    assert notebook.page.locator(LINK).first.get_attribute("open") is not None
