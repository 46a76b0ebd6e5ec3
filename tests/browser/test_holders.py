"""The list of the holders of each GPU's memory in the panel, and the actions on holders."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import helpers_kernel_state
import pytest
from helpers_lab import Lab, Notebook
from helpers_ownership import GIB, FakeOwnershipStream, allocation, gpu, kernel
from helpers_panel import (
    CARD,
    DEVICE,
    PANEL,
    clipped,
    lab_with,
    machine,
    show,
    unreadable,
    uuids,
    wait_for_text,
)
from nvml_standin import Standin
from playwright.sync_api import BrowserContext

NOTIFICATION = "@jupyterlab/apputils-extension/notification"
ROW = f"{CARD} .jp-gpuwidget-holder"
MENU = ".lm-Menu-item"
HINT = f"{PANEL} .jp-gpuwidget-hint"
MESSAGE = f"{PANEL} .jp-gpuwidget-panel-message"
DIALOG = ".jp-Dialog-content"
OVERFLOWING_NUMBERS = """
return [...document.querySelectorAll('.jp-gpuwidget-holder-memory')]
    .filter(node => node.checkVisibility() && node.textContent !== '')
    .filter(node => {
        const words = document.createRange();
        words.selectNodeContents(node);
        return words.getBoundingClientRect().width > node.getBoundingClientRect().width + 0.5;
    })
    .map(node => node.textContent);
"""
KERNEL_OF = """
const other = [...app.shell.widgets('main')].find(widget => widget.context?.path === argument);
await other.sessionContext.ready;
return other.sessionContext.session.kernel.id;
"""
FREED = "Gave 3.0 GiB of torch's cache back."


@dataclass
class OpenPanel:
    """A JupyterLab with an open panel, in which ``train.ipynb`` is the active notebook and memory ownership
    is faked."""

    lab: Lab
    standin: Standin
    notebook: Notebook
    ownership: FakeOwnershipStream
    gpus: list[str]
    active_kernel: str

    def open_second(self) -> str:
        """Open ``eval.ipynb`` in a tab behind ``train.ipynb``, and return the id of its kernel."""
        path = self.lab.write("eval.ipynb", [helpers_kernel_state.cell(self.kernel_state(), freed=FREED)])
        script = self.notebook.script
        script("await app.commands.execute('docmanager:open', {path: argument});", path.name)
        identity: str = script(KERNEL_OF, path.name)
        script("app.shell.activateById(panel.id);")
        return identity

    def kernel_state(self) -> dict[str, Any]:
        """Return the state that a fake kernel replies with."""
        return helpers_kernel_state.state(self.gpus)

    def press_in_menu(self, name: str, *keys: str) -> None:
        """Open the menu of actions on the holder called ``name``, and press ``keys`` in it."""
        self.notebook.page.click(f"{PANEL} [aria-label='Actions for {name}']")
        self.notebook.page.wait_for_selector(MENU)
        for key in keys:
            self.notebook.page.keyboard.press(key)

    def running_kernels(self) -> list[str]:
        """Return the ids of the server's running kernels."""
        url = f"{self.lab.url}/api/kernels?token={self.lab.token}"
        with urllib.request.urlopen(url, timeout=30) as answer:
            return [each["id"] for each in json.load(answer)]

    def active_tab(self) -> str:
        """Return the label of the active tab."""
        label: str = self.notebook.script("return app.shell.currentWidget.title.label;")
        return label

    def holder_rows(self, card: int) -> list[str]:
        """Return each row of a GPU's list of holders as one line of text. ``card`` is the position of the
        GPU's card."""
        holder_rows: list[str] = self.notebook.page.eval_on_selector_all(
            f"{CARD}:nth-child({card + 1}) .jp-gpuwidget-holder",
            "nodes => nodes.map(node => node.innerText.replace(/\\s+/g, ' ').trim())",
        )
        return holder_rows


@pytest.fixture
def open_panel(browser: BrowserContext, tmp_path: Path) -> Iterator[Callable[..., OpenPanel]]:
    """Return a function that opens the panel on a machine with the given number of GPUs and user settings."""
    with ExitStack() as closing:

        def opened(gpus: int = 2, settings: Mapping[str, dict[str, Any]] | None = None) -> OpenPanel:
            lab, standin = closing.enter_context(lab_with(tmp_path, *machine(gpus)))
            for name, values in (settings or {}).items():
                file = tmp_path / "lab" / "settings" / f"{name}.jupyterlab-settings"
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(json.dumps(values))
            known = uuids(lab)
            faked: list[FakeOwnershipStream] = []
            cell = helpers_kernel_state.cell(helpers_kernel_state.state(known), freed=FREED)
            notebook = lab.open(
                browser,
                lab.write("train.ipynb", [cell, "import time; time.sleep(60)"]),
                prepare=lambda page: faked.append(FakeOwnershipStream(page)),
            )
            closing.callback(lambda: notebook.page.close(run_before_unload=False))
            show(notebook, 300)
            notebook.page.wait_for_selector(CARD)
            active_kernel = notebook.script("return panel.sessionContext.session.kernel.id;")
            return OpenPanel(lab, standin, notebook, faked[0], known, active_kernel)

        yield opened


def test_the_holders_of_each_gpu(open_panel: Callable[..., OpenPanel]) -> None:
    """Notebooks, terminals and processes of other users each have a row. The row of the active notebook is
    the first one."""
    view = open_panel()
    kernels = [
        kernel(view.active_kernel, "train.ipynb", state="busy", idle_since=None),
        kernel("k2", "eval.ipynb", idle_since=time.time() - 700, path="old/eval.ipynb"),
    ]
    first = gpu(
        view.gpus[0],
        allocation(30, kernel="k2"),
        allocation(14, kernel=view.active_kernel),
        allocation(8, pid=77, user="ada", program="python <b>x</b>.py"),
        allocation(2, terminal="1", program="python serve.py"),
    )
    second = gpu(
        view.gpus[1],
        allocation(3, kernel="k2", source="torch"),
        unattributed=round(13 * GIB),
        reason="This container has process ids of its own.",
    )
    view.ownership.send(kernels, [first, second])
    wait_for_text(view.notebook, ROW, "Unknown process")
    assert view.holder_rows(0) == [
        "train.ipynb busy 14.0 GiB",
        "eval.ipynb idle 11 min 30.0 GiB",
        "ada: python <b>x</b>.py 8.0 GiB",
        "terminal 1 · python serve.py 2.0 GiB",
    ]
    assert view.holder_rows(1) == ["eval.ipynb torch idle 11 min 3.0 GiB", "Unknown process 13.0 GiB"]
    page = view.notebook.page
    assert page.get_attribute(f"{ROW}:first-child", "aria-current") == "true"
    assert page.locator(f"{ROW} button:enabled").count() == 4
    wait_for_text(
        view.notebook, f"{CARD} .jp-gpuwidget-holder-reason", "This container has process ids of its own."
    )
    wait_for_text(view.notebook, f"{CARD} .jp-gpuwidget-gpu-memory", "14 GiB mine")
    title = page.get_attribute(f"{ROW} .jp-gpuwidget-holder-torch:not(:empty)", "title") or ""
    assert "Reserved memory as PyTorch reports it, without the CUDA context" in title
    for width in (240, 300, 480):
        show(view.notebook, width)
        assert view.notebook.script(OVERFLOWING_NUMBERS) == []


def test_holders_that_are_older_than_the_memory_in_use(open_panel: Callable[..., OpenPanel]) -> None:
    """Holders that the server reports as older than the memory in use are marked, with their whole memory, in
    panels of every width. Above them is the memory in use."""
    view = open_panel()
    then = allocation(13.5, pid=77, user="ada", program="python eval.py")
    view.ownership.send([], [gpu(view.gpus[0], then, memory_used=20 * GIB, older=True), gpu(view.gpus[1])])
    for width in (240, 300, 420):
        show(view.notebook, width)
        wait_for_text(view.notebook, ROW, "older")
        wait_for_text(view.notebook, f"{CARD} .jp-gpuwidget-gpu-memory", "20 GiB in use")
        assert view.holder_rows(0) == ["ada: python eval.py older 13.5 GiB"]
        assert view.notebook.script(OVERFLOWING_NUMBERS) == [], width


def test_many_holders(open_panel: Callable[..., OpenPanel]) -> None:
    """The five largest holders have one row each. A further row stands for all other holders. Enter on that
    row shows them one by one."""
    view = open_panel()
    many = [allocation(12 - 1 * place, pid=place, user="bob", program=f"rank {place}") for place in range(12)]
    view.ownership.send([], [gpu(view.gpus[0], *many, unattributed=GIB), gpu(view.gpus[1])])
    wait_for_text(view.notebook, f"{CARD} .jp-gpuwidget-panel-more", "and 7 more")
    assert "28.0 GiB" in view.notebook.page.inner_text(f"{CARD} .jp-gpuwidget-panel-more >> nth=0")
    assert view.holder_rows(0) == [
        *(f"bob: rank {place} {12 - place}.0 GiB" for place in range(5)),
        "Unknown process 1.0 GiB",
    ]
    for width in (240, 300, 480):
        show(view.notebook, width)
        assert clipped(view.notebook) == []
    view.notebook.page.focus(f"{CARD} .jp-gpuwidget-panel-more >> nth=0")
    view.notebook.page.keyboard.press("Enter")
    assert len(view.holder_rows(0)) == 13


def test_no_layout_shift_when_holders_change(open_panel: Callable[..., OpenPanel]) -> None:
    """If the holders' memory and states change, or two holders of similar size swap ranks,
    no element moves."""
    view = open_panel(1)
    kernels = [kernel("a", "a.ipynb"), kernel("b", "b.ipynb")]

    def send(step: int) -> None:
        busy = {"state": "busy", "idle_since": None} if step % 2 else {}
        sizes = [(10 + step / 10, "a"), (10 + (step * 7 % 5) / 10, "b")]
        holdings = [allocation(size, kernel=name) for size, name in sorted(sizes, reverse=True)]
        view.ownership.send([kernels[0] | busy, kernels[1]], [gpu(view.gpus[0], *holdings, unattributed=GIB)])

    send(0)
    wait_for_text(view.notebook, ROW, "b.ipynb")
    # Wait until the panel has found that gpuwidget is not loaded: from then on, the device section keeps its
    # height.
    view.notebook.page.wait_for_selector(
        f"{PANEL} .jp-gpuwidget-device-section button:text('Load gpuwidget')"
    )
    view.notebook.page.wait_for_timeout(3000)
    order = [line.split()[0] for line in view.holder_rows(0)]
    view.notebook.record_layout_shifts(CARD)
    for step in range(1, 9):
        send(step)
        view.notebook.page.wait_for_timeout(500)
    assert [line.split()[0] for line in view.holder_rows(0)] == order
    assert view.notebook.layout_shifts() == []


def test_go_to_a_notebook(open_panel: Callable[..., OpenPanel]) -> None:
    """Choosing a notebook in the list of holders activates its tab,
    or reopens the notebook if it is closed."""
    view = open_panel()
    other = view.open_second()
    view.ownership.send(
        [kernel(view.active_kernel, "train.ipynb"), kernel(other, "eval.ipynb")],
        [gpu(view.gpus[0], allocation(9, kernel=other)), gpu(view.gpus[1])],
    )
    wait_for_text(view.notebook, ROW, "eval.ipynb")
    assert view.active_tab() == "train.ipynb"
    page = view.notebook.page
    page.focus(f"{PANEL} [aria-label='Actions for eval.ipynb']")
    for key in ("Enter", "ArrowDown", "Enter"):
        page.keyboard.press(key)
        page.wait_for_timeout(200)
    page.wait_for_function("() => window.jupyterapp.shell.currentWidget.title.label === 'eval.ipynb'")
    view.notebook.script("app.shell.currentWidget.dispose();")
    assert other in view.running_kernels()
    page.click(f"{ROW} .jp-gpuwidget-holder-name:text('eval.ipynb')")
    page.wait_for_function("() => window.jupyterapp.shell.currentWidget?.title.label === 'eval.ipynb'")
    assert page.is_visible(PANEL)


def test_go_to_a_terminal(open_panel: Callable[..., OpenPanel]) -> None:
    """For a terminal that holds memory, the only action is to open the terminal."""
    view = open_panel()
    url = f"{view.lab.url}/api/terminals?token={view.lab.token}"
    with urllib.request.urlopen(urllib.request.Request(url, data=b"{}", method="POST"), timeout=30) as answer:
        name = json.load(answer)["name"]
    view.ownership.send(
        [], [gpu(view.gpus[0], allocation(9, terminal=name, program="python x.py")), gpu(view.gpus[1])]
    )
    wait_for_text(view.notebook, ROW, f"terminal {name}")
    view.press_in_menu(f"terminal {name} · python x.py", "ArrowDown")
    (item,) = view.notebook.page.locator(MENU).all_inner_texts()
    assert item.strip() == "Open Terminal"
    view.notebook.page.keyboard.press("Enter")
    view.notebook.page.wait_for_selector(".jp-Terminal")


def test_shut_down(open_panel: Callable[..., OpenPanel]) -> None:
    """Before a kernel is shut down, a dialog lists what is lost and requires confirmation. Afterwards, a
    message reports the result."""
    view = open_panel()
    other = view.open_second()
    view.ownership.send(
        [
            kernel(view.active_kernel, "train.ipynb"),
            kernel(other, "eval.ipynb", state="busy", idle_since=None),
        ],
        [gpu(view.gpus[0], allocation(18, kernel=other)), gpu(view.gpus[1], allocation(3, kernel=other))],
    )
    wait_for_text(view.notebook, ROW, "eval.ipynb")
    page = view.notebook.page
    view.press_in_menu("eval.ipynb", "ArrowUp", "Enter")
    question = " ".join(page.inner_text(DIALOG).split())
    assert question.startswith("Shut down the kernel of eval.ipynb?")
    assert (
        "You will lose: all variables the running cell and the cells in the queue GPU memory: 18.0"
        in question
    )
    assert "18.0 GiB on GPU 0, 3.0 GiB on GPU 1" in question
    page.keyboard.press("Enter")  # Enter cancels: Cancel has the focus.
    page.wait_for_selector(DIALOG, state="detached")
    assert other in view.running_kernels()
    view.press_in_menu("eval.ipynb", "ArrowUp", "Enter")
    page.click(f"{DIALOG} .jp-mod-warn")
    wait_for_text(view.notebook, MESSAGE, "The kernel of eval.ipynb was shut down. It held 18.0 GiB on GPU 0")
    assert view.running_kernels() == [view.active_kernel]
    page.click(f"{MESSAGE} button")
    assert page.inner_text(MESSAGE) == ""


def test_interrupt_and_restart(open_panel: Callable[..., OpenPanel]) -> None:
    """The menu of a holder interrupts the running cell, and restarts a kernel whose notebook is not open. The
    restart requires confirmation in a dialog that lists what is lost."""
    view = open_panel()
    page = view.notebook.page
    other = view.open_second()
    view.notebook.script(
        "const other = [...app.shell.widgets('main')].find(w => w.context?.path === 'eval.ipynb');"
        "await other.context.save(); other.dispose();"
    )
    view.ownership.send(
        [kernel(view.active_kernel, "train.ipynb"), kernel(other, "eval.ipynb")],
        [
            gpu(view.gpus[0], allocation(18, kernel=other), allocation(3, kernel=view.active_kernel)),
            gpu(view.gpus[1]),
        ],
    )
    wait_for_text(view.notebook, ROW, "eval.ipynb")
    view.notebook.run(1)
    view.press_in_menu("train.ipynb", "ArrowDown")
    # Once the kernel has answered, an item that it can't use has the reason in parentheses.
    assert [text.partition(" (")[0].strip() for text in page.locator(MENU).all_inner_texts()] == [
        "Open Notebook",
        "Interrupt Kernel",
        "Restart Kernel\N{HORIZONTAL ELLIPSIS}",
        "Free PyTorch Cache",
        "Shut Down Kernel\N{HORIZONTAL ELLIPSIS}",
    ]
    for key in ("ArrowDown", "Enter"):
        page.keyboard.press(key)
    wait_for_text(view.notebook, MESSAGE, "The kernel of train.ipynb was interrupted.")
    view.notebook.wait_until_done()
    assert view.notebook.outputs(1)[0]["ename"] == "KeyboardInterrupt"
    starts = view.lab.log.count("Kernel restarted")
    view.press_in_menu("eval.ipynb", "ArrowDown", "ArrowDown", "ArrowDown", "Enter")
    question = " ".join(page.inner_text(DIALOG).split())
    assert question.startswith(
        "Restart the kernel of eval.ipynb? You will lose: all variables GPU memory: 18.0 GiB on GPU 0"
    )
    page.click(f"{DIALOG} .jp-mod-warn")
    wait_for_text(
        view.notebook, MESSAGE, "The kernel of eval.ipynb was restarted. It held 18.0 GiB on GPU 0."
    )
    assert set(view.running_kernels()) == {view.active_kernel, other}
    assert view.lab.log.count("Kernel restarted") == starts + 1


def test_a_list_that_is_redrawn_while_its_menu_is_open(open_panel: Callable[..., OpenPanel]) -> None:
    """The commands in the context menu of JupyterLab's Running panel act on the clicked notebook, also if the
    list was drawn again while the menu was open."""
    view = panel_of_a_holder(open_panel)
    page = view.notebook.page
    item = f"[data-context='gpuwidget:kernel:{view.active_kernel}']"
    view.notebook.script("await app.commands.execute('running:show-panel');")
    page.wait_for_selector(item)
    kernels = [kernel(view.active_kernel, "train.ipynb"), kernel("k2", "large.ipynb")]
    larger = [allocation(90, kernel="k2"), allocation(14, kernel=view.active_kernel)]
    for held, shown in ((larger, "large.ipynb"), ([], "")):
        page.click(item, button="right")
        page.wait_for_selector(".lm-Menu-item:has-text('Shut Down Kernel')")
        view.ownership.send(kernels, [gpu(view.gpus[0], *held), gpu(view.gpus[1])])
        # The largest holder is the first in the list, which has no holders at last.
        page.wait_for_function(
            "text => (document.querySelector('[data-context^=\"gpuwidget:kernel:\"]')?.innerText ?? '')"
            ".startsWith(text) && (text !== '' || !document.querySelector('[data-context^=gpuwidget]'))",
            arg=shown,
        )
        page.click(".lm-Menu-item:has-text('Shut Down Kernel')")
        assert "Shut down the kernel of train.ipynb?" in page.inner_text(".jp-Dialog-header")
        page.keyboard.press("Escape")
        page.wait_for_selector(".jp-Dialog", state="detached")


def test_free_the_cache_of_a_notebook_that_is_not_open(open_panel: Callable[..., OpenPanel]) -> None:
    """The user can free the cache of a kernel whose notebook is not open. The kernel's reply is shown at its
    row and only there, and no connection to the kernel stays open. The reply is below the holder's line, also
    in the narrowest panel."""
    view = open_panel()
    other = view.open_second()
    script = view.notebook.script
    script(
        "const other = [...app.shell.widgets('main')].find(w => w.context?.path === 'eval.ipynb');"
        "await other.sessionContext.session.kernel.requestExecute({code: argument}).done;"
        "await other.context.save(); other.dispose();",
        helpers_kernel_state.cell(view.kernel_state(), freed=FREED),
    )
    view.ownership.send(
        [kernel(view.active_kernel, "train.ipynb"), kernel(other, "eval.ipynb")],
        [gpu(view.gpus[0], allocation(18, kernel=other)), gpu(view.gpus[1])],
    )
    wait_for_text(view.notebook, ROW, "eval.ipynb")
    view.press_in_menu("eval.ipynb", "ArrowUp", "ArrowUp", "Enter")
    wait_for_text(view.notebook, f"{ROW} .jp-gpuwidget-holder-result", f"eval.ipynb: {FREED}")
    view.notebook.page.wait_for_selector(f"{MESSAGE}[data-empty]", state="attached")
    for width in (240, 300, 420):
        show(view.notebook, width)
        # The message for screen readers, which has no height, counts as cut off.
        assert [each for each in unreadable(view.notebook) if not each.startswith("cut")] == [], width
    view.notebook.wait_for(lambda: _connections(view.lab, other) == 0)


def panel_of_a_holder(open_panel: Callable[..., OpenPanel]) -> OpenPanel:
    """Open the panel beside the notebook train.ipynb, whose kernel holds memory."""
    view = open_panel()
    view.ownership.send(
        [kernel(view.active_kernel, "train.ipynb")],
        [gpu(view.gpus[0], allocation(18, kernel=view.active_kernel)), gpu(view.gpus[1])],
    )
    wait_for_text(view.notebook, ROW, "train.ipynb")
    return view


def test_free_the_cache_without_gpuwidget(open_panel: Callable[..., OpenPanel]) -> None:
    """In a kernel without gpuwidget, the cache can't be freed: the menu's item is disabled and says why."""
    view = panel_of_a_holder(open_panel)
    wait_for_text(view.notebook, PANEL, "gpuwidget is not loaded in this kernel.")
    view.press_in_menu("train.ipynb")
    item = view.notebook.page.locator(f"{MENU}.lm-mod-disabled")
    assert [text.strip() for text in item.all_inner_texts()] == [
        "Free PyTorch Cache (gpuwidget is not loaded)"
    ]


def test_a_message_belongs_to_the_active_notebook(open_panel: Callable[..., OpenPanel]) -> None:
    """The result of an action disappears when another notebook becomes active."""
    view = panel_of_a_holder(open_panel)
    view.press_in_menu("train.ipynb", "ArrowDown", "ArrowDown", "Enter")
    wait_for_text(view.notebook, MESSAGE, "The kernel of train.ipynb was interrupted.")
    view.lab.write("eval.ipynb", ["1"])
    view.notebook.script("await app.commands.execute('docmanager:open', {path: 'eval.ipynb'});")
    view.notebook.page.wait_for_function(
        "selector => document.querySelector(selector).innerText === ''", arg=MESSAGE
    )


def test_free_the_cache_with_the_panel_closed(open_panel: Callable[..., OpenPanel]) -> None:
    """If the panel is closed, a notification shows the result of the palette's command to free the cache. It
    replaces the notification about the progress. The panel stays closed, and the focus stays where the user
    types."""
    view = open_panel()
    page = view.notebook.page
    view.notebook.script("app.shell.collapseRight();")
    page.wait_for_selector(PANEL, state="hidden")
    page.click(".jp-Notebook .jp-CodeCell .cm-content")
    view.notebook.script("await app.commands.execute('gpuwidget:free-cache');")
    page.keyboard.type("2")
    assert view.notebook.script("return document.activeElement.closest('.jp-Notebook') !== null;") is True
    view.notebook.script("await app.commands.execute('apputils:display-notifications');")
    wait_for_text(view.notebook, ".jp-Notification-List", "train.ipynb: the kernel did not reply")
    assert page.locator(".jp-Notification-List > li").count() == 1
    page.locator(".jp-Notification-List > li").get_by_text("Show All").click()
    wait_for_text(view.notebook, DIALOG, "To free all of its memory, choose")
    page.keyboard.press("Enter")
    assert not page.is_visible(PANEL)


def test_hints(open_panel: Callable[..., OpenPanel]) -> None:
    """A hint is shown for an idle notebook that holds memory, and for a notebook whose GPU had low
    utilization for an hour."""
    view = open_panel()
    view.ownership.interval = 1000  # Then a jump of one hour is no gap between samples.
    view.ownership.reopen()
    view.notebook.wait_for(lambda: view.ownership.opened > 0)
    means = [{"seconds": seconds, "utilization": 12.4} for seconds in (600, 1800, 3600)]
    kernels = [
        kernel("k1", "eval.ipynb", idle_since=time.time() - 3 * 3600 - 60),
        kernel("k2", "job.ipynb", state="busy", idle_since=None),
    ]
    idle = gpu(view.gpus[0], allocation(18, kernel="k1"))
    view.ownership.send(kernels, [idle, gpu(view.gpus[1], allocation(9, kernel="k2"), means=means)])
    wait_for_text(view.notebook, HINT, "idle 3 h, holds 18.0 GiB")
    assert view.notebook.page.locator(HINT).count() == 1
    view.ownership.ahead = 3600
    wait_for_text(view.notebook, PANEL, "GPU 1 at 12 % over 1 h")
    hints = [" ".join(text.split()) for text in view.notebook.page.locator(HINT).all_inner_texts()]
    assert hints == [
        "eval.ipynb idle 4 h, holds 18.0 GiB Free…",
        "job.ipynb GPU 1 at 12 % over 1 h Actions…",
    ]
    for width in (240, 300, 480):
        show(view.notebook, width)
        assert clipped(view.notebook) == []
    view.notebook.page.click(f"{HINT} button:text('Free…')")
    assert "Free PyTorch Cache" in view.notebook.page.locator(MENU).all_inner_texts()[3]
    view.notebook.page.keyboard.press("Escape")
    view.ownership.send([], [gpu(uuid) for uuid in view.gpus])
    view.notebook.page.wait_for_selector(HINT, state="hidden")


def test_the_gpu_with_the_most_free_memory(open_panel: Callable[..., OpenPanel]) -> None:
    """The device dropdown offers the GPU with the most free memory according to the server's values. Choosing
    it selects that GPU's device."""
    view = open_panel()
    view.standin.scenario(*machine(2), f"gpu.0.memory_used={5 * GIB}")
    state = view.kernel_state()
    state["choices"][2]["memory_free"] = 1 * GIB  # Outdated, so the panel must use the server's value.
    view.notebook.run(0)
    view.notebook.wait_until_done()
    view.notebook.script(
        "await panel.sessionContext.session.kernel.requestExecute({code: argument}).done;",
        helpers_kernel_state.cell(state),
    )
    wait_for_text(view.notebook, f"{DEVICE} option", "Most free memory (now cuda:1)")
    view.notebook.page.select_option(DEVICE, "most-free")
    wait_for_text(view.notebook, MESSAGE, "cuda:1 (GPU 0) has the most free memory: 134.4 GiB.")
    assert view.notebook.page.input_value(DEVICE) == "cuda:1"


@pytest.mark.parametrize("panel", [True, False])
def test_a_lost_gpu_causes_a_notification(open_panel: Callable[..., OpenPanel], panel: bool) -> None:
    """A lost GPU causes exactly one notification. With the setting "always", it does so even if the panel is
    closed."""
    settings = {NOTIFICATION: {"fetchNews": "false", "checkForUpdates": False, "doNotDisturbMode": False}}
    if not panel:
        settings["jupyterlab-gpuwidget/panel"] = {"alerts": {"when": "always"}}
    view = open_panel(2, settings)
    if not panel:
        view.notebook.script("app.shell.collapseRight();")
        view.notebook.page.wait_for_selector(PANEL, state="hidden")
    view.standin.scenario(*machine(2), "gpu.1.*=error 15")
    toast = view.notebook.page.locator(".Toastify__toast")
    toast.first.wait_for()
    assert toast.count() == 1
    assert "GPU 1 lost since" in toast.inner_text()
    view.notebook.page.wait_for_timeout(3000)
    assert toast.count() == 1


def test_no_stream_for_alerts_by_default(open_panel: Callable[..., OpenPanel]) -> None:
    """With default settings, the page opens no stream while the panel is closed."""
    view = open_panel(1)
    sockets: list[str] = []
    view.notebook.page.on("websocket", lambda socket: sockets.append(socket.url))
    view.notebook.script("app.shell.collapseRight();")
    view.notebook.page.wait_for_selector(PANEL, state="hidden")
    view.notebook.page.wait_for_timeout(3000)
    assert [url for url in sockets if "gpuwidget" in url] == []


def _connections(lab: Lab, kernel_id: str) -> int:
    url = f"{lab.url}/api/kernels/{kernel_id}?token={lab.token}"
    with urllib.request.urlopen(url, timeout=30) as answer:
        connections: int = json.load(answer)["connections"]
    return connections


def test_the_notification_of_an_idle_holder(open_panel: Callable[..., OpenPanel]) -> None:
    """A kernel that the server reports as an idle holder is notified once, with two actions:
    one frees its cache, the other asks and shuts the kernel down."""
    view = open_panel(settings={NOTIFICATION: {"doNotDisturbMode": False, "fetchNews": "false"}})
    idle = {"since": time.time() - 1900, "memory": round(60 * GIB), "complete": True}
    hours = {
        "held_s": 11520.0,
        "busy_s": 3960.0,
        "memory_byte_s": 144000.0 * GIB,
        "energy_j": 2.16e6,
        "shared": False,
        "price": 8.0,
        "currency": "EUR",
    }
    kernels = [kernel(view.active_kernel, "train.ipynb", idle_holder=idle, gpu_hours=hours)]
    job = {"id": "1234", "gpus": 2, "end": time.time() + 11_550, "warning_s": 900}
    holders = [gpu(view.gpus[0], allocation(60, kernel=view.active_kernel)), gpu(view.gpus[1])]
    view.ownership.send(kernels, holders, job)
    page = view.notebook.page
    toast = page.locator(".Toastify__toast")
    toast.wait_for()
    assert "train.ipynb has been idle for 31 min and holds 60.0 GiB of GPU memory" in toast.inner_text()
    wait_for_text(
        view.notebook, f"{PANEL} .jp-gpuwidget-panel-job", "Slurm job 1234 · 2 GPUs · 3 h 12 min left"
    )
    wait_for_text(
        view.notebook,
        f"{PANEL} .jp-gpuwidget-panel-use",
        # The line wraps only between two values.
        "This notebook: 3.2\xa0GPU-hours\xa0held · 1.1\xa0busy · 40\xa0GiB-hours · 0.60\xa0kWh · 8.00\xa0EUR",
    )
    view.notebook.script(
        "await panel.sessionContext.session.kernel.requestExecute({code: argument}).done;",
        helpers_kernel_state.cell(view.kernel_state(), freed=FREED),
    )
    view.ownership.send(kernels, holders, job)
    assert toast.count() == 1
    toast.get_by_text("Free cache").click()
    wait_for_text(view.notebook, MESSAGE, FREED)
    view.ownership.send([kernel(view.active_kernel, "train.ipynb")], holders, job)
    view.ownership.send(kernels, holders, {**job, "end": time.time() + 700})
    page.get_by_text("Slurm ends job 1234").wait_for()


def test_the_end_of_a_slurm_job_is_notified_without_a_panel(
    browser: BrowserContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page on a server in a Slurm job warns before the job's end, although no view of gpuwidget is open."""
    monkeypatch.setenv("SLURM_JOB_ID", "1234")
    monkeypatch.setenv("SLURM_JOB_END_TIME", str(int(time.time()) + 600))
    with lab_with(tmp_path, *machine(1)) as (lab, _):
        file = tmp_path / "lab" / "settings" / f"{NOTIFICATION}.jupyterlab-settings"
        file.write_text(
            json.dumps({"fetchNews": "false", "checkForUpdates": False, "doNotDisturbMode": False})
        )
        notebook = lab.open(browser, lab.write("train.ipynb", ["pass"]))
        toast = notebook.page.locator(".Toastify__toast")
        toast.wait_for()
        assert ", and with it this server and its kernels" in toast.inner_text()
        assert not notebook.page.is_visible(PANEL)
        notebook.page.close(run_before_unload=False)
