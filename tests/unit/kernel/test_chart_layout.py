"""Where the live chart draws what."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from helpers_progress import TOTAL, gpu_progress

from gpuwidget.kernel.live.chart_layout import Layout, thinned
from gpuwidget.model.report import Mark


def test_few_gpus_stand_in_rows() -> None:
    """Up to four GPUs have a row each, from five on they are tiles in four columns."""
    assert [Layout.of(gpus).tiles for gpus in (0, 1, 4, 5, 16)] == [False, False, False, True, True]
    assert [Layout.of(gpus).total_height for gpus in (0, 1, 4, 5, 16)] == [0, 98, 392, 208, 416]


def test_panels_do_not_overlap() -> None:
    """Each panel has its own place: rows below each other, tiles side by side from the left."""
    rows, tiles = Layout.of(2), Layout.of(8)
    assert [rows.bottom(0), rows.bottom(1)] == [124.0, 26.0]
    assert [tiles.left(panel) for panel in (0, 1, 3, 4)] == [0.0, 25.5, 76.5, 0.0]
    assert tiles.left(3) + tiles.width == 100.0


def test_course_has_three_lines_a_gpu() -> None:
    """Area, utilization and memory (percent of the GPU's) run from 0 to 100 percent of the panel."""
    gpu = replace(gpu_progress(0), utilization=(0.0, 100.0, 50.0), device_memory=(0, TOTAL // 2, TOTAL))
    x, y = Layout.of(1).course((0.0, 5.0, 10.0), 10.0, (gpu,))
    assert x.tolist() == [[0.0, 0.0, 50.0, 100.0, 100.0]] * 3
    assert y[0].tolist() == [26.0, 26.0, 90.0, 58.0, 26.0]
    assert y[1][1:].tolist() == [26.0, 90.0, 58.0, 58.0]
    assert y[2][1:].tolist() == [26.0, 58.0, 90.0, 90.0]


def test_unknown_is_a_gap() -> None:
    """A value that nobody knows is a gap in its line, and no 0; only the invisible last point is a number."""
    gpu = replace(gpu_progress(0), utilization=(50.0, None, None), device_memory=(None, None, None))
    _, y = Layout.of(1).course((0.0, 1.0, 2.0), 5.0, (gpu,))
    assert np.isnan(y[1]).tolist() == [True, False, True, True, False]
    assert np.isnan(y[2]).tolist() == [True, True, True, True, False]


def test_area_ends_upright_beside_a_gap() -> None:
    """The filled area covers the known values only, and does not lean into a gap."""
    gpu = replace(gpu_progress(0, 5), utilization=(None, 50.0, 50.0, None, None))
    x, y = Layout.of(1).course((0.0, 1.0, 2.0, 3.0, 4.0), 5.0, (gpu,))
    assert x[0].tolist() == [20.0, 20.0, 20.0, 40.0, 40.0, 80.0, 80.0]
    assert y[0].tolist() == [26.0, 26.0, 58.0, 58.0, 26.0, 26.0, 26.0]
    assert x[1].tolist() == [0.0, 0.0, 20.0, 40.0, 60.0, 80.0, 80.0]


def test_unknown_total_is_a_gap() -> None:
    """Without the GPU's total, memory has no percent."""
    gpu = gpu_progress(0)
    gpu = replace(gpu, gpu=replace(gpu.gpu, memory_total=None))
    _, y = Layout.of(1).course((0.0, 1.0, 2.0), 5.0, (gpu,))
    assert np.isnan(y[2][:-1]).all()


def test_nothing_yet_is_drawable() -> None:
    """Before the first point there is something to hand to bqplot that shows nothing."""
    x, y = Layout.of(1).course((), 5.0, (gpu_progress(0, points=0),))
    assert (x.tolist(), y.tolist()) == ([0.0], [[0.0], [0.0]])


def test_many_gpus_stay_small() -> None:
    """What an update sends is bounded: with many GPUs each has fewer points."""
    layout = Layout.of(56)
    points = tuple(float(second) for second in range(240))
    x, y = layout.course(points, 300.0, tuple(gpu_progress(index, 240) for index in range(56)))
    assert (x.nbytes + y.nbytes) == 2 * 4 * 3 * 56 * 42


def test_marks_stand_in_every_panel() -> None:
    """A mark is a tall stroke, a printed line a short one, in the panel of each GPU."""
    marks = (Mark(1.0, "epoch 1", "mark"), Mark(2.0, "loss 0.5", "printed"))
    x, y = Layout.of(2).marks(marks, 5.0)
    assert x.tolist() == [20.0] * 3 + [40.0] * 3 + [20.0] * 3 + [40.0] * 3
    assert y[0][1:3].tolist() == [124.0, 188.0]
    assert y[0][4:6].tolist() == [124.0, 124.0]
    assert y[1][1:3].tolist() == [124.0, 124.0]
    assert y[1][4:6].tolist() == [124.0, np.float32(124.0 + 64 * 0.08)]


def test_no_marks_are_drawable() -> None:
    """Without marks there is something to hand to bqplot that shows nothing."""
    assert Layout.of(1).marks((), 5.0)[1].tolist() == [[0.0], [0.0]]


def test_thinned_means_of_neighbours() -> None:
    """Too many points become means of neighbours; the oldest group may be smaller, the newest never."""
    assert thinned([(1.0, 2.0, 4.0)], 3).tolist() == [[1.0, 2.0, 4.0]]
    assert thinned([(1.0, 2.0, 4.0, 6.0, 8.0), (0.0,) * 5], 3).tolist() == [[1.0, 3.0, 7.0], [0.0, 0.0, 0.0]]
    assert np.isnan(thinned([(1.0, None, 4.0, 6.0)], 2)).tolist() == [[True, False]]
