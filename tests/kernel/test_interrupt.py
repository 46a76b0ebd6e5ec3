"""Interrupting a watched cell has the same effect as interrupting an unwatched one,
and the watched cell has a card."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers_kernel import Kernel, Ran
from helpers_pair import Pair, assert_same, check_card

import gpuwidget

SETUP = """
import asyncio, itertools, linecache, os, sys, threading, time
from gpuwidget.model.thread_frames import caller_of, frames_of_threads
HERE = "# he" + "re"
def reached():
    open('reached', 'w').close()
def signal_when_here():
    "Makes a file as soon as the main thread is on a line with the comment."
    main = threading.main_thread().ident
    def look():
        while True:
            frame = frames_of_threads()[main]
            place = (frame.f_code.co_filename, frame.f_lineno)
            # linecache has no source for the code that %%time compiles.
            if place == ("<timed exec>", 2) or HERE in linecache.getline(*place):
                return reached()
            time.sleep(0.002)
    threading.Thread(target=look, daemon=True).start()
def signal_when_waiting():
    "Makes a file as soon as the main thread waits for an answer: an interrupt before that reads otherwise."
    main = threading.main_thread().ident
    def look():
        while True:
            frame = frames_of_threads()[main]
            while frame is not None:
                if frame.f_code.co_name == 'select' and caller_of(frame).f_code.co_name == '_input_request':
                    return reached()
                frame = caller_of(frame)
            time.sleep(0.002)
    threading.Thread(target=look, daemon=True).start()
"""

CASES = {
    "sleep": "signal_when_here()\ntime.sleep(60)  # here",
    "pure Python": "signal_when_here()\nwhile True: pass  # here",
    "finally": "try:\n    signal_when_here()\n    time.sleep(60)  # here\nfinally:\n    print('cleaned up')",
    "caught": "try:\n    signal_when_here()\n    time.sleep(60)  # here\n"
    "except KeyboardInterrupt:\n    print('caught')\n'went on'",
    "another error instead": "try:\n    signal_when_here()\n    time.sleep(60)  # here\n"
    "except KeyboardInterrupt:\n    raise RuntimeError('stopped') from None",
    "in a function": "def wait():\n    signal_when_here()\n    time.sleep(60)  # here\nwait()",
    "%%time": "%%time\nsignal_when_here()\ntime.sleep(60)  # here",
    "%%capture": "%%capture\nprint('kept to itself')\nsignal_when_here()\ntime.sleep(60)  # here",
    "a lock": "lock = threading.Lock()\nlock.acquire()\nsignal_when_here()\nlock.acquire()  # here",
}

AWAITING = {
    "await": "asyncio.get_running_loop().call_soon(reached)\n"
    "while not os.path.exists('go'): await asyncio.sleep(0.005)",
    "await in a function": "async def wait():\n    asyncio.get_running_loop().call_soon(reached)\n"
    "    while not os.path.exists('go'): await asyncio.sleep(0.005)\nawait wait()",
}
IGNORED_AFTER_S = 2
"""A kernel may ignore an interrupt while a cell awaits.
The test then lets the cell end after this many seconds."""


def names_gpuwidget_code(traceback: list[str]) -> bool:
    """Return whether the traceback names a file of gpuwidget.
    Only the end of the path is compared, because IPython shortens the home directory to ``~``."""
    package = Path(gpuwidget.__file__).parent
    return f"{package.parent.name}/{package.name}/" in "".join(traceback)


@pytest.fixture(scope="module", autouse=True)
def _prepared(pair: Pair) -> None:
    pair.setup(SETUP)


def interrupted(pair: Pair, body: str, options: str, times: int = 1) -> None:
    """Run ``body`` unwatched and watched,
    interrupt each kernel when its cell creates the file ``reached``, and compare the results."""

    def stop(kernel: Kernel, request: str) -> None:
        for _ in range(times):
            kernel.wait_for_file("reached")
            kernel.interrupt()

    pair.same(body, options=options, during=stop)
    pair.both("_, 1 + 1")


@pytest.mark.parametrize("options", ["", "--no-live"])
@pytest.mark.parametrize("name", CASES)
def test_interrupts_have_the_same_effect(pair: Pair, name: str, options: str) -> None:
    """An interrupt has the same effect on a cell with %%gpuwatch as on one without it,
    traceback included, and the cell has a card."""
    interrupted(pair, CASES[name], options)


@pytest.mark.parametrize("name", AWAITING)
def test_interrupted_while_awaiting(pair: Pair, name: str) -> None:
    """If a cell is interrupted during an ``await``, the effect is the same as on an unwatched cell in the
    same version of ipykernel, and the cell has a card."""

    def stop(kernel: Kernel, request: str) -> None:
        kernel.wait_for_file("reached")
        kernel.interrupt()
        if not kernel.has_ended(request, within_s=IGNORED_AFTER_S):
            (kernel.folder / "go").touch()

    pair.same(AWAITING[name], options="", during=stop)
    for kernel in (pair.plain, pair.watched):
        (kernel.folder / "go").unlink(missing_ok=True)
    pair.both("1 + 1")


def test_interrupted_twice(pair: Pair) -> None:
    """If a cell catches the first interrupt,
    a second interrupt ends the cell as it would without %%gpuwatch."""
    body = "for i in range(2):\n    try:\n        signal_when_here()\n        time.sleep(60)  # here\n"
    body += "    except KeyboardInterrupt:\n        if i == 1: raise\n        print('not yet')"
    interrupted(pair, body, "", times=2)


def test_interrupted_while_the_chart_shows(pair: Pair) -> None:
    """If a cell is interrupted while its live chart is shown, the chart is removed and the card is shown."""

    def stop(kernel: Kernel, request: str) -> None:
        kernel.wait_for_file("reached")
        if kernel is pair.watched:
            assert kernel.wait_for_message(request, lambda message: message.shows_chart) is not None
        kernel.interrupt()

    pair.same("signal_when_here()\ntime.sleep(60)  # here", options="", during=stop)


def test_interrupted_input(pair: Pair) -> None:
    """Interrupting input() ends a watched cell as it ends an unwatched one."""

    def stop(kernel: Kernel, request: str) -> None:
        kernel.wait_for_message(request, lambda message: message.type == "input_request")
        kernel.wait_for_file("reached")
        kernel.interrupt()

    pair.same("signal_when_waiting()\ninput('who? ')", during=stop, allow_stdin=True)


def test_interrupted_while_printing(kernel: Kernel) -> None:
    """If a cell that prints in a loop is interrupted, it has one traceback,
    without frames of gpuwidget, and a card."""
    kernel.setup(SETUP)
    body = "for i in itertools.count():\n    print(i)\n    if i == 100: reached()\n    time.sleep(0.0001)"
    request = kernel.send(f"%%gpuwatch\n{body}")
    kernel.wait_for_file("reached")
    kernel.interrupt()
    ran = kernel.wait(request)
    (error,) = [message.content for message in ran.messages if message.type == "error"]
    assert error["ename"] == "KeyboardInterrupt"
    assert not names_gpuwidget_code(error["traceback"])
    assert check_card(ran)["cell"]["status"] == "interrupted"


@pytest.mark.parametrize("body", ["%%gpuwatch\nprint(1)", "with watch():\n    print(1)"])
def test_interrupted_while_a_printed_line_is_recorded(kernel: Kernel, body: str) -> None:
    """If an interrupt arrives while gpuwidget records a printed line,
    the traceback ends in the code that printed the line."""
    kernel.setup(
        "import gpuwidget\nfrom gpuwidget.measure.printed_lines import PRINTED_LINES\n"
        "watch = gpuwidget.watch\n"
        "def pressed(line):\n    PRINTED_LINES.unsubscribe(pressed)\n    raise KeyboardInterrupt\n"
        "PRINTED_LINES.subscribe(pressed)"
    )
    ran = kernel.run(body)
    (error,) = [message.content for message in ran.messages if message.type == "error"]
    assert error["ename"] == "KeyboardInterrupt"
    assert "print" in "".join(error["traceback"])
    assert not names_gpuwidget_code(error["traceback"])


def test_interrupted_in_a_namespace_without_a_name(kernel: Kernel) -> None:
    """Code in a namespace whose ``__name__`` is not a string can be interrupted like any other code."""
    kernel.setup("import gpuwidget")
    ran = kernel.run("with gpuwidget.watch():\n    exec('raise KeyboardInterrupt', {'__name__': None})")
    assert ran.reply["ename"] == "KeyboardInterrupt"


def test_interrupt_after_the_end(kernel: Kernel) -> None:
    """An interrupt that arrives after the cell's code has ended, while the card is created, has no effect."""
    kernel.setup(SETUP)
    kernel.setup(
        "from gpuwidget.views import card\nmade = card.bundle\n"
        "def slow_bundle(*given):\n    reached()\n    while not os.path.exists('go'): time.sleep(0.002)\n"
        "    return made(*given)\n"
        "card.bundle = slow_bundle"
    )
    request = kernel.send("%%gpuwatch\n6 * 7")
    kernel.wait_for_file("reached")
    kernel.interrupt()
    (kernel.folder / "go").touch()
    ran = kernel.wait(request)
    kernel.setup("card.bundle = made")
    assert (ran.reply["status"], ran.result) == ("ok", "42")
    assert check_card(ran)["cell"]["status"] == "ok"
    assert kernel.run("%%gpuwatch\n1 / 0").reply["ename"] == "ZeroDivisionError"


# The next cell's hooks read the counts before and after the cell. Setting up a test runs no hooks.
SLOW_HOOK = """
from gpuwidget.kernel.attribution import cell_memory
counts = cell_memory.pytorch.allocation_counts
calls = []
def slow_counts():
    calls.append(1)
    if len(calls) == {call}:
        reached()
        while not os.path.exists('go'): time.sleep(0.002)
    return counts()
cell_memory.pytorch.allocation_counts = slow_counts
"""


def interrupted_in_hook(kernel: Kernel, call: int, code: str) -> Ran:
    """Run ``code``, and interrupt the hook that reads the allocator's counts for the ``call``-th time."""
    (kernel.folder / "go").unlink(missing_ok=True)  # another test's
    kernel.setup(SETUP + SLOW_HOOK.format(call=call))
    request = kernel.send(code)
    kernel.wait_for_file("reached")
    kernel.interrupt()
    (kernel.folder / "go").touch()
    ran = kernel.wait(request)
    kernel.setup("cell_memory.pytorch.allocation_counts = counts")
    return ran


def test_interrupt_in_a_hook_after_the_cell(kernel: Kernel) -> None:
    """An interrupt that arrives while gpuwidget records the cell's memory, after the cell, has no effect."""
    ran = interrupted_in_hook(kernel, 2, "6 * 7")
    assert (ran.reply["status"], ran.result) == ("ok", "42")
    assert [message.type for message in ran.messages if message.type in ("error", "stream")] == []


def test_interrupt_in_a_hook_before_the_cell(kernel: Kernel) -> None:
    """An interrupt that arrives while gpuwidget records the memory before a cell ends the cell's code."""
    ran = interrupted_in_hook(kernel, 1, "time.sleep(60)")
    (error,) = [message.content for message in ran.messages if message.type == "error"]
    assert error["ename"] == "KeyboardInterrupt"
    assert not names_gpuwidget_code(error["traceback"])


def test_an_interrupt_of_the_wait_for_the_gpu_stops_run_all(kernel: Kernel) -> None:
    """If the user interrupts while gpuwidget waits for the GPU after a cell's code, the cell keeps its result
    and card, and fails with the reason. Run All stops, however long later hooks take."""
    kernel.setup(
        "import gpuwidget.measure.run as run, time\n"
        "drain, run._drain_gpu = run._drain_gpu, lambda *arguments: (None, True)\n"
        "slow = lambda result: time.sleep(0.3)\n"
        "get_ipython().events.register('post_run_cell', slow)"
    )
    watched, behind = kernel.run_all("%%gpuwatch\n6 * 7", "behind = 1")
    kernel.setup("run._drain_gpu = drain\nget_ipython().events.unregister('post_run_cell', slow)")
    assert (watched.reply["status"], behind.reply["status"]) == ("error", "aborted")
    assert (watched.result, len(watched.cards)) == ("42", 1)
    (error,) = [message.content for message in watched.messages if message.type == "error"]
    assert (error["ename"], error["evalue"]) == (
        "KeyboardInterrupt",
        "Interrupted while gpuwidget waited for the GPU: the cell's code had already ended.",
    )


def test_next_cells_are_not_run(pair: Pair) -> None:
    """If a watched cell fails, Run All stops, and the cells after it do not run."""
    plain = pair.plain.run_all("# %%gpuwatch\n1 / 0", "behind = 1", "# %%gpuwatch\nbehind = 2")
    watched = pair.watched.run_all("%%gpuwatch\n1 / 0", "behind = 1", "%%gpuwatch\nbehind = 2")
    for ran_plain, ran_watched in zip(plain, watched, strict=True):
        assert_same(ran_plain, ran_watched)
    assert [ran.reply["status"] for ran in watched] == ["error", "aborted", "aborted"]
    assert [len(ran.cards) for ran in watched] == [1, 0, 0]
    pair.both("'behind' in globals()")


def test_next_cells_are_not_run_after_an_interrupt(pair: Pair) -> None:
    """If a watched cell is interrupted, Run All stops, and the cells after it do not run."""
    rans = []
    for kernel, line in ((pair.plain, "# %%gpuwatch\n"), (pair.watched, "%%gpuwatch\n")):
        requests = [kernel.send(code) for code in (line + CASES["sleep"], "behind = 1")]
        kernel.wait_for_file("reached")
        kernel.interrupt()
        rans.append([kernel.wait(request) for request in requests])
    for ran_plain, ran_watched in zip(*rans, strict=True):
        assert_same(ran_plain, ran_watched)
    assert [ran.reply["status"] for ran in rans[1]] == ["error", "aborted"]
    assert rans[1][0].reply["ename"] == "KeyboardInterrupt"
    assert [len(ran.cards) for ran in rans[1]] == [1, 0]
    pair.both("'behind' in globals()")
