"""Every unknown value of every reading has a reason, whatever the source is and whatever it can't read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields

import pytest
from fakes import FakeClock, gpu
from helpers_nvml import Machine
from nvml_standin import profiles

from gpuwidget.model.messages import message
from gpuwidget.model.metrics import keys
from gpuwidget.model.readings import Reading
from gpuwidget.model.samples import Sample
from gpuwidget.sampler import Sampler
from gpuwidget.sampler.gpu_state import GpuState
from gpuwidget.sources import Source, unknown
from gpuwidget.sources.nvml import NvmlSource
from gpuwidget.sources.replay import ReplaySource

STATE = {"uuid", "answered", "silent_since", "lost_since", "measured", "missing", "missing_ids"}
"""Fields that aren't measured values. None in one of them does not mean unknown."""
NO_XID = {"xid", "xid_time"}
"""None in these fields also means that there was no error."""


def without_reason(reading: Reading) -> set[str]:
    """Return the names of the unknown values that have no reason."""
    assert reading.missing.keys() == reading.missing_ids.keys()
    values = {field.name: getattr(reading, field.name) for field in fields(Reading)}
    if reading.activity is not None:
        values |= {key: getattr(reading.activity, key) for key in keys("activity")}
    unknown = {name for name, value in values.items() if value is None}
    return unknown - STATE - NO_XID - reading.missing.keys()


def samples_of(source: Source, clock: FakeClock) -> list[Sample]:
    """Return the samples of the first three seconds."""
    sampler = Sampler(source, clock)
    taken: list[Sample] = []
    with sampler.subscribe(taken.append, activity=True):
        clock.until(lambda: bool(taken) and taken[-1].time - taken[0].time > 3.0, step=0.1)
    sampler.stop()
    return taken


def all_without_reason(samples: list[Sample]) -> set[str]:
    """Return the names of the unknown values that have no reason, over all readings of ``samples``."""
    assert all(sample.readings for sample in samples)
    return {name for sample in samples for reading in sample.readings for name in without_reason(reading)}


CALLS = (
    "nvmlDeviceGetUtilizationRates",
    "nvmlDeviceGetMemoryInfo_v2",
    "nvmlDeviceGetFieldValues",
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetTemperature",
    "nvmlDeviceGetClockInfo",
    "nvmlDeviceGetPerformanceState",
    "nvmlDeviceGetEncoderUtilization",
    "nvmlDeviceGetCurrentClocksEventReasons",
    "nvmlDeviceGetEnforcedPowerLimit",
    "nvmlDeviceGetTotalEnergyConsumption",
    "nvmlDeviceGetTotalEccErrors",
    "nvmlDeviceGetSamples",
    "nvmlDeviceRegisterEvents",
    "nvmlGpmSampleGet",
)


@pytest.mark.parametrize(
    "lines",
    [
        ["gpus=1"],
        ["gpus=1", "gpu.0.gpm.2=error 3", "gpu.0.gpm.5=nan", "gpu.0.gpm.10=999"],
        ["gpus=1", "gpu.0.mig=0 2"],
        ["gpus=2", "gpu.1.*=error 15"],
        ["gpus=1", "driver=535.54.03"],
        profiles.machine(*profiles.PROFILES),
        *(["gpus=1", *(f"gpu.0.{call}=error {code}" for call in CALLS)] for code in (3, 4, 20, 21, 999)),
    ],
    ids=["all", "counters", "mig", "lost", "scrambled", "models", "3", "4", "20", "21", "999"],
)
def test_every_unknown_value_of_a_driver_has_a_reason(machine: Machine, lines: list[str]) -> None:
    """From the first sample on, each value that the driver does not report has a reason. A metric of the
    table that the source never reads would have none."""
    machine.set_scenario(*lines)
    clock = FakeClock()
    assert all_without_reason(samples_of(NvmlSource(clock), clock)) == set()


def test_every_unknown_value_of_a_recording_has_a_reason() -> None:
    """Each value that a recording does not contain has a reason."""
    clock = FakeClock()
    assert all_without_reason(samples_of(ReplaySource(None, loop=True, clock=clock), clock)) == set()


def lose(state: GpuState) -> None:
    state.set_lost(1.0)


def lose_with_reason(state: GpuState) -> None:
    state.set_lost(1.0, message("gpu-lost", "the GPU needs a reset"))


def fail(state: GpuState) -> None:
    state.set_failed(message("test", "an error"))


def silence(state: GpuState) -> None:
    state.set_hung("a call", 1.0)


def forget_memory(state: GpuState) -> None:
    state.store("memory", unknown("memory", message("test", "an error")))


@pytest.mark.parametrize("event", [None, lose, lose_with_reason, fail, silence, forget_memory])
def test_every_unknown_value_of_a_gpu_that_is_not_read_has_a_reason(
    event: Callable[[GpuState], None] | None,
) -> None:
    """Before its first reading, while it is lost or does not answer, after an unexpected error and after a
    failed reading of its memory, all values of a GPU have a reason."""
    state = GpuState(gpu(0))
    if event is not None:
        event(state)
    assert without_reason(state.reading()) == set()
