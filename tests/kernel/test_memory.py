"""The holders of GPU memory in a real kernel, with the real torch and a fake allocator."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers_kernel import Kernel

pytestmark = pytest.mark.usefixtures("needs_torch")

TESTS = Path(__file__).parent.parent
SETUP = f"""
import sys, torch
sys.path.insert(0, {str(TESTS)!r})
from helpers_allocator import StandInGpu
sys.path.remove({str(TESTS)!r})
gpu = StandInGpu(torch)
gpu.install()
"""


@pytest.fixture
def kernel(start_kernel: Callable[..., Kernel]) -> Kernel:
    """Return a kernel with gpuwidget loaded and a stand-in GPU in use. Its next cell is In[1]."""
    kernel = start_kernel(GPUWIDGET_SOURCE="none")
    kernel.setup(SETUP)
    kernel.setup("%load_ext gpuwidget\nimport gpuwidget")
    return kernel


def holders(kernel: Kernel, names: str = "kind, names, bytes, cell") -> Any:
    """Return these fields of each holder,
    and assert that the holders' bytes add up to the allocated bytes."""
    fields = ", ".join(f"h.{name.strip()}" for name in names.split(","))
    assert kernel.value("sum(h.bytes for h in gpuwidget.holders()) == gpu.allocated") == "True"
    return eval(kernel.value(f"[({fields}) for h in gpuwidget.holders()]"))


def test_variables_results_and_errors(kernel: Kernel) -> None:
    """Variables, results in Out and the frames of the last error are listed as holders,
    with their names and the cells that allocated the memory."""
    kernel.ok("x = gpu.empty(3000)\ny = x[1:]")
    kernel.ok("gpu.empty(1000)")
    kernel.run("def fail(data):\n    1 / 0\nfail(gpu.empty(2000))")
    assert holders(kernel) == [
        ("variable", ("x", "y"), 12288, 1),
        ("notebook", ("the last error's traceback",), 8192, 3),
        ("notebook", ("Out[2]", "_", "_2"), 4096, 2),
    ]


def test_a_result_that_is_also_a_variable(kernel: Kernel) -> None:
    """If a result is also a variable, it is listed as that variable.
    %gpu free does not release it and explains why."""
    kernel.ok("x = gpu.empty(1000)\nx")
    assert holders(kernel) == [("variable", ("x", "Out[1]", "_", "_1"), 4096, 1)]
    displayed = kernel.ok("%gpu free").displayed
    assert displayed.startswith("There is nothing to free.\nNot freed, because the variable")
    assert displayed.endswith(": Out[1] (x).")


def test_free_lists_and_frees(kernel: Kernel) -> None:
    """%gpu free lists the results and errors that hold memory.
    With --yes, it releases them and frees torch's cache."""
    kernel.ok("kept = gpu.empty(100)")
    kernel.ok("gpu.empty(1_000_000)")
    kernel.ok("'a result of another kind'")
    kernel.run("def fail(data):\n    raise ValueError(data)\nfail(gpu.empty(2_000_000))")
    listed = kernel.ok("%gpu free").displayed
    assert listed == (
        "%gpu free --yes would release:\n"
        "  the last error's traceback: 7.6 MiB\n"
        "  Out[2], __, _2: 3.8 MiB\n"
        "This also deletes: %debug and %tb of the last error, Out[2]."
    )
    assert kernel.value("gpu.allocated") == "12000768"
    freed = kernel.ok("%gpu free --yes").displayed
    released, by_torch, deleted = freed.splitlines()
    assert released == "Released 11 MiB of tensors."
    assert by_torch.startswith("Freed on the GPU according to torch: 12 MiB.")
    assert deleted == "Also deleted: %debug and %tb of the last error, Out[2]."
    assert kernel.value("gpu.allocated") == "512"
    assert kernel.value("sorted(Out), _3, hasattr(sys, 'last_value')") == (
        "([3], 'a result of another kind', False)"
    )
    assert "No traceback" in kernel.ok("%tb").text
    assert kernel.ok("%gpu free").displayed == "There is nothing to free."
    assert kernel.ok("7").result == "7"
    assert kernel.value("_") == "7"


def test_garbage_that_is_not_collected_yet(kernel: Kernel) -> None:
    """%gpu free lists memory to which no name leads, because --yes frees it if it is garbage."""
    kernel.ok("import gc; gc.disable()")
    kernel.ok("cycle = [gpu.empty(2_000_000)]; cycle.append(cycle); del cycle")
    assert kernel.ok("%gpu free").displayed == (
        "%gpu free --yes would release:\n"
        "  memory to which no name leads, if Python has not collected it yet: up to 7.6 MiB"
    )
    assert kernel.ok("%gpu free --yes").displayed.startswith("Released 7.6 MiB of tensors.")
    assert kernel.ok("%gpu free").displayed == "There is nothing to free."


def test_free_by_name(kernel: Kernel) -> None:
    """%gpu free deletes only the named variables. If one of the names is unknown, it deletes nothing."""
    kernel.ok("x = gpu.empty(1000); y = gpu.empty(1000); z = x[1:]")
    ran = kernel.run("%gpu free y nonsense")
    assert re.match(r"Nothing was deleted, .*: nonsense\.", ran.reply["evalue"])
    assert kernel.value("gpu.allocated") == "8192"
    assert kernel.ok("%gpu free y").displayed.startswith("Deleted y. 4 KiB went back to torch's cache")
    assert kernel.ok("%gpu free x").displayed.startswith("Deleted x. This released none")
    assert kernel.value("'x' in globals(), 'y' in globals(), gpu.allocated") == "(False, False, 4096)"
    assert kernel.run("%gpu free _").reply["ename"] == "UsageError"


def test_free_by_name_without_counters(kernel: Kernel) -> None:
    """If torch's memory counters are incomplete,
    %gpu free reports that the amount of released memory is unknown."""
    kernel.ok("x = gpu.empty(1000)\ntorch.cuda.get_allocator_backend = lambda: 'cudaMallocAsync'")
    displayed = kernel.ok("%gpu free x").displayed
    assert displayed.startswith("Deleted x. Couldn't tell how much")
    assert "cudaMallocAsync" in displayed


def test_a_result_that_contains_a_variable(kernel: Kernel) -> None:
    """If a variable holds only a part of a result, %gpu free lists the result as one that it can release."""
    kernel.ok("x = gpu.empty(1000)\n[x, gpu.empty(2000)]")
    assert kernel.ok("%gpu free").displayed == (
        "%gpu free --yes would release:\n  Out[1], _, _1, the last result: 8 KiB\nThis also deletes: Out[1]."
    )


@pytest.mark.stops_errors
def test_free_if_the_search_fails(kernel: Kernel) -> None:
    """If the search for holders fails, %gpu free explains that in one sentence and releases nothing."""
    kernel.ok("gpu.empty(1000)")
    kernel.setup(
        "import gpuwidget.kernel.attribution.memory_holders as m\n"
        "def fail(shell): raise TypeError('unhashable')\nm.search = fail"
    )
    message = "Nothing was freed: gpuwidget could not find out what holds torch's memory."
    assert kernel.ok("%gpu free").displayed == kernel.ok("%gpu free --yes").displayed == message
    assert kernel.value("gpu.allocated, 1 in Out") == "(4096, True)"


def test_cells_that_still_hold_memory(kernel: Kernel) -> None:
    """%gpu memory --cells ranks the cells by the memory that they still hold,
    and shows each cell's first line."""
    kernel.ok("# a comment\nx = gpu.empty(1000)")
    kernel.ok("%%time\nmodel = gpu.move(torch.nn.Linear(100, 100))")
    kernel.ok("for _ in range(5): loss = gpu.empty(1000)")
    kernel.ok("x = None; y = gpu.empty(1000)")
    lines = [line.split() for line in kernel.ok("%gpu memory --cells").displayed.splitlines()]
    assert [(line[1], " ".join(line[2:])) for line in lines] == [
        ("[2]", "model = gpu.move(torch.nn.Linear(100, 100)) 40 KiB"),
        ("[3]", "for _ in range(5): loss = gpu.empty(1000) 4 KiB"),
        ("[4]", "x = None; y = gpu.empty(1000) 4 KiB"),
    ]


def test_nested_cells_and_a_missed_end(kernel: Kernel) -> None:
    """Memory that a nested cell allocates is attributed to the outer cell.
    If gpuwidget missed the end of a cell, it still attributes memory to the next cell."""
    inner = "get_ipython().run_cell('a = gpu.empty(1000)', store_history={stored})\n"
    kernel.ok(inner.format(stored=True) + inner.format(stored=False) + "b = gpu.empty(2000)")
    cells = dict(holders(kernel, "names[0], cell"))
    assert (cells["a"], cells["b"]) == (1, 1)
    hook = (
        "import inspect\nfrom gpuwidget.kernel import magics\n"
        "_, hook = magics._loaded._hooks[-1]\n"
        "assert inspect.unwrap(hook) == magics._loaded._running.after\n"
        "get_ipython().events.{}('post_run_cell', hook)\n"
    )
    kernel.ok(hook.format("unregister"))
    ran = kernel.ok(hook.format("register") + "c = gpu.empty(3000)\nget_ipython().displayhook.prompt_count")
    assert dict(holders(kernel, "names[0], cell"))["c"] == int(ran.result or 0)


def test_losses_collected_across_cells(kernel: Kernel) -> None:
    """Tensors in a list that grows over several cells are attributed to the cells that created them,
    even if these cells also freed memory."""
    kernel.ok("losses, weight = [], gpu.empty(4).requires_grad_()")
    step = "y = gpu.empty({n})\nlosses.append((weight[:1] * y).sum())\ndel y"
    kernel.ok(step.format(n=1000))
    kernel.ok(step.format(n=2000) + "\ntemporary = gpu.empty(10)\ndel temporary")
    lines = [line.split() for line in kernel.ok("%gpu memory --cells").displayed.splitlines()]
    assert [(line[1], " ".join(line[-2:])) for line in lines] == [
        ("[3]", "8 KiB"),
        ("[2]", "4 KiB"),
        ("[1]", "512 B"),
    ]
    assert ("variable", ("losses",), 4096 + 8192, 3) in holders(kernel)
    text = kernel.ok("%gpu memory").displayed
    assert "losses: 12 KiB of its memory is saved" in text


def test_memory_allocated_before_loading(start_kernel: Callable[..., Kernel]) -> None:
    """Memory that was allocated before gpuwidget was loaded is listed on a separate line."""
    kernel = start_kernel(GPUWIDGET_SOURCE="none")
    kernel.setup(SETUP)
    kernel.ok("x = gpu.empty(1000)")
    kernel.ok("%load_ext gpuwidget")
    kernel.ok("import gpuwidget\ny = gpu.empty(2000)")
    lines = kernel.ok("%gpu memory --cells").displayed.splitlines()
    assert [" ".join(line.split()) for line in lines] == [
        "In [3] import gpuwidget 8 KiB",
        "from before gpuwidget was loaded 4 KiB",
    ]


def test_the_report_lists_what_a_cell_left_behind(kernel: Kernel) -> None:
    """A watched cell's report lists only the holders of memory that this cell allocated and did not free."""
    kernel.ok("before = gpu.empty(5000)")
    ran = kernel.ok("%%gpuwatch\nx = gpu.empty(1000)\ngpu.empty(7)\ntemporary = gpu.empty(9)\ndel temporary")
    report = ran.report
    assert report["holders"] == [
        {"kind": "variable", "names": ["x"], "type": "Tensor", "device": "cuda:0", "bytes": 4096, "cell": 2}
    ]
    assert re.search(
        "<th scope='row'[^>]*>x \\(Tensor\\)<td>4\N{NO-BREAK SPACE}KiB", ran.cards[0]["text/html"]
    )
    ran = kernel.ok("%%gpuwatch\nbefore += 1")
    assert ran.report["holders"] == []


def test_a_search_that_leaves_out_objects(kernel: Kernel) -> None:
    """If a watched cell's memory has no known holder, and the search left out objects, the report has a note
    about this, with the note's id."""
    kernel.ok("import gpuwidget.kernel.attribution.memory_holders as m\nm._REPORT_TIME_LIMIT_S = 0")
    report = kernel.ok("%%gpuwatch --lines\nbox = [[[gpu.empty(1000)]]]").report
    assert [holder["kind"] for holder in report["holders"]] == ["unknown"]
    ids = [one["id"] for one in report["note_ids"]]
    assert len(ids) == len(report["notes"])
    assert "reached a limit" in report["notes"][ids.index("holder-search-limit")]


def test_no_search_without_allocations(kernel: Kernel) -> None:
    """After a watched cell that allocates nothing, gpuwidget does not search the variables."""
    kernel.ok("x = gpu.empty(1000)")
    kernel.setup("import gpuwidget.kernel.attribution.memory_holders as m\nm.search = None")
    ran = kernel.ok("%%gpuwatch\nx += 1")
    assert ran.report["holders"] == []


def test_without_cuda(start_kernel: Callable[..., Kernel]) -> None:
    """If torch is not imported or CUDA is not initialized,
    %gpu memory and %gpu free explain that in one sentence."""
    kernel = start_kernel(GPUWIDGET_SOURCE="none")
    kernel.ok("%load_ext gpuwidget")
    for command in ("%gpu memory", "%gpu free --yes"):
        assert kernel.ok(command).displayed.endswith("because torch is not loaded.")
    kernel.ok("import torch")
    for command in ("%gpu memory", "%gpu free"):
        assert "because CUDA is not initialized" in kernel.ok(command).displayed
    assert kernel.value("torch.cuda.is_initialized()") == "False"


def test_unknown_options(kernel: Kernel) -> None:
    """An unknown option is reported as an error in one line, with the usage."""
    ran = kernel.run("%gpu memory --all")
    assert ran.reply["evalue"].startswith(
        "'%gpu memory --all' is not a command.\n%gpu memory          what holds"
    )
    assert kernel.run("%gpu free --no").reply["evalue"].startswith("'%gpu free --no' is not a command.")


def test_unloading_and_reloading(kernel: Kernel) -> None:
    """Memory is attributed to cells only while the extension is loaded.
    Memory that was allocated before the extension is loaded again is attributed to no cell."""
    kernel.ok("x = gpu.empty(1000)")
    kernel.ok("%unload_ext gpuwidget")
    kernel.ok("y = gpu.empty(2000)")
    assert holders(kernel, "names, cell") == [(("y",), None), (("x",), None)]
    kernel.ok("%load_ext gpuwidget")
    kernel.ok("z = gpu.empty(3000)")
    assert holders(kernel, "names, cell") == [(("z",), 5), (("y",), None), (("x",), None)]


def test_an_interrupted_search_keeps_nothing_alive(kernel: Kernel) -> None:
    """If %gpu memory is interrupted, it keeps none of the user's objects alive:
    deleting a variable frees the variable's memory."""
    kernel.ok("import gpuwidget.heap.reachability as s\nx, reachable = [gpu.empty(1000)], s.reachable")
    kernel.setup("def stop(*_):\n    raise KeyboardInterrupt\ns.reachable = stop")
    assert kernel.run("%gpu memory").reply["ename"] == "KeyboardInterrupt"
    kernel.setup("s.reachable = reachable")
    kernel.ok("del x")
    assert kernel.value("gpu.allocated") == "0"


def test_an_unhashable_class(kernel: Kernel) -> None:
    """If the class of an object is unhashable, gpuwidget still finds the other holders."""
    odd = "class Meta(type):\n    def __eq__(a, b): return a is b\nclass Odd(metaclass=Meta): pass\n"
    kernel.ok(odd + "odd = Odd()\nx = gpu.empty(1000)")
    assert holders(kernel) == [("variable", ("x",), 4096, 1)]


@pytest.mark.stops_errors
def test_a_failing_search_is_not_repeated_after_every_cell(kernel: Kernel) -> None:
    """If the search for tensor storages fails, it is repeated only after new allocations,
    and the memory is still attributed to cells."""
    kernel.setup(
        "import gpuwidget.heap.find_holders as c\ncalls = []\n"
        "def fail(*a, **k):\n    calls.append(1)\n    raise ValueError\nc.find_storages = fail"
    )
    kernel.ok("x = gpu.empty(1000)")
    kernel.ok("1 + 1")
    kernel.ok("y = gpu.empty(2000)")
    assert kernel.value("len(calls)") == "2"
    assert holders(kernel) == [("variable", ("y",), 8192, 3), ("variable", ("x",), 4096, 1)]


def test_html_is_escaped(kernel: Kernel) -> None:
    """Names, types and source lines are escaped in the HTML of %gpu memory."""
    kernel.ok("globals()['<img src=x onerror=alert(1)>'] = gpu.empty(10)  # <script>alert(1)</script>")
    for command in ("%gpu memory", "%gpu memory --cells"):
        bundle = next(m.content["data"] for m in kernel.ok(command).messages if m.type == "display_data")
        assert "<img" not in bundle["text/html"]
        assert "<script" not in bundle["text/html"]
        assert "&lt;" in bundle["text/html"]
