"""Tests of finding a thread's location in a cell, including magics, generated code and IPython's own
frames.
"""

from __future__ import annotations

import sysconfig
from typing import Any

import pytest
from helpers_frames import CELL, KERNEL, NAMES, OTHER_CELL, stack

from gpuwidget.model.cell_source import CellSource
from gpuwidget.model.report import WAITING_FOR_CHILD, in_call
from gpuwidget.profiler.code_locations import CodeLocator

STDLIB = sysconfig.get_path("stdlib")
IPYTHON = "/lib/site-packages/IPython/core/"
CELL_1 = (CELL, "<module>", 1)
MAGIC = (IPYTHON + "interactiveshell.py", "run_cell_magic", 5)
LINE_MAGIC = (IPYTHON + "interactiveshell.py", "run_line_magic", 5)
TIME = (IPYTHON + "magics/execution.py", "time", 7)
SLEEP = ("/lib/site-packages/lib.py", "sleep", 2)


def locate(text: str, *frames: tuple[str, str, int]) -> tuple[int | None, str | None, str | None]:
    """Return where a thread with these frames is: the line of the cell, the deepest frame in the user's
    files, and the call that the thread makes.
    """
    locator = CodeLocator(NAMES.__contains__, NAMES.get, CellSource.parse(text))
    locator.begin(stack(KERNEL), None)
    location = locator.locate(stack(KERNEL, *frames))
    return locator.cell_line(location), locator.frame(location), locator.call(location)


@pytest.mark.parametrize("above", ["", "%%gpuwatch\n", "\n\n%%gpuwatch --no-live\n\n"])
def test_the_body_of_time_has_the_cells_lines(above: str) -> None:
    """Code below %%time is attributed to its line in the cell. Magics count as lines, but as in IPython,
    empty lines at the start of the cell do not.
    """
    text = f"{above}%%time\n\nx = 1\ny = f(x)\n"
    line = len(text.lstrip("\n").splitlines())
    body = ("<timed exec>", "<module>", 2)
    assert locate(text, CELL_1, MAGIC, TIME, body) == (line, None, None)
    assert locate(text, CELL_1, MAGIC, TIME, body, SLEEP) == (line, None, "lib.sleep")
    assert locate(text, CELL_1, MAGIC, TIME) == (line - 3, None, "interactiveshell.run_cell_magic")


def test_magics_in_magics() -> None:
    """If a cell has two cell magics, code that the first magic runs is attributed to the line of the second
    magic, and code that the second magic runs to its line in the cell.
    """
    text = "%%prun\n%%time\nx = 1\ny = 2\n"
    outer, inner = ("<string>", "<module>", 1), ("<timed exec>", "<module>", 2)
    assert locate(text, CELL_1, MAGIC, outer)[0] == 2
    assert locate(text, CELL_1, MAGIC, outer, MAGIC, TIME, inner)[0] == 4


def test_functions_of_a_body_and_of_another_cells() -> None:
    """A function that is defined in this %%time cell is attributed to its line in the cell. A function that
    another %%time cell defined is shown as a call.
    """
    body, step = ("<timed exec>", "<module>", 4), ("<timed exec>", "step", 2)
    assert locate("%%time\ndef step():\n    x2 = 2\n\nstep()\n", CELL_1, MAGIC, body, step)[0] == 3
    assert locate("%%time\na = 1\nb = 2\nc = 3\nstep()\n", CELL_1, MAGIC, body, step) == (
        5,
        None,
        "<timed exec>.step",
    )


def test_a_line_magic_counts_for_its_line() -> None:
    """Code that the line magic %time runs is attributed to the magic's line, together with the calls that it
    makes.
    """
    frames = (CELL, "<module>", 3), LINE_MAGIC, TIME, ("<timed eval>", "<module>", 1)
    assert locate("x = 1\n\n%time f(x)\n", *frames) == (3, None, None)
    assert locate("x = 1\n\n%time f(x)\n", *frames, SLEEP) == (3, None, "lib.sleep")
    assert locate("x = 1\n\n%time f(x)\n", *frames, (OTHER_CELL, "f", 4)) == (3, "In[2]:4 f", None)


@pytest.mark.parametrize(
    "path",
    [
        "/tmp/torchinductor_me/qz/cqzx5fq3j.py",
        "/home/me/.triton/cache/ab/kernel.py",
        "/scratch/compiled/ab/cabc.py",
    ],
)
def test_code_that_torch_compiled_is_not_the_users(path: str, monkeypatch: Any) -> None:
    """Code that torch generated is shown as 'code compiled by torch', not as a file in a cache folder."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "/scratch/compiled")
    assert locate("", CELL_1, ("/home/me/train.py", "step", 9), (path, "call", 4)) == (
        1,
        "train.py:9 step",
        "code compiled by torch",
    )


SYSTEM = (
    ("/opt/lib/site-packages/ipykernel/zmqshell.py", "ZMQInteractiveShell.system_piped", 4),
    ("/opt/lib/site-packages/IPython/utils/_process_posix.py", "ProcessHandler.system", 5),
)
PEXPECT = (
    ("/opt/packages/pexpect/spawnbase.py", "read_nonblocking", 7),
    ("/opt/packages/pexpect/utils.py", "select_ignore_interrupts", 9),
)


@pytest.mark.parametrize(
    ("frames", "user"),
    [
        (SYSTEM + PEXPECT, None),
        # Functions of a library are recognized wherever the library is installed, for example in a folder
        # 'packages'.
        ((("/home/me/train.py", "step", 9), *SYSTEM, *PEXPECT), "train.py:9 step"),
        (((f"{STDLIB}/subprocess.py", "run", 3), (f"{STDLIB}/subprocess.py", "Popen.communicate", 5)), None),
        (((f"{STDLIB}/subprocess.py", "Popen.wait", 3), (f"{STDLIB}/subprocess.py", "_wait", 5)), None),
        (((IPYTHON + "magics/script.py", "in_thread", 3), (f"{STDLIB}/threading.py", "wait", 5)), None),
        (((f"{STDLIB}/multiprocessing/process.py", "BaseProcess.join", 4),), None),
    ],
)
def test_waiting_for_a_child_process(frames: Any, user: str | None) -> None:
    """If a line waits for a child process, this wait is shown as the line's call. The user's frame is shown
    too.
    """
    assert locate("", CELL_1, *frames) == (1, user, WAITING_FOR_CHILD)


def test_a_users_wait_function_is_a_call_like_others() -> None:
    """A function named wait or join in the user's code or in another library does not count as waiting for a
    child.
    """
    assert locate("", CELL_1, ("/home/me/subprocess.py", "wait", 3)) == (1, "subprocess.py:3 wait", None)
    assert locate("", CELL_1, ("/lib/site-packages/other/process.py", "join", 3)) == (1, None, "process.join")
    assert (in_call("json.loads"), in_call(WAITING_FOR_CHILD)) == ("in json.loads", WAITING_FOR_CHILD)
