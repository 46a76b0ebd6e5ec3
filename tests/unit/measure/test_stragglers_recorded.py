"""Tests of the advice about stragglers on recordings of whole runs, with their start-up, on two H100s.

``benchmarks/stragglers.py`` made the recordings: a watched cell started two ranks of DistributedDataParallel
with ``mp.spawn``, ``!torchrun`` or ``python -m gpuwidget run``. In each step, the code of rank 1 slept for
200 ms in its forward or backward pass, or in no pass (balanced).
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from helpers_replay import Player
from helpers_reports import worker

from gpuwidget.measure.advice import advise
from gpuwidget.measure.advice.evidence import RunEvidence
from gpuwidget.measure.run import Run
from gpuwidget.model.report import Advice, Report

RECORDINGS = Path(__file__).parents[2] / "recordings"
LATE = [
    "spawn-large-forward",
    "spawn-large-backward",
    "torchrun-large-forward",
    "torchrun-large-backward",
    "spawn-small-forward",
    "spawn-small-backward",
    "run-small-forward",
]
NOT_LATE = ["spawn-large-balanced", "torchrun-small-balanced", "independent-small"]


def recording(name: str) -> Path:
    return RECORDINGS / f"h100-x2-{name}.jsonl.gz"


def without_counters(path: Path, folder: Path) -> Path:
    """Write a copy of a recording whose GPUs have no hardware counters, and return its path."""
    with gzip.open(path, "rt", encoding="utf-8") as source:
        lines = [json.loads(line) for line in source]
    for tick in lines[1:]:
        for gpu in tick["gpus"]:
            gpu.pop("gpm", None)
    copy = folder / "older.jsonl"
    copy.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    return copy


def duration_of(path: Path) -> float:
    with gzip.open(path, "rt", encoding="utf-8") as source:
        return float(json.loads(list(source)[-1])["t"])


Play = Callable[[Path, float], tuple[Run, Report]]


@pytest.fixture
def play() -> Iterator[Play]:
    """Return a function that measures a run while it plays a recording for this many seconds."""
    players = []

    def play(path: Path, seconds: float) -> tuple[Run, Report]:
        player = Player(path)
        players.append(player)
        run = player.start()
        player.play(seconds)
        return run, player.report(run)

    yield play
    for player in players:
        player.close()


def stragglers(report: Report) -> list[Advice]:
    return [advice for advice in report.advice if advice.rule == "straggler"]


@pytest.mark.parametrize("name", LATE)
def test_the_late_gpu_is_named(play: Play, name: str) -> None:
    """If rank 1 is late in its forward or backward pass, the advice names its GPU with certainty, although
    half of the run is start-up. There is no other advice."""
    path = recording(name)
    _, report = play(path, duration_of(path))
    (advice,) = report.advice
    assert (advice.rule, advice.sure) == ("straggler", True)
    assert (advice.evidence["waiting"], advice.evidence["late"]) == ([0], 1)


@pytest.mark.parametrize("name", NOT_LATE)
def test_nobody_is_accused(play: Play, name: str) -> None:
    """There is no advice about balanced training, nor about independent jobs of which one is mostly idle."""
    path = recording(name)
    _, report = play(path, duration_of(path))
    assert report.advice == ()


def test_the_figures(play: Play) -> None:
    """The advice has the figures of the time in which the ranks trained, and how long that was."""
    path = recording("spawn-large-forward")
    _, report = play(path, duration_of(path))
    (advice,) = report.advice
    assert (advice.evidence["waiting"], advice.evidence["late"]) == ([0], 1)
    assert advice.evidence["late_utilization"] == pytest.approx(30, abs=1.5)
    assert advice.evidence["waiting_utilization"] == pytest.approx(100, abs=0.5)
    assert advice.evidence["waiting_sm_activity"] == pytest.approx(40.5, abs=1)
    assert advice.evidence["waiting_power_w"] == pytest.approx(364.5, abs=5)
    assert re.search(r"about (69|70|71) % of the time", advice.text)
    assert "over 15 of 32 s" in advice.text
    # The ranks trained from 15.8 to 30.7 s.
    assert advice.evidence["steady_from_s"] == pytest.approx(15.8, abs=2)
    assert advice.evidence["steady_until_s"] == pytest.approx(30.7, abs=2)


@pytest.mark.parametrize("name", ["spawn-large-forward", "spawn-small-backward", *NOT_LATE])
def test_without_hardware_counters(play: Play, tmp_path: Path, name: str) -> None:
    """Without hardware counters, two GPUs are judged only if they belong to ranks of one job, and the advice
    is a possibility."""
    path = without_counters(recording(name), tmp_path)
    run, report = play(path, duration_of(recording(name)))
    assert stragglers(report) == []
    ranks = tuple(worker(index, gpu=report.gpus[index].uuid) for index in (0, 1))
    jobs = tuple(worker(None, gpu=report.gpus[index].uuid, world_size=None) for index in (0, 1))
    evidence = RunEvidence.of(report, steady=run._steady)
    found = [advise(replace(evidence, workers=workers)) for workers in (ranks, jobs)]
    rules = [[(one.rule, one.sure) for one in advice if one.rule == "straggler"] for advice in found]
    assert rules == [[("straggler", False)] if name in LATE else [], []]


def test_the_rank_is_named(play: Play) -> None:
    """If the ranks' GPUs are known, the advice names the late rank."""
    path = recording("torchrun-large-backward")
    run, report = play(path, duration_of(path))
    workers = tuple(worker(index, gpu=report.gpus[index].uuid) for index in (0, 1))
    (advice,) = advise(replace(RunEvidence.of(report, steady=run._steady), workers=workers))
    assert advice.evidence["late_ranks"] == [1]
    assert "GPU 1 (rank 1)" in advice.text
    assert re.search(r"about 6\d % of the time", advice.text)
    assert "rank 1" in advice.fix
