"""Tests of finding the steady state of a run.

The steady state begins at the user's mark, or at the one clear step in the run's utilization or power.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import helpers_reports as reports
import pytest

from gpuwidget.measure.steady_state import find_warm_up
from gpuwidget.model.report import GpuTimeline, Mark, Report, SourceInfo, Timeline


def run(utilization: Sequence[float | None], *marks: Mark, step: float = 0.5, power: Any = None) -> Report:
    """Return the report of a run on one GPU with this utilization, one value every ``step`` seconds."""
    duration = step * len(utilization)
    series = GpuTimeline(
        uuid="GPU-0",
        utilization=tuple(utilization),
        device_memory=(1,) * len(utilization),
        power_w=tuple(power or [None] * len(utilization)),
        sm_activity=(None,) * len(utilization),
    )
    timeline = Timeline(tuple(step * n for n in range(len(utilization))), marks, (series,))
    return replace(reports.report(duration=duration), cell=reports.cell(duration), timeline=timeline)


def test_a_mark_ends_the_warm_up() -> None:
    """A mark named 'steady' or 'warm' ends the warm-up, whatever the utilization is."""
    marked = run([0.0] * 40, Mark(1.0, "epoch 1", "mark"), Mark(3.25, " Steady ", "mark"))
    assert find_warm_up(marked) == 3.25


def test_a_printed_line_is_not_a_mark() -> None:
    """A printed line does not end the warm-up, even if its text is 'warm'."""
    assert find_warm_up(run([90.0] * 40, Mark(3.0, "warm", "printed"))) is None


def test_one_clear_step_up() -> None:
    """If utilization rises in one clear step after six seconds of compilation, the step ends the warm-up."""
    assert find_warm_up(run([1.0, 0.0, 3.0] * 4 + [92.0, 95.0, 90.0, 94.0] * 7)) == 6.0


def test_power_counts_where_utilization_is_unknown() -> None:
    """If utilization is unknown, as for a MIG slice, one clear step in power ends the warm-up."""
    unknown: list[float | None] = [None] * 40
    assert find_warm_up(run(unknown, power=[120.0] * 8 + [610.0, 590.0] * 16)) == 4.0


def test_power_does_not_count_where_utilization_is_known() -> None:
    """If utilization is known, a step in power does not end a warm-up: a larger batch also draws more
    power."""
    assert find_warm_up(run([96.0] * 40, power=[320.0] * 12 + [610.0, 590.0] * 14)) is None


def test_other_processes_work_is_not_a_warm_up() -> None:
    """If GPU work is not attributed to this process, only the user's mark ends the warm-up.

    The GPU work of a recording counts as the run's work.
    """
    series = [1.0] * 12 + [95.0] * 28
    strangers = replace(run(series), attributed=False)
    assert find_warm_up(run(series)) == 6.0
    assert find_warm_up(strangers) is None
    assert find_warm_up(replace(run(series, Mark(3.0, "steady", "mark")), attributed=False)) == 3.0
    assert find_warm_up(replace(strangers, source=SourceInfo("replay", None, "recorded"))) == 6.0


@pytest.mark.parametrize(
    "series",
    [
        pytest.param([93.0, 96.0] * 20, id="busy from the start"),
        pytest.param([0.0, 100.0] * 20, id="taking turns"),
        pytest.param([float(n * 2) for n in range(40)], id="a slope"),
        pytest.param([95.0] * 20 + [0.0] * 20, id="a step down"),
        pytest.param([0.0] * 34 + [95.0] * 6, id="a step at the end"),
        pytest.param([0.0, 0.0, 95.0, 95.0, 95.0, 95.0], id="too short"),
    ],
)
def test_an_unclear_step_is_ignored(series: list[float | None]) -> None:
    """If utilization does not rise in exactly one clear step, the run has no warm-up."""
    made = run(series)
    assert find_warm_up(made) is None


def test_a_run_without_a_timeline() -> None:
    """If a report has no timeline, the run has no warm-up."""
    assert find_warm_up(replace(reports.starved(), timeline=None)) is None
