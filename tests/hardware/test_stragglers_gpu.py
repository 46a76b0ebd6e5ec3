"""Tests of the advice about stragglers on all GPUs of a machine, for ranks that a notebook starts.

In each step, the code of rank 1 sleeps for 200 ms in its forward or backward pass, or in no pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.kernels import Kernel
from benchmarks.stragglers import LATE_RANK, SCENARIOS, Scenario, run_scenario, start_kernel
from gpuwidget.system.processes import in_host_pid_namespace

pytestmark = [pytest.mark.gpu, pytest.mark.two_gpus]

SECONDS = 10.0
"""Seconds of training in each scenario, after a start-up that takes about as long."""
NAMES = (
    "spawn-large-balanced",
    "spawn-large-forward",
    "spawn-large-backward",
    "run-small-forward",
    "torchrun-small-balanced",
    "independent-small",
)


@pytest.fixture(scope="module")
def kernel() -> Iterator[Kernel]:
    """Return a kernel whose notebook has not used a GPU itself."""
    with start_kernel() as made:
        yield made


@pytest.mark.parametrize(
    "scenario", [one for one in SCENARIOS if one.name in NAMES], ids=lambda one: one.name
)
def test_the_late_rank_is_named(kernel: Kernel, scenario: Scenario, tmp_path: Path) -> None:
    """The advice names the late rank and its GPU, whether it is late in its forward or backward pass. It
    accuses nobody if no rank is late, or if the jobs are independent."""
    found = run_scenario(kernel, scenario, tmp_path, SECONDS)
    advice = [one for one in found["advice"] if one["rule"] == "straggler"]
    if scenario.late is None:
        assert advice == []
        return
    (one,) = advice
    assert one["sure"] is True
    assert one["evidence"]["late"] == found["ranks"][LATE_RANK]["gpu_index"]
    if in_host_pid_namespace() or scenario.report:
        assert one["evidence"]["late_ranks"] == [LATE_RANK]
