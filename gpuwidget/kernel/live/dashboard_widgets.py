"""The dashboard's widgets: the device dropdown above the live chart of all GPUs."""

from __future__ import annotations

import html
import threading
from collections.abc import Callable, Sequence
from typing import Any

import ipywidgets

from gpuwidget.kernel.live.live_chart import WIDGET_MIME_TYPE, LiveChart
from gpuwidget.kernel.live.time_axis import TimeAxis
from gpuwidget.measure.progress import Progress

NONE = "none"
"""The dropdown's value for no choice."""

Choose = Callable[[str, bool], None]


class DashboardView:
    """Made on the thread of the cell that shows it; all later changes are made by one other thread."""

    def __init__(self, choose: Choose, go_on: Callable[[], None]) -> None:
        """``choose`` hears of the device and the mode that a person picked, ``go_on`` of a click on it."""
        self._choose = choose
        self._writer: int | None = None
        self._chart: LiveChart | None = None
        self._device = ipywidgets.Dropdown(
            options=[("none", NONE)], description="Device", layout=ipywidgets.Layout(width="60%")
        )
        self._light = ipywidgets.Checkbox(
            value=False,
            description="current GPU only (no cost per call)",
            indent=False,
            layout=ipywidgets.Layout(width="auto"),
        )
        self._words = ipywidgets.HTML()
        self._go_on = ipywidgets.Button(description="Go on", layout=ipywidgets.Layout(display="none"))
        self._place = ipywidgets.Box(layout=ipywidgets.Layout(display="block"))
        self._root = ipywidgets.VBox(
            [ipywidgets.HBox([self._device, self._light, self._go_on]), self._words, self._place]
        )
        self._device.observe(self._picked, "value")
        self._light.observe(self._picked, "value")
        self._go_on.on_click(lambda button: go_on())

    @property
    def gone(self) -> bool:
        """Whether somebody has closed it."""
        return getattr(self._root, "comm", None) is None

    def bundle(self) -> dict[str, Any]:
        """The mime bundle that shows it, without its text."""
        view = {"version_major": 2, "version_minor": 0, "model_id": self._root.model_id}
        return {WIDGET_MIME_TYPE: view}

    def show_progress(self, progress: Progress, window: TimeAxis) -> None:
        """Draw the GPUs' last minutes."""
        chart = self._chart
        if chart is not None and chart.fits(progress):
            chart.update(progress)
            return
        self._chart = LiveChart(progress, window)
        self._place.children = (self._chart.widget,)
        if chart is not None:
            chart.close()

    def show_devices(self, options: Sequence[tuple[str, str]], chosen: str, light: bool, able: bool) -> None:
        """Fill the dropdown with labels and values, and select one, without calling it a person's choice."""
        self._writer = threading.get_ident()
        try:
            if tuple(self._device.options) != tuple(options):
                with self._device.hold_sync():
                    self._device.options = tuple(options)
                    self._device.value = chosen
            self._device.value = chosen
            self._device.disabled = self._light.disabled = not able
            self._light.value = light
        finally:
            self._writer = None

    def show_words(self, text: str) -> None:
        """The line below the dropdown."""
        self._words.value = html.escape(text)

    def show_paused(self, paused: bool) -> None:
        """Offer to go on, or no longer."""
        self._go_on.layout.display = None if paused else "none"

    def close(self) -> None:
        """Let go of every widget, here and in the front end."""
        if self._chart is not None:
            self._chart.close()
        bar = self._root.children[0]
        for widget in (self._device, self._light, self._go_on, bar, self._words, self._place, self._root):
            widget.close()

    def _picked(self, change: Any) -> None:
        if threading.get_ident() != self._writer:
            self._choose(self._device.value, self._light.value)
