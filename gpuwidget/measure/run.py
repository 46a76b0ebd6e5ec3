"""One measured run, from its start to its report."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from gpuwidget import processes, torch_state, torch_switches
from gpuwidget.clock import SYSTEM_CLOCK, Clock
from gpuwidget.history import Course
from gpuwidget.measure import notes
from gpuwidget.measure.advice import advise
from gpuwidget.measure.advice.facts import NOTHING_KNOWN, Facts, Surroundings, own_gpus
from gpuwidget.measure.advice.live import LiveAdvice
from gpuwidget.measure.attribution import Attribution, Holding
from gpuwidget.measure.choice import choose
from gpuwidget.measure.marks import Marks
from gpuwidget.measure.printed import PRINTED
from gpuwidget.measure.progress import GpuProgress, Progress
from gpuwidget.measure.recent import Recent
from gpuwidget.measure.report import (
    REPORT_SCHEMA,
    Advice,
    CellFacts,
    CodeTime,
    Environment,
    GpuReport,
    GpuTimeline,
    Report,
    SourceFacts,
    Span,
    Status,
    Timeline,
)
from gpuwidget.measure.tail import wait_for_gpu
from gpuwidget.measure.torch_memory import NO_LIST, UNCHANGED, returnable, torch_memory
from gpuwidget.measure.track import Track
from gpuwidget.measure.witness import TimeWitness, Witness
from gpuwidget.sampler import INTERVAL_S, Sampler, Subscription
from gpuwidget.samples import Gpu, Origin, Reading, Sample
from gpuwidget.torch_state import LEDGER, Account, DeviceAccount, TorchDevice

OPEN_TIMEOUT_S = 5.0
"""How long a run's start waits for the driver to be opened; the sampler opens it well before as a rule."""
ANSWER_TIMEOUT_S = 0.25
"""How long a run's start and end wait for a fresh reading; a GPU that does not answer by then has none."""
_MEMORY_INTERVAL_S = 0.1
_COUNTERS_RESET = "code in this run reset torch's counters"
_WIDEST_GAP_S = 1.0
_LONGEST_MARK = 200
_NOT_SAMPLED = "The NVIDIA driver did not answer in time."
_SERIES = (False, True, False, False)
"""Of utilization, memory, power and SM activity, memory keeps its highest value in a merged bin."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How a run is measured."""

    gpus: tuple[str, ...] = ()
    """Indices, UUIDs (or prefixes) or ``cuda:N`` of the GPUs to report; empty for all."""
    interval_s: float = INTERVAL_S
    """Seconds between samples."""
    sync: bool = True
    """Whether to wait at the end for the GPU to finish, and say how long that took."""


class Run:
    """Measures from :meth:`start` to :meth:`end`, then gives its :meth:`report`; used once, by one thread.

    None of them raises, whatever the driver or torch do: what could not be known is None in the report.
    """

    def __init__(
        self,
        sampler: Sampler,
        options: RunOptions = RunOptions(),
        *,
        label: str | None = None,
        execution_count: int | None = None,
        report_type: type[Report] = Report,
        witnesses: Sequence[Witness] = (),
        surroundings: Callable[[Report], Surroundings] | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """``surroundings`` says at the end what advice may rest on beside the run's own figures."""
        self._sampler = sampler
        self._options = options
        self._label = label
        self._execution_count = execution_count
        self._report_type = report_type
        self._witnesses = witnesses
        self._surroundings = surroundings
        self._live_advice = LiveAdvice()
        self._clock = clock
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._marks = Marks()
        self._tracks: dict[str, Track] = {}
        self._recent: dict[str, Recent] = {}
        self._joined: dict[str, float] = {}
        self._course: Course | None = None
        self._origin: Origin | None = None
        self._attribution: Attribution | None = None
        self._wanted: frozenset[str] | None = None
        self._account: Account | None = None
        self._contexts: frozenset[int] = frozenset()
        self._subscription: Subscription | None = None
        self._running = False
        self._sampling = False
        self._cell: CellFacts | None = None
        self.wait_interrupted = False
        # Until it starts, whatever was read belongs to the time before.
        self._started = float("inf")
        self._began = 0.0
        self._host = Span(None, None, None)
        self._host_peak: int | None = None
        self._host_mark: int | None = None
        self._host_due = 0.0
        self._last_row = 0.0
        self._widest_gap = max(_WIDEST_GAP_S, 3 * options.interval_s)

    # -- while it runs -------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin; the last thing it does is to take the time.

        Raises OptionError for GPUs that don't exist, with nothing begun.
        """
        try:
            self._prepare()
        except BaseException:
            self.abandon()
            raise
        self._tell_witnesses(lambda witness: witness.start())
        self._started = self._clock.time()
        self._began = self._clock.monotonic()
        self._running = self._sampling = True

    def _prepare(self) -> None:
        self._subscription = self._sampler.subscribe(
            self._on_sample,
            interval_s=self._options.interval_s,
            memory_interval_s=min(_MEMORY_INTERVAL_S, self._options.interval_s),
            activity=True,
        )
        self._sampler.wait_until_open(OPEN_TIMEOUT_S)
        asked = self._clock.time()
        self._begin(self._sampler.read_now(ANSWER_TIMEOUT_S), asked)
        self._account = LEDGER.open()
        PRINTED.listen(self._on_line)
        resident = processes.resident_memory()
        self._host = Span(resident, None, None)
        self._host_peak = resident
        self._host_mark = processes.peak_resident_memory()

    def _begin(self, sample: Sample | None, asked: float) -> None:
        self._contexts = frozenset(torch_state.devices_with_context())
        if sample is None:
            return
        if self._options.gpus:
            self._wanted = frozenset(choose(self._options.gpus, sample.gpus))
        self._meet(sample)
        for gpu, reading in self._pairs(sample):
            fresh = reading.measured is not None and reading.measured >= asked
            self._tracks[gpu.uuid].begin(reading, self._holding(gpu, reading), fresh)
        self._add_to_course(0.0)

    def mark(self, label: str) -> None:
        """Put a mark on the timeline."""
        if self._running and os.getpid() == self._process:
            self._marks.mark(self._clock.monotonic() - self._began, str(label)[:_LONGEST_MARK])

    def progress(self) -> Progress:
        """The run so far, for a live chart; may be called from any thread."""
        with self._lock:
            tracks = self._shown_tracks()
            t, series = self._course.points() if self._course is not None else ((), ())
            names = self._torch_names()
            elapsed = self._clock.monotonic() - self._began
            return Progress(
                elapsed_s=elapsed,
                origin=self._origin,
                attributed=self._attributed,
                t=t,
                gpus=tuple(
                    GpuProgress(
                        gpu=track.gpu,
                        reading=track.reading,
                        torch_device=names.get(track.gpu.uuid),
                        process_memory=track.process_memory_now,
                        utilization=series[place],
                        device_memory=series[place + 1],
                    )
                    for place, track in ((self._place(track), track) for track in tracks)
                ),
                marks=self._marks.all(),
                advice=self._advice_so_far(elapsed),
            )

    def _advice_so_far(self, elapsed: float) -> Advice | None:
        with suppress(Exception):
            return self._live_advice.at(elapsed, lambda: self._recent_facts(elapsed))
        return None

    def _recent_facts(self, elapsed: float) -> Facts:
        devices = self._devices()
        gpus, seconds = [], 0.0
        shown = [one for one in self._shown_tracks() if one.gpu.uuid in self._recent]
        for one in shown:
            track, seconds = self._recent[one.gpu.uuid].track(elapsed)
            gpus.append(self._gpu_report(track, seconds, True, devices, {}, {}))
        # The user's variables are not looked at while their code runs.
        around = Surroundings(
            switches=torch_switches.switches(),
            cuda_up=torch_state.cuda_initialized(),
        )
        return Facts(
            gpus=own_gpus(gpus, self._attributed),
            seen=len(self._tracks),
            attributed=self._attributed,
            duration_s=elapsed,
            gpu_s=seconds,
            time=self._time_so_far(),
            around=around,
            recorded=self._recorded,
        )

    def _time_so_far(self) -> CodeTime | None:
        witness = next((one for one in self._witnesses if isinstance(one, TimeWitness)), None)
        return witness.so_far() if witness is not None else None

    # -- its end -------------------------------------------------------------------------------------

    def end(self, status: Status = "ok") -> None:
        """Take the time, then wait for the GPU to finish where that is wanted and nothing went wrong.

        An interrupt ends that wait and shows in :attr:`wait_interrupted`.
        """
        ended = self._clock.monotonic()
        if os.getpid() != self._process or not self._running:
            return
        self._running = False
        self._tell_witnesses(lambda witness: witness.stop())
        PRINTED.leave(self._on_line)
        tail = None
        if self._options.sync and status == "ok":
            tail, self.wait_interrupted = wait_for_gpu(self._clock)
        self._cell = CellFacts(
            self._execution_count, self._label, self._started, ended - self._began, tail, status
        )

    def report(self) -> Report | None:
        """What was measured, once, after :meth:`end`. None in a child that was forked during the run."""
        cell, self._cell = self._cell, None
        if cell is None or os.getpid() != self._process:
            return None
        try:
            report = self._measured(cell)
            for witness in self._witnesses:
                with suppress(Exception):
                    report = witness.testify(report)
            with suppress(Exception):
                return self._advised(report)
            return report
        finally:
            self.abandon()

    def _advised(self, report: Report) -> Report:
        around = NOTHING_KNOWN
        if self._surroundings is not None:
            with suppress(Exception):
                around = self._surroundings(report)
        return replace(report, advice=advise(Facts.of(report, around)))

    def _measured(self, cell: CellFacts) -> Report:
        asked = self._clock.time()
        sample = self._sampler.read_now(ANSWER_TIMEOUT_S)
        t = self._clock.monotonic() - self._began
        accounts = LEDGER.close(self._account) if self._account is not None else {}
        with self._lock:
            self._sampling = False
            if sample is not None:
                self._meet(sample, t)
                for gpu, reading in self._pairs(sample):
                    fresh = reading.measured is not None and reading.measured >= asked
                    holding = self._holding(gpu, reading)
                    self._tracks[gpu.uuid].end(t, reading, holding, self._started, fresh)
                self._add_to_course(t)
        # Without the lock: the sampler's thread does not wait for torch.
        can_go_back = returnable(accounts)
        with self._lock:
            self._settle_host_memory()
            return self._report(cell, t, accounts, can_go_back)

    def abandon(self) -> None:
        """End without a report; safe to call at any time, and twice."""
        self._running = self._sampling = False
        PRINTED.leave(self._on_line)
        if self._subscription is not None:
            self._subscription.close()
        if self._account is not None:
            LEDGER.drop(self._account)
        self._tell_witnesses(lambda witness: witness.abandon())

    def _tell_witnesses(self, what: Callable[[Witness], None]) -> None:
        for witness in self._witnesses:
            with suppress(Exception):
                what(witness)

    # -- samples -------------------------------------------------------------------------------------

    def _on_sample(self, sample: Sample) -> None:
        if not self._sampling:
            return
        LEDGER.listen()
        t = self._clock.monotonic() - self._began
        with self._lock:
            # The end may have come in between: what it has read is the last word.
            if not self._sampling:
                return
            self._meet(sample, t)
            for gpu, reading in self._pairs(sample):
                holding, track = self._holding(gpu, reading), self._tracks[gpu.uuid]
                recent = self._recent.get(gpu.uuid)
                if recent is None:  # not at the start, which a short cell waits for
                    began = self._joined[gpu.uuid]
                    recent = self._recent[gpu.uuid] = Recent(gpu, track.reading, self._widest_gap, began)
                track.add(t, reading, holding, self._started)
                recent.add(t, reading, holding, self._started)
            self._add_to_course(t)
            if t >= self._host_due:
                self._host_due = t + self._options.interval_s
                resident = processes.resident_memory()
                if resident is not None and (self._host_peak is None or resident > self._host_peak):
                    self._host_peak = resident

    def _on_line(self, line: str) -> None:
        if self._running and os.getpid() == self._process:
            self._marks.printed(self._clock.monotonic() - self._began, line)

    def _meet(self, sample: Sample, t: float = 0.0) -> None:
        """Take note of the GPUs of a sample, ``t`` seconds into the run; one that joins late has no start."""
        if self._origin is None or self._origin.reason != sample.origin.reason:
            self._origin = sample.origin
        if self._attribution is None:
            self._attribution = Attribution(sample.origin)
        new = [pair for pair in self._pairs(sample) if pair[0].uuid not in self._tracks]
        for gpu, reading in new:
            self._tracks[gpu.uuid] = Track(gpu, reading, self._widest_gap)
            self._tracks[gpu.uuid].join(t)
            self._joined[gpu.uuid] = t
        if new and self._course is None:
            self._course = Course((), spacing_s=_MEMORY_INTERVAL_S / 2)
        if new and self._course is not None:
            self._course.widen(_SERIES * len(new))
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

    def _place(self, track: Track) -> int:
        return list(self._tracks.values()).index(track) * len(_SERIES)

    def _add_to_course(self, t: float) -> None:
        if self._course is None:
            return
        if t - self._last_row > self._widest_gap:
            # A gap is no straight line from what was before it to what came after.
            self._course.add((t + self._last_row) / 2, (None,) * len(_SERIES) * len(self._tracks))
        self._last_row = t
        row: list[float | None] = []
        for track in self._tracks.values():
            reading = track.reading
            # What the driver said of a window before the run is no part of the run's course.
            window = reading.utilization_window or INTERVAL_S
            inside = reading.measured is not None and reading.measured >= self._started + window
            activity = reading.activity
            sm = activity.sm if activity is not None and activity.since >= self._started else None
            utilization = reading.utilization if inside else None
            row += (utilization, reading.memory_used, reading.power_w, sm)
        self._course.add(t, row)

    # -- what is shown -------------------------------------------------------------------------------

    @property
    def _attributed(self) -> bool:
        return self._attribution is not None and self._attribution.possible

    @property
    def _recorded(self) -> bool:
        return self._origin is not None and self._origin.kind == "replay"

    def _shown_tracks(self) -> list[Track]:
        tracks = list(self._tracks.values())
        if self._wanted is not None or not self._attributed:
            return tracks
        in_use = self._uuids_with_context()
        return [track for track in tracks if track.used_by_us or track.gpu.uuid in in_use]

    def _devices(self) -> tuple[TorchDevice, ...]:
        # A recording of this very machine has its UUIDs: what torch holds now is no part of it.
        return () if self._recorded else torch_state.devices()

    def _uuids_with_context(self) -> set[str]:
        with_context = set(torch_state.devices_with_context())
        devices = [device for device in self._devices() if device.index in with_context]
        return {
            uuid for uuid in self._tracks for device in devices if torch_state.same_gpu(uuid, device.uuid)
        }

    def _torch_names(self) -> dict[str, str]:
        return {
            uuid: device.name
            for device in self._devices()
            for uuid in self._tracks
            if torch_state.same_gpu(uuid, device.uuid)
        }

    def _settle_host_memory(self) -> None:
        end = processes.resident_memory()
        peak = max((value for value in (self._host_peak, end) if value is not None), default=None)
        mark = processes.peak_resident_memory()
        if mark is not None and self._host_mark is not None and mark > self._host_mark:
            # The process's high-water mark rose during the run: that is the exact peak.
            peak = mark
        self._host = Span(self._host.start, end, peak)

    # -- the report ----------------------------------------------------------------------------------

    def _report(
        self,
        cell: CellFacts,
        t: float,
        accounts: dict[int, DeviceAccount],
        can_go_back: Mapping[int, int | None],
    ) -> Report:
        devices = self._devices()
        shown = {track.gpu.uuid for track in self._shown_tracks()}
        gpus = tuple(
            self._gpu_report(track, t, track.gpu.uuid in shown, devices, accounts, can_go_back)
            for track in self._tracks.values()
        )
        origin = self._origin
        versions = torch_state.versions()
        return self._report_type(
            schema=REPORT_SCHEMA,
            source=SourceFacts(
                kind=origin.kind if origin is not None else "none",
                reason=origin.reason if origin is not None else _NOT_SAMPLED,
                recording=origin.recording if origin is not None else None,
            ),
            environment=Environment(
                driver=origin.driver if origin is not None else None,
                cuda_driver=origin.cuda_driver if origin is not None else None,
                torch=versions.torch,
                cuda=versions.cuda,
                cudnn=versions.cudnn,
                default_device=versions.default_device,
            ),
            cell=cell,
            host_memory=self._host,
            gpus=gpus,
            attributed=self._attributed,
            timeline=self._timeline(shown),
            notes=tuple(self._notes(gpus, devices)),
            time=None,
            advice=(),
            holders=(),
            lines=(),
            energy_idle_j=self._idle_energy(t),
        )

    def _idle_energy(self, t: float) -> float | None:
        idle = [track.energy_idle(t) for track in self._shown_tracks()]
        return sum(one for one in idle if one is not None) if idle and None not in idle else None

    def _gpu_report(
        self,
        track: Track,
        t: float,
        shown: bool,
        devices: Sequence[TorchDevice],
        accounts: dict[int, DeviceAccount],
        can_go_back: Mapping[int, int | None],
    ) -> GpuReport:
        gpu = track.gpu
        device = next((d for d in devices if torch_state.same_gpu(gpu.uuid, d.uuid)), None)
        account = accounts.get(device.index) if device is not None else None
        process_memory = track.process_memory()
        torch = None
        if device is not None and account is not None:
            torch = torch_memory(account, can_go_back.get(device.index))
            if torch.returnable is None:
                track.missing["returnable"] = NO_LIST if device.index in can_go_back else UNCHANGED
            if None in (torch.alloc_retries, torch.ooms):
                track.missing["alloc_retries"] = track.missing["ooms"] = _COUNTERS_RESET
        else:
            track.missing["torch"] = self._why_no_torch()
        if gpu.memory_reserved is None:
            track.missing["memory_reserved"] = "what the driver keeps for itself is not known"
        report = GpuReport(
            uuid=gpu.uuid,
            index=gpu.index,
            mig_index=gpu.mig_index,
            name=gpu.name,
            torch_device=device.name if device is not None else None,
            mig_parent=gpu.mig_parent,
            memory_total=gpu.memory_total,
            memory_reserved=gpu.memory_reserved,
            shown=shown,
            device_memory=track.device_memory(),
            process_memory=process_memory,
            torch=torch,
            utilization=track.utilization(t),
            bursts=track.bursts,
            memory_utilization=track.memory_utilization(t),
            sm_activity=track.activity("sm_activity", t),
            sm_occupancy=track.activity("sm_occupancy", t),
            tensor_activity=track.activity("tensor_activity", t),
            fp32_activity=track.activity("fp32_activity", t),
            dram_activity=track.activity("dram_activity", t),
            pcie=track.traffic("pcie"),
            nvlink=track.traffic("nvlink"),
            power_w=track.power(t),
            power_limit_w=track.power_limit(),
            throttled=track.throttled(),
            energy_j=track.energy(t),
            lost_since=track.lost_since,
            missing=track.missing,
            children=notes.commands(track.children.values()),
        )
        if process_memory is not None and None not in (process_memory.start, process_memory.end):
            track.missing.pop("process_memory", None)
        return report

    def _why_no_torch(self) -> str:
        if self._recorded:
            return "what torch holds here is no part of a recording"
        return torch_state.missing_reason() or "torch does not see this GPU"

    def _timeline(self, shown: set[str]) -> Timeline:
        t, series = self._course.points() if self._course is not None else ((), ())
        return Timeline(
            t=t,
            marks=self._marks.all(),
            gpus=tuple(
                GpuTimeline(
                    uuid=track.gpu.uuid,
                    utilization=series[place],
                    device_memory=_whole(series[place + 1]),
                    power_w=series[place + 2],
                    sm_activity=series[place + 3],
                )
                for place, track in ((self._place(track), track) for track in self._tracks.values())
                if track.gpu.uuid in shown
            ),
        )

    def _notes(self, gpus: Sequence[GpuReport], devices: Sequence[TorchDevice]) -> list[str]:
        found: list[str] = []
        begun = {f"cuda:{index}" for index in torch_state.devices_with_context()}
        begun -= {f"cuda:{index}" for index in self._contexts}
        for gpu in gpus:
            track = self._tracks[gpu.uuid]
            if gpu.torch_device in begun or (track.own_at_start is False and track.own):
                found.append(notes.first_context(gpu))
            if gpu.lost_since is not None:
                found.append(notes.lost(gpu))
            elif track.came_back:
                found.append(notes.came_back(gpu))
        tracks = [self._tracks[gpu.uuid] for gpu in gpus]
        found += notes.children(
            [(gpu, track.children, track.own) for gpu, track in zip(gpus, tracks, strict=True)]
        )
        if self._account is not None:
            named = {gpu.torch_device: notes.gpu_name(gpu) for gpu in gpus}
            names = {device.index: named.get(device.name, device.name) for device in devices}
            found += notes.peak_resets(self._account, names)
        if not self._attributed and self._origin is not None:
            sentence = notes.unattributed(gpus, self._origin)
            found += [sentence] if sentence is not None else []
        return found + self._marks.left_out()


def _whole(values: Sequence[float | None]) -> tuple[int | None, ...]:
    return tuple(None if value is None else int(value) for value in values)
