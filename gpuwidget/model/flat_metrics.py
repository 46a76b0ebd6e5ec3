"""Convert a report's JSON values to metrics with flat names, for loggers and data frames."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from gpuwidget.model.errors import MissingPackageError
from gpuwidget.model.metrics import REPORTED

_SPAN_FIELDS = ("start", "end", "peak")
_LEVEL_FIELDS = ("mean", "max")
_LEVEL_METRICS = (
    "utilization",
    *(reported.name for _, reported in REPORTED if not reported.secondary),
    "power_w",
)

Values = Mapping[str, Any]


def metrics(report: Values) -> dict[str, float]:
    """Return the known metrics of the run and of each GPU that the report's card shows, by their flat
    names."""
    found = dict(_run_metrics(report))
    shown = [gpu for gpu in report["gpus"] if gpu["shown"]]
    for gpu in shown:
        found.update((f"{_prefix(gpu)}/{name}", value) for name, value in _gpu_metrics(gpu))
    for worker in report["workers"]:
        if worker["rank"] is not None:
            prefix = f"rank{worker['rank']}"
            found.update((f"{prefix}/{name}", value) for name, value in _worker_metrics(worker))
    totals = report["totals"]
    found["energy_j"] = totals["energy_j"] if totals["energy_gpus"] == totals["gpus"] else None
    return {name: value for name, value in found.items() if _is_number(value)}


def data_frame(report: Values) -> Any:
    """Return a pandas DataFrame with one row per GPU, including GPUs that the report's card does not show."""
    try:
        import pandas
    except ImportError as error:
        raise MissingPackageError(
            f"to_frame() needs pandas, which can't be imported here ({error}). Install it "
            "(pip install pandas), or use to_dict() or metrics()."
        ) from None
    run = {name: report["cell"][name] for name in ("execution_count", "label", "started", "status")}
    rows = [
        {
            **run,
            **dict(_numbers(_run_metrics(report))),
            **{name: gpu[name] for name in ("index", "mig_index", "uuid", "name", "torch_device", "shown")},
            **dict(_numbers(_gpu_metrics(gpu))),
        }
        for gpu in report["gpus"]
    ]
    return pandas.DataFrame(rows)


def _prefix(gpu: Values) -> str:
    # Use only characters that all loggers accept. On Windows, MLflow rejects a colon.
    number = f"gpu{gpu['index']}"
    return number if gpu["mig_index"] is None else f"{number}-mig{gpu['mig_index']}"


def _run_metrics(report: Values) -> Iterator[tuple[str, Any]]:
    yield "duration_s", report["cell"]["duration_s"]
    yield "gpu_tail_s", report["cell"]["gpu_tail_s"]
    yield from _nested("host_memory", report["host_memory"], _SPAN_FIELDS)
    time = report["time"]
    for name in ("cpu", "cpu_children", "warm_up_s"):
        yield name, None if time is None else time[name]


def _gpu_metrics(gpu: Values) -> Iterator[tuple[str, Any]]:
    yield "memory_total", gpu["memory_total"]
    yield from _nested("device_memory", gpu["device_memory"], _SPAN_FIELDS)
    yield from _nested("process_memory", gpu["process_memory"], _SPAN_FIELDS)
    torch = gpu["torch"] or dict.fromkeys(("allocated", "reserved", "alloc_retries", "ooms"))
    for name in ("allocated", "reserved"):
        yield from _nested(f"torch_{name}", torch[name], _SPAN_FIELDS)
    for name in ("alloc_retries", "ooms"):
        yield f"torch_{name}", torch[name]
    for name in _LEVEL_METRICS:
        yield from _nested(name, gpu[name], _LEVEL_FIELDS)
    yield "energy_j", gpu["energy_j"]


def _worker_metrics(worker: Values) -> Iterator[tuple[str, Any]]:
    yield from _nested("memory", worker["memory"], _SPAN_FIELDS)
    yield from _nested("torch_allocated", worker["torch_allocated"], _SPAN_FIELDS)
    yield from _nested("utilization", worker["utilization"], _LEVEL_FIELDS)
    for name in ("energy_j", "cpu", "steps", "step_s"):
        yield name, worker[name]


def _nested(name: str, whole: Values | None, parts: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    for part in parts:
        yield f"{name}_{part}", None if whole is None else whole[part]


def _numbers(named: Iterator[tuple[str, Any]]) -> Iterator[tuple[str, float]]:
    for name, value in named:
        yield name, float(value) if _is_number(value) else math.nan


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
