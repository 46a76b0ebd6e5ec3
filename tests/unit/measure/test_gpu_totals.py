"""Tests of means over a run of any length."""

from __future__ import annotations

from gpuwidget.measure.gpu_totals import Average, RateParts
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


def test_rates_of_a_part_of_a_run() -> None:
    """The rates over a time range are those of the parts that lie in it: mean, maximum, bursts and throttle
    reasons."""
    parts = RateParts()
    for n in range(100):
        t = 0.2 * (n + 1)
        part = parts.at(t)
        part.utilization.add(10.0 if t < 10 else 90.0, 0.2)
        part.power.add(100.0 + n, 0.2)
        part.bursts += n % 10 == 0
        part.add_throttle(("too hot",) if t >= 15 else (), 0.2)
    early, late = parts.between(0.0, 9.0), parts.between(11.0, 30.0)
    assert (early.utilization.level(), late.utilization.level()) == (Level(10.0, 10.0), Level(90.0, 90.0))
    assert (early.throttled, early.bursts) == ({}, 5)
    assert late.throttled is not None
    assert round(late.throttled["too hot"], 6) == 5.2
    power = late.power.level()
    assert power is not None
    assert (round(power.mean, 6), power.max) == (176.5, 199.0)


def test_parts_of_a_long_run() -> None:
    """The number of parts stays limited, and the rates of the whole run stay the same."""
    parts = RateParts()
    for n in range(20_000):
        parts.at(0.5 * n).utilization.add(float(n % 100), 0.5)
    known = parts.utilization()
    assert len(known) <= 64
    assert [since for since, _, _ in known] == sorted({since for since, _, _ in known})
    whole = parts.between(0.0, 1e6).utilization.level()
    assert whole is not None
    assert (round(whole.mean, 6), whole.max) == (49.5, 99.0)


def test_parts_with_gaps() -> None:
    """If samples are far apart, each part covers its own time, and no part is repeated."""
    parts = RateParts()
    for n in range(200):
        parts.at(60.0 * n).utilization.add(50.0, 60.0)
    starts = [since for since, _, _ in parts.utilization()]
    assert len(starts) == len(set(starts)) <= 64
