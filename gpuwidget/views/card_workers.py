"""Format the workers of a run for the card: child processes, ranks of distributed training, Dask workers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from gpuwidget.measure import reasons
from gpuwidget.measure.notes import gpu_number
from gpuwidget.model import units
from gpuwidget.model.report import Report, WorkerReport
from gpuwidget.model.terminal_text import clean_line
from gpuwidget.model.translation import _, counted, translatable

_NAME_LENGTH = 40
_UUID_LENGTH = 12
_FIELD_NAMES = {
    "memory": translatable("memory"),
    "torch_allocated": translatable("torch's memory"),
    "utilization": translatable("utilization"),
    "energy_j": translatable("energy"),
    "cpu": "CPU",
    "steps": translatable("tasks"),
    "exit_code": translatable("exit code"),
}
"""The names of the fields whose unknown values the details explain."""
_STATUSES = {
    "running": translatable("running"),
    "ended": translatable("ended"),
    "failed": translatable("failed"),
    "lost": translatable("lost"),
}


def worker_name(worker: WorkerReport) -> str:
    """Return a worker's name: ``rank 1``, the name of a Dask worker, or program and process id.

    Dask numbers the workers of a local cluster, so a number becomes ``worker 0``.
    """
    if worker.rank is not None:
        name = f"rank {worker.rank}"
    else:
        name = clean_line(worker.name or "process", _NAME_LENGTH)
        if worker.kind != "dask":
            name = f"{name} ({worker.pid})"
        elif name.isdigit():
            name = f"worker {name}"
    if worker.host is None:
        return name
    return _("{worker} on {host}", worker=name, host=clean_line(worker.host, _NAME_LENGTH))


def worker_status(worker: WorkerReport) -> str:
    """Return a worker's status, such as ``running`` or ``failed (exit code 1)``."""
    code = worker.exit_code
    status = _(_STATUSES[worker.status])
    return status if code is None else _("{status} (exit code {code})", status=status, code=code)


def by_interest(report: Report) -> tuple[WorkerReport, ...]:
    """Return the report's workers. Those that failed or were lost come first, then ranks that are late."""
    late = {rank for advice in report.advice for rank in advice.evidence.get("late_ranks", ())}

    def rank_of_interest(worker: WorkerReport) -> int:
        return 0 if worker.status in ("failed", "lost") else 1 if worker.rank in late else 2

    return tuple(sorted(report.workers, key=rank_of_interest))


def table(report: Report, rows: int) -> list[list[str]]:
    """Return a header and one row per worker and GPU, or nothing if there are no workers.

    A figure that is unknown for all workers has no column; the details contain the reason. If there are more
    workers than ``rows``, the last row summarizes the others.
    """
    workers, others = report.workers[:rows], report.workers[rows:]
    if not workers:
        return []
    gpus = {gpu.uuid: f"GPU {gpu_number(gpu)}" for gpu in report.gpus}
    columns = [
        (title, [figure(worker) for worker in workers])
        for title, figure in (
            (_("worker"), worker_name),
            ("GPU", lambda worker: _gpu(worker, gpus)),
            (_("memory"), _memory),
            (_("peak (sampled)"), _peak),
            (_("torch peak"), _torch_peak),
            (_("util"), _utilization),
            (_("energy"), _energy),
            ("CPU", _cpu),
            (_steps_title(workers), _steps),
            (_("status"), worker_status),
        )
    ]
    shown = [(title, cells) for title, cells in columns if any(cell is not None for cell in cells)]
    found = [[cells[row] or units.UNKNOWN for _, cells in shown] for row in range(len(workers))]
    if others:
        summary = _summary(others)
        found.append([summary.get(title, "") for title, _ in shown])
    return [[title for title, _ in shown], *found]


def _summary(workers: Sequence[WorkerReport]) -> dict[str, str]:
    """Return the figures of several workers by column: ranges, highest values and number per status."""
    gpus = len({worker.gpu for worker in workers if worker.gpu is not None})
    found = {
        _("worker"): _("{number} more", number=len(workers)),
        "GPU": _(counted(gpus, "{number} GPU", "{number} GPUs")),
    }
    for title, spans in (
        (_("peak (sampled)"), [worker.memory for worker in workers]),
        (_("torch peak"), [worker.torch_allocated for worker in workers]),
    ):
        peaks = [span.peak for span in spans if span is not None and span.peak is not None]
        if peaks:
            found[title] = _partial(_("to {peak}", peak=units.memory(max(peaks))), len(peaks), len(workers))
    for title, values in (
        ("util", [None if worker.utilization is None else worker.utilization.mean for worker in workers]),
        ("CPU", [worker.cpu for worker in workers]),
    ):
        known = [value for value in values if value is not None]
        if known:
            figures = _range(units.percent(min(known)), units.percent(max(known)))
            found[title] = _partial(figures, len(known), len(workers))
    steps = [worker.step_s for worker in workers if worker.step_s is not None]
    if steps:
        figures = _range(units.duration(min(steps)), units.duration(max(steps)))
        found[_steps_title(workers)] = _partial(figures, len(steps), len(workers))
    statuses = Counter(worker.status for worker in workers)
    found[_("status")] = ", ".join(f"{count} {_(_STATUSES[status])}" for status, count in statuses.items())
    return found


def _range(lowest: str, highest: str) -> str:
    return lowest if lowest == highest else _("{lowest} to {highest}", lowest=lowest, highest=highest)


def _partial(figures: str, known: int, number: int) -> str:
    """Return figures with a note if they cover only ``known`` of ``number`` workers."""
    if known == number:
        return figures
    return _("{figures} (known for {known} of {number} workers)", figures=figures, known=known, number=number)


def unknown_values(report: Report) -> list[list[str]]:
    """Return rows with the workers' unknown values that have the same reason, and this reason.

    For example ``utilization, energy of rank 0, rank 1`` and ``other processes used the same GPU``.
    """
    by_reason: dict[str, dict[str, list[str]]] = {}
    for worker in report.workers:
        for field, name in _FIELD_NAMES.items():
            if field in worker.missing:
                workers = by_reason.setdefault(worker.missing[field], {}).setdefault(name, [])
                workers.append(worker_name(worker))
    found = []
    for reason, fields in by_reason.items():
        by_workers: dict[tuple[str, ...], list[str]] = {}
        for name, workers in fields.items():
            by_workers.setdefault(tuple(dict.fromkeys(workers)), []).append(name)
        for names, of in by_workers.items():
            values = _("{values} of {workers}", values=", ".join(map(_, of)), workers=_listed(names))
            found.append([values, _(reason)])
    return found


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:3])
    return (
        shown
        if len(names) <= 3
        else _("{shown} and {number} more workers", shown=shown, number=len(names) - 3)
    )


def _gpu(worker: WorkerReport, gpus: Mapping[str, str]) -> str:
    if worker.gpu is not None:
        # A GPU of another host has no number here.
        return gpus.get(worker.gpu) or worker.gpu[:_UUID_LENGTH]
    reason = worker.missing.get("memory")
    return "none" if reason is not None and reason.id == reasons.NO_GPU_MEMORY.id else units.UNKNOWN


def _memory(worker: WorkerReport) -> str | None:
    return None if worker.memory is None else units.memory_change(worker.memory.start, worker.memory.end)


def _peak(worker: WorkerReport) -> str | None:
    return None if worker.memory is None else units.memory(worker.memory.peak)


def _torch_peak(worker: WorkerReport) -> str | None:
    return None if worker.torch_allocated is None else units.memory(worker.torch_allocated.peak)


def _utilization(worker: WorkerReport) -> str | None:
    return None if worker.utilization is None else units.percent(worker.utilization.mean)


def _energy(worker: WorkerReport) -> str | None:
    return None if worker.energy_j is None else units.energy(worker.energy_j, worker.energy_error_j)


def _cpu(worker: WorkerReport) -> str | None:
    return None if worker.cpu is None else units.percent(worker.cpu)


def _steps_title(workers: Sequence[WorkerReport]) -> str:
    """Return the title of the column with the number of steps, which for Dask workers are tasks."""
    kinds = {worker.kind == "dask" for worker in workers}
    return _("steps") if kinds == {False} else _("tasks") if kinds == {True} else _("steps or tasks")


def _steps(worker: WorkerReport) -> str | None:
    if worker.steps is None:
        return None
    if worker.step_s is None:
        return f"{worker.steps}"
    return f"{worker.steps} \u00d7 {units.duration(worker.step_s)}"
