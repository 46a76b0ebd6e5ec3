"""Tests of memory allocations per source line, with hand-written snapshots in torch's format."""

from __future__ import annotations

from typing import Any

from gpuwidget.measure.line_allocations import (
    BACKWARD,
    LIBRARY,
    LineAllocations,
    RunRequests,
    allocations_by_line,
)
from gpuwidget.model.report import LineMemory
from gpuwidget.pytorch.allocation_history import addresses_with_frames

CELL = "/tmp/ipykernel_7/123.py"
BODY = "/tmp/ipykernel_7/456.py"
MODEL = "/home/ann/work/model.py"
LINEAR = "/env/lib/python3.11/site-packages/torch/nn/modules/linear.py"
AUTOGRAD = "/env/lib/python3.11/site-packages/torch/autograd/__init__.py"
LAUNCHER = "/env/lib/python3.11/site-packages/ipykernel_launcher.py"


class Code:
    """A fake of the user's code, in which only one cell, the body of its magic and one module are user files.

    The cell has one line above the body of its magic, and two lines above the code that %%time runs.
    """

    def name(self, filename: str) -> str | None:
        return {CELL: "In[5]", BODY: "In[5]", MODEL: "model.py"}.get(filename)

    def cell_line(self, filename: str, line: int, timed: int | None = None) -> int | None:
        if filename == CELL:
            return line if timed is None else timed + 2
        return line + 1 if filename == BODY else None

    def source(self, filename: str, line: int) -> str:
        return f"source of {line}"


def frames(*places: tuple[str, int, str]) -> list[dict[str, Any]]:
    """Return a stack of the main thread with these frames, the innermost frame first."""
    return [{"filename": f, "line": n, "name": name} for f, n, name in (*places, (LAUNCHER, 18, "<module>"))]


def cell(line: int) -> list[dict[str, Any]]:
    """Return the stack of a call into torch from this line of the cell."""
    return frames((LINEAR, 134, "forward"), (CELL, line, "<module>"))


def event(action: str, address: int, size: int, at: float, stack: list[Any] | None = None) -> dict[str, Any]:
    entry = {"action": action, "addr": address, "size": size, "stream": 0, "time_us": at}
    return entry if stack is None else {**entry, "frames": stack}


def alloc(address: int, size: int, at: float, stack: list[Any] | None = None) -> dict[str, Any]:
    return event("alloc", address, size, at, stack)


def free(address: int, size: int, at: float) -> list[dict[str, Any]]:
    """Return the two events that torch records for a free: requested and completed."""
    return [event("free_requested", address, size, at), event("free_completed", address, size, at)]


def read(*traces: list[dict[str, Any]], segments: tuple[Any, ...] = (), **options: Any) -> LineAllocations:
    return allocations_by_line({"segments": list(segments), "device_traces": list(traces)}, Code(), **options)


def short(lines: LineAllocations) -> list[tuple[str | None, int | None, str, int, int, int | None]]:
    """Return a tuple per line: file, number, device, and bytes allocated, in use at the end and in use at the
    peak."""
    return [(x.file, x.line, x.device, x.allocated, x.held, x.at_peak) for x in lines.lines]


def test_the_contents_of_a_line() -> None:
    """Each line is reported with its file, number, function and source.

    The report also contains the line of the cell from which the function was called.
    """
    trace = [alloc(1, 512, 1.0, frames((LINEAR, 9, "forward"), (MODEL, 31, "step"), (CELL, 7, "<module>")))]
    assert read(trace).lines == (
        LineMemory("model.py", 31, "step", "source of 31", "In[5] line 7", "cuda:0", 512, 512, 512),
    )


def test_lines_below_a_time_magic() -> None:
    """Lines that %%time runs under another file name are reported with the cell's name and line numbers."""
    magic = ("/env/lib/python3.11/site-packages/IPython/core/magics/execution.py", 1431, "time")
    timed, cells = ("<timed exec>", 4, "<module>"), (CELL, 1, "<module>")
    own = alloc(1, 512, 1.0, frames((LINEAR, 9, "forward"), timed, magic, cells))
    called = alloc(2, 1024, 2.0, frames((MODEL, 31, "step"), timed, magic, cells))
    first, second = read([own, called]).lines
    assert (first.file, first.line, first.called_from) == ("model.py", 31, "In[5] line 6")
    assert (second.file, second.line, second.function) == ("In[5]", 6, None)


def test_lines_below_a_capture_magic() -> None:
    """Lines that %%capture runs as a nested cell are reported with the line numbers of the cell.

    The line of the magic does not count as the line that called them.
    """
    magic = ("/env/lib/python3.11/site-packages/IPython/core/magics/execution.py", 1431, "capture")
    outer = (magic, (CELL, 1, "<module>"))
    own = alloc(1, 512, 1.0, frames((LINEAR, 9, "forward"), (BODY, 4, "<module>"), *outer))
    called = alloc(2, 1024, 2.0, frames((BODY, 2, "step"), (BODY, 5, "<module>"), *outer))
    first, second = read([own, called]).lines
    assert (first.file, first.line, first.function, first.called_from) == ("In[5]", 3, "step", "In[5] line 6")
    assert (second.file, second.line, second.called_from) == ("In[5]", 5, None)


def test_the_cells_own_lines_have_no_function() -> None:
    """Code at the top level of a cell is reported without a function and without a caller.

    Older versions of IPython name the frame of such code ``<cell line: 3>``.
    """
    trace = [alloc(1, 512, 1.0, frames((CELL, 3, "<cell line: 3>")))]
    (line,) = read(trace).lines
    assert (line.file, line.line, line.function, line.called_from) == ("In[5]", 3, None, None)


def test_a_peak_inside() -> None:
    """A line's memory at the peak is the size of its blocks that are in use at that time, even if the blocks
    are freed later."""
    trace = [
        alloc(1, 100, 1.0, cell(1)),
        alloc(2, 5000, 2.0, cell(2)),
        alloc(3, 700, 3.0, cell(3)),  # the peak: 5800 bytes
        *free(2, 5000, 4.0),
        alloc(4, 3000, 5.0, cell(4)),
        *free(3, 700, 6.0),
    ]
    assert short(read(trace)) == [
        ("In[5]", 2, "cuda:0", 5000, 0, 5000),
        ("In[5]", 3, "cuda:0", 700, 0, 700),
        ("In[5]", 1, "cuda:0", 100, 100, 100),
        ("In[5]", 4, "cuda:0", 3000, 3000, 0),
    ]


def test_blocks_from_before_make_room() -> None:
    """If a block from before the run is freed during the run, it belongs to no line, but the freed
    bytes are taken into account when the time of the peak is determined."""
    trace = [
        alloc(1, 1000, 1.0, cell(1)),  # the peak: 1000 bytes more than at the start
        *free(77, 4000, 2.0),
        alloc(2, 3000, 3.0, cell(2)),  # now 0 bytes more than at the start
    ]
    assert short(read(trace)) == [
        ("In[5]", 1, "cuda:0", 1000, 1000, 1000),
        ("In[5]", 2, "cuda:0", 3000, 3000, 0),
    ]


def test_a_peak_at_the_start_belongs_to_no_line() -> None:
    """If the memory in use was highest at the start of the run, every line has 0 bytes at the peak."""
    assert short(read([*free(77, 4000, 1.0), alloc(1, 3000, 2.0, cell(1))])) == [
        ("In[5]", 1, "cuda:0", 3000, 3000, 0)
    ]


def test_each_allocation_at_a_reused_address_counts_for_its_line() -> None:
    """If the allocator reuses an address, each allocation counts for the line that caused it."""
    trace = [
        alloc(1, 100, 1.0, cell(1)),
        *free(1, 100, 2.0),
        alloc(1, 200, 3.0, cell(2)),
        *free(1, 200, 4.0),
        alloc(1, 50, 5.0, cell(1)),
    ]
    assert short(read(trace)) == [
        ("In[5]", 2, "cuda:0", 200, 0, 200),
        ("In[5]", 1, "cuda:0", 150, 50, 0),
    ]


def test_only_allocations_count() -> None:
    """Segment, snapshot, out-of-memory and unknown events do not count as allocations."""
    trace = [
        event("segment_alloc", 1, 20 * 1024**2, 1.0, cell(1)),
        alloc(1, 100, 2.0, cell(1)),
        event("segment_map", 9, 4096, 3.0),
        event("snapshot", 0, 100, 4.0),
        {"action": "oom", "device_free": 5, "size": 10, "stream": 0, "time_us": 5.0},
        event("something new", 1, 100, 6.0),
    ]
    assert short(read(trace)) == [("In[5]", 1, "cuda:0", 100, 100, 100)]


def test_each_device_has_its_own_peak() -> None:
    """The time of the peak is determined separately for each device. A line is reported once per device."""
    first = [alloc(1, 100, 1.0, cell(1)), *free(1, 100, 2.0), alloc(2, 60, 5.0, cell(2))]
    second = [alloc(3, 40, 1.5, cell(1)), alloc(4, 50, 6.0, cell(2))]
    assert short(read(first, [], second)) == [
        ("In[5]", 1, "cuda:0", 100, 0, 100),
        ("In[5]", 2, "cuda:2", 50, 50, 50),
        ("In[5]", 1, "cuda:2", 40, 40, 40),
        ("In[5]", 2, "cuda:0", 60, 60, 0),
    ]


def test_what_backward_allocates() -> None:
    """Memory that torch's backward threads allocate without Python frames belongs to the line of
    backward()."""
    root = frames((AUTOGRAD, 90, "_make_grads"), (AUTOGRAD, 340, "backward"), (CELL, 4, "<module>"))
    hook = [{"filename": LINEAR, "line": 8, "name": "hook"}, {"filename": LINEAR, "line": 1, "name": "run"}]
    trace = [
        alloc(1, 10, 1.0, []),
        alloc(2, 512, 2.0, root),
        alloc(3, 1000, 3.0, []),
        alloc(4, 40, 4.0, hook),  # a library's hook, called on autograd's thread
        alloc(5, 2000, 5.0),
        alloc(6, 70, 6.0, cell(5)),
        alloc(7, 80, 7.0, []),
    ]
    other = [alloc(8, 300, 5.5, [])]  # the same backward() also allocates on a second device
    assert short(read(trace, other)) == [
        ("In[5]", 4, "cuda:0", 3512, 3512, 3512),
        ("In[5]", 4, "cuda:1", 300, 300, 300),
        (None, None, "cuda:0", 90, 90, 90),
        ("In[5]", 5, "cuda:0", 70, 70, 70),
        (None, None, "cuda:0", 40, 40, 40),
    ]
    assert [x.source for x in read(trace, other).lines if x.file is None] == [BACKWARD, LIBRARY]


def test_a_run_within_a_longer_recording() -> None:
    """If the allocation history also covers the time before or after the run, only events during the run
    count."""
    trace = [alloc(1, 100, 9.0, cell(1)), alloc(2, 20, 10.0, cell(2)), *free(1, 100, 11.0), alloc(3, 5, 21.0)]
    assert short(read(trace, since_us=10.0, until_us=20.0)) == [("In[5]", 2, "cuda:0", 20, 20, 20)]


def test_lines_that_add_up_to_the_counter_miss_nothing() -> None:
    """If the allocations of all lines add up to torch's counter of allocated bytes, no memory is reported as
    missing."""
    lines = read([alloc(1, 100, 1.0, cell(1))], requests={0: RunRequests(100, 100, 100)})
    assert (lines.missing, lines.peak_unknown) == ({}, ())


def test_a_history_that_has_lost_its_beginning() -> None:
    """If the history has lost its oldest events, blocks that are still in use are attributed to their lines.

    The remaining lost bytes are reported as missing, and the memory at the peak is reported as unknown.
    """
    trace = [alloc(3, 50, 8.0, cell(3)), *free(3, 50, 9.0)]
    block = {"state": "active_allocated", "frames": cell(1)}
    segment = {
        "device": 0,
        "address": 1,
        "blocks": [
            {**block, "size": 512, "requested_size": 400, "address": 1},
            {**block, "size": 512, "requested_size": 500, "address": 513},  # from an earlier recording
            {"state": "active_allocated", "size": 512, "requested_size": 9, "address": 1025, "frames": []},
            {"state": "inactive", "size": 512, "requested_size": 0, "address": 1537, "frames": cell(2)},
        ],
    }
    lost: dict[str, Any] = {"segments": (segment,), "recorded_before": frozenset({513})}
    lines = read(trace, requests={0: RunRequests(10_000, 909, 4000)}, **lost)
    assert short(lines) == [("In[5]", 1, "cuda:0", 400, 400, None), ("In[5]", 3, "cuda:0", 50, 0, None)]
    assert (lines.missing, lines.peak_unknown) == ({0: 9550}, (0,))
    # If torch's own peak equals the highest value in the remaining history, the memory at the peak is known.
    lines = read(trace, requests={0: RunRequests(10_000, 909, 959)}, **lost)
    assert short(lines) == [("In[5]", 1, "cuda:0", 400, 400, 400), ("In[5]", 3, "cuda:0", 50, 0, 50)]
    assert (lines.missing, lines.peak_unknown) == ({0: 9550}, ())


def test_a_device_without_any_history() -> None:
    """If torch counted allocated memory but recorded no event for it, the memory is reported as missing."""
    assert read([], requests={1: RunRequests(100, 0, 100)}).missing == {1: 100}


def test_versions_of_torch_differ() -> None:
    """Snapshots of older torch versions, which have no times, frames or block addresses, are read too.

    An empty snapshot contains no lines.
    """
    bare = [{"action": "alloc", "addr": 1, "size": 100}, {"action": "free_completed", "addr": 1, "size": 100}]
    assert short(read(bare)) == [(None, None, "cuda:0", 100, 0, 100)]
    assert allocations_by_line({}, Code()) == LineAllocations((), {}, ())
    blocks = [
        {"size": 512, "state": "active_allocated", "frames": cell(1)},
        {"size": 1024, "state": "active_allocated", "frames": cell(1)},
    ]
    assert addresses_with_frames({"segments": [{"address": 10, "blocks": blocks}]}) == {10, 522}
