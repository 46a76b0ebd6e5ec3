"""What a request's query asks for, or 400 with a sentence that says what it may."""

from __future__ import annotations

import math

from tornado.web import HTTPError, RequestHandler

from gpuwidget.server.history_metrics import PLACES, QUANTITIES
from gpuwidget.server.hourly_rollup import HOUR_S
from gpuwidget.server.time_series import MAX_POINTS, MIN_POINTS, Asked

_ALL = "all"
_POINTS = 600


def seconds_asked(handler: RequestHandler, name: str, most: float) -> float:
    """The seconds of the past that a query asks for, ``most`` without one; 400 outside 0 to ``most``."""
    seconds = _number(handler, name)
    if seconds is None:
        return most
    if not 0 <= seconds <= most:
        raise HTTPError(400, f"{name} must be a number of seconds from 0 to {most:g}.")
    return seconds


def course_asked(handler: RequestHandler, now: float) -> Asked | None:
    """The course that a query asks for at the epoch second ``now``, None where the plain history."""
    if not {"metrics", "since", "until", "points"} & set(handler.request.query_arguments):
        return None
    since, until = _moment(handler, "since"), _moment(handler, "until")
    seconds = seconds_asked(handler, "seconds", HOUR_S)
    until = now if until is None else until
    if since is None:
        since = until - seconds
    elif handler.get_query_argument("seconds", None) is not None:
        raise HTTPError(400, "since and seconds both say where to begin: give one of them.")
    if since > until:
        raise HTTPError(400, "since must not be later than until.")
    # No more than an hour is held, and the future holds nothing.
    since, until = max(since, now - HOUR_S), min(until, now)
    return Asked(since, max(since, until), _quantities(handler), _points(handler))


def _quantities(handler: RequestHandler) -> tuple[str, ...]:
    text = handler.get_query_argument("metrics", _ALL)
    if text == _ALL:
        return QUANTITIES
    names = tuple(dict.fromkeys(text.split(",")))
    if not all(name in PLACES for name in names):
        raise HTTPError(
            400, f"metrics must be {_ALL} or names of these with commas: {', '.join(QUANTITIES)}."
        )
    return names


def _points(handler: RequestHandler) -> int:
    points = _number(handler, "points")
    if points is None:
        return _POINTS
    if not (MIN_POINTS <= points <= MAX_POINTS and points == int(points)):
        raise HTTPError(400, f"points must be a whole number from {MIN_POINTS} to {MAX_POINTS}.")
    return int(points)


def _moment(handler: RequestHandler, name: str) -> float | None:
    moment = _number(handler, name)
    if moment is not None and not math.isfinite(moment):
        raise HTTPError(400, f"{name} must be a number of seconds since the epoch.")
    return moment


def _number(handler: RequestHandler, name: str) -> float | None:
    """A number of the query, NaN for what is none; None where it is not given."""
    text = handler.get_query_argument(name, None)
    if text is None:
        return None
    try:
        return float(text)
    except ValueError:
        return math.nan
