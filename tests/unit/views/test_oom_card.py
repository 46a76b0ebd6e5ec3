"""Tests of the card of an out-of-memory error: its text, omissions and size."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html import unescape
from typing import Any

import pytest
from helpers_reports import HOSTILE

from gpuwidget.measure.oom.facts import (
    CellShare,
    CodeLine,
    OomContext,
    OomFacts,
    OomHolder,
    OtherMemory,
    Retention,
)
from gpuwidget.model.report import Holder, HolderKind
from gpuwidget.model.torch_state import Segment
from gpuwidget.model.units import GIB, MIB
from gpuwidget.views.oom_card import bundle


def oom_holder(kind: HolderKind, name: str, size: float, cell: int | None, **changes: Any) -> OomHolder:
    """Return a holder that holds one block of ``size`` GiB."""
    block = hash(name)
    holder = Holder(kind, (name,) if name else (), "Tensor", "cuda:0", round(size * GIB), cell)
    result = OomHolder(holder, frozenset({block}), frozenset({block}), (name,), is_error=False)
    return replace(result, **changes)


def oom_context(*holders: OomHolder, **changes: Any) -> OomContext:
    """Return the context of an out-of-memory error in a training step on a shared H200: 6 GiB are requested,
    2.1 GiB are free.
    """
    facts = OomFacts(
        device="cuda:0",
        requested=6 * GIB,
        needed=6 * GIB + 5 * MIB,
        total=round(139.8 * GIB),
        free=round(2.1 * GIB),
        limit=None,
        allocated=92 * GIB,
        reserved=94 * GIB,
        fragmented=2 * GIB,
        at_start=70 * GIB,
        older_now=70 * GIB,
        segments=tuple(
            Segment(one.holder.bytes, False, True, ((next(iter(one.blocks)), one.holder.bytes, True),))
            for one in holders
        ),
        held=holders,
        others=(),
        pools=(),
        expandable=False,
        setting="PYTORCH_ALLOC_CONF",
        stage="forward",
        uses=(("parameters", 41 * GIB), ("optimizer states", 16 * GIB), ("activations", 22 * GIB)),
    )
    context = OomContext(replace(facts, **changes.pop("facts", {})), "GPU 0 H200", (), (), ())
    return replace(context, **changes)


def busy_server() -> OomContext:
    """Return the context of a typical out-of-memory error on a GPU that several users share."""
    return oom_context(
        oom_holder("variable", "model", 41.5, 4, variables=None),
        oom_holder("variable", "optimizer", 16.0, 5, variables=None),
        oom_holder("notebook", "this error", 21.9, 12, is_error=True, before=frozenset()),
        oom_holder("variable", "embeddings", 9.2, 7),
        oom_holder("notebook", "Out[9]", 3.3, 9),
        oom_holder("unknown", "", 0.1, None),
        facts={
            "others": (
                OtherMemory("bob: python train.py --config large.yaml", 38 * GIB, True),
                OtherMemory("CUDA context and other libraries", 612 * MIB, False),
            ),
            "freed": 300 * MIB,
        },
        cells=(
            CellShare(4, "model = Transformer(config).cuda()", round(41.5 * GIB)),
            CellShare(12, "train(model, loader)", round(21.9 * GIB)),
            CellShare(None, "", round(0.1 * GIB)),
        ),
        recent=tuple(
            (59.5 - n / 2, round((98 + min(39.0, max(0, n - 60))) * GIB) if not 30 < n < 40 else None)
            for n in range(119)
        ),
    )


def test_the_text() -> None:
    """The card shows how much memory was requested and free, what to do before the next try and what would
    have been enough, who holds the memory, and how memory use changed in the last minute."""
    text = bundle(busy_server())["text/plain"]
    assert [" ".join(line.split()) for line in text.splitlines()] == [
        "Out of memory on cuda:0 (GPU 0 H200): 6.0 GiB requested, 2.1 of 139.8 GiB free",
        "1. Free this error's frames before you try again · 21.9 GiB",
        "%gpu free --yes",
        "%debug is not possible after that",
        "Each of these would have been enough:",
        "2. Free embeddings if no longer needed · 9.2 GiB",
        "%gpu free embeddings --yes",
        "no use was found in the code that failed",
        "3. Shut down bob: python train.py --config large.yaml if no longer needed · 38.0 GiB",
        "Only a try shows whether this is enough:",
        "4. Make the batch 2 times smaller, or process it in 2 parts (gradient accumulation)",
        "the step had 22.0 GiB and requested 6.0 GiB more, but only 24.1 GiB was available to it · enough up "
        "to the point of the error, if memory grows with the batch · mixed precision and activation "
        "checkpointing reduce a step's memory too",
        "held by from cell memory",
        "model In [4] 41.5 GiB",
        "optimizer In [5] 16.0 GiB",
        "this error's frames (kept by the notebook itself) In [12] 21.9 GiB",
        "embeddings In [7] 9.2 GiB",
        "Out[9] (kept by the notebook itself) In [9] 3.3 GiB",
        "autograd or unknown 102 MiB",
        "freed since the error 300 MiB",
        "torch: reserved but not in tensors 2.0 GiB",
        "bob: python train.py --config large.yaml 38.0 GiB",
        "CUDA context and other libraries 612 MiB",
        "free 2.1 GiB",
        "holder unknown 4.8 GiB",
        "total 139.8 GiB",
        "By cell: In [4] 41.5 GiB (model = Transformer(config).cuda()), In [12] 21.9 GiB "
        "(train(model, loader)), other or unknown cells 102 MiB.",
        "By use: parameters 41.0 GiB, optimizer states 16.0 GiB, saved for backward 22.0 GiB.",
        "The GPU's memory over the last 59.5 s, sampled: 98.0 → 137.0 GiB.",
    ]


def test_html_has_the_same_content() -> None:
    """The HTML form contains the words and numbers of the text form, and also a chart."""
    data = bundle(busy_server())
    for text in ("model", "In [12]", "of 139.8 GiB", "%gpu free embeddings --yes", "98.0 → 137.0 GiB"):
        assert text in data["text/html"]
    assert "<svg" in data["text/html"]
    assert "<script" not in data["text/html"]


def table(context: OomContext) -> list[str]:
    """Return the rows of the text form's table of holders, without its header."""
    lines = [" ".join(line.split()) for line in bundle(context)["text/plain"].splitlines()]
    rows = lines[lines.index("held by from cell memory") + 1 :]
    return rows[: next(n for n, row in enumerate(rows) if row.startswith("total")) + 1]


def test_the_table_adds_up() -> None:
    """The rows of the table, which include torch's unused cache and the free memory, add up to the total in
    the last row.
    """
    full = oom_context(
        oom_holder("variable", "model", 92.0, 4),
        facts={"others": (OtherMemory("bob: train.py", 43 * GIB, True),)},
    )
    assert table(full) == [
        "model In [4] 92.0 GiB",
        "torch: reserved but not in tensors 2.0 GiB",
        "bob: train.py 43.0 GiB",
        "free 2.1 GiB",
        "total 139.1 of 139.8 GiB",
    ]


def limited() -> OomContext:
    """Return the context of an error in a process with a memory limit of 3 GiB on an empty H200."""
    return oom_context(
        oom_holder("variable", "model", 2.0, 4, variables=None),
        facts={"free": 137 * GIB, "limit": 3 * GIB, "reserved": 2 * GIB, "fragmented": 0},
    )


def test_the_free_memory_within_a_limit() -> None:
    """If the process has a memory limit, the table shows how much of the GPU's free memory the limit allows.
    The rows still add up. The fix that raises the limit has the new limit's size."""
    assert table(limited()) == [
        "model In [4] 2.0 GiB",
        "free within this process's own limit 1.0 GiB",
        "free, but above this process's own limit 136.0 GiB",
        "total 139.0 of 139.8 GiB",
    ]
    lines = bundle(limited())["text/plain"].splitlines()
    assert "from 3.0 GiB to 8.4 GiB" in lines[2]
    assert lines[3] == "      torch.cuda.set_per_process_memory_fraction(0.06, 'cuda:0')"
    assert "137.0 GiB free" in lines[4]


def pieces(context: OomContext) -> list[tuple[str, float]]:
    """Return the name and the width in percent of each piece of the bar. The free memory has no name."""
    bar = bundle(context)["text/html"].partition("background:#8883'>")[2].partition("</div>")[0]
    found = re.findall(r"<i(?: title='([^']*)')? style='width:([\d.]+)%", bar)
    return [(unescape(name).replace("\xa0", " "), float(width)) for name, width in found]


def test_the_bar() -> None:
    """One bar shows the memory up to the limit that applied, to scale: the largest holders by name, the
    request within the free memory, and the rest of the request beyond the limit."""
    found = pieces(busy_server())
    # The whole bar is the GPU's memory and the 3.9 GiB of the request that exceed it.
    scale = 100 / (139.8 + 3.9)
    assert [(name, round(width / scale, 1)) for name, width in found] == [
        ("model 41.5 GiB", 41.5),
        ("optimizer 16.0 GiB", 16.0),
        ("embeddings 9.2 GiB", 9.2),
        ("smaller ones 3.4 GiB", 3.4),
        ("this error's frames 21.9 GiB", 21.9),
        ("freed since the error 300 MiB", 0.3),
        ("torch, not in tensors 2.0 GiB", 2.0),
        ("bob: python train.py --config l… 38.0 GiB", 38.0),
        ("CUDA context and other libraries 612 MiB", 0.6),
        ("holder unknown 4.8 GiB", 4.8),
        ("", 2.1),
        ("", 0.0),
        ("requested 6.0 GiB · 3.9 GiB too much", 3.9),
    ]


def test_the_bar_up_to_a_process_limit() -> None:
    """If the process's own limit applied, the bar ends there and leaves out other processes. A request of
    more than the limit again is drawn shorter, which the key says."""
    assert pieces(limited()) == [
        ("model 2.0 GiB", 33.33),
        ("", 16.67),
        ("", 0.0),
        ("requested 6.0 GiB · 5.0 GiB too much (drawn shorter)", 50.0),
    ]


@pytest.mark.parametrize("name", ["requested", "free", "total"])
def test_no_bar_without_figures(name: str) -> None:
    """Without the request's size, the free or the total memory, there is no bar."""
    assert pieces(oom_context(oom_holder("variable", "model", 92.0, 4), facts={name: None})) == []


def test_memory_without_a_known_holder() -> None:
    """If no holder is known, the bar says so, and the folded part contains the reason."""
    unknown = "Couldn't tell what other processes hold (no driver here)."
    context = oom_context(facts={"fragmented": None}, unknown=(unknown,))
    assert pieces(context)[0] == ("holder unknown 137.7 GiB", 95.82)
    folded = bundle(context)["text/html"].partition("<details")[2]
    assert unknown in unescape(folded)


def test_the_first_step_does_more_than_free_the_frames() -> None:
    """If the command of the first step is also one of the fixes, the card shows the command only once."""
    kept = oom_context(
        oom_holder("notebook", "this error", 21.9, 12, is_error=True, before=frozenset()),
        oom_holder("notebook", "Out[9]", 9.2, 9),
        facts={"at_start": None},
    )
    text, html = bundle(kept)["text/plain"], bundle(kept)["text/html"]
    assert "(Out[9]) · 9.2 GiB\n      the command of 1 does this too\n" in text
    assert text.count("%gpu free --yes") == html.count("%gpu free --yes") == 1


def test_the_first_step_is_first_if_nothing_else_helps() -> None:
    """If no fix would have been enough, the error's frames are still to be freed first."""
    frames = oom_holder("notebook", "this error", 21.9, 12, is_error=True, before=frozenset())
    lines = bundle(oom_context(frames, facts={"at_start": None}))["text/plain"].splitlines()
    assert lines[1].startswith("  1. Free this error's frames")
    assert lines[1].endswith(" · 21.9 GiB")
    assert lines[2] == "      %gpu free --yes"
    assert lines[4].startswith("  No single known fix")


def test_a_variable_that_the_traceback_also_reaches() -> None:
    """The traceback of the last error is not shown as another name of a variable."""
    model = oom_holder("variable", "model", 41.5, 4)
    names = ("model", "net", "the last error's traceback")
    held = replace(model, holder=replace(model.holder, names=names))
    assert (
        "model = net (also reachable from the last error's traceback)  In [4]"
        in (bundle(oom_context(held))["text/plain"])
    )


def test_the_chart_has_a_caption() -> None:
    """The caption of the chart contains the first and the last value. It also contains the highest value if
    that is higher than both.
    """
    assert "98.0 → 137.0 GiB.</div>" in bundle(busy_server())["text/html"]
    peaked = replace(busy_server(), recent=tuple((5.0 - n, (n % 3 + 1) * GIB) for n in range(5)))
    assert "1.0 → 2.0 GiB, at most 3.0 GiB." in bundle(peaked)["text/plain"]


def test_no_chart_without_samples() -> None:
    """If there are too few samples of the memory, the card has no chart, and no sentence about the last
    minute."""
    data = bundle(replace(busy_server(), recent=()))
    assert "sampled" not in data["text/plain"]
    assert "<svg" not in data["text/html"]
    few = bundle(replace(busy_server(), recent=((2.0, GIB), (1.0, None), (0.5, 2 * GIB))))
    assert "sampled" not in few["text/plain"]


def test_no_chart_without_the_total() -> None:
    """If the size of the GPU's memory is unknown, the card has no chart, whose axis is in percent, but still
    the sentence about the last minute."""
    made = busy_server()
    html = bundle(replace(made, facts=replace(made.facts, total=None)))["text/html"]
    assert "98.0 → 137.0 GiB.</div>" in html
    assert "<svg" not in html


def test_unknown_values() -> None:
    """Unknown values are omitted, not shown as 0, and the card contains the reason."""
    bare = oom_context(
        gpu=None,
        facts=dict.fromkeys(("free", "total", "allocated", "reserved", "fragmented", "at_start", "older_now"))
        | {"uses": ()},
        unknown=(
            (
                "Couldn't tell who holds torch's memory, because torch uses the allocator cudaMallocAsync, "
                "which provides only some counters."
            ),
        ),
    )
    title, no_fix, unknown = bundle(bare)["text/plain"].splitlines()
    assert title == "Out of memory on cuda:0: 6.0 GiB requested"
    assert no_fix.startswith("  No single known fix")
    assert unknown == f"  {bare.unknown[0]}"


def test_contradictory_values() -> None:
    """If the error's numbers contradict each other, because enough memory was free, the card states this and
    suggests no fix.
    """
    text = bundle(oom_context(facts={"free": 90 * GIB}))["text/plain"]
    assert "enough memory was free" in text
    assert "would have been enough" not in text


def largest(suffix: str) -> OomContext:
    """Return a context that has more entries than a card shows, with names that end in ``suffix``."""
    names = [f"v{n}{suffix}" for n in range(60)]
    return replace(
        oom_context(
            *(oom_holder("variable", name, 60.0 - n, n) for n, name in enumerate(names)),
            facts={"others": tuple(OtherMemory(name, 30 * GIB, True) for name in names)},
        ),
        gpu=HOSTILE * 10,
        cells=tuple(CellShare(n + 1, name, GIB) for n, name in enumerate(names)),
        recent=tuple((60 - n / 4, n * GIB // 2) for n in range(240)),
        unknown=(HOSTILE * 40,) * 3,
    )


def test_size_and_escaping() -> None:
    """Even the largest card takes less than 20 kB, or 12 kB as a part of a watched cell's card. All markup in
    its text is escaped in the HTML."""
    data = bundle(largest(HOSTILE * 8))
    assert len(json.dumps(data)) < 20_000
    assert len(json.dumps(bundle(largest(""), is_part=True))) < 12_000
    assert "<img" not in data["text/html"]


def test_the_smallest_holders_share_a_row() -> None:
    """A card shows the ten largest holders and six processes. One row each has the sum of all others."""
    context = replace(largest(""), unknown=())
    rows = table(context)
    assert rows[10] == "50 more 1275.0 GiB"
    assert rows[18] == "54 more processes 1620.0 GiB"


def test_only_what_to_do_is_numbered() -> None:
    """If memory rises with each step, the last line says what would not help. It is not one of the numbered
    steps."""
    at = CodeLine("In [3]", 4, "losses.append(loss)")
    kept = Retention(
        name="losses",
        kind="item",
        at=at,
        bytes=60 * GIB,
        blocks=frozenset({1}),
        in_graphs=True,
        is_scalar=True,
        items=40,
        operations=0,
        is_tensor=True,
        change="losses.append(loss.item())",
        clear="losses.clear()",
        is_hook=False,
        is_used_in_backward=False,
        calls_backward=True,
        retains_graph=False,
    )
    data = bundle(oom_context(oom_holder("variable", "losses", 60.0, 3), facts={"retained": (kept,)}))
    lines = data["text/plain"].splitlines()[1:7]
    assert lines[0].endswith(" · 60.0 GiB")
    assert lines[1] == "      losses.append(loss.item())"
    assert lines[2].startswith("      losses keeps 40 results")
    assert lines[2].endswith(" · about 1.5 GiB each · In [3], line 4: losses.append(loss)")
    assert lines[3].endswith(" · 60.0 GiB")
    assert lines[4] == "      losses.clear()"
    delayed = "would only delay the error"
    assert delayed in lines[5]
    assert delayed in data["text/html"]


def test_what_the_labextension_adds_buttons_to() -> None:
    """The card has the type that the labextension renders. The code of a fix that works as a cell is marked
    for *Insert cell*, and what replaces a line of the failing code only for *Copy*."""
    made = bundle(oom_context(oom_holder("variable", "old", 50, 3)))
    assert made["application/vnd.gpuwidget.card+json"] == {}
    assert re.findall(r"<code class='(.*?)'.*?>(.*?)</code>", made["text/html"]) == [
        ("gpuwidget-insert", "%gpu free old --yes")
    ]
