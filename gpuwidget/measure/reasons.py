"""The reasons in a GPU's ``missing`` field: why a value of the report is None."""

from __future__ import annotations

from gpuwidget.model.messages import Template, message

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

NOT_READ_BY_WORKER = Template(
    "not-read-by-worker",
    (
        "the worker could not read it from its driver: {reason}",
        "the worker could not read it from its driver",
    ),
)
"""For values that a Dask worker could not read. ``reason`` is what it reported."""
TOO_SHORT = Template("too-short", "the run was shorter than {seconds:g} s")
NOT_SAMPLED_FOR = Template(
    "not-sampled-for",
    "gpuwidget could not run for {seconds:.1f} s: the code held Python's interpreter, or the process was "
    "stopped",
)
TOO_SHORT_FOR_WINDOWS = Template(
    "too-short-for-windows", "the run was shorter than two of the driver's windows of {window_s:g} s"
)
NO_COUNTER_WINDOW = Template(
    "no-counter-window",
    (
        "no measuring window of the hardware counters (up to {window_s:.1f} s) was inside the run",
        "no measuring window of the hardware counters was inside the run",
    ),
)
"""``window_s`` is the length of the longest window that was read, as in the next template."""
FEW_COUNTER_WINDOWS = Template(
    "few-counter-windows",
    (
        "the measuring windows of the hardware counters (up to {window_s:.1f} s) inside the run cover too "
        "little of it",
        "the measuring windows of the hardware counters inside the run cover too little of it",
    ),
)
