"""Take the pictures that the manifest lists, to look at every state of every screen.

``make pictures`` runs this file. It contains no tests: it uses pytest for its fixtures and to select states:
``make pictures STATES="panel_holders or wall"``. The pictures are saved in ``.venv/pictures``.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import helpers_kernel_state
import pytest
from browser.picture_manifest import DEFAULTS, MANIFEST
from browser.test_cells_list import report, write_reports
from helpers_cluster import CLUSTER_OPTION, FakeCluster, cluster
from helpers_diagnosis import fake_doctor_route, healthy, unhealthy, without_gpu
from helpers_lab import THEMES, Lab, Notebook
from helpers_ownership import GIB, FakeOwnershipStream, allocation, gpu, kernel
from helpers_panel import (
    CARD,
    LOAD_BUTTON,
    PANEL,
    SERVER_NOTICE,
    lab_with,
    machine,
    open_part,
    show,
    uuids,
    wait_for_text,
)
from nvml_standin import profiles
from playwright.sync_api import BrowserContext, WebSocketRoute

FOLDER = Path(__file__).parents[2] / ".venv" / "pictures"
TRANSLATION = "@jupyterlab/translation-extension/plugin.jupyterlab-settings"
TORCH = Path(__file__).parents[1] / "torch_standin"
DOCTOR = f"{PANEL} .jp-gpuwidget-doctor"
WALL = ".jp-gpuwidget-cluster"
TRAINING = """%%gpuwatch
import time
for epoch in range(4):
    print(f"epoch {epoch}: loss {1 / (epoch + 1):.3f}", flush=True)
    time.sleep(1)"""
OUTPUTS = (
    "%load_ext gpuwidget",
    TRAINING,
    TRAINING.replace("range(4)", "range(2)"),
    *(
        "%gpu device",
        "%gpu memory",
        "%gpu switches",
        "%gpu compare 2 3",
        "%gpu doctor",
        "%gpu",
        "%gpu nonsense",
    ),
)
OUT_OF_MEMORY = (
    f"""import sys; sys.path.insert(0, {str(Path(__file__).parents[1])!r})
import torch
from helpers_out_of_memory import LimitedGpu
gpu = LimitedGpu(torch, 64 * 2**20)
gpu.install()
def mib(size): return gpu.empty(size * 2**18)""",
    "%load_ext gpuwidget",
    "model = mib(20)",
    "cache = [mib(6), mib(6)]",
    "mib(10)",
    "%%gpuwatch\nbatch = mib(8)\nresult = model[:1] + mib(16)",
)
DASK = """import os, time, gpuwidget.dask
from distributed import Client, LocalCluster
client = Client(LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None))
gpuwidget.dask.watch(client)
with open(os.environ["NVML_STANDIN"], "a") as machine:
    for gpu, pid in enumerate(client.run(os.getpid).values()):
        print(f"gpu.{gpu}.compute={pid}:{(gpu + 1) * 2**33}", file=machine)
def work(number):
    import time
    time.sleep(0.3)
    return number"""
DASK_RUN = "%%gpuwatch\nsum(client.gather(client.map(work, range(60))))"
_SET_FONT = "document.documentElement.style.setProperty('--jp-ui-font-size1', `${argument}px`);"
_TWO_FRAMES = "await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));"


@dataclass(frozen=True)
class Look:
    """The properties of one picture, which the manifest describes."""

    gpus: int
    width: int
    theme: str
    font: int
    zoom: int
    height: int

    def file_name(self, name: str) -> str:
        """Return the name of the file with the picture of a state. Properties with their usual value are left
        out."""
        parts = [name, f"{self.gpus}-gpus", str(self.width), self.theme]
        for what in ("font", "zoom", "height"):
            value = getattr(self, what)
            parts += [] if [value] == [*DEFAULTS[what]] else [f"{what}-{value}"]
        return "-".join(parts) + ".png"


@dataclass(frozen=True)
class Stage:
    """What a state starts from: the browser, an empty folder and the number of GPUs."""

    browser: BrowserContext
    folder: Path
    gpus: int

    def lab(self, *scenario: str, options: tuple[str, ...] = ()) -> AbstractContextManager[tuple[Lab, Any]]:
        """Start a JupyterLab on busy and idle H200s, changed by ``scenario``."""
        return lab_with(self.folder, *machine(self.gpus), *scenario, options=options)

    @contextmanager
    def notebook(self, *scenario: str, cells: tuple[str, ...] = ("1",), **opened: Any) -> Iterator[Notebook]:
        """Open a notebook with these cells in such a JupyterLab."""
        with self.lab(*scenario) as (lab, _):
            yield lab.open(self.browser, lab.write("train.ipynb", list(cells)), **opened)

    @contextmanager
    def panel(self, *scenario: str, **changes: Any) -> Iterator[Notebook]:
        """Open the panel beside a notebook whose kernel replies with a fake state with these changes."""
        with self.lab(*scenario) as (lab, _):
            yield self.panel_of(lab, **changes)

    def panel_of(self, lab: Lab, **changes: Any) -> Notebook:
        """Open the panel in this JupyterLab, beside a notebook whose kernel replies with a fake state."""
        fake = helpers_kernel_state.cell(helpers_kernel_state.state(uuids(lab), **changes))
        notebook = lab.open(self.browser, lab.write("train.ipynb", [fake, "import time; time.sleep(600)"]))
        show(notebook)
        notebook.page.wait_for_selector(CARD)
        notebook.run(0)
        notebook.wait_until_done()
        notebook.page.wait_for_selector(f"{PANEL} .jp-gpuwidget-device-watch:enabled")
        return notebook


STATES: dict[str, Callable[[Stage], AbstractContextManager[Notebook]]] = {}


def state(function: Callable[[Stage], Iterator[Notebook]]) -> Callable[[Stage], Iterator[Notebook]]:
    """Register a function that opens the state of its name, and closes it after its pictures were taken."""
    STATES[function.__name__] = contextmanager(function)
    return function


def looks() -> dict[tuple[str, int], list[Look]]:
    """Return the pictures of the manifest by their state and number of GPUs."""
    found: dict[tuple[str, int], list[Look]] = {}
    for name, tables in MANIFEST.items():
        for table in tables:
            properties = {**DEFAULTS, **table}
            for values in product(*properties.values()):
                look = Look(**dict(zip(properties, values, strict=True)))
                found.setdefault((name, look.gpus), []).append(look)
    return found


def take(notebook: Notebook, name: str, look: Look) -> None:
    """Give the page these properties, and save its picture. The picture of a state of the panel contains only
    the panel."""
    page, only_panel = notebook.page, name.startswith("panel")
    # A zoomed page has fewer CSS pixels. The picture shows its layout, without the additional resolution.
    width = 1366 if only_panel else look.width
    page.set_viewport_size({"width": width * 100 // look.zoom, "height": look.height * 100 // look.zoom})
    notebook.script(_SET_FONT, look.font)
    # JupyterLab's toolbar buttons read the font size only when the theme changes.
    for theme in (*(set(THEMES) - {look.theme}), look.theme):
        notebook.use_theme(theme)
    if only_panel:
        show(notebook, look.width)
    notebook.script(_TWO_FRAMES)
    # A chart that was resized is drawn again with the next sample.
    page.wait_for_timeout(1200)
    path = FOLDER / look.file_name(name)
    box = page.locator(PANEL).bounding_box() if only_panel else None
    # Finite animations stay as they are: the end of one would show that a live chart is not live.
    page.screenshot(path=path, clip=box)


@pytest.mark.parametrize(("name", "gpus"), list(looks()), ids=lambda value: str(value))
def test_take(name: str, gpus: int, browser: BrowserContext, tmp_path: Path) -> None:
    """Take all pictures of one state on one machine."""
    FOLDER.mkdir(exist_ok=True)
    with STATES[name](Stage(browser, tmp_path, gpus)) as notebook:
        for look in looks()[name, gpus]:
            take(notebook, name, look)
        notebook.page.close(run_before_unload=False)


@state
def panel(stage: Stage) -> Iterator[Notebook]:
    """A kernel with torch, which holds memory on the last GPU."""
    with stage.panel() as notebook:
        yield notebook


@state
def panel_not_loaded(stage: Stage) -> Iterator[Notebook]:
    """A kernel without gpuwidget, which can be loaded."""
    with stage.notebook() as notebook:
        show(notebook)
        notebook.page.wait_for_selector(LOAD_BUTTON)
        yield notebook


@state
def panel_without_notebook(stage: Stage) -> Iterator[Notebook]:
    """No notebook is open."""
    with stage.notebook(kernel=False) as notebook:
        show(notebook)
        # Save first: JupyterLab's dialog about unsaved changes would cover the panel.
        notebook.script("return panel.context.save().then(() => panel.close());")
        notebook.page.wait_for_selector(CARD)
        wait_for_text(notebook, PANEL, "Open a notebook to choose its default device.")
        yield notebook


@state
def panel_busy(stage: Stage) -> Iterator[Notebook]:
    """A cell is running."""
    with stage.panel() as notebook:
        notebook.run(1)
        wait_for_text(notebook, f"{PANEL} .jp-gpuwidget-device-busy", "busy")
        yield notebook


@state
def panel_without_cuda(stage: Stage) -> Iterator[Notebook]:
    """The kernel has a torch without CUDA."""
    with stage.lab() as (lab, _):
        known = uuids(lab)
        usual = helpers_kernel_state.state(known)
        gpus = [one | {"torch_device": None, "process_memory": 0, "context": False} for one in usual["gpus"]]
        reason = "This torch was built without CUDA."
        yield stage.panel_of(
            lab,
            torch="2.13.0+cpu",
            cuda_initialized=False,
            gpus=gpus,
            choices=usual["choices"][:1],
            unavailable=reason,
        )


def _with_holders(stage: Stage, lab: Lab) -> Notebook:
    """Open the panel while notebooks, one of them idle for hours, terminals and other users hold memory."""
    faked: list[FakeOwnershipStream] = []
    known = uuids(lab)
    device = {"chosen": "cuda:0", "new_tensors": True, "pending": False, "present": "cuda:0", "note": None}
    cell = helpers_kernel_state.cell(helpers_kernel_state.state(known, device=device))
    notebook = lab.open(
        stage.browser,
        lab.write("train.ipynb", [cell]),
        prepare=lambda page: faked.append(FakeOwnershipStream(page)),
    )
    show(notebook)
    notebook.page.wait_for_selector(CARD)
    notebook.run(0)
    notebook.wait_until_done()
    own = notebook.script("return panel.sessionContext.session.kernel.id;")
    long_name = "a folder/a very long name of a notebook.ipynb"
    kernels = [kernel(own, "train.ipynb"), kernel("k2", long_name, idle_since=time.time() - 3 * 3600)]
    holders = [
        allocation(14, kernel=own, pid=1),
        allocation(22, kernel="k2", pid=2),
        allocation(8, pid=3, user="ada", program="python eval.py"),
        allocation(None, pid=4, user="grace", program="python serve.py"),
        allocation(5, terminal="1", pid=5, program="python train.py"),
    ]
    # Only the first GPU has memory for all of them.
    held = [holders, *([holders[:1]] * (len(known) - 1))]
    found = zip(known, held, strict=True)
    faked[0].send(kernels, [gpu(uuid, *each, unattributed=2 * GIB) for uuid, each in found])
    wait_for_text(notebook, f"{PANEL} .jp-gpuwidget-holder", "eval.py")
    return notebook


@state
def panel_holders(stage: Stage) -> Iterator[Notebook]:
    """Notebooks, a terminal and other users hold memory."""
    with stage.lab() as (lab, _):
        yield _with_holders(stage, lab)


@state
def panel_switches(stage: Stage) -> Iterator[Notebook]:
    """The section with torch's switches is expanded, in a kernel with a real torch."""
    with stage.notebook(cells=("%load_ext gpuwidget\nimport torch",)) as notebook:
        show(notebook)
        notebook.run(0)
        notebook.wait_until_done()
        open_part(notebook, "switches")
        notebook.page.wait_for_selector(f"{PANEL} .jp-gpuwidget-switches-row")
        yield notebook


@state
def panel_cells(stage: Stage) -> Iterator[Notebook]:
    """The notebook has cells with reports."""
    with stage.lab() as (lab, _):
        reports = [
            report(number, number % 4 + 1, 7.0 * number, uuid=uuids(lab)[0]) for number in range(2, 10)
        ]
        notebook = lab.open(stage.browser, write_reports(lab, "train.ipynb", reports, source="model.fit()"))
        show(notebook)
        notebook.page.wait_for_selector(CARD)
        yield notebook


@state
def panel_no_driver(stage: Stage) -> Iterator[Notebook]:
    """The machine has no NVIDIA driver."""
    with stage.notebook("nvmlInitWithFlags=error 9") as notebook:
        show(notebook)
        wait_for_text(notebook, SERVER_NOTICE, "driver")
        wait_for_text(notebook, PANEL, "gpuwidget is not loaded in this kernel.")
        yield notebook


@state
def panel_lost_gpu(stage: Stage) -> Iterator[Notebook]:
    """The second GPU is lost."""
    with stage.lab() as (lab, standin):
        notebook = stage.panel_of(lab)
        standin.scenario(*machine(stage.gpus), "gpu.1.*=error 15")
        wait_for_text(notebook, CARD, "Lost since")
        yield notebook


@state
def panel_mig(stage: Stage) -> Iterator[Notebook]:
    """The first GPU is divided into MIG slices."""
    slices = [f"gpu.0.mig.{index}.memory_used={used * GIB}" for index, used in ((1, 3), (2, 9), (5, 17))]
    sizes = [f"gpu.0.mig.{index}.memory_total={18 * GIB}" for index in (1, 2, 5)]
    with stage.panel("gpu.0.mig=1 2 5", *slices, *sizes) as notebook:
        yield notebook


@state
def nearly_full(stage: Stage) -> Iterator[Notebook]:
    """The memory of the first GPU is 90 % full, that of the second 97 %."""
    used = [f"gpu.{index}.memory_used={share * 140 * GIB // 100}" for index, share in ((0, 91), (1, 98))]
    with stage.panel(*used) as notebook:
        yield notebook


@state
def status_bar(stage: Stage) -> Iterator[Notebook]:
    """The tiny meter in the status bar, which is the only view of the GPUs."""
    with stage.notebook(kernel=False) as notebook:
        notebook.page.wait_for_selector(".jp-gpuwidget-status-meter path[d*=L]", state="attached")
        notebook.page.wait_for_timeout(20_000)  # of the sparkline
        yield notebook


@state
def panel_hung_gpu(stage: Stage) -> Iterator[Notebook]:
    """The driver's calls for the first GPU hang."""
    with stage.lab() as (lab, standin):
        notebook = stage.panel_of(lab)
        standin.scenario(*machine(stage.gpus), "gpu.0.*=hang")
        wait_for_text(notebook, CARD, "No answer for")
        yield notebook
        standin.scenario(*machine(stage.gpus))


@state
def panel_recording(stage: Stage) -> Iterator[Notebook]:
    """The server replays a recording."""
    lab = Lab(stage.folder, "replay")
    try:
        lab.wait_until_ready()
        yield stage.panel_of(lab)
    finally:
        lab.stop()


@state
def panel_server_down(stage: Stage) -> Iterator[Notebook]:
    """The server does not answer the panel. Its other routes do, because JupyterLab saves the theme there."""
    streams: list[WebSocketRoute] = []
    is_down = False

    def opened(route: WebSocketRoute) -> None:
        if is_down:
            route.close()
        else:
            route.connect_to_server()
            streams.append(route)

    with stage.lab() as (lab, _):
        notebook = lab.open(
            stage.browser,
            lab.write("train.ipynb", ["1"]),
            prepare=lambda page: page.route_web_socket(re.compile("gpuwidget/api/stream"), opened),
        )
        show(notebook)
        notebook.page.wait_for_selector(CARD)
        is_down = True
        for stream in streams:
            stream.close()
        wait_for_text(notebook, PANEL, "The server does not answer")
        yield notebook


@state
def panel_different_gpus(stage: Stage) -> Iterator[Notebook]:
    """A machine with five models, whose order in torch is unknown, and a kernel with gpuwidget."""
    with lab_with(stage.folder, *profiles.machine(*profiles.PROFILES)) as (lab, _):
        notebook = lab.open(stage.browser, lab.write("train.ipynb", ["%load_ext gpuwidget"]))
        show(notebook)
        notebook.run(0)
        notebook.wait_until_done()
        notebook.page.wait_for_selector(CARD)
        yield notebook


def _with_doctor(stage: Stage, diagnosis: dict[str, Any]) -> Iterator[Notebook]:
    """Open the panel with the doctor's section expanded, which shows this diagnosis of the server."""
    with stage.panel() as notebook:
        fake_doctor_route(notebook, (200, diagnosis))
        notebook.page.click(f"{PANEL} [data-jp-item-name=doctor]")
        notebook.page.wait_for_selector(f"{DOCTOR} .jp-gpuwidget-doctor-check")
        yield notebook


@state
def panel_doctor_healthy(stage: Stage) -> Iterator[Notebook]:
    """All checks of the server pass."""
    return _with_doctor(stage, healthy())


@state
def panel_doctor_without_gpu(stage: Stage) -> Iterator[Notebook]:
    """The server's machine has no NVIDIA GPU."""
    return _with_doctor(stage, without_gpu())


@state
def panel_doctor_problems(stage: Stage) -> Iterator[Notebook]:
    """Checks of the server fail."""
    return _with_doctor(stage, unhealthy("server"))


@state
def panel_cluster(stage: Stage) -> Iterator[Notebook]:
    """The section with the cluster is expanded."""
    with stage.lab(options=(CLUSTER_OPTION,)) as (lab, _):
        path = lab.write("train.ipynb", ["1"])
        notebook = lab.open(stage.browser, path, kernel=False, prepare=FakeCluster(cluster()).install)
        show(notebook)
        notebook.page.click(f"{PANEL} .jp-gpuwidget-cluster-section summary")
        wait_for_text(notebook, f"{PANEL} .jp-gpuwidget-cluster-section", "512 GPUs")
        yield notebook


@state
def panel_in_chinese(stage: Stage) -> Iterator[Notebook]:
    """The panel with holders, in Chinese."""
    with stage.lab() as (lab, _):
        settings = stage.folder / "lab" / "settings" / TRANSLATION
        settings.parent.mkdir(parents=True, exist_ok=True)
        settings.write_text(json.dumps({"locale": "zh_CN"}))
        yield _with_holders(stage, lab)


@state
def notebook_7(stage: Stage) -> Iterator[Notebook]:
    """Notebook 7 with the panel."""
    with stage.lab() as (lab, _):
        path = lab.write("train.ipynb", ["1"])
        page = stage.browser.new_page()
        page.goto(f"{lab.url}/notebooks/{path.name}?token={lab.token}")
        page.wait_for_function("() => window.jupyterapp?.commands.hasCommand('gpuwidget:show-panel')")
        page.wait_for_selector(".jp-Notebook .jp-Cell")
        page.evaluate("() => window.jupyterapp.commands.execute('gpuwidget:show-panel')")
        page.wait_for_selector(f"{CARD} canvas", state="visible")
        yield Notebook(page, path)


@state
def live_chart(stage: Stage) -> Iterator[Notebook]:
    """A watched cell is running, and the panel is open."""
    cells = ("%load_ext gpuwidget", TRAINING, TRAINING.replace("4", "400"))
    with stage.notebook(f"gpu.0.compute=self:{14 * GIB}", cells=cells) as notebook:
        show(notebook)
        for cell in (0, 1):
            notebook.run(cell)
            notebook.wait_until_done()
        notebook.run(2)
        notebook.page.wait_for_selector(".gpuwidget-live .bqplot path.line", state="attached")
        notebook.page.wait_for_timeout(5000)
        yield notebook


@state
def inline(stage: Stage) -> Iterator[Notebook]:
    """The device row of ``%gpu`` and the live charts of ``gpuwidget.dashboard()``."""
    load = f"import sys\nsys.path.insert(0, {str(TORCH)!r})\nimport torch\ntorch.cuda.init()"
    cells = (load, "%load_ext gpuwidget", "%gpu", "import gpuwidget\ngpuwidget.dashboard()")
    with stage.notebook(cells=cells) as notebook:
        for cell in range(len(cells)):
            notebook.run(cell)
            notebook.wait_until_done()
        notebook.page.wait_for_selector(".gpuwidget-dashboard .bqplot path.line", state="attached")
        notebook.page.wait_for_timeout(5000)
        yield notebook


@state
def outputs(stage: Stage) -> Iterator[Notebook]:
    """The outputs of a watched cell and of the commands of ``%gpu``."""
    with stage.notebook(cells=OUTPUTS) as notebook:
        for cell in range(len(OUTPUTS)):
            notebook.run(cell)
            notebook.wait_until_done()
        notebook.script("panel.content.activeCellIndex = 0; await panel.content.scrollToItem(0);")
        yield notebook


@state
def out_of_memory(stage: Stage) -> Iterator[Notebook]:
    """The card of a watched cell that ran out of memory, below the traceback."""
    with stage.notebook(cells=OUT_OF_MEMORY) as notebook:
        for cell in range(len(OUT_OF_MEMORY)):
            notebook.run(cell)
            notebook.wait_until_done()
        yield notebook


@state
def dask_workers(stage: Stage) -> Iterator[Notebook]:
    """The card of a cell that ran on Dask workers, and the live chart of another one."""
    with stage.notebook(
        cells=("%load_ext gpuwidget", DASK, DASK_RUN, DASK_RUN.replace("60", "6000"))
    ) as notebook:
        for cell in (0, 1, 2):
            notebook.run(cell)
            notebook.wait_until_done()
        notebook.run(3)
        wait_for_text(notebook, ".gpuwidget-live", "worker")
        yield notebook


@state
def dashboard(stage: Stage) -> Iterator[Notebook]:
    """The dashboard with its default charts."""
    with stage.notebook("gpu.*.gpm.2=77.5", "gpu.*.gpm.5=42.25", kernel=False) as notebook:
        yield _dashboard(notebook)


def _dashboard(notebook: Notebook) -> Notebook:
    notebook.script("await app.commands.execute('gpuwidget:open-dashboard');")
    notebook.page.wait_for_selector(".jp-gpuwidget-dashboard-chart canvas")
    return notebook


@state
def dashboard_gap(stage: Stage) -> Iterator[Notebook]:
    """The dashboard after some seconds in which it was hidden."""
    with stage.notebook(kernel=False) as notebook:
        _dashboard(notebook).page.wait_for_timeout(12_000)
        notebook.script("app.shell.activateById(panel.id);")
        notebook.page.wait_for_timeout(15_000)
        notebook.script("await app.commands.execute('gpuwidget:open-dashboard');")
        notebook.page.click("button.jp-gpuwidget-dashboard-button:text('1 min')")
        notebook.page.wait_for_timeout(8000)
        yield notebook


@state
def dashboard_recording(stage: Stage) -> Iterator[Notebook]:
    """The dashboard of the packaged recording."""
    lab = Lab(stage.folder, "replay")
    try:
        lab.wait_until_ready()
        yield _dashboard(lab.open(stage.browser, lab.write("train.ipynb", ["1"]), kernel=False))
    finally:
        lab.stop()


@state
def dashboard_holders(stage: Stage) -> Iterator[Notebook]:
    """The dashboard while notebooks, a terminal and other users hold memory."""
    with stage.lab() as (lab, _):
        yield _dashboard(_with_holders(stage, lab))


@state
def dashboard_lost_gpu(stage: Stage) -> Iterator[Notebook]:
    """The second GPU is lost while the dashboard is open."""
    with stage.lab() as (lab, standin):
        notebook = _dashboard(lab.open(stage.browser, lab.write("train.ipynb", ["1"]), kernel=False))
        notebook.page.wait_for_timeout(5000)
        standin.scenario(*machine(stage.gpus), "gpu.1.*=error 15")
        wait_for_text(notebook, ".jp-gpuwidget-dashboard-chip", "lost")
        wait_for_text(notebook, ".jp-gpuwidget-status", "1 lost")
        yield notebook


@state
def dashboard_old_gpu(stage: Stage) -> Iterator[Notebook]:
    """A GPU without hardware counters, whose memory is nearly full."""
    with lab_with(stage.folder, *profiles.machine("RTX 4090"), "gpu.0.memory_used=24500000000") as (lab, _):
        yield _dashboard(lab.open(stage.browser, lab.write("train.ipynb", ["1"]), kernel=False))


@state
def dashboard_no_driver(stage: Stage) -> Iterator[Notebook]:
    """The machine has no NVIDIA driver."""
    with stage.notebook("nvmlInitWithFlags=error 9", kernel=False) as notebook:
        notebook.script("await app.commands.execute('gpuwidget:open-dashboard');")
        wait_for_text(notebook, ".jp-gpuwidget-dashboard-empty", "driver")
        yield notebook


def _wall(stage: Stage, snapshot: dict[str, Any]) -> Iterator[Notebook]:
    """Open the wall with this answer of the server."""
    with stage.lab(options=(CLUSTER_OPTION,)) as (lab, _):
        path = lab.write("train.ipynb", ["1"])
        notebook = lab.open(stage.browser, path, kernel=False, prepare=FakeCluster(snapshot).install)
        notebook.script("await app.commands.execute('gpuwidget:open-cluster', {state: {}});")
        notebook.page.wait_for_selector(WALL)
        yield notebook


@state
def wall(stage: Stage) -> Iterator[Notebook]:
    """512 GPUs on 64 nodes, one of which is lost."""
    return _wall(stage, cluster())


@state
def wall_problem(stage: Stage) -> Iterator[Notebook]:
    """Prometheus does not answer: the values are old."""
    return _wall(stage, {**cluster(), "problem": "Prometheus does not answer."})


@state
def wall_empty(stage: Stage) -> Iterator[Notebook]:
    """Prometheus has no GPUs."""
    return _wall(stage, {**cluster(), "nodes": [], "gpus": []})
