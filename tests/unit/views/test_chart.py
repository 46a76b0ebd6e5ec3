"""Tests of the card's chart of utilization and memory over a run."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from gpuwidget.kernel.live.chart_layout import ChartLayout
from gpuwidget.model.report import Mark
from gpuwidget.model.units import GIB
from gpuwidget.views.chart import UNTRUSTED, Chart, ChartPanels, Lane, html


def chart(*lanes: Lane, marks: tuple[Mark, ...] = (), duration: float = 4.0) -> Chart:
    """Return the chart of a run of four seconds with one value per second."""
    return Chart(t=(1.0, 2.0, 3.0, 4.0), duration=duration, lanes=lanes, marks=marks, label="a run")


def lane(
    utilization: tuple[float | None, ...] = (0.0, 100.0, 100.0, 0.0),
    memory: tuple[int | None, ...] = (GIB, GIB, 2 * GIB, 2 * GIB),
    total: int | None = 4 * GIB,
    compared: tuple[float | None, ...] = (),
) -> Lane:
    """Return the lane of one GPU, the part of the chart that shows it."""
    return Lane("GPU 0", utilization, memory, total, compared)


def paths(picture: str) -> list[str]:
    """Return the path data (attribute ``d``) of every line of the plots in the SVG."""
    plots = picture.partition("preserveAspectRatio")[2].partition("</svg>")[0]
    return re.findall(r"<path d='([^']*)'", plots)


def texts(picture: str) -> list[str]:
    """Return the text of every label in the SVG."""
    return re.findall(r"<text[^>]*>([^<]*)</text>", picture)


def test_utilization_is_filled_and_memory_a_line() -> None:
    """Utilization is a filled area from 0 % at the bottom to 100 % at the top.

    Memory is a line, whose height is the used share of the GPU's memory.
    """
    floor, fill, busy, memory = paths(html(chart(lane()), 0))
    assert floor == "M0 72h600"
    assert busy == "M150 72l150-64h150l150 64"
    assert fill == "M150 72h0l150-64h150l150 64h0z"
    assert memory == "M150 56h150l150-16h150"


def test_unknown_values_are_gaps() -> None:
    """While a value is unknown, its line has a gap, instead of being at 0."""
    known_at_both_ends = lane(utilization=(50.0, None, None, 50.0), memory=(None,) * 4)
    _, fill, busy, memory = paths(html(chart(known_at_both_ends), 0))
    assert busy == "M147 40h6M597 40h6"
    assert fill == "M150 72v-32v32zM600 72v-32v32z"
    assert memory == ""


def test_another_run_is_a_gray_line() -> None:
    """The utilization of another run is a line behind that of this run. The keys and the tooltips have the
    runs' names."""
    both = replace(chart(lane(compared=(0.0, 0.0, 50.0, 50.0))), runs=("In [5]", "In [9]"))
    picture = html(both, 2)
    assert paths(picture)[2] == "M150 72h150l150-32h150"
    assert texts(picture)[:3] == ["In [5]", "In [9]", "GPU memory, %"]
    assert re.findall(r"<i title='([^']*)'", picture) == [
        "1.0 s\nIn [5]: 0 %\nIn [9]: 0 %",
        "3.0 s\nIn [5]: 33 %\nIn [9]: 67 %",
    ]


@pytest.mark.parametrize("gpus", [1, 2, 4, 5, 8])
def test_the_chart_is_as_large_as_the_live_chart(gpus: int) -> None:
    """When the cell has ended, the card's chart is as high as the live chart was, and each GPU is in the same
    place: in rows for up to four GPUs, in tiles for more."""
    live = ChartLayout.for_gpus(gpus)
    picture = html(chart(*[lane()] * gpus), 0)
    assert f"height:{live.total_height}px" in picture
    panels = ChartPanels.for_gpus(gpus)
    floors = re.findall(r"M(\d+) (\d+)h", paths(picture)[0])
    whole = 400 if live.tiles else 600
    assert [(int(x), live.total_height - int(y)) for x, y in floors] == [
        (round(live.left(n) * whole / 100), live.bottom(n)) for n in range(gpus)
    ]
    assert (panels.row_height, panels.columns) == ((98, 1) if gpus < 5 else (104, 4))


@pytest.mark.parametrize("gpus", [9, 12, 16])
def test_many_gpus_have_a_strip_each(gpus: int) -> None:
    """More than eight GPUs have a strip each, with the number of the GPU on the left. Together they are as
    high as the live chart was, and have the same keys as tiles."""
    lanes = [replace(lane(), name=f"GPU {n}") for n in range(gpus)]
    lanes[1] = replace(lane(utilization=(None, 0.0, 50.0, 50.0)), name="GPU 0:1 H200 · cuda:1")
    picture = html(chart(*lanes), 0)
    height = ChartLayout.for_gpus(gpus).total_height
    assert f"height:{height}px" in picture
    assert f"height='{height - 20}' viewBox='0 0 64 {10 * gpus}'" in picture
    fill, memory = paths(picture)
    assert fill.startswith("M0 10h0l32-9h16l16 9h0zM32 20h0l16-4h16v4zM0 30")
    assert fill.count("z") == gpus
    assert memory.count("M") == gpus
    numbers, *keys = texts(picture)
    assert numbers == "00:1" + "".join(str(n) for n in range(2, gpus))
    assert keys == ["GPU utilization, %", "GPU memory, %", "0\N{EN DASH}4.0 s"]
    xs, ys = re.findall(r"<text x='([-\d ]+)' y='([\d ]+)'", picture)[0]
    assert xs.split()[:4] == ["-10", "-22", "-16", "-10"]
    assert len(ys.split()) == len(numbers)
    assert "title=" not in picture


def test_memory_without_a_total() -> None:
    """If the size of a GPU's memory is unknown, its share in percent is, too. So the memory has no line, no
    marker and no key, but the text says its peak."""
    for gpus in (1, 5, 9):
        picture = html(chart(*[lane(total=None)] * gpus), 0)
        assert "".join(paths(picture)[3:]) == ""
        assert "<circle" not in picture
        assert "GPU memory, %" not in picture
    assert texts(html(chart(lane(total=None)), 0))[-1] == "GPU peak 2.0 GiB"


def test_the_axes_and_the_peak_are_labeled() -> None:
    """The chart has 0 and 100 percent, round times and the run's end, the GPU's name, and a marker of the
    highest memory."""
    labels = texts(html(chart(lane(), duration=14.0), 0))
    assert labels == [
        *("GPU utilization, %", "GPU memory, %", "100", "0"),
        *("0", "5", "10", "14.0 s", "GPU 0", "GPU peak 2.0 GiB"),
    ]
    marker = "<circle cx='75%' cy='40' r='3'"
    assert marker in html(chart(lane()), 0)


def test_a_peak_between_two_samples() -> None:
    """If samples missed the GPU's peak, only a lower bound of it is known, which has no marker."""
    for at_least, text, markers in ((None, "GPU peak 2.0 GiB", 2), (5 * 2**29, "GPU peak ≥ 2.5 GiB", 0)):
        picture = html(chart(replace(lane(), at_least=at_least)), 0)
        assert texts(picture)[-1] == text
        assert picture.count("<circle") == markers


@pytest.mark.parametrize(
    ("duration", "labels"),
    [
        (0.7, ["0", "700 ms"]),
        (4.0, ["0", "1", "2", "3", "4.0 s"]),
        (185.0, ["0", "1", "2", "3 min 05 s"]),
        (8123.0, ["0", "1", "2 h 15 min"]),
    ],
)
def test_times_of_the_axis(duration: float, labels: list[str]) -> None:
    """The time axis ends with the run, and no label is so close to this end that it would be unreadable."""
    found = texts(html(chart(lane(), duration=duration), 0))
    assert found[4 : 4 + len(labels)] == labels


def test_marks_are_ticks() -> None:
    """The user's marks are ticks of full height, and printed lines are short ticks below the plot.

    A printed line at the same time as a mark has no tick. Tiles have only the user's marks.
    """
    marks = (Mark(1.0, "a", "mark"), Mark(1.0, "b", "printed"), Mark(3.0, "c", "printed"))
    full, short = paths(html(chart(lane(), marks=marks), 0))[1:3]
    assert full == "M150 8v68"
    assert short == "M450 72v4"
    tiles = paths(html(chart(*[lane()] * 5, marks=marks), 0))
    assert tiles[1].startswith("M24 22v40M126 22v40")
    assert len(tiles) == 5


def test_tooltips_have_time_values_and_marks() -> None:
    """Each column of tooltips covers an equal part of the run. A mark at the very end of the run is in the
    last column.
    """
    marks = (Mark(0.5, "begin", "mark"), Mark(4.0, "<end>", "printed"))
    titles = re.findall(r"title='([^']*)'", html(chart(lane(), marks=marks), 2))
    assert titles == [
        "1.0 s\nutil 0 %, 1.0 GiB\nbegin",
        "3.0 s\nutil 67 %, 2.0 GiB\n&lt;end&gt;",
    ]


def test_tooltips_of_several_gpus_name_them() -> None:
    """With several lanes, each value in a tooltip follows the name of its GPU. An unknown value is n/a."""
    silent = Lane("GPU 1", (None,) * 4, (None,) * 4, None)
    titles = re.findall(r"title='([^']*)'", html(chart(lane(), silent), 1))
    assert titles == ["2.0 s\nGPU 0: util 50 %, 2.0 GiB\nGPU 1: util n/a, n/a"]


def test_no_columns() -> None:
    """Small cards and tiles have no tooltips."""
    assert "title=" not in html(chart(lane()), 0)
    assert "title=" not in html(chart(*[lane()] * 5), 40)


def test_without_the_svg_only_the_way_to_see_it_is_left() -> None:
    """In an untrusted notebook, a front end removes the SVG and keeps its text. The labels then have the font
    size 0, and how to see the chart is readable."""
    left = re.sub(r"</?(?!div)[a-z]+\b[^>]*>", "", html(chart(lane()), 0))
    outside, _, inside = left.partition("<div style='position:relative;font-size:0'>")
    assert outside == UNTRUSTED
    assert "GPU peak 2.0 GiB" in inside
