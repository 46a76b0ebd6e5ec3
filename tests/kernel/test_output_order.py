"""In a real kernel, gpuwidget's outputs appear below the text that was printed before them."""

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
slot.close({{"text/plain": "chart"}})
"""


CLEAR_LATER = "clear_output(wait=True)"
CELLS: dict[str, tuple[tuple[str, ...], list[str]]] = {
    "stdout": (("print('text')", CLEAR_LATER), ["text\n", "card"]),
    "stderr": (
        ("print('text')", "sys.stderr.write('error\\n');", CLEAR_LATER),
        ["text\n", "error\n", "card"],
    ),
    "loop": (("for i in range(3):", f"    {CLEAR_LATER}", "    print(i)", CLEAR_LATER), ["2\n", "card"]),
    "display": (("display(1)", "print('text')", CLEAR_LATER), ["1", "text\n", "card"]),
    "user's stream": (
        ("with contextlib.redirect_stdout(Tee(sys.stdout)):", "    print('text')", f"    {CLEAR_LATER}"),
        ["text\n", "card"],
    ),
    "captured": (
        ("with capture_output():", "    print('in')", f"    {CLEAR_LATER}", "print('text')", CLEAR_LATER),
        ["text\n", "card"],
    ),
    "not last": (("print('old')", CLEAR_LATER, "print('text')"), ["text\n", "card"]),
    "at once": (("print('text')", "clear_output()"), ["card"]),
}
"""The lines of each cell, and the outputs that the cell must have at its end."""


@pytest.mark.parametrize(("lines", "expected"), CELLS.values(), ids=CELLS)
def test_the_card_is_below_the_text(kernel: Kernel, lines: tuple[str, ...], expected: list[str]) -> None:
    """The card appears below the text that remains, wherever the cell calls ``clear_output()``."""
    kernel.setup(SETUP)
    assert shown(kernel.ok("\n".join(("%%gpuwatch --no-live", *lines))).messages) == expected


def test_a_chart_is_below_the_text_before_it(kernel: Kernel) -> None:
    """If the live chart gets a new output, it appears below all text that was printed before."""
    kernel.setup(SETUP)
    ran = kernel.ok(SLOT.format(before="print('before')", after="print('after')"))
    kinds = [kind for kind in ran.message_types if kind != "update_display_data"]
    assert kinds == ["stream", "display_data", "stream", "display_data"]
    assert shown(ran.messages) == ["before\n", "after\n", "chart"]


def test_a_chart_does_not_flush_the_users_stream(kernel: Kernel) -> None:
    """If the user has replaced stdout,
    the thread that shows the live chart does not flush the user's stream."""
    kernel.setup(SETUP)
    ran = kernel.ok(
        "with contextlib.redirect_stdout(Tee(sys.stdout)) as tee:"
        + SLOT.format(before="", after="").replace("\n", "\n    ")
        + "\nassert tee.flushed == 0"
    )
    assert shown(ran.messages) == ["chart"]
