"""Interface of collectors, which add data to a run's report: time per line, memory per line or per holder."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from gpuwidget.model.report import CodeTime, Report


class Collector(Protocol):
    """Collects data during a run. No method may raise or wait for a GPU.

    :meth:`abandon` must release everything that the collector uses.
    """

    measures: str
    """What the collector measures, for the note of a run in which it failed."""

    def start(self) -> None:
        """Start collecting. Called on the thread that runs the code, just before the run's time begins."""

    def stop(self) -> None:
        """Stop collecting. Called on the same thread as soon as the code ends, so it must be quick."""

    def annotate(self, report: Report) -> Report:
        """Return the report with the collected data. Called once, after :meth:`stop`."""
        ...

    def abandon(self) -> None:
        """Stop without a result. Safe to call at any time and more than once."""


@runtime_checkable
class TimeCollector(Collector, Protocol):
    """A collector that can return the time per line during the run."""

    def snapshot(self) -> CodeTime | None:
        """Return the time per line so far, or None if there is no data yet. May be called from any thread."""
        ...

    def busy_devices(self) -> frozenset[int]:
        """Return the N of each ``cuda:N`` on which a stream of this process was seen working so far."""
        ...
