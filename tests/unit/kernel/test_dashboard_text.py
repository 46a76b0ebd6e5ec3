"""When the inline dashboard goes on, and what it shows of the last minutes."""

from __future__ import annotations

from fakes import EPOCH, FakeClock
from helpers_samples import h200, reading, sample

from gpuwidget.kernel.live.dashboard import WINDOW_S, Course, Presence
from gpuwidget.kernel.live.time_axis import TimeAxis


def test_it_goes_on_for_ten_minutes_after_the_last_sign() -> None:
    """A browser that has gone costs ten minutes of sampling, not a night."""
    clock = FakeClock()
    presence = Presence(clock)
    clock.advance(599.0)
    assert presence.likely
    clock.advance(2.0)
    assert not presence.likely
    presence.sign()
    assert presence.likely


def test_it_goes_on_while_a_cell_runs() -> None:
    """A long cell is watched to its end, and ten minutes more."""
    clock = FakeClock()
    presence = Presence(clock)
    presence.cell_ends()  # that of the cell which showed the dashboard
    presence.cell_begins()
    clock.advance(7200.0)
    assert presence.likely
    presence.cell_ends()
    clock.advance(599.0)
    assert presence.likely
    clock.advance(2.0)
    assert not presence.likely


def test_the_last_two_minutes_end_now() -> None:
    """The newest value stands at the right edge, each sample once, and what is unknown is a gap."""
    gpu = h200(0)
    course = Course()
    for second, busy in ((0.0, 10.0), (60.0, None), (100.0, 30.0), (170.0, 40.0)):
        one = sample((gpu, reading(gpu, utilization=busy)), time=EPOCH + second)
        course.add(one)
        course.add(one)
    progress = course.progress(())
    assert progress.t == (10.0, 50.0, WINDOW_S)
    assert progress.gpus[0].utilization == (None, 30.0, 40.0)


def test_its_axis_counts_up_to_now() -> None:
    """Ticks say how long ago."""
    labels = TimeAxis.back(10.0).labels
    assert [text for _, text in labels] == [
        "\N{MINUS SIGN}10 s",
        "\N{MINUS SIGN}8",
        "\N{MINUS SIGN}6",
        "\N{MINUS SIGN}4",
        "\N{MINUS SIGN}2",
        "now",
    ]
    assert [place for place, _ in labels] == [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]
