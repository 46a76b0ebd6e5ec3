"""Tests of the time axis of the live chart."""

from __future__ import annotations

import pytest

from gpuwidget.views.time_axis import TimeAxis


@pytest.mark.parametrize(
    ("elapsed_s", "unit", "end", "step"),
    [
        (0.0, "s", 5.0, 1.0),
        (5.0, "s", 5.0, 1.0),
        (5.1, "s", 6.0, 1.0),
        (61.0, "s", 80.0, 20.0),
        (121.0, "min", 3.0, 1.0),
        (7201.0, "h", 3.0, 1.0),
        (48 * 3600.0, "h", 48.0, 8.0),
        (100 * 3600.0, "h", 192.0, 32.0),
    ],
)
def test_reaching(elapsed_s: float, unit: str, end: float, step: float) -> None:
    """The axis grows in round steps, and it changes to a larger unit before its numbers become long."""
    axis = TimeAxis.reaching(elapsed_s)
    assert (axis.unit, axis.end, axis.step) == (unit, end, step)
    assert axis.end_s >= elapsed_s


def test_ticks() -> None:
    """The first tick is 0, and the last one is the end of the axis."""
    assert TimeAxis.reaching(7.0).ticks == [0.0, 2.0, 4.0, 6.0, 8.0]


def test_end_in_seconds() -> None:
    """``end_s`` is the end of the axis in seconds, even if the ticks are in minutes or hours."""
    assert TimeAxis.reaching(130.0).end_s == 180.0


def test_a_run_fills_most_of_the_axis() -> None:
    """From four seconds to two days, a run fills at least three fifths of the axis, so that its lines barely
    move when the card shows them over its whole width."""
    shares = [t / TimeAxis.reaching(t).end_s for t in (4.0 * 1.01**n for n in range(1070)) if t <= 48 * 3600]
    assert min(shares) >= 0.6


def test_labels_of_times() -> None:
    """A time is labeled with the seconds since the axis's beginning, or on an axis up to now, with those
    before now."""
    assert TimeAxis.reaching(7.0).label(2.5) == "2.5 s"
    assert TimeAxis.last(120.0).label(90.0) == "\N{MINUS SIGN}30.0 s"
