"""The texts of the changes that would have made a request fit, or that reduce the memory of the failing
code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from gpuwidget.model.messages import Sentences, fill

FixKind = Literal[
    "retention",
    "exception",
    "comprehension",
    "clear",
    "frames",
    "again",
    "limit",
    "free",
    "delete",
    "gradients",
    "expandable",
    "pool",
    "process",
    "batch",
    "optimizer",
    "parameters",
    "backward",
    "tensor",
]
_FREE = "%gpu free --yes"


@dataclass(frozen=True, slots=True)
class OomFix:
    """A change by the user."""

    kind: FixKind
    text: str
    """What to do, without a full stop."""
    code: str | None = None
    """The code to run or to write, or None if the change is not made by code."""
    bytes: int | None = None
    """Bytes that the change frees, or None if it frees no known number of bytes."""
    why: tuple[str, ...] = ()
    """The evidence and the limits, in a few words each."""


@dataclass(frozen=True, slots=True)
class OomFixTemplate:
    """A change without the values of its parameters. Call it with them."""

    kind: FixKind
    text: str
    why: tuple[str, ...] = ()
    code: str | None = None

    def __call__(
        self,
        /,
        *,
        size: int | None = None,
        code: str | None = None,
        also: Sequence[str] = (),
        **params: Any,
    ) -> OomFix:
        """Return the change, which frees ``size`` bytes. ``also`` is more evidence, ``code`` the code to
        run."""
        why = (*(fill(text, params) for text in self.why), *also)
        return OomFix(self.kind, fill(self.text, params), code or self.code, size, why)


# -- what rises with each step ---------------------------------------------------------------------------

NO_RETAIN_GRAPH = OomFixTemplate("retention", "Call backward() without retain_graph=True")
DETACH_FROM_STEPS = OomFixTemplate("retention", "Detach it from the earlier steps before each step")
BACKWARD_IN_LOOP = OomFixTemplate(
    "retention", "Call backward() on each result in the loop; the gradients add up"
)
KEEP_ITEMS = OomFixTemplate(
    "retention", "Keep loss.item() instead of a loss, tensor.detach().cpu() instead of a tensor"
)
KEEP_NUMBER = OomFixTemplate("retention", "Keep the number, not the graph")
KEEP_DETACHED = OomFixTemplate(
    "retention", "Keep it without its graph (.detach()), on the CPU (.cpu()) if it is large"
)
KEEP_ON_CPU = OomFixTemplate("retention", "Keep on the CPU (.cpu()) what you need later, and delete the rest")

KEEPS_ITS_GRAPH = Sentences("{name} still keeps its graph, because of retain_graph=True")
KEEPS_GRAPHS_OF_STEPS = Sentences(
    "{name} is computed from its value in the step before, so it keeps the graphs of all steps"
)
SUM_OF_RESULTS = Sentences("{name} is the sum of {items:,} results and keeps the graph of each")
SUM_OF_OPERATIONS = Sentences("{name} keeps the graphs of all steps, with {operations:,} operations")
KEEPS_RESULTS_WITH_GRAPHS = Sentences("{name} keeps {items:,} results with their graphs")
KEEPS_RESULTS = Sentences("{name} keeps {items:,} results on the GPU")
EACH = Sentences("about {each:memory} each")
REMOVE_HOOK = Sentences("remove the hook (handle.remove()) when you no longer need it")
NO_GRAD = Sentences('run the loop in "with torch.no_grad():" if you need no gradients')

EXCEPTION = OomFixTemplate(
    "exception",
    "Keep only the text of the exception",
    ("the traceback of {name} keeps the variables of all functions that it passed",),
)
COMPREHENSION = OomFixTemplate(
    "comprehension",
    "Use a loop that keeps only numbers (.item()) or tensors on the CPU (.detach().cpu())",
    ("the comprehension kept all of its results; Python freed them with the error",),
)
CLEAR = OomFixTemplate("clear", "Free what is kept now, before you try again")
FRAMES = OomFixTemplate(
    "frames",
    "Free this error's frames before you try again",
    ("%debug is not possible after that",),
    _FREE,
)

# -- what would have been enough -------------------------------------------------------------------------

AGAIN = OomFixTemplate(
    "again",
    "Run the cell again",
    ("freed since: memory from before this cell, such as an earlier error's frames",),
)
LIMIT = OomFixTemplate(
    "limit",
    "Raise this process's own limit from {limit:memory} to {raised:memory}",
    ("the GPU had {free:memory} free", "if your code sets the limit, change the number there"),
)
FREE_NOTEBOOK = OomFixTemplate("free", "Free what the notebook itself keeps ({names})", code=_FREE)
POOL = OomFixTemplate("pool", "Free the unused memory that {name} keeps")
EXPANDABLE = OomFixTemplate(
    "expandable",
    "Restart the kernel, and run this before torch is imported",
    ("torch reserves this memory in pieces that only expandable segments can join",),
)
DELETE = OomFixTemplate(
    "delete", "Free {names} if no longer needed", ("no use was found in the code that failed",)
)
DELETE_WITH_NOTEBOOK = OomFixTemplate(
    "delete",
    "Free {names} if no longer needed, and what the notebook itself keeps",
    ("no use was found in the code that failed",),
)
GRADIENTS = OomFixTemplate(
    "gradients",
    "Free the gradients of {name} if the optimizer has used them",
    ("from before this cell",),
)
PROCESS = OomFixTemplate("process", "Shut down {name} if no longer needed")

# -- what reduces the memory of the failing code ---------------------------------------------------------

OPTIMIZER = OomFixTemplate(
    "optimizer",
    "Use an optimizer with smaller states (8-bit Adam, SGD without momentum) or a smaller data type, or "
    "train fewer parameters",
    (
        "the optimizer was creating its states: {states:memory} so far, for {parameters:memory} of "
        "parameters",
        "a smaller batch doesn't change this",
    ),
)
PARAMETERS = OomFixTemplate(
    "parameters",
    "Use a smaller data type (bfloat16 halves float32) or a smaller model",
    (
        "the model's parameters were being created or moved: {parameters:memory} so far",
        "a smaller batch doesn't change this",
    ),
)
TENSOR = OomFixTemplate(
    "tensor", "Compute the tensor in parts, use a smaller data type, or keep it on the CPU"
)
BACKWARD = OomFixTemplate(
    "backward",
    "Use a smaller data type, or train fewer parameters",
    (
        "backward() was creating the gradients: {gradients:memory} so far, for {parameters:memory} of "
        "parameters",
        "a smaller batch doesn't change this",
    ),
)
BATCH = OomFixTemplate(
    "batch",
    "Make the batch {parts} times smaller, or process it in {parts} parts (gradient accumulation)",
    (
        "the step had {step:memory} and requested {requested:memory} more, but only {room_for_step:memory} "
        "was available to it",
        "enough up to the point of the error, if memory grows with the batch",
        "mixed precision and activation checkpointing reduce a step's memory too",
    ),
)
