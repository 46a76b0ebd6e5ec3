"""Out-of-memory errors in a real kernel, with the real torch and a stand-in GPU with 64 MiB."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from helpers_kernel import Kernel, Ran
from helpers_outputs import cards

from gpuwidget.model.mime_types import CARD_MIME_TYPE

pytestmark = pytest.mark.usefixtures("needs_torch")

TESTS = Path(__file__).parents[1]
SETUP = f"""
import sys; sys.path.insert(0, {str(TESTS)!r})
import torch
from helpers_out_of_memory import LimitedGpu
gpu = LimitedGpu(torch, 64 * 2**20, VERSION)
gpu.install()
def mib(n): return gpu.empty(n * 2**18)
"""
MODEL = "model = mib(20)"


@pytest.fixture
def kernel(start_kernel: Callable[..., Kernel]) -> Iterator[Kernel]:
    """Yield a kernel with gpuwidget loaded and a stand-in GPU with 64 MiB."""
    kernel = prepare(start_kernel())
    yield kernel
    kernel.shutdown()


def prepare(kernel: Kernel, version: str = "2.13") -> Kernel:
    """Install the stand-in GPU in the kernel, load gpuwidget, and return the kernel."""
    kernel.ok(SETUP.replace("VERSION", repr(version)))
    kernel.ok("%load_ext gpuwidget")
    return kernel


def fails(kernel: Kernel, code: str) -> Ran:
    """Run ``code``, assert that it raises an out-of-memory error, and return what the kernel sent."""
    ran = kernel.run(code)
    assert ran.reply["status"] == "error", ran.text
    assert ran.reply["ename"] == "OutOfMemoryError"
    return ran


def displayed_after_error(ran: Ran) -> list[dict[str, str]]:
    """Return the MIME bundles that were displayed after the traceback, without a watched cell's card."""
    kinds = [message.type for message in ran.messages]
    after = ran.messages[kinds.index("error") + 1 :]
    return [m.content["data"] for m in after if m.type == "display_data" and not m.is_card]


def card(ran: Ran) -> str:
    """Return the text of the only out-of-memory card,
    without the lines about values that the driver can't provide."""
    (bundle,) = displayed_after_error(ran)
    assert set(bundle) == {"text/plain", "text/html", CARD_MIME_TYPE}
    lines = [line for line in bundle["text/plain"].splitlines() if "Couldn't tell" not in line]
    return re.sub(r" {2,}", "  ", "\n".join(lines))


def test_the_card(kernel: Kernel) -> None:
    """The out-of-memory card shows the requested and the free memory,
    the holders by variable and by cell, and the fixes."""
    kernel.ok(MODEL)
    kernel.ok("cache = [mib(6), mib(6)]")
    kernel.ok("mib(10)")
    ran = fails(kernel, "def step(n):\n    batch = mib(8)\n    return model[:1] + mib(n)\nstep(16)")
    assert card(ran).splitlines() == [
        "Out of memory on cuda:0: 16 MiB requested, 14 of 64 MiB free",
        "  1. Free this error's frames before you try again · 8.0 MiB",
        "  %gpu free --yes",
        "  %debug is not possible after that",
        "  Each of these would have been enough:",
        "  2. Free what the notebook itself keeps (Out[5]) · 10 MiB",
        "  the command of 1 does this too",
        "  3. Free cache if no longer needed · 12 MiB",
        "  %gpu free cache --yes",
        "  no use was found in the code that failed",
        "  Only a try shows whether this is enough:",
        "  4. Compute the tensor in parts, use a smaller data type, or keep it on the CPU",
        "  held by  from cell  memory",
        "  model  In [3]  20 MiB",
        "  cache  In [4]  12 MiB",
        "  Out[5] = _ = _5 (kept by the notebook itself)  In [5]  10 MiB",
        "  this error's frames (kept by the notebook itself)  In [6]  8.0 MiB",
        "  free  14 MiB",
        "  total  64 MiB",
        "  By cell: In [3] 20 MiB (model = mib(20)), In [4] 12 MiB (cache = [mib(6), mib(6)]), In [5] 10 MiB "
        "(mib(10)), In [6] 8.0 MiB (def step(n):).",
    ]


@pytest.mark.parametrize("fix", ["%gpu free --yes", "%gpu free cache --yes", None])
def test_each_fix_works(kernel: Kernel, fix: str | None) -> None:
    """If the user applies any of the card's fixes as printed, the failed cell then succeeds.
    Without a fix, it fails again."""
    kernel.ok(MODEL)
    kernel.ok("cache = [mib(6), mib(6)]")
    kernel.ok("mib(10)")
    cell = "def step(n):\n    batch = mib(8)\n    return (model[:1] + mib(n)[:1]).clone()\nstep(16)"
    text = card(fails(kernel, cell))
    if fix is None:
        fails(kernel, cell)
        return
    assert fix in text
    kernel.ok(fix)
    kernel.ok(cell)


@pytest.mark.parametrize("version", ["1.13", "2.3", "2.13"])
def test_versions_of_torch(start_kernel: Callable[..., Kernel], version: str) -> None:
    """The out-of-memory card is the same for the error messages of different torch versions."""
    kernel = prepare(start_kernel(), version)
    kernel.ok(MODEL)
    first, *lines = card(fails(kernel, "mib(50)")).splitlines()
    assert first == "Out of memory on cuda:0: 50 MiB requested, 44 of 64 MiB free"
    assert "  model  In [3]  20 MiB" in lines
    assert "  %gpu free model --yes" in lines
    kernel.shutdown()


@pytest.mark.parametrize(
    "cell",
    [
        "%%time\nout = [mib(10), embeddings.sum(), mib(30)]",
        "%time out = [mib(10), embeddings.sum(), mib(30)]",
        "train()",
        "lambdas()",
    ],
)
def test_variables_that_the_code_reads_are_kept(kernel: Kernel, cell: str) -> None:
    """No fix deletes a variable that the cell reads, whether below a magic, in a function or in a lambda."""
    kernel.ok("embeddings, spare = mib(20), mib(20)")
    kernel.ok("def evaluate():\n    return embeddings.mean()\ndef train():\n    evaluate()\n    mib(40)")
    kernel.ok("def lambdas():\n    (lambda: [embeddings])(), mib(40)")
    text = card(fails(kernel, cell))
    assert "%gpu free spare --yes" in text
    assert "%gpu free embeddings" not in text


def test_a_variable_that_is_assigned_again(kernel: Kernel) -> None:
    """If the cell only overwrites a variable, a fix suggests deleting it first.
    Otherwise the old and the new value would exist at the same time."""
    kernel.ok("model = mib(40)")
    assert "%gpu free model --yes" in card(fails(kernel, "model = mib(40)"))
    assert "%gpu free model --yes" in card(fails(kernel, "%%time\nmodel = mib(40)"))
    assert "%gpu free model" not in card(fails(kernel, "model = mib(40) + model"))
    kernel.ok("%gpu free model --yes")
    kernel.ok("model = mib(40)")


def test_an_earlier_errors_frames(kernel: Kernel) -> None:
    """Frames of an earlier error that Python has not garbage-collected yet are listed as holders,
    and %gpu free releases them."""
    kernel.ok("import gc; gc.disable()")
    fails(kernel, "def first():\n    big = mib(40)\n    mib(40)\nfirst()")
    text = card(fails(kernel, "x = mib(40)"))
    assert (
        "  an earlier error's frames, not collected yet (kept by the notebook itself)  In [4]  40 MiB" in text
    )
    assert ". Free what the notebook itself keeps (an earlier error's frames, not collected yet" in text
    kernel.ok("%gpu free --yes")
    kernel.ok("x = mib(40)")


def test_no_garbage_collection_during_the_search(kernel: Kernel) -> None:
    """No garbage collection runs between torch's memory snapshot and the search for holders,
    so that all blocks in the snapshot still exist."""
    kernel.ok(
        "import gc, gpuwidget\ngc.set_threshold(0)\nsnapshot = torch.cuda.memory_snapshot\n"
        "def and_collect():\n    found = snapshot()\n    if gc.isenabled(): gc.collect()\n    return found\n"
        "torch.cuda.memory_snapshot = and_collect"
    )
    kernel.ok(
        "circle = [mib(8)]\ncircle.append(circle)\ndel circle\nfound = gpuwidget.holders()\n"
        "allocated = torch.cuda.memory_stats_as_nested_dict(0)['allocated_bytes']['all']['current']"
    )
    assert kernel.value("sum(one.bytes for one in found), allocated") == f"({8 * 2**20}, {8 * 2**20})"
    assert kernel.value("gc.isenabled()") == "True"
    fails(kernel, "def first():\n    big = mib(40)\n    mib(40)\nfirst()")
    text = card(fails(kernel, "x = mib(40)"))
    assert (
        "an earlier error's frames, not collected yet (kept by the notebook itself)  In [5]  40 MiB" in text
    )


def test_memory_freed_since_the_error(kernel: Kernel) -> None:
    """If enough memory has become free by the end of the failed cell,
    the card advises running the cell again."""
    kernel.ok("big = [mib(40)]")
    cell = "def step():\n    try:\n        mib(40)\n    finally:\n        big.clear()\nstep()"
    assert "  1. Run the cell again · 40 MiB" in card(fails(kernel, cell)).splitlines()
    kernel.ok(cell)


def test_a_memory_fraction(kernel: Kernel) -> None:
    """If the user has set torch's memory fraction,
    the card shows that limit and the statement that raises it."""
    kernel.ok("gpu.limit = 32 * 2**20\n" + MODEL)
    text = card(fails(kernel, "mib(16)"))
    assert text.splitlines()[0] == (
        "Out of memory on cuda:0: 16 MiB requested, 12 MiB left of this process's own limit of 32 "
        "MiB (44 MiB free on the GPU)"
    )
    assert "torch.cuda.set_per_process_memory_fraction(0.57, 'cuda:0')" in text


def test_fragmented_memory(kernel: Kernel) -> None:
    """If memory is fragmented, the card suggests expandable segments and names the environment variable that
    this torch version reads."""
    kernel.ok("gpu.capacity = 2**30\nkept, fill = [], []")
    kernel.ok(
        "for _ in range(3):\n    mib(256)\n    kept.append(mib(56)); fill.append(mib(200))\nfill.clear()"
    )
    text = card(fails(kernel, "mib(300)"))
    assert "torch: reserved but not in tensors  600 MiB" in text
    assert "%env PYTORCH_ALLOC_CONF=expandable_segments:True" in text


@pytest.mark.parametrize("before", ["%%gpuwatch --no-live\n", "%gpu watch on"])
def test_in_a_watched_cell(kernel: Kernel, before: str) -> None:
    """A watched cell has a single card after the traceback, which begins with the out-of-memory card."""
    kernel.ok(MODEL)
    if not before.endswith("\n"):
        kernel.ok(before)
        before = ""
    ran = fails(kernel, f"{before}mib(50)")
    kinds = [message.type for message in ran.messages if message.type in ("error", "display_data")]
    assert kinds == ["error", "display_data"]
    data = ran.messages[-1].content["data"]
    assert ran.messages[-1].is_card
    assert data["text/plain"].startswith("Out of memory on cuda:0: 50 MiB requested, 44 of 64 MiB free\n")
    assert data["text/plain"].partition("  By cell:")[2].count("\n")
    assert "%gpu free model --yes" in data["text/html"]


MAGICS = """
from IPython.core.magic import register_cell_magic
@register_cell_magic
def passes_on(line, cell):
    options, _, body = cell.partition("\\n")
    try:
        get_ipython().run_cell_magic("gpuwatch", options.removeprefix("%%gpuwatch"), body)
    except RuntimeError:
        if line != "quiet": raise
@register_cell_magic
def runs_cell(line, cell): get_ipython().run_cell(cell).raise_error()
"""


@pytest.mark.parametrize("above", ["%%time", "%%timeit -n 1 -r 1", "%%passes_on", "%%runs_cell"])
def test_below_another_cell_magic(kernel: Kernel, above: str) -> None:
    """If %%gpuwatch is below another cell magic, the cell has a single card as well, which begins with the
    out-of-memory card. The next cell is watched as usual."""
    kernel.ok(MAGICS)
    kernel.ok(MODEL)
    ran = fails(kernel, f"{above}\n%%gpuwatch --no-live --name one\nmib(50)")
    (shown,) = [message for message in ran.messages if message.type == "display_data"]
    assert shown.is_card
    text = shown.content["data"]["text/plain"]
    assert text.startswith("Out of memory on cuda:0: 50 MiB requested")
    assert "one: time" in text
    assert kernel.value("__import__('gpuwidget').reports()[-1].cell.status") == repr("error")
    (following,) = cards(kernel.ok("%%gpuwatch --no-live\nmib(1)").messages)
    assert following["text/plain"].startswith("time ")


def test_below_a_cell_magic_that_catches_the_error(kernel: Kernel) -> None:
    """If the cell magic above %%gpuwatch catches the out-of-memory error, the card is below the cell, without
    the error."""
    kernel.ok(MAGICS)
    ran = kernel.ok("%%passes_on quiet\n%%gpuwatch --no-live --name one\nmib(99)")
    (shown,) = cards(ran.messages)
    assert shown["text/plain"].startswith("one: time")


def test_below_a_watched_cell_without_a_card(kernel: Kernel) -> None:
    """The out-of-memory card is shown if the watched cell has no card of its own, and once if an outer cell
    fails with the same error."""
    kernel.ok(MODEL)
    assert len(displayed_after_error(fails(kernel, "%%gpuwatch --quiet\nmib(50)"))) == 1
    assert len(displayed_after_error(fails(kernel, "get_ipython().run_cell('mib(50)').raise_error()"))) == 1


@pytest.mark.stops_errors
def test_a_defect_in_the_cards_rest(kernel: Kernel) -> None:
    """If a watched cell's figures can't be shown because of a defect, the out-of-memory card still is."""
    kernel.ok(MODEL)
    kernel.ok("from gpuwidget.views import size_budget\nsize_budget.fit = lambda *arguments: 1 / 0")
    assert "50 MiB requested" in card(fails(kernel, "%%gpuwatch --no-live\nmib(50)"))


def test_other_errors_have_no_card(kernel: Kernel) -> None:
    """No out-of-memory card is shown for other errors,
    nor for an out-of-memory error that the cell catches."""
    for code in ("1 / 0", "raise RuntimeError('out of memory')", "raise MemoryError('CUDA out of memory')"):
        assert displayed_after_error(kernel.run(code)) == []
    ran = kernel.ok("try:\n    mib(100)\nexcept torch.OutOfMemoryError:\n    pass")
    assert [m for m in ran.messages if m.type == "display_data"] == []


def test_a_chained_error(kernel: Kernel) -> None:
    """If a library catches an out-of-memory error and raises another error from it, the card is shown too."""
    ran = kernel.run(
        "try:\n    mib(100)\nexcept torch.OutOfMemoryError as e:\n    raise ValueError('no') from e"
    )
    assert "100 MiB requested" in card(ran)


def test_an_old_error_without_numbers(kernel: Kernel) -> None:
    """If an old torch version raises an error whose message contains no numbers,
    the card contains no numbers either."""
    ran = kernel.run("raise RuntimeError('CUDA error: out of memory')")
    assert card(ran).splitlines()[:2] == [
        "Out of memory on cuda:0: the error contains no sizes",
        "  No single known fix would have been enough.",
    ]


def test_the_card_keeps_nothing_alive(kernel: Kernel) -> None:
    """The out-of-memory card keeps no tensor alive: %gpu free releases the tensors that the error held."""
    code = (
        "import weakref\nseen = []\n"
        "def step():\n    batch = mib(8); seen.append(weakref.ref(batch)); mib(100)\nstep()"
    )
    fails(kernel, code)
    assert kernel.ok("seen[0]() is None").result == "False"
    kernel.ok("%gpu free --yes")
    assert kernel.ok("seen[0]() is None, gpu.allocated").result == "(True, 0)"


def test_the_error_is_unchanged(kernel: Kernel, start_kernel: Callable[..., Kernel]) -> None:
    """With gpuwidget, an out-of-memory error has the same message,
    traceback and sys.last_value as without it, and %debug works."""
    code = "def step():\n    batch = mib(8); mib(100)\nstep()"
    plain = start_kernel()
    plain.ok(SETUP.replace("VERSION", "'2.13'"))
    plain.ok("'in step'")
    ran, plain_ran = fails(kernel, code), fails(plain, code)
    assert ran.reply["evalue"] == plain_ran.reply["evalue"]
    assert kernel.clean(ran.reply["traceback"]) == plain.clean(plain_ran.reply["traceback"])
    expression = (
        "type(sys.last_value).__name__, 'batch' in sys.last_traceback.tb_next.tb_next.tb_frame.f_locals"
    )
    assert kernel.value(expression) == plain.value(expression) == "('OutOfMemoryError', True)"
    ran = kernel.run("%debug", answers=["up 3", "p batch.numel()", "q"])
    assert str(8 * 2**18) in ran.text
    plain.shutdown()


def test_after_unloading(kernel: Kernel) -> None:
    """After %unload_ext, an out-of-memory error gets no card."""
    kernel.ok("%unload_ext gpuwidget")
    assert displayed_after_error(fails(kernel, "mib(100)")) == []


def test_html_is_escaped(kernel: Kernel) -> None:
    """Names and source lines of the user's code are escaped in the HTML of the out-of-memory card."""
    kernel.ok("globals()['<img src=x>'] = mib(20) # <script>alert(1)</script>")
    (bundle,) = displayed_after_error(fails(kernel, "mib(50)"))
    assert "<img" not in bundle["text/html"]
    assert "<script" not in bundle["text/html"]
    assert "&lt;img src=x&gt;" in bundle["text/html"]
