"""Tests of the regression that computes GPU activity per line from windows with different mixtures of
lines.
"""

from __future__ import annotations

import random

import pytest

from gpuwidget.profiler.regression import WindowMixture, activity_by_line

TRUTH = {1: 4.0, 2: 97.0}


def windows(parts: list[float], noise: float = 0.0) -> list[WindowMixture]:
    """Return one window per item of ``parts``. The item is line 1's share of the window's time, and line 2
    has the rest.
    """
    draw = random.Random(7)
    return [
        WindowMixture(
            {1: part, 2: 1 - part},
            TRUTH[1] * part + TRUTH[2] * (1 - part) + draw.uniform(-noise, noise),
            0.2,
        )
        for part in parts
    ]


def test_windows_that_differ_give_each_lines_activity() -> None:
    """If the windows have different mixtures of lines and no noise, the regression returns each line's exact
    activity.
    """
    assert dict(activity_by_line(windows([0.0, 1.0] * 6)) or {}) == pytest.approx({1: 4.0, 2: 97.0})


def test_noise_is_averaged() -> None:
    """Even if the driver's percentages are noisy, a line's activity is off by at most three percentage
    points.
    """
    found = activity_by_line(windows([0.0, 0.2, 0.5, 0.8, 1.0] * 6, noise=5.0))
    assert found is not None
    assert found[1] == pytest.approx(4.0, abs=3.0)
    assert found[2] == pytest.approx(97.0, abs=3.0)


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param([0.5] * 40, id="all alike"),
        pytest.param([0.48, 0.52] * 20, id="almost alike"),
        pytest.param([0.0, 1.0] * 4, id="too few"),
        pytest.param([], id="none"),
    ],
)
def test_windows_that_are_alike_give_nothing(parts: list[float]) -> None:
    """If all windows have similar mixtures of lines, or there are too few windows, the regression returns
    None.
    """
    assert activity_by_line(windows(parts)) is None


def test_utilization_that_fits_no_line() -> None:
    """If the utilization is unrelated to the lines, for example because another process causes it, the
    regression returns None.
    """
    draw = random.Random(3)
    mixed = [WindowMixture({1: part, 2: 1 - part}, draw.uniform(0, 100), 0.2) for part in [0.0, 0.5, 1.0] * 8]
    assert activity_by_line(mixed) is None


@pytest.mark.parametrize(("spread", "shown"), [(9.0, True), (10.0, False)])
def test_an_activity_with_a_large_standard_error_is_not_returned(spread: float, shown: bool) -> None:
    """An activity is returned only if its standard error is at most 2.5 percentage points.

    The means of the sixteen windows are 40 % plus or minus ``spread``, so the standard error is about a
    quarter of ``spread``: 2.3 and 2.6 points.
    """
    mixed = [WindowMixture({3: 1.0}, 40.0 + spread * (-1) ** number, 0.2) for number in range(16)]
    assert (activity_by_line(mixed) is not None) == shown


@pytest.mark.parametrize(("count", "expected"), [(4, {}), (5, {3: 40.0}), (12, {3: 40.0})])
def test_one_line_is_the_mean(count: int, expected: dict[int, float]) -> None:
    """If only one line takes much of the time, its activity is the mean of all windows, divided by its share
    of the time. There must be at least five windows."""
    assert dict(
        activity_by_line([WindowMixture({3: 0.98, 4: 0.02}, 39.2, 0.2)] * count) or {}
    ) == pytest.approx(expected)


def test_rare_lines_count_together() -> None:
    """Lines with less than 5 % of the time get no activity, and do not affect the activity of the other
    lines.
    """
    mixed = [
        WindowMixture({1: part, 2: 0.98 - part, n: 0.02}, 97.0 * (0.98 - part), 0.2)
        for n, part in enumerate([0.0, 0.3, 0.6, 0.98] * 6, start=10)
    ]
    found = activity_by_line(mixed)
    assert found is not None
    assert set(found) == {1, 2}
    assert found[2] == pytest.approx(97.0, abs=2.5)
