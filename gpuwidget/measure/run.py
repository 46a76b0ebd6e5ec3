"""Measure one run, from its start to its report."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

from gpuwidget import pytorch
from gpuwidget.measure import notes
from gpuwidget.measure.advice import LiveAdvice, advise
from gpuwidget.measure.advice.evidence import NO_CONTEXT, RunContext, RunEvidence, SteadyPart, own_gpus
from gpuwidget.measure.collector import Collector, TimeCollector
from gpuwidget.measure.printed_lines import PRINTED_LINES
from gpuwidget.measure.progress import GpuProgress, Progress
from gpuwidget.measure.resident_memory import ResidentMemory
from gpuwidget.measure.run_gpus import RunGpus
from gpuwidget.measure.run_options import DEFAULT_OPTIONS, RunOptions
from gpuwidget.measure.run_report import NOT_SAMPLED, GpuReportBuilder, build_report, empty_report
from gpuwidget.measure.steady_state import steady_mark
from gpuwidget.measure.timeline import MAX_POINTS, MEMORY_INTERVAL_S, TimelineMarks
from gpuwidget.measure.torch_memory import returnable
from gpuwidget.measure.worker_updates import WORKER_UPDATES
from gpuwidget.model.boundary import Boundary, error_line
from gpuwidget.model.clock import SYSTEM_CLOCK, Clock
from gpuwidget.model.errors import OptionError
from gpuwidget.model.fork import reset_after_fork
from gpuwidget.model.messages import Message
from gpuwidget.model.report import Advice, CodeTime, Report, RunInfo, Span, Status
from gpuwidget.model.samples import Sample
from gpuwidget.model.torch_state import DevicePeaks
from gpuwidget.model.translation import translatable
from gpuwidget.model.worker_update import WorkerUpdate
from gpuwidget.pytorch import DEVICE_CHANGES, PEAK_TRACKER, DeviceChangeScope, PeakScope
from gpuwidget.sampler import NO_THREAD, Sampler, Subscription

_LOG = logging.getLogger(__name__)

_GPUS = translatable("the GPUs")
_TORCH_MEMORY = translatable("torch's memory")
_DEVICES = translatable("devices that your code selected")
_LINES = translatable("printed lines")
_WORKERS = translatable("worker processes")
_HOST_MEMORY = translatable("the memory of this process")
_GPU_WAIT = translatable("how long the GPU continued")
_STEADY = translatable("the workers' steady part")
_ADVICE = translatable("advice")
_EVERYTHING = translatable("the run")

START_TIMEOUT_S = 0.5
"""Maximum seconds for which a run's start waits until the driver is open. The sampler usually opens it well
before a run. If the driver is open later, the start values are unknown."""
ANSWER_TIMEOUT_S = 0.25
"""Maximum seconds for which a run's start and end each wait for a fresh reading. If a GPU responds later, its
start or end values are unknown."""
_MAX_GAP_S = 1.0
_MAX_MARK_LENGTH = 200


class Run:
    """Measures from :meth:`start` to :meth:`end`, then returns a :meth:`report`.

    A run can be used only once, by one thread. No method raises because of the driver, torch or a defect of
    gpuwidget: a value that could not be measured is None in the report, and a note says what failed.
    """

    def __init__(
        self,
        sampler: Sampler,
        options: RunOptions = DEFAULT_OPTIONS,
        *,
        label: str | None = None,
        execution_count: int | None = None,
        report_type: type[Report] = Report,
        collectors: Sequence[Collector] = (),
        run_context: Callable[[Report], RunContext] | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """``run_context`` is called at the run's end and returns further facts that the advice rules need."""
        self._sampler = sampler
        self._options = options
        self._label = label
        self._execution_count = execution_count
        self._report_type = report_type
        self._collectors = collectors
        self._run_context = run_context
        self._live_advice = LiveAdvice()
        self._clock = clock
        reset_after_fork(self._reset_in_child)
        self._lock = threading.Lock()
        self._marks = TimelineMarks()
        self._memory_interval_s = min(MEMORY_INTERVAL_S, options.interval_s)
        self._gpus = RunGpus(max(_MAX_GAP_S, 3 * options.interval_s), options.gpus)
        self._memory = ResidentMemory(options.interval_s)
        self._peak_scope: PeakScope | None = None
        self._device_changes: DeviceChangeScope | None = None
        self._contexts_before: frozenset[int] = frozenset()
        self._subscription: Subscription | None = None
        self._running = False
        self._sampling = False
        self._later: list[tuple[float, Callable[[], None]]] = []
        """Functions to call, each with the seconds of the run after which it is called."""
        self._cell: RunInfo | None = None
        self._steady: SteadyPart | None = None
        self._failures: dict[str, BaseException] = {}
        """The error by what could not be measured because of it."""
        self.wait_interrupted = False
        self._began = 0.0

    # -- during the run ------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the run. The run's time begins as the last step of this method.

        Raise OptionError for selected GPUs that don't exist; in that case the run has not started. If the
        driver does not answer in time, the run starts, and its GPUs are measured as soon as they are known.
        """
        try:
            self._prepare()
        except BaseException:
            self.abandon()
            raise
        self._for_each_collector(lambda collector: collector.start())
        self._gpus.started = self._clock.time()
        self._began = self._clock.monotonic()
        self._running = self._sampling = True

    def add_failure(self, what: str, error: BaseException) -> None:
        """Note in the report that ``what`` could not be measured because of ``error``."""
        self._failures.setdefault(what, error)

    def _measuring(self, what: str, *, passing: tuple[type[BaseException], ...] = ()) -> Boundary:
        """Return a boundary around the measurement of ``what``. It does not stop the types in ``passing``."""

        def failed(error: BaseException) -> None:
            self.add_failure(what, error)

        return Boundary(_LOG, f"could not be measured: {what}", failed, passing=passing)

    def _prepare(self) -> None:
        sample = None
        with self._measuring(_GPUS):
            self._subscription = self._sampler.subscribe(
                self._on_sample,
                interval_s=self._options.interval_s,
                memory_interval_s=self._memory_interval_s,
                activity=True,
            )
            self._sampler.wait_until_open(START_TIMEOUT_S)
            requested_at = self._clock.time()
            sample = self._sampler.read_now(ANSWER_TIMEOUT_S)
        with self._measuring(_TORCH_MEMORY):
            self._contexts_before = frozenset(pytorch.devices_with_context())
        if sample is not None:
            # A selected GPU that doesn't exist refuses the run.
            with self._measuring(_GPUS, passing=(OptionError,)):
                self._gpus.begin(sample, requested_at)
        with self._measuring(_TORCH_MEMORY):
            self._peak_scope = PEAK_TRACKER.open()
        if len(self._gpus.all) > 1:
            with self._measuring(_DEVICES):
                self._device_changes = DEVICE_CHANGES.open()
        with self._measuring(_LINES):
            PRINTED_LINES.subscribe(self._on_line, self._marks.clear_printed)
        with self._measuring(_WORKERS):
            WORKER_UPDATES.subscribe(self.add_worker_update)
        with self._measuring(_HOST_MEMORY):
            self._memory.begin()

    def call_after(self, seconds: float, function: Callable[[], None]) -> None:
        """Call ``function`` once, with the first sample after this many seconds, on the sampler's thread.

        Must be called before :meth:`start`. No timer thread is started, because that would delay short runs.
        """
        self._later.append((seconds, function))

    @property
    def running(self) -> bool:
        """Whether the run has started and not ended."""
        return self._running

    def mark(self, label: str) -> None:
        """Add a mark to the timeline."""
        if self._running:
            self._marks.add_mark(self._clock.monotonic() - self._began, str(label)[:_MAX_MARK_LENGTH])

    def add_worker_update(
        self, update: WorkerUpdate, incomplete: Message | None = None, *, gone: bool = False
    ) -> None:
        """Add what a worker reported about itself. May be called from any thread.

        For a Dask worker, ``incomplete`` is why the update does not cover the whole run, or None if it does,
        and ``gone`` is whether the worker has left its cluster.
        """
        # Updates that arrive before the start belong to the time before the run.
        if not self._sampling:
            return
        t = self._clock.monotonic() - self._began
        with self._lock:
            is_new_step = self._gpus.workers.add_update(t, update, incomplete, gone=gone)
        steps, since = update.steps, update.since_step_s
        if is_new_step and update.rank is not None and steps is not None and since is not None:
            self._marks.add_step(max(0.0, t - since), update.rank, steps)

    def progress(self) -> Progress:
        """Return the state of the run so far, for a live chart. May be called from any thread."""
        with self._lock:
            gpus = self._gpus
            t, time_series = gpus.time_series()
            names = gpus.torch_names()
            elapsed = self._clock.monotonic() - self._began
            workers, worker_memory = gpus.workers.now()
            return Progress(
                elapsed_s=elapsed,
                label=self._label,
                origin=gpus.origin,
                attributed=gpus.attributed,
                t=t,
                gpus=tuple(
                    GpuProgress(
                        gpu=totals.gpu,
                        reading=totals.reading,
                        torch_device=names.get(totals.gpu.uuid),
                        process_memory=totals.process_memory_now,
                        utilization=time_series[totals.gpu.uuid].utilization,
                        device_memory=time_series[totals.gpu.uuid].memory_used,
                        so_far=totals.so_far(),
                    )
                    for totals in gpus.shown()
                ),
                workers=workers,
                worker_memory=worker_memory,
                marks=self._marks.all(),
                advice=self._advice_so_far(elapsed),
            )

    def _advice_so_far(self, elapsed: float) -> Advice | None:
        with Boundary(_LOG, "the live chart's advice failed"):
            return self._live_advice.at(elapsed, lambda: self._recent_evidence(elapsed))
        return None

    def _recent_evidence(self, elapsed: float) -> RunEvidence:
        run_gpus = self._gpus
        builder = GpuReportBuilder(run_gpus.devices(), {}, {}, recorded=run_gpus.recorded)
        gpus, seconds = [], 0.0
        for totals, seconds in run_gpus.recent(elapsed):
            gpus.append(builder.build(totals, seconds, shown=True))
        workers = run_gpus.workers.rows(elapsed, [gpu.uuid for gpu in gpus])
        return RunEvidence(
            gpus=own_gpus(gpus, run_gpus.attributed, workers),
            gpu_count=len(run_gpus.all),
            attributed=run_gpus.attributed,
            duration_s=elapsed,
            gpu_s=seconds,
            time=self._time_so_far(),
            # The user's data loaders and models are missing here, because variables are not read while the
            # code runs.
            context=RunContext(
                switches=pytorch.compute_switches(), cuda_initialized=pytorch.cuda_initialized()
            ),
            recorded=run_gpus.recorded,
            workers=workers,
        )

    def _time_so_far(self) -> CodeTime | None:
        collector = self._time_collector
        return collector.snapshot() if collector is not None else None

    def _busy_devices(self) -> frozenset[int]:
        with Boundary(_LOG, "the busy devices are unknown"):
            if (collector := self._time_collector) is not None:
                return collector.busy_devices()
        return frozenset()

    @property
    def _time_collector(self) -> TimeCollector | None:
        found = (collector for collector in self._collectors if isinstance(collector, TimeCollector))
        return next(found, None)

    def report_so_far(self) -> Report | None:
        """Return the report of the run up to now; None unless the run lasts.

        May be called from any thread. The report has no holders and no advice.
        """
        peaks: Mapping[int, DevicePeaks] = {}
        if self._peak_scope is not None:
            peaks = PEAK_TRACKER.peaks(self._peak_scope)
        busy = self._busy_devices()
        with self._lock:
            if not self._sampling:
                return None
            t = self._clock.monotonic() - self._began
            report = build_report(
                self._report_type,
                RunInfo(self._execution_count, self._label, self._gpus.started, t, None, "ok"),
                t,
                self._gpus.so_far_ended(),
                self._marks,
                self._memory.end(),
                self._peak_scope,
                peaks,
                {},
                self._contexts_before,
                busy,
            )
        return replace(report, time=self._time_so_far())

    @property
    def started(self) -> float:
        """When the run began, in epoch seconds. Infinite before the start."""
        return self._gpus.started

    # -- end of the run ------------------------------------------------------------------------------

    def end(
        self,
        status: Status = "ok",
        *,
        wait_context: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        """End the run's time. Then wait for the GPU if the options request it and the code did not fail.

        An interrupt ends the wait for the GPU and sets :attr:`wait_interrupted`. The wait runs in
        ``wait_context()``, with which a caller that ignores interrupts can allow them for the wait.
        """
        ended = self._clock.monotonic()
        if not self._running:
            return
        self._running = False
        self._for_each_collector(lambda collector: collector.stop())
        with self._measuring(_LINES):
            PRINTED_LINES.unsubscribe(self._on_line)
        with self._measuring(_DEVICES):
            if self._device_changes is not None:
                DEVICE_CHANGES.close(self._device_changes)
        drain = None
        if self._options.sync and status == "ok":
            with self._measuring(_GPU_WAIT):
                drain, self.wait_interrupted = _drain_gpu(self._clock, wait_context)
        self._cell = RunInfo(
            self._execution_count, self._label, self._gpus.started, ended - self._began, drain, status
        )

    def _reset_in_child(self) -> None:
        """Stop measuring and reporting in a forked child, because the run belongs to the parent."""
        self._running = False
        self._cell = None

    def report(self) -> Report | None:
        """Return the report on the first call after :meth:`end`, and None on later calls.

        Also return None in a child process that was forked during the run.
        """
        cell, self._cell = self._cell, None
        if cell is None:
            return None
        report = empty_report(self._report_type, cell)
        with self._measuring(_EVERYTHING):
            report = self._measured(cell)
        for collector in self._collectors:
            with self._measuring(collector.measures):
                report = collector.annotate(report)
        with self._measuring(_ADVICE):
            report = self._advised(report)
        with Boundary(_LOG, "a run could not be abandoned"):
            self.abandon()
        if self._failures:
            failures = {what: error_line(error) for what, error in self._failures.items()}
            report = report.with_notes(notes.not_measured(failures))
        return report

    def _advised(self, report: Report) -> Report:
        context = NO_CONTEXT
        if self._run_context is not None:
            with self._measuring(_ADVICE):
                context = self._run_context(report)
        changes = self._device_changes.changes() if self._device_changes is not None else None
        new = frozenset(pytorch.devices_with_context()) - self._contexts_before
        context = replace(
            context, device_changes=changes, new_contexts=frozenset(f"cuda:{index}" for index in new)
        )
        gpus = [totals.gpu for totals in self._gpus.all]
        evidence = RunEvidence.of(report, context, self._steady, gpus)
        return replace(report, advice=advise(evidence), time=_with_steady_part(report, evidence))

    def _measured(self, cell: RunInfo) -> Report:
        with self._measuring(_WORKERS):
            WORKER_UPDATES.collect()
        # This thread adds the final sample itself, below, so the sampler's thread must not add it too.
        self._sampling = False
        sample, no_thread = None, False
        with self._measuring(_GPUS):
            requested_at = self._clock.time()
            sample = self._sampler.read_now(ANSWER_TIMEOUT_S)
            no_thread = self._sampler.has_no_thread
        t = self._clock.monotonic() - self._began
        peaks: Mapping[int, DevicePeaks] = {}
        can_return: Mapping[int, int | None] = {}
        with self._measuring(_TORCH_MEMORY):
            if self._peak_scope is not None:
                peaks = PEAK_TRACKER.close(self._peak_scope)
        with self._lock:
            if sample is not None:
                with self._measuring(_GPUS):
                    self._gpus.add_power(self._sampler.power_records(), self._began)
                    self._gpus.end(t, sample, requested_at)
            with self._measuring(_WORKERS):
                self._gpus.workers.end(t)
        with self._measuring(_TORCH_MEMORY):
            # The lock is not held during this call, so that the sampler's thread does not wait for torch.
            can_return = returnable(peaks)
        host_memory = Span(None, None, None)
        with self._measuring(_HOST_MEMORY):
            host_memory = self._memory.end()
        with self._lock:
            self._steady = self._steady_part(t)
            return build_report(
                self._report_type,
                cell,
                t,
                self._gpus,
                self._marks,
                host_memory,
                self._peak_scope,
                peaks,
                can_return,
                self._contexts_before,
                self._busy_devices(),
                NO_THREAD if no_thread else NOT_SAMPLED,
            )

    def _steady_part(self, t: float) -> SteadyPart | None:
        with self._measuring(_STEADY):
            window = self._gpus.steady_window(t, steady_mark(self._marks.all()))
            if window is not None:
                builder = GpuReportBuilder((), {}, {}, recorded=self._gpus.recorded)
                seconds = window.until - window.since
                gpus = [
                    builder.build(totals.between(*window), seconds, shown=True)
                    for totals in self._gpus.shown()
                ]
                return SteadyPart(window, tuple(gpus))
        return None

    def abandon(self) -> None:
        """End the run without a report. Safe to call at any time and more than once."""
        self._running = self._sampling = False
        with self._measuring(_LINES):
            PRINTED_LINES.unsubscribe(self._on_line)
        with self._measuring(_WORKERS):
            WORKER_UPDATES.unsubscribe(self.add_worker_update)
        with self._measuring(_GPUS):
            if self._subscription is not None:
                self._subscription.close()
        with self._measuring(_TORCH_MEMORY):
            if self._peak_scope is not None:
                PEAK_TRACKER.discard(self._peak_scope)
        with self._measuring(_DEVICES):
            if self._device_changes is not None:
                DEVICE_CHANGES.close(self._device_changes)
        self._for_each_collector(lambda collector: collector.abandon())

    def _for_each_collector(self, call: Callable[[Collector], None]) -> None:
        for collector in self._collectors:
            with self._measuring(collector.measures):
                call(collector)

    # -- callbacks -----------------------------------------------------------------------------------

    def _on_sample(self, sample: Sample) -> None:
        if not self._sampling:
            return
        with self._measuring(_TORCH_MEMORY):
            PEAK_TRACKER.watch_resets()
        with self._measuring(_DEVICES):
            DEVICE_CHANGES.watch()
        with self._measuring(_GPUS):
            self._add_sample(sample)

    def _add_sample(self, sample: Sample) -> None:
        t = self._clock.monotonic() - self._began
        with self._lock:
            # The run may have ended while this thread waited for the lock; no sample may be added after the
            # run's last one.
            if not self._sampling:
                return
            self._gpus.add_power(self._sampler.power_records(), self._began)
            self._gpus.add(t, sample)
            self._memory.add(t)
        if self._subscription is not None:
            # More frequent readings would be merged into the same points of the timeline, and each reading
            # slows the run down.
            self._subscription.memory_interval_s = max(self._memory_interval_s, t / MAX_POINTS)
        if self._later:
            due = [function for seconds, function in self._later if t >= seconds]
            self._later = [later for later in self._later if t < later[0]]
            for function in due:
                function()

    def _on_line(self, line: str) -> None:
        if self._running and not self._marks.omits_printed():
            self._marks.add_printed(self._clock.monotonic() - self._began, line)


def _with_steady_part(report: Report, evidence: RunEvidence) -> CodeTime | None:
    """Return the report's time with the steady part that the advice uses, if workers did the run's work."""
    part = evidence.steady_part
    if report.time is None or part is None or not report.workers or not evidence.own:
        return report.time
    since, until = part.window
    return replace(report.time, warm_up_s=since or None, steady_until_s=until)


def _drain_gpu(
    clock: Clock, wait_context: Callable[[], AbstractContextManager[object]]
) -> tuple[float | None, bool]:
    """Wait until this process's work on the GPU is done.

    Return how many seconds that took, and whether an interrupt ended the wait (the GPU continues in that
    case). The seconds are None if this process has no CUDA context, if a CUDA kernel failed, or after an
    interrupt. A separate thread waits, because a CUDA synchronization cannot be interrupted. Never raises.
    """
    if not pytorch.can_synchronize():
        return None, False
    began = clock.monotonic()
    ended: list[float] = []
    done = threading.Event()

    def wait() -> None:
        # The user's next CUDA call raises the failed CUDA kernel's error, as it would without gpuwidget.
        with Boundary(_LOG, "the wait for the GPU failed", foreign=True):
            pytorch.synchronize()
            ended.append(clock.monotonic())
        done.set()

    try:
        threading.Thread(target=wait, name="gpuwidget-drain", daemon=True).start()
        with wait_context():
            done.wait()
    except KeyboardInterrupt:
        return None, True
    return (ended[0] - began if ended else None), False
