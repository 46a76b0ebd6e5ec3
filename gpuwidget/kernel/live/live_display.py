"""Shows and updates the live chart of a watched cell.

The chart is displayed in an output slot that is reserved when the cell starts. When the cell ends, the chart
stays until the card replaces it in the same slot. The chart consists of widgets or, where they can't be
loaded, of plain HTML that replaces the slot's content once a second.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Literal, TypeAlias

from gpuwidget.kernel.live import chart_libraries
from gpuwidget.kernel.live.chart_libraries import LiveUnavailable
from gpuwidget.kernel.shell.output_slot import EMPTY, OutputSlot
from gpuwidget.measure.progress import Progress
from gpuwidget.model.boundary import stopped
from gpuwidget.model.clock import SYSTEM_CLOCK
from gpuwidget.model.terminal_text import printable_lines

if TYPE_CHECKING:
    from gpuwidget.kernel.live.live_chart import LiveChart
    from gpuwidget.kernel.live.plain_chart import PlainChart

LiveKind: TypeAlias = Literal["widgets", "html"]

_LOG = logging.getLogger(__name__)

DELAY_S = 0.5
"""Seconds that a cell must run before its chart is shown."""
_PERIODS_S: Mapping[LiveKind, float] = {"widgets": 0.19, "html": 1.0}
"""Seconds from one update to the next. HTML is sent and drawn as a whole each time."""
_STOP_TIMEOUT_S = 0.25
_MAX_SHARE = 0.01
"""The part of a core that updates of the chart use, unless :data:`_MAX_PERIOD_S` is reached. They hold
Python's interpreter (GIL), which the user's code needs too."""
_MAX_PERIOD_S = 1.0
"""The longest pause after an update, even if it needed more than its share."""


def period_after(used_s: float, period_s: float) -> float:
    """Return the seconds from an update of the chart to the next, at least ``period_s``.

    ``used_s`` is the CPU time of the update.
    """
    return max(period_s, min(used_s / _MAX_SHARE, _MAX_PERIOD_S))


class LiveDisplay:
    """Displays the live chart of one run of a cell, and never raises an error into that cell."""

    def __init__(
        self,
        progress: Callable[[], Progress],
        slot: OutputSlot,
        *,
        kind: LiveKind = "widgets",
        period_s: float | None = None,
    ) -> None:
        self._progress = progress
        self._slot = slot
        self._kind = kind
        self._period_s = _PERIODS_S[kind] if period_s is None else period_s
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._drawing = False
        """Whether the thread still uses the chart. It then closes the chart itself."""
        self._closed = False
        self._thread: threading.Thread | None = None
        self._chart: LiveChart | PlainChart | None = None
        self._shown: LiveChart | PlainChart | None = None
        """The chart that the slot shows."""

    def show(self) -> None:
        """Start the thread that shows the chart and updates it. Call this once, from any thread."""
        try:
            with self._lock:
                if not self._stopping.is_set():
                    run = self._slot.channel.in_context(self._run)
                    self._thread = threading.Thread(target=run, name="gpuwidget-live", daemon=True)
                    self._drawing = True
                    self._thread.start()
        except BaseException as error:
            stopped(_LOG, "Could not show the live chart", error)

    def stop(self) -> None:
        """Stop updating the chart, which stays as it is until :meth:`close`.

        If the thread that updates the chart hangs, it is abandoned after a quarter of a second and displays
        nothing more.
        """
        self._stopping.set()
        try:
            with self._lock:  # wait for show() on another thread
                thread = self._thread
            # The result of a short cell doesn't wait for the end of the import.
            if thread is not None and (self._kind == "html" or chart_libraries.is_imported()):
                thread.join(_STOP_TIMEOUT_S)
        except BaseException as error:
            stopped(_LOG, "Could not stop the live chart", error)

    def close(self) -> None:
        """Close the chart's widgets, after :meth:`stop`. Until then, the slot must show something else.

        Safe to call twice.
        """
        with self._lock:
            self._closed = True
            if not self._drawing:
                self._close_chart()

    def _run(self) -> None:
        failed = True
        try:
            if self._kind == "widgets":
                chart_libraries.import_on_thread()
            due = SYSTEM_CLOCK.monotonic()
            while not self._stopping.is_set():
                used = self._step()
                # After a step that took longer than the period, continue from now instead of catching up.
                due = max(due + period_after(used, self._period_s), SYSTEM_CLOCK.monotonic())
                self._stopping.wait(due - SYSTEM_CLOCK.monotonic())
            failed = False
        except LiveUnavailable as error:
            _LOG.warning("%s", printable_lines(str(error)))
        except BaseException as error:
            stopped(_LOG, "The live chart failed", error)
        finally:
            with self._lock:
                self._drawing = False
                if failed and self._shown is not None and not self._stopping.is_set():
                    self._slot.fill(EMPTY)
                if failed or self._closed:
                    self._close_chart()

    def _step(self) -> float:
        """Show the chart or update it. Return the CPU time of an update in seconds."""
        progress = self._progress()
        origin = progress.origin
        if origin is None or not (origin.live or origin.recorded) or self._stopping.is_set():
            return 0.0
        outdated, used = None, 0.0
        if self._chart is not None and not self._chart.fits(progress):
            outdated, self._chart = self._chart, None
        if self._chart is None:
            self._chart = self._new_chart(progress)
        else:
            started = time.thread_time()
            self._chart.update(progress)
            used = time.thread_time() - started
        try:
            self._show(self._chart)
        finally:
            if outdated is not None:
                outdated.close()
        return used

    def _new_chart(self, progress: Progress) -> LiveChart | PlainChart:
        if self._kind == "html":
            from gpuwidget.kernel.live.plain_chart import PlainChart

            return PlainChart(progress)
        from gpuwidget.kernel.live.live_chart import LiveChart

        return LiveChart(progress)

    def _show(self, chart: LiveChart | PlainChart) -> None:
        """Display the chart in its slot, or in a new output if the cell has cleared its outputs.

        Where the cell clears them every few seconds, the chart would appear and disappear as often, and move
        the page each time. It then stays away.
        """
        slot = self._slot
        if self._stopping.is_set() or (self._shown is chart and not slot.cleared) or slot.captured:
            return
        if not slot.cleared:
            slot.fill(chart.bundle())
            self._shown = chart
        elif not slot.clear_pending and not slot.clears_often:
            slot.renew(chart.bundle())
            self._shown = chart

    def _close_chart(self) -> None:
        try:
            chart, self._chart = self._chart, None
            if chart is not None:
                chart.close()
        except BaseException as error:
            stopped(_LOG, "Could not remove the live chart", error)
