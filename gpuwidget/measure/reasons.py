"""The texts in a GPU's ``missing`` field: the reasons why a value in the report is None."""

from __future__ import annotations

UNANSWERED = "the GPU did not answer in time"
GAP = "the driver did not say it throughout the run"
TOO_FEW_WINDOWS = "less than nine tenths of the run lay in windows of the driver's that are known"
CLOCKS_TOO_SHORT = "the run was shorter than the 2 s between two readings of it"
NO_COUNTER_WINDOW = "no window of the hardware counters (0.5 s) lay inside the run"
FEW_COUNTER_WINDOWS = "the windows of the hardware counters (0.5 s) inside the run leave out too much of it"
NO_COUNTER_VALUE = "this counter gave no value"
RESERVED_UNKNOWN = "what the driver keeps for itself is not known"
COUNTERS_RESET = "code in this run reset torch's counters"
RECORDED_TORCH = "what torch holds here is no part of a recording"
NOT_A_TORCH_DEVICE = "torch does not see this GPU"


def too_short(seconds: float) -> str:
    """Return the reason that the run was shorter than ``seconds``."""
    return f"the run was shorter than {seconds:g} s"


def too_short_for_windows(window_s: float) -> str:
    """Return the reason that the run was shorter than two of the driver's utilization windows."""
    return f"the run was shorter than two of the driver's windows of {window_s:g} s"
