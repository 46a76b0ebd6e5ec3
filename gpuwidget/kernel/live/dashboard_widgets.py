"""The widgets of the dashboard: the device dropdown above the live chart of all GPUs."""

from __future__ import annotations

import html
import threading
from collections.abc import Callable, Sequence
from typing import Any

import ipywidgets

from gpuwidget.kernel.devices.default_device import FULL_MODE_COST
from gpuwidget.kernel.live.live_chart import WIDGET_MIME_TYPE, LiveChart
from gpuwidget.measure.progress import Progress
from gpuwidget.model.translation import _, in_view_language
from gpuwidget.views.time_axis import TimeAxis

NONE = "none"
"""The dropdown's value if no default device is chosen."""

OnDevice = Callable[[str, bool], None]


class DashboardView:
    """The dashboard's widgets, created on the cell's thread and then updated by one other thread."""

    @in_view_language
    def __init__(self, on_device: OnDevice, on_resume: Callable[[], None]) -> None:
        """Create the widgets.

        They call ``on_device(device, new_tensors)`` when the user selects a device, or whether new tensors
        are created on it too. They call ``on_resume()`` when the user clicks the button that resumes
        the dashboard.
        """
        self._on_device = on_device
        self._updating_thread: int | None = None
        self._shown = (NONE, True)
        self._chart: LiveChart | None = None
        self._device = ipywidgets.Dropdown(
            options=[("none", NONE)],
            description=_("Device"),
            style={"description_width": "initial"},
            layout=ipywidgets.Layout(width="min(27em, 100%)", min_width="0"),
        )
        self._new_tensors = ipywidgets.Checkbox(
            value=True,
            description=_("Also create new tensors on this device (+{cost})", cost=FULL_MODE_COST),
            indent=False,
            layout=ipywidgets.Layout(width="auto", height="auto"),
        )
        self._text = ipywidgets.HTML()
        self._resume = ipywidgets.Button(description=_("Resume"), layout=ipywidgets.Layout(display="none"))
        self._chart_box = ipywidgets.Box(layout=ipywidgets.Layout(display="block"))
        row = ipywidgets.Layout(flex_flow="row wrap", align_items="center", grid_gap="0 12px")
        self._root = ipywidgets.VBox(
            [
                ipywidgets.HBox([self._device, self._new_tensors, self._resume], layout=row),
                self._text,
                self._chart_box,
            ],
            # `gpuwidget clean` recognizes the saved widgets by this class.
            _dom_classes=("gpuwidget-dashboard",),
        )
        self._device.observe(self._selected, "value")
        self._new_tensors.observe(self._selected, "value")
        self._resume.on_click(lambda button: on_resume())

    @property
    def closed(self) -> bool:
        return getattr(self._root, "comm", None) is None

    def bundle(self) -> dict[str, Any]:
        """Return the mime bundle that displays the widgets; it does not contain text."""
        view = {"version_major": 2, "version_minor": 0, "model_id": self._root.model_id}
        return {WIDGET_MIME_TYPE: view}

    def show_progress(self, progress: Progress, window: TimeAxis) -> None:
        """Update the chart; create a new one if the number of GPUs has changed."""
        chart = self._chart
        if chart is not None and chart.fits(progress):
            chart.update(progress)
            return
        self._chart = LiveChart(progress, window)
        self._chart_box.children = (self._chart.widget,)
        if chart is not None:
            chart.close()

    def show_devices(
        self, options: Sequence[tuple[str, str]], chosen: str, new_tensors: bool, enabled: bool
    ) -> None:
        """Set the dropdown's labels and values and select ``chosen``, without calling ``on_device``."""
        self._updating_thread = threading.get_ident()
        self._shown = (chosen, new_tensors)
        try:
            if tuple(self._device.options) != tuple(options):
                with self._device.hold_sync():
                    self._device.options = tuple(options)
                    self._device.value = chosen
            self._device.value = chosen
            self._device.disabled = self._new_tensors.disabled = not enabled
            self._new_tensors.value = new_tensors
        finally:
            self._updating_thread = None

    def show_text(self, text: str) -> None:
        """Set the line below the dropdown."""
        self._text.value = html.escape(text)

    def show_paused(self, paused: bool) -> None:
        """Show the button that resumes the dashboard if it is paused; otherwise hide it."""
        self._resume.layout.display = None if paused else "none"

    def close(self) -> None:
        """Close every widget in the kernel and in the front end."""
        if self._chart is not None:
            self._chart.close()
        bar = self._root.children[0]
        for widget in (
            self._device,
            self._new_tensors,
            self._resume,
            bar,
            self._text,
            self._chart_box,
            self._root,
        ):
            widget.close()

    def _selected(self, change: Any) -> None:
        if threading.get_ident() == self._updating_thread:
            return
        # The widget that the user did not change may be changing on the other thread: while a dropdown's
        # options change, its value is the first option.
        device, new_tensors = self._shown
        if change.owner is self._device:
            device = change.new
        else:
            new_tensors = change.new
        self._shown = (device, new_tensors)
        self._on_device(device, new_tensors)
