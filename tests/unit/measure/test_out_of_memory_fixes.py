"""Tests of out-of-memory errors: the message formats of all versions of torch, and the fixes offered."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpuwidget.measure.oom.facts import CodeLine, LibraryPool, OomFacts, OomHolder, OtherMemory, Retention
from gpuwidget.measure.oom.fix_templates import OomFix
from gpuwidget.measure.oom.fixes import advise, contradicts_itself
from gpuwidget.measure.oom.message import RoundedBytes, parse_message
from gpuwidget.model.report import Holder, HolderKind
from gpuwidget.model.torch_state import Segment
from gpuwidget.model.units import GIB, MIB
from gpuwidget.pytorch.oom_error import is_out_of_memory

TORCH_1 = (
    "CUDA out of memory. Tried to allocate 20.00 MiB (GPU 1; 10.76 GiB total capacity; 9.47 GiB already "
    "allocated; 62.44 MiB free; 9.83 GiB reserved in total by PyTorch) If reserved memory is >> allocated "
    "memory try setting max_split_size_mb to avoid fragmentation.  See documentation for Memory Management "
    "and PYTORCH_CUDA_ALLOC_CONF"
)
TORCH_2_3 = (
    "CUDA out of memory. Tried to allocate 22.78 GiB. GPU 0 has a total capacity of 31.47 GiB of which "
    "12.73 GiB is free. Including non-PyTorch memory, this process has 18.73 GiB memory in use. Of the "
    "allocated memory 9.08 GiB is allocated by PyTorch, and 9.35 GiB is reserved by PyTorch but "
    "unallocated. If reserved but unallocated memory is large try setting "
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for "
    "Memory Management  (https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)"
)
TORCH_2_10 = (
    "CUDA out of memory. Tried to allocate 86.00 MiB. GPU 0 has a total capacity of 23.64 GiB of which 0 "
    "bytes is free. Process 2086283 has 419.48 MiB memory in use. Including non-PyTorch memory, this "
    "process has 8.04 GiB memory in use. Process 2797307 has 17179869184.00 GiB memory in use. Process 9 "
    "has 14.85 GiB memory in use. 10.00 GiB allowed; Of the allocated memory 7.63 GiB is allocated by "
    "PyTorch, with 46.00 MiB allocated in private pools (e.g., CUDA Graphs), and 40.11 MiB is reserved by "
    "PyTorch but unallocated. If reserved but unallocated memory is large try setting "
    "PYTORCH_ALLOC_CONF=expandable_segments:True to avoid fragmentation."
)
ASYNC = (
    "Allocation on device 2 would exceed allowed memory. (out of memory)\nCurrently allocated     : 9.43 "
    "GiB\nRequested               : 640.00 MiB\nDevice limit            : 11.59 GiB\nFree (according to "
    "CUDA): 7.12 MiB\nPyTorch limit (set by user-supplied memory fraction)\n                        : "
    "17179869184.00 GiB"
)
REPLICA = f"Caught OutOfMemoryError in replica 0 on device 0.\nOriginal Traceback\n{TORCH_2_3}"


def parsed(message: str) -> dict[str, Any]:
    """Return the GPU index, the sizes in MiB and the other processes that are parsed from a message."""
    found = parse_message(message)
    sizes = {
        name: getattr(found, name)
        for name in (
            *("requested", "total", "free", "limit", "process", "allocated", "private"),
            *("unallocated", "reserved"),
        )
    }
    return {name: round(size.middle / MIB, 2) for name, size in sizes.items() if size is not None} | {
        "index": found.index,
        "others": [(pid, round(size.middle / MIB, 2)) for pid, size in found.others],
    }


def mib(gib: float) -> float:
    """Convert GiB to MiB, with the same rounding as in ``parsed``."""
    return round(gib * 1024, 2)


def test_messages_before_torch_2() -> None:
    """The oldest message format, which has the sizes in parentheses, is parsed."""
    assert parsed(TORCH_1) == {
        "index": 1,
        "requested": 20.0,
        "total": mib(10.76),
        "allocated": mib(9.47),
        "free": 62.44,
        "reserved": mib(9.83),
        "others": [],
    }


@pytest.mark.parametrize("message", [TORCH_2_3, REPLICA, TORCH_2_3.replace("CUDA out", "HIP out")])
def test_messages_since_torch_2(message: str) -> None:
    """The message format since torch 2 is parsed, also for AMD GPUs and inside another error's message."""
    assert is_out_of_memory(message)
    assert parsed(message) == {
        "index": 0,
        "requested": mib(22.78),
        "total": mib(31.47),
        "free": mib(12.73),
        "process": mib(18.73),
        "allocated": mib(9.08),
        "unallocated": mib(9.35),
        "others": [],
    }


def test_optional_figures_of_a_message() -> None:
    """The sizes of other processes, of a process limit and of private pools are parsed.

    A process whose size is unknown is omitted.
    """
    assert parsed(TORCH_2_10) == {
        "index": 0,
        "requested": 86.0,
        "total": mib(23.64),
        "free": 0.0,
        "process": mib(8.04),
        "limit": mib(10.0),
        "allocated": mib(7.63),
        "private": 46.0,
        "unallocated": 40.11,
        "others": [(2086283, 419.48), (9, mib(14.85))],
    }


def test_the_asynchronous_allocator() -> None:
    """The message of the cudaMallocAsync allocator is parsed.

    If no limit is set, the result contains no limit.
    """
    assert is_out_of_memory(ASYNC)
    assert parsed(ASYNC) == {
        "index": 2,
        "allocated": mib(9.43),
        "requested": 640.0,
        "total": mib(11.59),
        "free": 7.12,
        "others": [],
    }


def test_other_errors() -> None:
    """Only messages of a GPU that has run out of memory count as out-of-memory errors."""
    assert is_out_of_memory("CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported")
    assert is_out_of_memory("RuntimeError: CUDA out of memory.")
    for message in (
        "",
        "DefaultCPUAllocator: not enough memory: you tried to allocate 1073741824 bytes.",
        "MPS backend out of memory (MPS allocated: 1 GB)",
        "CUDA error: an illegal memory access was encountered",
        "out of memory",
    ):
        assert not is_out_of_memory(message)
    assert parsed("CUDA error: out of memory") == {"index": None, "others": []}


def test_rounding_is_a_range() -> None:
    """A rounded size is parsed as the range of values that round to it.

    If an exact counter lies in that range, the counter is used instead.
    """
    free = parse_message("of which 7.50 GiB is free").free
    assert free is not None
    assert (free.low, free.high) == (8_047_694_971, 8_058_432_389)
    assert free.exact(8_050_000_000) == 8_050_000_000
    assert free.exact(8_000_000_000) == free.middle
    assert free.exact(None) == free.middle
    assert (free.at_least(8_050_000_000), free.at_least(8_000_000_000)) == (8_050_000_000, free.low)
    assert parse_message("of which 17 bytes is free").free == RoundedBytes(17, 17)


# -- fixes --------------------------------------------------------------------------------------------


def segment(*blocks: tuple[int, int, bool], size: int = 0, expandable: bool = False) -> Segment:
    """Return a segment with these blocks, each given as address, size and whether it is in use."""
    return Segment(size or sum(block[1] for block in blocks), expandable, True, blocks)


def oom_holder(
    kind: HolderKind,
    name: str,
    blocks: tuple[int, ...],
    size: int,
    *,
    before: bool = True,
    needed: bool = False,
    is_error: bool = False,
) -> OomHolder:
    """Return a holder of these blocks.

    ``before``: whether the blocks were allocated before the failing cell. ``needed``: whether the failing
    code reads the variable.
    """
    holder = Holder(kind, (name,), "Tensor", "cuda:0", size, None)
    variables = None if needed or kind != "variable" else (name,)
    return OomHolder(holder, frozenset(blocks), frozenset(blocks if before else ()), variables, is_error)


def facts(**changes: Any) -> OomFacts:
    """Return the facts of an error on an H200 with 140 GiB: 8 GiB were requested and 2 GiB were free."""
    defaults = OomFacts(
        device="cuda:0",
        requested=8 * GIB,
        needed=8 * GIB + 5 * MIB,
        total=140 * GIB,
        free=2 * GIB,
        limit=None,
        allocated=60 * GIB,
        reserved=62 * GIB,
        fragmented=2 * GIB,
        at_start=50 * GIB,
        older_now=50 * GIB,
        segments=(
            segment((100, 30 * GIB, True)),
            segment((200, 10 * GIB, True)),
            segment((300, 6 * GIB, True)),
            segment((400, 5 * GIB, True)),
            segment((500, 9 * GIB, True), (600, 2 * GIB, False)),
        ),
        held=(),
        others=(),
        pools=(),
        expandable=False,
        setting="PYTORCH_ALLOC_CONF",
    )
    return replace(defaults, **changes)


def kinds(**changes: Any) -> list[str]:
    """Return the kinds of the offered fixes in the order in which they are offered."""
    return [fix.kind for fix in advise(facts(**changes)).enough]


def only(kind: str, **changes: Any) -> OomFix:
    """Return the offered fix of this kind, and assert that there is exactly one."""
    (fix,) = [fix for fix in advise(facts(**changes)).enough if fix.kind == kind]
    return fix


def outcome(fix: OomFix) -> tuple[str, str | None, int | None]:
    """Return a fix's kind, its code and the bytes that it frees."""
    return fix.kind, fix.code, fix.bytes


def less(**changes: Any) -> OomFix | None:
    """Return the suggestion that reduces the memory that the failing code needs, if there is one."""
    found = advise(facts(**{"stage": "forward", **changes})).unsure
    assert len(found) < 2
    return found[0] if found else None


def test_a_batch_that_fits() -> None:
    """The fix suggests a batch that is small enough for the available memory.

    The cell used 10 GiB and requested 8 GiB more. Only 12 GiB are available: the 10 GiB that the cell used
    and 2 GiB of free memory. The fix therefore suggests half the batch.
    """
    fix = less()
    assert fix is not None
    assert fix.kind == "batch"
    assert "2 times smaller" in fix.text
    assert "2 parts" in fix.text
    for figure in ("10.0 GiB", "8.0 GiB more", "12.0 GiB"):
        assert figure in fix.why[0]
    smaller = less(at_start=56 * GIB, older_now=56 * GIB, free=0)
    assert smaller is not None
    assert "4 parts" in smaller.text
    # 6 of the 10 GiB are the optimizer's states, which a smaller batch leaves as they are.
    states = less(cell_uses=(("activations", 4 * GIB), ("optimizer states", 6 * GIB)))
    assert states is not None
    assert "3 parts" in states.text


def test_no_batch_is_small_enough() -> None:
    """No smaller batch is offered if the memory at the start is unknown or if too little was free at the
    start."""
    assert less(at_start=60 * GIB, older_now=60 * GIB, free=0) is None
    assert less(at_start=None) is None
    assert less(at_start=60 * GIB, older_now=60 * GIB, free=100 * MIB) is None


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"stage": "optimizer"}, "optimizer"),
        ({"stage": "parameters"}, "parameters"),
        ({"stage": "backward", "cell_uses": (("gradients", 8 * GIB),)}, "backward"),
        ({"stage": "backward", "cell_uses": (("gradients", 1 * GIB),)}, "batch"),
        ({"stage": "other"}, "tensor"),
        ({"stage": "other", "cell_uses": (("activations", 1 * GIB),)}, "batch"),
    ],
)
def test_a_smaller_batch_only_for_a_step(changes: dict[str, Any], kind: str) -> None:
    """A smaller batch is suggested only if the memory of a step did not fit, and never as certain.

    Optimizer states, parameters, gradients and one big tensor have their own suggestions.
    """
    found = less(**changes)
    assert found is not None
    assert found.kind == kind
    assert "batch" not in kinds(**changes)


def retention(**changes: Any) -> Retention:
    """Return a list of 37 losses that keeps 30 GiB in their graphs."""
    return replace(
        Retention(
            name="losses",
            kind="item",
            at=CodeLine("In [3]", 4, "losses.append(loss)"),
            bytes=30 * GIB,
            blocks=frozenset((100,)),
            in_graphs=True,
            is_scalar=True,
            items=37,
            operations=0,
            is_tensor=True,
            change="losses.append(loss.item())",
            clear=None,
            is_hook=False,
            is_used_in_backward=False,
            calls_backward=True,
            retains_graph=False,
        ),
        **changes,
    )


AT = "In [3], line 4: losses.append(loss)"
KEEPS = ("losses keeps 37 results with their graphs", "about 830 MiB each")
NUMBER = "Keep the number, not the graph"
NO_RETAIN_GRAPH = "Call backward() without retain_graph=True"


@pytest.mark.parametrize(
    ("changes", "text", "why"),
    [
        ({}, NUMBER, KEEPS),
        (
            {"calls_backward": False},
            NUMBER,
            (*KEEPS, 'run the loop in "with torch.no_grad():" if you need no gradients'),
        ),
        ({"retains_graph": True}, NUMBER, (*KEEPS, NO_RETAIN_GRAPH)),
        (
            {"is_used_in_backward": True},
            "Call backward() on each result in the loop; the gradients add up",
            KEEPS,
        ),
        (
            {"is_tensor": False},
            "Keep loss.item() instead of a loss, tensor.detach().cpu() instead of a tensor",
            KEEPS,
        ),
        (
            {"is_scalar": False, "is_hook": True},
            "Keep it without its graph (.detach()), on the CPU (.cpu()) if it is large",
            (*KEEPS, "remove the hook (handle.remove()) when you no longer need it"),
        ),
        (
            {"in_graphs": False},
            "Keep on the CPU (.cpu()) what you need later, and delete the rest",
            ("losses keeps 37 results on the GPU", KEEPS[1]),
        ),
        (
            {"kind": "sum"},
            NUMBER,
            ("losses is the sum of 37 results and keeps the graph of each",),
        ),
        (
            {"kind": "carry"},
            "Detach it from the earlier steps before each step",
            ("losses is computed from its value in the step before, so it keeps the graphs of all steps",),
        ),
        (
            {"kind": "retain_graph", "retains_graph": True},
            NO_RETAIN_GRAPH,
            ("losses still keeps its graph, because of retain_graph=True",),
        ),
    ],
)
def test_what_is_kept_from_each_step(changes: dict[str, Any], text: str, why: tuple[str, ...]) -> None:
    """If something keeps more with each step, this is the only advice: what keeps it, how much, in which
    line, and what to write instead. Nothing else is said to be enough, because it would only delay the
    error."""
    old = oom_holder("variable", "old", (200,), 10 * GIB)
    advice = advise(facts(held=(old,), retained=(retention(**changes),)))
    assert advice.first == [
        OomFix("retention", text, "losses.append(loss.item())", 30 * GIB, (*why, AT)),
    ]
    assert (advice.enough, advice.unsure, advice.rises) == ([], [], True)


def test_what_is_kept_is_too_little() -> None:
    """What keeps only little memory is not named as the cause."""
    small = retention(bytes=5 * GIB, blocks=frozenset((400,)))
    assert advise(facts(retained=(small,))).first == []


def test_gradients_from_before_the_cell() -> None:
    """Freeing old gradients is offered if they are enough, and the failing code isn't accumulating them."""
    found = {"gradients": (("net", frozenset((200,))),), "stage": "forward"}
    fix = only("gradients", **found)
    assert outcome(fix) == ("gradients", "net.zero_grad(set_to_none=True)", 10 * GIB)
    assert "gradients of net" in fix.text
    assert len(fix.why) == 1
    assert "gradients" not in kinds(**found | {"stage": "backward"})
    assert "gradients" not in kinds(gradients=(("net", frozenset((400,))),))


def test_variables_to_delete() -> None:
    """The fix deletes as few variables as possible, the largest ones first.

    It does not delete variables that the failing code reads.
    """
    model = oom_holder("variable", "model", (100,), 30 * GIB, needed=True)
    cache, old, small = (
        oom_holder("variable", "cache", (300,), 6 * GIB),
        oom_holder("variable", "old", (400,), 5 * GIB),
        oom_holder("variable", "fresh", (200,), 10 * GIB, before=False),
    )
    delete = only("delete", held=(model, cache, old, small))
    assert outcome(delete) == ("delete", "%gpu free cache old --yes", 11 * GIB)
    assert "cache and old" in delete.text
    assert len(delete.why) == 1
    assert only("delete", free=3 * GIB, held=(model, cache, old)).code == "%gpu free cache --yes"
    assert "delete" not in kinds(held=(model, cache))


def test_notebook_references() -> None:
    """If old cell results are large enough, a fix frees them.

    The frames of the error are freed by a separate first step.
    """
    out = oom_holder("notebook", "Out[3]", (200,), 10 * GIB)
    error = oom_holder("notebook", "the last error", (500,), 9 * GIB, before=False, is_error=True)
    free = only("free", held=(error, out))
    assert outcome(free) == ("free", "%gpu free --yes", 10 * GIB)
    assert "Out[3]" in free.text
    assert "free" not in kinds(held=(error,))
    assert advise(facts(held=(out,))).first == []
    (frames,) = advise(facts(held=(error,))).first
    assert outcome(frames) == ("frames", "%gpu free --yes", 9 * GIB)
    assert [why for why in frames.why if "%debug" in why] == list(frames.why)


def test_notebook_references_and_a_variable() -> None:
    """If neither old results nor a variable alone frees enough memory, the fix frees both."""
    out = oom_holder("notebook", "Out[3]", (400,), 5 * GIB)
    cache = oom_holder("variable", "cache", (300,), 6 * GIB)
    assert kinds(held=(out, cache), free=0) == ["delete"]
    assert outcome(only("delete", held=(out, cache), free=0)) == (
        "delete",
        "%gpu free cache --yes",
        11 * GIB,
    )


def test_tensors_in_a_shared_segment() -> None:
    """Deleting a tensor that shares its segment helps only if the request fits into the tensor's block.

    In an expandable segment, deleting the tensor helps larger requests too.
    """
    shared = (segment((200, 10 * GIB, True), (201, 1 * MIB, True)),)
    cache = oom_holder("variable", "cache", (200,), 10 * GIB)
    assert "delete" in kinds(segments=shared, held=(cache,))
    assert "delete" not in kinds(segments=shared, held=(cache,), requested=11 * GIB, needed=11 * GIB)
    pages = (segment((200, 10 * GIB, True), (201, 1 * MIB, True), expandable=True),)
    assert "delete" in kinds(segments=pages, held=(cache,), requested=11 * GIB, needed=11 * GIB)


def test_adjacent_blocks_join() -> None:
    """Deleting two tensors is offered if the request fits into their blocks and the free gap between them."""
    row = (segment((1, 3 * GIB, True), (2, 3 * GIB, False), (3, 3 * GIB, True), (4, 1 * GIB, True)),)
    one, two = oom_holder("variable", "one", (1,), 3 * GIB), oom_holder("variable", "two", (3,), 3 * GIB)
    assert only("delete", segments=row, held=(one, two)).code == "%gpu free one two --yes"


def test_private_pools() -> None:
    """Freeing tensors in a CUDA graph's private pool is not offered: other requests can't use that pool."""
    pool = Segment(11 * GIB, False, False, ((1, 10 * GIB, True), (2, 1 * GIB, True)))
    assert "delete" not in kinds(segments=(pool,), held=(oom_holder("variable", "x", (1,), 10 * GIB),))
    whole = Segment(10 * GIB, False, False, ((1, 10 * GIB, True),))
    assert "delete" not in kinds(segments=(whole,), held=(oom_holder("variable", "x", (1,), 10 * GIB),))


def test_segments_for_small_tensors() -> None:
    """Freeing a tensor in a segment for small tensors does not help a large request.

    If the segment is expandable, freeing it does help, because whole pages of the segment can be released.
    """
    row = Segment(12 * GIB, True, True, ((1, 10 * GIB, True), (2, 2 * GIB, True)), small=True)
    one = oom_holder("variable", "x", (1,), 10 * GIB)
    assert "delete" not in kinds(segments=(replace(row, expandable=False),), held=(one,))
    assert "delete" in kinds(segments=(row,), held=(one,))


def test_memory_freed_since_the_error() -> None:
    """Running the cell again is offered if enough memory was freed after the error.

    For example, the frames of an older error may have been freed.
    """
    again = only("again", older_now=40 * GIB)
    assert (again.code, again.bytes, len(again.why)) == (None, 10 * GIB, 1)
    assert "again" not in kinds(older_now=48 * GIB)
    free_again = (segment((100, 30 * GIB, False)),)
    assert kinds(segments=free_again) == []


def test_expandable_segments() -> None:
    """Turning on expandable segments is offered if they are off and the request fits into the whole free
    pages."""
    pieces = tuple(segment((n, 300 * MIB, True), (n + 1, 1700 * MIB, False)) for n in range(0, 12, 2))
    fix = only("expandable", fragmented=9 * GIB, segments=pieces)
    assert fix.code == "%env PYTORCH_ALLOC_CONF=expandable_segments:True"
    assert fix.bytes == 9 * GIB
    assert "expandable" not in kinds(fragmented=8 * GIB, segments=pieces)
    assert "expandable" not in kinds(fragmented=9 * GIB, segments=pieces, expandable=True)
    assert "expandable" not in kinds(fragmented=None, segments=pieces)
    # Pages are 20 MiB and aligned, so a free block of 39 MiB may not contain a whole page.
    crumbs = tuple(segment((n, 1 * MIB, True), (n + 1, 39 * MIB, False)) for n in range(0, 600, 2))
    assert "expandable" not in kinds(fragmented=11 * GIB, segments=crumbs)


def test_a_process_limit() -> None:
    """If this process's memory limit is too low, raising it is offered; ending other processes is not
    offered."""
    limited: dict[str, Any] = {"limit": 64 * GIB, "free": 70 * GIB}
    other = OtherMemory("ann: train.py", 50 * GIB, True)
    assert kinds(**limited, others=(other,)) == ["limit"]
    assert only("limit", **limited).code == "torch.cuda.set_per_process_memory_fraction(0.51, 'cuda:0')"
    cache = oom_holder("variable", "cache", (300,), 6 * GIB + 5 * MIB)
    freed = (segment((300, 6 * GIB + 6 * MIB, True)),)
    assert kinds(**limited, held=(cache,), segments=freed) == ["limit", "delete"]
    # With only 2 GiB free on the GPU, a higher limit does not help.
    assert "limit" not in kinds(limit=64 * GIB)


def test_other_processes() -> None:
    """If several other processes hold enough memory, there are two fixes: shut down the smallest of these
    processes, or the largest one.

    The CUDA context of this process is listed among the other memory, but no fix suggests freeing it.
    """
    others = (
        OtherMemory("notebook a.ipynb", 40 * GIB, True),
        OtherMemory("notebook b.ipynb", 7 * GIB, True),
        OtherMemory("notebook c.ipynb", 20 * GIB, True),
        OtherMemory("process 5", 1 * GIB, True),
        OtherMemory("CUDA context and other libraries", 30 * GIB, False),
    )
    found = [fix for fix in advise(facts(others=others)).enough if fix.kind == "process"]
    assert [(fix.kind, fix.bytes) for fix in found] == [("process", 7 * GIB), ("process", 40 * GIB)]
    assert ["notebook b.ipynb" in found[0].text, "notebook a.ipynb" in found[1].text] == [True, True]


def test_the_pool_of_a_library() -> None:
    """Flushing a library's memory pool is offered only if enough of the pool's memory is free."""
    pool = LibraryPool("CuPy's pool", 7 * GIB, "cupy.get_default_memory_pool().free_all_blocks()")
    assert only("pool", pools=(pool,)).code == pool.flush
    assert "pool" not in kinds(pools=(replace(pool, free=6 * GIB),))


def test_no_fix_without_figures() -> None:
    """No fix is offered if the requested memory or the free memory is unknown."""
    assert kinds(needed=None, requested=None) == []
    assert kinds(free=None, segments=()) == []


def test_contradictory_figures() -> None:
    """If the request would fit according to the reported sizes, no fix is offered."""
    assert contradicts_itself(facts(free=9 * GIB))
    assert kinds(free=9 * GIB) == []
    assert not contradicts_itself(facts())
