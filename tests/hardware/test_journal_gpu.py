"""Runs on a real GPU outlast their kernel: a training that ends, one that is killed, and one that runs out of
memory."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers_gpu import nvidia_smi
from helpers_kernel import Kernel
from helpers_wait import until

from gpuwidget.journal.store import JournalStore
from gpuwidget.views import journal_view

pytestmark = pytest.mark.gpu

GIB = 1024**3
TRAINING = """
import torch, time
layer = torch.nn.Linear(8192, 8192, device="cuda", dtype=torch.bfloat16)
optimizer = torch.optim.AdamW(layer.parameters())
inputs = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
def train(seconds):
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        layer(inputs).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        torch.cuda.synchronize()
"""


@pytest.fixture
def store(tmp_path: Path) -> JournalStore:
    """Return the journal of the kernels."""
    return JournalStore(tmp_path / "data" / "gpuwidget" / "runs")


@pytest.fixture
def start(start_kernel: Callable[..., Kernel], tmp_path: Path) -> Callable[[], Kernel]:
    """Return a function that starts a kernel of a notebook. Runs are in the journal after a second."""

    def start() -> Kernel:
        return start_kernel(
            JUPYTER_DATA_DIR=str(tmp_path / "data"),
            JPY_SESSION_NAME="/home/ann/train.ipynb",
            GPUWIDGET_JOURNAL_SECONDS="1",
        )

    return start


def test_the_journal_has_the_figures_of_the_card(start: Callable[[], Kernel], store: JournalStore) -> None:
    """The stored report of a training has torch's exact peak, and its card is the card of the cell."""
    kernel = start()
    kernel.ok("%load_ext gpuwidget")
    kernel.ok(TRAINING)
    ran = kernel.ok("%%gpuwatch\ntorch.cuda.reset_peak_memory_stats()\ntrain(4)")
    peak = int(kernel.value("torch.cuda.max_memory_allocated()"))

    until(lambda: len(store.rows("ended")) == 1)
    (row,) = store.rows("ended")
    found = store.read("ended", row.id)

    assert found is not None
    (gpu,) = found[1].report.shown
    assert gpu.torch is not None
    assert gpu.torch.allocated.peak == peak
    assert (row.peak, row.peak_kind) == (peak, "torch")
    (card,) = ran.cards
    assert journal_view.bundle(*found)["text/html"] == card["text/html"]


def test_a_killed_training_has_its_last_readings(start: Callable[[], Kernel], store: JournalStore) -> None:
    """The card of a killed training has the GPU's memory and utilization up to its last sample."""
    kernel = start()
    kernel.ok("%load_ext gpuwidget")
    kernel.ok(TRAINING)
    kernel.send("%%gpuwatch\ntrain(600)")
    until(lambda: store.rows("live") != [] and store.rows("live")[0].duration_s > 10, 60)
    used = int(nvidia_smi("memory.used")[0][0]) * 1024**2
    os.kill(kernel.process_id, signal.SIGKILL)
    until(lambda: not kernel.alive)

    (card,) = start().ok("%load_ext gpuwidget").cards

    report = card["application/vnd.gpuwidget.report+json"]
    assert (report["cell"]["status"], len(report["gpus"])) == ("died", 1)
    gpu = report["gpus"][0]
    assert abs(gpu["device_memory"]["end"] - used) < GIB / 4
    assert gpu["utilization"]["mean"] > 90
    assert gpu["torch"]["allocated"]["peak"] > 0


def test_a_run_out_of_memory_keeps_its_explanation(start: Callable[[], Kernel], store: JournalStore) -> None:
    """The stored card of a run that ran out of memory begins with who held the memory, like the cell's."""
    kernel = start()
    kernel.ok("%load_ext gpuwidget")
    kernel.ok(TRAINING)
    ran = kernel.run("%%gpuwatch\ntrain(2)\nheld = torch.empty(1 << 60, dtype=torch.uint8, device='cuda')")

    until(lambda: len(store.rows("ended")) == 1)
    (row,) = store.rows("ended")
    found = store.read("ended", row.id)

    assert row.status == "error"
    assert found is not None
    assert found[1].oom is not None
    (card,) = ran.cards
    assert journal_view.bundle(*found)["text/html"] == card["text/html"]
