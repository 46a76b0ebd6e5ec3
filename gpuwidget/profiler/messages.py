"""The texts of a report's ``time.reason``: what limits the lines' shares and their GPU activity."""

from __future__ import annotations

from collections.abc import Iterable

from gpuwidget.measure.notes import gpu_name
from gpuwidget.model import units
from gpuwidget.model.report import GpuReport
from gpuwidget.profiler.counter_windows import MatchedMeans

# Clauses that sentences() turns into sentences.
TAKE_TURNS = (
    "some lines take turns faster than can be told while Python's interpreter, or this machine, is busy, and "
    "are shown as one"
)
GPU_FLICKERS = (
    "the GPU's state changes faster than can be told while Python's interpreter, or this machine, is busy"
)
TOO_SHORT = "the run was too short to tell where its time went"
CELL_NOT_SEEN = "the cell's own code was not seen at work"
GIL_BLOCKED_THROUGHOUT = (
    "most of the time single operations kept Python's interpreter, or this machine was busy, so that there "
    "were too few looks to tell where it went"
)

# Whole sentences that joined() combines.
UNCHECKED = (
    "GPU activity per line is not shown: the run was too short to check it against the GPU's counters, or "
    "they returned no value."
)
BY_WINDOWS = "The GPU's activity is told from the driver's windows instead."

_SHORT_KERNELS = (
    "kernels of a few microseconds end before a query sees them, or the work ran on other streams or in "
    "other processes"
)
_OTHER_STREAMS = "other streams, libraries or processes worked on it"
_STREAM_WORK = "copies and waits for other streams are work of a stream, but not of the GPU's compute engines"


def sentences(reasons: Iterable[str]) -> str | None:
    """Return ``reasons``, which are clauses, as whole sentences, or None if there are no reasons."""
    return joined(*(f"{reason[0].upper()}{reason[1:]}." for reason in reasons))


def joined(*texts: str | None) -> str | None:
    """Return the sentences that are not None as one text, or None if all are None."""
    return " ".join(filter(None, texts)) or None


def gil_blocked(percent: float) -> str:
    """Return the clause that samples waited long for the GIL in ``percent`` of the time."""
    return (
        f"{units.percent(percent)} of the time looks had to wait long, for one operation that kept "
        "Python's interpreter or for this machine: it may be that of what ran just before"
    )


def not_sampled(percent: float) -> str:
    """Return the sentence that sampling failed in ``percent`` of the run."""
    return f"For {units.percent(percent)} of the run its code could not be looked at."


def hidden_work(percent: float) -> str:
    """Return the sentence that lines lack an activity, as queries missed work in ``percent`` of the run."""
    return (
        f"The GPU's counters show work in up to {units.percent(percent)} of the run that queries of its "
        "stream did not see: no activity is given for lines that this work could change."
    )


def contradiction(gpu: GpuReport, means: MatchedMeans, cpu: float | None) -> str:
    """Return the sentence that the stream queries and the counters of ``gpu`` disagree.

    ``cpu`` is the CPU time of this process in percent of one core, or None if unknown.
    """
    why = _STREAM_WORK
    if means.counters > means.stream:
        # Launching kernels keeps a CPU core busy.
        launching = cpu is None or cpu >= means.counters - means.stream
        why = _SHORT_KERNELS if launching else _OTHER_STREAMS
    return (
        f"{gpu_name(gpu)}: its default stream had work in {units.percent(means.queried)} of the queries and "
        f"the GPU's counters say {units.percent(means.counters)} busy: {why}."
    )
