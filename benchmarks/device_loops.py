"""``python -m benchmarks.device_loops PAIRS CALLS``: time torch calls under each default device setting."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import gpuwidget
from benchmarks.statistics import alternating

Call = Callable[[], object]


def main() -> None:
    """Print the times under all settings as JSON."""
    try:
        import torch
    except ImportError:
        print(json.dumps({"not_measured": "torch is not installed"}))
        return
    pairs, calls = int(sys.argv[1]), int(sys.argv[2])
    with_cuda = torch.cuda.is_available()
    device = "cuda:0" if with_cuda else "cpu"
    tensor = torch.ones(1, device=device)

    def no_device() -> None:
        gpuwidget.set_device(None)
        torch.set_default_device(None)

    def default_device() -> None:
        no_device()
        torch.set_default_device(device)

    def full() -> None:
        no_device()
        gpuwidget.set_device(device)

    def light() -> None:
        no_device()
        gpuwidget.set_device(device, new_tensors=False)

    comparisons = {"full": (default_device, full), "cost": (no_device, default_device)}
    if with_cuda:
        comparisons["light"] = (no_device, light)
    kinds: dict[str, Call] = {"empty": partial(torch.empty, 1), "add": lambda: tensor + tensor}

    def timed(setting: Callable[[], None], call: Call) -> float:
        """Apply ``setting``, then return the mean time of ``call`` in microseconds."""
        setting()
        for _ in range(calls // 10):
            call()
        if with_cuda:
            torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(calls):
            call()
        took = time.perf_counter() - began
        if with_cuda:
            torch.cuda.synchronize()
        return took / calls * 1e6

    runs: dict[str, dict[str, Any]] = {
        name: {
            kind: alternating(pairs, partial(timed, before, call), partial(timed, after, call))
            for kind, call in kinds.items()
        }
        for name, (before, after) in comparisons.items()
    }
    no_device()
    print(json.dumps({"device": device, "runs": runs}))


if __name__ == "__main__":
    main()
