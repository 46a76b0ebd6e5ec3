"""Tests of the card's small chart of utilization and memory over a run."""

from __future__ import annotations

import re

from gpuwidget.views.sparkline import Chart, Lane, hover_columns, svg

from gpuwidget.model.report import Mark
from gpuwidget.model.units import GIB


def chart(*lanes: Lane, marks: tuple[Mark, ...] = ()) -> Chart:
    """Return the chart of a run of four seconds with one value per second."""
    return Chart(t=(1.0, 2.0, 3.0, 4.0), duration=4.0, lanes=lanes, marks=marks, label="a run")


def lane(
    utilization: tuple[float | None, ...] = (0.0, 100.0, 100.0, 0.0),
    memory: tuple[int | None, ...] = (GIB, GIB, 2 * GIB, 2 * GIB),
    total: int | None = 4 * GIB,
) -> Lane:
    """Return the lane of one GPU, the part of the chart that shows it."""
    return Lane("GPU 0", utilization, memory, total)


def paths(picture: str) -> list[str]:
    """Return the path data (attribute ``d``) of every path in the SVG."""
    return re.findall(r"<path d='([^']*)'", picture)


def test_utilization_is_filled_and_memory_a_line() -> None:
    """Utilization is a filled area from 0 % at the bottom to 100 % at the top.

    Memory is a line, whose height is the used share of the GPU's memory.
    """
    ground, fill, busy, memory = paths(svg(chart(lane()), "", 40, outlined=True))
    assert ground == "M0 19h40"
    assert busy == "M10 19l10-18h10l10 18"
    assert fill == "M10 19h0l10-18h10l10 18h0z"
    assert memory == "M10 15h10l10-5h10"


def test_unknown_values_are_gaps() -> None:
    """While a value is unknown, its line has a gap, instead of being at 0."""
    known_at_both_ends = lane(utilization=(50.0, None, None, 50.0), memory=(None,) * 4)
    _, fill, busy, memory = paths(svg(chart(known_at_both_ends), "", 40, outlined=True))
    assert busy == "M10 10h1M40 10h1"
    assert fill == "M10 19v-9v9zM40 19v-9v9z"
    assert memory == ""


def test_lanes_lie_below_each_other() -> None:
    """With several GPUs, the chart has one lane per GPU, one below the other."""
    picture = svg(chart(lane(), lane()), "", 40, outlined=False)
    assert "viewBox='0 0 40 40'" in picture
    fill, memory = paths(picture)
    assert fill.split("z")[1] == "M10 39h0l10-18h10l10 18h0"
    assert memory == "M10 15h10l10-5h10M10 35h10l10-5h10"


def test_memory_without_a_total() -> None:
    """If the size of the GPU's memory is unknown, the highest memory value is at the top of the lane."""
    assert paths(svg(chart(lane(total=None)), "", 40, outlined=False))[1] == "M10 10h10l10-9h10"
    nothing = lane(memory=(0, 0, 0, 0), total=None)
    assert paths(svg(chart(nothing), "", 40, outlined=False))[1] == "M10 19h30"


def test_marks_are_ticks() -> None:
    """The user's marks are ticks of full height, and printed lines are short ticks.

    A printed line at the same time as a mark has no tick.
    """
    marks = (Mark(1.0, "a", "mark"), Mark(1.0, "b", "printed"), Mark(3.0, "c", "printed"))
    full, short = paths(svg(chart(lane(), marks=marks), "", 40, outlined=False))[:2]
    assert full == "M10 0v20"
    assert short == "M30 0v4"


def test_tooltips_have_time_values_and_marks() -> None:
    """Each column of tooltips covers an equal part of the run. A mark at the very end of the run is in the
    last column.
    """
    marks = (Mark(0.5, "begin", "mark"), Mark(4.0, "<end>", "printed"))
    titles = re.findall(r"title='([^']*)'", hover_columns(chart(lane(), marks=marks), 2))
    assert titles == [
        "1.0 s\nutil 0 %, 1.0 GiB\nbegin",
        "3.0 s\nutil 67 %, 2.0 GiB\n&lt;end&gt;",
    ]


def test_tooltips_of_several_gpus_name_them() -> None:
    """With several lanes, each value in a tooltip follows the name of its GPU. An unknown value is n/a."""
    silent = Lane("GPU 1", (None,) * 4, (None,) * 4, None)
    titles = re.findall(r"title='([^']*)'", hover_columns(chart(lane(), silent), 1))
    assert titles == ["2.0 s\nGPU 0: util 50 %, 2.0 GiB\nGPU 1: util n/a, n/a"]


def test_zero_columns() -> None:
    """If the number of columns is zero, as on small cards, the chart has no tooltips."""
    assert hover_columns(chart(lane()), 0) == ""
