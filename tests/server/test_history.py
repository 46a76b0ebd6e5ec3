"""The server's history: which samples it stores, how long it keeps them, and how it encodes them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fakes import EPOCH
from helpers_samples import at, h200

from gpuwidget.server.history import HistoryStore

ONE, OTHER = h200(0), h200(1)


def stored_history(store: HistoryStore, since: float = 0.0) -> Any:
    """Return the stored history since ``since``, decoded from JSON,
    with times relative to the tests' epoch."""
    whole = json.loads(store.encode_recent(EPOCH + since))
    return {**whole, "t": [round(time - EPOCH, 3) for time in whole["t"]]}


def test_before_the_first_sample() -> None:
    """Before the first sample, the history contains neither times nor GPUs."""
    assert stored_history(HistoryStore(600.0, 0.2)) == {"t": [], "gpus": []}


def test_values_are_exact() -> None:
    """In the history, percentages and watts keep their decimals, bytes are integers,
    and unknown values are null, never 0."""
    store = HistoryStore(600.0, 0.2)
    store.add(at(0.0, 0, utilization=12.5, memory_used=150_323_855_361, power_w=612.437))
    store.add(at(0.2004, 0, utilization=None, memory_used=None, power_w=None))
    store.add(at(0.4, 0, utilization=0.0, memory_used=0, power_w=float("nan")))
    assert stored_history(store) == {
        "t": [0.0, 0.2, 0.4],
        "gpus": [
            {
                "uuid": ONE.uuid,
                "utilization": [12.5, None, 0.0],
                "memory_used": [150_323_855_361, None, 0],
                "power_w": [612.437, None, None],
            }
        ],
    }


@pytest.mark.parametrize("ticks", [1, 63, 64, 65, 200])
def test_every_tick_is_stored_in_order(ticks: int) -> None:
    """The history stores every sample in order, and returns exactly the samples since any given time."""
    store = HistoryStore(600.0, 0.2)
    for tick in range(ticks):
        store.add(at(float(tick), 0, power_w=float(tick)))
    for since in {0, 1, 63, 64, 65, 100, ticks - 1, ticks}:
        known = stored_history(store, float(since))
        assert known["t"] == [float(tick) for tick in range(since, ticks)]
        assert [one["power_w"] for one in known["gpus"]] == ([known["t"]] if since < ticks else [])


def test_gpus_come_and_go() -> None:
    """While a GPU is absent, its values are unknown, and every column still has one value for each time."""
    store = HistoryStore(600.0, 0.2)
    for tick in range(100):
        store.add(at(float(tick), *([0] if tick < 70 else [0, 1] if tick < 80 else [1]), power_w=float(tick)))
    columns = {one["uuid"]: one["power_w"] for one in stored_history(store)["gpus"]}
    assert columns == {
        ONE.uuid: [float(tick) if tick < 80 else None for tick in range(100)],
        OTHER.uuid: [float(tick) if tick >= 70 else None for tick in range(100)],
    }


def test_a_removed_gpu_is_dropped_with_its_samples() -> None:
    """When the last sample that contains a GPU is dropped from the history, the GPU is dropped too."""
    store = HistoryStore(60.0, 1.0)
    store.add(at(0.0, 0, 1))
    for tick in range(1, 200):
        store.add(at(float(tick), 1))
    assert [one["uuid"] for one in stored_history(store)["gpus"]] == [OTHER.uuid]


def test_old_samples_are_dropped() -> None:
    """Samples older than the configured time are dropped, in chunks of 64, at any sampling rate."""
    store = HistoryStore(60.0, 0.2)
    for tick in range(5_000):
        store.add(at(tick / 5, 0))
    assert 300 <= len(stored_history(store)["t"]) <= 300 + 2 * 64
    fast = HistoryStore(60.0, 0.2)
    for tick in range(5_000):
        fast.add(at(tick / 1_000, 0))
    assert len(stored_history(fast)["t"]) <= 60 / 0.18 + 2 * 64


def test_a_pause_leaves_a_gap() -> None:
    """A pause in sampling adds no values to the history.
    Samples that are too old are dropped when sampling resumes."""
    store = HistoryStore(60.0, 0.2)
    store.add(at(0.0, 0))
    store.add(at(30.0, 0))
    assert stored_history(store)["t"] == [0.0, 30.0]
    store.add(at(500.0, 0))
    assert stored_history(store, 440.0)["t"] == [500.0]


def test_a_clock_set_far_back() -> None:
    """If the clock is set far back, the samples taken before are dropped,
    so that times in the history always increase."""
    store = HistoryStore(600.0, 0.2)
    store.add(at(100.0, 0))
    store.add(at(40.0, 0))
    store.add(at(40.2, 0))
    assert stored_history(store)["t"] == [40.0, 40.2]


@pytest.mark.parametrize("seconds", [20, 63, 64, 65, 130, 190])
@pytest.mark.parametrize("back", [0, 1, 3, 59])
def test_a_clock_set_back_a_little(seconds: int, back: int) -> None:
    """If the clock is set back a little, only the samples at or after the new time are dropped,
    both from the full-rate history and from the one-second rollup."""
    store, seconds = HistoryStore(600.0, 1.0), max(seconds, back + 1)
    for second in range(seconds):
        store.add(at(float(second), 0, power_w=float(second)))
    newest = seconds - 1 - back
    for second in range(newest, newest + 150):
        store.add(at(float(second), 0, power_w=1000.0 + second))
    times = [float(second) for second in range(newest + 150)]
    power = [second if second < newest else 1000.0 + second for second in times]
    assert (stored_history(store)["t"], stored_history(store)["gpus"][0]["power_w"]) == (times, power)
    held = store._rollup.chunks()
    assert [time - EPOCH for chunk in held for time in chunk.times] == times
    parts = [values for chunk in held if (values := chunk.values(ONE.uuid, "power_w")) is not None]
    for stat in range(3):
        assert [value for part in parts for value in part[stat]] == power
    assert [count for chunk in held for count in chunk.samples] == [1] * len(times)
