"""Ranks of distributed training on real GPUs, of which one may be late in each step.

:func:`train` is one rank. ``mp.spawn`` calls it in a notebook, and a script that torchrun starts calls
:func:`main`. Without CUDA, the ranks train a tiny model on the CPU, which only shows that they work.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

LATE_S = 0.2
_WARM_UP_STEPS = 5
_END_AFTER_S = 75.0
"""Seconds after which a rank ends itself, for example because another rank hangs."""


def train(rank: int, spec: dict[str, Any]) -> None:
    """Train for ``spec["seconds"]`` seconds, and write what the rank did to a file in ``spec["folder"]``.

    ``spec["late"]`` is ``"forward"`` or ``"backward"`` if the code of rank ``spec["late_rank"]`` sleeps there
    for 200 ms in each step, else None. ``spec["load"]`` is ``"large"`` (a step of 100 to 200 ms on an H100)
    or ``"small"``. ``spec["report"]`` tells whether the rank calls ``gpuwidget.rank()``.
    """
    watchdog = threading.Timer(_END_AFTER_S, os._exit, (9,))
    watchdog.daemon = True
    watchdog.start()
    reporter = None
    if spec["report"]:
        import gpuwidget

        reporter = gpuwidget.rank()
    cuda = torch.cuda.is_available()
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")  # NVLink multicast is not available in all containers.
    if cuda:
        torch.cuda.set_device(rank)
    address = None if "RANK" in os.environ else f"file://{spec['folder']}/store"
    dist.init_process_group("nccl" if cuda else "gloo", address, rank=rank, world_size=spec["ranks"])
    device = torch.device("cuda", rank) if cuda else torch.device("cpu")
    model, batch = _model(spec, rank, device)
    parallel = DistributedDataParallel(model, device_ids=[rank] if cuda else None)
    optimizer = torch.optim.SGD(parallel.parameters(), lr=1e-6)

    def step() -> None:
        optimizer.zero_grad()
        loss = parallel(batch).float().square().mean()
        loss.backward()
        optimizer.step()
        loss.item()
        if reporter is not None:
            reporter.step()

    def timed(steps: int) -> float:
        began = time.monotonic()
        for _ in range(steps):
            step()
        return time.monotonic() - began

    timed(_WARM_UP_STEPS)
    steps = torch.tensor([max(1, round(spec["seconds"] * 5 / timed(5)))], device=device)
    dist.broadcast(steps, 0)
    began = time.time()
    seconds = timed(int(steps))
    facts = {
        "rank": rank,
        "pid": os.getpid(),
        "gpu": str(torch.cuda.get_device_properties(device).uuid) if cuda else None,
        "training_from": began,
        "training_until": began + seconds,
        "steps": int(steps),
        "step_ms": 1000 * seconds / int(steps),
    }
    dist.destroy_process_group()
    Path(spec["folder"], f"rank-{rank}.json").write_text(json.dumps(facts), encoding="utf-8")
    watchdog.cancel()


def independent(rank: int, spec: dict[str, Any]) -> None:
    """Train without other ranks: rank 0 keeps its GPU busy, and the others' GPUs have much time off."""
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", rank) if cuda else torch.device("cpu")
    model, batch = _model(spec, 0, device)
    until = time.monotonic() + spec["seconds"]
    while time.monotonic() < until:
        model(batch).float().square().mean().backward()
        if cuda:
            torch.cuda.synchronize(device)
        time.sleep(0.0 if rank == 0 else LATE_S)


class _Late(torch.nn.Module):  # type: ignore[misc]
    """Returns its input. The forward or the backward pass sleeps."""

    def __init__(self, late: str) -> None:
        super().__init__()
        self._late = late

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self._late == "backward":
            return _SleepInBackward.apply(x)
        time.sleep(LATE_S)
        return x


class _SleepInBackward(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(context: Any, x: torch.Tensor) -> torch.Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> torch.Tensor:
        time.sleep(LATE_S)
        return gradient


def _model(spec: dict[str, Any], rank: int, device: torch.device) -> tuple[torch.nn.Module, torch.Tensor]:
    """Return feed-forward blocks, in the middle of which a late rank sleeps, and a batch."""
    width, tokens, blocks = (4096, 16384, 4) if spec["load"] == "large" else (2048, 4096, 4)
    if device.type == "cpu":
        width, tokens = 64, 64
    layers: list[torch.nn.Module] = []
    for block in range(blocks):
        if block == blocks // 2 and rank == spec["late_rank"] and spec["late"] is not None:
            layers.append(_Late(spec["late"]))
        layers += [
            torch.nn.LayerNorm(width),
            torch.nn.Linear(width, 4 * width),
            torch.nn.GELU(),
            torch.nn.Linear(4 * width, width),
        ]
    kind = torch.bfloat16 if device.type == "cuda" else torch.float32
    return torch.nn.Sequential(*layers).to(device, kind), torch.randn(
        tokens, width, device=device, dtype=kind
    )


def main() -> None:
    """Run :func:`train` under torchrun. The first argument names a JSON file with the specification."""
    train(int(os.environ["LOCAL_RANK"]), json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
