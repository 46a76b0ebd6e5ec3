"""Printed text and the outputs that gpuwidget adds to a cell, in their order, in a real kernel."""

from __future__ import annotations

import pytest
from helpers_kernel import Kernel
from helpers_outputs import shown

SETUP = """
import contextlib, io, sys, threading
from IPython.display import clear_output, display
from IPython.utils.capture import capture_output
class Tee:
    "Writes to the kernel's stream and to a log, as loggers do."
    def __init__(self, stream): self.stream, self.log, self.flushed = stream, [], 0
    def write(self, text): self.log.append(text); return self.stream.write(text)
    def flush(self): self.flushed += 1; self.stream.flush()
"""
SLOT = """
from gpuwidget.kernel.shell.output_slot import OutputSlot
{before}
slot = OutputSlot.reserve(get_ipython())
{after}
thread = threading.Thread(target=slot.renew, args=({{"text/plain": "chart"}},))
thread.start(); thread.join()
slot.close()
"""


WAITS = "clear_output(wait=True)"
CELLS: dict[str, tuple[tuple[str, ...], list[str]]] = {
    "stdout": (("print('text')", WAITS), ["text\n", "card"]),
    "stderr": (("print('text')", "sys.stderr.write('error\\n');", WAITS), ["text\n", "error\n", "card"]),
    "loop": (("for i in range(3):", f"    {WAITS}", "    print(i)", WAITS), ["2\n", "card"]),
    "display": (("display(1)", "print('text')", WAITS), ["1", "text\n", "card"]),
    "user's stream": (
        ("with contextlib.redirect_stdout(Tee(sys.stdout)):", "    print('text')", f"    {WAITS}"),
        ["text\n", "card"],
    ),
    "captured": (
        ("with capture_output():", "    print('in')", f"    {WAITS}", "print('text')", WAITS),
        ["text\n", "card"],
    ),
    "not last": (("print('old')", WAITS, "print('text')"), ["text\n", "card"]),
    "at once": (("print('text')", "clear_output()"), ["card"]),
}
"""The lines of each cell, and what stands there in the end."""


@pytest.mark.parametrize(("lines", "stays"), CELLS.values(), ids=CELLS)
def test_the_card_stands_below_the_text(kernel: Kernel, lines: tuple[str, ...], stays: list[str]) -> None:
    """A cell that ends on ``clear_output(wait=True)`` keeps its text, and its card comes below it."""
    kernel.setup(SETUP)
    assert shown(kernel.ok("\n".join(("%%gpuwatch --no-live", *lines))).messages) == stays


def test_a_chart_stands_below_the_text_before_it(kernel: Kernel) -> None:
    """A chart comes below what was printed before it, at the cell's beginning and after a clearing."""
    kernel.setup(SETUP)
    ran = kernel.ok(SLOT.format(before="print('before')", after="print('after')"))
    kinds = [message.type for message in ran.messages if message.type in ("stream", "display_data")]
    assert kinds == ["stream", "display_data", "stream", "display_data"]
    assert shown(ran.messages) == ["before\n", "after\n", "chart"]


def test_a_chart_leaves_the_users_stream_alone(kernel: Kernel) -> None:
    """A stream that the user put in stdout's place is not flushed from another thread than the cell's."""
    kernel.setup(SETUP)
    ran = kernel.ok(
        "with contextlib.redirect_stdout(Tee(sys.stdout)) as tee:"
        + SLOT.format(before="", after="").replace("\n", "\n    ")
        + "\nassert tee.flushed == 0"
    )
    assert shown(ran.messages) == ["chart"]
