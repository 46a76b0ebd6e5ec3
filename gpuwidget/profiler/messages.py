"""Texts of a report's ``time.reason``: why shares or GPU activities of lines are uncertain or missing."""

from __future__ import annotations

from gpuwidget.measure.notes import gpu_name
from gpuwidget.model import units
from gpuwidget.model.messages import Message, message
from gpuwidget.model.report import GpuReport
from gpuwidget.model.translation import capitalized, translatable
from gpuwidget.profiler.counter_windows import MatchedMeans

# The following texts are clauses, like DefaultStreams.reason. sentence() turns each of them into a sentence.
TAKE_TURNS = message(
    "lines-take-turns",
    "some lines take turns faster than can be told while Python's interpreter, or this machine, is busy, and "
    "are shown as one",
)
GPU_FLICKERS = message(
    "gpu-flickers",
    "the GPU's state changes faster than can be told while Python's interpreter, or this machine, is busy",
)
TOO_SHORT = message("too-short-for-lines", "the run was too short to tell where its time went")
CELL_NOT_SEEN = message("cell-not-seen", "the cell's own code was not seen at work")
GIL_BLOCKED_THROUGHOUT = message(
    "gil-blocked-throughout",
    "most of the time single operations kept Python's interpreter, or this machine was busy, so that there "
    "were too few samples to tell where it went",
)

# The following two texts are complete sentences. They are not passed to sentence().
UNCHECKED = message(
    "activity-unchecked",
    "GPU activity per line is not shown: the run was too short to check it against the GPU's counters, or "
    "they returned no value.",
)
BY_WINDOWS = message("activity-by-windows", "The GPU's activity is told from the driver's windows instead.")

_CAUSES = {
    "short-kernels": (
        translatable(
            "kernels of a few microseconds end before a query sees them, or the work ran on "
            "other streams or in other processes"
        )
    ),
    "other-streams": translatable("other streams, libraries or processes worked on it"),
    "stream-work": (
        translatable(
            "copies and waits for other streams are work of a stream, but not of the GPU's compute engines"
        )
    ),
}


def sentence(clause: Message) -> Message:
    """Return ``clause`` as a whole sentence with the same id."""
    return Message(clause.id, clause.params, translatable("{clause}.", clause=capitalized(clause.text)))


def gil_blocked(percent: float) -> Message:
    """Return a clause which explains that single operations delayed samples in ``percent`` of the time."""
    text = translatable(
        "{percent} of the time samples were delayed by an operation that kept Python's "
        "interpreter or for this machine: it may be that of what ran just before",
        percent=units.percent(percent),
    )
    return message("gil-blocked", text, percent=round(percent, 2))


def not_sampled(percent: float) -> Message:
    """Return a sentence which states that sampling failed in ``percent`` of the run."""
    text = translatable(
        "For {percent} of the run its code could not be looked at.", percent=units.percent(percent)
    )
    return message("partly-not-sampled", text, percent=round(percent, 2))


def hidden_work(percent: float) -> Message:
    """Return a sentence which explains why some lines have no GPU activity.

    The stream queries missed work in up to ``percent`` of the run.
    """
    text = translatable(
        "The GPU's counters show work in up to {percent} of the run that queries of its "
        "stream did not see: no activity is given for lines that this work could change.",
        percent=units.percent(percent),
    )
    return message("hidden-work", text, percent=round(percent, 2))


def contradiction(gpu: GpuReport, means: MatchedMeans, cpu: float | None) -> Message:
    """Return a sentence which explains why the stream queries and the counters of ``gpu`` disagree.

    ``cpu`` is the CPU time of this process in percent of one core, or None if unknown.
    """
    cause = "stream-work"
    if means.counters > means.stream:
        # Short kernels explain the difference only if this process used enough CPU time to launch them.
        launching = cpu is None or cpu >= means.counters - means.stream
        cause = "short-kernels" if launching else "other-streams"
    text = translatable(
        "{gpu}: its default stream had work in {queried} of the queries and the GPU's "
        "counters say {counters} busy: {cause}.",
        gpu=gpu_name(gpu),
        queried=units.percent(means.queried),
        counters=units.percent(means.counters),
        cause=_CAUSES[cause],
    )
    return message(
        "queries-contradict-counters",
        text,
        gpu=gpu_name(gpu),
        queried=round(means.queried, 2),
        counters=round(means.counters, 2),
        cause=cause,
    )
