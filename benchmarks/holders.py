"""Measure how long gpuwidget takes to find the holders of GPU memory in a large namespace with a model.

The model has a billion parameters. ``python -m benchmarks.holders RUNS`` prints the milliseconds of each
search as JSON.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.figures import Figure
from benchmarks.programs import run_python
from benchmarks.settings import ROOT, Settings

_BAR_MS = 50.0
_OBJECTS = 10_000
_LAYERS = 36
_WIDTH = 1536


def measure(settings: Settings) -> Iterator[Figure]:
    """Measure the search while a model has gradients and AdamW state. A fake allocator replaces real GPU
    memory."""
    found = run_python("-m", "benchmarks.holders", str(settings.pick(40, 5)))
    what = f"gpuwidget.holders() with {_OBJECTS:,} objects and a model of 1 B parameters"
    reason = found.pop("not_measured", None)
    yield Figure(
        benchmark="holders",
        what=what,
        unit="ms",
        bar=_BAR_MS,
        values=found.pop("ms", ()),
        conditions={} if reason else {"the sum is torch's, to the byte": found.pop("exact")},
        details=found,
        not_measured=reason,
    )


class _Item:
    """An instance of a user-defined class."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.name = f"item {number}"
        self.parts = [number, number + 1]


def _namespace(gpu: Any, torch: Any) -> dict[str, object]:
    """Return a namespace with many objects, a model and the model's optimizer.

    Half of the objects are instances that contain a list, a quarter are dicts, and a quarter are plain
    values.
    """
    found: dict[str, object] = {f"item_{n}": _Item(n) for n in range(_OBJECTS // 2)}
    found |= {f"facts_{n}": {"n": n, "of": (n, n + 1)} for n in range(_OBJECTS // 4)}
    found |= {f"value_{n}": n / 7 for n in range(_OBJECTS // 4)}
    with torch.device("meta"):
        layer = torch.nn.TransformerEncoderLayer(_WIDTH, 12, 4 * _WIDTH, batch_first=True)
        model = torch.nn.TransformerEncoder(layer, _LAYERS, enable_nested_tensor=False)
    for module in model.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            module.register_parameter(name, torch.nn.Parameter(gpu.like(parameter)))
    optimizer = torch.optim.AdamW(model.parameters())
    for parameter in model.parameters():
        parameter.grad = gpu.like(parameter)
        state = {"step": torch.tensor(0.0), "exp_avg": gpu.like(parameter), "exp_avg_sq": gpu.like(parameter)}
        optimizer.state[parameter] = state
    return {**found, "model": model, "optimizer": optimizer}


def _time_searches(runs: int) -> dict[str, Any]:
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        return {"not_measured": "torch is not installed"}
    sys.path.insert(0, str(ROOT / "tests"))
    gpu = importlib.import_module("helpers_allocator").StandInGpu(torch)
    gpu.install()
    from gpuwidget.kernel.attribution import memory_holders

    names = _namespace(gpu, torch)
    vars(sys.modules["__main__"]).update(names)
    times = []
    for _ in range(runs):
        began = time.perf_counter()
        found = memory_holders.holders_of(None, outside=False)
        times.append((time.perf_counter() - began) * 1e3)
    model: Any = names["model"]
    return {
        "ms": times,
        "exact": sum(holder.bytes for holder in found) == gpu.allocated,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "blocks": sum(len(segment.blocks) for segment in gpu.segments),
        "holders": len(found),
    }


if __name__ == "__main__":
    print(json.dumps(_time_searches(int(sys.argv[1]))))
