"""Measure the line profile's accuracy on a real GPU.

In some loops, each line keeps the GPU busy or idle for a known time. For these loops, the profile is compared
with values from the host's clock and CUDA events. Other workloads ("loads") launch GPU kernels so short that
queries of the CUDA stream miss most of them. For these loads, the profile is compared with the GPU's
counters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from benchmarks.figures import Figure
from benchmarks.settings import Settings
from benchmarks.training import run_program

_KINDS = ("synchronous", "asynchronous", "pure Python")
_LAUNCH_BOUND = ("text generation", "small kernels")
_LAUNCH_BOUND_S = (2.0, 4.0)
_PERIODS_S = (0.03, 0.1, 0.3, 1.0)
_MIN_PERIOD_S = 0.1
"""Shortest period of a loop, in seconds, at which the profile must contain the GPU activity of every line. At
shorter periods, the profile may lack some of these values, but the values that it contains must be right."""
_MIN_SHARE = 2.0
"""The GPU activity of a line is checked only if the line takes at least this share of the run's time, in
percent."""
_SHARE_BAR, _ACTIVITY_BAR = 3.0, 5.0


def measure(settings: Settings) -> Iterator[Figure]:
    """Measure the largest errors of the profile, in percentage points.

    In the loops, with periods from 30 ms to 1 s, these are the errors of the time shares and of the GPU
    activity. In the loads, only the error of the GPU activity is measured.
    """
    for kind in _KINDS:
        for period in _PERIODS_S:
            yield from _measure(kind, period, settings)
    for load in _LAUNCH_BOUND:
        for seconds in _LAUNCH_BOUND_S:
            yield _launch_bound(load, seconds, settings)


def _launch_bound(load: str, seconds: float, settings: Settings) -> Figure:
    what = f"{load}, {seconds:g} s: worst difference of a line's activity from the GPU's counters, points"
    arguments = (load, str(seconds), str(settings.pick(5, 1)))
    found = run_program("benchmarks.launch_bound_loads", *arguments)
    if "not_measured" in found:
        return Figure("idle", what, "%", bar=_ACTIVITY_BAR, not_measured=found["not_measured"])
    runs = found["runs"]
    reported = [[line["gpu_busy"] for line in run["profile"] if line["gpu_busy"] is not None] for run in runs]
    values = [
        max(abs(busy - run["counters"]) for busy in lines)
        for lines, run in zip(reported, runs, strict=True)
        if lines
    ]
    return Figure(
        "idle",
        what,
        "%",
        bar=_ACTIVITY_BAR,
        values=values,
        conditions={"never shown as idle": not any(busy == 0 for lines in reported for busy in lines)},
        details={
            "runs": len(runs),
            "counters": [run["counters"] for run in runs],
            "utilization": [run["utilization"] for run in runs],
            "profile": str(runs[0]["profile"]),
            "reason": runs[0]["reason"],
        },
        not_measured=None if values else f"no line showed an activity: {runs[0]['reason']}",
    )


def _measure(kind: str, period: float, settings: Settings) -> Iterator[Figure]:
    what = f"{kind}, period {1e3 * period:.0f} ms"
    arguments = (kind, str(period), str(settings.pick(6.0, 3.0)), str(settings.pick(3, 1)))
    found = run_program("benchmarks.idle_patterns", *arguments)
    if "not_measured" in found:
        yield Figure(
            benchmark="idle", what=what, unit="%", bar=_SHARE_BAR, not_measured=found["not_measured"]
        )
        return
    runs = found["runs"]
    errors = [profile_errors(run["profile"], run["truth"]) for run in runs]
    must = period >= _MIN_PERIOD_S
    details = {
        "looks": runs[0]["looks"],
        "reason": runs[0]["reason"],
        "profile": str(runs[0]["profile"]),
        "true": str(runs[0]["truth"]),
    }
    reported = {"every line told": not any(error.unreported for error in errors)} if must else {}
    yield Figure(
        benchmark="idle",
        what=f"{what}: worst error of a share, points",
        unit="%",
        bar=_SHARE_BAR,
        values=[error.share for error in errors],
        conditions=reported,
        details=details,
    )
    yield Figure(
        benchmark="idle",
        what=f"{what}: worst error of the GPU's activity, points",
        unit="%",
        bar=_ACTIVITY_BAR,
        values=[error.activity for error in errors],
        conditions=reported,
    )


class Errors(NamedTuple):
    """The largest errors of a line profile, in percentage points, over all lines in the profile."""

    share: float
    activity: float
    unreported: int
    """Number of lines that took at least ``_MIN_SHARE`` percent of the time, but whose GPU activity is
    missing from the profile or merged with that of other lines."""


def profile_errors(profile: Sequence[Mapping[str, Any]], truth: Mapping[str, tuple[float, float]]) -> Errors:
    """Return the largest errors of ``profile``. ``truth`` contains the true share and activity of each line.

    A profile entry that merges several lines is compared with their total share and mean activity. A missing
    activity is not an error; it is counted in :attr:`Errors.unreported`.
    """
    share = activity = 0.0
    reported: set[str] = set()
    for entry in profile:
        last = entry["until"] or entry["line"]
        lines = [str(line) for line in range(entry["line"], last + 1) if str(line) in truth]
        if not lines:
            continue
        whole = sum(truth[line][0] for line in lines)
        share = max(share, abs(entry["share"] - whole))
        if entry["until"] is None and entry["gpu_busy"] is not None:
            reported.update(lines)
        if entry["gpu_busy"] is not None and whole >= _MIN_SHARE:
            busy = sum(truth[line][0] * truth[line][1] for line in lines) / whole
            activity = max(activity, abs(entry["gpu_busy"] - busy))
    missing = [line for line, (part, _) in truth.items() if part >= _MIN_SHARE and line not in reported]
    return Errors(share, activity, len(missing))
