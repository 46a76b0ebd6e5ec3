"""Advice on watched cells in a real kernel whose GPU readings repeat a part of a recording."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers_kernel import Kernel, skip_without_torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from helpers_replay import repeated

SECONDS = 4


@pytest.fixture
def fp32(start_kernel: Callable[..., Kernel], tmp_path: Path) -> Kernel:
    """Return a kernel with gpuwidget loaded. Its GPU readings are recorded from a training run in float32."""
    skip_without_torch()
    kernel = start_kernel(GPUWIDGET_SOURCE=f"replay:{repeated(tmp_path / 'fp32.jsonl', 58.0, 8.5, 1)}")
    kernel.ok("%load_ext gpuwidget")
    return kernel


def test_advice_about_a_switch(fp32: Kernel) -> None:
    """The advice to turn on TF32 contains the measured use of the tensor cores and torch's current setting in
    one line."""
    fp32.run("import time, torch")
    ran = fp32.run(f"%%gpuwatch --no-live\ntime.sleep({SECONDS})")
    (card,) = ran.cards
    advice = ran.report["advice"]
    assert [one["rule"] for one in advice] == ["tensor-cores-idle"]
    assert advice[0]["evidence"]["tf32_matmul"] is False
    assert round(advice[0]["evidence"]["tensor_activity"]) == 2
    assert advice[0]["text"].split(".")[0] in card["text/plain"]
    code = "torch.set_float32_matmul_precision(&#x27;high&#x27;)"
    assert f"<code class='gpuwidget-insert'>{code}</code>" in card["text/html"]


def test_loaders_are_searched_in_the_notebook(fp32: Kernel) -> None:
    """gpuwidget searches the notebook's variables for DataLoaders,
    even if another variable raises an error on attribute access."""
    fp32.run(
        "class Odd:\n    def __getattr__(self, name): raise RuntimeError(name)\nodd = Odd()\n"
        "import torch, sys\nloader = torch.utils.data.DataLoader([1, 2, 3], batch_size=2)"
    )
    ran = fp32.ok(f"%%gpuwatch --no-live\nimport time\nfor x in loader: time.sleep({SECONDS / 2})")
    assert fp32.value("vars(sys.modules['__main__'])['loader'] is loader") == "True"
    assert len(ran.cards) == 1
