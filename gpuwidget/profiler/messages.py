"""Texts of a report's ``time.reason``: why shares or GPU activities of lines are uncertain or missing."""

from __future__ import annotations

from gpuwidget.model.messages import Message, Template, message
from gpuwidget.model.translation import capitalized, translatable

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
GIL_BLOCKED = Template(
    "gil-blocked",
    "for {percent:percent} of the time, samples were delayed by an operation that held Python's interpreter "
    "(GIL) or by this machine; that time may belong to the code that ran just before",
)
TOO_SHORT = message("too-short-for-lines", "the run was too short to measure where its time went")
CELL_NOT_SEEN = message("cell-not-seen", "no sample found the cell's own code running")
GIL_BLOCKED_THROUGHOUT = message(
    "gil-blocked-throughout",
    "most of the time, single operations held Python's interpreter (GIL) or this machine was "
    "busy, so there are too few samples to show where the time went",
)

# The following texts are complete sentences. They are not passed to sentence().
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
PARTLY_NOT_SAMPLED = Template(
    "partly-not-sampled", "For {percent:percent} of the run, the running code could not be sampled."
)
HIDDEN_WORK = Template(
    "hidden-work",
    "In up to {percent:percent} of the run, the GPU's counters show work that queries of its stream missed. "
    "No GPU activity is shown for lines that this may affect.",
)
QUERIES_CONTRADICT_COUNTERS = Template(
    "queries-contradict-counters",
    "{gpu}: its default stream had work in {queried:percent} of the queries, but its counters show that the "
    "GPU was busy for {counters:percent} of the time: {why}.",
)
CAUSES = {
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
"""Why the stream queries and the counters of a GPU disagree: the texts ``why`` by the parameter ``cause``."""


def sentence(clause: Message) -> Message:
    """Return ``clause`` as a whole sentence with the same id."""
    return message(
        clause.id, translatable("{clause}.", clause=capitalized(clause)), **clause.message_id.params
    )
