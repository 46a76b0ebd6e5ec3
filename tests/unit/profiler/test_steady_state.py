"""Where the steady state of a run begins: by the user's mark, or by one clear step of its course."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import helpers_reports as reports
import pytest

from gpuwidget.model.report import GpuTimeline, Mark, Report, SourceInfo, Timeline
from gpuwidget.profiler.steady_state import steady, warm_up


def run(utilization: Sequence[float | None], *marks: Mark, step: float = 0.5, power: Any = None) -> Report:
    """A run of one GPU with that course."""
    duration = step * len(utilization)
    course = GpuTimeline(
        uuid="GPU-0",
        utilization=tuple(utilization),
        device_memory=(1,) * len(utilization),
        power_w=tuple(power or [None] * len(utilization)),
        sm_activity=(None,) * len(utilization),
    )
    timeline = Timeline(tuple(step * n for n in range(len(utilization))), marks, (course,))
    return replace(reports.report(duration=duration), cell=reports.cell(duration), timeline=timeline)


def test_a_mark_says_it() -> None:
    """A mark called 'steady' or 'warm' is where the steady state begins, whatever the course looks like."""
    marked = run([0.0] * 40, Mark(1.0, "epoch 1", "mark"), Mark(3.25, " Steady ", "mark"))
    assert warm_up(marked) == 3.25
    assert steady(marked) == (3.25, 20.0)


def test_a_printed_line_is_no_mark() -> None:
    """What the cell prints does not decide it."""
    assert warm_up(run([90.0] * 40, Mark(3.0, "warm", "printed"))) is None


def test_one_clear_step_up() -> None:
    """Six seconds of compilation, then a busy GPU: the step is the end of the warm-up."""
    assert warm_up(run([1.0, 0.0, 3.0] * 4 + [92.0, 95.0, 90.0, 94.0] * 7)) == 6.0


def test_power_tells_it_where_utilization_is_unknown() -> None:
    """A MIG slice has no utilization; another course may show the same step."""
    unknown: list[float | None] = [None] * 40
    assert warm_up(run(unknown, power=[120.0] * 8 + [610.0, 590.0] * 16)) == 4.0


def test_power_has_no_say_where_utilization_is_known() -> None:
    """A larger batch draws more: that ends no warm-up of a GPU that was as busy before."""
    assert warm_up(run([96.0] * 40, power=[320.0] * 12 + [610.0, 590.0] * 14)) is None


def test_what_others_begin_is_no_warm_up() -> None:
    """Where nobody knows whose the GPUs are, only the user's mark tells; a recording's are the run's own."""
    course = [1.0] * 12 + [95.0] * 28
    strangers = replace(run(course), attributed=False)
    assert warm_up(run(course)) == 6.0
    assert warm_up(strangers) is None
    assert warm_up(replace(run(course, Mark(3.0, "steady", "mark")), attributed=False)) == 3.0
    assert warm_up(replace(strangers, source=SourceInfo("replay", None, "recorded"))) == 6.0


@pytest.mark.parametrize(
    "course",
    [
        pytest.param([93.0, 96.0] * 20, id="busy from the start"),
        pytest.param([0.0, 100.0] * 20, id="taking turns"),
        pytest.param([float(n * 2) for n in range(40)], id="a slope"),
        pytest.param([95.0] * 20 + [0.0] * 20, id="a step down"),
        pytest.param([0.0] * 34 + [95.0] * 6, id="a step at the end"),
        pytest.param([0.0, 0.0, 95.0, 95.0, 95.0, 95.0], id="too short"),
    ],
)
def test_what_is_not_clear_is_not_told(course: list[float | None]) -> None:
    """Where the course has no single step up, no beginning is told, and the whole run counts."""
    made = run(course)
    assert warm_up(made) is None
    assert steady(made) == (0.0, made.cell.duration_s)


def test_a_run_without_a_course() -> None:
    """Without a timeline the whole run counts."""
    made = replace(reports.starved(), timeline=None)
    assert steady(made) == (0.0, 14.0)
