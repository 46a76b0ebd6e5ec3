"""Loading and unloading the extension in a real kernel, ``%gpu watch``, reports,
child processes and imports."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

import pytest
from helpers_kernel import Kernel
from helpers_outputs import CARD, sequence
from helpers_pair import Pair, assert_same, check_card

from gpuwidget.views.card_summary import SHORT_S

SNAPSHOT = """
import asyncio, os, signal, sys, threading, time
def hooked():
    "All that an extension could hook into, with ours in it."
    ip = get_ipython()
    return {
        "cleanup": len(ip.input_transformers_cleanup), "post": len(ip.input_transformers_post),
        "ast": len(ip.ast_transformers),
        "events": {name: len(hooks) for name, hooks in ip.events.callbacks.items()},
        "magics": sorted(n for k in ip.magics_manager.magics.values() for n in k if "gpu" in n),
        "formatters": {mime: len(f.type_printers) + len(f.deferred_printers) + len(f.singleton_printers)
                       for mime, f in ip.display_formatter.formatters.items()},
        "publisher": sorted(vars(ip.display_pub)),
        "streams": [sorted(vars(s)) for s in (sys.stdout, sys.stderr)],
        "echo": [sys.stdout.echo, sys.stderr.echo],
        "control": sorted(ip.kernel.control_handlers), "comms": sorted(ip.kernel.comm_manager.targets),
        "sigint": signal.getsignal(signal.SIGINT) is signal.default_int_handler,
    }
def threads():
    return sorted(t.name for t in threading.enumerate() if "gpuwidget" in t.name)
"""


def shape(kernel: Kernel) -> dict[str, Any]:
    """Return the hooks that are currently registered in the kernel."""
    found = ast.literal_eval(kernel.value("hooked()"))
    assert isinstance(found, dict)
    return found


@pytest.fixture(scope="module")
def fresh(start_kernel: Callable[..., Kernel]) -> Kernel:
    """Return a kernel in which tests load and unload gpuwidget."""
    kernel = start_kernel()
    # Import ipywidgets before the hooks are compared, because its first import registers comm targets.
    kernel.setup("import bqplot, ipywidgets\n" + SNAPSHOT)
    return kernel


def test_loading_again(fresh: Kernel) -> None:
    """After repeated %load_ext and %reload_ext, each hook is registered once,
    and each watched cell has one card."""
    before = shape(fresh)
    fresh.ok("%load_ext gpuwidget")
    once = shape(fresh)
    assert once != before
    assert once["magics"] == ["gpu", "gpuwatch"]
    assert len(fresh.ok("%%gpuwatch\n1").cards) == 1
    for line in ("%load_ext gpuwidget", "%reload_ext gpuwidget", "%reload_ext gpuwidget"):
        fresh.ok(line)
        assert shape(fresh) == once
        assert len(fresh.ok("%%gpuwatch --no-live\n1").cards) == 1
    fresh.ok("%unload_ext gpuwidget")
    assert shape(fresh) == before


def test_unloading(fresh: Kernel) -> None:
    """%unload_ext removes all hooks, magics and threads of gpuwidget, even after a live chart was shown."""
    before = shape(fresh)
    fresh.ok("%load_ext gpuwidget")
    fresh.ok("%gpu watch on")
    request = fresh.send("%%gpuwatch\nwhile not os.path.exists('go'): time.sleep(0.01)")
    fresh.wait_for_message(request, lambda message: message.shows_chart)
    (fresh.folder / "go").touch()
    assert len(fresh.wait(request).cards) == 1
    assert fresh.ok("%unload_ext gpuwidget").cards == []
    assert shape(fresh) == before
    assert fresh.value("threads()") == "[]"
    ran = fresh.run("%%gpuwatch\n1")
    assert (ran.reply["status"], ran.reply["ename"], ran.cards) == ("error", "UsageError", [])
    assert "not found" in ran.reply["evalue"]
    assert fresh.ok("'unwatched'").cards == []


def test_unloading_directly_after_loading(fresh: Kernel) -> None:
    """%unload_ext removes everything, even directly after %load_ext, when the driver has not replied yet."""
    before = shape(fresh)
    for _ in range(5):
        fresh.ok("%load_ext gpuwidget\n%unload_ext gpuwidget")
        assert (shape(fresh), fresh.value("threads()")) == (before, "[]")


def test_reloading_within_a_watched_cell(fresh: Kernel) -> None:
    """If a watched cell reloads or unloads the extension, the cell succeeds."""
    before = shape(fresh)
    fresh.ok("%load_ext gpuwidget")
    once = shape(fresh)
    ran = fresh.ok("%%gpuwatch\n%reload_ext gpuwidget\n6 * 7")
    assert ran.result == "42"
    assert len(ran.cards) <= 1
    assert shape(fresh) == once
    assert len(fresh.ok("%%gpuwatch\n1").cards) == 1
    ran = fresh.ok("%%gpuwatch\n%unload_ext gpuwidget\n6 * 7")
    assert (ran.result, ran.cards) == ("42", [])
    assert (shape(fresh), fresh.value("threads()")) == (before, "[]")


def test_card_names_its_cell(kernel: Kernel) -> None:
    """The card contains the cell's execution count, the N of In[N].
    A cell that runs without store_history has none."""
    ran = kernel.ok("%%gpuwatch\n1")
    assert check_card(ran)["cell"]["execution_count"] == ran.reply["execution_count"]
    ran = kernel.run("%%gpuwatch\n1", store_history=False)
    assert check_card(ran)["cell"]["execution_count"] is None


@pytest.mark.parametrize("body", ["print(1)\ndisplay(2)\n3", "print(1)\n1 / 0"])
def test_place_of_the_card(kernel: Kernel, body: str) -> None:
    """The card is the cell's first output, where the live chart was or would have been. Without a live chart,
    the card is the last output. This is so even if the cell failed."""
    live, not_live = (kernel.run(f"%%gpuwatch {options}\n{body}").messages for options in ("", "--no-live"))
    outputs = [message for message in live if message.type in ("display_data", "stream")]
    assert outputs[0].is_live
    assert [message.type for message in live if message.is_card] == ["update_display_data"]
    assert not_live[-1].is_card
    assert not_live[-1].type == "display_data"


def took_long_or_changed(report: dict[str, Any]) -> bool:
    """Return whether a cell took long, as it may on a busy machine, or the memory of its GPUs changed."""
    memory = report["totals"]["memory"] or {}
    return bool(report["cell"]["duration_s"] >= SHORT_S or len(set(memory.values())) > 1)


def test_watch_every_cell(pair: Pair) -> None:
    """With %gpu watch on, each cell behaves as usual. It has a one-line card, unless it ended well, was
    short and changed nothing. gpuwidget's own magics have none. After %gpu watch off, cells have no card."""
    pair.run("pass", "%gpu watch on")
    cells = [
        "6 * 7",
        "print('x')\n1 / 0",
        "import asyncio\nawait asyncio.sleep(0)\n'awaited'",
        "%%time\n'timed'",
        "!echo shell",
        "%%capture kept\nprint('kept')\n5",
        "kept.stdout, kept.outputs",
        "len?",
        "# nothing",
        "def",
        "import sys; sys.exit(1)",
        "get_ipython().run_cell('8'); 9",
    ]
    for cell in cells:
        plain, watched = pair.run(cell, cell)
        assert_same(plain, watched)
        assert watched.live == []
        if watched.reply["status"] == "ok":
            assert not watched.cards or took_long_or_changed(watched.report)
            continue
        assert check_card(watched)["timeline"] is None
        (card,) = watched.cards
        assert "\n" not in card["text/plain"].strip()
        assert "<svg" not in card["text/html"]
    pair.run("pass", "%gpu watch on")
    _, watched = pair.run("1 / 0", "1 / 0")
    assert len(watched.cards) == 1
    _, watched = pair.run("1 / 0", "%gpu device no-such-device")
    assert watched.cards == []
    pair.run("pass", "%gpu watch off")
    pair.both("'unwatched'")


def test_gpuwatch_while_every_cell_is_watched(kernel: Kernel) -> None:
    """With %gpu watch on, a cell with %%gpuwatch has only one card, which is the full card."""
    kernel.ok("%gpu watch on")
    ran = kernel.ok("%%gpuwatch --name own\n1")
    report = check_card(ran)
    assert report["cell"]["label"] == "own"
    assert report["timeline"] is not None
    assert "\n" in ran.cards[0]["text/plain"].strip()
    assert kernel.ok("%gpu watch off").cards == []
    assert kernel.ok("1").cards == []
    assert len(kernel.ok("%%gpuwatch\n1").cards) == 1


@pytest.mark.parametrize(
    ("line", "expected"),
    [("%gpu watch maybe", "Did you mean %gpu watch on?"), ("%gpu nonsense <b>", "%gpu watch [on|off]")],
)
def test_unknown_gpu_command(kernel: Kernel, line: str, expected: str) -> None:
    """An unknown %gpu command prints the similar command, or else a list of the known commands, one per line,
    without a traceback."""
    ran = kernel.run(line)
    assert (ran.reply["status"], ran.reply["ename"]) == ("error", "UsageError")
    assert expected in ran.text
    assert [m for m in ran.messages if m.type == "error"] == []


def test_run_cell_magic(kernel: Kernel) -> None:
    """run_cell_magic('gpuwatch', …) runs the given code in the user's namespace and shows a card."""
    ran = kernel.ok("get_ipython().run_cell_magic('gpuwatch', '', 'through = 1\\nthrough + 1')")
    assert (ran.result, len(ran.cards)) == ("2", 1)
    assert kernel.ok("through").result == "1"
    ran = kernel.run("get_ipython().run_cell_magic('gpuwatch', '--no-live', '1 / 0')")
    assert (ran.reply["ename"], len(ran.cards)) == ("ZeroDivisionError", 1)
    assert [m.content["ename"] for m in ran.messages if m.type == "error"] == ["ZeroDivisionError"]
    assert ran.report["cell"]["status"] == "error"


def test_history_has_the_typed_cell(kernel: Kernel) -> None:
    """The history contains the cell as the user typed it, and %rerun watches it again."""
    typed = "%%gpuwatch --no-live\ntyped_here = 1\ntyped_here + 1"
    kernel.ok(typed)
    assert kernel.value("get_ipython().history_manager.input_hist_raw[-1]") == repr(typed)
    answer = kernel.reply_to(kernel.client.history(raw=True, output=False, hist_access_type="tail", n=1))
    assert answer["history"][-1][2] == typed
    assert typed in kernel.ok("%history -l 1").text
    kernel.ok(typed)
    ran = kernel.ok("%rerun")
    assert typed in ran.text
    assert len(ran.cards) == 1


@pytest.mark.parametrize(
    "body",
    [
        "",
        "1 + 1",
        "for i in range(3):",
        "for i in range(3):\n    i\n",
        "'''open",
        "(1,",
        "!ls",
        "len?",
        "1 +",
        "1 + 1\n\n",
        "for i in range(3):\n    i\n\n",
    ],
)
def test_is_complete_replies(pair: Pair, body: str) -> None:
    """A terminal waits for the body below %%gpuwatch exactly as it does below %%time."""
    plain = pair.plain.reply_to(pair.plain.client.is_complete(f"%%time\n{body}"))
    assert plain["status"] == ("complete" if body.endswith("\n\n") else "incomplete")
    watched = pair.watched.reply_to(pair.watched.client.is_complete(f"%%gpuwatch\n{body}"))
    assert watched == plain


def test_completion_and_inspection(pair: Pair) -> None:
    """Completion and tooltips work in a watched cell as in an unwatched one, and they run no code."""
    pair.setup("import sys")
    answers = []
    for kernel, line in ((pair.plain, "# %%gpuwatch\n"), (pair.watched, "%%gpuwatch   \n")):
        code = f"{line}sys.getswi"
        completed = kernel.reply_to(kernel.client.complete(code, len(code)))
        inspected = kernel.reply_to(kernel.client.inspect(f"{line}sys.getswitchinterval", len(line) + 8))
        answers.append((completed["matches"], kernel.clean(inspected)))
    assert answers[1] == answers[0]
    offered = pair.watched.reply_to(pair.watched.client.complete("%%gpuw", 6))["matches"]
    assert offered == ["%%gpuwatch"]
    pair.both("'still in step'")


def test_marks_and_printed_lines(kernel: Kernel) -> None:
    """Marks and printed lines appear on the card's timeline in order."""
    ran = kernel.ok(
        "%%gpuwatch\nimport gpuwidget\nprint('begin')\ngpuwidget.mark('epoch <1>')\n"
        "print('loss 0.5')\nprint('part', end='')"
    )
    marks = check_card(ran)["timeline"]["marks"]
    assert [(mark["kind"], mark["label"]) for mark in marks] == [
        ("printed", "begin"),
        ("mark", "epoch <1>"),
        ("printed", "loss 0.5"),
    ]
    assert "<1>" not in ran.cards[0]["text/html"]


@pytest.mark.parametrize(
    ("rest", "kept"),
    [
        ("clear_output()\nprint('kept')", ["kept"]),
        ("clear_output(wait=True)\nprint('kept')", ["kept"]),
        ("clear_output(wait=True)\ndisplay(1)\nprint('kept')", ["kept"]),
        ("clear_output(wait=True)\n'a result'", []),
        ("clear_output(wait=True)\n1 / 0", []),
        ("clear_output(wait=True)", ["secret"]),
        ("import ipywidgets\nwith ipywidgets.Output():\n    print('in it')\n    clear_output()", []),
    ],
)
def test_cleared_lines_are_not_saved(kernel: Kernel, rest: str, kept: list[str]) -> None:
    """The card has no printed line that the cell cleared, so that none is saved with the notebook."""
    ran = kernel.run(f"%%gpuwatch\nfrom IPython.display import clear_output\nprint('secret')\n{rest}")
    marks = ran.report["timeline"]["marks"]
    assert [mark["label"] for mark in marks] == kept


def test_with_statement_shows_nothing(kernel: Kernel) -> None:
    """``with gpuwidget.watch()`` displays nothing.
    If its report is a cell's result, the report is displayed as a card."""
    ran = kernel.ok("import gpuwidget\nwith gpuwidget.watch('inner') as w:\n    print('body')\n")
    assert sequence(ran.messages, set()) == [("stdout", "body\n")]
    ran = kernel.ok("w.report")
    (result,) = [message.content["data"] for message in ran.messages if message.type == "execute_result"]
    assert result[CARD]["cell"]["label"] == "inner"
    assert {"text/plain", "text/html"} <= set(result)


def test_reports_keeps_the_last_200(kernel: Kernel) -> None:
    """gpuwidget.reports() returns the last 200 reports in order, from watched cells,
    ``with`` statements and quiet cells."""
    kernel.ok("import gpuwidget\nfor i in range(201):\n    with gpuwidget.watch(str(i)): pass\n")
    kernel.ok("%%gpuwatch --quiet --name quiet\n1")
    assert kernel.ok("len(gpuwidget.reports())").result == "200"
    ran = kernel.ok("[r.cell.label for r in gpuwidget.reports()][:1] + [gpuwidget.reports()[-1].cell.label]")
    assert ran.result == "['2', 'quiet']"
    ran = kernel.ok("gpuwidget.reports()[-1]")
    (result,) = [message.content["data"] for message in ran.messages if message.type == "execute_result"]
    assert result[CARD]["cell"]["label"] == "quiet"


def test_a_forked_child_can_watch(kernel: Kernel) -> None:
    """A child process that a watched cell forks can use ``gpuwidget.watch()``.
    It exits successfully and shows no card."""
    ran = kernel.ok(
        "%%gpuwatch\nimport gpuwidget, os\npid = os.fork()\nif pid == 0:\n    code = 1\n    try:\n"
        # The first runs may end before the source is open.
        "        while True:\n"
        "            with gpuwidget.watch('child') as w: pass\n"
        "            if w.report.source.kind == 'replay': break\n"
        "        code = 0 if w.report.cell.status == 'ok' else 2\n"
        "    finally:\n        os._exit(code)\nos.waitpid(pid, 0)[1]"
    )
    assert (ran.result, len(ran.cards)) == ("0", 1)


def test_multiprocessing(kernel: Kernel) -> None:
    """multiprocessing's workers, forked or spawned, run and end normally in a watched cell."""
    for method, function in (("fork", "task"), ("spawn", "abs")):
        ran = kernel.ok(
            "%%gpuwatch\nimport multiprocessing\ndef task(n):\n    import gpuwidget\n"
            "    with gpuwidget.watch() as w: pass\n    return n if w.report.cell.status == 'ok' else None\n"
            f"with multiprocessing.get_context('{method}').Pool(2) as pool:\n"
            f"    found = pool.map({function}, range(4))\nfound",
        )
        assert (ran.result, len(ran.cards)) == ("[0, 1, 2, 3]", 1)


def test_imports(start_kernel: Callable[..., Kernel]) -> None:
    """gpuwidget never imports torch.
    While a cell runs, it does not import bqplot either if pandas is not imported, even if the cell awaits."""
    kernel = start_kernel()
    kernel.setup(
        "import sys, asyncio, time\ndef loaded(): return [n in sys.modules for n in ('torch', 'bqplot')]"
    )
    # Send all requests at once. If the kernel were idle before the first watched cell,
    # it would import the libraries of the live chart then.
    first = kernel.send("%load_ext gpuwidget")
    quiet = kernel.send(
        "%%gpuwatch --no-live\nbefore = loaded()\nfor i in range(40): await asyncio.sleep(0.02)\n"
        "before == loaded(), before[0]"
    )
    live = kernel.send("%%gpuwatch\nbefore = loaded()\ntime.sleep(0.01)\nbefore, before == loaded()")
    assert kernel.wait(first).reply["status"] == "ok"
    assert kernel.wait(quiet).result == "(True, False)"
    assert kernel.wait(live).result == "([False, True], True)"
