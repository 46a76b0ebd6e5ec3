"""Tests of the schedules of faults and of what the campaign checks: each broken promise is found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from benchmarks.faults import checks
from benchmarks.faults.cells import CELLS
from benchmarks.faults.schedules import KINDS, schedule
from benchmarks.faults.services import Ran
from benchmarks.faults.streams import Received

OK = {"status": "ok"}
INTERRUPTED = {"status": "error", "ename": "KeyboardInterrupt", "evalue": ""}
LEVEL = {"mean": 50.0, "max": 50.0}
UNKNOWN = ("sm_activity", "sm_occupancy", "tensor_activity", "dram_activity", "energy_j")


def ran(reply: dict[str, Any], *messages: tuple[str, dict[str, Any]]) -> Ran:
    return Ran(reply=reply, began=10.0, ended=12.0, idle=True, messages=list(messages))


def error(text: str) -> tuple[str, dict[str, Any]]:
    return "error", {"ename": "KeyboardInterrupt", "traceback": [text]}


def result(text: str) -> tuple[str, dict[str, Any]]:
    return "execute_result", {"data": {"text/plain": text}}


def problems_of_cell(made: Ran, *interrupts: float) -> list[str]:
    return list(checks.check_cell(made, CELLS["sleep"], 1.0, 10.0, interrupts))


def gpu(**changes: Any) -> dict[str, Any]:
    span = {"start": 5, "end": 5, "peak": 5}
    known = {"index": 0, "mig_index": None, "uuid": "GPU-0", "device_memory": span, "process_memory": None}
    levels = {"utilization": LEVEL, "power_w": LEVEL, **dict.fromkeys(UNKNOWN), "fp32_activity": None}
    return {**known, **levels, "missing": dict.fromkeys(UNKNOWN, "a reason"), **changes}


def values(index: int, mig: int | None, what: str, since: float, until: float) -> Sequence[float]:
    """What a driver returned at 10.5 and at 11.5 s."""
    returned = {"memory": 5.0, "util": 50.0, "power": 50.0}
    if index != 0 or what not in returned:
        return []
    return [returned[what] for at in (10.5, 11.5) if since <= at <= until]


def problems_of_report(one: dict[str, Any], seconds: float = 1.0) -> list[str]:
    report = {"cell": {"duration_s": 1.0}, "gpus": [one], "timeline": None}
    return list(checks.check_report(report, values, 10.0, ran(OK), seconds, full=True))


def test_a_seed_always_gives_the_same_schedule() -> None:
    """A seed always gives the same schedule, and a thousand seeds contain every kind of fault."""
    assert schedule(7) == schedule(7)
    assert set().union(*(schedule(seed).kinds for seed in range(1000))) == set(KINDS)
    for seed in range(100):
        made = schedule(seed)
        assert [step.at for step in made.steps] == sorted(step.at for step in made.steps)


def test_a_cell_as_without_gpuwidget() -> None:
    """A cell that ends as without gpuwidget has no problem, and neither has one that is interrupted."""
    assert problems_of_cell(ran(OK, result("'slept'"))) == []
    assert problems_of_cell(ran(INTERRUPTED, error("File <cell>, line 2")), 10.5) == []
    raised = {"status": "error", "ename": "ValueError", "evalue": "of the cell"}
    printed = ("stream", {"name": "stdout", "text": "before\n"})
    instead = ("stream", {"name": "stderr", "text": "\nKeyboardInterrupt\n\n"})
    interrupted = checks.check_cell(ran(raised, printed, instead), CELLS["error"], 1.0, 10.0, (11.5,))
    assert list(interrupted) == []


@pytest.mark.parametrize(
    ("made", "interrupts", "problem"),
    [
        (ran(OK), (), "the result is []"),
        (ran(OK, result("'slept'"), ("stream", {"name": "stderr", "text": "x"})), (), "stderr is 'x'"),
        (ran(INTERRUPTED, error("")), (), "the cell ended with error KeyboardInterrupt: "),
        (ran(OK, result("'slept'")), (10.5,), "an interrupt 0.50 s after the cell's beginning was lost"),
        (
            ran(INTERRUPTED, error("File ~/gpuwidget/measure/run.py:1")),
            (10.5,),
            "the cell's traceback contains",
        ),
    ],
)
def test_a_changed_cell(made: Ran, interrupts: Sequence[float], problem: str) -> None:
    """A changed result, output or status is found, and so are a lost interrupt and a frame of gpuwidget."""
    assert problems_of_cell(made, *interrupts)[0].startswith(problem)


def test_a_true_report() -> None:
    """A report with only numbers that the driver returned at that time has no problem."""
    assert problems_of_report(gpu()) == []


@pytest.mark.parametrize(
    ("changes", "seconds", "problem"),
    [
        (
            {"device_memory": {"start": 4, "end": 5, "peak": 5}},
            1.0,
            "GPU 0: the device_memory at the start is 4",
        ),
        ({}, 1.8, "GPU 0: the device_memory at the start is 5"),
        ({"utilization": {"mean": 40.0, "max": 50.0}}, 1.0, "GPU 0: utilization is"),
        ({"sm_activity": LEVEL}, 1.0, "GPU 0: sm_activity is"),
        ({"missing": {}}, 1.0, "GPU 0: sm_activity is unknown without a reason"),
        ({"energy_j": 1000.0}, 1.0, "GPU 0: the energy is 1000.0"),
        ({"index": 1}, 1.0, "GPU 1: the device_memory at the start is 5"),
    ],
)
def test_an_untrue_report(changes: dict[str, Any], seconds: float, problem: str) -> None:
    """A number that the driver did not return, or not then, is found, and so is an unknown value without a
    reason."""
    assert problems_of_report(gpu(**changes), seconds)[0].startswith(problem)


def test_an_old_value_in_the_stream() -> None:
    """A client must not receive a value that the driver has not returned for two seconds."""
    reading = {"memory_used": 5, "utilization": None, "power_w": 50.0, "missing": {"utilization": "a reason"}}
    one = [{"index": 0, "mig_index": None}]
    assert list(checks.check_stream([Received(11.0, one, [reading])], values, 0.0)) == []
    old = list(checks.check_stream([Received(14.0, one, [reading])], values, 0.0))
    assert [problem.partition(" of GPU")[0] for problem in old] == [
        "the stream has the memory_used 5",
        "the stream has the power_w 50.0",
    ]
