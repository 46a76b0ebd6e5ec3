"""The course of a run on its GPUs."""

from __future__ import annotations

from fakes import EPOCH
from helpers_samples import GIB, h200, reading

from gpuwidget.measure.gpu_totals import Track
from gpuwidget.measure.time_series import Courses, GpuCourse


def track(index: int, measured: float, **values: float | int | None) -> Track:
    """A GPU that has just read this, ``measured`` seconds into the run."""
    one = h200(index)
    return Track(one, reading(one, measured=EPOCH + measured, **values), 1.0)


def test_no_gpu_no_course() -> None:
    """Where there is no GPU, nothing is on the timeline."""
    courses = Courses(1.0)
    courses.add(1.0, [], EPOCH)
    assert courses.points() == ((), [])


def test_a_course_for_each_gpu() -> None:
    """Each has its own, in its order; what the driver said of the time before the run is left out."""
    courses = Courses(1.0)
    courses.widen(2)
    early = track(0, 0.1, utilization=90.0, memory_used=GIB, power_w=300.0)
    courses.add(0.5, [early, track(1, 0.3, utilization=10.0, memory_used=2 * GIB, power_w=None)], EPOCH)
    assert courses.points() == (
        (0.5,),
        [GpuCourse((None,), (GIB,), (300.0,), (None,)), GpuCourse((10.0,), (2 * GIB,), (None,), (None,))],
    )


def test_one_that_joins_late() -> None:
    """It has nothing until then, and the others go on."""
    courses = Courses(1.0)
    courses.widen(1)
    courses.add(0.5, [track(0, 0.5, utilization=1.0)], EPOCH)
    courses.widen(1)
    courses.add(1.0, [track(0, 1.0, utilization=2.0), track(1, 1.0, utilization=3.0)], EPOCH)
    t, found = courses.points()
    assert (t, [course.utilization for course in found]) == ((0.5, 1.0), [(1.0, 2.0), (None, 3.0)])


def test_a_gap_is_none() -> None:
    """Where no sample came for longer than that, all is unknown in the middle."""
    courses = Courses(1.0)
    courses.widen(1)
    for read in (0.5, 1.5, 3.5):
        courses.add(read, [track(0, read, utilization=50.0)], EPOCH)
    t, (course,) = courses.points()
    assert (t, course.utilization) == ((0.5, 1.5, 2.5, 3.5), (50.0, 50.0, None, 50.0))
