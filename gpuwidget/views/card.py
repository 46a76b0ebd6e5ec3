"""The durable card of a run: a mime bundle that any front end can display, even long after the run.

The bundle contains text for a terminal, static HTML for people and JSON for programs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from gpuwidget.model.report import Report
from gpuwidget.model.terminal_text import printable_lines
from gpuwidget.model.translation import _, in_view_language
from gpuwidget.views import card_html, card_text, elements, size_budget, styles
from gpuwidget.views.card_summary import headline, is_silent, lost_gpus
from gpuwidget.views.comparison import LastRun, since_last_run
from gpuwidget.views.detail_levels import FULL
from gpuwidget.views.reductions import ReducedReport
from gpuwidget.views.saved_outputs import output_metadata
from gpuwidget.views.size_budget import Bundle


def bundle(report: Report, oom: Mapping[str, Any] | None = None, last: Report | None = None) -> Bundle:
    """Return the full card of ``report``, at most 20 kB as JSON. It begins with the card ``oom``, if any. The
    run's own figures are then folded.

    ``last`` is the report of the last run of the same cell, with which the card compares the run.
    """
    changes = None if last is None else since_last_run(last, report)
    return size_budget.fit(
        report, partial(_below, oom or {}, partial(_card, last=changes, folded=oom is not None))
    )


def line_bundle(
    report: Report, oom: Mapping[str, Any] | None = None, last: Report | None = None
) -> Bundle | None:
    """Return the one-line card of ``%gpu watch on``, like :func:`bundle`; its JSON has no timeline and no
    time per line, and it does not compare.

    Return None if the card would say nothing.
    """
    if is_silent(report):
        return None
    return size_budget.fit(replace(report, timeline=None, time=None), partial(_below, oom or {}, _line))


def _below(
    oom: Mapping[str, Any], render: Callable[[ReducedReport], dict[str, str]], reduced: ReducedReport
) -> dict[str, str]:
    """Return what ``render`` returns, below the card of an out-of-memory error, so that both are one card."""
    made = render(reduced)
    return {mime: "\n".join((oom[mime], text)) if mime in oom else text for mime, text in made.items()}


@in_view_language
def _card(reduced: ReducedReport, last: LastRun | None, *, folded: bool) -> dict[str, str]:
    html = card_html.card(reduced.drawn, reduced.level, last)
    if folded:
        fold = elements.fold(_("Figures of this run"), html)
        alerts = card_html.alerts(reduced.drawn, lost_gpus(reduced.drawn))
        html = styles.frame(f"{alerts}<div style='font-size:12px'>{fold}</div>", styles.ERROR)
    return {
        "text/plain": card_text.card(reduced.drawn, reduced.level, last),
        "text/html": html,
    }


@in_view_language
def _line(reduced: ReducedReport) -> dict[str, str]:
    return {
        "text/plain": card_text.short_line(reduced.drawn),
        "text/html": card_html.short_line(reduced.drawn),
    }


@dataclass(frozen=True, slots=True, repr=False)
class CardReport(Report):
    """A report that is displayed as its card."""

    def _repr_mimebundle_(
        self, include: object = None, exclude: object = None
    ) -> tuple[Bundle, dict[str, Any]]:
        return bundle(self), output_metadata()

    @in_view_language
    def __repr__(self) -> str:
        return printable_lines(f"<gpuwidget report: {' · '.join(headline(self))}>")

    @in_view_language
    def __str__(self) -> str:
        return card_text.card(self, replace(FULL, gpus=len(self.gpus)))


class Reports(list[Report]):
    """A list of reports that is displayed as a table."""

    @in_view_language
    def _repr_mimebundle_(
        self, include: object = None, exclude: object = None
    ) -> tuple[dict[str, str], dict[str, Any]]:
        return {"text/plain": repr(self), "text/html": card_html.table(self)}, output_metadata()

    @in_view_language
    def __repr__(self) -> str:
        return card_text.table(self) if self else _("no reports yet")
