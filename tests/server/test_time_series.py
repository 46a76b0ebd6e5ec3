"""Queries of the history: the step that a reply uses, and that no spike or gap is lost within a step."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

import pytest
from fakes import EPOCH
from helpers_samples import at, h200

from gpuwidget.model.readings import Activity
from gpuwidget.server.history import HistoryStore
from gpuwidget.server.history_metrics import ACTIVITY_METRICS, METRICS, READING_METRICS
from gpuwidget.server.history_query import MAX_POINTS, HistoryQuery

ONE, OTHER = h200(0), h200(1)
RATE_S = 0.2


def query(
    store: HistoryStore, since: float, until: float, *names: str, points: int = 600
) -> tuple[list[float], dict[str, Any], Any]:
    """Query the history. Return the times relative to the tests' epoch,
    each GPU's metrics by UUID, and the whole reply."""
    asked = HistoryQuery(EPOCH + since, EPOCH + until, names or ("utilization",), points, None)
    whole = json.loads(b"".join(store.query(asked)))
    times = [round(time - EPOCH, 3) for time in whole["t"]]
    return times, {gpu["uuid"]: gpu["metrics"] for gpu in whole["gpus"]}, whole


def filled(values: Sequence[float | None], *, rate_s: float = RATE_S, seconds: float = 600.0) -> HistoryStore:
    """Return the history of one GPU whose utilization has these values, one per tick."""
    store = HistoryStore(seconds, rate_s)
    for tick, value in enumerate(values):
        store.add(at(tick * rate_s, 0, utilization=value))
    return store


def test_a_short_range_is_exact() -> None:
    """If all samples fit into the requested number of points, each sample is returned exactly,
    with null for unknown values."""
    store = filled([1.25, None, 0.0, 97.123456789])
    times, metrics, whole = query(store, 0.0, 0.6)
    assert times == [0.0, 0.2, 0.4, 0.6]
    assert (whole["step_s"], whole["samples"]) == (0, [1, 1, 1, 1])
    assert (whole["since"], whole["until"]) == (EPOCH, EPOCH + 0.6)
    assert metrics == {
        ONE.uuid: {"utilization": {"mean": [1.25, None, 0.0, 97.123456789], "min": None, "max": None}}
    }


def test_minimum_mean_and_maximum_of_a_second() -> None:
    """Each one-second step contains the minimum, mean and maximum of its known values.
    For metrics in bytes, these are integers."""
    store = HistoryStore(600.0, RATE_S)
    for tick, value in enumerate([10, None, 40, 10, 20, 5, 5, 5, 5, 5]):
        store.add(at(tick / 5, 0, utilization=value, memory_used=value))
    times, metrics, whole = query(store, 0.0, 600.0, "utilization", "memory_used", points=601)
    assert (times, whole["step_s"], whole["samples"]) == ([0.0, 1.0], 1, [5, 5])
    assert metrics[ONE.uuid] == {
        "utilization": {"mean": [20.0, 5.0], "min": [10.0, 5.0], "max": [40.0, 5.0]},
        "memory_used": {"mean": [20, 5], "min": [10, 5], "max": [40, 5]},
    }


@pytest.mark.parametrize("seconds", [10.0, 60.0, 600.0, 3600.0])
def test_no_spike_disappears_at_any_step(seconds: float) -> None:
    """A value that occurs in a single sample appears exactly as the maximum or minimum of its step,
    however long the step is."""
    random.seed(7)
    values = [random.uniform(40, 50) for _ in range(int(seconds / RATE_S) + 1)]
    up, down = len(values) // 3, len(values) // 2
    values[up], values[down] = 99.123456789, 0.000123
    store = filled(values)
    for points in (2, 5, 13, 61, 121, 400, 1500, MAX_POINTS):
        times, metrics, whole = query(store, 0.0, seconds, points=points)
        statistics, step = metrics[ONE.uuid]["utilization"], whole["step_s"]
        assert len(times) <= points
        assert sum(whole["samples"]) == len(values)
        highest, lowest = statistics["max"] or statistics["mean"], statistics["min"] or statistics["mean"]
        assert (max(highest), min(lowest)) == (99.123456789, 0.000123)
        for tick, place in ((up, highest.index(99.123456789)), (down, lowest.index(0.000123))):
            assert times[place] <= round(tick * RATE_S, 3) < times[place] + (step or RATE_S)
        for low, mean, high in zip(lowest, statistics["mean"], highest, strict=True):
            assert low - 0.001 <= mean <= high + 0.001


def test_means_weight_all_samples_equally() -> None:
    """The mean of a long step gives each sample the same weight, even if some seconds have fewer samples."""
    store = filled([100.0] * 5 + [10.0])
    _, metrics, _ = query(store, 0.0, 3600.0, points=10)
    assert metrics[ONE.uuid]["utilization"] == {"mean": [85.0], "min": [10.0], "max": [100.0]}


def test_steps_are_aligned() -> None:
    """Steps are aligned with the epoch,
    so that two queries that use the same step have the same boundaries."""
    store = filled([float(tick % 7) for tick in range(3000)])
    early, _, whole = query(store, 3.1, 303.1, points=150)
    later, _, _ = query(store, 7.7, 307.7, points=150)
    assert (whole["step_s"], early[0], later[0]) == (3, 1.0, 7.0)
    assert [time for time in early if time >= 7.0] == [time for time in later if time <= early[-1]]


def test_steps_below_a_second() -> None:
    """If the time range has more samples than the requested number of points,
    but not more half-second steps than points, the reply has half-second steps."""
    store = filled([float(tick) for tick in range(301)])
    times, metrics, whole = query(store, 0.0, 60.0, points=130)
    assert (whole["step_s"], times[:3], whole["samples"][:3]) == (0.5, [0.0, 0.5, 1.0], [3, 2, 3])
    assert metrics[ONE.uuid]["utilization"]["max"][:3] == [2.0, 4.0, 7.0]


def test_ranges_before_the_full_rate_history() -> None:
    """If a query begins before the full-rate history, all steps in the reply are at least one second long."""
    store = filled([float(tick) for tick in range(1500)], seconds=60.0)
    times, metrics, whole = query(store, 100.0, 109.9)
    assert (whole["step_s"], times) == (1, [float(second) for second in range(100, 110)])
    assert metrics[ONE.uuid]["utilization"]["min"] == [float(tick) for tick in range(500, 550, 5)]
    assert query(store, 290.0, 299.8)[2]["step_s"] == 0


def test_one_hour_is_stored() -> None:
    """The history keeps one-second steps for one hour at any sampling rate,
    plus at most one chunk of 64 steps."""
    store = HistoryStore(10.0, 0.2)
    for tick in range(4 * 4000):
        store.add(at(tick / 4, 0))
    times, _, _ = query(store, 100.0, 4000.0, points=MAX_POINTS)
    assert times[-1] == 3999.0
    assert 3600 <= len(times) <= 3601 + 64
    assert len(json.loads(store.encode_recent(0.0))["t"]) <= 10 / 0.18 + 2 * 64


def test_a_pause_is_a_gap() -> None:
    """During a pause in sampling, the reply has no points, whatever the step."""
    store = filled([1.0, 2.0])
    store.add(at(100.0, 0))
    assert query(store, 0.0, 100.0)[0] == [0.0, 0.2, 100.0]
    assert query(store, 0.0, 3600.0, points=400)[0] == [0.0, 100.0]


def test_gpus_and_metrics_come_and_go() -> None:
    """A GPU's values are null for times when the GPU was absent.
    A metric whose value was never known is left out."""
    store = HistoryStore(600.0, 1.0)
    for tick in range(300):
        present = [0] if tick < 100 else [0, 1] if tick < 200 else [1]
        store.add(at(float(tick), *present, power_w=float(tick), temperature_c=None))
    for points in (400, 200):
        times, metrics, whole = query(store, 0.0, 299.0, "power_w", "temperature_c", points=points)
        assert whole["step_s"] == (0 if points == 400 else 2)
        assert {uuid: list(known) for uuid, known in metrics.items()} == {
            ONE.uuid: ["power_w"],
            OTHER.uuid: ["power_w"],
        }
        low = metrics[ONE.uuid]["power_w"]["min"] or metrics[ONE.uuid]["power_w"]["mean"]
        assert low == [time if time < 200 else None for time in times]
        low = metrics[OTHER.uuid]["power_w"]["min"] or metrics[OTHER.uuid]["power_w"]["mean"]
        assert low == [time if time >= 100 else None for time in times]


def test_every_metric_is_stored() -> None:
    """The history stores every metric of a reading and of its activity, by its field name."""
    store = HistoryStore(600.0, RATE_S)
    numbers = {name: float(number) for number, name in enumerate(ACTIVITY_METRICS)}
    activity = Activity(since=EPOCH, until=EPOCH + 1, **numbers)
    known = dict.fromkeys(READING_METRICS, 1.0)
    store.add(at(0.0, 0, **known, activity=activity))
    store.add(at(0.2, 0, **known, activity=None))
    _, metrics, _ = query(store, 0.0, 1.0, *METRICS)
    assert list(metrics[ONE.uuid]) == list(METRICS)
    assert [metrics[ONE.uuid][name]["mean"] for name in ACTIVITY_METRICS] == [
        [number, None] for number in range(len(ACTIVITY_METRICS))
    ]


def test_a_clock_set_far_back() -> None:
    """If the clock is set far back,
    the samples taken before that are left out of the reply, whatever the step."""
    store = filled([1.0] * 400)
    store.add(at(10.0, 0))
    assert query(store, 0.0, 80.0)[0] == [10.0]
    assert query(store, 0.0, 3600.0, points=400)[0] == [10.0]


@pytest.mark.parametrize("points", [50, 200, MAX_POINTS])
def test_the_newest_sample_in_the_reply(points: int) -> None:
    """``newest`` in the reply is the time of the reply's newest sample.
    A client continues with the stream from that time."""
    store = filled([float(tick) for tick in range(297)])
    newest = EPOCH + 296 * RATE_S
    assert query(store, 0.0, 60.0, points=points)[2]["newest"] == newest
    part = query(store, 0.0, 30.0, points=points)[2]
    last = part["t"][-1] if not part["step_s"] else part["t"][-1] + part["step_s"]
    assert part["newest"] < newest
    assert part["newest"] <= last


def test_before_the_first_sample() -> None:
    """Before the first sample, the reply contains neither times nor GPUs."""
    times, metrics, whole = query(HistoryStore(600.0, RATE_S), 0.0, 3600.0)
    assert (times, metrics, whole["samples"], whole["newest"]) == ([], {}, [], None)


def test_the_reply_is_a_snapshot() -> None:
    """The reply does not change if samples are added while its parts are being sent."""
    store = filled([float(tick) for tick in range(130)])
    asked = HistoryQuery(EPOCH, EPOCH + 600.0, ("utilization", "power_w"), 100, None)
    for seconds in (20.0, 600.0):
        asked = HistoryQuery(EPOCH, EPOCH + seconds, ("utilization", "power_w"), 120, None)
        expected = b"".join(store.query(asked))
        pieces = []
        for number, piece in enumerate(store.query(asked)):
            pieces.append(piece)
            newest = 26.0 + seconds + number
            store.add(at(newest, 0, 1, utilization=100.0))
        assert b"".join(pieces) == expected
        store = filled([float(tick) for tick in range(130)])
