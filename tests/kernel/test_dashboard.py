"""The dashboard that %gpu shows below a cell, in a real kernel:
how it is shown, kept in sync with other views, paused and closed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from helpers_kernel import TORCH_STANDIN, Kernel, Ran
from helpers_outputs import WIDGET

HELPERS = """
import sys, threading, time
def threads():
    return sorted(t.name for t in threading.enumerate() if "dashboard" in t.name)
def sampled():
    from gpuwidget.sampler import process_sampler
    return process_sampler().wanted
def until(condition):
    for _ in range(1000):
        if condition(): return True
        time.sleep(0.01)
    return False
"""


@pytest.fixture
def kernel(start_kernel: Callable[..., Kernel]) -> Kernel:
    """Return a new kernel with gpuwidget, the torch stand-in, and GPU readings from a recording."""
    kernel = start_kernel(PYTHONPATH=TORCH_STANDIN)
    kernel.setup(HELPERS)
    kernel.ok("%load_ext gpuwidget\nimport gpuwidget, torch")
    return kernel


def shows_widget(ran: Ran) -> bool:
    """Return whether the cell displayed a widget, such as the dashboard."""
    return any(
        WIDGET in m.content["data"] for m in ran.messages if m.type in ("display_data", "execute_result")
    )


def test_closing_the_dashboard_stops_sampling(kernel: Kernel) -> None:
    """%gpu and gpuwidget.dashboard() show the same live dashboard.
    When the dashboard is closed, sampling stops."""
    assert shows_widget(kernel.ok("%gpu"))
    assert kernel.ok("until(sampled), threads()").result == "(True, ['gpuwidget-dashboard'])"
    assert shows_widget(kernel.ok("d = gpuwidget.dashboard(); d"))
    assert kernel.ok("until(sampled), threads()").result == "(True, ['gpuwidget-dashboard'])"
    charts = "until(lambda: d._view._chart is not None), d._view._chart._layout.panels"
    assert kernel.ok(charts).result == "(True, 4)"
    kernel.ok("d.close()")
    assert kernel.ok("until(lambda: not sampled()), threads()").result == "(True, [])"
    assert not shows_widget(kernel.ok("d"))


def test_libraries_are_imported_when_first_shown(start_kernel: Callable[..., Kernel]) -> None:
    """ipywidgets and bqplot are imported only when a dashboard is displayed."""
    kernel = start_kernel()
    kernel.ok("import gpuwidget, sys\nd = gpuwidget.dashboard()")
    assert kernel.ok("'bqplot' in sys.modules").result == "False"
    kernel.ok("display(d)")
    assert kernel.ok("'bqplot' in sys.modules").result == "True"


def test_views_are_in_sync(kernel: Kernel) -> None:
    """If the user selects a device in the dropdown, with %gpu device or in the panel,
    all of them show the new device."""
    kernel.ok("d = gpuwidget.dashboard(); display(d)\nview = d._view")
    options = "until(lambda: len(view._device.options) == 4), [v for _, v in view._device.options]"
    kernel.ok("torch.cuda.init()")
    kernel.ok("%gpu device cpu")
    assert kernel.ok("until(lambda: view._device.value == 'cpu')").result == "True"
    assert kernel.ok(options).result == "(True, ['none', 'cpu', 'cuda:0', 'cuda:1'])"
    kernel.ok("view._device.value = 'cuda:1'")
    assert kernel.answer_to(ask="state")["state"]["device"]["chosen"] == "cuda:1"
    assert kernel.ok("str(torch.get_default_device())").result == "'cuda:1'"
    kernel.ok("view._new_tensors.value = False")
    assert kernel.ok("str(torch.get_default_device())").result == "'cpu'"
    kernel.answer_to(ask="set_device", device=None, new_tensors=True)
    both = "until(lambda: (view._device.value, view._new_tensors.value) == ('none', True))"
    assert kernel.ok(both).result == "True"


def test_a_click_while_the_options_change(kernel: Kernel) -> None:
    """If the user clicks the checkbox while the dropdown's options change, the device stays selected."""
    kernel.ok(
        "from gpuwidget.kernel.live.dashboard_widgets import DashboardView\nimport threading\ncalls = []"
    )
    kernel.ok("view = DashboardView(lambda *call: calls.append(call), lambda: None)")
    kernel.ok("view.show_devices([('none', 'none'), ('cpu', 'cpu')], 'cpu', True, True)")
    kernel.ok(
        "def click(change):\n"
        "    user = threading.Thread(target=lambda: setattr(view._new_tensors, 'value', False))\n"
        "    user.start()\n"
        "    user.join()\n"
        "view._device.observe(click, 'options')"
    )
    kernel.ok("view.show_devices([('none', 'none'), ('cuda', 'cuda'), ('cpu', 'cpu')], 'cpu', False, True)")
    assert kernel.ok("calls").result == "[('cpu', False)]"


def test_an_invalid_device_is_rejected(kernel: Kernel) -> None:
    """If the user selects an invalid device,
    the dropdown returns to the current device and the reason is shown below it."""
    kernel.ok("torch.cuda.init()\nd = gpuwidget.dashboard(); display(d)\nview = d._view")
    kernel.ok("until(lambda: len(view._device.options) == 4)\nview._new_tensors.value = False")
    kernel.ok("view._device.value = 'cpu'")
    assert kernel.ok("until(lambda: view._device.value == 'none')").result == "True"
    assert kernel.ok("until(lambda: 'the light mode' in view._text.value)").result == "True"


def test_the_dashboard_pauses_without_activity(kernel: Kernel) -> None:
    """The dashboard stops sampling if no cell has run for a while.
    A click on Resume or the next cell starts sampling again."""
    kernel.ok("d = gpuwidget.dashboard(); display(d)\nview = d._view\nuntil(sampled)")
    idle = "d._running.after(None); d._running.clear(); d._activity._last = float('-inf')"
    kernel.ok(f"{idle}\nassert until(lambda: not sampled())\nassert until(lambda: d._paused)")
    assert kernel.ok("until(sampled)").result == "True"
    kernel.ok(f"{idle}\nassert until(lambda: d._paused)\nview._resume.click()\nassert until(sampled)")


def test_a_click_while_pausing(kernel: Kernel) -> None:
    """If the user clicks Resume while the dashboard is pausing,
    it resumes immediately instead of at its next check."""
    kernel.ok("d = gpuwidget.dashboard(); display(d)\nview = d._view\nuntil(sampled)")
    click = "def clicked(view):\n    pause(view)\n    view._resume.click()\n    clicks.append(1)"
    kernel.ok(f"pause, clicks = d._pause, []\n{click}\nd._pause = clicked")
    idle = "d._running.after(None); d._running.clear(); d._activity._last = float('-inf')"
    kernel.ok(f"{idle}\nassert until(lambda: clicks)\nassert until(lambda: sampled() and not d._paused)")


@pytest.mark.stops_errors  # The widgets may be closed while the dashboard's thread updates them.
def test_closing_all_widgets_closes_the_dashboard(kernel: Kernel) -> None:
    """Widget.close_all() closes the dashboard. Its thread ends and sampling stops."""
    kernel.ok("d = gpuwidget.dashboard(); display(d)\nuntil(sampled)")
    kernel.ok("import ipywidgets\nipywidgets.Widget.close_all()")
    assert kernel.ok("until(lambda: not sampled()), until(lambda: threads() == [])").result == "(True, True)"


def test_reloading_closes_the_dashboard(kernel: Kernel) -> None:
    """Reloading the extension removes the dashboard's thread and callbacks."""
    before = kernel.ok("{k: len(v) for k, v in get_ipython().events.callbacks.items()}").result
    kernel.ok("%gpu")
    kernel.ok("%reload_ext gpuwidget")
    assert kernel.ok("threads()").result == "[]"
    assert kernel.ok("{k: len(v) for k, v in get_ipython().events.callbacks.items()}").result == before
