"""Parse recordings: files of JSON lines with GPU readings, which the source ``replay`` plays.

The first line is ``{"meta": {...}}``. It contains ``driver``, ``cuda_driver`` (13000 for 13.0), ``tick_s``
and, in ``gpus``, each GPU's constants.

Every further line is a tick. It contains ``t`` (seconds since the start), ``phase`` (what was running, or
null), and for each GPU ``util`` and ``mem_util`` (percent), ``mem_used`` (bytes), ``power_mw``, ``temp_c``,
``mem_temp_c``, ``sm_mhz``, ``throttle`` (NVML's bits) and ``procs`` (pid and bytes, and ``"graphics"`` for a
process that is not a compute process). A tick contains ``gpm`` (percent, or MiB per second) and ``energy_mj``
only if they were read for this tick. ``"lost": true`` marks a lost GPU, and null an unknown value.

A file that starts with gzip's magic number is decompressed.

A file may come from anyone, so its size is limited (:class:`RecordingSize`). A limit is checked before the
memory for what exceeds it is allocated.
"""

from __future__ import annotations

import gzip
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
from gpuwidget.model.to_json import encodable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

NOT_RECORDED = message("not-recorded", "not in the recording")
UTILIZATION_WINDOW_S = 0.2
"""Length in seconds of the utilization windows of an H200. Used for recordings that do not contain the
length."""
TICK_METRICS = tuple(
    (metric.key, metric.recorded) for metric in METRICS if metric.recorded and metric.group != "activity"
)
"""Key and recorded form of each metric that has a value in every tick."""
GPM_METRICS = tuple(
    (metric.key, metric.recorded) for metric in METRICS if metric.recorded and metric.group == "activity"
)
"""Key and recorded form of each metric in a tick's ``gpm``."""
THROTTLE = "throttle"
"""Key of NVML's bit mask of throttle reasons in a tick."""

MAX_LINE_BYTES = 1 << 20
"""The maximum length of a line. A tick of 16 GPUs with 100 processes each takes about 50 kB."""
MAX_BYTES = 2 << 30
"""The maximum length of a recording after decompression."""
MAX_GPUS = 256
"""The maximum number of GPUs, including MIG slices."""
MAX_DURATION_S = 31 * 24 * 3600.0
MAX_ENTRIES = 5_000_000
"""The maximum number of entries, of which each takes 100 to 250 bytes of memory: one per GPU and tick, and
one per process of each list of processes that differs from the previous one. A week of 8 GPUs has this many
if there is a tick per second."""

_MAX_TEXT = 1000
"""The maximum length of a name or a reason. The rest is cut off."""
_MAX_WHOLE = 2**53 - 1
"""The largest process id or number of bytes. Up to this number, JSON numbers are exact in browsers."""
_MIN_TICK_S = 0.001
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


class RecordingSize:
    """The size of a recording, which is checked while the recording is read or written.

    The methods raise LimitExceeded.
    """

    def __init__(self) -> None:
        self._bytes = self._entries = 0

    def add_line(self, length: int) -> None:
        """Add a line of ``length`` bytes, including its line break."""
        if length > MAX_LINE_BYTES:
            raise LimitExceeded(f"{MAX_LINE_BYTES >> 20} MiB per line")
        self._bytes += length
        if self._bytes > MAX_BYTES:
            raise LimitExceeded(f"{MAX_BYTES >> 30} GiB of text")

    def add_tick(self, t: float, gpus: int) -> None:
        """Add a tick ``t`` seconds after the start."""
        _check_duration(t)
        self.add_entries(max(1, gpus))

    def add_entries(self, count: int) -> None:
        """Add entries, which :data:`MAX_ENTRIES` explains."""
        self._entries += count
        if self._entries > MAX_ENTRIES:
            raise LimitExceeded(f"{MAX_ENTRIES:,} entries")


class LimitExceeded(Exception):
    """A recording is larger than a limit. The text is the limit, such as ``31 days``."""


def _check_duration(seconds: float) -> None:
    """Raise LimitExceeded if a recording may not last this long."""
    if seconds > MAX_DURATION_S:
        raise LimitExceeded(f"{MAX_DURATION_S / 86400:g} days")


def read(path: Path) -> Recording:
    """Read a recording. Raises RecordingError with a sentence for the user."""
    name = repr(str(path))
    try:
        with path.open("rb") as file:
            size = RecordingSize()
            lines = _JsonLines(file, size)
            try:
                return _parse(lines, size)
            except LimitExceeded as error:
                raise RecordingError(
                    f"The recording {name} is too large: line {lines.number} exceeds the limit of {error}. "
                    "Make a shorter one, or one with a longer interval, with 'gpuwidget record FILE'."
                ) from None
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

    def __init__(self, file: BinaryIO, size: RecordingSize) -> None:
        packed = file.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
        file.seek(0)
        self._file: BinaryIO | gzip.GzipFile = gzip.GzipFile(fileobj=file) if packed else file
        self._size = size
        self.number = 0

    def __iter__(self) -> Iterator[Any]:
        # Never read more than a line may have: a small compressed file can have a line of many gigabytes.
        while raw := self._file.readline(MAX_LINE_BYTES + 1):
            self.number += 1
            self._size.add_line(len(raw))
            line = raw.decode("utf-8")
            try:
                yield json.loads(line)
            except json.JSONDecodeError:
                if line.startswith('{"t":') and not line.endswith("\n"):
                    raise _Truncated from None
                raise ValueError("not JSON") from None


def _brief(error: BaseException) -> str:
    text = f"{error} is missing" if isinstance(error, KeyError) else str(error)
    return text if len(text) <= 80 else f"{text[:79]}…"


def _parse(lines: Iterable[Any], size: RecordingSize) -> Recording:
    lines = iter(lines)
    first = next(lines, None)
    if first is None:
        raise _Empty
    meta = first["meta"]
    if len(meta["gpus"]) > MAX_GPUS:
        raise LimitExceeded(f"{MAX_GPUS} GPUs")
    _check_duration(_number(meta.get("tick_s")))
    gpus = tuple(_gpu(meta, index) for index in range(len(meta["gpus"])))
    if len({recorded.gpu.uuid for recorded in gpus}) < len(gpus):
        raise ValueError("two GPUs have the same UUID")
    times = _column()
    start = 0.0
    processes = [_ProcessLists(size) for _ in gpus]
    for line in lines:
        if not times:
            start = float(line["t"])
        t = float(line["t"]) - start
        if not (0 <= t < math.inf) or (times and t < times[-1]):
            raise ValueError(f"the time {line['t']} is out of order")
        if len(line["gpus"]) != len(gpus):
            raise ValueError(f"it has {len(line['gpus'])} GPUs, but the first line has {len(gpus)}")
        size.add_tick(t, len(gpus))
        times.append(t)
        for recorded, values, lists in zip(gpus, line["gpus"], processes, strict=True):
            _append_tick(recorded.series, t, values, lists)
    if not times:
        raise _Empty
    duration = times[-1] + _tick(meta, times)
    for recorded in gpus:
        _extend_energy(recorded.series, times, duration)
    cuda = meta.get("cuda_driver")
    return Recording(
        driver=_text_or_none(meta.get("driver")),
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
        uuid=_text_or_none(values.get("uuid")) or derived_uuid,
        index=int(values.get("index", index)),
        mig_index=None if values.get("mig_index") is None else int(values["mig_index"]),
        mig_parent=_text_or_none(values.get("mig_parent")),
        name=_text(values["name"]),
        pci_bus_id=_text_or_none(values.get("pci_bus_id")),
        memory_total=None if math.isnan(total) else int(total),
        memory_reserved=None if math.isnan(reserved) else int(reserved),
        unified_memory=bool(values.get("unified_memory", False)),
        compute_capability=_text_or_none(values.get("compute_capability")),
        peak_fp32_flops=_number_or_none(values.get("peak_fp32_flops")),
        memory_bandwidth=_number_or_none(values.get("memory_bandwidth")),
    )
    window = _number(values.get("utilization_window_s", UTILIZATION_WINDOW_S))
    return RecordedGpu(
        gpu=gpu,
        power_limit_w=None if math.isnan(limit) else limit,
        utilization_window=None if math.isnan(window) else window,
        missing={
            str(name): message("missing-when-recorded", _text(why))
            for name, why in values.get("missing", {}).items()
        },
    )


class _ProcessLists:
    """Stores the lists of processes of one GPU. Equal lists in consecutive ticks share one tuple."""

    def __init__(self, size: RecordingSize) -> None:
        self._size = size
        self._newest: list[Any] | None = None
        self._stored: tuple[Process, ...] | None = None

    def store(self, processes: list[Any] | None) -> tuple[Process, ...] | None:
        """Return the processes in a tick; None if they are unknown."""
        if processes != self._newest:
            self._size.add_entries(len(processes or ()))
            self._newest = processes
            self._stored = None if processes is None else tuple(map(_process, processes))
        return self._stored


def _append_tick(series: RecordedSeries, t: float, values: Mapping[str, Any], lists: _ProcessLists) -> None:
    for key, recorded in TICK_METRICS:
        series.ticks[key].append(_number(values.get(recorded.key)) / recorded.scale)
    series.ticks[THROTTLE].append(_number(values.get(THROTTLE)))
    series.lost.append(values.get("lost") is True)
    series.processes.append(lists.store(values.get("procs")))
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


def _process(values: list[Any]) -> Process:
    pid, memory, *kind = values
    return Process(
        pid=_whole(pid),
        kind="graphics" if "graphics" in kind else "compute",
        memory=None if memory is None else _whole(memory),
        user=None,
        program=None,
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
    if tick >= _MIN_TICK_S:
        return tick
    return max(_MIN_TICK_S, times[-1] / (len(times) - 1)) if len(times) > 1 and times[-1] > 0 else 1.0


def _number(value: str | float | None) -> float:
    if value is None:
        return math.nan
    number = float(value)
    return number if math.isfinite(number) else math.nan


def _number_or_none(value: str | float | None) -> float | None:
    number = _number(value)
    return None if math.isnan(number) else number


def _whole(value: str | float) -> int:
    number = int(value)
    if not 0 <= number <= _MAX_WHOLE:
        raise ValueError("a process has an impossible id or number of bytes")
    return number


def _text(value: object) -> str:
    return encodable(str(value)[:_MAX_TEXT])


def _text_or_none(value: object) -> str | None:
    return None if value is None else _text(value)
