"""What is known about an out-of-memory error: the device, the memory's holders, and what rises with each
step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from gpuwidget.heap.retention import Role
from gpuwidget.model.report import Holder
from gpuwidget.model.torch_state import Segment, Stage
from gpuwidget.model.translation import translatable

RetentionKind = Literal["item", "sum", "carry", "retain_graph"]
"""``item``: a container keeps something from each step. ``sum``: a tensor is the sum of all steps. ``carry``:
a tensor is computed from its value in the step before. ``retain_graph``: a graph is kept after
``backward()``."""


@dataclass(frozen=True, slots=True)
class OomHolder:
    """A holder on the device, with the blocks that are freed when the holder is released."""

    holder: Holder
    blocks: frozenset[int]
    """Addresses of the blocks."""
    before: frozenset[int]
    """Addresses of the blocks allocated before the failing cell began. Only freeing these blocks helps when
    the cell is run again."""
    variables: tuple[str, ...] | None
    """The variables to delete to release the holder. None if there are none, if one of them is not a plain
    variable, if the failing code may read one of them, or if not all variables were searched."""
    is_error: bool
    """Whether the holder is the traceback of the error itself."""
    is_exception: bool = False
    """Whether the holder is a variable whose value is an exception. Its traceback keeps the memory."""


@dataclass(frozen=True, slots=True)
class OtherMemory:
    """A process or a library with memory on the device."""

    name: str
    bytes: int
    is_process: bool
    """Whether this is a process, which the user can shut down."""


@dataclass(frozen=True, slots=True)
class LibraryPool:
    """The cache of another library in this process."""

    name: str
    free: int
    """Bytes that :attr:`flush` would release."""
    flush: str
    """The statement that empties the library's cache."""


@dataclass(frozen=True, slots=True)
class CodeLine:
    """A statement of the user's code."""

    where: str
    """The cell or file: ``In [3]`` or ``train.py``."""
    line: int
    statement: str

    @property
    def text(self) -> str:
        """The statement and its place, in one line."""
        return translatable(
            "{where}, line {line}: {statement}", where=self.where, line=self.line, statement=self.statement
        )


@dataclass(frozen=True, slots=True)
class Retention:
    """Something that the failed code keeps from each step, so that memory rises step by step."""

    name: str
    """What keeps it, such as ``losses`` or ``losses in train()``."""
    kind: RetentionKind
    at: CodeLine
    """The statement that keeps it."""
    bytes: int
    blocks: frozenset[int]
    """Addresses of the blocks that would be free without it."""
    in_graphs: bool
    """Whether autograd graphs keep most of the memory, and not the results themselves."""
    is_scalar: bool
    """Whether the results have one element, as losses have."""
    items: int
    """Number of results that are kept; 0 if unknown."""
    operations: int
    """Number of operations in the autograd graph, if this is a single tensor."""
    is_tensor: bool
    """Whether the results are tensors themselves, and not objects that contain tensors."""
    change: str | None
    """The statement to write instead; None if there is no such statement."""
    clear: str | None
    """The statement that frees what is kept now; None if nothing has to be done."""
    is_hook: bool
    """Whether the statement is in a hook of a module."""
    is_used_in_backward: bool
    """Whether the failed code calls ``backward()`` on what is kept."""
    calls_backward: bool
    """Whether the failed code calls ``backward()`` at all."""
    retains_graph: bool
    """Whether the failed code calls ``backward(retain_graph=True)``."""


@dataclass(frozen=True, slots=True)
class OomFacts:
    """An out-of-memory error and the state of the device, in bytes. Unknown values are None."""

    device: str | None
    """``cuda:N``."""
    requested: int | None
    needed: int | None
    """Upper limit of the requested bytes: the message contains only a rounded figure."""
    total: int | None
    free: int | None
    """Bytes that were free on the device at the error."""
    limit: int | None
    """torch's memory limit for this process, or None if there is no limit."""
    allocated: int | None
    reserved: int | None
    fragmented: int | None
    """Bytes reserved by torch that are neither in tensors nor releasable."""
    at_start: int | None
    """Bytes allocated when the failing cell began."""
    older_now: int | None
    """The part of :attr:`at_start` that is still allocated."""
    segments: tuple[Segment, ...]
    held: tuple[OomHolder, ...]
    others: tuple[OtherMemory, ...]
    pools: tuple[LibraryPool, ...]
    expandable: bool | None
    """Whether torch already uses expandable segments."""
    setting: str
    """The environment variable that enables expandable segments."""
    stage: Stage = "other"
    uses: tuple[tuple[Role, int], ...] = ()
    """Bytes of the blocks with a known holder, by what they are used for."""
    cell_uses: tuple[tuple[Role, int], ...] = ()
    """The part of :attr:`uses` that the failing cell allocated."""
    retained: tuple[Retention, ...] = ()
    """What the failing code keeps from each step, the largest first."""
    gradients: tuple[tuple[str, frozenset[int]], ...] = ()
    """Modules and optimizers by name, and the addresses of their gradients from before the failing cell."""
    freed: int = 0
    """Bytes that were allocated at the error and have been freed since."""
    comprehension: CodeLine | None = None
    """The comprehension in which the error was raised, if any. It has kept all of its results."""

    def use(self, role: Role, *, in_cell: bool = False) -> int:
        """Return the bytes that are used for ``role``."""
        return dict(self.cell_uses if in_cell else self.uses).get(role, 0)

    @property
    def available(self) -> int | None:
        """Bytes that torch could still have reserved when the error occurred."""
        if self.free is None:
            return None
        below_limit = self._below_limit
        return self.free if below_limit is None else min(self.free, below_limit)

    @property
    def is_limited(self) -> bool:
        """Whether torch's limit for this process left less memory than was free on the device."""
        return self.limit is not None and self.available != self.free

    @property
    def cell_growth(self) -> int | None:
        """Bytes that the failing cell had allocated in addition to :attr:`at_start`."""
        if self.allocated is None or self.at_start is None:
            return None
        return max(0, self.allocated - self.at_start)

    @property
    def _below_limit(self) -> int | None:
        if self.limit is None or self.reserved is None:
            return None
        return max(0, self.limit - self.reserved)

    def would_fit(self, freed: frozenset[int] = frozenset(), *, own: int = 0, others: int = 0) -> bool:
        """Return whether the request would have fit if the ``freed`` blocks and further bytes had been free.

        ``own`` is the number of further bytes that torch in this process gives back, which also leaves more
        room below torch's limit. ``others`` is the number of bytes that other libraries or processes give
        back, which does not affect that limit.
        """
        if self.needed is None:
            return False
        # Count only what freeing these blocks adds. Memory that is already releasable now was freed after the
        # error, so it was still in use when the error occurred.
        since, largest_since = _free_after(self.segments, frozenset())
        released, largest = _free_after(self.segments, freed)
        if largest >= self.needed > largest_since:
            return True
        if self.free is None:
            return False
        own += released - since
        below_limit = self._below_limit
        free = self.free + own + others
        return (free if below_limit is None else min(free, below_limit + own)) >= self.needed


@dataclass(frozen=True, slots=True)
class CellShare:
    """Memory on the device that one cell allocated and that has not been freed."""

    cell: int | None
    source: str
    bytes: int


@dataclass(frozen=True, slots=True)
class OomContext:
    """Everything that the card shows about an out-of-memory error, without references to user objects."""

    facts: OomFacts
    gpu: str | None
    """The GPU's name, such as ``GPU 0 H200``, or None if the driver does not report it."""
    cells: tuple[CellShare, ...]
    recent: tuple[tuple[float, int | None], ...]
    """Memory in use on the whole GPU during the last minute, as pairs (seconds ago, bytes). Empty if there
    are no samples."""
    unknown: tuple[str, ...]
    """Sentences that state what is unknown and why."""


def _free_after(segments: Sequence[Segment], freed: frozenset[int]) -> tuple[int, int]:
    """Return the bytes that torch could release and the size of its largest free range if the blocks at the
    addresses ``freed`` were free."""
    released = largest = 0
    for segment in segments:
        returnable = segment.returnable(freed)
        released += returnable
        if returnable < segment.size and segment.shared and not segment.small:
            largest = max([largest, *(size for _, size in segment.free_ranges(freed))])
    return released, largest
