"""Tests of ``%%gpuwatch --lines`` on a real GPU: the memory by line of a training step agrees with torch's
counters."""

from __future__ import annotations

import json
from typing import Any

import pytest
from helpers_kernel import Kernel

pytestmark = pytest.mark.gpu

TRAINING = """
import torch
layer = torch.nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True)
model = torch.nn.TransformerEncoder(layer, 4).cuda()
optimizer = torch.optim.AdamW(model.parameters())
x = torch.randn(16, 128, 512, device="cuda")
def step():
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
def requested(): return torch.cuda.memory_stats()["requested_bytes.all.allocated"]
"""
CELL = (
    "%%gpuwatch --no-live --lines\nbefore = requested()\nfor _ in range(3):\n    step()\nafter = requested()"
)


def watched(kernel: Kernel, cell: str) -> dict[str, Any]:
    """Run a watched cell, and return its complete report. (The report on the card may contain only some of
    the lines.)"""
    ran = kernel.ok(cell)
    (card,) = ran.cards
    assert "torch's memory by line:" in card["text/plain"], card["text/plain"]
    kernel.ok("import gpuwidget, json\nfound = json.dumps(gpuwidget.reports()[-1].to_dict())")
    report: dict[str, Any] = json.loads(eval(kernel.value("found")))
    shown = ran.report["lines"]
    assert report["lines"][: len(shown)] == shown
    return report


def test_a_training_step(kernel: Kernel) -> None:
    """The bytes of all lines add up exactly to torch's count of allocated bytes. Forward, backward and
    optimizer step are separate lines."""
    kernel.ok(TRAINING)
    report = watched(kernel, CELL)
    lines = report["lines"]
    counted = int(kernel.value("after - before"))
    assert sum(line["allocated"] for line in lines) == counted
    assert not [note for note in report["notes"] if "Memory by line" in note]
    by_source = {line["source"]: line for line in lines if line["file"] == "In[2]"}
    for source in ("loss = model(x).square().mean()", "loss.backward()", "optimizer.step()"):
        assert by_source[source]["allocated"] > 0, sorted(by_source)
    # In its first step, AdamW allocates its state, which it keeps: two values per parameter.
    parameters = int(kernel.value("sum(p.numel() * 4 for p in model.parameters())"))
    assert by_source["optimizer.step()"]["held"] >= 2 * parameters
    # Less than 2 % is allocated by code that is outside the user's lines.
    assert sum(line["allocated"] for line in lines if line["file"] is None) < 0.02 * counted
    # torch's counters contain rounded sizes. Their increases up to the peak and up to the end of the run are
    # therefore only roughly equal to the sums over the lines.
    allocated = report["gpus"][0]["torch"]["allocated"]
    above = allocated["peak"] - allocated["start"]
    assert sum(line["at_peak"] for line in lines) == pytest.approx(above, rel=0.02)
    held = allocated["end"] - allocated["start"]
    assert sum(line["held"] for line in lines) == pytest.approx(held, rel=0.02, abs=2**20)


def test_cuda_starts_in_the_cell(kernel: Kernel) -> None:
    """If CUDA is initialized by the cell itself, the report has a line for everything that the cell
    allocates."""
    report = watched(
        kernel,
        "%%gpuwatch --no-live --lines\nimport torch, time\ntime.sleep(0.5)\n"
        "x = torch.zeros(2**28, device='cuda')\ny = x + 1",
    )
    assert [(line["file"], line["line"], line["held"]) for line in report["lines"]] == [
        ("In[2]", 4, 2**30),
        ("In[2]", 5, 2**30),
    ]
    assert not [note for note in report["notes"] if "Memory by line" in note]
    assert kernel.value("torch._C._cuda_isHistoryEnabled()") == "False"


def test_the_users_memory_history_continues(kernel: Kernel) -> None:
    """If the user has started a memory history, it keeps all its entries and is still on after the run."""
    kernel.ok(
        "import torch\ntorch.cuda.memory._record_memory_history()\nx = torch.zeros(2**20, device='cuda')"
    )
    report = watched(kernel, "%%gpuwatch --no-live --lines\ny = torch.zeros(2**22, device='cuda')")
    assert [(line["line"], line["held"]) for line in report["lines"]] == [(2, 2**24)]
    kernel.ok(
        "trace = torch.cuda.memory._snapshot()['device_traces'][0]\n"
        "sizes = [entry['size'] for entry in trace if entry['action'] == 'alloc']"
    )
    assert kernel.value("sizes") == str([2**22, 2**24])
    assert kernel.value("torch._C._cuda_isHistoryEnabled()") == "True"
