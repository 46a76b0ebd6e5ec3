"""Who holds the GPU's memory, in a real kernel with the real torch on a stand-in for its allocator."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers_kernel import Kernel, skip_without_torch

TESTS = Path(__file__).parent.parent
SETUP = f"""
import sys, torch
sys.path.insert(0, {str(TESTS)!r})
from helpers_allocator import StandInGpu
sys.path.remove({str(TESTS)!r})
gpu = StandInGpu(torch)
gpu.install()
"""


@pytest.fixture(scope="module", autouse=True)
def _has_torch() -> None:
    skip_without_torch()


@pytest.fixture
def kernel(start_kernel: Callable[..., Kernel]) -> Kernel:
    """A kernel with gpuwidget loaded, and a device in use; In[1] is the next cell."""
    made = start_kernel(GPUWIDGET_SOURCE="none")
    made.setup(SETUP)
    made.setup("%load_ext gpuwidget\nimport gpuwidget")
    return made


def held(kernel: Kernel, variables: str = "kind, names, bytes, cell") -> Any:
    """The holders' fields, as a list; adds up to what the device has allocated."""
    fields = ", ".join(f"h.{name.strip()}" for name in variables.split(","))
    assert kernel.value("sum(h.bytes for h in gpuwidget.holders()) == gpu.allocated") == "True"
    return eval(kernel.value(f"[({fields}) for h in gpuwidget.holders()]"))


def test_variables_results_and_errors(kernel: Kernel) -> None:
    """Each holder with its names and its cell: variables, Out, and the frames of the last error."""
    kernel.ok("x = gpu.empty(3000)\ny = x[1:]")
    kernel.ok("gpu.empty(1000)")
    kernel.run("def fail(data):\n    1 / 0\nfail(gpu.empty(2000))")
    assert held(kernel) == [
        ("variable", ("x", "y"), 12288, 1),
        ("notebook", ("the last error's traceback",), 8192, 3),
        ("notebook", ("Out[2]", "_", "_2"), 4096, 2),
    ]


def test_a_result_that_a_variable_names_too(kernel: Kernel) -> None:
    """It is the variable's: %gpu free keeps it, and says why."""
    kernel.ok("x = gpu.empty(1000)\nx")
    assert held(kernel) == [("variable", ("x", "Out[1]", "_", "_1"), 4096, 1)]
    assert kernel.ok("%gpu free").displayed == (
        "There is nothing to free.\nKept, since a variable holds it too: Out[1] (x)."
    )


def test_free_lists_and_frees(kernel: Kernel) -> None:
    """Only --yes gives anything back: results and errors, in every place they live, and the cache."""
    kernel.ok("kept = gpu.empty(100)")
    kernel.ok("gpu.empty(1_000_000)")
    kernel.ok("'a result of another kind'")
    kernel.run("def fail(data):\n    raise ValueError(data)\nfail(gpu.empty(2_000_000))")
    offered = kernel.ok("%gpu free").displayed
    assert offered == (
        "%gpu free --yes would release:\n"
        "  the last error's traceback: 7.6 MiB\n"
        "  Out[2], __, _2: 3.8 MiB\n"
        "Lost with it: %debug and %tb of the last error, Out[2]."
    )
    assert kernel.value("gpu.allocated") == "12000768"
    done = kernel.ok("%gpu free --yes").displayed
    assert done == (
        "Released 11 MiB of tensors.\n"
        "Given back to the GPU: 12 MiB by torch's count; the driver's is not known.\n"
        "Lost with it: %debug and %tb of the last error, Out[2]."
    )
    assert kernel.value("gpu.allocated") == "512"
    assert kernel.value("sorted(Out), _3, hasattr(sys, 'last_value')") == (
        "([3], 'a result of another kind', False)"
    )
    assert "No traceback" in kernel.ok("%tb").text
    assert kernel.ok("%gpu free").displayed == "There is nothing to free."
    assert kernel.ok("7").result == "7"
    assert kernel.value("_") == "7"


def test_free_by_name(kernel: Kernel) -> None:
    """Named variables are deleted, and no others; with a name that is none, nothing is."""
    kernel.ok("x = gpu.empty(1000); y = gpu.empty(1000); z = x[1:]")
    refused = kernel.run("%gpu free y nonsense")
    assert refused.reply["evalue"].startswith("nonsense: no variable of yours, so nothing was deleted.")
    assert kernel.value("gpu.allocated") == "8192"
    assert kernel.ok("%gpu free y").displayed == (
        "Deleted y: 4 KiB went back to torch's cache; %gpu free --yes empties that."
    )
    assert kernel.ok("%gpu free x").displayed == (
        "Deleted x: no GPU memory of torch's was released. %gpu memory shows what else holds it."
    )
    assert kernel.value("'x' in globals(), 'y' in globals(), gpu.allocated") == "(False, False, 4096)"
    assert kernel.run("%gpu free _").reply["ename"] == "UsageError"


def test_free_by_name_where_nobody_counts(kernel: Kernel) -> None:
    """Where torch has no counters, what a deletion released is said to be unknown."""
    kernel.ok("x = gpu.empty(1000)\ntorch.cuda.get_allocator_backend = lambda: 'cudaMallocAsync'")
    assert kernel.ok("%gpu free x").displayed == (
        "Deleted x: how much GPU memory that released is not known: torch runs on cudaMallocAsync, whose "
        "counters are partial."
    )


def test_a_result_with_a_variable_in_it(kernel: Kernel) -> None:
    """A result that is let go of is not said to be kept, though a variable holds a part of it."""
    kernel.ok("x = gpu.empty(1000)\n[x, gpu.empty(2000)]")
    assert kernel.ok("%gpu free").displayed == (
        "%gpu free --yes would release:\n  Out[1], _, _1, the last result: 8 KiB\nLost with it: Out[1]."
    )


def test_free_where_looking_fails(kernel: Kernel) -> None:
    """%gpu free says so in a sentence, and lets go of nothing."""
    kernel.ok("gpu.empty(1000)")
    kernel.setup(
        "import gpuwidget.kernel.attribution.memory_holders as m\n"
        "def fail(shell): raise TypeError('unhashable')\nm.search = fail"
    )
    said = "Nothing was freed: gpuwidget could not look at what holds torch's memory."
    assert kernel.ok("%gpu free").displayed == kernel.ok("%gpu free --yes").displayed == said
    assert kernel.value("gpu.allocated, 1 in Out") == "(4096, True)"


def test_cells_that_still_hold(kernel: Kernel) -> None:
    """Cells are ranked by what is left of them, with their first line."""
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


def test_cells_within_cells_and_lost_ends(kernel: Kernel) -> None:
    """What a cell runs is its own, numbered or not; where its end was lost, the next cell has its own."""
    inner = "get_ipython().run_cell('a = gpu.empty(1000)', store_history={stored})\n"
    kernel.ok(inner.format(stored=True) + inner.format(stored=False) + "b = gpu.empty(2000)")
    cells = dict(held(kernel, "names[0], cell"))
    assert (cells["a"], cells["b"]) == (1, 1)
    hook = (
        "from gpuwidget.kernel import magics\n"
        "get_ipython().events.{}('post_run_cell', magics._loaded._running.after)\n"
    )
    kernel.ok(hook.format("unregister"))
    ran = kernel.ok(hook.format("register") + "c = gpu.empty(3000)\nget_ipython().displayhook.prompt_count")
    assert dict(held(kernel, "names[0], cell"))["c"] == int(ran.result or 0)


def test_losses_collected_across_cells(kernel: Kernel) -> None:
    """A list of losses keeps what their graphs saved: each cell has its own, though others free memory."""
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
    assert ("variable", ("losses",), 4096 + 8192, 3) in held(kernel)
    said = kernel.ok("%gpu memory").displayed
    assert "losses: 12 KiB of it is saved in an autograd graph, for backward()." in said


def test_memory_from_before(start_kernel: Callable[..., Kernel]) -> None:
    """What was allocated before gpuwidget was loaded is said to be."""
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


def test_a_watched_cell_says_what_it_left_behind(kernel: Kernel) -> None:
    """The report's holders are what the cell has allocated and is still there, and nothing else."""
    kernel.ok("before = gpu.empty(5000)")
    ran = kernel.ok("%%gpuwatch\nx = gpu.empty(1000)\ngpu.empty(7)\ntemporary = gpu.empty(9)\ndel temporary")
    report = ran.report
    assert report["holders"] == [
        {"kind": "variable", "names": ["x"], "type": "Tensor", "device": "cuda:0", "bytes": 4096, "cell": 2}
    ]
    assert "<b>Left behind:</b> x (Tensor): 4 KiB" in ran.cards[0]["text/html"]
    ran = kernel.ok("%%gpuwatch\nbefore += 1")
    assert ran.report["holders"] == []


def test_nothing_is_searched_where_nothing_was_allocated(kernel: Kernel) -> None:
    """A watched cell that leaves the allocator alone costs no walk through the variables."""
    kernel.ok("x = gpu.empty(1000)")
    kernel.setup("import gpuwidget.kernel.attribution.memory_holders as m\nm.search = None")
    ran = kernel.ok("%%gpuwatch\nx += 1")
    assert ran.report["holders"] == []


def test_without_cuda(start_kernel: Callable[..., Kernel]) -> None:
    """Without torch, or before CUDA is up, every command says so in a sentence."""
    kernel = start_kernel(GPUWIDGET_SOURCE="none")
    kernel.ok("%load_ext gpuwidget")
    assert kernel.ok("%gpu memory").displayed == "No memory of torch's to show: torch is not loaded."
    assert kernel.ok("%gpu free --yes").displayed == "Nothing to free: torch is not loaded."
    kernel.ok("import torch")
    up = "CUDA is not initialised in this process."
    assert kernel.ok("%gpu memory").displayed == f"No memory of torch's to show: {up}"
    assert kernel.ok("%gpu free").displayed == f"Nothing to free: {up}"
    assert kernel.value("torch.cuda.is_initialized()") == "False"


def test_wrong_words(kernel: Kernel) -> None:
    """What is no option is said in one line, with the usage."""
    ran = kernel.run("%gpu memory --all")
    assert ran.reply["evalue"].startswith("'%gpu memory --all' is not known. %gpu memory: who holds")
    assert kernel.run("%gpu free --no").reply["evalue"].startswith("'%gpu free --no' is not known.")


def test_unloading_forgets(kernel: Kernel) -> None:
    """After %unload_ext no cell is looked at, and loading anew begins anew."""
    kernel.ok("x = gpu.empty(1000)")
    kernel.ok("%unload_ext gpuwidget")
    kernel.ok("y = gpu.empty(2000)")
    assert held(kernel, "names, cell") == [(("y",), None), (("x",), None)]
    kernel.ok("%load_ext gpuwidget")
    kernel.ok("z = gpu.empty(3000)")
    assert held(kernel, "names, cell") == [(("z",), 5), (("y",), None), (("x",), None)]


def test_an_interrupted_look_keeps_nothing_alive(kernel: Kernel) -> None:
    """After an interrupt of %gpu memory, a variable that is deleted is gone."""
    kernel.ok("import gpuwidget.heap.reachability as s\nx, reachable = [gpu.empty(1000)], s.reachable")
    kernel.setup("def stop(*_):\n    raise KeyboardInterrupt\ns.reachable = stop")
    assert kernel.run("%gpu memory").reply["ename"] == "KeyboardInterrupt"
    kernel.setup("s.reachable = reachable")
    kernel.ok("del x")
    assert kernel.value("gpu.allocated") == "0"


def test_a_class_that_cannot_be_compared(kernel: Kernel) -> None:
    """One object with an odd metaclass takes nothing away from the others."""
    odd = "class Meta(type):\n    def __eq__(a, b): return a is b\nclass Odd(metaclass=Meta): pass\n"
    kernel.ok(odd + "odd = Odd()\nx = gpu.empty(1000)")
    assert held(kernel) == [("variable", ("x",), 4096, 1)]


def test_a_search_that_fails_is_not_tried_after_every_cell(kernel: Kernel) -> None:
    """Where storages can't be looked for, cells are known as far as the blocks' addresses tell."""
    kernel.setup(
        "import gpuwidget.kernel.attribution.cell_memory as c\nasked = []\n"
        "def fail(*a, **k):\n    asked.append(1)\n    raise ValueError\nc.find_storages = fail"
    )
    kernel.ok("x = gpu.empty(1000)")
    kernel.ok("1 + 1")
    kernel.ok("y = gpu.empty(2000)")
    assert kernel.value("len(asked)") == "2"
    assert held(kernel) == [("variable", ("y",), 8192, 3), ("variable", ("x",), 4096, 1)]


def test_hostile_names_are_escaped(kernel: Kernel) -> None:
    """Names, types and cells' lines reach the page as text."""
    kernel.ok("globals()['<img src=x onerror=alert(1)>'] = gpu.empty(10)  # <script>alert(1)</script>")
    for command in ("%gpu memory", "%gpu memory --cells"):
        bundle = next(m.content["data"] for m in kernel.ok(command).messages if m.type == "display_data")
        assert "<img" not in bundle["text/html"]
        assert "<script" not in bundle["text/html"]
        assert "&lt;" in bundle["text/html"]
