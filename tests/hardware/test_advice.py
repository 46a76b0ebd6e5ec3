"""Tests on a real GPU that each rule gives advice about the mistake that it describes, and none once the
mistake is fixed."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
from helpers_gpu import run_program
from helpers_kernel import Kernel

from gpuwidget.measure.advice.clocks import MIN_S
from gpuwidget.sources.throttle_reasons import POWER_CAP, needing_attention

pytestmark = pytest.mark.gpu

_LOADS = """
import time, torch, gpuwidget
SECONDS = 4.0
found = {}

def watched(name, step, seconds=SECONDS, wait=torch.cuda.synchronize):
    for _ in range(3):
        step()
    torch.cuda.synchronize()
    time.sleep(0.5)
    with gpuwidget.watch(name) as w:
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            for _ in range(10):
                step()
            wait()
    found[name] = {"advice": w.report.to_dict()["advice"], "gpu": w.report.to_dict()["gpus"][0]}

half = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
full = half.float()
watched("bfloat16", lambda: half @ half)
watched("full power", lambda: half @ half, seconds=12.0)
watched("float32", lambda: full @ full)
torch.set_float32_matmul_precision("high")
watched("TF32", lambda: full @ full)
torch.set_float32_matmul_precision("highest")

pinned = torch.empty(2**28, dtype=torch.uint8, pin_memory=True)
there = torch.empty(2**28, dtype=torch.uint8, device="cuda")
def back_and_forth():
    there.copy_(pinned, non_blocking=True)
    pinned.copy_(there, non_blocking=True)
watched("copies", back_and_forth)

small = torch.zeros(64, device="cuda")
watched("small kernels", lambda: small.add_(1.0), wait=lambda: None)

large = torch.ones(2**28, device="cuda")
watched("element-wise", lambda: large.mul_(1.0001))

model = torch.nn.Conv2d(64, 64, 3, padding=1, device="cuda", dtype=torch.bfloat16)
image = torch.randn(64, 64, 128, 128, device="cuda", dtype=torch.bfloat16)
def convolve():
    with torch.no_grad():
        model(image)
torch.backends.cudnn.enabled = False
watched("without cuDNN", convolve)
torch.backends.cudnn.enabled = True
watched("with cuDNN", convolve)

kept = []
for name, keep in (("leak", True), ("no leak", False)):
    for _ in range(5):
        with gpuwidget.watch(name) as w:
            piece = torch.empty(2**26, device="cuda")
            if keep:
                kept.append(piece)
            del piece
    found[name] = {"advice": w.report.to_dict()["advice"], "gpu": None}
result = found
"""


@functools.cache
def loads() -> Any:
    """Run all workloads once for all tests. Return, by workload, the advice and the first GPU's report."""
    return run_program(_LOADS)


def rules(load: str) -> list[str]:
    """Return the names of the rules that gave advice for this workload."""
    return [one["rule"] for one in loads()[load]["advice"]]


@pytest.mark.parametrize(
    ("load", "rule", "fixed"),
    [
        ("float32", "tensor-cores-idle", "bfloat16"),
        ("float32", "tensor-cores-idle", "TF32"),
        ("copies", "copies", "bfloat16"),
        ("small kernels", "small-kernels", "bfloat16"),
        ("element-wise", "memory-bound", "bfloat16"),
        ("without cuDNN", "cudnn-off", "with cuDNN"),
        ("leak", "growing-memory", "no leak"),
    ],
)
def test_a_mistake_gets_its_advice_until_it_is_fixed(load: str, rule: str, fixed: str) -> None:
    """For a workload with a mistake, only the rule for this mistake gives advice. (If the mistake is to run
    without cuDNN, other rules may give advice too.) Once the mistake is fixed, the rule gives none."""
    expected = [rule] if load != "without cuDNN" else None
    assert rules(load) == expected or (expected is None and rule in rules(load)), loads()[load]
    assert rule not in rules(fixed), loads()[fixed]


@pytest.mark.parametrize("healthy", ["bfloat16", "TF32", "no leak"])
def test_healthy_code_gets_no_advice(healthy: str) -> None:
    """There is no advice for code that keeps the tensor cores busy, or that frees the memory that it
    allocates."""
    assert rules(healthy) == [], loads()[healthy]


def test_the_power_limit_alone_gets_no_advice() -> None:
    """If a workload reaches the GPU's power limit, the report contains how long the limit reduced the clock,
    but there is no advice about it.

    The report of a light workload, which does not reach the power limit, contains no such time.
    """
    full, light = (loads()[load]["gpu"] for load in ("full power", "small kernels"))
    throttled = full["throttled"] or {}
    if throttled.get(POWER_CAP, 0.0) < MIN_S:
        drawn = f"{full['power_w']} of {full['power_limit_w']} W"
        pytest.skip(f"at {drawn} the driver did not name the power cap for {MIN_S:g} s: {throttled}")
    # This machine's GPU may also be throttled for a reason that needs attention, such as heat. Only then is
    # advice expected.
    hot = [one for one in needing_attention(throttled) if one != POWER_CAP and throttled[one] >= MIN_S]
    assert ("throttled" in rules("full power")) == bool(hot), loads()["full power"]
    assert POWER_CAP not in (light["throttled"] or {}), light


def test_the_evidence_has_the_setting_that_is_off() -> None:
    """The evidence of the advice about idle tensor cores records that TF32 was off during the run."""
    assert loads()["float32"]["advice"][0]["evidence"]["tf32_matmul"] is False


def test_a_model_left_on_the_cpu() -> None:
    """If a model computes on the CPU although there is a GPU, there is advice. Once the model and its batches
    are on the GPU, there is none."""
    result = run_program(
        """
        import time, torch, gpuwidget
        model = torch.nn.Sequential(*(torch.nn.Linear(2048, 2048) for _ in range(4)))
        def work(x, wait):
            with gpuwidget.watch() as w, torch.no_grad():
                end = time.perf_counter() + 4
                while time.perf_counter() < end:
                    for _ in range(20):
                        model(x)
                    wait()
            return [one["rule"] for one in w.report.to_dict()["advice"]]
        left = work(torch.randn(256, 2048), lambda: None)
        model.to("cuda")
        moved = work(torch.randn(256, 2048, device="cuda"), torch.cuda.synchronize)
        result = {"left": left, "moved": moved}
        """
    )
    assert result["left"] == ["model-on-cpu"]
    assert "model-on-cpu" not in result["moved"]


_FRAGMENTED = """
import torch, gpuwidget
MIB = 2**20
whole_gpu = torch.cuda.get_device_properties(0).total_memory
torch.cuda.set_per_process_memory_fraction(5.5 * 1024 * MIB / whole_gpu)
whole = torch.empty(4096 * MIB, dtype=torch.uint8, device="cuda")
del whole
pieces = [torch.empty(100 * MIB, dtype=torch.uint8, device="cuda") for _ in range(40)]
pieces = pieces[::2]
with gpuwidget.watch() as w:
    try:
        large = torch.empty(1800 * MIB, dtype=torch.uint8, device="cuda")
        fitted = True
    except torch.OutOfMemoryError:
        fitted = False
report = w.report.to_dict()
rules = [one["rule"] for one in report["advice"]]
result = {"fitted": fitted, "rules": rules, "torch": report["gpus"][0]["torch"]}
"""


def test_fragmentation_and_expandable_segments() -> None:
    """If a request for memory fails because free memory is fragmented, there is advice about fragmentation.

    With expandable segments, which the advice recommends, the same request succeeds, and there is no advice.
    """
    fragmented = run_program(_FRAGMENTED)
    assert (fragmented["fitted"], fragmented["rules"]) == (False, ["fragmentation"]), fragmented
    fixed = run_program(_FRAGMENTED, PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True")
    assert (fixed["fitted"], fixed["rules"]) == (True, []), fixed


_FREED = """
import torch, gpuwidget
GIB = 2**30
held = torch.empty(20 * GIB, dtype=torch.uint8, device="cuda")
cached = torch.empty(10 * GIB, dtype=torch.uint8, device="cuda")
with gpuwidget.watch() as w:
    del cached
    try:
        torch.empty(torch.cuda.mem_get_info()[1], dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError:
        pass
report = w.report.to_dict()
result = {"rules": [one["rule"] for one in report["advice"]], "torch": report["gpus"][0]["torch"]}
"""


def test_an_impossible_request_is_not_fragmentation() -> None:
    """If a request fails because it exceeds the GPU's memory, and torch has returned all free blocks to the
    driver, there is no advice about fragmentation."""
    found = run_program(_FREED)
    assert found["torch"]["alloc_retries"] >= 1, found
    assert (found["rules"], found["torch"]["inactive_split"]) == ([], 0), found


@pytest.fixture
def kernel(kernel: Kernel) -> Kernel:
    """Return a kernel that has loaded gpuwidget and has defined the variables that the tests' cells use."""
    kernel.ok(_IN_KERNEL)
    return kernel


_IN_KERNEL = """
import time, torch
half = torch.randn(8192, 8192, device='cuda', dtype=torch.bfloat16)
def step(times=20):
    y = half
    for _ in range(times):
        y = half @ half
    return y.float().mean()
step()
torch.cuda.synchronize()
class Slow(torch.utils.data.Dataset):
    def __len__(self): return 100_000
    def __getitem__(self, place):
        time.sleep(0.02)
        return place
"""


def advice(kernel: Kernel, cell: str) -> list[dict[str, Any]]:
    """Run a watched cell, and return the advice for it."""
    found = kernel.ok(f"%%gpuwatch --no-live\n{cell}").report["advice"]
    assert isinstance(found, list)
    return found


_EPOCH = """end = time.perf_counter() + 6
for batch in loader:
    step()
    torch.cuda.current_stream().synchronize()
    if time.perf_counter() > end:
        break
"""


def test_a_starved_gpu_and_more_workers(kernel: Kernel) -> None:
    """If the GPU waits for a DataLoader, the advice contains the DataLoader's settings. With enough workers,
    there is no such advice."""
    kernel.run("loader = torch.utils.data.DataLoader(Slow(), batch_size=10)")
    starved = next(one for one in advice(kernel, _EPOCH) if one["rule"] == "input-pipeline")
    assert starved["evidence"]["num_workers"] == 0
    assert starved["fix"].startswith("loader has `num_workers=0, pin_memory=False` now. Try num_workers=")
    kernel.run(
        "loader = torch.utils.data.DataLoader(Slow(), batch_size=10, num_workers=12, prefetch_factor=4)"
    )
    assert "input-pipeline" not in [one["rule"] for one in advice(kernel, _EPOCH)]


_SYNCHRONIZING = """total = 0.0
for _ in range(40):
    loss = step(50)
    total += loss.item()
    time.sleep(0.06)
"""
_ASYNCHRONOUS = """total = torch.zeros((), device='cuda')
for _ in range(60):
    loss = step(50)
    total += loss
    time.sleep(0.06)
"""


def test_a_sync_point_and_its_fix(kernel: Kernel) -> None:
    """If a loop calls `.item()`, the advice names this line. If the sum stays on the GPU, there is no such
    advice."""
    found = next(one for one in advice(kernel, _SYNCHRONIZING) if one["rule"] == "sync-points")
    assert (found["evidence"]["line"], found["evidence"]["call"]) == (5, "item")
    assert "sync-points" not in [one["rule"] for one in advice(kernel, _ASYNCHRONOUS)]


_CONVOLUTIONS = """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Conv2d(64, 64, 3, padding=1) for _ in range(6))
    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x.mean()
net = Net().cuda()
"""
_SIZES = """side, end = 64, time.perf_counter() + 8
while time.perf_counter() < end:
    side += {step}
    with torch.no_grad():
        net(torch.randn(16, 64, side, side, device='cuda')).item()
"""


def test_cudnn_benchmark_with_changing_shapes(kernel: Kernel) -> None:
    """With cuDNN's benchmark mode on, a run whose input sizes change gets advice. There is none if the sizes
    are constant or the mode is off."""
    kernel.run(f"{_CONVOLUTIONS}torch.backends.cudnn.benchmark = True")
    searching, steady = advice(kernel, _SIZES.format(step=1)), advice(kernel, _SIZES.format(step=0))
    kernel.run("torch.backends.cudnn.benchmark = False")
    off = advice(kernel, _SIZES.format(step=1))
    advised = ["cudnn-benchmark" in [one["rule"] for one in found] for found in (searching, steady, off)]
    assert advised == [True, False, False], (searching, steady, off)


@pytest.mark.two_gpus
def test_a_gpu_that_is_held_and_not_used() -> None:
    """If a program holds memory on a second GPU without using that GPU, there is advice. Once the memory is
    freed, there is none."""
    result = run_program(
        """
        import time, torch, gpuwidget
        half = torch.randn(8192, 8192, device="cuda:0", dtype=torch.bfloat16)
        held = torch.empty(2**30, dtype=torch.uint8, device="cuda:1")
        def work():
            time.sleep(1)
            with gpuwidget.watch() as w:
                end = time.perf_counter() + 4
                while time.perf_counter() < end:
                    for _ in range(10): half @ half
                    torch.cuda.synchronize(0)
            return [one["rule"] for one in w.report.to_dict()["advice"]]
        with_it = work()
        del held
        result = {"held": with_it, "freed": work()}
        """
    )
    assert result == {"held": ["idle-gpus"], "freed": []}


@pytest.mark.two_gpus
def test_a_straggler(tmp_path: Path) -> None:
    """If one of two processes that train together is slower, there is advice about a straggler.

    The GPU of the faster process waits in NCCL, so its utilization looks high.
    """
    script = tmp_path / "train.py"
    script.write_text(_TRAIN)
    result = run_program(
        f"""
        import os, subprocess, sys, gpuwidget
        def work(sleep):
            command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone",
                       {str(script)!r}, sleep]
            child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            assert any("training" in line for line in child.stdout)
            with gpuwidget.watch() as w:
                import time; time.sleep(5)
            child.stdout.close(); child.terminate(); child.wait()
            return [one["rule"] for one in w.report.to_dict()["advice"]]
        result = {{"late": work("0.1"), "even": work("0")}}
        """
    )
    assert result["late"] == ["straggler"], result
    assert "straggler" not in result["even"], result


_TRAIN = """
import sys, time, torch, torch.distributed as dist
dist.init_process_group("nccl")
rank = dist.get_rank()
torch.cuda.set_device(rank)
half = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
gradients = torch.zeros(2**27, device="cuda")
end = time.time() + 60
first = True
while time.time() < end:
    for _ in range(10):
        half @ half
    if rank == 1:
        torch.cuda.synchronize()
        time.sleep(float(sys.argv[1]))
    dist.all_reduce(gradients)
    torch.cuda.synchronize()
    if first and rank == 0:
        print("training", flush=True)
    first = False
"""
