"""When the live chart of a watched cell appears, moves on and goes.

An empty output is put first among the cell's own as the cell begins, and filled later by an update: so the
chart never splits a progress bar's output in two, never sets off a ``clear_output(wait=True)``, and is
never caught by an Output widget. When the cell ends that output is emptied, and takes no space.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gpuwidget.errors import GpuWidgetError
from gpuwidget.kernel.channel import CellChannel, ClearWatch
from gpuwidget.measure.printed import PRINTED
from gpuwidget.measure.progress import Progress

if TYPE_CHECKING:
    from gpuwidget.kernel.live_chart import LiveChart

_LOG = logging.getLogger(__name__)
_CHART_MODULE = "gpuwidget.kernel.live_chart"
_STOP_TIMEOUT_S = 0.25
_RESHOW_EVERY_S = 1.0
DISPLAY_ID_PREFIX = "gpuwidget-live-"
"""How the display ids of live outputs begin."""

_preparing = threading.Lock()
_prepared = False


class LiveUnavailable(GpuWidgetError):
    """The live chart's packages can't be imported; everything else works without them."""


def prepare() -> None:
    """Import ipywidgets and bqplot (0.3 to 0.8 s), so that no cell waits for them. Safe to call again.

    Raises LiveUnavailable where they can't be imported.
    """
    global _prepared
    with _preparing:
        if _prepared:
            return
        try:
            import gpuwidget.kernel.live_chart  # noqa: F401
        except Exception as error:  # a broken package raises more than ImportError
            raise LiveUnavailable(
                f"No live chart: {type(error).__name__}: {error}. "
                "It needs ipywidgets and bqplot in the kernel's environment (pip install ipywidgets bqplot)."
            ) from error
        _prepared = True


def ready() -> bool:
    """Whether :func:`prepare` has been done."""
    return _prepared


class LiveView:
    """The live chart of one run of a cell. It never raises into that cell."""

    def __init__(
        self,
        progress: Callable[[], Progress],
        shell: Any,
        *,
        delay_s: float = 0.5,
        period_s: float = 0.17,
    ) -> None:
        self._progress = progress
        self._shell = shell
        self._delay_s = delay_s
        self._period_s = period_s
        self._stopping = threading.Event()
        self._channel: CellChannel | None = None
        self._clears: ClearWatch | None = None
        self._thread: threading.Thread | None = None
        self._display_id = ""
        self._shown = False
        self._shown_at = 0.0

    def start(self) -> None:
        """Reserve the chart's place and begin to wait; called on the thread that runs the cell.

        Does nothing before :func:`prepare`, and outside a Jupyter kernel.
        """
        if not ready():
            return
        try:
            self._channel = CellChannel.of_this_cell(self._shell)
            if self._channel is None:
                return
            self._display_id = _new_display_id()
            self._channel.display({}, self._display_id)
            self._clears = ClearWatch(self._shell, self._channel.message_id, _is_captured)
            self._clears.start()
            PRINTED.listen(self._see_printed)
            run = self._channel.in_context(self._run)
            self._thread = threading.Thread(target=run, name="gpuwidget-live", daemon=True)
            self._thread.start()
        except Exception:
            _LOG.debug("The live chart did not start", exc_info=True)

    def stop(self) -> None:
        """Empty the chart's output and end; called on the thread that called :meth:`start`.

        A thread that hangs is left behind after a quarter of a second; it shows nothing any more.
        """
        self._stopping.set()
        try:
            PRINTED.leave(self._see_printed)
            if self._clears is not None:
                self._clears.stop()
            if self._thread is not None:
                self._thread.join(_STOP_TIMEOUT_S)
                if self._thread.is_alive() and self._shown:
                    self._empty()
        except Exception:
            _LOG.debug("The live chart did not end as it should", exc_info=True)

    def _run(self) -> None:
        if self._stopping.wait(self._delay_s):
            return
        chart: LiveChart | None = None
        try:
            due = time.monotonic()
            while not self._stopping.is_set():
                chart = self._step(chart)
                # After a step that took longer than the period: go on from now, rather than catch up.
                due = max(due + self._period_s, time.monotonic())
                self._stopping.wait(due - time.monotonic())
        except Exception:
            _LOG.debug("The live chart ended early", exc_info=True)
        finally:
            self._end(chart)

    def _step(self, chart: LiveChart | None) -> LiveChart | None:
        from gpuwidget.kernel.live_chart import LiveChart

        progress = self._progress()
        if progress.origin is None or progress.origin.kind == "none" or self._stopping.is_set():
            return chart
        if chart is not None and not chart.fits(progress):
            self._empty()
            chart.close()
            chart = None
        if chart is None:
            chart = LiveChart(progress)
        else:
            chart.update(progress)
        self._show(chart)
        return chart

    def _show(self, chart: LiveChart) -> None:
        """Put the chart into its place, and into a new one after the cell cleared its outputs."""
        assert self._channel is not None
        assert self._clears is not None
        if self._stopping.is_set() or (self._shown and not self._clears.cleared):
            return
        if _is_captured(self._channel.message_id):
            return  # an Output widget would swallow the message, and show nothing
        if not self._clears.cleared:
            self._channel.update(chart.bundle(), self._display_id)
        elif not self._clears.pending and time.monotonic() - self._shown_at >= _RESHOW_EVERY_S:
            self._clears.cleared = False
            self._channel.update({}, self._display_id)
            self._display_id = _new_display_id()
            self._channel.display(chart.bundle(), self._display_id)
            self._shown_at = time.monotonic()
        else:
            return
        self._shown = True

    def _empty(self) -> None:
        assert self._channel is not None
        self._channel.update({}, self._display_id)
        self._shown = False

    def _end(self, chart: LiveChart | None) -> None:
        try:
            if self._shown:
                self._empty()
            if chart is not None:
                chart.close()
        except Exception:
            _LOG.debug("The live chart was not cleared away", exc_info=True)

    def _see_printed(self, line: str) -> None:
        if self._clears is not None:
            self._clears.saw_output()


def _new_display_id() -> str:
    return f"{DISPLAY_ID_PREFIX}{uuid.uuid4().hex}"


def _is_captured(message_id: str) -> bool:
    """Whether an Output widget keeps the outputs of that request to itself now (``with out:``)."""
    widgets = sys.modules.get("gpuwidget.kernel.live_chart")
    return widgets is not None and widgets.is_captured(message_id)
