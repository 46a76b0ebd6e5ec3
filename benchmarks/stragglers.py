"""Watch distributed training on the machine's GPUs in which one rank is late, and check the advice.

Each scenario is a watched cell in a real kernel that starts one rank per GPU with ``mp.spawn`` or
``!torchrun``. If the environment variable ``GPUWIDGET_BENCH_RECORDINGS`` names a file, it becomes a ZIP
archive with each scenario's report, a recording of all samples, the updates that the ranks sent, and what the
ranks wrote about themselves.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from benchmarks.figures import Figure
from benchmarks.kernels import Kernel
from benchmarks.settings import Settings, environment, log_progress
from benchmarks.training import without_a_gpu
from gpuwidget.cli.commands.record import write_samples
from gpuwidget.measure.worker_updates import WORKER_UPDATES
from gpuwidget.model.worker_update import WorkerUpdate
from gpuwidget.sampler import INTERVAL_S, process_sampler

_VARIABLE = "GPUWIDGET_BENCH_RECORDINGS"
LATE_RANK = 1
_DEADLINE_S = 390.0
"""Seconds after which no further scenario is started."""
_SCRIPT = "from benchmarks.straggler_ranks import main\n\nmain()\n"


@dataclass(frozen=True)
class Scenario:
    """Ranks of distributed training, or independent jobs, one per GPU."""

    name: str
    start: Literal["spawn", "torchrun", "gpuwidget run", "independent"]
    load: Literal["large", "small"]
    late: Literal["forward", "backward"] | None
    """The pass in which rank 1 is late in each step; None if no rank is late."""
    report: bool = False
    """Whether the ranks call ``gpuwidget.rank()``."""


SCENARIOS = (
    Scenario("spawn-large-balanced", "spawn", "large", None),
    Scenario("spawn-large-forward", "spawn", "large", "forward"),
    Scenario("spawn-large-backward", "spawn", "large", "backward", report=True),
    Scenario("torchrun-large-backward", "torchrun", "large", "backward", report=True),
    Scenario("spawn-small-forward", "spawn", "small", "forward"),
    Scenario("spawn-small-backward", "spawn", "small", "backward"),
    Scenario("torchrun-small-balanced", "torchrun", "small", None, report=True),
    Scenario("run-small-forward", "gpuwidget run", "small", "forward"),
    Scenario("independent-small", "independent", "small", None),
    Scenario("torchrun-large-forward", "torchrun", "large", "forward"),
)


def measure(settings: Settings) -> Iterator[Figure]:
    """Count missing and wrong advice about stragglers, one figure per scenario."""
    unmeasured = None if settings.quick else without_a_gpu()
    archive = os.environ.get(_VARIABLE)
    until = time.monotonic() + _DEADLINE_S
    kernel: Kernel | None = None
    for scenario in SCENARIOS:
        reason = unmeasured or ("the time was up" if time.monotonic() > until else None)
        found: dict[str, Any] = {}
        if reason is None:
            with TemporaryDirectory() as folder:
                try:
                    kernel = kernel or start_kernel()
                    found = run_scenario(kernel, scenario, Path(folder), settings.pick(15.0, 4.0))
                except Exception as error:
                    reason = f"{type(error).__name__}: {error}"
                    if kernel is not None:
                        kernel.__exit__(None, None, None)
                        kernel = None
                if archive:
                    _save(Path(archive), scenario, Path(folder))
        log_progress(f"  {scenario.name}: {reason or found['advice']}")
        yield _figure(scenario, found, reason)
    if kernel is not None:
        kernel.__exit__(None, None, None)


def _figure(scenario: Scenario, found: dict[str, Any], reason: str | None) -> Figure:
    advice = [one for one in found.get("advice", ()) if one["rule"] == "straggler"]
    late = [found["ranks"][LATE_RANK]["gpu_index"]] if scenario.late and reason is None else []
    return Figure(
        benchmark="stragglers",
        what=f"{scenario.name}: wrong or missing advice",
        unit="ratio",
        bar=0.0,
        values=[] if reason is not None else [float([one["evidence"]["late"] for one in advice] != late)],
        conditions={
            "the rank is named": all(one["evidence"].get("late_ranks") == [LATE_RANK] for one in advice)
        },
        details=found,
        not_measured=reason,
    )


def start_kernel() -> Kernel:
    """Return a kernel that has loaded gpuwidget, and torch without CUDA."""
    kernel = Kernel(environment())
    kernel.run("%load_ext gpuwidget")
    kernel.run("import sys, torch, torch.multiprocessing as mp\nfrom benchmarks import stragglers as _ours")
    return kernel


def run_scenario(kernel: Kernel, scenario: Scenario, folder: Path, seconds: float) -> dict[str, Any]:
    """Run a scenario. Return its advice, and the facts of its ranks."""
    ranks = int(kernel.run("", {"n": "torch.cuda.device_count() or 2"}).values["n"])
    spec = {
        "seconds": seconds,
        "ranks": ranks,
        "load": scenario.load,
        "late": scenario.late,
        "late_rank": LATE_RANK,
        "report": scenario.report,
        "folder": str(folder),
    }
    (folder / "scenario.json").write_text(json.dumps({"scenario": scenario.name, **spec}), encoding="utf-8")
    kernel.run(f"_recorder = _ours.Recorder({str(folder)!r})")
    try:
        kernel.run(f"%%gpuwatch\n{_cell(scenario, folder, spec)}")
    finally:
        kernel.run("_recorder.close()")
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    indices = {gpu["uuid"].removeprefix("GPU-"): gpu["index"] for gpu in report["gpus"]}
    facts = [json.loads(path.read_text(encoding="utf-8")) for path in folder.glob("rank-*.json")]
    if len(facts) != ranks and scenario.start != "independent":
        raise RuntimeError("a rank failed")
    facts.sort(key=lambda fact: fact["rank"])
    for fact in facts:
        fact["gpu_index"] = indices.get((fact["gpu"] or "").removeprefix("GPU-"), fact["rank"])
    return {
        "advice": [
            {name: one[name] for name in ("rule", "sure", "text", "evidence")} for one in report["advice"]
        ],
        "ranks": facts,
    }


def _cell(scenario: Scenario, folder: Path, spec: dict[str, Any]) -> str:
    if scenario.start in ("spawn", "independent"):
        function = "train" if scenario.start == "spawn" else "independent"
        return (
            f"from benchmarks.straggler_ranks import {function}\n"
            f"mp.spawn({function}, args=({spec!r},), nprocs={spec['ranks']})"
        )
    # Not a script in this folder, whose module names would hide those of Python's library.
    (folder / "train.py").write_text(_SCRIPT, encoding="utf-8")
    run = "-m gpuwidget run " if scenario.start == "gpuwidget run" else ""
    launcher = f"{sys.executable} -m torch.distributed.run --standalone --nproc-per-node {spec['ranks']}"
    return f"!{launcher} {run}{folder}/train.py {folder}/scenario.json"


class Recorder:
    """Records all samples and all updates of workers in the kernel, from now until :meth:`close`."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._updates: list[dict[str, Any]] = []
        self._subscription = process_sampler().subscribe(
            self._inbox.put, interval_s=INTERVAL_S, activity=True
        )
        WORKER_UPDATES.subscribe(self._on_update)
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def _write(self) -> None:
        path = self._folder / "recording.jsonl.gz"
        with suppress(Exception):
            write_samples(iter(self._inbox.get, None), path, INTERVAL_S, lambda line: None)

    def _on_update(self, update: WorkerUpdate) -> None:
        self._updates.append({"time": time.time(), "update": json.loads(update.to_json())})

    def close(self) -> None:
        """End the recording, and write the newest report and the updates."""
        import gpuwidget

        WORKER_UPDATES.unsubscribe(self._on_update)
        self._inbox.put(None)
        self._thread.join(10)
        self._subscription.close()
        report = gpuwidget.reports()[-1].to_dict()
        (self._folder / "report.json").write_text(json.dumps(report), encoding="utf-8")
        (self._folder / "updates.json").write_text(json.dumps(self._updates), encoding="utf-8")


def _save(archive: Path, scenario: Scenario, folder: Path) -> None:
    with zipfile.ZipFile(archive, "a", zipfile.ZIP_DEFLATED) as file:
        for path in sorted(folder.iterdir()):
            if path.suffix in (".json", ".gz"):
                file.write(path, f"{scenario.name}/{path.name}")
