"""The notes and reasons about Dask workers in a run's report."""

from __future__ import annotations

from collections.abc import Sequence

from gpuwidget.model import units
from gpuwidget.model.messages import Message, message
from gpuwidget.model.translation import counted, listed, translatable
from gpuwidget.model.worker_update import WorkerUpdate

_MAX_NAMES = 4

LATE = message("dask-worker-late", "the worker began to measure after the run's start")


def without_end(update: WorkerUpdate) -> Message:
    """Return the reason for the figures of a worker that sent no report at the run's end.

    ``update`` is its last report.
    """
    peaks = [gpu.torch_allocated.peak for gpu in update.gpus if gpu.torch_allocated is not None]
    known = [peak for peak in peaks if peak is not None]
    peak = max(known) if known and len(known) == len(peaks) else None
    steps = update.steps
    figures: list[str] = [] if steps is None else [counted(steps, "{number} task", "{number} tasks")]
    if peak is not None:
        figures.append(translatable("a torch peak of {peak}", peak=units.memory(peak)))
    when = translatable("{elapsed} into the run", elapsed=units.duration(update.elapsed_s))
    if figures:
        last = translatable(
            "its last report, {when}, showed {figures}",
            when=when,
            figures=listed(figures),
        )
    else:
        last = translatable("its last report came {when}", when=when)
    text = translatable("the worker sent no report at the run's end; {last}", last=last)
    return message("dask-worker-without-end", text, elapsed_s=update.elapsed_s, steps=steps, torch_peak=peak)


def no_reports(names: Sequence[str], error: str) -> Message:
    """Return the note about workers whose plugin has failed with ``error``."""
    text = translatable(
        "{workers} ({names}) can't send reports: {error}. The workers need the same "
        "version of gpuwidget as the notebook.",
        workers=counted(len(names), "{number} Dask worker", "{number} Dask workers"),
        names=listed(names, _MAX_NAMES),
        error=error,
    )
    return message("dask-no-reports", text, workers=len(names), error=error)


def no_connection(error: str) -> Message:
    """Return the note about a cluster from which reports could not be read. ``error`` is the reason."""
    text = translatable("Reports of Dask workers are missing: {error}", error=error)
    return message("dask-no-connection", text, error=error)
