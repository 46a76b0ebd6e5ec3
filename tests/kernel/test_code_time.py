"""Where the time went, in a real kernel: the cell's own lines, functions of other cells, modules, await."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from helpers_kernel import Kernel


def lines(kernel: Kernel, body: str) -> dict[int | None, Any]:
    """Where the time of a watched cell went, by line."""
    report = kernel.ok(f"%%gpuwatch --no-live\n{body}").report
    return {line["line"]: line for line in report["time"]["lines"]}


def test_lines_of_the_cell(kernel: Kernel) -> None:
    """The line that takes the time has it, with its source; the magic's line counts as the first."""
    found = lines(kernel, "import time\n\ntime.sleep(1.2)")
    assert found[4]["source"] == "time.sleep(1.2)"
    assert found[4]["share"] > 80
    assert found[4]["gpu_busy"] is None


def test_functions_of_other_cells_and_modules(start_kernel: Callable[..., Kernel]) -> None:
    """The cell's line, and below it the user's own frame, by the cell or the file that has it."""
    kernel = start_kernel()
    (kernel.folder / "mine.py").write_text("import time\ndef step():\n    time.sleep(0.6)\n")
    kernel.run("%load_ext gpuwidget")
    kernel.run("import mine, time\ndef epoch():\n    time.sleep(0.6)")
    found = lines(kernel, "epoch()\nmine.step()")
    assert found[2]["frame"] == "In[2]:3 epoch"
    assert found[3]["frame"] == "mine.py:3 step"


def test_an_awaiting_cell(kernel: Kernel) -> None:
    """A cell that awaits is charged at the line that awaits."""
    found = lines(kernel, "import asyncio\nawait asyncio.sleep(1.2)")
    assert found[3]["share"] > 80
    assert found[3]["call"] == "asyncio.tasks.sleep"


def test_the_body_of_a_magic_is_the_cells(kernel: Kernel) -> None:
    """Under %%time and %%capture the lines are the cell's, with its numbers and its words."""
    found = lines(kernel, "%%time\n%%capture out\nimport time\ntime.sleep(0.7)\ntime.sleep(0.5)")
    assert [(found[line]["source"], found[line]["until"]) for line in (5, 6)] == [
        ("time.sleep(0.7)", None),
        ("time.sleep(0.5)", None),
    ]
    assert found[5]["share"] + found[6]["share"] > 95
    found = lines(kernel, "%%time\nimport time\nfor _ in range(4):\n    time.sleep(0.3)")
    assert found[5]["share"] > 95
    found = lines(kernel, "x = 1\n%time time.sleep(1)")
    assert (found[3]["source"], found[3]["frame"]) == ("%time time.sleep(1)", None)
    assert found[3]["share"] > 95


def test_a_cell_that_fails(kernel: Kernel) -> None:
    """Formatting its traceback is no time of its code."""
    ran = kernel.run("%%gpuwatch --no-live\nimport time\ntime.sleep(0.7)\n1 / 0")
    assert ran.reply["status"] == "error"
    assert [line["line"] for line in ran.report["time"]["lines"]] == [3]


def test_a_statement_that_keeps_the_interpreter(kernel: Kernel) -> None:
    """A large power is looked at only when it is done: its time is not the next line's, nor nobody's."""
    found = lines(kernel, "import time\ntime.sleep(0.8)\nx = 3**3_000_000\ny = x * x")
    together = found[3]
    assert together["until"] == 5
    assert together["share"] > 95


def test_nothing_goes_on_after_the_cell(kernel: Kernel) -> None:
    """The witness's thread ends with its cell, an interrupted or failing one included."""
    lines(kernel, "import time\ntime.sleep(0.5)")
    kernel.run("%%gpuwatch\n1 / 0")
    ran = kernel.run("import threading; print([t.name for t in threading.enumerate() if 'code' in t.name])")
    assert ran.text.strip() == "[]"


@pytest.mark.parametrize(
    "statement",
    [
        "!sleep 1",
        "found = !sleep 1",
        "subprocess.run(['sleep', '1'])",
        "subprocess.run(['sleep', '1'], capture_output=True)",
        "get_ipython().run_cell_magic('bash', '', 'sleep 1')",
        "await (await asyncio.create_subprocess_exec('sleep', '1')).wait()",
    ],
)
def test_waiting_for_a_child_process(kernel: Kernel, statement: str) -> None:
    """A line that starts a program and waits for it says so, and not which function of a library waits."""
    ran = kernel.ok(f"%%gpuwatch --no-live\nimport asyncio, subprocess\n{statement}")
    line = ran.report["time"]["lines"][0]
    assert (line["line"], line["frame"], line["call"]) == (3, None, "waiting for a child process")
    assert line["call_share"] > 0.9 * line["share"] > 80
    assert "% of the time, waiting for a child process" in ran.cards[0]["text/plain"]
