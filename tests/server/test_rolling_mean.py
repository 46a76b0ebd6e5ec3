"""The mean utilization of a GPU over a time window. It is known only if the whole window was sampled."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fakes import EPOCH
from helpers_samples import h200, reading, sample

from gpuwidget.model.samples import Sample
from gpuwidget.server.rolling_mean import RollingMeans

GPU = h200(0)


def at(seconds: float, utilization: float | None) -> Sample:
    """Return a sample taken this many seconds after the tests' epoch."""
    return sample((GPU, reading(GPU, utilization=utilization)), time=EPOCH + seconds)


def add_samples(
    made: RollingMeans, since: int, until: int, utilization: float | None, every: int = 1
) -> RollingMeans:
    """Add a sample every ``every`` seconds, from ``since`` until before ``until``, and return ``made``."""
    for second in range(since, until, every):
        made.add(at(second, utilization), second)
    return made


def mean_utilizations(made: RollingMeans) -> list[float | None]:
    """Return the mean utilization over the last 10, 30 and 60 minutes."""
    assert [one.seconds for one in made.means(GPU.uuid)] == [600.0, 1800.0, 3600.0]
    return [one.utilization for one in made.means(GPU.uuid)]


def test_windows_are_unknown_until_sampled() -> None:
    """The mean over the last 10, 30 or 60 minutes is unknown until samples have been taken for that long."""
    made = RollingMeans(1.0)
    assert mean_utilizations(made) == [None, None, None]
    assert mean_utilizations(add_samples(made, 0, 300, 20.0)) == [None, None, None]
    assert mean_utilizations(add_samples(made, 300, 611, 20.0)) == [20.0, None, None]
    assert mean_utilizations(add_samples(made, 611, 1811, 80.0)) == [80.0, pytest.approx(60.0, abs=0.5), None]
    assert mean_utilizations(add_samples(made, 1811, 3611, 80.0)) == [
        80.0,
        80.0,
        pytest.approx(70.0, abs=0.5),
    ]
    assert mean_utilizations(add_samples(made, 3611, 8000, 0.0)) == [0.0, 0.0, 0.0]


def test_samples_are_weighted_by_time() -> None:
    """Each value is weighted by the time until the next sample,
    so more frequent samples do not weigh more."""
    made = RollingMeans(1.0)
    for second in range(0, 700, 2):
        made.add(at(second, 90.0), second)
        for part in range(10):
            now = second + 1.5 + part * 0.05
            made.add(at(now, 10.0), now)
    assert mean_utilizations(made)[0] == pytest.approx((90.0 * 1.5 + 10.0 * 0.5) / 2, abs=1.0)


def test_gaps_make_a_mean_unknown() -> None:
    """The 10-minute mean is unknown if samples or values are missing for one minute,
    or if the GPU was absent."""
    made = add_samples(RollingMeans(1.0), 0, 300, 50.0)
    assert mean_utilizations(add_samples(made, 360, 660, 50.0))[0] is None
    assert mean_utilizations(add_samples(made, 660, 990, 50.0))[0] == 50.0
    made = add_samples(add_samples(RollingMeans(1.0), 0, 500, 50.0), 500, 560, None)
    assert mean_utilizations(add_samples(made, 560, 700, 50.0))[0] is None
    other = h200(1)
    made = add_samples(RollingMeans(1.0), 0, 700, 50.0)
    made.add(sample((other, reading(other)), time=EPOCH + 701), 701.0)
    assert mean_utilizations(add_samples(made, 702, 720, 50.0))[0] is None


def test_a_short_gap_keeps_the_mean() -> None:
    """If values are missing for only 25 seconds, the 10-minute mean is still known."""
    made = add_samples(add_samples(RollingMeans(1.0), 0, 300, 50.0), 300, 325, None)
    assert mean_utilizations(add_samples(made, 325, 620, 50.0))[0] == 50.0


@pytest.mark.parametrize("step", [-5000.0, -1.0, 3.0, 5000.0])
def test_setting_the_system_clock_keeps_the_means(step: float) -> None:
    """If the system clock is set forward or back, the means stay correct,
    because a monotonic clock is used to compute them."""
    made = add_samples(RollingMeans(1.0), 0, 700, 50.0)
    for second in range(700, 1311):
        assert mean_utilizations(made)[0] is not None
        made.add(at(second + step, 20.0), second)
    assert mean_utilizations(made)[0] == pytest.approx(20.0)


def test_a_long_pause_makes_the_means_unknown() -> None:
    """After a long pause in sampling, the means are unknown: samples from before the pause are too old."""
    made = add_samples(RollingMeans(1.0), 0, 700, 50.0)
    made.add(at(10**6, 40.0), 10**6)
    made.add(at(10**6 + 20, 40.0), 10**6 + 20)
    assert mean_utilizations(made) == [None, None, None]


def test_slow_sampling() -> None:
    """Even at the slowest sampling rate, one sample per minute, the means are known."""
    made = add_samples(RollingMeans(60.0), 0, 3700, 30.0, every=60)
    assert mean_utilizations(made) == [30.0, 30.0, 30.0]


def test_memory_is_bounded() -> None:
    """Samples are stored for at most an hour, and only for GPUs that are still present."""
    made = add_samples(RollingMeans(1.0), 0, 20_000, 30.0, every=5)
    assert len(made._gpus[GPU.uuid]._spans) == 360
    other = replace(GPU, uuid="GPU-other")
    made.add(sample((other, reading(other)), time=EPOCH + 20_001), 20_001.0)
    assert list(made._gpus) == ["GPU-other"]
