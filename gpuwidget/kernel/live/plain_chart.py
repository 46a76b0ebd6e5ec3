"""The live chart as plain HTML, for front ends that can't load widgets."""

from __future__ import annotations

from typing import Any

from gpuwidget.kernel.live import live_text
from gpuwidget.measure.progress import Progress
from gpuwidget.model.clock import SYSTEM_CLOCK
from gpuwidget.model.translation import _, in_view_language


class PlainChart:
    """The HTML of one moment of a run, with the methods of a live chart. Each update is a new object."""

    def __init__(self, progress: Progress) -> None:
        self._html = live_text.plain_html(progress, SYSTEM_CLOCK.time())

    def fits(self, progress: Progress) -> bool:
        """Return False, so that every update replaces the output."""
        return False

    def update(self, progress: Progress) -> None:
        """Do nothing, because the HTML can't be changed in the front end."""

    @in_view_language
    def bundle(self) -> dict[str, Any]:
        """Return the mime bundle that displays the chart."""
        return {"text/html": self._html, "text/plain": _("live GPU chart")}

    def close(self) -> None:
        """Do nothing, because nothing remains in the front end."""
