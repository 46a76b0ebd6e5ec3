"""The live chart's widgets: a bqplot figure a GPU and one widget with all figures in words.

All GPUs share scales, axes and the marks' lines, so that an update is one message a GPU and one for the
words: each message costs the thread that sends it a hand-over of the interpreter.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from importlib import resources
from typing import Any

import bqplot
import ipywidgets
import numpy as np
from numpy.typing import NDArray

from gpuwidget.kernel import live_text
from gpuwidget.kernel.time_axis import TimeAxis
from gpuwidget.measure.progress import GpuProgress, Progress

COMPACT_FROM = 5
"""Number of GPUs from which on they are shown as small multiples."""
WIDGET_MIME_TYPE = "application/vnd.jupyter.widget-view+json"
_MOST_MARKS = 200
_TICK = 7.0

Floats = NDArray[np.float32]


class LiveChart:
    """The widgets of one live view; every method is called on the thread that made it, or after it."""

    def __init__(self, progress: Progress) -> None:
        self._widgets: list[Any] = []
        self._time_axis = TimeAxis.reaching(progress.elapsed_s)
        self._compact = len(progress.gpus) >= COMPACT_FROM
        self._courses: list[Any] = []
        self._figures: list[Any] = []
        self._marks_seen: object = None
        plain = self._layout()
        self._x = self._own(bqplot.LinearScale(min=0.0, max=self._time_axis.end, allow_padding=False))
        self._y = self._own(bqplot.LinearScale(min=0.0, max=100.0, allow_padding=False))
        self._axis_x = self._own(
            bqplot.Axis(
                scale=self._x,
                grid_lines="none",
                tick_format="~g",
                tick_values=self._time_axis.ticks,
                label=self._time_axis.unit,
                label_location="end",
                label_offset="0.4em",
            )
        )
        self._axis_y = self._own(
            bqplot.Axis(
                scale=self._y,
                orientation="vertical",
                grid_lines="none",
                tick_format="~g",
                tick_values=[0, 50, 100],
            )
        )
        self._ticks = self._own(
            bqplot.Lines(
                **_course([], []),
                scales={"x": self._x, "y": self._y},
                colors=["#888888", "#888888"],
                opacities=[0.9, 0.6],
                stroke_width=1.0,
            )
        )
        self._text = self._own(ipywidgets.HTML(layout=plain))
        self._own(self._text.style)
        style = self._own(ipywidgets.HTML(_style_sheet(), layout=self._layout(display="none")))
        self._own(style.style)
        self._charts = self._own(ipywidgets.Box(layout=plain, _dom_classes=("gpuwidget-charts",)))
        self._chart_layout = self._layout()
        classes = ("gpuwidget-live", "gpuwidget-compact") if self._compact else ("gpuwidget-live",)
        self._root = self._own(
            ipywidgets.Box((style, self._charts, self._text), layout=plain, _dom_classes=classes)
        )
        self.update(progress)

    def fits(self, progress: Progress) -> bool:
        """Whether this chart can show that progress: few GPUs and many are laid out in two ways."""
        return self._compact == (len(progress.gpus) >= COMPACT_FROM)

    def bundle(self) -> dict[str, Any]:
        """The mime bundle that shows it."""
        view = {"version_major": 2, "version_minor": 0, "model_id": self._root.model_id}
        return {WIDGET_MIME_TYPE: view, "text/plain": "live GPU chart"}

    def update(self, progress: Progress) -> None:
        """Show how far the run is."""
        time_axis = TimeAxis.reaching(progress.elapsed_s)
        if time_axis != self._time_axis:
            self._stretch(time_axis)
        if len(progress.gpus) > len(self._courses):
            self._add(len(progress.gpus) - len(self._courses))
        t = [moment / time_axis.seconds for moment in progress.t]
        for course, gpu in zip(self._courses, progress.gpus, strict=False):
            with course.hold_sync():
                for name, value in _course(t, _percentages(gpu)).items():
                    setattr(course, name, value)
        marks = (progress.marks, time_axis.seconds)
        if marks != self._marks_seen:
            self._marks_seen = marks
            self._show_marks(progress, time_axis.seconds)
        self._text.value = live_text.figures(progress, self._compact, time.time())

    def close(self) -> None:
        """Let go of every widget, here and in the front end."""
        while self._widgets:
            self._widgets.pop().close()

    def _add(self, count: int) -> None:
        for _ in range(count):
            course = self._own(
                bqplot.Lines(
                    **_course([], []),
                    scales={"x": self._x, "y": self._y},
                    colors=["#1976d2", "#7b1fa2"],
                    fill="bottom",
                    fill_opacities=[0.14, 0.0],
                    stroke_width=1.5,
                )
            )
            self._courses.append(course)
            self._figures.append(self._figure(course))
        self._charts.children = tuple(self._figures)

    def _figure(self, course: Any) -> Any:
        margin = (
            {"top": 2, "bottom": 2, "left": 1, "right": 1}
            if self._compact
            else {"top": 8, "bottom": 20, "left": 28, "right": 22}
        )
        options: dict[str, Any] = {}
        if "display_toolbar" in bqplot.Figure.class_trait_names():
            options["display_toolbar"] = False  # known to newer versions only
        return self._own(
            bqplot.Figure(
                marks=[self._ticks, course],
                axes=[] if self._compact else [self._axis_x, self._axis_y],
                scale_x=self._x,
                scale_y=self._y,
                fig_margin=margin,
                padding_y=0.0,
                min_aspect_ratio=0.01,
                max_aspect_ratio=100.0,
                background_style={"fill": "none"},
                layout=self._chart_layout,
                **options,
            )
        )

    def _stretch(self, time_axis: TimeAxis) -> None:
        self._time_axis = time_axis
        self._x.max = time_axis.end
        with self._axis_x.hold_sync():
            self._axis_x.tick_values = time_axis.ticks
            self._axis_x.label = time_axis.unit

    def _show_marks(self, progress: Progress, unit: float) -> None:
        t: list[float] = []
        tall: list[float] = []
        short: list[float] = []
        for mark in progress.marks[-_MOST_MARKS:]:
            t += (mark.t / unit,) * 3
            tall += (np.nan, 0.0, 100.0 if mark.kind == "mark" else 0.0)
            short += (np.nan, 0.0, _TICK if mark.kind == "printed" else 0.0)
        with self._ticks.hold_sync():
            for name, value in _course(t, [tall, short]).items():
                setattr(self._ticks, name, value)

    def _layout(self, **options: str) -> Any:
        return self._own(ipywidgets.Layout(**options))

    def _own(self, widget: Any) -> Any:
        self._widgets.append(widget)
        return widget


def _style_sheet() -> str:
    sheet = resources.files("gpuwidget.kernel").joinpath("live.css").read_text(encoding="utf-8")
    return f"<style>{sheet}</style>"


def _percentages(gpu: GpuProgress) -> tuple[Any, Any]:
    """Utilization, and memory as percent of the GPU's; a value that is not known is a gap."""
    utilization = np.array(gpu.utilization, dtype=float)
    memory = np.array(gpu.device_memory, dtype=float)
    total = gpu.gpu.memory_total
    return utilization, memory * (100.0 / total) if total else np.full_like(memory, np.nan)


def _course(t: Sequence[float], values: Sequence[Any]) -> dict[str, Floats]:
    """What a Lines mark with two lines takes: NaN is a gap, but bqplot needs a number at the end."""
    x = np.asarray(t, dtype=np.float32)
    y = np.asarray(values, dtype=np.float32).reshape(2, len(x))
    if not len(x) or np.isnan(y[:, -1]).any():
        # A point beside a gap draws nothing.
        x = np.append(x, x[-1:] if len(x) else np.float32(0.0))
        y = np.column_stack((y, np.nan_to_num(y[:, -1]) if len(t) else np.zeros(2, np.float32)))
    return {"x": x.astype(np.float32), "y": y.astype(np.float32)}


def is_captured(message_id: str) -> bool:
    """Whether an Output widget keeps the outputs of that request to itself now (``with out:``)."""
    return any(
        isinstance(widget, ipywidgets.Output) and widget.msg_id == message_id
        for widget in tuple(_instances().values())
    )


def _instances() -> dict[str, Any]:
    """Every widget this kernel holds, by model id."""
    module = ipywidgets.widgets.widget
    instances: dict[str, Any] = (
        module._instances if hasattr(module, "_instances") else ipywidgets.Widget.widgets  # before 8
    )
    return instances
