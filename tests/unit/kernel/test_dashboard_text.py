"""Tests of when the inline dashboard samples, and of its chart of the last two minutes."""

from __future__ import annotations

from types import SimpleNamespace

from fakes import EPOCH, FakeClock
from helpers_samples import h200, reading, sample

from gpuwidget.kernel.live.dashboard import WINDOW_S, RecentSamples, UserActivity
from gpuwidget.kernel.shell.running_cells import RunningCells
from gpuwidget.views.time_axis import TimeAxis

SHELL = SimpleNamespace(displayhook=SimpleNamespace(prompt_count=1))


def test_it_samples_for_ten_minutes_after_the_last_action() -> None:
    """The dashboard stops sampling ten minutes after the user's last action, even if the browser was
    closed."""
    clock = FakeClock()
    activity = UserActivity(RunningCells(SHELL), clock)
    clock.advance(599.0)
    assert activity.recent
    clock.advance(2.0)
    assert not activity.recent
    activity.record()
    assert activity.recent


def test_it_samples_while_a_cell_runs() -> None:
    """The dashboard samples for as long as a cell runs, and for ten minutes after the cell has finished."""
    clock, running = FakeClock(), RunningCells(SHELL)
    activity = UserActivity(running, clock)
    cell = SimpleNamespace(raw_cell="train()", store_history=False)
    running.before(cell)
    activity.record()
    clock.advance(7200.0)
    assert activity.recent
    running.after(SimpleNamespace(info=cell))
    activity.record()
    clock.advance(599.0)
    assert activity.recent
    clock.advance(2.0)
    assert not activity.recent


def test_the_last_two_minutes_end_now() -> None:
    """The newest value is at the right edge of the dashboard's chart.

    Each sample is drawn once, and unknown values are gaps.
    """
    gpu = h200(0)
    samples = RecentSamples()
    for second, busy in ((0.0, 10.0), (60.0, None), (100.0, 30.0), (170.0, 40.0)):
        one = sample((gpu, reading(gpu, utilization=busy)), time=EPOCH + second)
        samples.add(one)
        samples.add(one)
    progress = samples.progress(())
    assert progress.t == (10.0, 50.0, WINDOW_S)
    assert progress.gpus[0].utilization == (None, 30.0, 40.0)


def test_its_axis_ends_now() -> None:
    """The dashboard's time axis ends at 'now', and its other labels count the seconds before that."""
    labels = TimeAxis.last(10.0).labels
    assert [text for _, text in labels] == [
        "\N{MINUS SIGN}10 s",
        "\N{MINUS SIGN}8",
        "\N{MINUS SIGN}6",
        "\N{MINUS SIGN}4",
        "\N{MINUS SIGN}2",
        "now",
    ]
    assert [place for place, _ in labels] == [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]
