"""Record the animated picture of the README, docs/overview.gif, from a real JupyterLab page.

``make animation`` runs this file. It needs ffmpeg. As in take_pictures.py, pytest provides the fixtures. The
machine is the NVML stand-in, whose values are played from the packaged recording of H200s: the GPU on which
the notebook computes has the recorded values, and the other one is idle. torch is the stand-in, too.
"""

from __future__ import annotations

import base64
import gzip
import json
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from helpers_lab import Notebook
from helpers_panel import CARD, DEVICE, lab_with, show, wait_for_text
from playwright.sync_api import BrowserContext

from gpuwidget.sources.replay import SHIPPED
from tests.nvml_standin import Standin

ROOT = Path(__file__).parents[2]
GIF = ROOT / "docs" / "overview.gif"
LIMIT = 2_000_000
"""Maximum size of the file in bytes."""
_SIZE = (1120, 720)
_PANEL_WIDTH = 300
_FRAMES_PER_SECOND = 8
_IDLE_S, _COMPUTING_S = 1.0, 13.0
"""Positions in the recording, in seconds: all GPUs are idle; one GPU computes, and often waits for data."""
_TRAINING = """
import os, pathlib, time, torch

def train(epochs):
    device = torch.empty(3, device="cuda").device
    use = pathlib.Path(f"use-{device.index}.txt")
    use.write_text(f"{os.getpid()} computing")
    for epoch in range(epochs):
        time.sleep(1.4)
        print(f"epoch {epoch} on {device}: loss {2.31 / (epoch + 1.2):.3f}", flush=True)
    use.write_text(f"{os.getpid()} idle")
"""
_CELLS = (
    f"import sys; sys.path.insert(0, {str(ROOT / 'tests' / 'torch_standin')!r})",
    "%load_ext gpuwidget\nimport torch\nfrom training import train\ntorch.cuda.init()",
    "%%gpuwatch\ntrain(epochs=7)",
    "%%gpuwatch\ntrain(epochs=4)",
)


def test_record_animation(browser: BrowserContext, tmp_path: Path) -> None:
    """Record a watched cell with its live chart and card, and a second one after a click in the dropdown."""
    machine = (
        *("gpus=2", "gpu.*.memory_total=150754820096", "gpu.*.power_limit=700", "gpu.*.gpm=0"),
        *(f"gpu.{gpu}.uuid=GPU-{gpu:08d}-aaaa-bbbb-cccc-dddddddddddd" for gpu in range(2)),
    )
    with lab_with(tmp_path, *machine) as (lab, standin):
        (lab.notebooks / "training.py").write_text(_TRAINING)
        with _played(standin, machine, lab.notebooks):
            path = lab.write("train.ipynb", _CELLS)
            notebook = lab.open(browser, path, width=_SIZE[0], height=_SIZE[1])
            show(notebook, _PANEL_WIDTH)
            for cell in (0, 1):
                notebook.run(cell)
                notebook.wait_until_done()
            # The first cell only makes the stand-in available. A user's notebook does not have it.
            notebook.script("panel.content.model.sharedModel.deleteCell(0);")
            wait_for_text(notebook, CARD, "H200")
            notebook.page.wait_for_timeout(8000)
            frames = tmp_path / "frames"
            frames.mkdir()
            with _screencast(notebook, frames):
                _tour(notebook)
    _encode(frames, tmp_path)
    assert GIF.stat().st_size <= LIMIT


def _tour(notebook: Notebook) -> None:
    page = notebook.page
    page.wait_for_timeout(1000)
    notebook.run(1)
    notebook.wait_until_done()
    page.wait_for_timeout(3000)
    page.focus(DEVICE)
    page.wait_for_timeout(800)
    page.select_option(DEVICE, "cuda:1")
    page.wait_for_timeout(1500)
    notebook.run(2)
    notebook.script("await panel.content.scrollToItem(2, 'center');")
    notebook.wait_until_done()
    notebook.script("await panel.content.scrollToItem(2, 'end');")
    page.wait_for_timeout(3500)


@contextmanager
def _played(standin: Standin, machine: tuple[str, ...], folder: Path) -> Iterator[None]:
    """Let the stand-in's GPUs have recorded values. While the file ``use-N.txt`` in ``folder`` names a
    process that computes, GPU N is busy. After that, it is idle, and the process holds its memory."""
    with gzip.open(SHIPPED) as file:
        recorded = [json.loads(line) for line in file][1:]
    done = threading.Event()

    def play() -> None:
        began: dict[int, float] = {}
        held: dict[int, int] = {}
        while not done.wait(0.1):
            lines = list(machine)
            for gpu in range(2):
                use = folder / f"use-{gpu}.txt"
                pid, state = use.read_text().split() if use.exists() else ("", "idle")
                place = _IDLE_S
                if state == "computing":
                    place = _COMPUTING_S + time.monotonic() - began.setdefault(gpu, time.monotonic())
                values = next(row for row in recorded if row["t"] >= place)["gpus"][0]
                held[gpu] = max(held.get(gpu, 0), values["mem_used"])
                lines += _lines(gpu, values | {"mem_used": held[gpu]})
                lines += [f"gpu.{gpu}.compute={pid}:{held[gpu]}"] if pid else []
            standin.scenario(*lines)

    thread = threading.Thread(target=play)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _lines(gpu: int, values: dict[str, Any]) -> list[str]:
    return [
        f"gpu.{gpu}.util={values['util']}",
        f"gpu.{gpu}.memory_used={values['mem_used']}",
        f"gpu.{gpu}.power={values['power_mw'] / 1000}",
        f"gpu.{gpu}.temperature={values['temp_c']}",
        f"gpu.{gpu}.sm_clock={values['sm_mhz']}",
        f"gpu.{gpu}.throttle={values['throttle']}",
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
