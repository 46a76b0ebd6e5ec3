"""The cells of the schedules, and what each of them shows without gpuwidget."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Cell:
    """A cell whose outputs are known. ``SECONDS`` in its code is replaced by how long it runs."""

    code: str
    stdout: str = ""
    stderr: str = ""
    result: str | None = None
    """The text of the cell's result."""
    displayed: str | None = None
    """The text that the cell displays."""
    error: tuple[str, str] | None = None
    """The name and the text of the error with which the cell ends."""
    may_fail: tuple[str, ...] = ()
    """Names of errors with which the cell may end, depending on the fault."""
    ignores_interrupts: bool = False
    """Whether ipykernel may ignore an interrupt of this cell."""
    forks: bool = False
    """Whether the cell forks its process."""

    def body(self, seconds: float) -> str:
        """Return the code of a cell that runs for ``seconds``."""
        return self.code.replace("SECONDS", repr(seconds))


CELLS: Mapping[str, Cell] = {
    "sleep": Cell("import time\ntime.sleep(SECONDS)\n'slept'", result="'slept'"),
    "python": Cell(
        "import time\nend = time.monotonic() + SECONDS\nwhile time.monotonic() < end: pass\n'done'",
        result="'done'",
    ),
    "prints": Cell(
        "import time\nfor i in range(20):\n    print('line', i)\n    time.sleep(SECONDS / 20)",
        stdout="".join(f"line {i}\n" for i in range(20)),
    ),
    "stderr": Cell(
        "import sys, time\nprint('a warning', file=sys.stderr)\ntime.sleep(SECONDS)\n2 + 3",
        stderr="a warning\n",
        result="5",
    ),
    "error": Cell(
        "import time\nprint('before')\ntime.sleep(SECONDS)\nraise ValueError('of the cell')",
        stdout="before\n",
        error=("ValueError", "of the cell"),
    ),
    "display": Cell(
        "import time\nfrom IPython.display import display\n"
        "display({'text/plain': 'shown'}, raw=True)\ntime.sleep(SECONDS)",
        displayed="shown",
    ),
    "await": Cell(
        "import asyncio\nawait asyncio.sleep(SECONDS)\n'awaited'", result="'awaited'", ignores_interrupts=True
    ),
    "thread": Cell(
        "import threading, time\nthread = threading.Thread(target=time.sleep, args=(SECONDS,))\n"
        "thread.start()\nthread.join()\ntime.sleep(0.01)\n'joined'",
        result="'joined'",
    ),
    "fork": Cell(
        # A restart interrupts the kernel's children, too.
        "import os, time\nchild = os.fork()\nif child == 0:\n    try:\n        time.sleep(SECONDS / 2)\n"
        "    finally:\n        os._exit(7)\n"
        "try:\n    time.sleep(SECONDS)\nfinally:\n    ended = os.waitpid(child, 0)[1] >> 8\nended",
        result="7",
        forks=True,
    ),
    "multiprocessing": Cell(
        "import multiprocessing, time\n"
        "process = multiprocessing.get_context('fork').Process(target=time.sleep, args=(SECONDS / 2,))\n"
        "process.start()\ntry:\n    time.sleep(SECONDS)\nfinally:\n    process.join()\nprocess.exitcode",
        result="0",
        forks=True,
    ),
    "watch": Cell(
        "import gpuwidget, time\nwith gpuwidget.watch('part') as w:\n    time.sleep(SECONDS)\n"
        "w.report is not None",
        result="True",
    ),
    "shared memory": Cell(
        "import os, time\ntime.sleep(SECONDS)\ntry:\n    with open('/dev/shm/of-the-cell', 'wb') as file:\n"
        "        file.write(bytes(65536))\nfinally:\n    os.unlink('/dev/shm/of-the-cell')\n'written'",
        result="'written'",
        may_fail=("OSError",),
    ),
}
