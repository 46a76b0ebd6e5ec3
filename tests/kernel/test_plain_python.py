"""gpuwidget works without a Jupyter kernel, in terminal IPython and in plain scripts."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from helpers_kernel import KERNEL_PYTHON, skip_without_torch

WAIT = "from gpuwidget.measure import run as measured\nmeasured.START_TIMEOUT_S = 30\n"
"""Makes watches wait longer for the source than usual, because the tests may run on a busy machine."""


def run(tmp_path: Path, *arguments: str, source: str = "replay") -> subprocess.CompletedProcess[str]:
    """Run the kernel's Python interpreter with an empty home directory,
    wait until it ends, and return the result."""
    environment = {
        **os.environ,
        "HOME": str(tmp_path),
        "IPYTHONDIR": str(tmp_path / "ipython"),
        "GPUWIDGET_SOURCE": source,
        "PYTHONWARNINGS": "default::ResourceWarning",
    }
    environment.pop("PYTHONPATH", None)
    return subprocess.run(
        [KERNEL_PYTHON, *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60
    )


def script(tmp_path: Path, text: str, source: str = "replay") -> str:
    """Run a script, assert that it succeeds and writes nothing to stderr, and return what it prints."""
    path = tmp_path / "script.py"
    path.write_text(text)
    ran = run(tmp_path, str(path), source=source)
    assert (ran.returncode, ran.stderr) == (0, "")
    return ran.stdout


@pytest.mark.parametrize("source", ["replay", "none"])
def test_script(tmp_path: Path, source: str) -> None:
    """In a script, ``with gpuwidget.watch()`` creates a report, whether there is a GPU or not."""
    text = f"{WAIT}import gpuwidget\nwith gpuwidget.watch('x') as w:\n    w.mark('half')\n"
    text += "print(w.report.cell.status, w.report.cell.label, w.report.cell.execution_count)\n"
    text += "print([mark.label for mark in w.report.timeline.marks], w.report.source.kind)"
    assert script(tmp_path, text, source) == f"ok x None\n['half'] {source}\n"


def test_script_loads_no_notebook_packages(tmp_path: Path) -> None:
    """A script that uses gpuwidget.watch() does not import IPython, ipywidgets, bqplot,
    torch, tornado or pandas."""
    text = "import gpuwidget, sys\nwith gpuwidget.watch() as w: pass\n"
    text += (
        "print(sorted({'IPython', 'ipywidgets', 'bqplot', 'torch', 'tornado', 'pandas'} & set(sys.modules)))"
    )
    assert script(tmp_path, text) == "[]\n"


def test_script_nested_and_in_threads(tmp_path: Path) -> None:
    """Watches can be nested, and can run in several threads at the same time.
    Each watch has a separate report."""
    text = """
import gpuwidget, threading
with gpuwidget.watch("outer") as outer:
    with gpuwidget.watch("inner") as inner:
        gpuwidget.mark("deep")
    gpuwidget.mark("shallow")
for w in (outer, inner):
    print(w.report.cell.label, [m.label for m in w.report.timeline.marks])
together = threading.Barrier(4)
found = {}
def work(n):
    with gpuwidget.watch(f"thread {n}") as w:
        together.wait()
        gpuwidget.mark(str(n))
        together.wait()
    found[n] = [w.report.cell.label, *(m.label for m in w.report.timeline.marks)]
threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
for t in threads: t.start()
for t in threads: t.join()
print([found[n] for n in range(4)])
"""
    expected = "outer ['shallow']\ninner ['deep']\n"
    expected += f"{[[f'thread {n}', str(n)] for n in range(4)]}\n"
    assert script(tmp_path, text) == expected


def test_script_decorators(tmp_path: Path) -> None:
    """A decorated function works as before and keeps its name.
    Its attribute ``report`` is the report of the last call."""
    text = """
import asyncio, gpuwidget
@gpuwidget.watch
def bare(a, b=2):
    "Adds."
    return a + b
@gpuwidget.watch("named")
def named():
    raise ValueError("no")
@gpuwidget.watch("slow")
async def slow():
    await asyncio.sleep(0)
    return "awaited"
class Model:
    @gpuwidget.watch
    def step(self):
        return type(self).__name__
print(bare.report, bare(1), bare.__name__, bare.__doc__, bare.report.cell.status)
try:
    named()
except ValueError as error:
    print(error, named.report.cell.label, named.report.cell.status)
print(asyncio.run(slow()), slow.report.cell.label, Model().step(), Model.step.report.cell.status)
"""
    expected = "None 3 bare Adds. ok\nno named error\nawaited slow Model ok\n"
    assert script(tmp_path, text) == expected


def test_script_ends_while_watching(tmp_path: Path) -> None:
    """A script that exits while a watch is active ends without delay and keeps its exit status."""
    path = tmp_path / "script.py"
    path.write_text(
        "import gpuwidget, sys\nw = gpuwidget.watch()\nw.__enter__()\nprint('ending')\nsys.exit(3)"
    )
    ran = run(tmp_path, str(path))
    assert (ran.returncode, ran.stdout, ran.stderr) == (3, "ending\n", "")


def test_report_as_text(tmp_path: Path) -> None:
    """print(report) prints the card as text."""
    text = "import gpuwidget\nwith gpuwidget.watch('in a terminal') as w: pass\nprint(w.report)"
    assert "in a terminal" in script(tmp_path, text)


def test_terminal_ipython(tmp_path: Path) -> None:
    """In terminal IPython, a watched cell shows its result and a single card as text."""
    path = tmp_path / "cells.py"
    path.write_text(
        f"{WAIT}from IPython.core.interactiveshell import InteractiveShell\n"
        "shell = InteractiveShell.instance(colors='NoColor')\n"
        "def run(cell):\n"
        "    print('>>>')\n"
        "    return shell.run_cell(cell, store_history=True)\n"
        "assert run('%load_ext gpuwidget').success\n"
        "assert run('%%gpuwatch --name labeled\\n6 * 7').result == 42\n"
        "assert type(run('%%gpuwatch\\n1 / 0').error_in_exec) is ZeroDivisionError\n"
        "assert run('%%gpuwatch\\nimport asyncio\\nawait asyncio.sleep(0, 5)').result == 5\n"
        "assert not run('%%gpuwatch --nonsense\\nran = 1').success and 'ran' not in shell.user_ns\n"
        "assert run('%gpu watch on').success and run('7').result == 7\n"
        "run('import time; time.sleep(1)')\n"
        "assert run('%unload_ext gpuwidget').success\n"
        "run('8')\n"
    )
    ran = run(tmp_path, str(path))
    assert ran.returncode == 0
    assert "Traceback" not in ran.stderr
    parts = ran.stdout.split(">>>\n")[1:]
    cards = ["recording" in part.lower() for part in parts]
    assert cards == [False, True, True, True, False, False, False, True, False, False]
    assert parts[1].count("labeled") == 1
    assert parts[2].count("ZeroDivisionError: division by zero") == 1


def test_ipython_command(tmp_path: Path) -> None:
    """`ipython -c` with a watched cell exits with status 0, without messages about threads or sockets."""
    cell = "get_ipython().run_cell('%load_ext gpuwidget'); get_ipython().run_cell('%%gpuwatch\\n6 * 7')"
    ran = run(tmp_path, "-m", "IPython", "--colors=NoColor", "-c", cell)
    assert ran.returncode == 0
    assert "42" in ran.stdout
    assert "Exception" not in ran.stderr


def test_terminal_memory_attribution_after_an_interrupt(tmp_path: Path) -> None:
    """In terminal IPython, after Ctrl-C has ended an ``await``,
    memory is still attributed to each later cell."""
    text = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
import torch
from helpers_out_of_memory import LimitedGpu
from IPython.terminal.interactiveshell import TerminalInteractiveShell
gpu = LimitedGpu(torch, 16 * 2**20)
gpu.install()
shell = TerminalInteractiveShell.instance(user_ns={{"mib": lambda n: gpu.empty(n * 2**18)}})
run = lambda code: shell.run_cell(code, store_history=True)
run("%load_ext gpuwidget")
run("import asyncio, gpuwidget\\nx = mib(1)")
run("def stop():\\n    raise KeyboardInterrupt")
run("asyncio.get_event_loop().call_soon(stop)\\nawait asyncio.sleep(20)")
print("----")
run("a = mib(2)")
run("b = mib(3)")
run("%gpu memory --cells")
run("c = mib(20)")
"""
    skip_without_torch()
    path = tmp_path / "program.py"
    path.write_text(text)
    ran = run(tmp_path, str(path), source="none")
    assert ran.returncode == 0, ran.stderr
    assert "KeyboardInterrupt" in ran.stdout
    after = ran.stdout.partition("----\n")[2]
    assert [" ".join(line.split()) for line in after.splitlines()[:3]] == [
        "In [6] b = mib(3) 3.0 MiB",
        "In [5] a = mib(2) 2.0 MiB",
        "In [2] import asyncio, gpuwidget 1.0 MiB",
    ]
    assert "Out of memory on cuda:0: 20 MiB requested" in after
