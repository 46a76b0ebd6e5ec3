"""Parse recordings: files of JSON lines with GPU readings, which the source ``replay`` plays.

The first line is ``{"meta": {...}}``. It contains ``driver``, ``cuda_driver`` (13000 for 13.0), ``tick_s``
and, in ``gpus``, each GPU's constants.

Every further line is a tick. It contains ``t`` (seconds since the start), ``phase`` (what was running, or
null), and for each GPU ``util`` and ``mem_util`` (percent), ``mem_used`` (bytes), ``power_mw``, ``temp_c``,
``mem_temp_c``, ``sm_mhz``, ``throttle`` (NVML's bits) and ``procs`` (pid and bytes, and ``"graphics"`` for a
process that is not a compute process). A tick contains ``gpm`` (percent, or MiB per second) and ``energy_mj``
only if they were read for this tick. ``"lost": true`` marks a lost GPU, and null an unknown value.

A file that starts with gzip's magic number is decompressed.
"""

from __future__ import annotations

import gzip
import io
import json
import math
import uuid
import zlib
from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, BinaryIO

from gpuwidget.model.errors import RecordingError
from gpuwidget.model.gpu_process import Process
from gpuwidget.model.messages import Message, message
from gpuwidget.model.metrics import METRICS
from gpuwidget.model.samples import Gpu

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

NOT_RECORDED = message("not-recorded", "not in the recording")
UTILIZATION_WINDOW_S = 0.2
"""Length in seconds of the utilization windows of an H200. Used for recordings that do not contain the
length."""
TICK_METRICS = tuple(
    (metric.key, metric.recorded) for metric in METRICS if metric.recorded and metric.poll != "activity"
)
"""Key and recorded form of each metric that has a value in every tick."""
GPM_METRICS = tuple(
    (metric.key, metric.recorded) for metric in METRICS if metric.recorded and metric.poll == "activity"
)
"""Key and recorded form of each metric in a tick's ``gpm``."""
THROTTLE = "throttle"
"""Key of NVML's bit mask of throttle reasons in a tick."""

_GZIP_MAGIC = b"\x1f\x8b"
_MALFORMED = (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, RecursionError)


def _column() -> array[float]:
    return array("d")


@dataclass(slots=True)
class RecordedSeries:
    """The time series of one GPU, in arrays with eight bytes per value. NaN stands for an unknown value."""

    ticks: dict[str, array[float]] = field(
        default_factory=lambda: {key: _column() for key in (*(key for key, _ in TICK_METRICS), THROTTLE)}
    )
    """One array per metric, in the metric's unit, with one value per tick. Throttle reasons are stored as
    NVML's bit mask."""
    processes: list[tuple[Process, ...] | None] = field(default_factory=list)
    lost: bytearray = field(default_factory=bytearray)
    gpm_since: array[float] = field(default_factory=_column)
    gpm_until: array[float] = field(default_factory=_column)
    gpm: dict[str, array[float]] = field(default_factory=lambda: {key: _column() for key, _ in GPM_METRICS})
    """One array per hardware counter. Its key and its unit are those of the field of Activity."""
    energy_t: array[float] = field(default_factory=_column)
    energy_j: array[float] = field(default_factory=_column)
    """The values of the energy counter in joules, which never fall. Empty if the counter was not recorded."""


@dataclass(frozen=True, slots=True)
class RecordedGpu:
    """One GPU: its identity, its constants, and its time series."""

    gpu: Gpu
    power_limit_w: float | None
    utilization_window: float | None
    missing: Mapping[str, Message]
    """The reasons why values could not be read during the recording, by the field names of Reading."""
    series: RecordedSeries = field(default_factory=RecordedSeries)


@dataclass(frozen=True, slots=True)
class Recording:
    """A whole recording in memory."""

    driver: str | None
    cuda_driver: str | None
    gpus: tuple[RecordedGpu, ...]
    times: array[float]
    """The time of each tick in seconds since the start, ascending; the first is 0."""
    duration_s: float
    """Seconds from the start of the recording to the end of the last tick; always more than 0."""


def read(path: Path) -> Recording:
    """Read a recording. Raises RecordingError with a sentence for the user."""
    name = repr(str(path))
    try:
        with path.open("rb") as file:
            lines = _JsonLines(file)
            try:
                return _parse(lines)
            except (*_MALFORMED, gzip.BadGzipFile, zlib.error) as error:
                why = f"line {lines.number}: {_brief(error)}" if lines.number else _brief(error)
                raise RecordingError(
                    f"{name} is not a recording of GPUs ({why}). Make one with 'gpuwidget record FILE'."
                ) from error
    except _Empty:
        raise RecordingError(
            f"The recording {name} contains no readings. Make one with 'gpuwidget record FILE'."
        ) from None
    except (EOFError, _Truncated):
        raise RecordingError(
            f"The recording {name} is incomplete: it was not fully written or copied. "
            "Copy it again, or make a new one with 'gpuwidget record FILE'."
        ) from None
    except FileNotFoundError:
        raise RecordingError(
            f"The recording {name} does not exist. Check the path, or make one with 'gpuwidget record FILE'."
        ) from None
    except OSError as error:
        raise RecordingError(f"The recording {name} can't be read: {error.strerror or error}.") from None


class _Empty(Exception):
    """The file has no tick."""


class _Truncated(Exception):
    """The last line is incomplete."""


class _JsonLines:
    """The JSON values of a file, one per line, and the number of the last line that was read."""

    def __init__(self, file: BinaryIO) -> None:
        packed = file.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
        file.seek(0)
        unpacked: Any = gzip.GzipFile(fileobj=file) if packed else file
        self._text = io.TextIOWrapper(unpacked, encoding="utf-8")
        self.number = 0

    def __iter__(self) -> Iterator[Any]:
        for line in self._text:
            self.number += 1
            try:
                yield json.loads(line)
            except json.JSONDecodeError:
                if line.startswith('{"t":') and not line.endswith("\n"):
                    raise _Truncated from None
                raise ValueError("not JSON") from None


def _brief(error: BaseException) -> str:
    text = f"{error} is missing" if isinstance(error, KeyError) else str(error)
    return text if len(text) <= 80 else f"{text[:79]}…"


def _parse(lines: Iterable[Any]) -> Recording:
    lines = iter(lines)
    first = next(lines, None)
    if first is None:
        raise _Empty
    meta = first["meta"]
    gpus = tuple(_gpu(meta, index) for index in range(len(meta["gpus"])))
    if len({recorded.gpu.uuid for recorded in gpus}) < len(gpus):
        raise ValueError("two GPUs have the same UUID")
    times = _column()
    start = 0.0
    known: dict[str, tuple[Process, ...]] = {}
    for line in lines:
        if not times:
            start = float(line["t"])
        t = float(line["t"]) - start
        if not (0 <= t < math.inf) or (times and t < times[-1]):
            raise ValueError(f"the time {line['t']} is out of order")
        if len(line["gpus"]) != len(gpus):
            raise ValueError(f"it has {len(line['gpus'])} GPUs, but the first line has {len(gpus)}")
        times.append(t)
        for recorded, values in zip(gpus, line["gpus"], strict=True):
            _append_tick(recorded.series, t, values, known)
    if not times:
        raise _Empty
    duration = times[-1] + _tick(meta, times)
    for recorded in gpus:
        _extend_energy(recorded.series, times, duration)
    cuda = meta.get("cuda_driver")
    return Recording(
        driver=_text(meta.get("driver")),
        cuda_driver=f"{cuda // 1000}.{cuda % 1000 // 10}" if isinstance(cuda, int) else None,
        gpus=gpus,
        times=times,
        duration_s=duration,
    )


def _gpu(meta: Mapping[str, Any], index: int) -> RecordedGpu:
    values = meta["gpus"][index]
    # Derive the UUID from the recording alone, so that every process that plays the recording uses the same
    # UUID.
    derived_uuid = (
        f"GPU-{uuid.uuid5(uuid.NAMESPACE_OID, f'gpuwidget {index} {json.dumps(meta, sort_keys=True)}')}"
    )
    total, limit = _number(values.get("memory_total")), _number(values.get("power_limit_mw")) / 1000
    reserved = _number(values.get("memory_reserved"))
    gpu = Gpu(
        uuid=_text(values.get("uuid")) or derived_uuid,
        index=int(values.get("index", index)),
        mig_index=None if values.get("mig_index") is None else int(values["mig_index"]),
        mig_parent=_text(values.get("mig_parent")),
        name=str(values["name"]),
        pci_bus_id=_text(values.get("pci_bus_id")),
        memory_total=None if math.isnan(total) else int(total),
        memory_reserved=None if math.isnan(reserved) else int(reserved),
        unified_memory=bool(values.get("unified_memory", False)),
        compute_capability=_text(values.get("compute_capability")),
        peak_fp32_flops=_number_or_none(values.get("peak_fp32_flops")),
        memory_bandwidth=_number_or_none(values.get("memory_bandwidth")),
    )
    window = _number(values.get("utilization_window_s", UTILIZATION_WINDOW_S))
    return RecordedGpu(
        gpu=gpu,
        power_limit_w=None if math.isnan(limit) else limit,
        utilization_window=None if math.isnan(window) else window,
        missing={
            str(name): message("missing-when-recorded", str(why))
            for name, why in values.get("missing", {}).items()
        },
    )


def _append_tick(
    series: RecordedSeries, t: float, values: Mapping[str, Any], known: dict[str, tuple[Process, ...]]
) -> None:
    for key, recorded in TICK_METRICS:
        series.ticks[key].append(_number(values.get(recorded.key)) / recorded.scale)
    series.ticks[THROTTLE].append(_number(values.get(THROTTLE)))
    series.lost.append(values.get("lost") is True)
    procs = values.get("procs")
    # Most ticks list the same processes as the previous tick, so equal lists share one tuple.
    series.processes.append(None if procs is None else known.setdefault(repr(procs), _processes(procs)))
    gpm = values.get("gpm")
    if gpm is not None:
        series.gpm_since.append(series.gpm_until[-1] if series.gpm_until else 0.0)
        series.gpm_until.append(t)
        for key, recorded in GPM_METRICS:
            series.gpm[key].append(_number(gpm.get(recorded.key)) / recorded.scale)
    energy = _number(values.get("energy_mj")) / 1000
    if not math.isnan(energy):
        series.energy_t.append(t)
        series.energy_j.append(energy)


def _processes(procs: list[list[Any]]) -> tuple[Process, ...]:
    return tuple(
        Process(
            pid=int(pid),
            kind="graphics" if "graphics" in kind else "compute",
            memory=None if memory is None else int(memory),
            user=None,
            program=None,
            arguments=None,
        )
        for pid, memory, *kind in procs
    )


def _extend_energy(series: RecordedSeries, times: array[float], duration: float) -> None:
    """Extrapolate the energy counter to both ends of the recording, using the recorded power.

    The counter is read rarely, so its first and last values lie inside the recording. If the counter
    restarts, as it does when the driver is reloaded, the series continues from the last value before the
    restart.
    """
    if not series.energy_t:
        return
    first, last = series.energy_t[0], series.energy_t[-1]
    t = _column()
    joules = _column()
    if first > 0:
        t.append(0.0)
        joules.append(series.energy_j[0] - _energy_between(series, times, 0.0, first))
    lift = 0.0
    before = -math.inf
    for at, read_j in zip(series.energy_t, series.energy_j, strict=True):
        lift += max(0.0, before - read_j)
        before = read_j
        t.append(at)
        joules.append(read_j + lift)
    t.append(duration)
    joules.append(joules[-1] + _energy_between(series, times, last, duration))
    series.energy_t, series.energy_j = t, joules


def _energy_between(series: RecordedSeries, times: array[float], since: float, until: float) -> float:
    """Return the joules used between two moments, computed from the recorded power. Unknown power counts as
    0."""
    total = 0.0
    for index, power in enumerate(series.ticks["power_w"]):
        end = times[index + 1] if index + 1 < len(times) else until
        seconds = min(end, until) - max(times[index], since)
        if seconds > 0 and not math.isnan(power):
            total += power * seconds
    return total


def _tick(meta: Mapping[str, Any], times: array[float]) -> float:
    tick = _number(meta.get("tick_s"))
    if tick > 0:
        return tick
    return times[-1] / (len(times) - 1) if len(times) > 1 and times[-1] > 0 else 1.0


def _number(value: str | float | None) -> float:
    if value is None:
        return math.nan
    number = float(value)
    return number if math.isfinite(number) else math.nan


def _number_or_none(value: str | float | None) -> float | None:
    number = _number(value)
    return None if math.isnan(number) else number


def _text(value: object) -> str | None:
    return None if value is None else str(value)
