"""Who holds each GPU's memory, as the panel shows it and lets a user act on it."""

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
from helpers_panel import CARD, DEVICE, PANEL, lab_with, machine, show, uuids, wait_for_text
from helpers_usage import GIB, FakedUsage, gpu, holding, kernel
from playwright.sync_api import Browser

from tests.nvml_standin import Standin

NOTIFICATION = "@jupyterlab/apputils-extension/notification"
LINE = f"{CARD} .jp-gpuwidget-holder"
MENU = ".lm-Menu-item"
HINT = f"{PANEL} .jp-gpuwidget-hint"
OUTCOME = f"{PANEL} .jp-gpuwidget-panel-message"
DIALOG = ".jp-Dialog-content"
CLIPPED = """
return [...document.querySelectorAll('.jp-gpuwidget-panel *')]
    .filter(node => node.checkVisibility() &&
            !node.matches('select, option, canvas, .jp-gpuwidget-device-label'))
    .filter(node => getComputedStyle(node).textOverflow !== 'ellipsis')
    .filter(node => node.scrollWidth > node.clientWidth + 1 && getComputedStyle(node).display !== 'inline')
    .map(node => `${node.className}: ${node.textContent}`);
"""
NARROW_FIGURES = """
return [...document.querySelectorAll('.jp-gpuwidget-holder-memory')]
    .filter(node => node.checkVisibility() && node.textContent !== '')
    .filter(node => {
        const words = document.createRange();
        words.selectNodeContents(node);
        return words.getBoundingClientRect().width > node.getBoundingClientRect().width + 0.5;
    })
    .map(node => node.textContent);
"""
WATCH_SHIFTS = """
window.shifts = [];
new PerformanceObserver(list => {
    for (const { node } of list.getEntries().flatMap(entry => entry.sources)) {
        const moved = node instanceof Element ? node : node?.parentElement;
        if (moved?.closest('.jp-gpuwidget-panel')) { window.shifts.push(moved.className); }
    }
}).observe({type: 'layout-shift'});
"""
KERNEL_OF = """
const other = [...app.shell.widgets('main')].find(widget => widget.context?.path === argument);
await other.sessionContext.ready;
return other.sessionContext.session.kernel.id;
"""
FREED = "Gave 3.0 GiB of torch's cache back."


@dataclass
class Desk:
    """A JupyterLab with ``train.ipynb`` in front, and what is said to hold memory there."""

    lab: Lab
    standin: Standin
    notebook: Notebook
    usage: FakedUsage
    gpus: list[str]
    front: str

    def second(self) -> str:
        """Open ``eval.ipynb`` behind it, and have its kernel; ``train.ipynb`` is in front again."""
        path = self.lab.write("eval.ipynb", [helpers_kernel_state.cell(self.state(), freed=FREED)])
        script = self.notebook.script
        script("await app.commands.execute('docmanager:open', {path: argument});", path.name)
        identity: str = script(KERNEL_OF, path.name)
        script("app.shell.activateById(panel.id);")
        return identity

    def state(self) -> dict[str, Any]:
        """What a kernel says of itself."""
        return helpers_kernel_state.state(self.gpus)

    def act(self, name: str, *keys: str) -> None:
        """Open the menu of the line called ``name`` and press ``keys`` in it."""
        self.notebook.page.click(f"{PANEL} [aria-label='Actions for {name}']")
        self.notebook.page.wait_for_selector(MENU)
        for key in keys:
            self.notebook.page.keyboard.press(key)

    def kernels(self) -> list[str]:
        """Ids of the kernels that run."""
        url = f"{self.lab.url}/api/kernels?token={self.lab.token}"
        with urllib.request.urlopen(url, timeout=30) as answer:
            return [each["id"] for each in json.load(answer)]

    def current(self) -> str:
        """The tab in front."""
        label: str = self.notebook.script("return app.shell.currentWidget.title.label;")
        return label

    def lines(self, card: int) -> list[str]:
        """The lines of one GPU, each with its words in one."""
        lines: list[str] = self.notebook.page.eval_on_selector_all(
            f"{CARD}:nth-child({card + 1}) .jp-gpuwidget-holder",
            "nodes => nodes.map(node => node.innerText.replace(/\\s+/g, ' ').trim())",
        )
        return lines


@pytest.fixture
def desk(browser: Browser, tmp_path: Path) -> Iterator[Callable[..., Desk]]:
    """Open a desk on a machine of so many GPUs, with these settings of the user's by plugin."""
    with ExitStack() as closing:

        def opened(gpus: int = 2, settings: Mapping[str, dict[str, Any]] | None = None) -> Desk:
            lab, standin = closing.enter_context(lab_with(tmp_path, *machine(gpus)))
            for name, values in (settings or {}).items():
                file = tmp_path / "lab" / "settings" / f"{name}.jupyterlab-settings"
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(json.dumps(values))
            known = uuids(lab)
            faked: list[FakedUsage] = []
            cell = helpers_kernel_state.cell(helpers_kernel_state.state(known), freed=FREED)
            notebook = lab.open(
                browser,
                lab.write("train.ipynb", [cell, "import time; time.sleep(60)"]),
                prepare=lambda page: faked.append(FakedUsage(page)),
            )
            closing.callback(lambda: notebook.page.close(run_before_unload=False))
            show(notebook, 300)
            notebook.page.wait_for_selector(CARD)
            front = notebook.script("return panel.sessionContext.session.kernel.id;")
            return Desk(lab, standin, notebook, faked[0], known, front)

        yield opened


def test_each_gpu_says_who_holds_it(desk: Callable[..., Desk]) -> None:
    """Notebooks, terminals and others' processes have a line with what they hold; this one is first."""
    here = desk()
    kernels = [
        kernel(here.front, "train.ipynb", state="busy", idle_since=None),
        kernel("k2", "eval.ipynb", idle_since=time.time() - 700, path="old/eval.ipynb"),
    ]
    first = gpu(
        here.gpus[0],
        holding(30, kernel="k2"),
        holding(14, kernel=here.front),
        holding(8, pid=77, user="ada", program="python <b>x</b>.py"),
        holding(2, terminal="1", program="python serve.py"),
    )
    second = gpu(
        here.gpus[1],
        holding(3, kernel="k2", source="torch"),
        unattributed=round(13 * GIB),
        reason="This container has process ids of its own.",
    )
    here.usage.say(kernels, [first, second])
    wait_for_text(here.notebook, LINE, "unattributed")
    assert here.lines(0) == [
        "train.ipynb busy 14.0 GiB",
        "eval.ipynb idle 11 min 30.0 GiB",
        "ada: python <b>x</b>.py 8.0 GiB",
        "terminal 1 · python serve.py 2.0 GiB",
    ]
    assert here.lines(1) == ["eval.ipynb torch idle 11 min 3.0 GiB", "unattributed 13.0 GiB"]
    page = here.notebook.page
    assert page.get_attribute(f"{LINE}:first-child", "aria-current") == "true"
    assert page.locator(f"{LINE} button:enabled").count() == 4
    wait_for_text(
        here.notebook, f"{CARD} .jp-gpuwidget-holder-reason", "This container has process ids of its own."
    )
    wait_for_text(here.notebook, f"{CARD} .jp-gpuwidget-gpu-memory", "14.0 here")
    title = page.get_attribute(f"{LINE} .jp-gpuwidget-holder-torch:not(:empty)", "title") or ""
    assert "own number: what it has reserved, without the CUDA context" in title
    for width in (240, 300, 480):
        show(here.notebook, width)
        assert here.notebook.script(NARROW_FIGURES) == []


def test_many_holders(desk: Callable[..., Desk]) -> None:
    """Of many the largest have a line and the rest one together, which unfolds by keyboard."""
    here = desk()
    many = [holding(12 - 1 * place, pid=place, user="bob", program=f"rank {place}") for place in range(12)]
    here.usage.say([], [gpu(here.gpus[0], *many, unattributed=GIB), gpu(here.gpus[1])])
    wait_for_text(here.notebook, f"{CARD} .jp-gpuwidget-panel-more", "and 7 more")
    assert "28.0 GiB" in here.notebook.page.inner_text(f"{CARD} .jp-gpuwidget-panel-more >> nth=0")
    assert here.lines(0) == [
        *(f"bob: rank {place} {12 - place}.0 GiB" for place in range(5)),
        "unattributed 1.0 GiB",
    ]
    for width in (240, 300, 480):
        show(here.notebook, width)
        assert here.notebook.script(CLIPPED) == []
    here.notebook.page.focus(f"{CARD} .jp-gpuwidget-panel-more >> nth=0")
    here.notebook.page.keyboard.press("Enter")
    assert len(here.lines(0)) == 13


def test_nothing_moves_while_they_change(desk: Callable[..., Desk]) -> None:
    """Figures and states that change, and two that hold about the same, move no word from its place."""
    here = desk(1)
    kernels = [kernel("a", "a.ipynb"), kernel("b", "b.ipynb")]

    def say(step: int) -> None:
        busy = {"state": "busy", "idle_since": None} if step % 2 else {}
        sizes = [(10 + step / 10, "a"), (10 + (step * 7 % 5) / 10, "b")]
        holdings = [holding(size, kernel=name) for size, name in sorted(sizes, reverse=True)]
        here.usage.say([kernels[0] | busy, kernels[1]], [gpu(here.gpus[0], *holdings, unattributed=GIB)])

    say(0)
    wait_for_text(here.notebook, LINE, "b.ipynb")
    # What the panel says of the kernel comes with its first answer, and takes its room then.
    here.notebook.page.wait_for_selector(
        f"{PANEL} .jp-gpuwidget-device-section button:text('Load gpuwidget')"
    )
    here.notebook.page.wait_for_timeout(3000)
    order = [line.split()[0] for line in here.lines(0)]
    here.notebook.script(WATCH_SHIFTS)
    for step in range(1, 9):
        say(step)
        here.notebook.page.wait_for_timeout(500)
    assert [line.split()[0] for line in here.lines(0)] == order
    assert here.notebook.script("return window.shifts;") == []


def test_go_to_a_notebook(desk: Callable[..., Desk]) -> None:
    """Its tab comes to the front by keyboard, and is opened where it was closed; the panel stays as it is."""
    here = desk()
    other = here.second()
    here.usage.say(
        [kernel(here.front, "train.ipynb"), kernel(other, "eval.ipynb")],
        [gpu(here.gpus[0], holding(9, kernel=other)), gpu(here.gpus[1])],
    )
    wait_for_text(here.notebook, LINE, "eval.ipynb")
    assert here.current() == "train.ipynb"
    page = here.notebook.page
    page.focus(f"{PANEL} [aria-label='Actions for eval.ipynb']")
    for key in ("Enter", "ArrowDown", "Enter"):
        page.keyboard.press(key)
        page.wait_for_timeout(200)
    page.wait_for_function("() => window.jupyterapp.shell.currentWidget.title.label === 'eval.ipynb'")
    here.notebook.script("app.shell.currentWidget.dispose();")
    assert other in here.kernels()
    page.click(f"{LINE} .jp-gpuwidget-holder-name:text('eval.ipynb')")
    page.wait_for_function("() => window.jupyterapp.shell.currentWidget?.title.label === 'eval.ipynb'")
    assert page.is_visible(PANEL)


def test_go_to_a_terminal(desk: Callable[..., Desk]) -> None:
    """A terminal that holds memory is opened; there is nothing else to do about it."""
    here = desk()
    url = f"{here.lab.url}/api/terminals?token={here.lab.token}"
    with urllib.request.urlopen(urllib.request.Request(url, data=b"{}", method="POST"), timeout=30) as answer:
        name = json.load(answer)["name"]
    here.usage.say(
        [], [gpu(here.gpus[0], holding(9, terminal=name, program="python x.py")), gpu(here.gpus[1])]
    )
    wait_for_text(here.notebook, LINE, f"terminal {name}")
    here.act(f"terminal {name} · python x.py", "ArrowDown")
    (item,) = here.notebook.page.locator(MENU).all_inner_texts()
    assert item.strip() == "Go to the Terminal"
    here.notebook.page.keyboard.press("Enter")
    here.notebook.page.wait_for_selector(".jp-Terminal")


def test_shut_down(desk: Callable[..., Desk]) -> None:
    """A kernel is ended only after a question that names what is lost, and what was done is said."""
    here = desk()
    other = here.second()
    here.usage.say(
        [kernel(here.front, "train.ipynb"), kernel(other, "eval.ipynb", state="busy", idle_since=None)],
        [gpu(here.gpus[0], holding(18, kernel=other)), gpu(here.gpus[1], holding(3, kernel=other))],
    )
    wait_for_text(here.notebook, LINE, "eval.ipynb")
    page = here.notebook.page
    here.act("eval.ipynb", "ArrowUp", "Enter")
    question = " ".join(page.inner_text(DIALOG).split())
    assert question.startswith("Shut down the kernel of eval.ipynb?")
    assert "all its variables the cell that runs now" in question
    assert "18.0 GiB on GPU 0, 3.0 GiB on GPU 1" in question
    page.keyboard.press("Enter")  # the button that has the keyboard: Cancel
    page.wait_for_selector(DIALOG, state="detached")
    assert other in here.kernels()
    here.act("eval.ipynb", "ArrowUp", "Enter")
    page.click(f"{DIALOG} .jp-mod-warn")
    wait_for_text(here.notebook, OUTCOME, "The kernel of eval.ipynb was shut down. It held 18.0 GiB on GPU 0")
    assert here.kernels() == [here.front]
    page.click(f"{OUTCOME} button")
    assert page.inner_text(OUTCOME) == ""


def test_free_the_cache_of_a_notebook_that_is_not_open(desk: Callable[..., Desk]) -> None:
    """A kernel is asked though no tab is connected to it, its answer said, and no connection left."""
    here = desk()
    other = here.second()
    script = here.notebook.script
    script(
        "const other = [...app.shell.widgets('main')].find(w => w.context?.path === 'eval.ipynb');"
        "await other.sessionContext.session.kernel.requestExecute({code: argument}).done;"
        "await other.context.save(); other.dispose();",
        helpers_kernel_state.cell(here.state(), freed=FREED),
    )
    here.usage.say(
        [kernel(here.front, "train.ipynb"), kernel(other, "eval.ipynb")],
        [gpu(here.gpus[0], holding(18, kernel=other)), gpu(here.gpus[1])],
    )
    wait_for_text(here.notebook, LINE, "eval.ipynb")
    here.act("eval.ipynb", "ArrowDown", "ArrowDown", "Enter")
    wait_for_text(here.notebook, OUTCOME, f"eval.ipynb: {FREED}")
    here.notebook.page.wait_for_timeout(500)
    assert _connections(here.lab, other) == 0


def test_free_the_cache_where_nobody_answers(desk: Callable[..., Desk]) -> None:
    """Where gpuwidget is not loaded it is said, with what to do."""
    here = desk()
    here.usage.say(
        [kernel(here.front, "train.ipynb")],
        [gpu(here.gpus[0], holding(18, kernel=here.front)), gpu(here.gpus[1])],
    )
    wait_for_text(here.notebook, LINE, "train.ipynb")
    here.act("train.ipynb", "ArrowDown", "ArrowDown", "Enter")
    wait_for_text(
        here.notebook, OUTCOME, "did not answer: gpuwidget is not loaded in it (%load_ext gpuwidget)"
    )


def test_free_the_cache_with_the_panel_closed(desk: Callable[..., Desk]) -> None:
    """The palette's command opens the panel, whose foot says what came of it."""
    here = desk()
    here.notebook.script("app.shell.collapseRight();")
    here.notebook.page.wait_for_selector(PANEL, state="hidden")
    here.notebook.script("await app.commands.execute('gpuwidget:free-cache');")
    here.notebook.page.wait_for_selector(f"{OUTCOME}:has-text('did not answer'):visible")


def test_what_is_worth_a_look(desk: Callable[..., Desk]) -> None:
    """An idle notebook that holds memory and a GPU that did little while the page looked are pointed out."""
    here = desk()
    here.usage.interval = 1000  # An hour is a few samples then.
    here.usage.reopen()
    wait_for_text(here.notebook, PANEL, "every 1000 s")
    means = [{"seconds": seconds, "utilization": 12.4} for seconds in (600, 1800, 3600)]
    kernels = [
        kernel("k1", "eval.ipynb", idle_since=time.time() - 3 * 3600 - 60),
        kernel("k2", "job.ipynb", state="busy", idle_since=None),
    ]
    idle = gpu(here.gpus[0], holding(18, kernel="k1"))
    here.usage.say(kernels, [idle, gpu(here.gpus[1], holding(9, kernel="k2"), means=means)])
    wait_for_text(here.notebook, HINT, "idle 3 h, holds 18.0 GiB")
    assert here.notebook.page.locator(HINT).count() == 1
    here.usage.ahead = 3600
    wait_for_text(here.notebook, PANEL, "GPU 1 at 12 % over 1 h")
    hints = [" ".join(text.split()) for text in here.notebook.page.locator(HINT).all_inner_texts()]
    assert hints == [
        "eval.ipynb idle 4 h, holds 18.0 GiB Free…",
        "job.ipynb GPU 1 at 12 % over 1 h See…",
    ]
    for width in (240, 300, 480):
        show(here.notebook, width)
        assert here.notebook.script(CLIPPED) == []
    here.notebook.page.click(f"{HINT} button:text('Free…')")
    assert "Cache" in here.notebook.page.locator(MENU).all_inner_texts()[1]
    here.notebook.page.keyboard.press("Escape")
    here.usage.say([], [gpu(uuid) for uuid in here.gpus])
    here.notebook.page.wait_for_selector(HINT, state="hidden")


def test_the_emptiest_gpu(desk: Callable[..., Desk]) -> None:
    """The dropdown offers the emptiest GPU by the server's figures; chosen it is a device like another."""
    here = desk()
    here.standin.scenario(*machine(2), f"gpu.0.memory_used={5 * GIB}")
    state = here.state()
    state["choices"][2]["memory_free"] = 1 * GIB  # What the kernel said when it was last asked.
    here.notebook.run(0)
    here.notebook.wait_until_done()
    here.notebook.script(
        "await panel.sessionContext.session.kernel.requestExecute({code: argument}).done;",
        helpers_kernel_state.cell(state),
    )
    wait_for_text(here.notebook, f"{DEVICE} option", "the emptiest GPU · now cuda:1, 134.4 GiB free")
    here.notebook.page.select_option(DEVICE, "emptiest")
    wait_for_text(here.notebook, OUTCOME, "The emptiest GPU is cuda:1 (GPU 0), with 134.4 GiB free.")
    assert here.notebook.page.input_value(DEVICE) == "cuda:1"


@pytest.mark.parametrize("panel", [True, False])
def test_a_lost_gpu_is_told(desk: Callable[..., Desk], panel: bool) -> None:
    """A lost GPU is a notification, once; with the panel closed too where the user wants that."""
    settings = {NOTIFICATION: {"fetchNews": "false", "checkForUpdates": False, "doNotDisturbMode": False}}
    if not panel:
        settings["jupyterlab-gpuwidget/panel"] = {"alerts": {"when": "always"}}
    here = desk(2, settings)
    if not panel:
        here.notebook.script("app.shell.collapseRight();")
        here.notebook.page.wait_for_selector(PANEL, state="hidden")
    here.standin.scenario(*machine(2), "gpu.1.*=error 15")
    toast = here.notebook.page.locator(".Toastify__toast")
    toast.first.wait_for(timeout=30_000)
    assert toast.count() == 1
    assert "GPU 1 lost since" in toast.inner_text()
    here.notebook.page.wait_for_timeout(3000)
    assert toast.count() == 1


def test_alerts_cost_nothing_by_default(desk: Callable[..., Desk]) -> None:
    """With the panel closed and nothing set, no page listens."""
    here = desk(1)
    sockets: list[str] = []
    here.notebook.page.on("websocket", lambda socket: sockets.append(socket.url))
    here.notebook.script("app.shell.collapseRight();")
    here.notebook.page.wait_for_selector(PANEL, state="hidden")
    here.notebook.page.wait_for_timeout(3000)
    assert [url for url in sockets if "gpuwidget" in url] == []


def _connections(lab: Lab, kernel_id: str) -> int:
    url = f"{lab.url}/api/kernels/{kernel_id}?token={lab.token}"
    with urllib.request.urlopen(url, timeout=30) as answer:
        connections: int = json.load(answer)["connections"]
    return connections
