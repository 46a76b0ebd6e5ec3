"""Tests on two real GPUs with Dask workers that are plain processes, each with one GPU by
CUDA_VISIBLE_DEVICES."""

from __future__ import annotations

from typing import Any

import pytest
from helpers_gpu import HOST_PIDS, nvidia_smi, run_program

pytest.importorskip("distributed", reason="needs the package distributed")

pytestmark = [pytest.mark.gpu, pytest.mark.two_gpus]

GIB = 1024**3

PREAMBLE = """
import os, time
from distributed import Client, Nanny, Scheduler, SpecCluster
import gpuwidget, gpuwidget.dask
from gpuwidget.dask import collector

# The workers answer late on a busy machine. The tests must not depend on that.
collector.BEGIN_TIMEOUT_S = collector.END_TIMEOUT_S = 60.0
collector._COLLECT_TIMEOUT_S = 120.0

def cluster(*visible):
    workers = {
        n: {"cls": Nanny, "options": {"nthreads": 1, "env": {"CUDA_VISIBLE_DEVICES": gpu}}}
        for n, gpu in enumerate(visible)
    }
    scheduler = {"cls": Scheduler, "options": {"dashboard": False, "port": 0}}
    return SpecCluster(workers=workers, scheduler=scheduler)

def allocate(gib, seconds=0.0):
    import torch
    x = torch.empty(gib * 2**30, dtype=torch.uint8, device="cuda:0")
    del x
    kept = torch.ones(2**28, device="cuda:0")
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        kept.mul_(1.0)
        torch.cuda.synchronize()
    torch.cuda.synchronize()
    found = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
    return os.getpid(), *found

def watched(client, sizes, seconds=0.0):
    with gpuwidget.watch() as w:
        futures = [
            client.submit(allocate, gib, seconds, workers=[n], allow_other_workers=False, pure=False)
            for n, gib in enumerate(sizes)
        ]
        answers = client.gather(futures)
    report = w.report.to_dict()
    return {"answers": answers, "workers": report["workers"], "notes": report["notes"]}
"""


def rows(found: dict[str, Any]) -> list[tuple[Any, ...]]:
    return [
        (row["name"], row["pid"], row["gpu"], row["torch_allocated"]["peak"], row["torch_reserved"]["peak"])
        for row in found["workers"]
    ]


def test_workers_have_rows_by_uuid_with_exact_torch_peaks() -> None:
    """Each Dask worker has a row with the UUID of its GPU, and its torch peaks equal those that torch reports
    in the task. A later cell with lower peaks has its own peaks and not those of the earlier cell."""
    result = run_program(
        PREAMBLE
        + """
with cluster("1", "0") as made, Client(made) as client:
    gpuwidget.dask.watch(client)
    first, second, third = [watched(client, sizes) for sizes in ((8, 6), (3, 5), (4,))]
result = [first, second, third]
"""
    )
    uuids = [row[0] for row in nvidia_smi("uuid")]
    for found, gpus in zip(result, ([uuids[1], uuids[0]], [uuids[1], uuids[0]], [uuids[1]]), strict=True):
        assert [note for note in found["notes"] if "Dask" in note] == []
        expected = [
            (str(n), pid, gpu, allocated, reserved)
            for n, ((pid, allocated, reserved), gpu) in enumerate(zip(found["answers"], gpus, strict=True))
        ]
        assert rows(found) == expected
    peaks = [[row["torch_allocated"]["peak"] for row in found["workers"]] for found in result]
    assert peaks == [[8 * GIB, 6 * GIB], [3 * GIB, 5 * GIB], [4 * GIB]]
    assert [row["steps"] for found in result for row in found["workers"]] == [1] * 5


def test_workers_that_share_a_gpu() -> None:
    """Two workers on one GPU each have a row with their own torch peaks. The GPU's energy and utilization,
    which can't be divided, are unknown."""
    result = run_program(
        PREAMBLE
        + """
with cluster("0", "0") as made, Client(made) as client:
    gpuwidget.dask.watch(client)
    watched(client, (1, 1))
    result = watched(client, (2, 3), 3.0)
"""
    )
    uuid = nvidia_smi("uuid")[0][0]
    assert [(row["gpu"], row["torch_allocated"]["peak"]) for row in result["workers"]] == [
        (uuid, 2 * GIB),
        (uuid, 3 * GIB),
    ]
    assert [(row["energy_j"], row["utilization"]) for row in result["workers"]] == [(None, None)] * 2


@HOST_PIDS
def test_driver_values_of_workers() -> None:
    """A worker that has a GPU alone has the GPU's energy and utilization, and its memory according to the
    driver, which exceeds torch's memory."""
    result = run_program(
        PREAMBLE
        + """
with cluster("0", "1") as made, Client(made) as client:
    gpuwidget.dask.watch(client)
    result = watched(client, (2, 3), 5.0)
"""
    )
    for row in result["workers"]:
        assert row["memory"]["peak"] > row["torch_reserved"]["peak"]
        assert row["energy_j"] > 100
        assert row["utilization"]["mean"] > 50
