"""The inline dashboard in a real kernel: that it shows, stays in step, and ends."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from helpers_kernel import Kernel, Ran
from helpers_outputs import WIDGET
from test_device import STANDIN, ask

HELPERS = """
import sys, threading, time
def threads():
    return sorted(t.name for t in threading.enumerate() if "dashboard" in t.name)
def sampled():
    from gpuwidget.sampler import process_sampler
    return process_sampler().wanted
def until(happened):
    for _ in range(1000):
        if happened(): return True
        time.sleep(0.01)
    return False
"""


@pytest.fixture
def kernel(start_kernel: Callable[..., Kernel]) -> Kernel:
    """A kernel of its own with gpuwidget loaded, torch's stand-in imported, and a recording's GPUs."""
    made = start_kernel(PYTHONPATH=STANDIN)
    made.setup(HELPERS)
    run(made, "%load_ext gpuwidget\nimport gpuwidget, torch")
    return made


def run(kernel: Kernel, code: str) -> Ran:
    """Run ``code``, which must end well."""
    ran = kernel.run(code)
    assert ran.reply["status"] == "ok", ran.reply
    return ran


def shows_widget(ran: Ran) -> bool:
    """Whether the cell displayed a widget."""
    return any(
        WIDGET in m.content["data"] for m in ran.messages if m.type in ("display_data", "execute_result")
    )


def test_it_shows_and_samples_until_it_is_closed(kernel: Kernel) -> None:
    """%gpu and gpuwidget.dashboard() show one live dashboard in all; closed, nothing samples for it."""
    assert shows_widget(run(kernel, "%gpu"))
    assert run(kernel, "until(sampled), threads()").result == "(True, ['gpuwidget-dashboard'])"
    assert shows_widget(run(kernel, "d = gpuwidget.dashboard(); d"))
    assert run(kernel, "until(sampled), threads()").result == "(True, ['gpuwidget-dashboard'])"
    charts = "until(lambda: d._view._chart is not None), d._view._chart._layout.panels"
    assert run(kernel, charts).result == "(True, 4)"
    run(kernel, "d.close()")
    assert run(kernel, "until(lambda: not sampled()), threads()").result == "(True, [])"
    assert not shows_widget(run(kernel, "d"))


def test_its_libraries_are_imported_when_it_is_first_shown(start_kernel: Callable[..., Kernel]) -> None:
    """Importing gpuwidget and making a dashboard load no widget library."""
    kernel = start_kernel()
    run(kernel, "import gpuwidget, sys\nd = gpuwidget.dashboard()")
    assert run(kernel, "'bqplot' in sys.modules").result == "False"
    run(kernel, "display(d)")
    assert run(kernel, "'bqplot' in sys.modules").result == "True"


def test_views_are_in_step(kernel: Kernel) -> None:
    """A choice in the dropdown, by magic, or by the panel shows in the two others."""
    run(kernel, "d = gpuwidget.dashboard(); display(d)\nview = d._view")
    options = "until(lambda: len(view._device.options) == 4), [v for _, v in view._device.options]"
    run(kernel, "torch.cuda.init()")
    run(kernel, "%gpu device cpu")
    assert run(kernel, "until(lambda: view._device.value == 'cpu')").result == "True"
    assert run(kernel, options).result == "(True, ['none', 'cpu', 'cuda:0', 'cuda:1'])"
    run(kernel, "view._device.value = 'cuda:1'")
    assert ask(kernel, ask="state")["state"]["device"]["chosen"] == "cuda:1"
    assert run(kernel, "str(torch.get_default_device())").result == "'cuda:1'"
    run(kernel, "view._light.value = True")
    assert run(kernel, "str(torch.get_default_device())").result == "'cpu'"
    ask(kernel, ask="set_device", device=None, new_tensors=True)
    assert (
        run(kernel, "until(lambda: view._device.value == 'none'), view._light.value").result
        == "(True, False)"
    )


def test_a_choice_that_cannot_be_is_taken_back(kernel: Kernel) -> None:
    """The dropdown goes back to what holds, and the reason stands below it."""
    run(kernel, "torch.cuda.init()\nd = gpuwidget.dashboard(); display(d)\nview = d._view")
    run(kernel, "until(lambda: len(view._device.options) == 4)\nview._light.value = True")
    run(kernel, "view._device.value = 'cpu'")
    assert run(kernel, "until(lambda: view._device.value == 'none')").result == "True"
    assert run(kernel, "until(lambda: 'the light mode' in view._words.value)").result == "True"


def test_it_pauses_when_nobody_is_there(kernel: Kernel) -> None:
    """Where nothing has run for long it samples no more; a click goes on, and so does the next cell."""
    run(kernel, "d = gpuwidget.dashboard(); display(d)\nview = d._view\nuntil(sampled)")
    gone = "d._presence._running, d._presence._last = 0, float('-inf')"
    run(kernel, f"{gone}\nassert until(lambda: not sampled())\nassert until(lambda: d._paused)")
    assert run(kernel, "until(sampled)").result == "True"
    run(kernel, f"{gone}\nassert until(lambda: d._paused)\nview._go_on.click()\nassert until(sampled)")


def test_closing_its_widgets_ends_it(kernel: Kernel) -> None:
    """Widget.close_all() leaves no thread and no sampling."""
    run(kernel, "d = gpuwidget.dashboard(); display(d)\nuntil(sampled)")
    run(kernel, "import ipywidgets\nipywidgets.Widget.close_all()")
    assert (
        run(kernel, "until(lambda: not sampled()), until(lambda: threads() == [])").result == "(True, True)"
    )


def test_unloading_ends_it(kernel: Kernel) -> None:
    """After %unload_ext there is no thread and no hook of it."""
    before = run(kernel, "{k: len(v) for k, v in get_ipython().events.callbacks.items()}").result
    run(kernel, "%gpu")
    run(kernel, "%reload_ext gpuwidget")
    assert run(kernel, "threads()").result == "[]"
    assert run(kernel, "{k: len(v) for k, v in get_ipython().events.callbacks.items()}").result == before
