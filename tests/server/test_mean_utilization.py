"""The mean utilization of a GPU over a time window. It is known only if the whole window was sampled."""

from __future__ import annotations

import pytest
from fakes import EPOCH
from helpers_samples import h200, reading, sample

from gpuwidget.model.samples import Sample
from gpuwidget.server.history import HistoryStore

GPU = h200(0)


def at(seconds: float, utilization: float | None) -> Sample:
    """Return a sample taken this many seconds after the tests' epoch."""
    return sample((GPU, reading(GPU, utilization=utilization)), time=EPOCH + seconds)


def add_samples(
    made: HistoryStore, since: int, until: int, utilization: float | None, every: int = 1
) -> HistoryStore:
    """Add a sample every ``every`` seconds, from ``since`` until before ``until``, and return ``made``."""
    for second in range(since, until, every):
        made.add(at(second, utilization))
    return made


def mean_utilizations(made: HistoryStore) -> list[float | None]:
    """Return the mean utilization over the last 10, 30 and 60 minutes."""
    assert [one.seconds for one in made.mean_utilizations(GPU.uuid)] == [600.0, 1800.0, 3600.0]
    return [one.utilization for one in made.mean_utilizations(GPU.uuid)]


def test_windows_are_unknown_until_sampled() -> None:
    """The mean over the last 10, 30 or 60 minutes is unknown until samples have been taken for that long."""
    made = HistoryStore(600.0, 1.0)
    assert mean_utilizations(made) == [None, None, None]
    assert mean_utilizations(add_samples(made, 0, 300, 20.0)) == [None, None, None]
    assert mean_utilizations(add_samples(made, 300, 611, 20.0)) == [20.0, None, None]
    assert mean_utilizations(add_samples(made, 611, 1811, 80.0)) == [80.0, pytest.approx(60.0, abs=0.5), None]
    assert mean_utilizations(add_samples(made, 1811, 3611, 80.0)) == [
        80.0,
        80.0,
        pytest.approx(70.0, abs=0.5),
    ]
    assert mean_utilizations(add_samples(made, 3611, 7300, 0.0)) == [0.0, 0.0, 0.0]


def test_seconds_have_the_same_weight() -> None:
    """A second with more samples does not weigh more, and a value applies until the next sample."""
    made = HistoryStore(600.0, 0.2)
    for second in range(0, 700, 4):
        made.add(at(second, 90.0))
        for part in range(10):
            made.add(at(second + 3 + part * 0.05, 10.0))
    assert mean_utilizations(made)[0] == pytest.approx((90.0 * 3 + 10.0) / 4, abs=0.5)


def test_gaps_make_a_mean_unknown() -> None:
    """The 10-minute mean is unknown if samples or values are missing for one minute,
    or if the GPU was absent for a minute."""
    made = add_samples(HistoryStore(600.0, 1.0), 0, 300, 50.0)
    assert mean_utilizations(add_samples(made, 360, 660, 50.0))[0] is None
    assert mean_utilizations(add_samples(made, 660, 990, 50.0))[0] == 50.0
    made = add_samples(add_samples(HistoryStore(600.0, 1.0), 0, 500, 50.0), 500, 560, None)
    assert mean_utilizations(add_samples(made, 560, 700, 50.0))[0] is None
    other = h200(1)
    made = add_samples(HistoryStore(600.0, 1.0), 0, 700, 50.0)
    for second in range(700, 760):
        made.add(sample((other, reading(other)), time=EPOCH + second))
    assert mean_utilizations(add_samples(made, 760, 800, 50.0))[0] is None


def test_a_short_gap_keeps_the_mean() -> None:
    """If values are missing for only 25 seconds, the 10-minute mean is still known."""
    made = add_samples(add_samples(HistoryStore(600.0, 1.0), 0, 300, 50.0), 300, 325, None)
    assert mean_utilizations(add_samples(made, 325, 620, 50.0))[0] == 50.0


def test_a_long_pause_makes_the_means_unknown() -> None:
    """After a long pause in sampling, the means are unknown: samples from before the pause are too old."""
    made = add_samples(HistoryStore(600.0, 1.0), 0, 700, 50.0)
    made.add(at(10**6, 40.0))
    made.add(at(10**6 + 20, 40.0))
    assert mean_utilizations(made) == [None, None, None]


def test_slow_sampling() -> None:
    """Even at the slowest sampling rate, one sample per minute, the means are known."""
    made = add_samples(HistoryStore(600.0, 60.0), 0, 3700, 30.0, every=60)
    assert mean_utilizations(made) == [30.0, 30.0, 30.0]
