"""A client's query of the history, parsed from the query string of its request."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from tornado.web import HTTPError, RequestHandler

from gpuwidget.server.history_metrics import METRIC_INDEX, METRICS, Values
from gpuwidget.server.hourly_rollup import HOUR_S

MIN_POINTS, MAX_POINTS = 2, 4000
PROMETHEUS_S = 30 * 24 * 3600.0
"""Length in seconds of the history that clients can request if a Prometheus is configured."""

_ALL = "all"
_DEFAULT_POINTS = 600
_FRACTIONS_OF_A_SECOND = (0.1, 0.2, 0.5)
_SECONDS = (1, 2, 3, 5, 10, 15, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14_400, 43_200, 86_400)
_MIN_SAMPLES = 2
"""A step of less than a second is used only if it is at least this many sampling intervals long. Some shorter
steps might contain no sample, because the time between two samples varies."""


@dataclass(frozen=True, slots=True)
class HistoryQuery:
    """A query for a part of the history: start and end in epoch seconds, metrics and resolution."""

    since: float
    until: float
    metrics: tuple[str, ...]
    points: int
    """The maximum number of points of each series."""
    node: str | None
    """Name of the machine in the cluster; None for this server's own machine."""

    @classmethod
    def parse(cls, handler: RequestHandler, now: float, length_s: float = HOUR_S) -> HistoryQuery | None:
        """Return the query of a request, or None if the request is for the short history at the full rate.

        ``now`` is the current time in epoch seconds, and ``length_s`` is the length of the history. If an
        argument is invalid, raises HTTPError 400 with a sentence about the allowed values.
        """
        if not {"metrics", "since", "until", "points", "node"} & set(handler.request.query_arguments):
            return None
        since, until = _parse_time(handler, "since"), _parse_time(handler, "until")
        seconds = HOUR_S
        if handler.get_query_argument("seconds", None) is not None:
            seconds = parse_seconds(handler, "seconds", length_s)
        until = now if until is None else until
        if since is None:
            since = until - seconds
        elif handler.get_query_argument("seconds", None) is not None:
            raise HTTPError(400, "since and seconds both set the start: give only one of them.")
        if since > until:
            raise HTTPError(400, "since must not be later than until.")
        since, until = max(since, now - length_s), min(until, now)
        node = handler.get_query_argument("node", None)
        return cls(since, max(since, until), _parse_metrics(handler), _parse_points(handler), node)

    def step_s(self, *, full_rate: bool, samples: int, interval_s: float) -> float:
        """Return the seconds per step that yield at most ``points`` steps. 0 means one step per sample.

        ``full_rate`` is true if all ``samples`` in the requested time are still stored at the full rate. The
        step depends on the requested time and not on the samples in it, so that the step does not change
        while the series grows.
        """
        if full_rate and max(samples, (self.until - self.since) / interval_s) <= self.points:
            return 0.0
        return next((step for step in _steps(full_rate, interval_s) if self._fits(step)), float(_SECONDS[-1]))

    def _fits(self, step: float) -> bool:
        first, last = step_numbers(np.array([self.since, self.until]), step)
        return bool(last - first + 1 <= self.points)


def _steps(full_rate: bool, interval_s: float) -> Iterator[float]:
    if full_rate:
        yield from (step for step in _FRACTIONS_OF_A_SECOND if step >= _MIN_SAMPLES * interval_s)
    yield from map(float, _SECONDS)


def step_numbers(times: Values, step: float) -> Values:
    """Return the number of the step that contains each time. Steps are counted from the epoch."""
    # Round first. A step of 0.1 s has no exact binary representation, so the quotient may be slightly too
    # small.
    numbers: Values = np.floor(np.round(times / step, 3))
    return numbers


def parse_seconds(handler: RequestHandler, name: str, maximum: float) -> float:
    """Return a query argument in seconds, by default ``maximum``; status 400 if it is not between 0 and
    ``maximum``."""
    seconds = _parse_number(handler, name)
    if seconds is None:
        return maximum
    if not 0 <= seconds <= maximum:
        raise HTTPError(400, f"{name} must be a number of seconds from 0 to {maximum:g}.")
    return seconds


def _parse_metrics(handler: RequestHandler) -> tuple[str, ...]:
    text = handler.get_query_argument("metrics", _ALL)
    if text == _ALL:
        return METRICS
    names = tuple(dict.fromkeys(text.split(",")))
    if not all(name in METRIC_INDEX for name in names):
        raise HTTPError(
            400, f"metrics must be {_ALL}, or a comma-separated list of these: {', '.join(METRICS)}."
        )
    return names


def _parse_points(handler: RequestHandler) -> int:
    points = _parse_number(handler, "points")
    if points is None:
        return _DEFAULT_POINTS
    if not (MIN_POINTS <= points <= MAX_POINTS and points == int(points)):
        raise HTTPError(400, f"points must be a whole number from {MIN_POINTS} to {MAX_POINTS}.")
    return int(points)


def _parse_time(handler: RequestHandler, name: str) -> float | None:
    time = _parse_number(handler, name)
    if time is not None and not math.isfinite(time):
        raise HTTPError(400, f"{name} must be a number of seconds since the epoch.")
    return time


def _parse_number(handler: RequestHandler, name: str) -> float | None:
    """Return a query argument as a number: NaN if it is not a number, None if it is missing."""
    text = handler.get_query_argument(name, None)
    if text is None:
        return None
    try:
        return float(text)
    except ValueError:
        return math.nan
