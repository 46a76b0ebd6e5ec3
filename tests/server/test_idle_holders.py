"""Idle holders: kernels that hold much GPU memory, but have run no code for a long time."""

from __future__ import annotations

import logging

import pytest
from helpers_samples import GIB

from gpuwidget.server.idle_holders import IdleHolders
from gpuwidget.server.wire import GpuMemoryOwnership, IdleHolder, MemoryHolder, ServerKernel

START = 1_000_000.0
"""When the kernel has begun to hold the memory, in epoch seconds."""
WARNING = "The kernel of a.ipynb has been idle for 30 min and holds 20.0 GiB of GPU memory (kernel anna)."


class Monitor:
    """Reports kernels that have held more than 10 GiB for 30 minutes, in steps of ten seconds."""

    def __init__(self) -> None:
        self.idle = IdleHolders(10 * GIB, 1800.0, logging.getLogger("test_idle_holders"))
        self.clock_set_by = 0.0
        """Seconds by which the system's clock was set forward."""

    def step(self, time: float, idle_since: float | None) -> IdleHolder | None:
        """Return the idle holder after a step. ``idle_since`` is the time of the kernel's last activity."""
        kernel = ServerKernel(
            "anna", "python3", "idle", idle_since, None, "notebook", "a.ipynb", "a.ipynb", None, None
        )
        holder = MemoryHolder("anna", None, None, None, None, 20 * GIB, "driver", other_users=False)
        ownership = [GpuMemoryOwnership("GPU-0", (holder,), 0, None, ())]
        self.idle.update([kernel], ownership, (), time + self.clock_set_by, time, has_pages=False)
        return self.idle.found.get("anna")

    def steps(self, since: float, until: float, idle_since: float | None) -> list[float]:
        """Make a step every ten seconds, without any activity of the kernel. Return the times of the steps at
        whose end the kernel was an idle holder."""
        times = [since + 10.0 * number for number in range(int((until - since) / 10) + 1)]
        return [time for time in times if self.step(time, idle_since) is not None]


def test_a_user_who_keeps_running_short_cells_is_not_reported(caplog: pytest.LogCaptureFixture) -> None:
    """A kernel that has run code is no idle holder, even if each cell starts and ends between two steps, so
    that the kernel is idle at every step. Its idle time begins when its last cell has ended."""
    monitor = Monitor()
    for number in range(400):
        time = START + 10.0 * number
        assert monitor.step(time, time - 1.0) is None
    assert caplog.records == []
    ended = START + 3989.0
    assert monitor.steps(START + 4000.0, ended + 1801.0, ended) == [ended + 1801.0]
    assert monitor.idle.found == {"anna": IdleHolder(ended, 20 * GIB, complete=True)}
    assert [record.getMessage() for record in caplog.records] == [WARNING]


def test_code_ends_the_report_of_an_idle_holder(caplog: pytest.LogCaptureFixture) -> None:
    """If the user runs a short cell in a notebook that is reported as idle, it is no longer reported. It is
    reported again, as a new event, after another 30 minutes."""
    monitor = Monitor()
    assert monitor.steps(START, START + 1800.0, START - 60.0) == [START + 1800.0]
    ended = START + 1804.0
    assert monitor.steps(START + 1810.0, ended + 1796.0, ended) == []
    assert monitor.step(ended + 1806.0, ended) == IdleHolder(ended, 20 * GIB, complete=True)
    assert [record.getMessage() for record in caplog.records] == [WARNING, WARNING]


@pytest.mark.parametrize(
    "idle_since",
    [
        pytest.param(START - 86_400.0, id="before it held the memory"),
        pytest.param(START + 86_400.0, id="in the future, because the system's clock was set back"),
        pytest.param(None, id="unknown"),
    ],
)
def test_without_activity_the_time_begins_with_the_memory(idle_since: float | None) -> None:
    """A kernel without activity is reported after it has held the memory for 30 minutes, whenever it was
    last active, even if that time is unknown or lies in the future."""
    monitor = Monitor()
    assert monitor.steps(START, START + 1800.0, idle_since) == [START + 1800.0]
    assert monitor.idle.found == {"anna": IdleHolder(START, 20 * GIB, complete=True)}


def test_activity_in_the_future_counts_as_activity_now() -> None:
    """If the system's clock was set back during a cell, the kernel's idle time begins at the next step, not
    when the clock reaches the old time."""
    monitor = Monitor()
    assert monitor.steps(START, START + 600.0, START) == []
    assert monitor.steps(START + 610.0, START + 610.0 + 1800.0, START + 86_400.0) == [START + 2410.0]
    assert monitor.idle.found == {"anna": IdleHolder(START + 610.0, 20 * GIB, complete=True)}


@pytest.mark.parametrize("seconds", [3600.0, -3600.0], ids=["forward", "back"])
def test_setting_the_clock_is_no_idle_time(seconds: float, caplog: pytest.LogCaptureFixture) -> None:
    """If the server's clock is set, an idle kernel is reported after 30 minutes all the same, not at once or
    an hour later, and with its real idle time."""
    monitor = Monitor()
    assert monitor.steps(START, START + 600.0, START - 5.0) == []
    monitor.clock_set_by = seconds
    assert monitor.steps(START + 610.0, START + 1800.0, START - 5.0) == [START + 1800.0]
    assert monitor.idle.found == {"anna": IdleHolder(START + seconds, 20 * GIB, complete=True)}
    assert [record.getMessage() for record in caplog.records] == [WARNING]
