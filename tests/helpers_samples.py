"""Functions with which a test can build a sample in one line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from fakes import EPOCH, gpu
from helpers_messages import reasons

from gpuwidget.model.gpu_process import Process
from gpuwidget.model.messages import Message
from gpuwidget.model.metrics import GROUPS
from gpuwidget.model.readings import Reading
from gpuwidget.model.samples import SAMPLE_SCHEMA, Gpu, Origin, Sample
from gpuwidget.sources import GroupReading

GIB = 1024**3
LIVE = Origin(kind="nvml", reason=None, recording=None, driver="580.159.04", cuda_driver="13.0")


def process(
    pid: int,
    memory: int | None,
    *,
    user: str | None = "anna",
    program: str | None = "python",
) -> Process:
    """Return a compute process as the driver lists it."""
    return Process(pid, "compute", memory, user, program)


def group_reading(missing: Mapping[str, Message] | None = None, **values: Any) -> GroupReading:
    """Return what a source has read of a group."""
    return GroupReading(values, missing or {})


def status_reading(missing: Mapping[str, Message] | None = None, **values: Any) -> GroupReading:
    """Return a reading of the group ``status`` with the given values; every other metric is None."""
    return group_reading(missing, **{**dict.fromkeys(GROUPS["status"]), **values})


def reading(one: Gpu, **values: Any) -> Reading:
    """Return the reading of a busy, healthy H200, with the given values replaced."""
    unknown: dict[str, Any] = dict.fromkeys(field.name for field in fields(Reading) if field.init)
    known = {
        "uuid": one.uuid,
        "answered": EPOCH,
        "silent_since": None,
        "lost_since": None,
        "measured": EPOCH,
        "utilization": 97.0,
        "utilization_window": 0.2,
        "memory_utilization": 40.0,
        "memory_used": 60 * GIB,
        "power_w": 612.4,
        "power_limit_w": 700.0,
        "temperature_c": 51.0,
        "memory_temperature_c": 55.0,
        "sm_clock_mhz": 1980.0,
        "memory_clock_mhz": 3201.0,
        "pstate": 0,
        "fan_speed": 30.0,
        "encoder_utilization": 0.0,
        "decoder_utilization": 0.0,
        "throttle": (),
        "energy_j": 1000.0,
        "ecc_uncorrected": 0,
        "xid": None,
        "xid_time": None,
        "activity": None,
        "processes": (),
        "missing": {},
    }
    made = {**unknown, **known, **values}
    return Reading(**{**made, "missing": reasons(made["missing"])})


def h200(index: int, **facts: Any) -> Gpu:
    """Return an H200 with 140 GiB of memory."""
    return replace(gpu(index, total=140 * GIB), **facts)


def sample(*pairs: tuple[Gpu, Reading], origin: Origin = LIVE, time: float = EPOCH) -> Sample:
    """Return a sample of the given GPUs with their readings."""
    gpus, readings = zip(*pairs, strict=True) if pairs else ((), ())
    return Sample(schema=SAMPLE_SCHEMA, time=time, origin=origin, gpus=gpus, readings=readings)


def at(seconds: float, *indexes: int, **values: Any) -> Sample:
    """Return a sample of the GPUs with these indexes, taken this many seconds after the tests' epoch."""
    return sample(*((h200(index), reading(h200(index), **values)) for index in indexes), time=EPOCH + seconds)
