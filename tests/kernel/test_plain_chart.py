"""The live chart as plain HTML, in a real kernel that plays a recording."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime

import pytest
from helpers_kernel import Kernel, Ran
from helpers_outputs import CARD, WIDGET, own_outputs, shown

LONG = "%%gpuwatch\nimport time; time.sleep(4)"
NO_BQPLOT = """
import sys
class NoBqplot:
    def find_spec(self, name, path=None, target=None):
        if name == "bqplot":
            raise ModuleNotFoundError("No module named 'bqplot'", name=name)
sys.meta_path.insert(0, NoBqplot())
"""


def kinds(ran: Ran) -> list[str]:
    """Return what each message for gpuwidget's output contains."""
    return [
        "card" if CARD in data else "widget" if WIDGET in data else "html" if "text/html" in data else "empty"
        for data in ran.live
    ]


def check_plain(ran: Ran) -> None:
    """Fail unless the cell had a plain chart, which was updated at most once a second and replaced by the
    card."""
    assert [kind for n, kind in enumerate(kinds(ran)) if n == 0 or kind != kinds(ran)[n - 1]] == [
        "empty",
        "html",
        "card",
    ]
    views = [data for data in ran.live if "text/html" in data and CARD not in data]
    assert 2 <= len(views) <= 5
    assert {data["text/plain"] for data in views} == {"live GPU chart"}
    times = [re.search(r"updated at (\d\d:\d\d:\d\d)", data["text/html"]) for data in views]
    seconds = [datetime.strptime(found[1], "%H:%M:%S") for found in times if found is not None]
    assert len({*seconds}) == len(views)
    assert all("<svg" in data["text/html"] for data in views[1:])
    assert [message.type for message in ran.messages if message.type.startswith("comm_")] == []
    assert shown(ran.messages) == ["card"]
    assert len(own_outputs(ran.messages)) == 1


@pytest.fixture
def html_kernel(start_kernel: Callable[..., Kernel]) -> Kernel:
    """Return a kernel whose user has asked for a plain chart."""
    kernel = start_kernel(GPUWIDGET_LIVE="html")
    kernel.ok("%load_ext gpuwidget")
    return kernel


def test_a_user_without_widgets_gets_a_plain_chart(html_kernel: Kernel) -> None:
    """With GPUWIDGET_LIVE=html, a cell shows its figures and its chart as HTML while it runs. No widget is
    created, and the card replaces the chart in its output. The cell's own outputs are those without the
    magic."""
    ran = html_kernel.ok(LONG)
    check_plain(ran)
    assert ran.text == ""
    printed = html_kernel.ok("%%gpuwatch\nimport time\nfor n in range(3): time.sleep(0.6); print(n)\nn")
    assert (printed.text, printed.result) == ("0\n1\n2\n", "2")
    assert shown(printed.messages) == ["card", "0\n1\n2\n", "2"]
    assert html_kernel.ok("%%gpuwatch\npass").live[0] == {}


def test_a_cell_that_clears_its_outputs_has_one_plain_chart(html_kernel: Kernel) -> None:
    """After a cell has cleared its outputs, the chart appears once more, and only the card remains."""
    code = (
        "from IPython.display import clear_output; import time\ntime.sleep(2); clear_output(); time.sleep(6)"
    )
    ran = html_kernel.ok(f"%%gpuwatch\n{code}")
    assert shown(ran.messages) == ["card"]
    assert len(own_outputs(ran.messages)) == 1
    assert [message.type for message in ran.messages].count("display_data") == 2


@pytest.mark.stops_errors
def test_without_bqplot_the_chart_is_plain(start_kernel: Callable[..., Kernel]) -> None:
    """If bqplot can't be imported, cells have a plain chart, and a warning names the package."""
    kernel = start_kernel()
    kernel.setup(NO_BQPLOT)
    kernel.ok("%load_ext gpuwidget")
    ran = kernel.ok(LONG)
    assert "pip install ipywidgets bqplot" in ran.text
    assert kinds(ran)[-1] == "card"
    assert "html" in kinds(ran)
    assert "widget" not in kinds(ran)
