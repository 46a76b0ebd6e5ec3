"""The live chart's widgets: one bqplot figure with a panel a GPU, and HTML for axes and figures.

This module and nothing else imports ipywidgets and bqplot.
"""

from __future__ import annotations

import time
from importlib import resources
from typing import Any

import bqplot
import ipywidgets

from gpuwidget.kernel.live import live_text
from gpuwidget.kernel.live.chart_layout import Course, Layout
from gpuwidget.kernel.live.time_axis import TimeAxis
from gpuwidget.measure.progress import Progress

WIDGET_MIME_TYPE = "application/vnd.jupyter.widget-view+json"
_WORDS_EVERY = 3
_MARKS_EVERY = 5
_ROWS_MARGIN = {"top": 0, "bottom": 0, "left": 28, "right": 22}
_TILES_MARGIN = {"top": 0, "bottom": 0, "left": 0, "right": 0}


class LiveChart:
    """The widgets of one live view, for a number of GPUs that does not change."""

    def __init__(self, progress: Progress, window: TimeAxis | None = None) -> None:
        """``window`` for the last minutes of all GPUs, rather than for a run's course from its beginning."""
        self._window = window
        self._layout = Layout.of(len(progress.gpus))
        self._widgets: list[Any] = []
        self._updates = 0
        self._axis = window or TimeAxis.reaching(progress.elapsed_s)
        self._marks_shown: object = None
        plain = self._own(ipywidgets.Layout())
        self._frame = self._html(live_text.frame(self._layout, self._axis), plain)
        self._words = self._html("", plain)
        scales = {
            "x": self._own(bqplot.LinearScale(min=0.0, max=100.0, allow_padding=False)),
            "y": self._own(
                bqplot.LinearScale(min=0.0, max=float(max(1, self._layout.total_height)), allow_padding=False)
            ),
        }
        self._marks = self._lines(scales, self._layout.marks(progress.marks, self._axis.end_s), ["#888888"])
        self._course = self._lines(
            scales,
            self._layout.course(progress.t, self._axis.end_s, progress.gpus),
            ["#1976d2", "#1976d2", "#7b1fa2"],
        )
        hidden = self._own(ipywidgets.Layout(display="none"))
        style = self._html(_style_sheet(), hidden)
        classes = ["gpuwidget-live", "gpuwidget-tiles" if self._layout.tiles else "gpuwidget-rows"]
        charts = (self._figure(scales),) if progress.gpus else ()
        self._root = self._own(
            ipywidgets.Box(
                (style, self._frame, *charts, self._words), layout=plain, _dom_classes=tuple(classes)
            )
        )
        self.update(progress)

    @property
    def widget(self) -> Any:
        """The widget that holds all of it."""
        return self._root

    def fits(self, progress: Progress) -> bool:
        """Whether this chart can show that progress; another number of GPUs needs another chart."""
        return self._layout.panels == len(progress.gpus)

    def bundle(self) -> dict[str, Any]:
        """The mime bundle that shows it."""
        view = {"version_major": 2, "version_minor": 0, "model_id": self._root.model_id}
        return {WIDGET_MIME_TYPE: view, "text/plain": "live GPU chart"}

    def update(self, progress: Progress) -> None:
        """Show how far the run is: the course each time, what nobody reads that fast less often."""
        axis = self._window or TimeAxis.reaching(progress.elapsed_s)
        stretched = axis != self._axis
        if stretched:
            self._axis = axis
            self._frame.value = live_text.frame(self._layout, axis)
        if progress.gpus:
            _draw(self._course, self._layout.course(progress.t, axis.end_s, progress.gpus))
            if stretched or (self._updates % _MARKS_EVERY == 0 and progress.marks != self._marks_shown):
                self._marks_shown = progress.marks
                _draw(self._marks, self._layout.marks(progress.marks, axis.end_s))
        if self._updates % _WORDS_EVERY == 0:
            overview = self._window is not None
            self._words.value = live_text.words(progress, self._layout, time.time(), overview=overview)
        self._updates += 1

    def close(self) -> None:
        """Let go of every widget, here and in the front end."""
        while self._widgets:
            self._widgets.pop().close()

    def _figure(self, scales: dict[str, Any]) -> Any:
        options: dict[str, Any] = {}
        if "display_toolbar" in bqplot.Figure.class_trait_names():
            options["display_toolbar"] = False  # known to newer versions only
        height = f"{self._layout.total_height}px"
        return self._own(
            bqplot.Figure(
                marks=[self._marks, self._course],
                scale_x=scales["x"],
                scale_y=scales["y"],
                fig_margin=_TILES_MARGIN if self._layout.tiles else _ROWS_MARGIN,
                padding_y=0.0,
                min_aspect_ratio=0.001,
                max_aspect_ratio=1000.0,
                background_style={"fill": "none"},
                layout=self._own(ipywidgets.Layout(height=height, width="auto", min_width="0")),
                **options,
            )
        )

    def _lines(self, scales: dict[str, Any], course: Course, colors: list[str]) -> Any:
        x, y = course
        return self._own(bqplot.Lines(x=x, y=y, scales=scales, colors=colors, stroke_width=1.5))

    def _html(self, text: str, layout: Any) -> Any:
        widget = self._own(ipywidgets.HTML(text, layout=layout))
        self._own(widget.style)
        return widget

    def _own(self, widget: Any) -> Any:
        self._widgets.append(widget)
        return widget


def _draw(lines: Any, course: Course) -> None:
    with lines.hold_sync():  # one message for both
        lines.x, lines.y = course


def _style_sheet() -> str:
    sheet = resources.files("gpuwidget.kernel.live").joinpath("live.css").read_text(encoding="utf-8")
    return f"<style>{sheet}</style>"
