"""The reasons in a GPU's ``missing`` field: why a value of the report is None."""

from __future__ import annotations

from functools import lru_cache

from gpuwidget.model.messages import Message, message
from gpuwidget.model.terminal_text import clean_line
from gpuwidget.model.translation import translatable

_MAX_REASON = 150
_cached = lru_cache(maxsize=64)
"""A report of many GPUs has the same reason for many values, and making its text takes microseconds."""

UNANSWERED = message("unanswered", "the GPU did not answer in time")
GONE = message("gpu-gone", "the driver stopped listing the GPU during the run")
GAP = message("gap", "the driver reported it for too little of the run")
TOO_FEW_WINDOWS = message(
    "too-few-windows", "the driver's known measuring windows cover less than 90 % of the run"
)
CLOCKS_TOO_SHORT = message("too-short-for-clocks", "the run was shorter than the 2 s between two readings")
NO_COUNTER_VALUE = message("no-counter-value", "this counter returned no value")
RESERVED_UNKNOWN = message("reserved-unknown", "the memory that the driver reserves is unknown")
COUNTERS_RESET = message("counters-reset", "code in this run reset torch's counters")
SEGMENTS_NOT_READ = message(
    "segments-not-read", "not searched, because the run did not change torch's memory"
)
NO_SEGMENTS = message("no-segments", "torch's list of segments does not agree with its counters")
RECORDED_TORCH = message("recorded-torch", "a recording does not contain torch's memory")
NOT_A_TORCH_DEVICE = message("not-a-torch-device", "torch does not see this GPU")
RECORDED_PROCESSES = message("recorded-processes", "the recorded processes are not this machine's")
FOREIGN_PIDS = message(
    "foreign-pids", "the driver lists process ids of the host, and this container has different ones"
)
NO_PROCESS_SIZES = message("no-process-sizes", "the driver does not report how much each process holds")
WORKER_GPU_SHARED = message(
    "worker-gpu-shared",
    "other processes used the same GPU, and the driver's values can't be divided between them",
)
WORKER_NOT_REPORTED = message("worker-not-reported", "the process did not report it: see gpuwidget.rank()")
NO_TORCH_IN_WORKER = message("no-torch-in-worker", "torch did not use CUDA on this GPU in the process")
EXIT_CODE_NOT_REPORTED = message("exit-code-not-reported", "the process did not report its exit code")
NO_LAST_REPORT = message(
    "no-last-report",
    "the process ended without a last report, for example because it was killed or called os._exit",
)
WORKER_TOO_SHORT = message("worker-too-short", "the process was observed for too short a time")
WORKER_IN_NOTEBOOK = message(
    "worker-in-notebook", "the worker runs inside the notebook's process, whose values the GPUs' rows show"
)
NO_GPU_MEMORY = message("no-gpu-memory", "the process held no memory on a GPU")
NO_PROCESS_LIST = message("no-process-list", "the driver does not list processes")


def not_read_by_worker(reason: str | None) -> Message:
    """Return the reason for values that a Dask worker could not read; ``reason`` is what it reported."""
    text = translatable("the worker could not read it from its driver")
    if reason is not None:
        text = translatable("{text}: {reason}", text=text, reason=clean_line(reason, _MAX_REASON))
    return message("not-read-by-worker", text, reason=reason)


@_cached
def too_short(seconds: float) -> Message:
    """Return the reason to give if the run was shorter than ``seconds``."""
    return message("too-short", "the run was shorter than {seconds:g} s", seconds=seconds)


def not_sampled(seconds: float) -> Message:
    """Return the reason to give if gpuwidget's threads could not run for this many seconds."""
    return message(
        "not-sampled-for",
        "gpuwidget could not run for {seconds:.1f} s: the code held Python's interpreter, or the process was "
        "stopped",
        seconds=seconds,
    )


@_cached
def too_short_for_windows(window_s: float) -> Message:
    """Return the reason to give if the run was shorter than two of the driver's utilization windows."""
    text = translatable(
        "the run was shorter than two of the driver's windows of {window_s:g} s", window_s=window_s
    )
    return message("too-short-for-windows", text, window_s=window_s)


@_cached
def no_counter_window(window_s: float | None) -> Message:
    """Return the reason to give if no complete window of the hardware counters lay inside the run.

    ``window_s`` is the length of the longest window that was read, or None if none was read.
    """
    text = (
        translatable("no measuring window of the hardware counters was inside the run")
        if window_s is None
        else translatable(
            "no measuring window of the hardware counters (up to {window_s:.1f} s) was inside the run",
            window_s=window_s,
        )
    )
    return message("no-counter-window", text, window_s=window_s)


@_cached
def few_counter_windows(window_s: float | None) -> Message:
    """Return the reason to give if the hardware counters' windows cover too little of the run.

    ``window_s`` is the length of the longest window that was read, or None if none was read.
    """
    text = (
        translatable("the measuring windows of the hardware counters inside the run cover too little of it")
        if window_s is None
        else translatable(
            "the measuring windows of the hardware counters (up to {window_s:.1f} s) inside the run cover "
            "too little of it",
            window_s=window_s,
        )
    )
    return message("few-counter-windows", text, window_s=window_s)
