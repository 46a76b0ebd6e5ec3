"""The notes and reasons about Dask workers in a run's report."""

from __future__ import annotations

from gpuwidget.model import units
from gpuwidget.model.messages import Message, Template, message
from gpuwidget.model.translation import counted, translatable
from gpuwidget.model.worker_update import WorkerUpdate

LATE = message("dask-worker-late", "the worker began to measure after the run's start")


WITHOUT_END = Template(
    "dask-worker-without-end",
    (
        "the worker sent no report at the run's end; its last report, {elapsed_s:duration} into the run, "
        "showed {figures:and}",
        "the worker sent no report at the run's end; its last report came {elapsed_s:duration} into the run",
    ),
)
NO_REPORTS = Template(
    "dask-no-reports",
    "{workers} {workers:Dask worker|Dask workers} ({names}) can't send reports: {error}. The workers need "
    "the same version of gpuwidget as the notebook.",
)
NO_CONNECTION = Template("dask-no-connection", "Reports of Dask workers are missing: {error}")


def without_end(update: WorkerUpdate) -> Message:
    """Return the reason for the figures of a worker that sent no report at the run's end.

    ``update`` is its last report.
    """
    peaks = [gpu.torch_allocated.peak for gpu in update.gpus if gpu.torch_allocated is not None]
    known = [peak for peak in peaks if peak is not None]
    peak = max(known) if known and len(known) == len(peaks) else None
    steps = update.steps
    figures = [] if steps is None else [counted(steps, "{number} task", "{number} tasks")]
    if peak is not None:
        figures.append(translatable("a torch peak of {peak}", peak=units.memory(peak)))
    return WITHOUT_END(
        elapsed_s=update.elapsed_s, steps=steps, torch_peak=peak, shown={"figures": figures or None}
    )
