"""What collects data about a run besides the GPU samples: a profiler, the memory by line or by holder."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from gpuwidget.model.report import CodeTime, Report


class Collector(Protocol):
    """Collects data during a run. No method may raise or wait for a GPU; nothing outlives :meth:`abandon`."""

    def start(self) -> None:
        """Start, on the thread that runs the code, just before the run's time begins."""

    def stop(self) -> None:
        """Stop. Called on the same thread as soon as the code has ended, so it must be quick."""

    def annotate(self, report: Report) -> Report:
        """Return the report with the collected data; called once, after :meth:`stop`."""
        ...

    def abandon(self) -> None:
        """Stop without a result; safe to call at any time, and twice."""


@runtime_checkable
class TimeCollector(Collector, Protocol):
    """A collector that can return where the time went while the run goes on."""

    def snapshot(self) -> CodeTime | None:
        """Return the run's time so far, None without data; may be called from any thread."""
        ...
