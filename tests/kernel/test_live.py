"""The live chart in a real kernel, with simulated runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from helpers_kernel import Kernel, Ran
from helpers_outputs import CARD, LIVE_PREFIX, WIDGET, own_outputs, shown

TESTS = str(Path(__file__).parent.parent)
SETUP = f"""
import logging, sys, threading, time
sys.path.insert(0, {TESTS!r})
import ipywidgets
from dataclasses import replace
from IPython.display import clear_output, display
from IPython.utils.capture import capture_output
from gpuwidget.kernel.live import chart_libraries, live_display
from gpuwidget.kernel.shell.output_slot import OutputSlot
from helpers_progress import progress

class Run:
    "A synthetic run that counts how often its progress was read."
    def __init__(self, make=lambda count: progress(points=count)):
        self.make, self.reads, self.changed = make, 0, threading.Condition()
    def __call__(self):
        with self.changed:
            self.reads += 1
            self.changed.notify_all()
        return self.make(self.reads)
    def wait(self, reads=3):
        "Wait for that many more reads. By then the chart has sent everything but the last."
        self.wait_until(self.reads + reads)
    def wait_until(self, reads):
        with self.changed:
            assert self.changed.wait_for(lambda: self.reads >= reads, 60)

class Live:
    "What a watched cell does with its slot and its chart."
    def __init__(self, run, **options):
        self.slot = OutputSlot.reserve(get_ipython(), for_card=True)
        self.view = live_display.LiveDisplay(run, self.slot, **{{"period_s": 0.001, **options}})
    def stop(self, card={{}}):
        self.view.stop(); self.slot.close(card); self.view.close()

def start(run, **options):
    live = Live(run, **options)
    live.view.show()
    return live

def instances():
    module = ipywidgets.widgets.widget
    return module._instances if hasattr(module, "_instances") else ipywidgets.Widget.widgets

CARD = {{{CARD!r}: {{}}}}

def leftovers():
    "Return what a live chart could leave behind."
    publisher = get_ipython().display_pub
    return (len(instances()), [t.name for t in threading.enumerate() if t.name.startswith("gpuwidget")],
            list(publisher._hooks), "clear_output" in vars(publisher), "write" in vars(sys.stdout))
"""


@pytest.fixture(scope="module")
def kernel(start_kernel: Callable[..., Kernel]) -> Kernel:
    """Return a kernel in which simulated runs can be started and the live chart's libraries are imported."""
    kernel = start_kernel()
    kernel.setup(SETUP)
    kernel.setup("chart_libraries.import_libraries(); before = leftovers()")
    return kernel


def live_outputs(ran: Ran) -> list[str]:
    """Return a string for each message that displays or updates gpuwidget's output.
    The string consists of the message type and 'chart', 'card' or 'empty'."""
    return [
        f"{message.type} {'card' if message.is_card else 'chart' if message.shows_chart else 'empty'}"
        for message in ran.messages
        if message.is_live
    ]


def model_ids(ran: Ran, kind: str) -> list[str]:
    """Return the ids of the widget models in the cell's messages of type ``kind`` (``comm_open`` or
    ``comm_close``), in order."""
    return [message.content["comm_id"] for message in ran.messages if message.type == kind]


def test_a_long_cell_shows_and_clears_the_chart(kernel: Kernel) -> None:
    """An output is reserved for the live chart.
    The chart appears there and is updated, and at the end the output is empty."""
    ran = kernel.ok("r = Run(); v = start(r); r.wait(5); v.stop()")
    assert live_outputs(ran) == [
        "display_data empty",
        "update_display_data chart",
        "update_display_data empty",
    ]
    ids = {m.content["transient"]["display_id"] for m in ran.messages if m.is_live}
    assert len(ids) == 1
    assert ids.pop().startswith(LIVE_PREFIX)
    assert len([m for m in ran.messages if m.type == "comm_msg"]) >= 3


def test_nothing_is_left_behind(kernel: Kernel) -> None:
    """After the cell, no widget, thread, hook or front-end model of the live chart remains."""
    ran = kernel.ok("r = Run(); v = start(r); r.wait(5); v.stop()")
    assert kernel.value("leftovers()") == kernel.value("before")
    assert sorted(model_ids(ran, "comm_open")) == sorted(model_ids(ran, "comm_close"))
    assert len(model_ids(ran, "comm_open")) > 0


def test_a_short_cell_creates_no_widget(kernel: Kernel) -> None:
    """If a cell ends before its chart is shown, the chart's output stays empty,
    and the run's progress is not read."""
    code = "r = Run(); v = Live(r); v.stop(); v.view.show()"
    ran = kernel.ok(f"{code}; print(r.reads)")
    assert ran.message_types == ["display_data", "update_display_data", "stream"]
    assert live_outputs(ran) == ["display_data empty", "update_display_data empty"]
    assert ran.text == "0\n"
    assert model_ids(ran, "comm_open") == []
    assert kernel.value("leftovers()") == kernel.value("before")


def test_no_chart_without_a_gpu(kernel: Kernel) -> None:
    """If the machine has no GPU, no live chart is shown."""
    code = """
none = replace(progress(0), origin=replace(progress().origin, kind="none"))
r = Run(lambda count: none); v = start(r); r.wait(); v.stop()
"""
    assert live_outputs(kernel.ok(code)) == ["display_data empty", "update_display_data empty"]


def test_no_chart_before_the_first_sample(kernel: Kernel) -> None:
    """No live chart is shown before the first sample, because it is not known yet whether there is a GPU."""
    code = "r = Run(lambda count: replace(progress(0), origin=None)); v = start(r); r.wait(); v.stop()"
    assert live_outputs(kernel.ok(code)) == ["display_data empty", "update_display_data empty"]


def test_gpus_are_added(kernel: Kernel) -> None:
    """If the cell starts to use further GPUs while it runs, they are added to the live chart."""
    code = """
seen = (0, 1, 1, 4, 5, 16)
r = Run(lambda count: progress(seen[min(count, len(seen)) - 1])); v = start(r); r.wait(8); v.stop()
"""
    ran = kernel.ok(code)
    assert live_outputs(ran) == [
        "display_data empty",
        *["update_display_data chart"] * 5,
        "update_display_data empty",
    ]
    assert kernel.value("leftovers()") == kernel.value("before")


def test_the_chart_is_not_captured(kernel: Kernel) -> None:
    """%%capture captures the user's outputs, but not the live chart."""
    code = """
r = Run(); v = start(r)
with capture_output() as captured:
    print("mine"); display("mine too"); r.wait(5)
v.stop()
print(captured.stdout, len(captured.outputs))
"""
    ran = kernel.ok(code)
    assert ran.text == "mine\n 1\n"
    assert live_outputs(ran) == [
        "display_data empty",
        "update_display_data chart",
        "update_display_data empty",
    ]


def test_the_chart_is_shown_again_after_clear(kernel: Kernel) -> None:
    """clear_output() removes the live chart together with the other outputs.
    The chart then appears in a new output, where the card replaces it."""
    code = "r = Run(); v = start(r); r.wait(5); clear_output(); r.wait(5); v.stop(CARD)"
    ran = kernel.ok(code)
    assert shown(ran.messages) == ["card"]
    assert live_outputs(ran) == [
        "display_data empty",
        "update_display_data chart",
        "update_display_data empty",
        "display_data chart",
        "update_display_data card",
    ]
    display_ids = [m.content["transient"]["display_id"] for m in ran.messages if m.is_live]
    assert display_ids[0] == display_ids[2]
    assert display_ids[3] == display_ids[4] != display_ids[0]


def test_the_chart_does_not_trigger_a_pending_clear(kernel: Kernel) -> None:
    """After clear_output(wait=True), the user's next output clears the previous outputs.
    An update of the live chart does not clear them."""
    code = """
r = Run(); v = start(r); r.wait(5); clear_output(wait=True); r.wait(5)
display("next"); r.wait(5); v.stop()
"""
    ran = kernel.ok(code)
    assert [kind for kind in ran.message_types if kind in ("clear_output", "display_data")] == [
        "display_data",
        "clear_output",
        "display_data",
        "display_data",
    ]
    after = [m for m in ran.messages if m.type == "display_data"][1:]
    assert [m.is_live for m in after] == [False, True]


def test_printing_triggers_a_pending_clear(kernel: Kernel) -> None:
    """After clear_output(wait=True), a printed line clears the outputs, and the live chart appears again."""
    code = """
r = Run(); v = start(r); r.wait(5); clear_output(wait=True); r.wait(5)
print("next"); r.wait(5); v.stop()
"""
    ran = kernel.ok(code)
    assert live_outputs(ran)[-2:] == ["display_data chart", "update_display_data empty"]
    assert ran.text == "next\n"


@pytest.mark.parametrize("wait", ["", "wait=True"])
def test_the_chart_stays_away_from_a_progress_display(kernel: Kernel, wait: str) -> None:
    """A cell that clears its outputs every few moments, as a progress display does, loses the chart with the
    first call. The chart does not flash between the others, and the card is at the end."""
    code = f"""
r = Run(); v = start(r); r.wait(5)
for step in range(6): clear_output({wait}); print(step); r.wait(5)
v.stop(CARD)
"""
    ran = kernel.ok(code)
    assert shown(ran.messages) == ["5\n", "card"]
    assert live_outputs(ran).count("display_data chart") <= 1


@pytest.mark.parametrize("clear", ["", "clear_output(); "])
def test_a_chart_that_comes_too_late(kernel: Kernel, clear: str) -> None:
    """If the thread that shows the chart is late, because the machine is busy, the chart does not take the
    place of the card."""
    code = f"""
from gpuwidget.kernel.live.live_chart import LiveChart
r = Run(); v = start(r); r.wait(5) if {bool(clear)} else None
bundle, entered = LiveChart.bundle, threading.Event()
def late(chart):
    entered.set(); time.sleep(1); return bundle(chart)
LiveChart.bundle = late
v.view._shown = None
{clear}entered.wait(30)
v.stop(CARD); LiveChart.bundle = bundle
v.view._thread.join(30)
"""
    ran = kernel.ok(code)
    assert shown(ran.messages) == ["card"]
    assert kernel.value("leftovers()") == kernel.value("before")


ENDS = {
    "text": ("print('text')", ["card", "text\n"]),
    "progress bar": (r"for i in range(3): print(f'\r{i}', end='', flush=True)", ["card", "2"]),
    "clear": ("print('old'); clear_output(); print('text')", ["text\n", "card"]),
    "clear later": ("print('stays'); clear_output(wait=True)", ["card", "stays\n"]),
    "cleared later": ("print('old'); clear_output(wait=True); print('text')", ["text\n", "card"]),
    "clear later twice": (
        "clear_output(); print('stays'); clear_output(wait=True)",
        ["stays\n", "card"],
    ),
    "captured": ("with capture_output(): print('in'); display('in'); clear_output()", ["card"]),
}
"""Cells with a chart, and the outputs that remain at the end."""


@pytest.mark.parametrize(("cell", "expected"), ENDS.values(), ids=ENDS)
@pytest.mark.parametrize("long", [False, True])
def test_the_card_replaces_the_chart(kernel: Kernel, cell: str, expected: list[str], long: bool) -> None:
    """The card appears where the chart was, above the cell's text. Where the cell has cleared the chart, the
    card is below. A pending clear_output(wait=True) clears nothing. No further output of gpuwidget is left,
    even if the cell was too short for a chart."""
    # A chart that is no longer updated doesn't appear again after a clear_output().
    before = "v = start(r); r.wait(5); v.view.stop()" if long else "v = Live(r)"
    ran = kernel.ok(f"r = Run(); {before}\n{cell}\nv.stop(CARD)")
    assert shown(ran.messages) == expected
    assert len(own_outputs(ran.messages)) == 1
    assert kernel.value("leftovers()") == kernel.value("before")


def test_the_chart_stays_until_the_card_is_shown(kernel: Kernel) -> None:
    """The chart's widgets are closed after the card has replaced the chart, so its place is never empty."""
    ran = kernel.ok("r = Run(); v = start(r); r.wait(5); v.stop(CARD)")
    kinds = [
        "card" if m.is_card else "chart" if m.shows_chart else m.type
        for m in ran.messages
        if m.is_card or m.shows_chart or m.type == "comm_close"
    ]
    assert kinds[:2] == ["chart", "card"]
    assert set(kinds[2:]) == {"comm_close"}


def test_a_console_shows_the_card_below(kernel: Kernel) -> None:
    """A front end that may ignore updates of an output, such as a terminal console, gets the card as a new
    output below the others."""
    ran = kernel.ok("r = Run(); v = start(r); r.wait(5); print('text'); v.stop(CARD)", metadata={})
    assert shown(ran.messages) == ["text\n", "card"]
    assert [m.type for m in ran.messages if m.is_card] == ["display_data"]


def test_an_output_widget_to_the_end(kernel: Kernel) -> None:
    """While an Output widget captures the cell's outputs, a front end ignores updates, so the card is a new
    output."""
    code = """
out = ipywidgets.Output(); r = Run(); v = start(r); r.wait(5); out.__enter__(); v.stop(CARD)
out.__exit__(None, None, None); out.layout.close(); out.close()
"""
    ran = kernel.ok(code)
    assert [m.type for m in ran.messages if m.is_card] == ["display_data"]


def test_no_chart_in_an_output_widget(kernel: Kernel) -> None:
    """While an Output widget captures the cell's outputs, no live chart is shown.
    Afterwards, the chart appears in the cell."""
    code = """
out = ipywidgets.Output(); inside = threading.Event()
r = Run(lambda count: progress() if inside.is_set() else replace(progress(0), origin=None)); v = start(r)
with out:
    inside.set(); r.wait(5)
print("after"); r.wait(5); v.stop(); out.layout.close(); out.close()
"""
    ran = kernel.ok(code)
    released = next(
        index
        for index, m in enumerate(ran.messages)
        if m.type == "comm_msg" and m.content["data"].get("state", {}).get("msg_id") == ""
    )
    assert [m.is_live for m in ran.messages[:released]].count(True) == 1
    assert live_outputs(ran)[1:] == ["update_display_data chart", "update_display_data empty"]


def test_clearing_an_output_widget_keeps_the_chart(kernel: Kernel) -> None:
    """clear_output() within an Output widget clears only that widget.
    The live chart stays in the cell and is not shown twice."""
    code = """
out = ipywidgets.Output(); r = Run(); v = start(r); r.wait(5)
with out:
    clear_output(); r.wait(5)
r.wait(5); v.stop(); out.layout.close(); out.close()
"""
    assert live_outputs(kernel.ok(code)) == [
        "display_data empty",
        "update_display_data chart",
        "update_display_data empty",
    ]


@pytest.mark.stops_errors
def test_an_error_of_the_chart_is_silent(kernel: Kernel) -> None:
    """If the live chart fails, it is removed without a message, and the cell continues."""
    code = """
def fail(count):
    if count == 3: raise RuntimeError("ours")
    return progress()
r = Run(fail); v = start(r); v.view._thread.join(60); v.stop(CARD); print("fine")
"""
    ran = kernel.ok(code)
    assert shown(ran.messages) == ["card", "fine\n"]
    assert live_outputs(ran) == [
        "display_data empty",
        "update_display_data chart",
        "update_display_data empty",
        "update_display_data card",
    ]
    assert kernel.value("leftovers()") == kernel.value("before")


def test_hung_progress_does_not_delay_the_cell(kernel: Kernel) -> None:
    """If reading the run's progress hangs, the cell is not delayed.
    Once the read returns, the chart is closed."""
    code = """
go = threading.Event()
def hang(count):
    if count == 3: go.wait(60)
    return progress()
r = Run(hang); v = start(r); r.wait_until(3); v.stop(); alive = v.view._thread.is_alive()
go.set(); v.view._thread.join(60)
"""
    ran = kernel.ok(code)
    assert kernel.value("alive") == "True"
    assert kernel.value("leftovers()") == kernel.value("before")
    assert live_outputs(ran) == [
        "display_data empty",
        "update_display_data chart",
        "update_display_data empty",
    ]


def test_missing_libraries_are_named(start_kernel: Callable[..., Kernel]) -> None:
    """If bqplot can't be imported, the error explains in one sentence what to install."""
    kernel = start_kernel()
    code = """
import sys
from gpuwidget.kernel.live import chart_libraries, live_display
sys.modules["bqplot"] = None
try:
    chart_libraries.import_libraries()
except chart_libraries.LiveUnavailable as error:
    print(str(error).endswith("(pip install ipywidgets bqplot)."), chart_libraries.is_imported())
"""
    assert kernel.ok(code).text == "True False\n"


def test_the_first_chart_does_not_delay_the_code(start_kernel: Callable[..., Kernel]) -> None:
    """The first watched cell after %load_ext starts at once, as with "Run All", if pandas is imported. Its
    chart is shown as soon as its libraries have been imported."""
    kernel = start_kernel()
    load = kernel.send("import pandas\n%load_ext gpuwidget")
    request = kernel.send(
        "%%gpuwatch\nimport os, sys, time\nprint('bqplot' in sys.modules)\n"
        "while not os.path.exists('go'): time.sleep(0.01)"
    )
    kernel.wait(load)
    kernel.wait_for_message(request, lambda m: m.is_live and WIDGET in m.content["data"])
    (kernel.folder / "go").touch()
    ran = kernel.wait(request)
    assert ran.text.splitlines()[0] == "False"


def test_a_watched_cell_shows_chart_and_card(start_kernel: Callable[..., Kernel]) -> None:
    """While a cell with %%gpuwatch runs, the live chart is shown. At the end, the card replaces it."""
    kernel = start_kernel()
    kernel.run("%load_ext gpuwidget")
    request = kernel.send("%%gpuwatch\nimport os, time\nwhile not os.path.exists('go'): time.sleep(0.01)")
    kernel.wait_for_message(request, lambda m: m.is_live and WIDGET in m.content["data"])
    (kernel.folder / "go").touch()
    ran = kernel.wait(request)
    assert live_outputs(ran) == [
        "display_data empty",
        "update_display_data chart",
        "update_display_data card",
    ]
    assert shown(ran.messages) == ["card"]
    assert len(own_outputs(ran.messages)) == 1
