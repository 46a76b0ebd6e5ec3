"""What a worker process reports about itself to the notebook that started it.

A rank sends updates over a Unix socket, and a Dask worker through the scheduler. An update is a JSON object.
Its values are totals: of a rank since it began to report, of a Dask worker since the notebook's run began. If
an update is lost, the next one contains the same information.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from gpuwidget.model.report import Span
from gpuwidget.model.to_json import encodable, to_json

WORKER_SCHEMA = 1
MAX_UPDATE_BYTES = 16_384
"""Maximum length of an update as JSON. Longer updates are rejected."""
MAX_GPUS = 64
"""Maximum number of GPUs in an update."""
_MAX_TEXT = 200
_MAX_NUMBER = 2**62

UpdateStatus = Literal["running", "ended", "failed"]
UpdateKind = Literal["rank", "dask"]


@dataclass(frozen=True, slots=True)
class WorkerGpuUpdate:
    """A worker's memory on one GPU, in bytes, and its work there."""

    uuid: str
    torch_allocated: Span | None = None
    """Torch's allocated memory. The peak is exact. None if torch's counters can't be read."""
    torch_reserved: Span | None = None
    memory: Span | None = None
    """Memory of the process according to the driver on the worker's host, or None if unknown. The notebook
    reads the memory of processes on its own host itself."""
    alone: bool | None = None
    """Whether the worker was the only process on the GPU, or None if unknown."""
    utilization: float | None = None
    """Mean utilization of the GPU, in percent, or None if unknown."""
    utilization_max: float | None = None
    energy_j: float | None = None
    """Joules that the GPU drew while the worker used it, or None if unknown."""
    energy_error_j: float | None = None
    """Joules by which :attr:`energy_j` may be wrong (two standard deviations), or None if that is at most 5
    percent of it or if :attr:`energy_j` is None."""


@dataclass(frozen=True, slots=True)
class WorkerUpdate:
    """The state of one worker process."""

    schema: int
    kind: UpdateKind
    host: str
    pid: int
    name: str | None
    """The worker's name in Dask, or None for a rank."""
    rank: int | None
    local_rank: int | None
    world_size: int | None
    steps: int | None
    """Number of steps of a rank so far, or None if it does not count steps. Number of tasks that a Dask
    worker has executed, including those that it is executing."""
    step_s: float | None
    """Mean seconds per step, or None if unknown."""
    since_step_s: float | None
    """Seconds since the newest step, or None if there was none."""
    cpu_s: float | None
    """CPU seconds of the process in the time of the update, or None if unknown."""
    elapsed_s: float
    """Seconds since a rank began to report. Seconds of the run for which the process of a Dask worker has
    existed."""
    started_in_run: bool | None
    """Whether a Dask worker's process started during the run. None for a rank."""
    status: UpdateStatus
    exit_code: int | None
    gpus: tuple[WorkerGpuUpdate, ...]
    reason: str | None
    """Why the driver's values are unknown to a Dask worker, or None."""

    def to_json(self) -> str:
        """Return the update as JSON text on one line."""
        return json.dumps(to_json(self), allow_nan=False)


def parse(text: str | bytes) -> WorkerUpdate | None:
    """Return the update in ``text``, or None if it is not a valid update of this schema.

    Any process of the user can send updates, so every field is checked.
    """
    if len(text) > MAX_UPDATE_BYTES:
        return None
    try:
        return from_values(json.loads(text))
    except (ValueError, RecursionError):
        return None


def from_values(values: object) -> WorkerUpdate | None:
    """Return the update with these JSON values, or None if they are not a valid update of this schema."""
    try:
        return _update(values)
    except (KeyError, TypeError, ValueError):
        return None


def _update(values: Any) -> WorkerUpdate:
    if not isinstance(values, Mapping) or values["schema"] != WORKER_SCHEMA:
        raise ValueError
    gpus = values["gpus"]
    if not isinstance(gpus, (list, tuple)) or len(gpus) > MAX_GPUS:
        raise ValueError
    found = tuple(_gpu(gpu) for gpu in gpus)
    if len({gpu.uuid for gpu in found}) < len(found):
        raise ValueError  # Two entries for one GPU contradict each other.
    pid = _count(values["pid"])
    if pid is None:
        raise ValueError
    started_in_run = values["started_in_run"]
    if not (started_in_run is None or isinstance(started_in_run, bool)):
        raise ValueError
    return WorkerUpdate(
        schema=WORKER_SCHEMA,
        kind=_one_of(values["kind"], get_args(UpdateKind)),
        host=_text(values["host"]) or "",
        pid=pid,
        name=_text(values["name"]),
        rank=_count(values["rank"]),
        local_rank=_count(values["local_rank"]),
        world_size=_count(values["world_size"]),
        steps=_count(values["steps"]),
        step_s=_number(values["step_s"]),
        since_step_s=_number(values["since_step_s"]),
        cpu_s=_number(values["cpu_s"]),
        elapsed_s=_number(values["elapsed_s"]) or 0.0,
        started_in_run=started_in_run,
        status=_one_of(values["status"], get_args(UpdateStatus)),
        exit_code=_integer(values["exit_code"]),
        gpus=found,
        reason=_text(values["reason"]),
    )


def _gpu(values: Any) -> WorkerGpuUpdate:
    uuid, alone = _text(values["uuid"]), values["alone"]
    if uuid is None or not (alone is None or isinstance(alone, bool)):
        raise ValueError
    return WorkerGpuUpdate(
        uuid=uuid,
        torch_allocated=_span(values["torch_allocated"]),
        torch_reserved=_span(values["torch_reserved"]),
        memory=_span(values["memory"]),
        alone=alone,
        utilization=_number(values["utilization"]),
        utilization_max=_number(values["utilization_max"]),
        energy_j=_number(values["energy_j"]),
        energy_error_j=_number(values.get("energy_error_j")),  # Older versions of gpuwidget don't send it.
    )


def _span(values: Any) -> Span | None:
    if values is None:
        return None
    return Span(start=_count(values["start"]), end=_count(values["end"]), peak=_count(values["peak"]))


def _one_of(value: Any, allowed: tuple[Any, ...]) -> Any:
    if value not in allowed:
        raise ValueError
    return value


def _text(value: Any) -> str | None:
    if value is not None and not isinstance(value, str):
        raise ValueError
    return None if value is None else encodable(value[:_MAX_TEXT])


def _integer(value: Any) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) > _MAX_NUMBER:
        raise ValueError
    return value


def _count(value: Any) -> int | None:
    found = _integer(value)
    if found is not None and found < 0:
        raise ValueError
    return found


def _number(value: Any) -> float | None:
    if value is None:
        return None
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise ValueError
    # math.isfinite() raises an OverflowError for a large int. NaN fails the comparison.
    if not 0 <= value <= _MAX_NUMBER:
        raise ValueError
    return float(value)
