"""Tests of the card for real out-of-memory errors: it lists who holds the memory, and with its fixes the same
cell succeeds."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from helpers_kernel import Kernel, Ran

pytestmark = pytest.mark.gpu

SETUP = """
import torch
def gib(n): return torch.empty(round(n * 2**30), dtype=torch.uint8, device="cuda")
gib(0.001)
total = torch.cuda.mem_get_info()[1]
torch.cuda.set_per_process_memory_fraction(LIMIT * 2**30 / total)
"""


@pytest.fixture
def start(start_kernel: Callable[..., Kernel]) -> Callable[..., Kernel]:
    """Return a function that starts a kernel with gpuwidget. torch may use at most ``limit`` GiB of GPU 0 in
    it."""

    def start(limit: float, **environment: str) -> Kernel:
        kernel = start_kernel(CUDA_VISIBLE_DEVICES="0", **environment)
        kernel.ok(SETUP.replace("LIMIT", str(limit)))
        kernel.ok("%load_ext gpuwidget")
        return kernel

    return start


def card(ran: Ran) -> str:
    """Return the text of the only card below the traceback."""
    assert ran.reply["status"] == "error"
    assert ran.reply["ename"] == "OutOfMemoryError", ran.reply
    kinds = [message.type for message in ran.messages]
    assert "error" in kinds, ran.messages
    after = ran.messages[kinds.index("error") + 1 :]
    (bundle,) = [m.content["data"] for m in after if m.type == "display_data"]
    text = bundle["text/plain"]
    assert isinstance(text, str)
    return re.sub(r" {2,}", "  ", text)


def test_holders_and_fixes(start: Callable[..., Kernel]) -> None:
    """The card lists the sizes of variables, results and the error's frames. With any one of its fixes, the
    cell succeeds."""
    kernel = start(6)
    kernel.ok("model = gib(2)")
    kernel.ok("cache = [gib(0.75), gib(0.75)]")
    kernel.ok("gib(1)")
    cell = "def step():\n    batch = gib(0.5)\n    return (model[:1] + gib(1.25)[:1]).item()\nstep()"
    text = card(kernel.run(cell))
    first, *lines = text.splitlines()
    assert "1.2 GiB requested" in first or "1.3 GiB requested" in first
    assert "of this process's own limit of 6.0 GiB" in first
    for line in (
        "  model  In [3]  2.0 GiB",
        "  cache  In [4]  1.5 GiB",
        "  this error's frames (kept by the notebook itself)  In [6]  512 MiB",
    ):
        assert line in lines, text
    assert re.search(r"^  Out\[5\] = .*  In \[5\]  1\.0 GiB$", text, re.MULTILINE), text
    for fix in ("%gpu free --yes", "%gpu free cache --yes"):
        assert fix in text
    limit = re.search(r"torch\.cuda\.set_per_process_memory_fraction\(.*\)", text)
    assert limit is not None, text
    assert "Compute the tensor in parts" in text
    assert "Make the batch" not in text
    # Try one fix after the other, each from the same state.
    kernel.ok("%gpu free --yes")
    kernel.ok(cell)
    kernel.ok("gib(1)")
    card(kernel.run(cell))
    kernel.ok("%gpu free cache")
    kernel.ok(cell)
    kernel.ok("cache = [gib(0.75), gib(0.75)]")
    card(kernel.run(cell))
    # After another error, IPython no longer keeps the frames of the out-of-memory error.
    kernel.run("1 / 0")
    kernel.ok("import gc; gc.collect()")
    kernel.ok(limit[0])
    kernel.ok(cell)


def test_a_smaller_batch(start: Callable[..., Kernel]) -> None:
    """If the batch is made smaller by the factor on the card, the cell succeeds."""
    kernel = start(4)
    cell = (
        "class Step(torch.nn.Module):\n    def forward(self, n):\n        one = gib(2 / n)\n"
        "        two = gib(1.9 / n)\n        return gib(2 / n)\nfor _ in range({n}): Step()({n})"
    )
    text = card(kernel.run(cell.format(n=1)))
    parts = re.search(r"Make the batch (\d+) times smaller", text)
    assert parts is not None, text
    kernel.ok("%gpu free --yes")
    kernel.ok(cell.format(n=parts[1]))


def test_fragmented_memory(start: Callable[..., Kernel]) -> None:
    """If memory is fragmented, the card recommends expandable segments, with the environment variable of this
    torch version. With them, the cell succeeds."""
    fragment = (
        "kept, fill = [], []\nfor _ in range(4):\n    gib(1)\n    kept.append(gib(0.3)); "
        "fill.append(gib(0.69))\nfill.clear()"
    )
    kernel = start(4.5)
    kernel.ok(fragment)
    text = card(kernel.run("x = gib(1.5)"))
    advice = re.search(r"%env (\w+)=(\S+)", text)
    assert advice is not None, text
    better = start(4.5, **{advice[1]: advice[2]})
    better.ok(fragment)
    better.ok("x = gib(1.5)")
    kernel = start(4.5)
    kernel.ok("x = gib(4)")
    assert "expandable" not in card(kernel.run("y = gib(1)"))


def test_an_earlier_error(start: Callable[..., Kernel]) -> None:
    """If the frames of an earlier error hold memory, the card lists them, and the command that it recommends
    frees the memory."""
    kernel = start(4)
    card(kernel.run("def step():\n    big = gib(2.5)\n    gib(2.5)\nstep()"))
    text = card(kernel.run("x = gib(2.5)"))
    assert "Run the cell again" in text or "an earlier error's frames" in text
    if "an earlier error's frames" in text:
        kernel.ok("%gpu free --yes")
    kernel.ok("x = gib(2.5)")


def test_the_card_of_a_watched_cell(start: Callable[..., Kernel]) -> None:
    """The card of a watched cell contains the GPU, its memory over time and the holders."""
    kernel = start(4)
    text = card(
        kernel.run(
            "%%gpuwatch --no-live\nimport time\nkept = []\n"
            "while True:\n    kept.append(gib(0.5)); time.sleep(0.3)"
        )
    )
    assert re.search(r"The GPU's memory over the last \d+\.\d s, sampled: .* → ", text), text
    assert re.search(r"Out of memory on cuda:0 \(GPU \d+ ", text), text
    assert "kept  In [3]" in text


def test_a_real_message_against_the_counters(start: Callable[..., Kernel]) -> None:
    """Every number that is parsed from the error message of this torch version agrees with torch's
    counters."""
    kernel = start(4)
    kernel.ok("x = gib(3)")
    kernel.run("gib(2)")
    kernel.ok(
        "import sys\nfrom gpuwidget.measure.oom.message import parse_message\n"
        "parsed = parse_message(str(sys.last_value))\n"
        "stats = torch.cuda.memory_stats()\nfree, total = torch.cuda.mem_get_info()"
    )
    for name, exact in (
        ("requested", "2 * 2**30"),
        ("total", "total"),
        ("limit", "int(torch.cuda.get_per_process_memory_fraction() * total)"),
        ("allocated", "stats['allocated_bytes.all.current']"),
        ("unallocated", "stats['reserved_bytes.all.current'] - stats['allocated_bytes.all.current']"),
    ):
        assert kernel.value(f"parsed.{name}.low <= {exact} <= parsed.{name}.high") == "True", name
    assert kernel.value("parsed.index") == "0"
