"""The live chart's widgets: one bqplot figure with a panel per GPU, and HTML for axes and readings.

Only this module imports bqplot. Importing bqplot and ipywidgets takes 0.3 to 0.8 s, so this module is
imported only when a chart is needed, or while the kernel is idle.
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any

import bqplot
import ipywidgets

from gpuwidget.kernel.live import live_text
from gpuwidget.kernel.live.chart_layout import ChartLayout, Lines
from gpuwidget.measure.progress import Progress
from gpuwidget.model.clock import SYSTEM_CLOCK
from gpuwidget.model.translation import _, in_view_language
from gpuwidget.views import styles
from gpuwidget.views.chart import RIGHT
from gpuwidget.views.time_axis import TimeAxis

WIDGET_MIME_TYPE = "application/vnd.jupyter.widget-view+json"
_READINGS_EVERY = 3
"""Only every third call of :meth:`LiveChart.update` updates the readings."""
_MARKS_EVERY = 5
_HOVER_EVERY = 10
_ROWS_MARGIN = {"top": 0, "bottom": 0, "left": 28, "right": 22}
_TILES_MARGIN = {"top": 0, "bottom": 0, "left": 0, "right": 0}


class LiveChart:
    """The widgets of one live chart, for a fixed number of GPUs.

    Creating a widget takes one message and costs about as much as an update, so there are as few widgets as
    possible.
    """

    def __init__(self, progress: Progress, window: TimeAxis | None = None) -> None:
        """Create the widgets. With ``window``, the chart shows the last minutes instead of a whole run."""
        self._window = window
        self._layout = ChartLayout.for_gpus(len(progress.gpus))
        self._widgets: list[Any] = []
        self._updates = 1
        self._axis = window or TimeAxis.reaching(progress.elapsed_s)
        self._drawn_marks = progress.marks
        self._drawn_series = _series(progress)
        plain = self._register(ipywidgets.Layout())
        self._axes = self._register(ipywidgets.HTML(self._axes_text(), layout=plain))
        style = self._register(self._axes.style)
        self._readings = self._register(
            ipywidgets.HTML(self._readings_text(progress), layout=plain, style=style)
        )
        self._hover = self._register(
            ipywidgets.HTML(
                live_text.hover(progress, self._layout, self._axis),
                layout=plain,
                style=style,
                _dom_classes=("gpuwidget-hover-layer",),
            )
        )
        height = float(max(1, self._layout.total_height))
        scales = {
            "x": self._register(bqplot.LinearScale(min=0.0, max=100.0, allow_padding=False)),
            "y": self._register(bqplot.LinearScale(min=0.0, max=height, allow_padding=False)),
        }
        end = self._axis.end_s
        self._marks = self._lines(scales, self._layout.mark_lines(progress.marks, end), ["#888888"])
        # These colors are a fallback. live.css overrides them, in part with colors of the front end's
        # theme.
        self._series = self._lines(
            scales,
            self._layout.series_lines(progress.t, end, progress.gpus),
            [styles.BLUE, styles.BLUE, styles.MEMORY],
        )
        classes = ["gpuwidget-live", "gpuwidget-tiles" if self._layout.tiles else "gpuwidget-rows"]
        if window is None:
            classes.append("gpuwidget-run")
        if progress.label is not None:
            classes.append("gpuwidget-labeled")
        charts = (self._figure(scales),) if progress.gpus else ()
        self._root = self._register(
            ipywidgets.Box(
                (self._axes, *charts, self._readings, self._hover), layout=plain, _dom_classes=tuple(classes)
            )
        )

    @property
    def widget(self) -> Any:
        """The widget that contains all others."""
        return self._root

    def fits(self, progress: Progress) -> bool:
        """Return whether ``progress`` has the number of GPUs that this chart was created for."""
        return self._layout.panels == len(progress.gpus)

    @in_view_language
    def bundle(self) -> dict[str, Any]:
        """Return the mime bundle that displays the chart."""
        view = {"version_major": 2, "version_minor": 0, "model_id": self._root.model_id}
        return {WIDGET_MIME_TYPE: view, "text/plain": _("live GPU chart")}

    def update(self, progress: Progress) -> None:
        """Update the lines if there is a new sample. Update the readings and the marks only every few
        calls."""
        axis = self._window or TimeAxis.reaching(progress.elapsed_s)
        axis_changed = axis != self._axis
        if axis_changed:
            self._axis = axis
            self._axes.value = self._axes_text()
        if progress.gpus:
            series = _series(progress)
            # Updating the lines costs 1 ms, so it is skipped if it would change nothing. If there are many
            # GPUs and a cell of pure Python runs, half of the updates are skipped, because the sampler takes
            # fewer samples.
            if axis_changed or series != self._drawn_series:
                self._drawn_series = series
                _draw(self._series, self._layout.series_lines(progress.t, axis.end_s, progress.gpus))
            marks_due = self._updates % _MARKS_EVERY == 0 and progress.marks != self._drawn_marks
            if axis_changed or marks_due:
                self._drawn_marks = progress.marks
                _draw(self._marks, self._layout.mark_lines(progress.marks, axis.end_s))
        if axis_changed or self._updates % _HOVER_EVERY == 0:
            self._hover.value = live_text.hover(progress, self._layout, axis)
        if self._updates % _READINGS_EVERY == 0:
            self._readings.value = self._readings_text(progress)
        self._updates += 1

    def close(self) -> None:
        """Close every widget in the kernel and in the front end."""
        while self._widgets:
            self._widgets.pop().close()

    def _axes_text(self) -> str:
        return _style_sheet() + live_text.axes(self._layout, self._axis)

    def _readings_text(self, progress: Progress) -> str:
        overview = self._window is not None
        return live_text.readings(progress, self._layout, SYSTEM_CLOCK.time(), overview=overview)

    def _figure(self, scales: dict[str, Any]) -> Any:
        options: dict[str, Any] = {}
        if "display_toolbar" in bqplot.Figure.class_trait_names():
            options["display_toolbar"] = False  # older versions of bqplot have no toolbar
        height = f"{self._layout.total_height}px"
        return self._register(
            bqplot.Figure(
                marks=[self._marks, self._series],
                scale_x=scales["x"],
                scale_y=scales["y"],
                fig_margin=_TILES_MARGIN if self._layout.tiles else _ROWS_MARGIN,
                padding_y=0.0,
                min_aspect_ratio=0.001,
                max_aspect_ratio=1000.0,
                background_style={"fill": "none"},
                layout=self._register(ipywidgets.Layout(height=height, width="auto", min_width="0")),
                **options,
            )
        )

    def _lines(self, scales: dict[str, Any], lines: Lines, colors: list[str]) -> Any:
        x, y = lines
        return self._register(bqplot.Lines(x=x, y=y, scales=scales, colors=colors, stroke_width=1.5))

    def _register(self, widget: Any) -> Any:
        """Register ``widget`` to be closed with the chart, and return it."""
        self._widgets.append(widget)
        return widget


def _series(progress: Progress) -> tuple[Any, ...]:
    """Return the values that determine the chart's lines."""
    return (progress.t, *((gpu.utilization, gpu.device_memory) for gpu in progress.gpus))


def _draw(widget: Any, lines: Lines) -> None:
    with widget.hold_sync():  # one message for both x and y
        widget.x, widget.y = lines


@cache
def _style_sheet() -> str:
    sheet = resources.files("gpuwidget.kernel.live").joinpath("live.css").read_text(encoding="utf-8")
    shared = (
        f"--gpuwidget-busy:{styles.UTILIZATION};--gpuwidget-memory:{styles.MEMORY};--gpuwidget-aside:{RIGHT}"
    )
    return f"<style>.gpuwidget-live{{{shared}}}\n{sheet}</style>"
