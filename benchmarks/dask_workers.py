"""Measure what watching costs Dask workers: tasks per second, CPU of an idle worker, start and end of a run.

``python -m benchmarks.dask_workers ROUNDS TASKS SECONDS`` prints the measured values.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.figures import Figure
from benchmarks.programs import run_python
from benchmarks.settings import Settings
from benchmarks.standin import machine

_GPUS = 8
_WORKERS = 2
_ROUNDS = 30
_TASKS = 500
_IDLE_S = 3.0
_RATIO_BAR = 1.02
_CPU_BAR = 0.5


def measure(settings: Settings) -> Iterator[Figure]:
    """Measure a local cluster of two workers on eight stand-in GPUs."""
    if importlib.util.find_spec("distributed") is None:
        yield Figure(
            benchmark="dask", what="Dask workers", unit="ratio", not_measured="distributed is not installed"
        )
        return
    arguments = settings.pick(_ROUNDS, 2), settings.pick(_TASKS, 200), settings.pick(_IDLE_S, 2.0)
    with TemporaryDirectory() as folder:
        found = run_python(
            *("-m", "benchmarks.dask_workers", *map(str, arguments)),
            variables=machine(Path(folder), _GPUS).environment(),
        )
    details = {"workers": _WORKERS, "GPUs": _GPUS, "distributed": importlib.metadata.version("distributed")}
    yield Figure(
        benchmark="dask",
        what=f"{_TASKS:,} empty tasks, watched over plain",
        unit="ratio",
        bar=_RATIO_BAR,
        values=[watched / plain for plain, watched in found["tasks"]],
        details=details | {"s, plain and watched": found["tasks"]},
    )
    yield Figure(
        benchmark="dask",
        what="CPU time of the workers for these tasks, watched over plain",
        unit="ratio",
        bar=_RATIO_BAR,
        values=[watched / plain for plain, watched in found["cpu"]],
        details={"s of each worker, plain and watched": found["cpu"]},
    )
    yield Figure(
        benchmark="dask",
        what="CPU of an idle worker, watched minus plain, of a core",
        unit="%",
        bar=_CPU_BAR,
        values=[watched - plain for plain, watched in found["idle"]],
        details={"%, plain and watched": found["idle"]},
    )
    for name, what in (("start", "start"), ("end", "end, with the report,")):
        yield Figure(
            benchmark="dask",
            what=f"{what} of a run with Dask minus without",
            unit="ms",
            values=[1000 * (watched - plain) for plain, watched in found[name]],
            details={"s, without and with": found[name]},
        )


def _cpu_times() -> tuple[float, float]:
    return time.process_time(), time.monotonic()


def _measure(rounds: int, tasks: int, idle_s: float) -> dict[str, list[tuple[float, float]]]:
    """Return pairs of a plain and a watched value for each round. The order within the pairs alternates."""
    from distributed import Client, LocalCluster

    import gpuwidget.dask

    found: dict[str, list[tuple[float, float]]] = {
        name: [] for name in ("tasks", "cpu", "idle", "start", "end")
    }
    with (
        LocalCluster(n_workers=_WORKERS, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):

        def run_once(watched: bool) -> dict[str, float]:
            if watched:
                gpuwidget.dask.watch(client)
            else:
                gpuwidget.dask.unwatch(client)
            values = {}
            began = time.perf_counter()
            with gpuwidget.watch():
                values["start"] = time.perf_counter() - began
                before = client.run(_cpu_times)
                began = time.perf_counter()
                client.gather(client.map(_nothing, range(tasks), pure=False))
                values["tasks"] = time.perf_counter() - began
                after = client.run(_cpu_times)
                values["cpu"] = sum(after[worker][0] - cpu for worker, (cpu, _) in before.items()) / _WORKERS
                before = after
                time.sleep(idle_s)
                after = client.run(_cpu_times)
                shares = [
                    100 * (after[worker][0] - cpu) / (after[worker][1] - at)
                    for worker, (cpu, at) in before.items()
                ]
                values["idle"] = sum(shares) / len(shares)
                began = time.perf_counter()
            values["end"] = time.perf_counter() - began
            return values

        run_once(False)
        run_once(True)
        for number in range(rounds):
            order = (False, True) if number % 2 == 0 else (True, False)
            pair = {watched: run_once(watched) for watched in order}
            for name, values in found.items():
                values.append((pair[False][name], pair[True][name]))
    return found


def _nothing(number: int) -> int:
    return number


if __name__ == "__main__":
    os.environ["DASK_DISTRIBUTED__LOGGING__DISTRIBUTED"] = "error"
    print(json.dumps(_measure(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))))
