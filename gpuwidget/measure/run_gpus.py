"""All GPUs of one run: what they read, and which of them this process uses."""

from __future__ import annotations

from collections.abc import Sequence

from gpuwidget.measure.gpu_selection import choose
from gpuwidget.measure.gpu_totals import Track
from gpuwidget.measure.process_memory import Attribution, Holding
from gpuwidget.measure.recent_readings import Recent
from gpuwidget.measure.time_series import Courses, GpuCourse
from gpuwidget.model.samples import Gpu, Origin, Reading, Sample
from gpuwidget.pytorch import cuda_state
from gpuwidget.pytorch.cuda_state import TorchDevice


class Tracks:
    """A track for each GPU, from the sample just before the run to the one at its end.

    For one thread at a time.
    """

    def __init__(self, widest_gap: float) -> None:
        """``widest_gap`` are the seconds without a sample from which on what happened in them is unknown."""
        self._widest_gap = widest_gap
        self._by_uuid: dict[str, Track] = {}
        self._recent: dict[str, Recent] = {}
        self._joined: dict[str, float] = {}
        self._attribution: Attribution | None = None
        self._wanted: frozenset[str] | None = None
        self._courses = Courses(widest_gap)
        self.origin: Origin | None = None
        """Where the samples come from; None until the first has come."""
        self.started = float("inf")
        """When the run began, epoch seconds: until it does, whatever was read belongs to the time before."""

    # -- samples -------------------------------------------------------------------------------------

    def begin(self, sample: Sample, asked: float, wanted: Sequence[str]) -> None:
        """The sample just before the run, of GPUs that were asked at ``asked`` (epoch seconds).

        ``wanted`` are those to report, empty for all. Raises OptionError for one that doesn't exist.
        """
        if wanted:
            self._wanted = frozenset(choose(wanted, sample.gpus))
        self._meet(sample)
        for gpu, reading in self._pairs(sample):
            self._by_uuid[gpu.uuid].begin(reading, self._holding(gpu, reading), _fresh(reading, asked))
        self._courses.add(0.0, self.all, self.started)

    def add(self, t: float, sample: Sample) -> None:
        """A sample ``t`` seconds into the run."""
        self._meet(sample, t)
        for gpu, reading in self._pairs(sample):
            holding, track = self._holding(gpu, reading), self._by_uuid[gpu.uuid]
            recent = self._recent.get(gpu.uuid)
            if recent is None:  # not at the start, which a short cell waits for
                began = self._joined[gpu.uuid]
                recent = self._recent[gpu.uuid] = Recent(gpu, track.reading, self._widest_gap, began)
            track.add(t, reading, holding, self.started)
            recent.add(t, reading, holding, self.started)
        self._courses.add(t, self.all, self.started)

    def end(self, t: float, sample: Sample, asked: float) -> None:
        """The sample at the run's end, of GPUs that were asked at ``asked`` (epoch seconds)."""
        self._meet(sample, t)
        for gpu, reading in self._pairs(sample):
            holding = self._holding(gpu, reading)
            self._by_uuid[gpu.uuid].end(t, reading, holding, self.started, _fresh(reading, asked))
        self._courses.add(t, self.all, self.started)

    def _meet(self, sample: Sample, t: float = 0.0) -> None:
        """Take note of the GPUs of a sample, ``t`` seconds into the run; one that joins late has no start."""
        if self.origin is None or self.origin.reason != sample.origin.reason:
            self.origin = sample.origin
        if self._attribution is None:
            self._attribution = Attribution(sample.origin)
        new = [pair for pair in self._pairs(sample) if pair[0].uuid not in self._by_uuid]
        for gpu, reading in new:
            self._by_uuid[gpu.uuid] = Track(gpu, reading, self._widest_gap)
            self._by_uuid[gpu.uuid].join(t)
            self._joined[gpu.uuid] = t
        self._courses.widen(len(new))
        if self._attribution.wants_proof:
            in_use = self._uuids_with_context()
            for gpu, reading in self._pairs(sample):
                if gpu.uuid in in_use:
                    self._attribution.confirm(reading)

    def _pairs(self, sample: Sample) -> list[tuple[Gpu, Reading]]:
        return [
            (gpu, reading)
            for gpu, reading in zip(sample.gpus, sample.readings, strict=True)
            if self._wanted is None or gpu.uuid in self._wanted
        ]

    def _holding(self, gpu: Gpu, reading: Reading) -> Holding:
        assert self._attribution is not None
        return self._attribution.holding(gpu, reading)

    # -- what is shown -------------------------------------------------------------------------------

    @property
    def all(self) -> list[Track]:
        """In the order in which they were first seen."""
        return list(self._by_uuid.values())

    @property
    def attributed(self) -> bool:
        """Whether it can be told which GPUs this process uses."""
        return self._attribution is not None and self._attribution.possible

    @property
    def recorded(self) -> bool:
        """Whether the samples are a recording's."""
        return self.origin is not None and self.origin.recorded

    def shown(self) -> list[Track]:
        """Those that were asked for, else those this process uses, else, where that can't be told, all."""
        if self._wanted is not None or not self.attributed:
            return self.all
        in_use = self._uuids_with_context()
        return [track for track in self.all if track.used_by_us or track.gpu.uuid in in_use]

    def recent(self, t: float) -> list[tuple[Track, float]]:
        """Of those shown, what they read lately, and over how many seconds, ``t`` seconds into the run."""
        found = [self._recent.get(track.gpu.uuid) for track in self.shown()]
        return [recent.track(t) for recent in found if recent is not None]

    def course(self) -> tuple[tuple[float, ...], dict[str, GpuCourse]]:
        """Seconds since the run's start, rising, and the courses of all GPUs by UUID."""
        t, courses = self._courses.points()
        return t, dict(zip(self._by_uuid, courses, strict=True))

    def devices(self) -> tuple[TorchDevice, ...]:
        """torch's, where they may be these GPUs."""
        # A recording of this very machine has its UUIDs: what torch holds now is no part of it.
        return () if self.recorded else cuda_state.devices()

    def torch_names(self) -> dict[str, str]:
        """``cuda:N`` by UUID, of the GPUs that torch sees."""
        return {
            uuid: device.name
            for device in self.devices()
            for uuid in self._by_uuid
            if cuda_state.same_gpu(uuid, device.uuid)
        }

    def _uuids_with_context(self) -> set[str]:
        with_context = set(cuda_state.devices_with_context())
        devices = [device for device in self.devices() if device.index in with_context]
        return {
            uuid for uuid in self._by_uuid for device in devices if cuda_state.same_gpu(uuid, device.uuid)
        }


def _fresh(reading: Reading, asked: float) -> bool:
    return reading.measured is not None and reading.measured >= asked
