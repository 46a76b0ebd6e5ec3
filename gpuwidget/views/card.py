"""The durable card: one mime bundle that says what a run did, on any front end and long after.

Text for a terminal, static HTML for people, JSON for programs. Reports made here display as their card
wherever they are displayed again.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

from gpuwidget.model.report import MIME_TYPE, Report
from gpuwidget.model.terminal_text import printable_lines
from gpuwidget.views import card_html, card_text
from gpuwidget.views.card_summary import headline
from gpuwidget.views.size_budget import LIMIT, PLANS, Fitted, Plan, as_json, fitted, may_fit


def bundle(report: Report) -> dict[str, Any]:
    """The full card of ``report``, of at most 20 kB as JSON."""
    return _fit(report)[1]


def compact(report: Report) -> Report:
    """``report`` as its card stores it: what is left of its course and marks, and a note that says so."""
    return _fit(report)[0]


def line_bundle(report: Report) -> dict[str, Any]:
    """The quiet one-line card of ``%gpu watch on``; its JSON has no course and no lines."""
    for plan in PLANS:
        cut = fitted(replace(report, timeline=None, time=None), plan)
        data = {
            "text/plain": card_text.line(cut.drawn),
            "text/html": card_html.line(cut.drawn),
            MIME_TYPE: as_json(cut, plan),
        }
        if _size(data) <= LIMIT:
            break
    return data


@dataclass(frozen=True, slots=True, repr=False)
class CardReport(Report):
    """A report that displays as its card."""

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        return bundle(self)

    def __repr__(self) -> str:
        return printable_lines(f"<gpuwidget report: {' · '.join(headline(self))}>")

    def __str__(self) -> str:
        return card_text.card(self, len(self.gpus))


class Reports(list[Report]):
    """Several reports, which display as a table; each of them displays as its card."""

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        return {"text/plain": repr(self), "text/html": card_html.table(self)}

    def __repr__(self) -> str:
        return card_text.table(self) if self else "no reports yet"


_fitted_last: dict[tuple[int, int], int] = {}
"""By the number of GPUs and of those shown: the plan, counted from the roomiest, that the last card took."""


def _fit(report: Report) -> tuple[Report, dict[str, Any]]:
    """The roomiest plan's outcome that fits, or the barest one's."""
    possible = [plan for plan in PLANS if may_fit(report, plan)] or [PLANS[-1]]
    kind = (len(report.gpus), len(report.shown))
    made: dict[int, tuple[Report, dict[str, Any]]] = {}

    def make(place: int) -> tuple[Report, dict[str, Any]]:
        if place not in made:
            cut = fitted(report, possible[place])
            made[place] = cut.stored, _bundle(cut, possible[place])
        return made[place]

    low, high = 0, len(possible) - 1
    # Making a card takes milliseconds that a user waits for, and most cards of a notebook are alike: the
    # last one's plan is tried, and the one before it; where that fails, the rest by halves.
    guess: int | None = _fitted_last.get(kind, 0)
    while low < high:
        place = guess if guess is not None and low <= guess < high else (low + high) // 2
        if _size(make(place)[1]) <= LIMIT:
            high, guess = place, place - 1
        else:
            low, guess = place + 1, None
    _fitted_last[kind] = low
    return make(low)


def _bundle(cut: Fitted, plan: Plan) -> dict[str, Any]:
    return {
        "text/plain": card_text.card(cut.drawn, plan.rows, each=plan.each, brief=plan.brief),
        "text/html": card_html.card(cut.drawn, plan),
        MIME_TYPE: as_json(cut, plan),
    }


def _size(data: dict[str, Any]) -> int:
    return len(json.dumps(data))
