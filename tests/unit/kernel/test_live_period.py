"""The time between updates of the live chart."""

from __future__ import annotations

import pytest

from gpuwidget.kernel.live.live_display import update_period


@pytest.mark.parametrize(
    ("took", "expected"),
    [(0.002, 0.19), (0.01, 0.4), (0.02, 0.5), (0.3, 0.5)],
)
def test_slow_updates_are_made_less_often(took: float, expected: float) -> None:
    """Updates take at most a fortieth of the time, but there are always at least two per second."""
    assert update_period(0.19, took) == pytest.approx(expected)
