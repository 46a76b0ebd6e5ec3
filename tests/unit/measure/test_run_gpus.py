"""Tests of which GPUs a run reports, and which of the reported GPUs it shows."""

from __future__ import annotations

import os
import sys
from dataclasses import fields, replace
from typing import Any

import pytest
from fakes import EPOCH
from helpers_reports import worker
from helpers_samples import GIB, h200, process, reading, sample

from gpuwidget.measure.run_gpus import RunGpus
from gpuwidget.model.errors import OptionError
from gpuwidget.model.gpu_process import Process
from gpuwidget.model.readings import Activity, Reading
from gpuwidget.model.report import Level, Span
from gpuwidget.model.samples import Gpu, Origin
from gpuwidget.system import processes

REPLAY = Origin(kind="replay", reason=None, recording="a recording", driver=None, cuda_driver=None)


@pytest.fixture(autouse=True)
def _host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove torch, and make process ids match those of the host, as they do outside a container."""
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setattr(processes, "in_host_pid_namespace", lambda: True)


def at(index: int, *holding: Process, measured: float = 0.0) -> tuple[Gpu, Reading]:
    """Return a GPU and a reading of that GPU. In the reading, these processes hold memory."""
    return h200(index), reading(h200(index), processes=holding, measured=EPOCH + measured)


def shown_indices(gpus: RunGpus) -> list[int]:
    return [totals.gpu.index for totals in gpus.shown()]


def test_gpus_in_use_are_shown() -> None:
    """A GPU is shown as soon as this process holds memory on it. Before the first sample, no GPU is known."""
    gpus = RunGpus(1.0)
    assert (gpus.all, gpus.origin, gpus.attributed, gpus.time_series()) == ([], None, False, ((), {}))
    gpus.begin(sample(at(0), at(1)), EPOCH)
    assert (gpus.attributed, shown_indices(gpus), len(gpus.all)) == (True, [], 2)
    gpus.started = EPOCH
    gpus.add(1.0, sample(at(0), at(1, process(os.getpid(), GIB), measured=1.0)))
    assert shown_indices(gpus) == [1]


def test_selected_gpus_are_shown() -> None:
    """Selected GPUs are shown, whether this process uses them or not.

    Other GPUs are not reported. Selecting a GPU that does not exist is an error.
    """
    gpus = RunGpus(1.0, ("1",))
    gpus.begin(sample(at(0), at(1)), EPOCH)
    assert (shown_indices(gpus), [totals.gpu.index for totals in gpus.all]) == ([1], [1])
    with pytest.raises(OptionError):
        RunGpus(1.0, ("7",)).begin(sample(at(0)), EPOCH)


@pytest.mark.parametrize(("selection", "reported"), [("1", [1]), ("7", [0, 1])])
def test_gpus_that_are_known_late_are_selected_late(selection: str, reported: list[int]) -> None:
    """If the driver is opened after the run has begun, the selected GPUs are reported from then on.

    If a selected GPU does not exist, all GPUs are reported.
    """
    gpus = RunGpus(1.0, (selection,))
    gpus.started = EPOCH
    gpus.add(1.0, sample(at(0), at(1)))
    assert [totals.gpu.index for totals in gpus.all] == reported


def test_all_gpus_of_a_recording_are_shown() -> None:
    """All GPUs of a recording are shown, but this process's torch memory is not assigned to them."""
    gpus = RunGpus(1.0)
    gpus.begin(sample(at(0), at(1), origin=REPLAY), EPOCH)
    assert (gpus.recorded, gpus.attributed, shown_indices(gpus)) == (True, False, [0, 1])
    assert (gpus.devices(), gpus.torch_names()) == ((), {})


def test_a_reading_from_before_the_start_is_not_the_start() -> None:
    """If a GPU does not answer at the start or end of a run, an older reading is not used in place of the
    missing one."""
    gpus = RunGpus(1.0)
    gpus.begin(sample(at(0), at(1, measured=0.5), time=EPOCH + 0.5), EPOCH + 0.5)
    gpus.started = EPOCH + 0.5
    newest = sample(at(0, measured=1.5), at(1, measured=0.5), time=EPOCH + 1.5)
    gpus.end(1.0, newest, EPOCH + 1.5)
    spans = [totals.device_memory() for totals in gpus.all]
    assert [(span.start, span.end) for span in spans] == [(None, 60 * GIB), (60 * GIB, None)]


def test_a_reading_from_before_the_start_does_not_count() -> None:
    """If a GPU has not answered since before the run, its older memory and power are neither the peak, nor a
    part of the energy, nor a point of the timeline."""
    gpus = RunGpus(1.0)
    one, first = at(0)
    # Sampler.read_now() removes the time of a reading from before its call.
    gpus.begin(sample((one, replace(first, measured=None)), time=EPOCH + 1.0), EPOCH + 1.0)
    gpus.started = EPOCH + 1.0
    for t in (0.1, 0.2):
        gpus.add(t, sample(at(0), time=EPOCH + 1.0 + t))
    _, series = gpus.time_series()
    assert gpus.all[0].device_memory() == Span(None, None, None)
    assert gpus.all[0].power(0.2) is None
    assert set(series[h200(0).uuid].memory_used) == set(series[h200(0).uuid].power_w) == {None}
    gpus.add(0.3, sample(at(0, measured=1.3), time=EPOCH + 1.3))
    assert gpus.all[0].device_memory() == Span(None, None, 60 * GIB)
    _, series = gpus.time_series()
    assert series[h200(0).uuid].memory_used[-1] == 60 * GIB


def test_an_old_reading_is_not_new_because_the_clock_was_set_back() -> None:
    """If the system's clock is set back, a reading from before is not taken for the newest reading, although
    its time is later."""
    gpus = RunGpus(1.0)
    gpus.begin(sample(at(0, measured=1.0), time=EPOCH + 1.0), EPOCH + 1.0)
    gpus.started = EPOCH + 1.0
    gpus.end(1.0, sample(at(0, measured=1.9), time=EPOCH - 3600), EPOCH - 3600)
    assert gpus.all[0].device_memory() == Span(60 * GIB, None, 60 * GIB)


@pytest.mark.parametrize("jump", [0.3, 3600.0])
def test_a_window_of_the_counters_from_before_the_clock_was_set_back(jump: float) -> None:
    """If the system's clock was set back before a run, an earlier window of the hardware counters does not
    count, although its times are later than the run's start."""
    counters = (field.name for field in fields(Activity))
    unknown: dict[str, Any] = dict.fromkeys(counters)
    window = Activity(**{**unknown, "since": EPOCH + jump - 0.1, "until": EPOCH + jump, "sm": 90.0})
    one = replace(reading(h200(0), measured=EPOCH), activity=window)
    gpus = RunGpus(1.0)
    gpus.begin(sample((h200(0), one), time=EPOCH), EPOCH)
    gpus.started = EPOCH
    later = replace(one, activity=replace(window, since=EPOCH + 0.5, until=EPOCH + 1.0, sm=20.0))
    gpus.add(0.5, sample((h200(0), replace(one, measured=EPOCH + 0.5)), time=EPOCH + 0.5))
    gpus.end(1.0, sample((h200(0), replace(later, measured=EPOCH + 1.0)), time=EPOCH + 1.0), EPOCH + 1.0)
    assert gpus.all[0].levels(0.5)["sm_activity"] == Level(20.0, 20.0)
    _, series = gpus.time_series()
    assert set(series[h200(0).uuid].sm_activity) == {None, 20.0}


def test_recent_totals() -> None:
    """``recent`` returns the totals of each shown GPU, with the number of seconds that they cover.

    Before the first sample of the run, the list is empty.
    """
    gpus = RunGpus(1.0)
    mine = process(os.getpid(), GIB)
    gpus.begin(sample(at(0, mine), at(1)), EPOCH)
    gpus.started = EPOCH
    assert gpus.recent(0.5) == []
    gpus.add(1.0, sample(at(0, mine, measured=1.0), at(1, measured=1.0)))
    assert [(totals.gpu.index, seconds) for totals, seconds in gpus.recent(2.0)] == [(0, 2.0)]


@pytest.mark.parametrize(
    ("seconds", "other", "reason"),
    [
        (1.2, {"silent_since": EPOCH + 1.1, "measured": None}, "gap"),
        (1.2, {"answered": EPOCH + 2.1, "measured": EPOCH + 1.2}, "gap"),
        (1.2, {}, "not-sampled-for"),
        (6.0, {"silent_since": EPOCH - 60.0, "measured": None}, "not-sampled-for"),
        (6.0, {"answered": EPOCH + 6.9, "measured": EPOCH + 1.1}, "not-sampled-for"),
    ],
    ids=["hangs", "is slow", "answers", "has hung for long", "the interpreter was held during the call"],
)
def test_who_caused_a_gap(seconds: float, other: dict[str, Any], reason: str) -> None:
    """If a GPU was not read for more than a second because the driver took that long, maybe for another GPU,
    the reason does not blame the code. If the driver answered, or was not called, it does."""
    gpus = RunGpus(1.0, ("0", "1"))
    gpus.begin(sample(at(0), at(1)), EPOCH)
    gpus.started = EPOCH
    gpus.add(1.0, sample(at(0, measured=1.0), at(1, measured=1.0), time=EPOCH + 1.0))
    t = 1.0 + seconds
    read = reading(h200(0), measured=EPOCH + t - 0.01, answered=EPOCH + t)
    beside = reading(h200(1), **{"measured": EPOCH + t - 0.02, "answered": EPOCH + t - 0.01, **other})
    gpus.add(t, sample((h200(0), read), (h200(1), beside), time=EPOCH + t))
    for totals in gpus.all[: 1 if beside.measured is None else 2]:
        assert totals.energy(t) is None
        assert totals.missing["energy_j"].id == reason


def test_a_slice_that_is_removed_during_the_run() -> None:
    """After a MIG slice was removed, its values are unknown: its last memory is not repeated."""
    parent = h200(0)
    slice_ = replace(parent, uuid="MIG-1", mig_index=1, mig_parent=parent.uuid)
    gpus = RunGpus(1.0)
    gpus.begin(sample(at(0), (slice_, reading(slice_))), EPOCH)
    gpus.started = EPOCH
    gpus.add(0.5, sample(at(0, measured=0.5), (slice_, reading(slice_, measured=EPOCH + 0.5))))
    gpus.add(1.0, sample(at(0, measured=1.0)))
    gpus.end(1.5, sample(at(0, measured=1.5), time=EPOCH + 1.5), EPOCH + 1.4)
    _, series = gpus.time_series()
    assert series["MIG-1"].memory_used == (60 * GIB, 60 * GIB, None, None)
    totals = gpus.all[1]
    assert totals.device_memory() == Span(60 * GIB, None, 60 * GIB)
    assert totals.missing["device_memory"].id == "gpu-gone"


def test_time_series_are_by_uuid() -> None:
    """Time series are keyed by the UUID of the GPU. They include the GPUs that are not shown."""
    gpus = RunGpus(1.0)
    gpus.begin(sample(at(0), at(1)), EPOCH)
    t, series = gpus.time_series()
    assert (t, list(series)) == ((0.0,), [h200(0).uuid, h200(1).uuid])


@pytest.mark.parametrize("workers", [True, False])
def test_the_steady_window(monkeypatch: pytest.MonkeyPatch, workers: bool) -> None:
    """A run with workers has a steady window, in which its busiest GPU did its usual work, and which begins
    after the user's mark. The GPUs of other jobs don't count. A run without workers has no steady window,
    because its GPU work is that of the code."""
    rows = (worker(0, gpu=h200(0).uuid), worker(1, gpu=h200(1).uuid)) if workers else ()
    monkeypatch.setattr("gpuwidget.measure.workers.WorkerTracker.rows", lambda *_: rows)
    gpus = RunGpus(1.0, ("0", "1", "2"))
    gpus.begin(sample(at(0), at(1), at(2)), EPOCH)
    gpus.started = EPOCH
    for tick in range(1, 101):
        t = tick / 5
        busy = 99.0 if 8 < t <= 18 else 1.0
        pairs = [
            (h200(n), reading(h200(n), measured=EPOCH + t, utilization=utilization, utilization_window=0.2))
            for n, utilization in enumerate((busy, busy / 10, 100.0))
        ]
        gpus.add(t, sample(*pairs))
    windows = [gpus.steady_window(20.0, mark) for mark in (None, 12.0)]
    assert windows == ([(9.5, 16.8), (13.0, 16.8)] if workers else [None, None])


def refused(index: int, measured: float = 0.0, **values: Any) -> tuple[Gpu, Reading]:
    """Return a GPU whose processes this user may not list."""
    missing = {"processes": "no permission to read this value"}
    return h200(index), reading(
        h200(index), processes=None, missing=missing, measured=EPOCH + measured, **values
    )


def test_a_refused_process_list_is_no_fact() -> None:
    """If the driver does not list the processes of a GPU and torch is not loaded, it is unknown which GPUs
    this process uses. All of them are shown."""
    gpus = RunGpus(1.0)
    gpus.begin(sample(at(0), refused(1)), EPOCH)
    assert (gpus.attributed, shown_indices(gpus)) == (False, [0, 1])
    gpus.started = EPOCH
    gpus.add(1.0, sample(at(0, measured=1.0), at(1, measured=1.0)))
    assert (gpus.attributed, shown_indices(gpus)) == (True, [])


def test_a_refused_process_list_of_a_lost_gpu_or_of_a_divided_one() -> None:
    """No process can use a lost GPU. A GPU that is divided into MIG slices is used through its slices, whose
    processes may be listed although its own are not."""
    parent, parents_reading = refused(0)
    slice_ = replace(h200(0), uuid="MIG-1", mig_index=1, mig_parent=parent.uuid)
    in_slice = reading(slice_, processes=(process(os.getpid(), GIB),), measured=EPOCH)
    gpus = RunGpus(1.0)
    gpus.begin(sample((parent, parents_reading), (slice_, in_slice), refused(1, lost_since=EPOCH)), EPOCH)
    assert gpus.attributed
    assert [totals.gpu.uuid for totals in gpus.shown()] == ["MIG-1"]
