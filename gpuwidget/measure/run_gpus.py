"""The GPUs of one run: the totals of their readings, and which GPUs this process uses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from copy import copy

from gpuwidget import pytorch
from gpuwidget.measure import reasons
from gpuwidget.measure.gpu_selection import select_gpus
from gpuwidget.measure.gpu_totals import GpuTotals, RateParts
from gpuwidget.measure.process_memory import Attribution, ProcessMemory
from gpuwidget.measure.steady_state import SteadyWindow, find_steady_window
from gpuwidget.measure.timeline import GpuTimeSeries, RunTimeSeries
from gpuwidget.measure.workers import WorkerTracker
from gpuwidget.model.errors import OptionError
from gpuwidget.model.readings import Reading
from gpuwidget.model.samples import Gpu, Origin, Sample, without_mig_parents
from gpuwidget.model.torch_state import TorchDevice, same_gpu
from gpuwidget.sampler.gpu_state import unknown_reading
from gpuwidget.sources import PowerRecord

_CLOCK_MARGIN_S = 1.0
"""Seconds by which the system's clock and the monotonic clock may differ before it counts as set."""
_MAX_CALL_S = 1.5
"""Maximum seconds of a call to the driver. The sampler abandons a call after one second or slightly more."""
_RECENT_S = 15.0
"""Once a run has lasted this many seconds, its recent totals cover at least this many seconds, and at most
twice as many."""


class RecentTotals:
    """One GPU's totals over the last 15 to 30 seconds, so that the start of a long run no longer counts."""

    def __init__(self, gpu: Gpu, reading: Reading, max_gap_s: float, t: float) -> None:
        """Begin the totals ``t`` seconds into the run."""
        self._gpu = gpu
        self._max_gap_s = max_gap_s
        self._older = self._newer = self._new(reading)
        self._older_began = self._newer_began = t

    def add(self, t: float, reading: Reading, held: ProcessMemory, started: float, driver_s: float) -> None:
        """Add a reading ``t`` seconds into the run. For the parameters, see :meth:`GpuTotals.add`."""
        if t - self._newer_began >= _RECENT_S:
            self._older, self._older_began = self._newer, self._newer_began
            self._newer, self._newer_began = self._new(reading), t
        self._older.add(t - self._older_began, reading, held, started + self._older_began, driver_s)
        if self._newer is not self._older:
            self._newer.add(t - self._newer_began, reading, held, started + self._newer_began, driver_s)

    def totals(self, t: float) -> tuple[GpuTotals, float]:
        """Return the recent totals ``t`` seconds into the run, and the number of seconds they cover."""
        return self._older, t - self._older_began

    def _new(self, reading: Reading) -> GpuTotals:
        return GpuTotals(self._gpu, reading, self._max_gap_s)


class RunGpus:
    """Totals per GPU, from the sample just before the run to the sample at its end.

    Not thread-safe: only one thread may use an instance at a time.
    """

    def __init__(self, max_gap_s: float, selection: Sequence[str] = ()) -> None:
        """A gap of more than ``max_gap_s`` seconds between two samples counts as unknown time.

        ``selection`` names the GPUs to report; if it is empty, all are reported.
        """
        self._max_gap_s = max_gap_s
        self._selection = selection
        self._by_uuid: dict[str, GpuTotals] = {}
        self._recent: dict[str, RecentTotals] = {}
        self._first_seen: dict[str, float] = {}
        self._attribution: Attribution | None = None
        self._selected: frozenset[str] | None = None
        self._time_series = RunTimeSeries(max_gap_s)
        self.workers = WorkerTracker(max_gap_s)
        self.origin: Origin | None = None
        """The source of the samples, or None before the first sample."""
        self.started = float("inf")
        """When the run began, in epoch seconds. Infinite before the start, so that every reading counts as
        taken before the run."""

    def _started(self, t: float, sample: Sample) -> float:
        """Return when the run began by the clock of ``sample``, which may have been set since then."""
        by_sample = sample.time - t
        return self.started if abs(by_sample - self.started) < _CLOCK_MARGIN_S else by_sample

    # -- adding samples ------------------------------------------------------------------------------

    def begin(self, sample: Sample, requested_at: float) -> None:
        """Add the sample taken just before the run, requested at ``requested_at`` (epoch seconds).

        Raise OptionError for a selected GPU that doesn't exist.
        """
        if self._selection:
            self._selected = frozenset(select_gpus(self._selection, sample.gpus))
        self._update(sample)
        for gpu, reading in self._pairs(sample):
            held = self._process_memory(gpu, reading)
            fresh = _is_fresh(reading, sample, requested_at)
            self._by_uuid[gpu.uuid].begin(reading, held, fresh, requested_at)
            self.workers.begin(gpu, reading, held)
        self._time_series.add(0.0, self.all, self.started)

    def add(self, t: float, sample: Sample) -> None:
        """Add a sample ``t`` seconds into the run."""
        self._update(sample, t)
        started, driver_s = self._started(t, sample), _driver_s(sample)
        for gpu, reading in self._pairs(sample):
            held, totals = self._process_memory(gpu, reading), self._by_uuid[gpu.uuid]
            recent = self._recent.get(gpu.uuid)
            if recent is None:  # not created at the start, because that would delay short cells
                began = self._first_seen[gpu.uuid]
                recent = RecentTotals(gpu, totals.reading, self._max_gap_s, began)
                self._recent[gpu.uuid] = recent
            totals.add(t, reading, held, started, driver_s)
            recent.add(t, reading, held, started, driver_s)
            self.workers.add(t, gpu, reading, held)
        self.workers.poll(t)
        self._time_series.add(t, self.all, started)

    def add_power(self, records: Mapping[str, PowerRecord], began: float) -> None:
        """Add the driver's records of each GPU's power, by UUID. The run began at ``began`` (monotonic
        seconds)."""
        for uuid, record in records.items():
            if uuid in self._by_uuid:
                self._by_uuid[uuid].add_power(record, began)
                self.workers.add_power(uuid, record, began)

    def end(self, t: float, sample: Sample, requested_at: float) -> None:
        """Add the sample taken at the run's end, requested at ``requested_at`` (epoch seconds)."""
        self._update(sample, t)
        started, driver_s = self._started(t, sample), _driver_s(sample)
        for gpu, reading in self._pairs(sample):
            held, fresh = self._process_memory(gpu, reading), _is_fresh(reading, sample, requested_at)
            self._by_uuid[gpu.uuid].end(t, reading, held, started, driver_s, fresh=fresh)
            self.workers.add(t, gpu, reading, held)
        self._time_series.add(t, self.all, started)

    def so_far_ended(self) -> RunGpus:
        """Return a copy in which the run ends with the newest readings, until the next sample is added."""
        ended = copy(self)
        ended._by_uuid = {uuid: totals.so_far_ended() for uuid, totals in self._by_uuid.items()}
        return ended

    def _update(self, sample: Sample, t: float = 0.0) -> None:
        """Add the new GPUs of a sample. A GPU that appears during the run has no start values."""
        if self.origin is None or self.origin.reason != sample.origin.reason:
            self.origin = sample.origin
        if self._selection and self._selected is None:
            # The driver was opened after the run had begun. If a selected GPU doesn't exist, it is too late
            # to refuse the run, so all GPUs are reported.
            with suppress(OptionError):
                self._selected = frozenset(select_gpus(self._selection, sample.gpus))
        if self._attribution is None:
            self._attribution = Attribution(sample.origin)
        new = [pair for pair in self._pairs(sample) if pair[0].uuid not in self._by_uuid]
        for gpu, reading in new:
            self._by_uuid[gpu.uuid] = GpuTotals(gpu, reading, self._max_gap_s, parts=RateParts())
            self._by_uuid[gpu.uuid].begin_late(t)
            self._first_seen[gpu.uuid] = t
        self._time_series.add_gpus(len(new))
        self._attribution.update(sample.readings)

    def _pairs(self, sample: Sample) -> list[tuple[Gpu, Reading]]:
        """Return the selected GPUs with their readings.

        The values of GPUs that the sample no longer contains, such as removed MIG slices, are unknown.
        """
        listed = {gpu.uuid for gpu in sample.gpus}
        gone = [
            (totals.gpu, unknown_reading(uuid, totals.reading.answered, None, None, reasons.GONE))
            for uuid, totals in self._by_uuid.items()
            if uuid not in listed
        ]
        return gone + [
            (gpu, reading)
            for gpu, reading in zip(sample.gpus, sample.readings, strict=True)
            if self._selected is None or gpu.uuid in self._selected
        ]

    def _process_memory(self, gpu: Gpu, reading: Reading) -> ProcessMemory:
        assert self._attribution is not None
        return self._attribution.process_memory(gpu, reading)

    # -- results -------------------------------------------------------------------------------------

    @property
    def all(self) -> list[GpuTotals]:
        """The totals of all GPUs, in the order in which they were first seen."""
        return list(self._by_uuid.values())

    @property
    def attributed(self) -> bool:
        """Whether it is known which GPUs this process uses."""
        attribution = self._attribution
        return (
            attribution is not None
            and attribution.possible
            and (attribution.from_torch or not self.unlisted_gpus())
        )

    def unlisted_gpus(self) -> list[GpuTotals]:
        """Return the totals of the GPUs whose processes the driver has not listed, for example because this
        user has no permission.

        Lost GPUs are left out, because nothing can use them, and GPUs whose MIG slices are listed.
        """
        undivided = without_mig_parents(totals.gpu for totals in self.all)
        return [
            totals
            for totals in self.all
            if totals.gpu in undivided and not totals.listed and totals.lost_since is None
        ]

    @property
    def selected(self) -> bool:
        """Whether the user has selected the GPUs to report."""
        return self._selected is not None

    @property
    def recorded(self) -> bool:
        """Whether the samples come from a recording."""
        return self.origin is not None and self.origin.recorded

    def shown(self) -> list[GpuTotals]:
        """Return the totals of the GPUs that the card shows.

        These are the selected GPUs. If none are selected, they are the GPUs that this process uses, or all
        GPUs if it is unknown which it uses.
        """
        if self._selected is not None or not self.attributed:
            return self.all
        return [
            totals for totals in self.all if totals.used_by_process or pytorch.has_context(totals.gpu.uuid)
        ]

    def recent(self, t: float) -> list[tuple[GpuTotals, float]]:
        """Return each shown GPU's recent totals and the seconds they cover, ``t`` seconds into the run."""
        found = [self._recent.get(totals.gpu.uuid) for totals in self.shown()]
        return [recent.totals(t) for recent in found if recent is not None]

    def steady_window(self, t: float, steady_from: float | None) -> SteadyWindow | None:
        """Return when, in a run of ``t`` seconds, the workers did their work; None if there is no such time.

        A run without workers has no steady window, unless its samples come from a recording. ``steady_from``
        is the time of the user's mark for the steady state, or None without such a mark.
        """
        workers = self.workers.rows(t, self._by_uuid)
        if not self.recorded and not workers:
            return None
        used = {worker.gpu for worker in workers} - {None}
        gpus = [totals for totals in self.shown() if not used or totals.gpu.uuid in used]
        busiest: dict[float, tuple[float, float | None]] = {}
        for totals in gpus:
            for since, until, utilization in totals.parts.utilization() if totals.parts is not None else ():
                _, highest = busiest.get(since, (until, None))
                values = [value for value in (highest, utilization) if value is not None]
                busiest[since] = until, max(values, default=None)
        first_step, last_step = self.workers.steps_span()
        return find_steady_window(
            [(since, until, utilization) for since, (until, utilization) in sorted(busiest.items())],
            earliest=max(first_step, steady_from or 0.0),
            latest=last_step,
        )

    def time_series(self) -> tuple[tuple[float, ...], dict[str, GpuTimeSeries]]:
        """Return the time axis (seconds since the run's start) and the time series of all GPUs by UUID."""
        t, series = self._time_series.points()
        return t, dict(zip(self._by_uuid, series, strict=True))

    @property
    def gaps(self) -> tuple[tuple[float, float], ...]:
        """The beginning and end of the times in which nothing was sampled, in seconds since the start."""
        return self._time_series.gaps

    def devices(self) -> tuple[TorchDevice, ...]:
        """Return torch's devices, or none if the samples come from a recording."""
        # If the recording was made on this machine, its UUIDs match the real GPUs, and torch's current memory
        # would be mixed into the recorded readings.
        return () if self.recorded else pytorch.devices()

    def torch_names(self) -> dict[str, str]:
        """Return the names ``cuda:N`` of the GPUs that are visible to torch, by UUID."""
        return {
            uuid: device.name
            for device in self.devices()
            for uuid in self._by_uuid
            if same_gpu(uuid, device.uuid)
        }


def _driver_s(sample: Sample) -> float:
    """Return how many seconds the driver's calls for a sample took.

    A slow call for one GPU delays the readings of all. Longer calls than ``_MAX_CALL_S`` do not count: either
    they are those of a GPU that has not answered for long and is no longer called, or the thread of the call
    waited for the GIL. Otherwise the sampler would have abandoned the call.
    """
    calls = (
        sample.time - reading.silent_since
        if reading.silent_since is not None
        else (reading.answered or 0.0) - (reading.measured or 0.0)
        for reading in sample.readings
    )
    return sum(seconds for seconds in calls if 0 < seconds <= _MAX_CALL_S)


def _is_fresh(reading: Reading, sample: Sample, requested_at: float) -> bool:
    # If the system's clock was set back, an old reading may be later than the sample that contains it.
    return reading.measured is not None and requested_at <= reading.measured <= sample.time
