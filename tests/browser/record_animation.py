"""Record the animated picture of the README, docs/pictures/overview.gif, from a real JupyterLab page.

``make animation`` runs this file. It needs ffmpeg. As in take_pictures.py, pytest provides the fixtures. It
shows two moments: a cell whose GPU waits for data, and a cell that runs out of memory. The GPU is the NVML
stand-in, whose utilization, power, temperature and clock are played from the packaged recording of H200s.
torch is the real one, with an allocator that gives no memory to a stand-in for an H200.
"""

from __future__ import annotations

import base64
import gzip
import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from helpers_lab import Notebook
from helpers_panel import CARD, lab_with, show, wait_for_text
from nvml_standin import Standin
from playwright.sync_api import BrowserContext

from gpuwidget.sources.replay import SHIPPED

ROOT = Path(__file__).parents[2]
GIF = ROOT / "docs" / "pictures" / "overview.gif"
LIMIT = 2_000_000
"""Maximum size of the file in bytes."""
_SIZE = (1120, 720)
_PANEL_WIDTH = 240
_FRAMES_PER_SECOND = 8
_TRAINING = """
import os, pathlib, sys, time
sys.path.insert(0, TESTS)
import torch
from helpers_out_of_memory import LimitedGpu

GIB = 2**30
gpu = LimitedGpu(torch, 140 * GIB)
gpu.install()
torch.version.cuda = "13.0"
os.sched_getaffinity = lambda pid: set(range(16))
get_ipython().InteractiveTB.set_mode("Minimal")  # the traceback would show this machine's paths
use = pathlib.Path("use.txt")

def tell(state):
    new = use.with_suffix(".new")
    new.write_text(f"{os.getpid()} {state} {gpu.reserved}")
    new.replace(use)

class Activations(torch.autograd.Function):
    @staticmethod
    def forward(ctx, weights):
        ctx.save_for_backward(gpu.empty(GIB * 3 // 4))
        return gpu.empty(1)

class Images(torch.utils.data.Dataset):
    def __len__(self):
        return 28

    def __getitem__(self, number):
        time.sleep(0.28)  # as if it decoded an image
        return torch.zeros(1), 0

loader = torch.utils.data.DataLoader(Images(), batch_size=4)
model = gpu.empty(2 * GIB)
weights = torch.ones((), requires_grad=True)

def step(model, x, y):
    tell("computing")
    time.sleep(0.26)
    loss = Activations.apply(weights)
    tell("waiting")
    return loss

tell("waiting")
"""
_SLOW = "for x, y in loader:\n    loss = step(model, x, y)"
_CELLS = (
    "%load_ext gpuwidget\nfrom training import loader, model, step, x, y",
    f"%%gpuwatch\n{_SLOW}",
    "%%gpuwatch\nlosses = []\nfor n in range(1000):\n    loss = step(model, x, y)\n    losses.append(loss)",
)


def test_record_animation(browser: BrowserContext, tmp_path: Path) -> None:
    """Record a watched cell that waits for its data, and one that runs out of memory."""
    machine = (
        *("gpus=1", f"gpu.*.memory_total={140 * 2**30}", "gpu.*.power_limit=700", "gpu.*.gpm=0"),
        "gpu.0.uuid=GPU-00000000-aaaa-bbbb-cccc-dddddddddddd",
    )
    with lab_with(tmp_path, *machine) as (lab, standin):
        tests = repr(str(ROOT / "tests"))
        program = _TRAINING.replace("TESTS", tests)
        (lab.notebooks / "training.py").write_text(f"{program}x, y = next(iter(loader))\n")
        with _played(standin, machine, lab.notebooks / "use.txt"):
            path = lab.write("train.ipynb", _CELLS)
            notebook = lab.open(browser, path, width=_SIZE[0], height=_SIZE[1])
            show(notebook, _PANEL_WIDTH)
            notebook.run(0)
            notebook.wait_until_done()
            wait_for_text(notebook, CARD, "H200")
            notebook.page.wait_for_timeout(5000)
            frames = tmp_path / "frames"
            frames.mkdir()
            with _screencast(notebook, frames):
                _tour(notebook)
    _encode(frames, tmp_path)
    assert GIF.stat().st_size <= LIMIT


def _tour(notebook: Notebook) -> None:
    page = notebook.page
    for cell, seconds in ((1, 5), (2, 7)):
        page.wait_for_timeout(800)
        notebook.run(cell)
        notebook.script(f"await panel.content.scrollToItem({cell}, 'start');")
        notebook.wait_until_done()
        page.wait_for_timeout(1000 * seconds)


@contextmanager
def _played(standin: Standin, machine: tuple[str, ...], use: Path) -> Iterator[None]:
    """Let the stand-in's GPU have recorded values. The file ``use`` names the process that uses the GPU,
    whether it computes or waits, and how much memory it has."""
    with gzip.open(SHIPPED) as file:
        values = [row["gpus"][0] for row in map(json.loads, list(file)[1:])]
    rows = {
        "computing": [each for each in values if each["util"] >= 95 and each["power_mw"] > 500_000],
        "waiting": [each for each in values if each["util"] <= 2 and each["mem_used"] > 2**30],
    }
    done = threading.Event()

    def play() -> None:
        step = 0
        while not done.wait(0.1):
            step += 1
            pid, state, reserved = use.read_text().split() if use.exists() else ("", "waiting", "0")
            memory = int(reserved) + (600 * 2**20 if pid else 0)
            lines = [*machine, *_lines(rows[state][step % len(rows[state])] | {"mem_used": memory})]
            standin.scenario(*lines, *([f"gpu.0.compute={pid}:{memory}"] if pid else []))

    thread = threading.Thread(target=play)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _lines(values: dict[str, Any]) -> list[str]:
    return [
        f"gpu.0.util={values['util']}",
        f"gpu.0.memory_used={values['mem_used']}",
        f"gpu.0.power={values['power_mw'] / 1000}",
        f"gpu.0.temperature={values['temp_c']}",
        f"gpu.0.sm_clock={values['sm_mhz']}",
        f"gpu.0.throttle={values['throttle']}",
    ]


@contextmanager
def _screencast(notebook: Notebook, folder: Path) -> Iterator[None]:
    """Save the frames that Chromium draws, and a file in the format of ffmpeg's concat demuxer, which has the
    time for which each frame was shown."""
    session = notebook.page.context.new_cdp_session(notebook.page)
    frames: list[tuple[str, float]] = []

    def save(frame: dict[str, Any]) -> None:
        name = f"{len(frames):05d}.png"
        (folder / name).write_bytes(base64.b64decode(frame["data"]))
        frames.append((name, frame["metadata"]["timestamp"]))
        session.send("Page.screencastFrameAck", {"sessionId": frame["sessionId"]})

    session.on("Page.screencastFrame", save)
    session.send("Page.startScreencast", {"format": "png", "everyNthFrame": 1})
    yield
    session.send("Page.stopScreencast")
    ends = [when for _, when in frames[1:]] + [frames[-1][1] + 1]
    lines = [
        f"file {name}\nduration {end - when:.3f}" for (name, when), end in zip(frames, ends, strict=True)
    ]
    (folder / "frames.txt").write_text("\n".join(lines))


def _encode(frames: Path, folder: Path) -> None:
    filters = (
        f"fps={_FRAMES_PER_SECOND},split[a][b];[a]palettegen=max_colors=128:stats_mode=diff[p];"
        "[b][p]paletteuse=dither=none:diff_mode=rectangle"
    )
    command = ["ffmpeg", "-y", "-loglevel", "error", "-f", "concat", "-i", str(frames / "frames.txt")]
    subprocess.run([*command, "-filter_complex", filters, str(GIF)], check=True, cwd=folder)
