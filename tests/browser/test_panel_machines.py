"""The panel on various machines: with many GPUs, without GPUs, with lost GPUs, and with a server that
restarts."""

from __future__ import annotations

import json
import re
import urllib.request
from pathlib import Path
from typing import Any

import helpers_kernel_state
import pytest
from helpers_lab import Lab, Notebook, new_page, runs_until
from helpers_panel import (
    CARD,
    DEVICE,
    LOAD_BUTTON,
    PANEL,
    SERVER_NOTICE,
    cards,
    clipped,
    lab_with,
    machine,
    show,
    unreadable,
    uuids,
    wait_for_text,
)
from nvml_standin import profiles
from playwright.sync_api import BrowserContext, expect

COUNT_DRAWINGS = """
window.drawings = {};
const stroke = CanvasRenderingContext2D.prototype.stroke;
CanvasRenderingContext2D.prototype.stroke = function (...path) {
    const uuid = this.canvas.closest('[data-gpu-uuid]').dataset.gpuUuid;
    window.drawings[uuid] = (window.drawings[uuid] ?? 0) + 1;
    return stroke.apply(this, path);
};
"""
TORCH_STANDIN = Path(__file__).parent.parent / "torch_standin"
COUNT_REQUESTS = """
window.requests = 0;
const began = performance.now();
window.allowed = () => (performance.now() - began) / 3000 + 1;
panel.sessionContext.session.kernel.anyMessage.connect((_, {msg, direction}) => {
    if (direction === 'send' && msg.header.msg_type === 'gpuwidget_request') { window.requests++; }
});
"""


def wait_for_state(notebook: Notebook, gpus: list[str]) -> None:
    """Run the cell that fakes the kernel's state, and wait until the panel shows the devices of ``gpus``."""
    notebook.run(0)
    notebook.wait_until_done()
    wait_for_text(notebook, f"{CARD} .jp-gpuwidget-gpu-badge", f"cuda:{len(gpus) - 1}")


@pytest.mark.parametrize("gpus", [1, 8, 16])
def test_many_gpus_at_any_width(browser: BrowserContext, tmp_path: Path, gpus: int) -> None:
    """In a panel that is at least 240 px wide, the chosen device and its facts are
    readable, and nothing is clipped or wraps: a GPU's row takes 22 px. The GPU that the notebook uses is
    expanded."""
    with lab_with(tmp_path, *machine(gpus)) as (lab, _):
        known = uuids(lab)
        device = {
            "chosen": "cuda:0",
            "new_tensors": True,
            "pending": False,
            "present": "cuda:0",
            "note": None,
        }
        state = helpers_kernel_state.state(known, device=device)
        notebook = lab.open(browser, lab.write("many.ipynb", [helpers_kernel_state.cell(state)]), height=1600)
        show(notebook)
        wait_for_state(notebook, known)
        shown = cards(notebook)
        assert [card["uuid"] for card in shown] == known
        assert [card["open"] for card in shown] == [gpus == 1 or number == gpus - 1 for number in range(gpus)]
        titles = notebook.page.eval_on_selector_all(
            f"{CARD} .jp-gpuwidget-gpu-row", "rows => rows.map(row => row.title)"
        )
        assert titles == ["NVIDIA H200"] * gpus
        for width in (240, 300, 480):
            show(notebook, width)
            assert clipped(notebook, ellipsis=False) == []
            assert unreadable(notebook) == []
            heights = notebook.page.eval_on_selector_all(
                f"{CARD}[data-open=false] .jp-gpuwidget-gpu-head", "rows => rows.map(row => row.offsetHeight)"
            )
            assert set(heights) <= {22}
        notebook.close()


def test_a_context_without_torch(browser: BrowserContext, tmp_path: Path) -> None:
    """A GPU that the notebook uses without torch, for example through JAX, has no label cuda:N."""
    with lab_with(tmp_path, *machine(2)) as (lab, _):
        known = uuids(lab)
        state = helpers_kernel_state.state(known)
        gpus = [gpu | {"torch_device": None} for gpu in state["gpus"]]
        cell = helpers_kernel_state.cell(state | {"gpus": gpus})
        notebook = lab.open(browser, lab.write("jax.ipynb", [cell]))
        show(notebook)
        notebook.run(0)
        notebook.page.wait_for_selector(f"{CARD} .jp-gpuwidget-gpu-badge[data-context]", state="attached")
        assert notebook.page.locator(f"{CARD} .jp-gpuwidget-gpu-badge:visible").count() == 0
        notebook.close()


def test_different_models(browser: BrowserContext, tmp_path: Path) -> None:
    """On a machine with different GPUs, rows show the model, and its tooltip the whole name. Before CUDA
    starts, no GPU is labeled cuda:N, and a note says why and what makes the order certain."""
    models = ("RTX 3090", "RTX 4090", "V100", "A100", "H100")
    with lab_with(tmp_path, *profiles.machine(*models)) as (lab, _):
        load = f"import sys\nsys.path.insert(0, {str(TORCH_STANDIN)!r})\nimport torch\n%load_ext gpuwidget"
        notebook = lab.open(browser, lab.write("models.ipynb", [load]))
        show(notebook)
        notebook.run(0)
        notebook.wait_until_done()
        notebook.page.wait_for_selector(f"{DEVICE} option[value='cuda:1']", state="attached")
        shown = [card["text"] for card in cards(notebook)]
        names = [profiles.PROFILES[model]["name"].removeprefix("NVIDIA ") for model in models]
        assert [name in text for name, text in zip(names, shown, strict=True)] == [True] * len(models)
        assert notebook.page.locator(f"{CARD} .jp-gpuwidget-gpu-badge:visible").count() == 0
        wait_for_text(notebook, f"{PANEL} .jp-gpuwidget-device-notes", "CUDA_DEVICE_ORDER=PCI_BUS_ID")
        for width in (240, 300, 420):
            show(notebook, width)
            assert clipped(notebook, ellipsis=False) == []
            assert unreadable(notebook) == []
        notebook.close()


def test_a_torch_without_cuda(browser: BrowserContext, tmp_path: Path) -> None:
    """With a torch that was built without CUDA, no GPU is labeled cuda:N, the dropdown has no GPU, and the
    panel shows the reason once."""
    with lab_with(tmp_path, *machine(2)) as (lab, _):
        load = (
            "import os, sys\nos.environ['TORCH_STANDIN_GPUS'] = '0'\n"
            f"sys.path.insert(0, {str(TORCH_STANDIN)!r})\nimport torch\n%load_ext gpuwidget"
        )
        notebook = lab.open(browser, lab.write("cpu.ipynb", [load]))
        show(notebook, 300)
        notebook.page.wait_for_selector(CARD)
        notebook.run(0)
        notebook.wait_until_done()
        reason = "This torch (2.13.0+cpu) was built without CUDA: there is only the CPU."
        wait_for_text(notebook, PANEL, reason)
        assert notebook.page.inner_text(PANEL).count(reason) == 1
        assert notebook.page.locator(f"{CARD} .jp-gpuwidget-gpu-badge").all_inner_texts() == ["", ""]
        options = notebook.page.eval_on_selector_all(f"{DEVICE} option", "nodes => nodes.map(n => n.text)")
        assert options[:-1] == ["PyTorch default (cpu)", "cpu"]
        notebook.close()


def test_memory_of_this_notebook_and_of_others(browser: BrowserContext, tmp_path: Path) -> None:
    """The panel shows how much of a GPU's memory this notebook holds, how much others hold and how much is
    free. It matches cuda:N to GPUs by their UUIDs."""
    with lab_with(tmp_path, *machine(2), f"gpu.1.memory_used={99 * 1024**3}") as (lab, _):
        known = uuids(lab)
        state = helpers_kernel_state.state(known)
        notebook = lab.open(browser, lab.write("memory.ipynb", [helpers_kernel_state.cell(state)]))
        show(notebook, 300)
        wait_for_state(notebook, known)
        assert "H200cuda:1 97 %" in cards(notebook)[0]["text"].replace(" cuda", "cuda").replace("\u2007", "")
        assert "14 GiB mine · 85 others 40 free" in cards(notebook)[1]["text"]
        options = notebook.page.eval_on_selector_all(f"{DEVICE} option", "nodes => nodes.map(n => n.text)")
        assert options[2:] == [
            "cuda:0 · H200 · 40 GiB free",
            "cuda:1 · H200 · 82 GiB free",
            "Most free memory (now cuda:1)",
            "☑ Also for new tensors (+1\N{EN DASH}3 µs per torch call)",
        ]
        notebook.close()


def test_no_layout_shift_when_values_change(browser: BrowserContext, tmp_path: Path) -> None:
    """If a GPU's values change, no element of its card or row moves."""
    with lab_with(tmp_path, *machine(8)) as (lab, standin):
        notebook = lab.open(browser, lab.write("still.ipynb", ["1"]), height=1400)
        show(notebook, 300)
        notebook.page.wait_for_selector(f"{CARD}[data-open=false]")
        for row in notebook.page.query_selector_all(f"{CARD} .jp-gpuwidget-gpu-row")[:4]:
            row.click()
        # Wait until the panel has found that gpuwidget is not loaded: from then on, the device section keeps
        # its height.
        notebook.page.wait_for_selector(LOAD_BUTTON)
        power = f"{CARD}[data-open=true] .jp-gpuwidget-gpu-power"
        wait_for_text(notebook, power, "98 of 700 W")
        notebook.record_layout_shifts(CARD)
        for step in range(1, 7):
            standin.scenario(*machine(8, step))
            notebook.wait_for_changes(power, 1)
        assert notebook.layout_shifts() == []
        notebook.close()


def test_a_chart_outside_the_viewport_is_not_drawn(browser: BrowserContext, tmp_path: Path) -> None:
    """While a GPU's card is scrolled out of view, its text stays current but its chart is not drawn. The
    chart is drawn when the card is scrolled into view."""
    with lab_with(tmp_path, *machine(16)) as (lab, standin):
        first, *_, last = uuids(lab)
        notebook = lab.open(browser, lab.write("sight.ipynb", ["1"]), height=800)
        page = notebook.page
        show(notebook)
        page.wait_for_selector(f"{CARD}[data-open=false]")
        for row in page.query_selector_all(f"{CARD}[data-open=false] .jp-gpuwidget-gpu-row"):
            row.evaluate("row => row.click()")
        page.wait_for_function(
            "chart => document.querySelectorAll(chart).length === 16",
            arg=f"{CARD} .jp-gpuwidget-gpu-chart canvas",
        )
        notebook.script(COUNT_DRAWINGS)
        for step, watts in ((1, 611), (2, 98)):
            standin.scenario(*machine(16, step))
            page.wait_for_function(
                "([selector, text]) => document.querySelector(selector).textContent === text",
                arg=[f"{CARD}[data-gpu-uuid='{last}'] .jp-gpuwidget-gpu-power", f"{watts} of 700 W"],
            )
        page.wait_for_function("uuid => window.drawings[uuid] > 4", arg=first)
        assert page.evaluate("uuid => window.drawings[uuid] ?? 0", last) == 0
        page.locator(f"{CARD}[data-gpu-uuid='{last}']").scroll_into_view_if_needed()
        page.wait_for_function("uuid => window.drawings[uuid] > 0", arg=last)
        notebook.close()


def test_no_driver(browser: BrowserContext, tmp_path: Path) -> None:
    """If there is no driver, the panel shows the reason once, even if the kernel reports it too. Once there
    are GPUs, it shows them."""
    with lab_with(tmp_path, "nvmlInitWithFlags=error 9") as (lab, standin):
        with urllib.request.urlopen(
            f"{lab.url}/gpuwidget/api/sample?token={lab.token}", timeout=30
        ) as answer:
            reason = json.load(answer)["origin"]["reason"]
        state = helpers_kernel_state.state([], unavailable=reason)
        notebook = lab.open(browser, lab.write("none.ipynb", [helpers_kernel_state.cell(state)]))
        show(notebook)
        notebook.run(0)
        notebook.wait_until_done()
        wait_for_text(notebook, SERVER_NOTICE, "driver")
        notebook.page.wait_for_selector(f"{PANEL} .jp-gpuwidget-device-watch:enabled")
        assert notebook.page.inner_text(PANEL).count(reason) == 1
        assert cards(notebook) == []
        standin.scenario(*machine(2))
        notebook.page.wait_for_selector(CARD)
        assert notebook.page.is_hidden(SERVER_NOTICE)
        notebook.close()


def test_a_lost_gpu(browser: BrowserContext, tmp_path: Path) -> None:
    """If a GPU is lost, its card shows since when, once, and no values. The other GPU's card stays live. The
    dropdown disables the lost GPU's device and shows the reason."""
    with lab_with(tmp_path, *machine(2)) as (lab, standin):
        state = helpers_kernel_state.state(uuids(lab))
        notebook = lab.open(browser, lab.write("lost.ipynb", [helpers_kernel_state.cell(state)]))
        show(notebook)
        wait_for_state(notebook, uuids(lab))
        standin.scenario(*machine(2), "gpu.1.*=error 15")
        wait_for_text(notebook, CARD, "Lost since")
        working, lost = cards(notebook)
        assert "97 %" in working["text"].replace("\u2007", "")
        assert "%" not in lost["text"]
        assert notebook.page.inner_text(PANEL).count("Lost since") == 1
        # In this kernel, cuda:0 is the second GPU.
        options = notebook.page.eval_on_selector_all(
            f"{DEVICE} option[value^='cuda:']",
            "nodes => nodes.map(node => [node.text.replace(/[0-9]+:[0-9:]+/, 'T'), node.disabled])",
        )
        assert options == [
            ["cuda:0 · H200 · lost since T", True],
            ["cuda:1 · H200 · 82 GiB free", False],
        ]
        notebook.close()


def test_a_gpu_that_is_lost_when_the_server_starts(browser: BrowserContext, tmp_path: Path) -> None:
    """The panel has a card for a GPU that can't be opened, with the reason. When the GPU comes back, its own
    card replaces that one."""
    with lab_with(tmp_path, *machine(2), "gpu.1.*=error 15") as (lab, standin):
        notebook = lab.open(browser, lab.write("lost.ipynb", ["1"]), kernel=False)
        show(notebook)
        wait_for_text(notebook, CARD, "the GPU fell off the bus")
        assert [card["uuid"] for card in cards(notebook)][1:] == ["GPU-unopened-1"]
        standin.scenario(*machine(2))
        notebook.page.wait_for_selector(f"{CARD}[data-gpu-uuid='GPU-unopened-1']", state="detached")
        assert [card["uuid"] for card in cards(notebook)] == uuids(lab)
        assert "Lost" not in notebook.page.inner_text(PANEL)
        notebook.close()


def test_throttling_reasons_and_the_values_at_the_pointer(browser: BrowserContext, tmp_path: Path) -> None:
    """The power cap, which full load reaches, is no warning, but heat is. The reason for an unknown value is
    a text of the card. The chart shows the time and the values at the pointer."""
    with lab_with(tmp_path, *machine(1), "gpu.0.throttle=4") as (lab, standin):
        notebook = lab.open(browser, lab.write("hot.ipynb", ["1"]), kernel=False)
        page = notebook.page
        show(notebook, 300)
        state = f"{CARD} .jp-gpuwidget-gpu-state"
        wait_for_text(notebook, state, "Throttled (power cap)")
        assert page.get_attribute(state, "data-warm") is None
        assert page.inner_text(f"{CARD} .jp-gpuwidget-gpu-warning") == ""
        page.wait_for_selector(f"{CARD} .jp-gpuwidget-gpu-chart canvas")
        box = page.locator(f"{CARD} .jp-gpuwidget-gpu-chart").bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + box["width"] - 2, box["y"] + 20)
        page.wait_for_selector(f"{CARD} .jp-gpuwidget-gpu-readout", state="visible")
        text = page.inner_text(f"{CARD} .jp-gpuwidget-gpu-readout")
        assert re.fullmatch(r"\d\d:\d\d:\d\d · 97 % · 57.0 GiB", text), text
        page.mouse.move(0, 0)
        page.wait_for_selector(f"{CARD} .jp-gpuwidget-gpu-readout", state="hidden")
        standin.scenario(*machine(1), "gpu.0.throttle=64", "gpu.0.nvmlDeviceGetClockInfo=error 3")
        wait_for_text(notebook, state, "▲ Throttled (too hot (hardware))")
        assert page.get_attribute(state, "data-warm") == "true"
        mark = page.locator(f"{CARD} .jp-gpuwidget-gpu-warning")
        assert [mark.inner_text(), mark.get_attribute("aria-label")] == ["▲", "too hot (hardware)"]
        wait_for_text(notebook, f"{CARD} .jp-gpuwidget-gpu-reasons", "SM clock: not supported by this GPU")
        notebook.close()


def test_a_gpu_that_hangs(browser: BrowserContext, tmp_path: Path) -> None:
    """If the driver's calls for a GPU hang, its card shows for how long the GPU has not answered, and the
    other GPU's card stays live. When the calls return, the card shows values again."""
    with lab_with(tmp_path, *machine(2)) as (lab, standin):
        notebook = lab.open(browser, lab.write("hung.ipynb", ["1"]))
        show(notebook)
        notebook.page.wait_for_selector(CARD)
        standin.scenario(*machine(2), "gpu.0.*=hang")
        wait_for_text(notebook, CARD, "No answer for")
        standin.scenario(*machine(2), "gpu.0.*=hang", "gpu.1.util=42")
        wait_for_text(notebook, CARD, "42 %")
        assert "97 %" not in cards(notebook)[0]["text"]
        assert notebook.page.is_hidden(SERVER_NOTICE)
        standin.scenario(*machine(2))
        wait_for_text(notebook, CARD, "97 %")
        notebook.close()


def test_a_driver_that_hangs(browser: BrowserContext, tmp_path: Path) -> None:
    """If the driver hangs while it is initialized, the panel shows that the driver has not answered, and for
    how long."""
    with lab_with(tmp_path, *machine(2), "*=hang") as (lab, standin):
        notebook = lab.open(browser, lab.write("stuck.ipynb", ["1"]))
        show(notebook)
        wait_for_text(notebook, SERVER_NOTICE, "The driver has not answered for")
        standin.scenario(*machine(2))
        notebook.page.wait_for_selector(CARD)
        assert notebook.page.is_hidden(SERVER_NOTICE)
        notebook.close()


@pytest.mark.parametrize(
    ("changes", "notice", "disabled"),
    [
        ({"schema": 2, "version": "9.9.9"}, "This kernel has gpuwidget 9.9.9 and the server has 0.1.0", True),
        (
            {"version": "0.0.9"},
            "This kernel has gpuwidget 0.0.9 and the server has 0.1.0. If gpuwidget was updated, restart",
            False,
        ),
    ],
)
def test_another_version_in_the_kernel(
    two_gpu_lab: Lab, browser: BrowserContext, changes: dict[str, Any], notice: str, disabled: bool
) -> None:
    """If the kernel has another version of gpuwidget, the panel shows that. The device dropdown is enabled if
    the versions use the same schema."""
    state = helpers_kernel_state.state(uuids(two_gpu_lab), **changes)
    notebook = two_gpu_lab.open(browser, two_gpu_lab.write("old.ipynb", [helpers_kernel_state.cell(state)]))
    show(notebook)
    notebook.run(0)
    notebook.wait_until_done()
    wait_for_text(notebook, f"{PANEL} .jp-gpuwidget-device-section", notice)
    assert notebook.page.is_disabled(DEVICE) == disabled
    notebook.close()


def test_the_server_restarts(browser: BrowserContext, tmp_path: Path) -> None:
    """While the server is down, the panel shows that, with dimmed values. When the server is back, the panel
    is live again."""
    with lab_with(tmp_path, *machine(2)) as (lab, _):
        notebook = lab.open(browser, lab.write("back.ipynb", ["1"]))
        show(notebook)
        notebook.page.wait_for_selector(f"{PANEL}[data-link=live] {CARD.removeprefix(PANEL)}")
        lab.stop()
        wait_for_text(
            notebook,
            SERVER_NOTICE,
            "The server does not answer. Trying again. Showing the last known values.",
        )
        notebook.page.wait_for_selector(f"{PANEL}[data-link=stale]")
        values = notebook.page.locator(f"{PANEL} .jp-gpuwidget-gpu-list")
        expect(values).to_have_css("opacity", "0.5")
        lab.start()
        lab.wait_until_ready()
        notebook.page.wait_for_selector(f"{PANEL}[data-link=live]")
        expect(values).to_have_css("opacity", "1")
        notebook.page.wait_for_selector(SERVER_NOTICE, state="hidden")
        notebook.page.close(run_before_unload=False)


def test_requests_to_a_kernel_are_rare(browser: BrowserContext, tmp_path: Path) -> None:
    """The panel sends an idle kernel at most one request per 3 s. While a cell is running, it shows the
    kernel as busy."""
    end = tmp_path / "end"
    with lab_with(tmp_path, *machine(1)) as (lab, _):
        notebook = lab.open(browser, lab.write("seldom.ipynb", ["%load_ext gpuwidget", runs_until(end)]))
        show(notebook)
        notebook.run(0)
        notebook.wait_until_done()
        notebook.page.wait_for_selector(f"{PANEL} .jp-gpuwidget-device-watch:enabled")
        notebook.script(COUNT_REQUESTS)
        notebook.page.wait_for_timeout(7000)
        assert notebook.script("return window.requests <= window.allowed();")
        notebook.run(1)
        wait_for_text(notebook, f"{PANEL} .jp-gpuwidget-device-busy", "busy")
        for _ in range(10):
            notebook.page.wait_for_timeout(500)
            assert notebook.page.inner_text(f"{PANEL} .jp-gpuwidget-device-busy") == "busy"
        end.touch()
        notebook.wait_until_done()
        # The panel asks once more when the cell begins and when it ends.
        assert notebook.script("return window.requests <= window.allowed() + 2;")
        notebook.close()


def test_a_kernel_restarted_by_another_page(browser: BrowserContext, tmp_path: Path) -> None:
    """If another page restarts the kernel, the panel discards the state of the old kernel process."""
    with lab_with(tmp_path, *machine(1)) as (lab, _):
        notebook = lab.open(browser, lab.write("elsewhere.ipynb", ["%load_ext gpuwidget"]))
        show(notebook)
        notebook.run(0)
        notebook.wait_until_done()
        notebook.page.wait_for_selector(f"{PANEL} .jp-gpuwidget-device-watch:enabled")
        kernel = notebook.script("return panel.sessionContext.session.kernel.id;")
        request = urllib.request.Request(
            f"{lab.url}/api/kernels/{kernel}/restart?token={lab.token}", data=b"", method="POST"
        )
        with urllib.request.urlopen(request, timeout=60):
            pass
        notebook.page.wait_for_selector(LOAD_BUTTON)
        assert notebook.page.is_disabled(DEVICE)
        notebook.close()


def test_notebook_7(two_gpu_lab: Lab, browser: BrowserContext) -> None:
    """In Notebook 7, the panel is in the right sidebar."""
    path = two_gpu_lab.write("seven-panel.ipynb", ["1"])
    page = new_page(browser, height=900)
    page.goto(f"{two_gpu_lab.url}/notebooks/{path.name}?token={two_gpu_lab.token}")
    page.wait_for_function("() => window.jupyterapp?.commands.hasCommand('gpuwidget:show-panel')")
    page.wait_for_selector(".jp-Notebook .jp-Cell")
    page.evaluate("() => window.jupyterapp.commands.execute('gpuwidget:show-panel')")
    page.wait_for_selector(f"{CARD} canvas", state="visible")
    page.wait_for_selector(f"{PANEL} .jp-gpuwidget-device-notebook:text('seven-panel.ipynb')")
    page.close(run_before_unload=False)
