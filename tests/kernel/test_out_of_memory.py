"""Out-of-memory errors in a real kernel with the real torch, on a stand-in GPU of 64 MiB."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from helpers_kernel import Kernel, Ran, skip_without_torch

HELPERS = Path(__file__).parents[1]
SETUP = f"""
import sys; sys.path.insert(0, {str(HELPERS)!r})
import torch
from helpers_out_of_memory import LimitedGpu
gpu = LimitedGpu(torch, 64 * 2**20, VERSION)
gpu.install()
def mib(n): return gpu.empty(n * 2**18)
"""
MODEL = "model = mib(20)"


@pytest.fixture(scope="module", autouse=True)
def _has_torch() -> None:
    skip_without_torch()


@pytest.fixture
def kernel(start_kernel: Callable[..., Kernel]) -> Iterator[Kernel]:
    """A kernel with a small GPU and gpuwidget."""
    made = ready(start_kernel())
    yield made
    made.shutdown()


def ready(kernel: Kernel, version: str = "2.13") -> Kernel:
    kernel.ok(SETUP.replace("VERSION", repr(version)))
    kernel.ok("%load_ext gpuwidget")
    return kernel


def fails(kernel: Kernel, code: str) -> Ran:
    """Run ``code``, which must run out of memory."""
    ran = kernel.run(code)
    assert ran.reply["status"] == "error", ran.text
    assert ran.reply["ename"] == "OutOfMemoryError"
    return ran


def shown(ran: Ran) -> list[dict[str, str]]:
    """The mime bundles of what came after the traceback, without the watch's own card."""
    kinds = [message.type for message in ran.messages]
    after = ran.messages[kinds.index("error") + 1 :]
    return [m.content["data"] for m in after if m.type == "display_data" and not m.is_card]


def card(ran: Ran) -> str:
    """The text of the one card, without what is not known about the driver."""
    (bundle,) = shown(ran)
    assert set(bundle) == {"text/plain", "text/html"}
    lines = [line for line in bundle["text/plain"].splitlines() if "Not known" not in line]
    return re.sub(r" {2,}", "  ", "\n".join(lines))


def test_the_card(kernel: Kernel) -> None:
    """What was asked and free, who holds the rest, by variable and cell, and what would have been enough."""
    kernel.ok(MODEL)
    kernel.ok("cache = [mib(6), mib(6)]")
    kernel.ok("mib(10)")
    ran = fails(kernel, "def step(n):\n    batch = mib(8)\n    return model[:1] + mib(n)\nstep(16)")
    assert card(ran).splitlines() == [
        "Out of memory on cuda:0: 16 MiB asked for, 14 of 64 MiB free",
        "  model  In [3]  20 MiB",
        "  cache  In [4]  12 MiB",
        "  Out[5] = _ = _5 (kept by the notebook itself)  In [5]  10 MiB",
        "  this error's frames (kept by the notebook itself)  In [6]  8.0 MiB",
        "  free  14 MiB",
        "  in all  64 MiB",
        "  By cell: In [3] 20 MiB (model = mib(20)), In [4] 12 MiB (cache = [mib(6), mib(6)]), In [5] 10 MiB "
        "(mib(10)), In [6] 8.0 MiB (def step(n):).",
        "  What would have been enough:",
        "  - Let go of what the notebook itself keeps, Out[5]: 10 MiB from before this cell.",
        "  %gpu free --yes",
        "  - Make the batch 2 times smaller, or go through it in 2 parts (gradient accumulation): the cell "
        "had 8.0 MiB above its start and asked for 16 MiB more, where 22 MiB were to be had. That is "
        "enough as far as the cell came, if what it needs grows with the batch.",
        "  - Let go of cache (12 MiB), if you need no more of it: the code that failed was not seen to "
        "read it.",
        "  %gpu free cache --yes",
        "  Before the next try let go of this error: its frames keep 8.0 MiB alive, which that try would "
        "lack (%debug is then gone).",
        "  %gpu free --yes",
        "  Mixed precision and activation checkpointing make a training step need less; by how much is not "
        "known before it is tried.",
    ]


@pytest.mark.parametrize("remedy", ["%gpu free --yes", "%gpu free cache --yes", None])
def test_what_it_advises_helps(kernel: Kernel, remedy: str | None) -> None:
    """Each remedy, done as it is written, lets the same cell run; without one it fails again."""
    kernel.ok(MODEL)
    kernel.ok("cache = [mib(6), mib(6)]")
    kernel.ok("mib(10)")
    cell = "def step(n):\n    batch = mib(8)\n    return (model[:1] + mib(n)[:1]).clone()\nstep(16)"
    advice = card(fails(kernel, cell))
    if remedy is None:
        fails(kernel, cell)
        return
    assert remedy in advice
    kernel.ok(remedy)
    kernel.ok(cell)


@pytest.mark.parametrize("version", ["1.13", "2.3", "2.13"])
def test_versions_of_torch(start_kernel: Callable[..., Kernel], version: str) -> None:
    """Every wording gives the same card."""
    kernel = ready(start_kernel(), version)
    kernel.ok(MODEL)
    first, *lines = card(fails(kernel, "mib(50)")).splitlines()
    assert first == "Out of memory on cuda:0: 50 MiB asked for, 44 of 64 MiB free"
    assert lines[0] == "  model  In [3]  20 MiB"
    assert "    %gpu free model --yes" not in lines
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
def test_what_the_code_reads_is_not_to_be_deleted(kernel: Kernel, cell: str) -> None:
    """Nor what it reads under a magic, in a function that has returned, or in one within another."""
    kernel.ok("embeddings, spare = mib(20), mib(20)")
    kernel.ok("def evaluate():\n    return embeddings.mean()\ndef train():\n    evaluate()\n    mib(40)")
    kernel.ok("def lambdas():\n    (lambda: [embeddings])(), mib(40)")
    text = card(fails(kernel, cell))
    assert "%gpu free spare --yes" in text
    assert "%gpu free embeddings" not in text


def test_a_variable_that_is_made_anew(kernel: Kernel) -> None:
    """What the cell overwrites is still there while it makes the new one: to let go of it first helps."""
    kernel.ok("model = mib(40)")
    assert "%gpu free model --yes" in card(fails(kernel, "model = mib(40)"))
    assert "%gpu free model --yes" in card(fails(kernel, "%%time\nmodel = mib(40)"))
    assert "%gpu free model" not in card(fails(kernel, "model = mib(40) + model"))
    kernel.ok("%gpu free model --yes")
    kernel.ok("model = mib(40)")


def test_an_earlier_errors_frames(kernel: Kernel) -> None:
    """What the last error left, replaced by this one and not collected yet, is found and freed."""
    kernel.ok("import gc; gc.disable()")
    fails(kernel, "def first():\n    big = mib(40)\n    mib(40)\nfirst()")
    text = card(fails(kernel, "x = mib(40)"))
    assert (
        "  an earlier error's frames, not collected yet (kept by the notebook itself)  In [4]  40 MiB" in text
    )
    assert "- Let go of what the notebook itself keeps, an earlier error's frames, not collected yet" in text
    kernel.ok("%gpu free --yes")
    kernel.ok("x = mib(40)")


def test_no_garbage_collection_during_the_search(kernel: Kernel) -> None:
    """No garbage collection runs between torch's snapshot and the search: everything listed still exists."""
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


def test_let_go_of_in_between(kernel: Kernel) -> None:
    """Where what was in the way went with the cell's own end, it is enough to run it again."""
    kernel.ok("big = [mib(40)]")
    cell = "def step():\n    try:\n        mib(40)\n    finally:\n        big.clear()\nstep()"
    assert "- Run it again: 40 MiB from before this cell" in card(fails(kernel, cell))
    kernel.ok(cell)


def test_a_limit_of_its_own(kernel: Kernel) -> None:
    """A process that limits itself is told so, and how to raise the limit."""
    kernel.ok("gpu.limit = 32 * 2**20\n" + MODEL)
    text = card(fails(kernel, "mib(16)"))
    assert text.splitlines()[0] == (
        "Out of memory on cuda:0: 16 MiB asked for, 12 MiB left of the 32 MiB that this process lets "
        "itself have (44 MiB of the GPU free)"
    )
    assert "torch.cuda.set_per_process_memory_fraction(0.57, 'cuda:0')" in text


def test_pieces_that_do_not_join(kernel: Kernel) -> None:
    """Memory in pieces: expandable segments are advised where they would do, by their name here."""
    kernel.ok("gpu.capacity = 2**30\nkept, fill = [], []")
    kernel.ok(
        "for _ in range(3):\n    mib(256)\n    kept.append(mib(56)); fill.append(mib(200))\nfill.clear()"
    )
    text = card(fails(kernel, "mib(300)"))
    assert "torch: reserved, in no tensor  600 MiB" in text
    assert "%env PYTORCH_ALLOC_CONF=expandable_segments:True" in text


def test_watched_or_not(kernel: Kernel) -> None:
    """Under a watched cell it stands between the traceback and the watch's card, once."""
    kernel.ok(MODEL)
    ran = fails(kernel, "%%gpuwatch --no-live\nmib(50)")
    kinds = [message.type for message in ran.messages if message.type in ("error", "display_data")]
    assert kinds == ["error", "display_data", "display_data"]
    assert ran.messages[-1].is_card
    assert len(shown(ran)) == 1
    assert len(shown(fails(kernel, "get_ipython().run_cell('mib(50)').raise_error()"))) == 1


def test_other_errors_have_no_card(kernel: Kernel) -> None:
    """Nothing stands under any other error, nor under memory that ran out and was dealt with."""
    for code in ("1 / 0", "raise RuntimeError('out of memory')", "raise MemoryError('CUDA out of memory')"):
        assert shown(kernel.run(code)) == []
    ran = kernel.ok("try:\n    mib(100)\nexcept torch.OutOfMemoryError:\n    pass")
    assert [m for m in ran.messages if m.type == "display_data"] == []


def test_raised_from_it(kernel: Kernel) -> None:
    """Where a library raises an error of its own from it, it is found."""
    ran = kernel.run(
        "try:\n    mib(100)\nexcept torch.OutOfMemoryError as e:\n    raise ValueError('no') from e"
    )
    assert "100 MiB asked for" in card(ran)


def test_an_old_error_without_a_type_of_its_own(kernel: Kernel) -> None:
    """The oldest torch raises a RuntimeError; one without figures gets no arithmetic."""
    ran = kernel.run("raise RuntimeError('CUDA error: out of memory')")
    assert card(ran).splitlines()[:2] == [
        "Out of memory on cuda:0: the error says no figures",
        "  Nothing that is known here would have been enough by itself.",
    ]


def test_it_keeps_nothing_alive(kernel: Kernel) -> None:
    """When the error is let go of, its tensors go: the card holds none of them."""
    code = (
        "import weakref\nseen = []\n"
        "def step():\n    batch = mib(8); seen.append(weakref.ref(batch)); mib(100)\nstep()"
    )
    fails(kernel, code)
    assert kernel.ok("seen[0]() is None").result == "False"
    kernel.ok("%gpu free --yes")
    assert kernel.ok("seen[0]() is None, gpu.allocated").result == "(True, 0)"


def test_the_error_stays_as_it_is(kernel: Kernel, start_kernel: Callable[..., Kernel]) -> None:
    """Traceback, reply, sys.last_value and %debug are what they are without gpuwidget."""
    code = "def step():\n    batch = mib(8); mib(100)\nstep()"
    plain = start_kernel()
    plain.ok(SETUP.replace("VERSION", "'2.13'"))
    plain.ok("'in step'")
    mine, theirs = fails(kernel, code), fails(plain, code)
    assert mine.reply["evalue"] == theirs.reply["evalue"]
    assert kernel.clean(mine.reply["traceback"]) == plain.clean(theirs.reply["traceback"])
    expression = (
        "type(sys.last_value).__name__, 'batch' in sys.last_traceback.tb_next.tb_next.tb_frame.f_locals"
    )
    assert kernel.value(expression) == plain.value(expression) == "('OutOfMemoryError', True)"
    ran = kernel.run("%debug", answers=["up 3", "p batch.numel()", "q"])
    assert str(8 * 2**18) in ran.text
    plain.shutdown()


def test_after_unload(kernel: Kernel) -> None:
    """Unloaded, nothing is shown any more."""
    kernel.ok("%unload_ext gpuwidget")
    assert shown(fails(kernel, "mib(100)")) == []


def test_hostile_names(kernel: Kernel) -> None:
    """What the user's code is called and says is text in the card, and never markup."""
    kernel.ok("globals()['<img src=x>'] = mib(20) # <script>alert(1)</script>")
    (bundle,) = shown(fails(kernel, "mib(50)"))
    assert "<img" not in bundle["text/html"]
    assert "<script" not in bundle["text/html"]
    assert "&lt;img src=x&gt;" in bundle["text/html"]
