"""The headline of a watched cell: what the live chart and the card have in common above the chart."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from gpuwidget.model import units
from gpuwidget.model.report import MemoryKind
from gpuwidget.model.terminal_text import clean_line
from gpuwidget.model.translation import _
from gpuwidget.views import elements, styles
from gpuwidget.views.elements import Figure


def lead(label: str | None, figures: Sequence[Figure]) -> str:
    """Return what is above the chart. The live chart has the same, so that the chart stays in its place."""
    title = "" if label is None else styles.quiet(escape(clean_line(label, 80)))
    return f"{title}<div style='min-height:62px'>{elements.figures_row(figures)}</div>"


def peak_qualifier(kind: MemoryKind, total: int | None, gpu: str | None) -> str:
    """Return how a peak was measured, and of which GPU or how much memory, in one line.

    ``total`` is the memory of the only GPU, and ``gpu`` names the one of several GPUs that has the peak.
    """
    if kind == "device":
        return _("sampled, whole GPU") if gpu is None else _("sampled, whole {gpu}", gpu=gpu)
    if kind == "torch":
        if gpu is not None:
            return _("exact, on {gpu}", gpu=gpu)
        return _("exact") if total is None else _("exact, of {total}", total=units.memory(total))
    if gpu is not None:
        return _("sampled, on {gpu}", gpu=gpu)
    return _("sampled") if total is None else _("sampled, of {total}", total=units.memory(total))


def kept_qualifier(kind: MemoryKind, gpus: int) -> str:
    """Return over which GPUs a change of memory is, in one line."""
    if kind == "device":
        return _("whole GPU") if gpus == 1 else _("{number} whole GPUs", number=gpus)
    return _("{number} GPUs", number=gpus) if gpus > 1 else ""
