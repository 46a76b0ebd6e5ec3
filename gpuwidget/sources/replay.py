"""The source that plays a recording: either the packaged recording of four H200s or a file of the user.

The position in a looped recording follows the wall clock, so that all processes on a machine that play the
same recording show the same moment of it. If the environment has ``GPUWIDGET_REPLAY_START``, the loop begins
at that time. Process ids are those of the recorded machine, and mean nothing on
the machine that plays the recording.
"""

from __future__ import annotations

import math
import os
from bisect import bisect_right
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuwidget.model.errors import GpuLostError, RecordingError, SourceLostError
from gpuwidget.model.messages import Message, english_message, message
from gpuwidget.model.metrics import GROUPS, METRICS, Group
from gpuwidget.model.readings import Activity
from gpuwidget.model.samples import Gpu, Origin
from gpuwidget.sources import GroupReading, Inventory
from gpuwidget.sources import recording as files
from gpuwidget.sources.throttle_reasons import reason_names

if TYPE_CHECKING:
    from array import array
    from collections.abc import Iterator

    from gpuwidget.model.clock import Clock
    from gpuwidget.sources.recording import RecordedGpu, RecordedSeries, Recording

SHIPPED = Path(__file__).parent / "data" / "h200-x4.jsonl.gz"

START_VARIABLE = "GPUWIDGET_REPLAY_START"
"""Environment variable with the time at which the loop of a recording begins, in epoch seconds."""
TRAINING_S = 28.0
"""Position in the packaged recording, in seconds. Eight seconds later, when a server that was started at this
position is ready, all GPUs train."""

_MIN_ACTIVITY_S = 0.1
_WHOLE = {files.THROTTLE, *(metric.key for metric in METRICS if metric.whole)}
"""Keys of the recorded values that are int."""


class ReplaySource:
    """Plays a recording, in a loop or once.

    In a loop, the position is the time since the loop began modulo the recording's duration. A recording that
    is played once starts when the source is first opened, and then stays at its end. If ``path`` is None, the
    packaged recording is played.
    """

    def __init__(self, path: str | None, *, loop: bool, clock: Clock) -> None:
        self._path = SHIPPED if path is None else Path(path).expanduser()
        self._loop = loop
        self._clock = clock
        self._version: tuple[int, int] | None = None
        self._recording: Recording | None = None
        self._gpus: dict[str, RecordedGpu] = {}
        self._opened: float | None = None
        self._began = _loop_start() if loop else 0.0
        self._counters: dict[str, float] = {}

    # -- opening -------------------------------------------------------------------------------------

    def open(self) -> Inventory:
        """Return the recorded GPUs. If the file can't be played, return no GPUs and the reason."""
        try:
            recording = self._load()
        except RecordingError as error:
            self._gpus = {}
            label = f"Recording that can't be played ({self._path.name})"
            unreadable = english_message("recording-unreadable", str(error), path=str(self._path))
            return Inventory(_origin(unreadable, label, None, None), ())
        if self._opened is None:
            self._opened = self._clock.time()
        self._recording = recording
        self._gpus = {recorded.gpu.uuid: recorded for recorded in recording.gpus}
        gpus = tuple(recorded.gpu for recorded in recording.gpus)
        reason = None
        if not gpus:
            text = f"The recording {str(self._path)!r} is of a machine without a GPU."
            reason = english_message("recording-without-gpu", text, path=str(self._path))
        origin = _origin(reason, self._label(gpus), recording.driver, recording.cuda_driver)
        return Inventory(origin, gpus)

    def _load(self) -> Recording:
        try:
            status = self._path.stat()
        except OSError:
            return files.read(self._path)  # Raises a RecordingError that states why the file can't be read.
        version = (status.st_mtime_ns, status.st_size)
        # The sampler reopens the source each time its first subscription begins, so reopening must be cheap.
        if self._recording is None or self._version != version:
            recording = files.read(self._path)
            self._version = version
            return recording
        return self._recording

    def _label(self, gpus: tuple[Gpu, ...]) -> str:
        names = Counter(gpu.name for gpu in gpus)
        what = (
            ", ".join(f"{count} \N{MULTIPLICATION SIGN} {name}" for name, count in names.items()) or "no GPU"
        )
        if self._path != SHIPPED:
            what += f" ({self._path.name})"
        return (
            f"Recording of {what}"
            if self._loop
            else f"Recording of {what}, played once, then held at its end"
        )

    def close(self) -> None:
        """Do nothing. The recording stays in memory for the next opening."""

    # -- position in the recording -------------------------------------------------------------------

    def _tape_time(self) -> float:
        """Return the playing time in seconds.

        In a loop, this is the time since the loop began. Otherwise it is the time since the first opening, at
        most the duration.
        """
        recording, opened = self._recording, self._opened
        assert recording is not None
        assert opened is not None
        now = self._clock.time()
        return now - self._began if self._loop else min(max(now - opened, 0.0), recording.duration_s)

    def _lap_and_position(self, played: float) -> tuple[int, float]:
        """Return how often the recording has been played to its end, and the current position in seconds."""
        recording = self._recording
        assert recording is not None
        if not self._loop:
            return 0, played
        laps, position = divmod(played, recording.duration_s)
        return int(laps), position

    def _current_tick(self, gpu: Gpu) -> tuple[RecordedGpu, int]:
        """Return the recorded data of ``gpu``, and the index of the current tick."""
        recorded, recording = self._gpus.get(gpu.uuid), self._recording
        if recorded is None or recording is None:
            raise SourceLostError(f"GPU {gpu.index} is not in the recording.")
        _, position = self._lap_and_position(self._tape_time())
        tick = bisect_right(recording.times, position) - 1
        if recorded.series.lost[tick]:
            reason = message("gpu-lost", "the GPU was lost when this was recorded")
            raise GpuLostError(f"GPU {gpu.index} was lost when this was recorded.", reason)
        return recorded, tick

    # -- reading -------------------------------------------------------------------------------------

    def read(self, gpu: Gpu, group: Group) -> GroupReading:
        """Return the values of ``group`` that were recorded for the current moment.

        The driver's windows of utilization and samples of the power are not recorded, nor are errors.
        """
        recorded, tick = self._current_tick(gpu)
        if group == "activity":
            return GroupReading({"activity": self._read_activity(gpu, recorded)}, {})
        series = recorded.series
        values: dict[str, Any] = dict.fromkeys(GROUPS[group])
        values |= {key: _at_tick(series, key, tick) for key in values if key in series.ticks}
        if group == "status":
            mask = values["throttle"]
            values["throttle"] = None if mask is None else reason_names(mask)
            values["power_limit_w"] = recorded.power_limit_w
        elif group == "slow":
            values["energy_j"] = self._energy(series)
            values["utilization_window"] = recorded.utilization_window
        elif group == "processes":
            # Their owners and programs are not recorded.
            values["processes"] = series.processes[tick]
        unknown = [key for key, value in values.items() if value is None]
        return GroupReading(values, {key: recorded.missing.get(key, files.NOT_RECORDED) for key in unknown})

    def _energy(self, series: RecordedSeries) -> float | None:
        """Return the energy counter, interpolated between two recorded values.

        When a looped recording starts again, the counter continues to rise.
        """
        if not series.energy_t:
            return None
        laps, position = self._lap_and_position(self._tape_time())
        gain = series.energy_j[-1] - series.energy_j[0]
        # Count laps from the first opening. If they were counted from 1970, the energy would be absurdly
        # large.
        laps_before, _ = (
            self._lap_and_position((self._opened or 0.0) - self._began) if self._loop else (0, 0.0)
        )
        return _interpolated(series, position) + (laps - laps_before) * gain

    def _read_activity(self, gpu: Gpu, recorded: RecordedGpu) -> Activity | None:
        """Return the mean over the recorded GPM intervals that have ended since the previous call."""
        now = self._tape_time()
        before = self._counters.get(gpu.uuid)
        if before is not None and 0 <= now - before < _MIN_ACTIVITY_S:
            return None
        self._counters[gpu.uuid] = now
        if before is None or now < before:
            return None
        return self._activity(recorded.series, before, now)

    def rewound(self, clock: Clock) -> ReplaySource | None:
        """Return a player of the packaged recording with another clock. A user's recording may be very large,
        and one that is played once has no past."""
        if not self._loop or self._path != SHIPPED:
            return None
        rewound = ReplaySource(None, loop=True, clock=clock)
        rewound._version, rewound._recording = self._version, self._recording
        return rewound

    def stop_activity(self) -> None:
        """Make the next read of each GPU's hardware counters behave like the first one."""
        self._counters.clear()

    def _activity(self, series: RecordedSeries, after: float, until: float) -> Activity | None:
        windows = list(self._windows(series, after, until))
        if not windows:
            return None
        epoch = self._began if self._loop else self._opened or 0.0
        means = {name: _mean(column, windows) for name, column in series.gpm.items()}
        return Activity(since=epoch + windows[0][0], until=epoch + windows[-1][1], **means)

    def _windows(
        self, series: RecordedSeries, after: float, until: float
    ) -> Iterator[tuple[float, float, int]]:
        """Yield start, end and index of each GPM interval that ended in (after, until], in order of time."""
        recording = self._recording
        assert recording is not None
        after = max(after, until - recording.duration_s)
        first_lap, _ = self._lap_and_position(after)
        last_lap, _ = self._lap_and_position(until)
        for lap in range(first_lap, last_lap + 1):
            start = lap * recording.duration_s
            first = bisect_right(series.gpm_until, after - start)
            last = bisect_right(series.gpm_until, until - start)
            for number in range(first, last):
                yield start + series.gpm_since[number], start + series.gpm_until[number], number


def _loop_start() -> float:
    try:
        start = float(os.environ.get(START_VARIABLE, "0"))
    except ValueError:
        return 0.0
    return start if math.isfinite(start) else 0.0


def _at_tick(series: RecordedSeries, key: str, tick: int) -> float | None:
    value = series.ticks[key][tick]
    if math.isnan(value):
        return None
    return int(value) if key in _WHOLE else value


def _origin(reason: Message | None, label: str, driver: str | None, cuda_driver: str | None) -> Origin:
    return Origin(
        kind="replay",
        reason=reason,
        recording=label,
        driver=driver,
        cuda_driver=cuda_driver,
    )


def _interpolated(series: RecordedSeries, position: float) -> float:
    after = bisect_right(series.energy_t, position)
    if after == len(series.energy_t):
        return series.energy_j[-1]
    since, until = series.energy_t[after - 1], series.energy_t[after]
    share = (position - since) / (until - since)
    return series.energy_j[after - 1] + share * (series.energy_j[after] - series.energy_j[after - 1])


def _mean(column: array[float], windows: list[tuple[float, float, int]]) -> float | None:
    """Return the mean over the intervals in which the counter was read, weighted by their lengths."""
    known = [(until - since, column[number]) for since, until, number in windows]
    known = [(seconds, value) for seconds, value in known if not math.isnan(value)]
    total = sum(seconds for seconds, _ in known)
    return sum(seconds * value for seconds, value in known) / total if total > 0 else None
