"""Tests of the layout of the live chart."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from helpers_progress import TOTAL, gpu_progress

from gpuwidget.kernel.live.chart_layout import ChartLayout, downsample
from gpuwidget.model.report import Mark


def test_few_gpus_are_shown_in_rows() -> None:
    """Up to four GPUs have one row each; five or more GPUs are tiles in four columns."""
    assert [ChartLayout.for_gpus(gpus).tiles for gpus in (0, 1, 4, 5, 16)] == [
        False,
        False,
        False,
        True,
        True,
    ]
    assert [ChartLayout.for_gpus(gpus).total_height for gpus in (0, 1, 4, 5, 16)] == [0, 98, 392, 208, 416]


def test_panels_do_not_overlap() -> None:
    """Panels do not overlap: rows are stacked, and tiles are side by side."""
    rows, tiles = ChartLayout.for_gpus(2), ChartLayout.for_gpus(8)
    assert [rows.bottom(0), rows.bottom(1)] == [124.0, 26.0]
    assert [tiles.left(panel) for panel in (0, 1, 3, 4)] == [0.0, 25.5, 76.5, 0.0]
    assert tiles.left(3) + tiles.width == 100.0


def test_three_lines_per_gpu() -> None:
    """In each GPU's panel, the filled area, the utilization line and the memory line use the whole height.

    The bottom of the panel is 0 % and its top is 100 %.
    """
    gpu = replace(gpu_progress(0), utilization=(0.0, 100.0, 50.0), device_memory=(0, TOTAL // 2, TOTAL))
    x, y = ChartLayout.for_gpus(1).series_lines((0.0, 5.0, 10.0), 10.0, (gpu,))
    assert x.tolist() == [[0.0, 0.0, 50.0, 100.0, 100.0]] * 3
    assert y[0].tolist() == [26.0, 26.0, 90.0, 58.0, 26.0]
    assert y[1][1:].tolist() == [26.0, 90.0, 58.0, 58.0]
    assert y[2][1:].tolist() == [26.0, 58.0, 90.0, 90.0]


def test_unknown_values_are_gaps() -> None:
    """An unknown value is a gap in its line, not 0.

    The exception is the last point, which always has a value because bqplot requires one. That point is
    invisible.
    """
    gpu = replace(gpu_progress(0), utilization=(50.0, None, None), device_memory=(None, None, None))
    _, y = ChartLayout.for_gpus(1).series_lines((0.0, 1.0, 2.0), 5.0, (gpu,))
    assert np.isnan(y[1]).tolist() == [True, False, True, True, False]
    assert np.isnan(y[2]).tolist() == [True, True, True, True, False]


def test_area_ends_vertically_beside_a_gap() -> None:
    """The filled area covers only known values, and its edge at a gap is vertical."""
    gpu = replace(gpu_progress(0, 5), utilization=(None, 50.0, 50.0, None, None))
    x, y = ChartLayout.for_gpus(1).series_lines((0.0, 1.0, 2.0, 3.0, 4.0), 5.0, (gpu,))
    assert x[0].tolist() == [20.0, 20.0, 20.0, 40.0, 40.0, 80.0, 80.0]
    assert y[0].tolist() == [26.0, 26.0, 58.0, 58.0, 26.0, 26.0, 26.0]
    assert x[1].tolist() == [0.0, 0.0, 20.0, 40.0, 60.0, 80.0, 80.0]


def test_unknown_total_is_a_gap() -> None:
    """If the total memory of a GPU is unknown, its memory line is not drawn."""
    gpu = gpu_progress(0)
    gpu = replace(gpu, gpu=replace(gpu.gpu, memory_total=None))
    _, y = ChartLayout.for_gpus(1).series_lines((0.0, 1.0, 2.0), 5.0, (gpu,))
    assert np.isnan(y[2][:-1]).all()


def test_no_points_are_drawable() -> None:
    """Before the first sample, bqplot receives arrays that draw nothing."""
    x, y = ChartLayout.for_gpus(1).series_lines((), 5.0, (gpu_progress(0, points=0),))
    assert (x.tolist(), y.tolist()) == ([0.0], [[0.0], [0.0]])


def test_many_gpus_stay_small() -> None:
    """With many GPUs, each line has fewer points, so that the size of an update is limited."""
    layout = ChartLayout.for_gpus(56)
    points = tuple(float(second) for second in range(240))
    x, y = layout.series_lines(points, 300.0, tuple(gpu_progress(index, 240) for index in range(56)))
    assert (x.nbytes + y.nbytes) == 2 * 4 * 3 * 56 * 42


def test_marks_are_drawn_in_every_panel() -> None:
    """In every GPU's panel, a mark is a full-height stroke, and text that the cell printed is a short
    stroke."""
    marks = (Mark(1.0, "epoch 1", "mark"), Mark(2.0, "loss 0.5", "printed"))
    x, y = ChartLayout.for_gpus(2).mark_lines(marks, 5.0)
    assert x.tolist() == [20.0] * 3 + [40.0] * 3 + [20.0] * 3 + [40.0] * 3
    assert y[0][1:3].tolist() == [124.0, 188.0]
    assert y[0][4:6].tolist() == [124.0, 124.0]
    assert y[1][1:3].tolist() == [124.0, 124.0]
    assert y[1][4:6].tolist() == [124.0, np.float32(124.0 + 64 * 0.08)]


def test_no_marks_are_drawable() -> None:
    """Without marks, bqplot receives arrays that draw nothing."""
    assert ChartLayout.for_gpus(1).mark_lines((), 5.0)[1].tolist() == [[0.0], [0.0]]


def test_downsampling_by_block_mean() -> None:
    """If there are too many points, blocks of neighboring points are replaced by their means.

    All blocks have the same size, except that the oldest block may be smaller.
    """
    assert downsample([(1.0, 2.0, 4.0)], 3).tolist() == [[1.0, 2.0, 4.0]]
    assert downsample([(1.0, 2.0, 4.0, 6.0, 8.0), (0.0,) * 5], 3).tolist() == [
        [1.0, 3.0, 7.0],
        [0.0, 0.0, 0.0],
    ]
    assert np.isnan(downsample([(1.0, None, 4.0, 6.0)], 2)).tolist() == [[True, False]]
