"""One measured run, from its start to its report."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from gpuwidget.measure import notes
from gpuwidget.measure.advice import advise
from gpuwidget.measure.advice.evidence import NOTHING_KNOWN, Facts, Surroundings, own_gpus
from gpuwidget.measure.advice.live import LiveAdvice
from gpuwidget.measure.collector import TimeWitness, Witness
from gpuwidget.measure.gpu_drain import wait_for_gpu
from gpuwidget.measure.gpu_reports import GpuReports
from gpuwidget.measure.printed_lines import PRINTED
from gpuwidget.measure.progress import GpuProgress, Progress
from gpuwidget.measure.resident_memory import ResidentMemory
from gpuwidget.measure.run_gpus import Tracks
from gpuwidget.measure.time_series import MEMORY_INTERVAL_S
from gpuwidget.measure.timeline_marks import Marks
from gpuwidget.measure.torch_memory import returnable
from gpuwidget.model.clock import SYSTEM_CLOCK, Clock
from gpuwidget.model.fork import reset_after_fork
from gpuwidget.model.report import (
    REPORT_SCHEMA,
    Advice,
    CodeTime,
    GpuReport,
    GpuTimeline,
    Report,
    RunInfo,
    SoftwareVersions,
    SourceInfo,
    Span,
    Status,
    Timeline,
)
from gpuwidget.model.samples import Sample
from gpuwidget.pytorch import cuda_state, torch_switches
from gpuwidget.pytorch.cuda_state import LEDGER, Account, DeviceAccount, TorchDevice
from gpuwidget.sampler import INTERVAL_S, Sampler, Subscription

OPEN_TIMEOUT_S = 5.0
"""How long a run's start waits for the driver to be opened; the sampler opens it well before as a rule."""
ANSWER_TIMEOUT_S = 0.25
"""How long a run's start and end wait for a fresh reading; a GPU that does not answer by then has none."""
_WIDEST_GAP_S = 1.0
_LONGEST_MARK = 200
_NOT_SAMPLED = "The NVIDIA driver did not answer in time."


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
        reset_after_fork(self._reset_in_child)
        self._lock = threading.Lock()
        self._marks = Marks()
        self._tracks = Tracks(max(_WIDEST_GAP_S, 3 * options.interval_s))
        self._memory = ResidentMemory(options.interval_s)
        self._account: Account | None = None
        self._contexts: frozenset[int] = frozenset()
        self._subscription: Subscription | None = None
        self._running = False
        self._sampling = False
        self._cell: RunInfo | None = None
        self.wait_interrupted = False
        self._began = 0.0

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
        self._tracks.started = self._clock.time()
        self._began = self._clock.monotonic()
        self._running = self._sampling = True

    def _prepare(self) -> None:
        self._subscription = self._sampler.subscribe(
            self._on_sample,
            interval_s=self._options.interval_s,
            memory_interval_s=min(MEMORY_INTERVAL_S, self._options.interval_s),
            activity=True,
        )
        self._sampler.wait_until_open(OPEN_TIMEOUT_S)
        asked = self._clock.time()
        sample = self._sampler.read_now(ANSWER_TIMEOUT_S)
        self._contexts = frozenset(cuda_state.devices_with_context())
        if sample is not None:
            self._tracks.begin(sample, asked, self._options.gpus)
        self._account = LEDGER.open()
        PRINTED.listen(self._on_line)
        self._memory.begin()

    def mark(self, label: str) -> None:
        """Put a mark on the timeline."""
        if self._running:
            self._marks.mark(self._clock.monotonic() - self._began, str(label)[:_LONGEST_MARK])

    def progress(self) -> Progress:
        """The run so far, for a live chart; may be called from any thread."""
        with self._lock:
            tracks = self._tracks
            t, courses = tracks.course()
            names = tracks.torch_names()
            elapsed = self._clock.monotonic() - self._began
            return Progress(
                elapsed_s=elapsed,
                origin=tracks.origin,
                attributed=tracks.attributed,
                t=t,
                gpus=tuple(
                    GpuProgress(
                        gpu=track.gpu,
                        reading=track.reading,
                        torch_device=names.get(track.gpu.uuid),
                        process_memory=track.process_memory_now,
                        utilization=courses[track.gpu.uuid].utilization,
                        device_memory=courses[track.gpu.uuid].memory_used,
                    )
                    for track in tracks.shown()
                ),
                marks=self._marks.all(),
                advice=self._advice_so_far(elapsed),
            )

    def _advice_so_far(self, elapsed: float) -> Advice | None:
        with suppress(Exception):
            return self._live_advice.at(elapsed, lambda: self._recent_facts(elapsed))
        return None

    def _recent_facts(self, elapsed: float) -> Facts:
        tracks = self._tracks
        reports = GpuReports(tracks.devices(), {}, {}, recorded=tracks.recorded)
        gpus, seconds = [], 0.0
        for track, seconds in tracks.recent(elapsed):
            gpus.append(reports.of(track, seconds, shown=True))
        # The user's variables are not looked at while their code runs.
        around = Surroundings(
            switches=torch_switches.switches(),
            cuda_up=cuda_state.cuda_initialized(),
        )
        return Facts(
            gpus=own_gpus(gpus, tracks.attributed),
            seen=len(tracks.all),
            attributed=tracks.attributed,
            duration_s=elapsed,
            gpu_s=seconds,
            time=self._time_so_far(),
            around=around,
            recorded=tracks.recorded,
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
        if not self._running:
            return
        self._running = False
        self._tell_witnesses(lambda witness: witness.stop())
        PRINTED.leave(self._on_line)
        tail = None
        if self._options.sync and status == "ok":
            tail, self.wait_interrupted = wait_for_gpu(self._clock)
        self._cell = RunInfo(
            self._execution_count, self._label, self._tracks.started, ended - self._began, tail, status
        )

    def _reset_in_child(self) -> None:
        # The run belongs to the parent: the child measures and reports nothing of it.
        self._running = False
        self._cell = None

    def report(self) -> Report | None:
        """What was measured, once, after :meth:`end`. None in a child that was forked during the run."""
        cell, self._cell = self._cell, None
        if cell is None:
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

    def _measured(self, cell: RunInfo) -> Report:
        asked = self._clock.time()
        sample = self._sampler.read_now(ANSWER_TIMEOUT_S)
        t = self._clock.monotonic() - self._began
        accounts = LEDGER.close(self._account) if self._account is not None else {}
        with self._lock:
            self._sampling = False
            if sample is not None:
                self._tracks.end(t, sample, asked)
        # Without the lock: the sampler's thread does not wait for torch.
        can_go_back = returnable(accounts)
        with self._lock:
            return self._report(cell, t, self._memory.end(), accounts, can_go_back)

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
            self._tracks.add(t, sample)
            self._memory.add(t)

    def _on_line(self, line: str) -> None:
        if self._running:
            self._marks.printed(self._clock.monotonic() - self._began, line)

    # -- the report ----------------------------------------------------------------------------------

    def _report(
        self,
        cell: RunInfo,
        t: float,
        host_memory: Span,
        accounts: dict[int, DeviceAccount],
        can_go_back: Mapping[int, int | None],
    ) -> Report:
        tracks = self._tracks
        devices = tracks.devices()
        reports = GpuReports(devices, accounts, can_go_back, recorded=tracks.recorded)
        shown = {track.gpu.uuid for track in tracks.shown()}
        gpus = tuple(reports.of(track, t, shown=track.gpu.uuid in shown) for track in tracks.all)
        origin = tracks.origin
        versions = cuda_state.versions()
        return self._report_type(
            schema=REPORT_SCHEMA,
            source=SourceInfo(
                kind=origin.kind if origin is not None else "none",
                reason=origin.reason if origin is not None else _NOT_SAMPLED,
                recording=origin.recording if origin is not None else None,
            ),
            environment=SoftwareVersions(
                driver=origin.driver if origin is not None else None,
                cuda_driver=origin.cuda_driver if origin is not None else None,
                torch=versions.torch,
                cuda=versions.cuda,
                cudnn=versions.cudnn,
                default_device=versions.default_device,
            ),
            cell=cell,
            host_memory=host_memory,
            gpus=gpus,
            attributed=tracks.attributed,
            timeline=self._timeline(shown),
            notes=tuple(self._notes(gpus, devices)),
            time=None,
            advice=(),
            holders=(),
            lines=(),
            energy_idle_j=self._idle_energy(t),
        )

    def _idle_energy(self, t: float) -> float | None:
        idle = [track.energy_idle(t) for track in self._tracks.shown()]
        return sum(one for one in idle if one is not None) if idle and None not in idle else None

    def _timeline(self, shown: set[str]) -> Timeline:
        t, courses = self._tracks.course()
        return Timeline(
            t=t,
            marks=self._marks.all(),
            gpus=tuple(
                GpuTimeline(
                    uuid=uuid,
                    utilization=course.utilization,
                    device_memory=_whole(course.memory_used),
                    power_w=course.power_w,
                    sm_activity=course.sm_activity,
                )
                for uuid, course in courses.items()
                if uuid in shown
            ),
        )

    def _notes(self, gpus: Sequence[GpuReport], devices: Sequence[TorchDevice]) -> list[str]:
        tracks = self._tracks
        begun = {
            f"cuda:{index}" for index in cuda_state.devices_with_context() if index not in self._contexts
        }
        found = notes.of_gpus(list(zip(gpus, tracks.all, strict=True)), begun)
        if self._account is not None:
            named = {gpu.torch_device: notes.gpu_name(gpu) for gpu in gpus}
            names = {device.index: named.get(device.name, device.name) for device in devices}
            found += notes.peak_resets(self._account, names)
        if not tracks.attributed and tracks.origin is not None:
            sentence = notes.unattributed(gpus, tracks.origin)
            found += [sentence] if sentence is not None else []
        return found + self._marks.left_out()


def _whole(values: Sequence[float | None]) -> tuple[int | None, ...]:
    return tuple(None if value is None else int(value) for value in values)
