"""The live chart in a real kernel, with synthetic runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from helpers_kernel import Kernel, Ran
from helpers_outputs import CARD, LIVE_PREFIX, WIDGET

TESTS = str(Path(__file__).parent.parent)
SETUP = f"""
import logging, sys, threading
sys.path.insert(0, {TESTS!r})
import ipywidgets
from dataclasses import replace
from IPython.display import clear_output, display
from IPython.utils.capture import capture_output
from gpuwidget.kernel.live import live_display
from helpers_progress import progress

class Run:
    "A made-up run that knows how often it was looked at."
    def __init__(self, make=lambda look: progress(points=look)):
        self.make, self.looks, self.changed = make, 0, threading.Condition()
    def __call__(self):
        with self.changed:
            self.looks += 1
            self.changed.notify_all()
        return self.make(self.looks)
    def wait(self, looks=3):
        "Until it was looked at so many times more: everything of the look before the last was sent."
        self.wait_until(self.looks + looks)
    def wait_until(self, looks):
        with self.changed:
            assert self.changed.wait_for(lambda: self.looks >= looks, 60)

def start(run, **options):
    view = live_display.LiveDisplay(run, get_ipython(), **{{"delay_s": 0, "period_s": 0.001, **options}})
    view.start()
    return view

def instances():
    module = ipywidgets.widgets.widget
    return module._instances if hasattr(module, "_instances") else ipywidgets.Widget.widgets

def left():
    "What a live view could leave behind."
    publisher = get_ipython().display_pub
    return (len(instances()), [t.name for t in threading.enumerate() if t.name.startswith("gpuwidget")],
            list(publisher._hooks), "clear_output" in vars(publisher), "write" in vars(sys.stdout))
"""


@pytest.fixture(scope="module")
def kernel(start_kernel: Callable[..., Kernel]) -> Kernel:
    """A kernel with the live chart's libraries imported and synthetic runs."""
    made = start_kernel()
    made.setup(SETUP)
    made.setup("live_display.import_libraries(); before = left()")
    return made


def shows(ran: Ran) -> list[str]:
    """Return the contents of the live outputs in order, with their message types."""
    return [
        f"{message.type} {'chart' if WIDGET in message.content['data'] else 'empty'}"
        for message in ran.messages
        if message.is_live
    ]


def models(ran: Ran, kind: str) -> list[str]:
    """Return the ids of the widget models that were opened, or closed, in order."""
    return [message.content["comm_id"] for message in ran.messages if message.type == kind]


def kinds(ran: Ran) -> list[str]:
    """Return the types of the cell's messages, without those of widgets."""
    return [m.type for m in ran.messages if not m.type.startswith("comm_") and m.type != "execute_input"]


def test_long_cell_shows_and_empties(kernel: Kernel) -> None:
    """A cell's chart appears in its reserved output, is updated, and leaves that output empty."""
    ran = kernel.ok("r = Run(); v = start(r); r.wait(5); v.stop()")
    assert shows(ran) == ["display_data empty", "update_display_data chart", "update_display_data empty"]
    ids = {m.content["transient"]["display_id"] for m in ran.messages if m.is_live}
    assert len(ids) == 1
    assert ids.pop().startswith(LIVE_PREFIX)
    assert len([m for m in ran.messages if m.type == "comm_msg"]) >= 3


def test_nothing_left_behind(kernel: Kernel) -> None:
    """After the cell no widget, thread, hook or front-end model of the chart is left."""
    ran = kernel.ok("r = Run(); v = start(r); r.wait(5); v.stop()")
    assert kernel.value("left()") == kernel.value("before")
    assert sorted(models(ran, "comm_open")) == sorted(models(ran, "comm_close"))
    assert len(models(ran, "comm_open")) > 0


def test_short_cell_makes_no_widget(kernel: Kernel) -> None:
    """A cell that ends before the delay has an empty output, reads no progress, and sends nothing else."""
    ran = kernel.ok("r = Run(); v = start(r, delay_s=3600); v.stop(); print(r.looks)")
    assert kinds(ran) == ["display_data", "stream"]
    assert shows(ran) == ["display_data empty"]
    assert ran.text == "0\n"
    assert models(ran, "comm_open") == []
    assert kernel.value("left()") == kernel.value("before")


def test_without_gpu_nothing_shows(kernel: Kernel) -> None:
    """Without a GPU there is no chart: the card has the reason."""
    code = """
none = replace(progress(0), origin=replace(progress().origin, kind="none", reason="no driver"))
r = Run(lambda look: none); v = start(r); r.wait(); v.stop()
"""
    assert shows(kernel.ok(code)) == ["display_data empty"]


def test_before_first_sample_nothing_shows(kernel: Kernel) -> None:
    """Before the first sample, whether there is a GPU is unknown, and no chart is shown."""
    code = "r = Run(lambda look: replace(progress(0), origin=None)); v = start(r); r.wait(); v.stop()"
    assert shows(kernel.ok(code)) == ["display_data empty"]


def test_gpus_may_join(kernel: Kernel) -> None:
    """A GPU that the cell starts to use later is added to the chart, from few to many."""
    code = """
seen = (0, 1, 1, 4, 5, 16)
r = Run(lambda look: progress(seen[min(look, len(seen)) - 1])); v = start(r); r.wait(8); v.stop()
"""
    ran = kernel.ok(code)
    assert shows(ran)[0] == "display_data empty"
    assert shows(ran)[1::2] == ["update_display_data chart"] * 5
    assert shows(ran)[2::2] == ["update_display_data empty"] * 5
    assert kernel.value("left()") == kernel.value("before")


def test_captured_outputs_are_the_users(kernel: Kernel) -> None:
    """Under %%capture the user's outputs are captured, and those of the chart are not."""
    code = """
r = Run(); v = start(r)
with capture_output() as captured:
    print("mine"); display("mine too"); r.wait(5)
v.stop()
print(captured.stdout, len(captured.outputs))
"""
    ran = kernel.ok(code)
    assert ran.text == "mine\n 1\n"
    assert shows(ran) == ["display_data empty", "update_display_data chart", "update_display_data empty"]


def test_shown_again_after_clear(kernel: Kernel) -> None:
    """clear_output() removes the chart with everything else; it comes back in a new output."""
    code = "r = Run(); v = start(r); r.wait(5); clear_output(); r.wait(5); v.stop()"
    ran = kernel.ok(code)
    assert shows(ran) == [
        "display_data empty",
        "update_display_data chart",
        "update_display_data empty",
        "display_data chart",
        "update_display_data empty",
    ]
    places = [m.content["transient"]["display_id"] for m in ran.messages if m.is_live]
    assert places[0] == places[2]
    assert places[3] == places[4] != places[0]


def test_waiting_clear_is_left_to_wait(kernel: Kernel) -> None:
    """clear_output(wait=True) clears with the user's next output, never with the chart's."""
    code = """
r = Run(); v = start(r); r.wait(5); clear_output(wait=True); r.wait(5)
display("next"); r.wait(5); v.stop()
"""
    ran = kernel.ok(code)
    assert [kind for kind in kinds(ran) if kind in ("clear_output", "display_data")] == [
        "display_data",
        "clear_output",
        "display_data",
        "display_data",
    ]
    after = [m for m in ran.messages if m.type == "display_data"][1:]
    assert [m.is_live for m in after] == [False, True]


def test_printing_ends_the_wait(kernel: Kernel) -> None:
    """After clear_output(wait=True) a printed line clears the outputs too, and the chart comes back."""
    code = """
r = Run(); v = start(r); r.wait(5); clear_output(wait=True); r.wait(5)
print("next"); r.wait(5); v.stop()
"""
    ran = kernel.ok(code)
    assert shows(ran)[-2:] == ["display_data chart", "update_display_data empty"]
    assert ran.text == "next\n"


def test_place_takes_what_must_not_clear(kernel: Kernel) -> None:
    """If clear_output(wait=True) is still pending at the end, a card in the chart's output clears nothing."""
    code = """
r = Run(); v = start(r); r.wait(5); print("stays"); clear_output(wait=True); v.stop()
if v.slot.clear_pending: v.slot.fill({"text/plain": "card"})
"""
    ran = kernel.ok(code)
    last = [m for m in ran.messages if not m.type.startswith("comm_")][-1]
    assert last.type == "update_display_data"
    assert last.content["data"] == {"text/plain": "card"}


def test_output_widget_catches_nothing(kernel: Kernel) -> None:
    """While an Output widget captures the cell's outputs no chart is shown; then it appears in the cell."""
    code = """
out = ipywidgets.Output(); inside = threading.Event()
r = Run(lambda look: progress() if inside.is_set() else replace(progress(0), origin=None)); v = start(r)
with out:
    inside.set(); r.wait(5)
print("after"); r.wait(5); v.stop(); out.layout.close(); out.close()
"""
    ran = kernel.ok(code)
    released = next(
        place
        for place, m in enumerate(ran.messages)
        if m.type == "comm_msg" and m.content["data"].get("state", {}).get("msg_id") == ""
    )
    assert [m.is_live for m in ran.messages[:released]].count(True) == 1
    assert shows(ran)[1:] == ["update_display_data chart", "update_display_data empty"]


def test_clear_within_output_widget_is_its_own(kernel: Kernel) -> None:
    """clear_output() inside an Output widget clears only that: the chart stays, and is not duplicated."""
    code = """
out = ipywidgets.Output(); r = Run(); v = start(r); r.wait(5)
with out:
    clear_output(); r.wait(5)
r.wait(5); v.stop(); out.layout.close(); out.close()
"""
    assert shows(kernel.ok(code)) == [
        "display_data empty",
        "update_display_data chart",
        "update_display_data empty",
    ]


def test_error_ends_quietly(kernel: Kernel) -> None:
    """An error of the chart removes it and shows nothing: the cell continues."""
    code = """
def fail(look):
    if look == 3: raise RuntimeError("ours")
    return progress()
r = Run(fail); v = start(r); v._thread.join(60); v.stop(); print("fine")
"""
    ran = kernel.ok(code)
    assert kinds(ran)[-1] == "stream"
    assert ran.text == "fine\n"
    assert shows(ran) == ["display_data empty", "update_display_data chart", "update_display_data empty"]
    assert kernel.value("left()") == kernel.value("before")


def test_hung_look_is_left_behind(kernel: Kernel) -> None:
    """A progress call that hangs does not delay the cell; when it returns the chart is closed."""
    code = """
go = threading.Event()
def hang(look):
    if look == 3: go.wait(60)
    return progress()
r = Run(hang); v = start(r); r.wait_until(3); v.stop(); alive = v._thread.is_alive()
go.set(); v._thread.join(60)
"""
    ran = kernel.ok(code)
    assert kernel.value("alive") == "True"
    assert kernel.value("left()") == kernel.value("before")
    assert shows(ran) == ["display_data empty", "update_display_data chart", "update_display_data empty"]


def test_not_prepared_nothing_happens(start_kernel: Callable[..., Kernel]) -> None:
    """Before the libraries are imported no chart is shown: a cell never waits for their import."""
    bare = start_kernel()
    code = """
import sys
from gpuwidget.kernel.live import live_display
v = live_display.LiveDisplay(None, get_ipython(), delay_s=0); v.start(); v.stop()
print(live_display.libraries_imported(), "bqplot" in sys.modules, "ipywidgets" in sys.modules)
"""
    ran = bare.ok(code)
    assert ran.text == "False False False\n"
    assert ran.live == []


def test_missing_libraries_are_a_sentence(start_kernel: Callable[..., Kernel]) -> None:
    """If bqplot can't be imported, one sentence has what is missing and the fix."""
    bare = start_kernel()
    code = """
import sys
from gpuwidget.kernel.live import live_display
sys.modules["bqplot"] = None
try:
    live_display.import_libraries()
except live_display.LiveUnavailable as error:
    print(str(error).endswith("(pip install ipywidgets bqplot)."), live_display.libraries_imported())
"""
    assert bare.ok(code).text == "True False\n"


def test_watched_cell_shows_chart_and_card(start_kernel: Callable[..., Kernel]) -> None:
    """%%gpuwatch shows the chart while the cell runs; then its output is empty and the card is last."""
    watching = start_kernel()
    watching.run("%load_ext gpuwidget")
    request = watching.send("%%gpuwatch\nimport os, time\nwhile not os.path.exists('go'): time.sleep(0.01)")
    watching.wait_for_message(request, lambda m: m.is_live and WIDGET in m.content["data"])
    (watching.folder / "go").touch()
    ran = watching.wait(request)
    assert shows(ran) == ["display_data empty", "update_display_data chart", "update_display_data empty"]
    outputs = [m for m in ran.messages if m.type in ("display_data", "update_display_data")]
    assert CARD in outputs[-1].content["data"]
