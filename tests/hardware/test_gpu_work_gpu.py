"""The driver's records of work, by which GPU work counts as activity, on a real GPU."""

from __future__ import annotations

import pytest
from helpers_gpu import run_program

pytestmark = pytest.mark.gpu

BESIDE_A_HOLDER = """
import subprocess, sys, time, torch
from gpuwidget.sources import open_source

hold = "import torch; x = torch.zeros(2**28, device='cuda'); x.sum().item(); print(1, flush=True); input()"
holder = subprocess.Popen([sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
holder.stdout.readline()
source = open_source("nvml")
uuid = f"GPU-{torch.cuda.get_device_properties(0).uuid}"
(gpu,) = [gpu for gpu in source.open().gpus if gpu.uuid == uuid]
x = torch.randn(4096, 4096, device="cuda")

def read(seconds, burst_s, pause_s):
    # Work in bursts, and read the records every two seconds as the server does on a shared GPU.
    source.read(gpu, "working_processes")
    began, counts = time.time(), []
    for _ in range(int(seconds / 2)):
        until = time.time() + 2
        while time.time() < until:
            stop = time.time() + burst_s
            while time.time() < stop:
                x @ x
                torch.cuda.synchronize()
            time.sleep(pause_s)
        working = source.read(gpu, "working_processes").values["working_processes"]
        counts.append(None if working is None else len(working))
    windows = [w.utilization for w in source.read(gpu, "windows").values["windows"] if w.until > began + 1]
    return {"counts": counts, "busy": sum(value > 0 for value in windows), "windows": len(windows)}

result = {}
for name, work in {"dense": (0.2, 0.1), "sparse": (0.05, 1.5), "none": (0.0, 0.5)}.items():
    time.sleep(3)
    result[name] = read(10, *work)
holder.communicate(b"\\n")
"""


def test_work_beside_a_process_that_only_holds_memory() -> None:
    """The records of a GPU name the process that works and not the one that only holds memory, also for
    bursts of 50 ms every 1.5 s. While neither works, no record and no window shows work."""
    found = run_program(BESIDE_A_HOLDER)
    assert set(found["dense"]["counts"]) == {1}, found
    assert found["dense"]["busy"] > 0.9 * found["dense"]["windows"], found
    assert max(found["sparse"]["counts"]) == 1, found
    assert found["sparse"]["counts"].count(1) >= 4, found
    assert found["sparse"]["busy"] >= 4, found
    assert set(found["none"]["counts"]) == {0}, found
    assert found["none"]["busy"] == 0, found
    assert found["none"]["windows"] > 30, found
