"""With random faults of the driver and of processes, cells run as they do without gpuwidget. The report and
the stream contain no memory, utilization or power that the driver did not return. ``benchmarks/faults`` has
the schedules and the checks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks.faults.bench import Bench
from benchmarks.faults.schedules import Schedule, Step, schedule

KEPT: dict[str, tuple[Schedule, ...]] = {
    "the peak was from before the run": (
        Schedule("sleep", "", 0.02, (Step(-0.07, "hang", "set gpu.*.nvmlDeviceGetMemoryInfo_v2=hang"),)),
    ),
    "the timeline was from before the run": (
        Schedule("stderr", "", 0.4, (Step(-0.07, "hang", "set gpu.0.nvmlDeviceGetUtilizationRates=hang"),)),
    ),
    "a window of the counters was from before the clock was set back": (
        Schedule("sleep", "", 0.9, (Step(-0.3, "clock jump", "clock 3600"),)),
        Schedule("sleep", "", 0.1, ()),
    ),
    "the memory was exhausted by a list that is always too short": (
        Schedule(
            "display",
            "",
            0.8,
            (Step(0.2, "error", "set gpu.1.nvmlDeviceGetComputeRunningProcesses_v3=error 7"),),
        ),
    ),
    "an interrupt broke off the import of numpy": (
        Schedule("sleep", "", 0.5, (Step(0.0, "kernel restart", "kernel restart"),)),
        Schedule("sleep", "", 1.0, (Step(0.1, "interrupt", "interrupt"),)),
        Schedule("sleep", "", 1.0, ()),
    ),
    "the stream had values that were more than 2 s old, on a busy machine": (schedule(2881),),
}
"""Schedules that once broke a promise, by what was wrong. Those of one entry run one after the other."""


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """Start a server, a kernel and clients, on which all schedules run."""
    with Bench(tmp_path_factory.mktemp("faults")) as made:
        yield made


@pytest.mark.parametrize("name", KEPT)
def test_kept_schedules(bench: Bench, name: str) -> None:
    """Schedules that once broke a promise do not break it again."""
    assert [bench.run(kept).problems for kept in KEPT[name]] == [()] * len(KEPT[name])


@pytest.mark.parametrize("first", range(0, 50, 10))
def test_random_schedules(bench: Bench, first: int) -> None:
    """Ten random schedules break no promise, and afterwards a new card shows the healthy GPUs again."""
    for seed in range(first, first + 10):
        made = schedule(seed)
        assert bench.run(made).problems == (), f"seed {seed}: {made}"
    problems, _ = bench.settle()
    assert problems == []


def test_nothing_is_left_running(bench: Bench) -> None:
    """After %unload_ext and the end of the server, no thread and no process is left."""
    assert bench.end() == []
