"""Means, integrals and courses over time, of runs of any length."""

from __future__ import annotations

from gpuwidget.measure.running_stats import MAX_POINTS, Average, Course, Integral


def test_a_mean_is_weighted_by_time() -> None:
    """A value that held for three seconds counts three times as much as one that held for one."""
    average = Average()
    average.add(100.0, 1.0)
    average.add(20.0, 3.0)
    average.add(None, 5.0)
    assert (average.known, average.mean, average.max) == (True, 40.0, 100.0)


def test_a_mean_of_nothing_is_unknown() -> None:
    """Without a value there is no mean, not a mean of 0."""
    average = Average()
    average.add(None, 1.0)
    average.add(50.0, 0.0)
    assert not average.known


def test_energy_is_the_integral_of_power() -> None:
    """100 W for two seconds, then rising to 300 W over one second, are 400 J."""
    energy = Integral()
    for t, watts in ((0.0, 100.0), (1.0, 100.0), (2.0, 100.0), (3.0, 300.0)):
        energy.add(t, watts)
    assert (energy.total, energy.covered) == (400.0, 3.0)


def test_a_gap_in_power_is_not_bridged() -> None:
    """Where power was unknown nothing is counted, and the gap shows."""
    energy = Integral()
    for t, watts in ((0.0, 100.0), (1.0, None), (2.0, 100.0), (3.0, 100.0)):
        energy.add(t, watts)
    assert (energy.total, energy.covered) == (100.0, 1.0)


def test_a_short_course_is_kept_as_it_is() -> None:
    """Up to 240 points nothing is merged."""
    course = Course((False, True))
    course.add(0.0, (10.0, 1.0))
    course.add(1.0, (None, 2.0))
    assert course.points() == ((0.0, 1.0), ((10.0, None), (1.0, 2.0)))


def test_quantities_may_join_late() -> None:
    """What was not there yet is unknown, and what was is kept."""
    course = Course((False,))
    course.add(0.0, (10.0,))
    course.widen((True,))
    course.add(1.0, (20.0, 5.0))
    assert course.points() == ((0.0, 1.0), ((10.0, 20.0), (None, 5.0)))


def test_a_long_course_keeps_peaks_and_means() -> None:
    """An hour at ten samples a second is at most 240 points; a single spike of memory is still there."""
    course = Course((False, True))
    for number in range(36_000):
        spike = 9.0 if number == 12_345 else 1.0
        course.add(number / 10, (float(number % 2) * 100, spike))
    t, (utilization, memory) = course.points()
    assert len(t) <= MAX_POINTS
    assert len(utilization) == len(memory) == len(t)
    assert max(value for value in memory if value is not None) == 9.0
    assert t[0] == 0.0
    assert list(t) == sorted(t)
    assert all(abs(value - 50) < 5 for value in utilization if value is not None)


def test_thinning_an_odd_number_of_points_keeps_the_last() -> None:
    """The end of a run is on its course."""
    course = Course((True,))
    for number in range(5):
        course.add(float(number), (float(number),))
    assert course.points(3) == ((0.0, 2.0, 4.0), ((1.0, 3.0, 4.0),))
