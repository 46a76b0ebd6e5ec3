"""The measured time of a failed cell ends with its error, before IPython formats the traceback."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from helpers_kernel import Kernel

SETUP = """
import asyncio, gpuwidget
class Explained:
    "Puts a mark on the run as IPython makes its traceback, which it is asked for."
    def _render_traceback_(self):
        global explained
        explained += 1
        gpuwidget.mark('explained')
        return ['what went wrong']
class Failed(Explained, Exception): pass
class Stopped(Explained, KeyboardInterrupt): pass
def fail():
    gpuwidget.mark('at work')
    raise Failed
explained = 0
"""


@pytest.fixture(scope="module")
def kernel(start_kernel: Callable[..., Kernel]) -> Kernel:
    """Return a kernel with gpuwidget loaded, in which cells can raise special exceptions.

    They add a mark while IPython formats their traceback. If the measured time ended before, the report does
    not contain this mark.
    """
    made = start_kernel()
    made.setup(SETUP)
    made.setup("%load_ext gpuwidget")
    return made


def marks(kernel: Kernel, cell: str, status: str = "error") -> list[str]:
    """Run a watched cell that fails, and return the labels of the marks in its report."""
    kernel.setup("explained = 0")
    ran = kernel.run(cell)
    assert (ran.reply["status"], kernel.value("explained > 0")) == ("error", "True")
    assert ran.reply["traceback"] == ["what went wrong"]
    assert ran.report["cell"]["status"] == status
    return [mark["label"] for mark in ran.report["timeline"]["marks"]]


@pytest.mark.parametrize(
    "body",
    [
        "fail()",
        "await asyncio.sleep(0)\nfail()",
        "async def run():\n    fail()\nawait run()",
        "1\n2\nfail();",
    ],
)
def test_the_measured_time_ends_with_the_error(kernel: Kernel, body: str) -> None:
    """The run of a failed cell ends before IPython formats the traceback, and the traceback is unchanged."""
    assert marks(kernel, f"%%gpuwatch\n{body}") == ["at work"]


def test_the_measured_time_ends_with_an_interrupt(kernel: Kernel) -> None:
    """The measured time of an interrupted cell ends with the interrupt."""
    body = "gpuwidget.mark('at work')\nraise Stopped"
    assert marks(kernel, f"%%gpuwatch --no-live\n{body}", "interrupted") == ["at work"]


def test_the_measured_time_below_another_magic(kernel: Kernel) -> None:
    """If another cell magic, such as %%prun, runs the watched cell,
    the cell's measured time still ends with the error."""
    assert marks(kernel, "%%prun -q\n%%gpuwatch\nfail()") == ["at work"]


def test_the_users_exception_handler(kernel: Kernel) -> None:
    """A handler that the user has set with set_custom_exc is called as usual,
    after the measured time has ended."""
    kernel.setup(
        "def handle(shell, kind, error, trace, tb_offset=None):\n"
        "    handled.append(kind.__name__)\n    shell.showtraceback((kind, error, trace))\n"
        "handled = []\nget_ipython().set_custom_exc((Failed,), handle)"
    )
    assert marks(kernel, "%%gpuwatch\nfail()") == ["at work"]
    assert kernel.value("handled") == "['Failed']"
    kernel.setup("get_ipython().set_custom_exc((), None)")


@pytest.mark.parametrize("body", ["1", "fail()", "SyntaxError(", "raise SystemExit", "%unload_ext gpuwidget"])
def test_the_result_has_no_additional_attributes(kernel: Kernel, body: str) -> None:
    """The result of a watched cell is IPython's own ExecutionResult, without additional attributes."""
    kernel.setup(
        "from IPython.core.interactiveshell import ExecutionResult\n"
        "def look(result):\n    seen.append((type(result) is ExecutionResult, sorted(vars(result))))\n"
        "seen = []\nget_ipython().events.register('post_run_cell', look)"
    )
    kernel.run(f"%%gpuwatch\n{body}")
    kernel.ok("%reload_ext gpuwidget")
    kernel.run(body)
    kernel.setup("get_ipython().events.unregister('post_run_cell', look)")
    kernel.ok("%reload_ext gpuwidget")
    assert kernel.value("seen[0] == seen[2] and seen[0][0]") == "True"
    assert kernel.value("type(get_ipython().last_execution_result) is ExecutionResult") == "True"
