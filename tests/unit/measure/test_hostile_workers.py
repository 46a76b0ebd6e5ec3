"""Workers that report anything: no update breaks the run's report or the rows of other workers."""

from __future__ import annotations

import json
from random import Random

import pytest
from fakes import gpu
from helpers_hostile import mutated, value

from gpuwidget.measure.workers import WorkerTracker
from gpuwidget.model import worker_update
from gpuwidget.model.to_json import to_json
from gpuwidget.model.worker_update import WORKER_SCHEMA

SEEDS = 1000
UUIDS = [gpu(0).uuid, gpu(1).uuid]
SPAN = {"start": 0, "end": 1, "peak": 2}
GPU = {
    "uuid": UUIDS[0],
    "torch_allocated": SPAN,
    "torch_reserved": SPAN,
    "memory": SPAN,
    "alone": True,
    "utilization": 50.0,
    "utilization_max": 60.0,
    "energy_j": 5.0,
    "energy_error_j": 0.5,
}
VALID = {
    "schema": WORKER_SCHEMA,
    "kind": "dask",
    "host": "elsewhere",
    "pid": 5,
    "name": "1",
    "rank": 0,
    "local_rank": 0,
    "world_size": 2,
    "steps": 3,
    "step_s": 0.5,
    "since_step_s": 0.1,
    "cpu_s": 1.0,
    "elapsed_s": 2.0,
    "started_in_run": True,
    "status": "running",
    "exit_code": 0,
    "gpus": [GPU, {**GPU, "uuid": UUIDS[1]}],
    "reason": None,
}


@pytest.mark.parametrize("kind", ["rank", "dask"])
def test_no_update_breaks_the_report(kind: str) -> None:
    """Whatever workers send, an update is either ignored or has a valid row. A worker with a valid update
    always has its rows."""
    good = worker_update.from_values({**VALID, "kind": kind, "host": "good"})
    assert good is not None
    accepted = 0
    for seed in range(SEEDS):
        tracker = WorkerTracker(1.0)
        tracker.add_update(1.0, good)
        random = Random(seed)
        sent = value(random) if seed % 10 == 0 else mutated(random, {**VALID, "kind": kind}, 1 + seed % 3)
        updates = [worker_update.from_values(sent)]
        try:
            text = json.dumps(sent)
        except (RecursionError, ValueError):
            text = "[" * 9000
        updates += [worker_update.parse(text), worker_update.parse(text[: random.randrange(len(text) + 1)])]
        for update in updates:
            if update is not None:
                accepted += 1
                tracker.add_update(2.0, update)
        rows = tracker.rows(3.0, UUIDS)
        assert [row.gpu for row in rows if row.host == "good"] == UUIDS, seed
        # The report is saved in the notebook as UTF-8.
        encoded = json.dumps(to_json(rows), ensure_ascii=False, allow_nan=False).encode()
        assert json.loads(encoded) == to_json(rows), seed
    assert accepted > SEEDS / 4


@pytest.mark.parametrize("name", ["²", "\N{ARABIC-INDIC DIGIT ONE}", "12", "worker-1", "9" * 200])
def test_the_name_of_a_dask_worker(name: str) -> None:
    """Rows of Dask workers are sorted by number, and any name is allowed, also digits that are no number."""
    tracker = WorkerTracker(1.0)
    for pid, each in enumerate(("3", name, "a"), start=1):
        update = worker_update.from_values({**VALID, "rank": None, "pid": pid, "name": each})
        assert update is not None
        tracker.add_update(1.0, update)
    assert {row.name for row in tracker.rows(2.0, [])} == {"3", name, "a"}
