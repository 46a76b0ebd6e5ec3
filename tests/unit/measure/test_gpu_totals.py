"""Tests of means and integrals over a run of any length."""

from __future__ import annotations

from gpuwidget.measure.gpu_totals import Average, Integral
from gpuwidget.model.report import Level


def test_a_mean_is_weighted_by_time() -> None:
    """In a mean, a value that lasted for three seconds counts three times as much as a value of one
    second."""
    average = Average()
    average.add(100.0, 1.0)
    average.add(20.0, 3.0)
    average.add(None, 5.0)
    assert (average.known, average.level()) == (True, Level(40.0, 100.0))


def test_a_mean_of_nothing_is_unknown() -> None:
    """The mean is None, not 0, if no value is known."""
    average = Average()
    average.add(None, 1.0)
    average.add(50.0, 0.0)
    assert (average.known, average.level()) == (False, None)


def test_energy_is_the_integral_of_power() -> None:
    """Two seconds at 100 W, followed by a linear rise to 300 W within one second, are 400 J."""
    energy = Integral()
    for t, watts in ((0.0, 100.0), (1.0, 100.0), (2.0, 100.0), (3.0, 300.0)):
        energy.add(t, watts)
    assert (energy.total, energy.covered) == (400.0, 3.0)


def test_a_gap_in_power_is_not_bridged() -> None:
    """While power is unknown, no energy is added.

    The covered time does not include the time without power.
    """
    energy = Integral()
    for t, watts in ((0.0, 100.0), (1.0, None), (2.0, 100.0), (3.0, 100.0)):
        energy.add(t, watts)
    assert (energy.total, energy.covered) == (100.0, 1.0)
