"""The line profile in a real kernel: lines of the cell,
functions of other cells and modules, and ``await``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from helpers_kernel import Kernel


def lines(kernel: Kernel, body: str) -> dict[int | None, Any]:
    """Run a watched cell, and return the lines of its line profile as a dict with line numbers as keys.

    On a very busy machine, the kernel may get too little CPU time to show lines. The cell then runs again.
    """
    while True:
        time = kernel.ok(f"%%gpuwatch --no-live\n{body}").report["time"]
        if [reason["id"] for reason in time["reason_ids"]] != ["partly-not-sampled"] or time["lines"]:
            return {line["line"]: line for line in time["lines"]}


def test_lines_of_the_cell(kernel: Kernel) -> None:
    """The line profile attributes time to the line of the cell that took it.
    The line with the magic is line 1."""
    profile = lines(kernel, "import time\n\ntime.sleep(1.2)")
    assert profile[4]["source"] == "time.sleep(1.2)"
    assert profile[4]["share"] > 80
    assert profile[4]["gpu_busy"] is None


def test_functions_of_other_cells_and_modules(start_kernel: Callable[..., Kernel]) -> None:
    """If a line of the cell calls a function in another cell or in a module,
    the profile names the innermost frame of the user's code."""
    kernel = start_kernel()
    (kernel.folder / "mine.py").write_text("import time\ndef step():\n    time.sleep(0.6)\n")
    kernel.run("%load_ext gpuwidget")
    kernel.run("import mine, time\ndef epoch():\n    time.sleep(0.6)")
    profile = lines(kernel, "epoch()\nmine.step()")
    assert profile[2]["frame"] == "In[2]:3 epoch"
    assert profile[3]["frame"] == "mine.py:3 step"


def test_an_awaiting_cell(kernel: Kernel) -> None:
    """Time that a cell spends in ``await`` is attributed to the line with the ``await``."""
    profile = lines(kernel, "import asyncio\nawait asyncio.sleep(1.2)")
    assert profile[3]["share"] > 80
    assert profile[3]["call"] == "asyncio.tasks.sleep"


def test_cells_with_other_magics(kernel: Kernel) -> None:
    """If the cell also has %%time or %%capture,
    its line profile still has the line numbers and the source of the cell."""
    profile = lines(kernel, "%%time\n%%capture out\nimport time\ntime.sleep(0.7)\ntime.sleep(0.5)")
    assert [(profile[line]["source"], profile[line]["until"]) for line in (5, 6)] == [
        ("time.sleep(0.7)", None),
        ("time.sleep(0.5)", None),
    ]
    assert profile[5]["share"] + profile[6]["share"] > 95
    profile = lines(kernel, "%%time\nimport time\nfor _ in range(4):\n    time.sleep(0.3)")
    assert profile[5]["share"] > 95
    profile = lines(kernel, "x = 1\n%time time.sleep(1)")
    assert (profile[3]["source"], profile[3]["frame"]) == ("%time time.sleep(1)", None)
    assert profile[3]["share"] > 95


def test_functions_of_cells_with_a_capture_magic(start_kernel: Callable[..., Kernel]) -> None:
    """A function that is defined below %%capture is shown with the number of its cell and its line there.
    IPython gives the code below %%capture the number of the next cell."""
    kernel = start_kernel()
    (kernel.folder / "shown.py").write_text(
        "import sys\n"
        "from IPython import get_ipython\n"
        "from gpuwidget.kernel.cells.collectors import _profiler\n"
        "def frame():\n"
        "    locator = _profiler(get_ipython(), 'f()')._locator\n"
        "    return locator.frame(locator.locate(sys._getframe(1)))\n"
    )
    kernel.ok("%load_ext gpuwidget\nimport shown")
    kernel.ok("%%capture\n\nx = 1\n%time y = 2\ndef f():\n    return shown.frame()")
    assert kernel.value("f()") == "'In[2]:6 f'"
    kernel.ok("get_ipython().run_cell('def g():\\n    return shown.frame()')")
    assert kernel.value("g()") == "'a cell:2 g'"


def test_a_cell_that_fails(kernel: Kernel) -> None:
    """The line profile of a failed cell excludes the time that IPython takes to format the traceback."""
    ran = kernel.run("%%gpuwatch --no-live\nimport time\ntime.sleep(0.7)\n1 / 0")
    assert ran.reply["status"] == "error"
    assert [line["line"] for line in ran.report["time"]["lines"]] == [3]


def test_a_statement_that_holds_the_gil(kernel: Kernel) -> None:
    """The profiler can't take samples while a statement holds the GIL.
    All lines that may have taken the time between two samples share one row of the line profile."""
    profile = lines(kernel, "import time\ntime.sleep(0.8)\nx = 3**3_000_000\ny = x * x")
    assert profile[3]["until"] == 5
    assert profile[3]["share"] > 95


def test_the_profiler_stops_with_the_cell(kernel: Kernel) -> None:
    """After a watched cell ends, no profiler thread is left, even if the cell failed."""
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
    """For a line that waits for a child process, the profile gives 'waiting for a child process' as the call,
    instead of a library's function."""
    ran = kernel.ok(f"%%gpuwatch --no-live\nimport asyncio, subprocess\n{statement}")
    line = ran.report["time"]["lines"][0]
    assert (line["line"], line["frame"], line["call"]) == (3, None, "waiting for a child process")
    # On a loaded machine, starting the child process takes part of the time.
    assert line["share"] >= line["call_share"] > 0.5 * line["share"] > 40
    assert " % · " in ran.cards[0]["text/plain"]
    assert " · waiting for a child process" in ran.cards[0]["text/plain"]
