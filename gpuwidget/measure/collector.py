"""What looks at a run beside the samples of its GPUs: where the code was, what its lines allocated."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from gpuwidget.model.report import CodeTime, Report


class Witness(Protocol):
    """One more look at a run. Nothing it does may raise, wait for a GPU or outlive :meth:`abandon`."""

    def start(self) -> None:
        """Begin, on the thread that runs the code, just before the run's time begins."""

    def stop(self) -> None:
        """The code has ended: called on the same thread, first of all, and so must be quick."""

    def testify(self, report: Report) -> Report:
        """The report with what was seen; once, after :meth:`stop`."""
        ...

    def abandon(self) -> None:
        """End without a word; safe to call at any time, and twice."""


@runtime_checkable
class TimeWitness(Witness, Protocol):
    """A witness that can say while the run goes on where its time went."""

    def so_far(self) -> CodeTime | None:
        """Of the run so far, None before anything was seen; may be called from any thread."""
        ...
