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
    "some lines alternate too fast to be told apart while Python's interpreter (GIL) or this "
    "machine is busy, and are shown as one",
)
GPU_FLICKERS = message(
    "gpu-flickers",
    "the GPU's state changes too fast to be measured while Python's interpreter (GIL) or this "
    "machine is busy",
)
TOO_SHORT = message("too-short-for-lines", "the run was too short to measure where its time went")
CELL_NOT_SEEN = message("cell-not-seen", "no sample found the cell's own code running")
GIL_BLOCKED_THROUGHOUT = message(
    "gil-blocked-throughout",
    "most of the time, single operations held Python's interpreter (GIL) or this machine was "
    "busy, so there are too few samples to show where the time went",
)

# The following two texts are complete sentences. They are not passed to sentence().
UNCHECKED = message(
    "activity-unchecked",
    "GPU activity per line is not shown: the run was too short to check it against the GPU's counters, or "
    "the counters returned no value.",
)
BY_WINDOWS = message(
    "activity-by-windows",
    "The GPU activity of each line is estimated from the GPU's counters, which return means over short "
    "periods.",
)

_CAUSES = {
    "short-kernels": (
        translatable(
            "kernels of a few microseconds end before a query sees them, or the work ran on "
            "other streams or in other processes"
        )
    ),
    "other-streams": translatable("other streams, libraries or processes used the GPU"),
    "stream-work": (
        translatable(
            "copies and waits for other streams count as work of a stream, but not of the "
            "GPU's compute engines"
        )
    ),
}


def sentence(clause: Message) -> Message:
    """Return ``clause`` as a whole sentence with the same id."""
    return Message(clause.id, clause.params, translatable("{clause}.", clause=capitalized(clause.text)))


def gil_blocked(percent: float) -> Message:
    """Return a clause which explains that single operations delayed samples in ``percent`` of the time."""
    text = translatable(
        "for {percent} of the time, samples were delayed by an operation that held Python's "
        "interpreter (GIL) or by this machine; that time may belong to the code that ran just "
        "before",
        percent=units.percent(percent),
    )
    return message("gil-blocked", text, percent=round(percent, 2))


def not_sampled(percent: float) -> Message:
    """Return a sentence which states that sampling failed in ``percent`` of the run."""
    text = translatable(
        "For {percent} of the run, the running code could not be sampled.", percent=units.percent(percent)
    )
    return message("partly-not-sampled", text, percent=round(percent, 2))


def hidden_work(percent: float) -> Message:
    """Return a sentence which explains why some lines have no GPU activity.

    The stream queries missed work in up to ``percent`` of the run.
    """
    text = translatable(
        "In up to {percent} of the run, the GPU's counters show work that queries of its stream missed. No "
        "GPU activity is shown for lines that this may affect.",
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
        "{gpu}: its default stream had work in {queried} of the queries, but its counters show that the GPU "
        "was busy for {counters} of the time: {cause}.",
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
