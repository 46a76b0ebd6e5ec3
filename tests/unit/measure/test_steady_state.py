"""Tests of finding the steady state of a run.

The steady state begins at the user's mark, or at the one clear step in the run's utilization or power.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import helpers_reports as reports
import pytest

from gpuwidget.measure.steady_state import SteadyWindow, find_steady_window, find_warm_up
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


def parts(*utilization: float | None, length: float = 1.0) -> list[tuple[float, float, float | None]]:
    """Return the parts of a run in which the busiest GPU had this utilization."""
    return [(length * n, length * (n + 1), value) for n, value in enumerate(utilization)]


def test_the_steady_window_is_without_start_up_and_shutdown() -> None:
    """The steady window of a run with ranks begins one second after their start-up and ends one second before
    their shutdown. Short peaks during the start-up don't belong to it."""
    run = parts(0, 0, 3, 90, 2, 0, 0, 60, *[99] * 9, 40, 0)
    assert find_steady_window(run) == SteadyWindow(9.0, 16.0)


def test_a_run_that_works_from_its_beginning_to_its_end() -> None:
    """If the ranks work all the time, the steady window is the whole run."""
    assert find_steady_window(parts(*[97, 90, 99] * 3)) == SteadyWindow(0.0, 9.0)


def test_a_short_pause_belongs_to_the_steady_window() -> None:
    """A pause of two seconds, such as one for a checkpoint, belongs to the steady window. A longer one
    divides the run, and the longest part counts."""
    assert find_steady_window(parts(*[99] * 5, 0, 0, *[99] * 5)) == SteadyWindow(0.0, 12.0)
    assert find_steady_window(parts(*[99] * 5, 0, 0, 0, *[99] * 6)) == SteadyWindow(9.0, 14.0)


def test_bursts_belong_to_one_steady_window() -> None:
    """Work in bursts, such as that of ranks which wait for data, has one steady window."""
    assert find_steady_window(parts(*[0] * 10, *[30, 4, 31] * 5, length=0.5)) == SteadyWindow(6.0, 12.5)


def test_no_steady_window() -> None:
    """There is no steady window if the GPUs did hardly anything, if the work took less than three seconds, or
    if utilization is unknown."""
    assert find_steady_window(parts(*[2] * 20)) is None
    assert find_steady_window(parts(0, 0, 99, 99, 99, 99, 0)) is None
    assert find_steady_window(parts(*[None] * 20)) is None
    assert find_steady_window([]) is None


def test_reported_steps_limit_the_steady_window() -> None:
    """The steady window lies between the first and the last step that the ranks reported."""
    assert find_steady_window(parts(*[99] * 20), earliest=4.5, latest=15.5) == SteadyWindow(6.0, 14.0)
