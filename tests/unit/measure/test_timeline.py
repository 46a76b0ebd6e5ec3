"""Tests of a run's timeline, which consists of marks and of time series of limited length."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from fakes import EPOCH
from helpers_samples import GIB, h200, reading

from gpuwidget.measure.gpu_totals import GpuTotals
from gpuwidget.measure.timeline import MAX_POINTS, GpuTimeSeries, RunTimeSeries, TimelineMarks, TimeSeries
from gpuwidget.model.messages import MessageId
from gpuwidget.model.report import Mark


def totals(index: int, measured: float, **values: float | int | None) -> GpuTotals:
    """Return the totals of a GPU with these values, read ``measured`` seconds into the run."""
    gpu = h200(index)
    return GpuTotals(gpu, reading(gpu, measured=EPOCH + measured, **values), 1.0)


def test_a_short_time_series_is_kept_as_it_is() -> None:
    """A time series of up to 240 points is returned unchanged."""
    series = TimeSeries((False, True))
    series.add(0.0, (10.0, 1.0))
    series.add(1.0, (None, 2.0))
    assert series.points() == ((0.0, 1.0), ((10.0, None), (1.0, 2.0)))


def test_metrics_may_be_added_late() -> None:
    """A metric that is added later is None for the earlier points. The other metrics keep their values."""
    series = TimeSeries((False,))
    series.add(0.0, (10.0,))
    series.add_metrics((True,))
    series.add(1.0, (20.0, 5.0))
    assert series.points() == ((0.0, 1.0), ((10.0, 20.0), (None, 5.0)))


def test_a_long_time_series_keeps_peaks_and_means() -> None:
    """An hour of ten samples per second is reduced to at most 240 points. A single memory spike is kept."""
    series = TimeSeries((False, True))
    for number in range(36_000):
        spike = 9.0 if number == 12_345 else 1.0
        series.add(number / 10, (float(number % 2) * 100, spike))
    t, (utilization, memory) = series.points()
    assert len(t) <= MAX_POINTS
    assert len(utilization) == len(memory) == len(t)
    assert max(value for value in memory if value is not None) == 9.0
    assert t[0] == 0.0
    assert list(t) == sorted(t)
    assert all(abs(value - 50) < 5 for value in utilization if value is not None)


def test_gaps() -> None:
    """A timeline has the times in which nothing was sampled. Of many gaps, the longest are kept."""
    series = RunTimeSeries(1.0)
    series.add_gpus(1)
    for t in (0.0, 0.5, 4.5, 5.0, 7.0):
        series.add(t, [totals(0, t)], EPOCH)
    assert list(series.gaps) == [(0.5, 4.5), (5.0, 7.0)]
    for number in range(100):
        series.add(10.0 + 1.5 * number, [totals(0, 10.0 + 1.5 * number)], EPOCH)
    assert len(series.gaps) == 64
    assert list(series.gaps[:3]) == [(0.5, 4.5), (5.0, 7.0), (7.0, 10.0)]


def test_downsampling_an_odd_number_of_points_keeps_the_last() -> None:
    """Downsampling keeps the last point of a run, even if the number of points is odd."""
    series = TimeSeries((True,))
    for number in range(5):
        series.add(float(number), (float(number),))
    assert series.points(3) == ((0.0, 2.0, 4.0), ((1.0, 3.0, 4.0),))


def test_without_a_gpu_the_timeline_is_empty() -> None:
    """Without a GPU, the timeline has no points."""
    series = RunTimeSeries(1.0)
    series.add(1.0, [], EPOCH)
    assert series.points() == ((), [])


def test_each_gpu_has_a_time_series() -> None:
    """Each GPU has a time series, in the order of the GPUs.

    Utilization from a sampling window that began before the run is None.
    """
    series = RunTimeSeries(1.0)
    series.add_gpus(2)
    early = totals(0, 0.1, utilization=90.0, memory_used=GIB, power_w=300.0)
    series.add(0.5, [early, totals(1, 0.3, utilization=10.0, memory_used=2 * GIB, power_w=None)], EPOCH)
    assert series.points() == (
        (0.5,),
        [
            GpuTimeSeries((None,), (GIB,), (300.0,), (None,)),
            GpuTimeSeries((10.0,), (2 * GIB,), (None,), (None,)),
        ],
    )


def test_a_gpu_that_appears_late() -> None:
    """If a GPU appears late, its time series begins with None. The time series of the other GPUs continue."""
    series = RunTimeSeries(1.0)
    series.add_gpus(1)
    series.add(0.5, [totals(0, 0.5, utilization=1.0)], EPOCH)
    series.add_gpus(1)
    series.add(1.0, [totals(0, 1.0, utilization=2.0), totals(1, 1.0, utilization=3.0)], EPOCH)
    t, found = series.points()
    assert (t, [gpu.utilization for gpu in found]) == ((0.5, 1.0), [(1.0, 2.0), (None, 3.0)])


def test_a_gap_contains_none() -> None:
    """If samples are missing for longer than the limit, a None is inserted in the middle of the gap."""
    series = RunTimeSeries(1.0)
    series.add_gpus(1)
    for measured in (0.5, 1.5, 3.5):
        series.add(measured, [totals(0, measured, utilization=50.0)], EPOCH)
    t, (gpu,) = series.points()
    assert (t, gpu.utilization) == ((0.5, 1.5, 2.5, 3.5), (50.0, 50.0, None, 50.0))


def test_printing_from_a_signal_handler_does_not_deadlock() -> None:
    """A signal handler or a finalizer can print while a mark is being added, without causing a deadlock."""
    marks = TimelineMarks()
    with marks._lock:
        marks.add_printed(1.0, "from a handler")
    assert [mark.label for mark in marks.all()] == ["from a handler"]


def test_marks_are_in_the_order_of_time() -> None:
    """Marks and printed lines are on one timeline, in the order of time."""
    marks = TimelineMarks()
    marks.add_printed(2.0, "epoch 2")
    marks.add_mark(1.0, "warm")
    assert marks.all() == (Mark(1.0, "warm", "mark"), Mark(2.0, "epoch 2", "printed"))
    assert marks.notes() == []


def test_a_cell_that_prints_many_lines() -> None:
    """If a cell prints many lines, the timeline contains every Nth line, and a note contains the number of
    printed lines."""
    marks = TimelineMarks()
    for number in range(1_000):
        marks.add_printed(float(number), str(number))
    kept = [int(mark.label) for mark in marks.all()]
    assert len(kept) <= 100
    assert {after - before for before, after in pairwise(kept)} == {16}
    (note,) = marks.notes()
    assert note.message_id == MessageId("lines-omitted", {"count": 1000, "stride": 16})
    assert "every 16th is" in note


def test_too_many_marks_are_counted() -> None:
    """The first 200 marks are kept. If there are more, a note contains the number of all marks."""
    marks = TimelineMarks()
    for number in range(300):
        marks.add_mark(float(number), "x")
    assert len(marks.all()) == 200
    assert [note.message_id for note in marks.notes()] == [
        MessageId("marks-omitted", {"count": 300, "kept": 200})
    ]


def test_steps_of_many_ranks() -> None:
    """The steps of all ranks stay on the timeline, however many steps and ranks there are."""
    marks = TimelineMarks()
    for step in range(1, 301):
        for rank in range(64):
            marks.add_step(step + rank / 100, rank, step)
    kept = Counter(mark.label.partition(":")[0] for mark in marks.all())
    assert (len(kept), len(marks.all()) <= 1600, min(kept.values())) == (64, True, 19)
    assert marks.all()[0] == Mark(1.0, "rank 0: step 1", "step")
