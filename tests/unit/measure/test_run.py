"""Tests of the report of one measured run on fake GPUs."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

import pytest
from fakes import FakeClock, FakeSource
from helpers_reports import worker
from helpers_torch import GIB, FakeTorch

from gpuwidget.measure.jax_pool import JaxPool
from gpuwidget.measure.run import Run
from gpuwidget.measure.run_options import RunOptions
from gpuwidget.model.errors import GpuLostError, OptionError
from gpuwidget.model.gpu_process import Process
from gpuwidget.model.messages import MessageId
from gpuwidget.model.readings import Activity
from gpuwidget.model.report import CodeTime, Level, Report, Span
from gpuwidget.sampler import Sampler
from gpuwidget.system import processes
from gpuwidget.views.card_summary import explanations, figures, headline
from gpuwidget.views.comparison import compare_reports

pytestmark = pytest.mark.usefixtures("no_torch")


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make process ids match those of the host, as they do outside a container."""
    monkeypatch.setattr(processes, "in_host_pid_namespace", lambda: True)


DEFAULTS = RunOptions()


class Bench:
    """A fake clock, a fake source, a sampler of that source, and the runs that use the sampler."""

    def __init__(self, source: FakeSource, clock: FakeClock) -> None:
        self.source, self.clock = source, clock
        self.sampler = Sampler(source, clock)
        self.samples = 0
        self._keep = self.sampler.subscribe(self._count)
        clock.until(lambda: self.samples > 0)
        clock.until(self._all_wait)  # until the slow readings are known, too

    def _count(self, sample: object) -> None:
        self.samples += 1

    def run(self, options: RunOptions = DEFAULTS, label: str | None = None) -> Run:
        run = Run(self.sampler, options, label=label, clock=self.clock)
        run.start()
        return run

    def pass_time(self, seconds: float, step: float = 0.1) -> None:
        """Advance the clock in steps, and after each step wait until the GPUs have been read.

        The clock stands still until all threads of the sampler wait. Otherwise, a thread that is about to
        wait would miss the step.
        """
        self.clock.until(self._all_wait)
        for _ in range(round(seconds / step)):
            reads = self.source.calls["fast"] + self.source.calls["memory"]
            self.clock.advance(step)
            self.clock.until(lambda: self.source.calls["fast"] + self.source.calls["memory"] > reads)  # noqa: B023
            self.clock.until(self._all_wait)

    def _all_wait(self) -> bool:
        return self.clock.all_wait(self.sampler._threads.threads)

    def report(self, run: Run, status: str = "ok") -> Report:
        run.end(status)  # type: ignore[arg-type]
        report = run.report()
        assert report is not None
        return report

    def close(self) -> None:
        for event in self.source.hanging.values():
            event.set()
        self.sampler.stop()


@pytest.fixture
def bench() -> Iterator[Bench]:
    clock = FakeClock()
    bench = Bench(FakeSource(gpus=2, clock=clock), clock)
    yield bench
    bench.close()


def me(memory: int | None) -> tuple[Process, ...]:
    return (Process(pid=os.getpid(), kind="compute", memory=memory, user=None, program=None),)


def test_a_function_is_called_later_in_a_run(bench: Bench) -> None:
    """A function that is scheduled with ``call_after``, such as showing the live chart, is called only if the
    run lasts long enough."""
    called: list[str] = []
    for seconds, expected in ((0.4, []), (1.0, ["chart"])):
        run = Run(bench.sampler, DEFAULTS, clock=bench.clock)
        run.call_after(0.5, lambda: called.append("chart"))
        run.start()
        bench.pass_time(seconds)
        bench.report(run)
        assert called == expected


def test_memory_at_start_end_and_peak(bench: Bench, host: None) -> None:
    """The report contains each GPU's memory at the start, at the end and at its peak, and this process's part
    of it."""
    bench.source.memory[0], bench.source.processes[0] = 2_000_000, me(500)
    run = bench.run()
    bench.source.memory[0], bench.source.processes[0] = 9_000_000, me(8_000)
    bench.pass_time(1.0)
    bench.source.memory[0], bench.source.processes[0] = 3_000_000, me(2_000)
    report = bench.report(run)
    first = report.gpus[0]
    assert first.device_memory == Span(2_000_000, 3_000_000, 9_000_000)
    assert first.process_memory == Span(500, 2_000, 8_000)
    assert (first.shown, report.gpus[1].shown, report.attributed) == (True, False, True)
    assert report.gpus[1].process_memory == Span(0, 0, 0)


def test_a_process_on_a_mig_slice_counts_once(bench: Bench, host: None) -> None:
    """The driver lists a process on a MIG slice for the divided GPU, too. Both are in the report, but its
    sums contain the slice only."""
    parent, slice_ = bench.source.gpus
    bench.source.present = [parent, replace(slice_, mig_index=0, mig_parent=parent.uuid)]
    bench.sampler.stop()
    bench.sampler = Sampler(bench.source, bench.clock)
    bench.source.processes = {0: me(500), 1: me(500)}
    run = bench.run()
    bench.source.processes = {0: me(8_000), 1: me(8_000)}
    bench.source.memory = {0: 2_000_000, 1: 2_000_000}
    report = bench.report(run)
    assert [gpu.shown for gpu in report.gpus] == [True, True]
    assert [gpu.uuid for gpu in report.counted] == [slice_.uuid]
    assert report.totals.memory == Span(500, 8_000, 8_000)


def test_a_refused_process_list_is_no_fact(bench: Bench, host: None) -> None:
    """If the driver does not list processes and torch is not loaded, the report does not claim that no GPU
    was used. It shows all GPUs, and a note contains the reason."""
    bench.source.processes = {0: None, 1: None}
    bench.source.memory = {0: 2_000_000, 1: 2_000_000}  # The list is read again after a change of memory.
    run = bench.run()
    bench.pass_time(1.0)
    report = bench.report(run)
    assert (report.attributed, [gpu.shown for gpu in report.gpus]) == (False, [True, True])
    assert [gpu.process_memory for gpu in report.gpus] == [None, None]
    assert [note.id for note in report.note_ids] == ["unattributed"]
    assert report.gpus[0].missing_ids["process_memory"] == MessageId("no-process-list", {})
    assert report.gpus[0].missing["process_memory"] in report.notes[0]
    assert not [text for text in explanations(report) if "holds no memory" in text]


def test_times_and_label(bench: Bench) -> None:
    """The report contains the run's duration, label, start and status."""
    run = bench.run(label="epoch 1")
    started = bench.clock.time()
    bench.pass_time(2.0)
    report = bench.report(run, "error")
    assert report.cell.label == "epoch 1"
    assert report.cell.started == started
    assert report.cell.duration_s == pytest.approx(2.0)
    assert (report.cell.status, report.cell.gpu_tail_s, report.cell.execution_count) == ("error", None, None)


class NoLines:
    """A collector that has sampled the code and found no line."""

    measures = "lines"

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def abandon(self) -> None: ...

    def annotate(self, report: Report) -> Report:
        return replace(report, time=CodeTime((), 100, 0.1, None, None, None, warm_up_s=None))


@pytest.mark.parametrize("workers", [True, False])
def test_the_steady_part_of_workers(bench: Bench, monkeypatch: pytest.MonkeyPatch, workers: bool) -> None:
    """The report of a run whose work is done by workers contains when they worked, without their start-up
    and shutdown. Advice and comparisons use the same part."""
    rows = (worker(0, gpu=bench.source.gpus[0].uuid),) if workers else ()
    monkeypatch.setattr("gpuwidget.measure.workers.WorkerTracker.rows", lambda *_: rows)
    run = Run(bench.sampler, RunOptions(gpus=("0",)), clock=bench.clock, collectors=(NoLines(),))
    run.start()
    for utilization, seconds in ((1.0, 5.0), (99.0, 8.0), (1.0, 3.0)):
        bench.source.utilization[0] = utilization
        bench.pass_time(seconds, 0.2)
    report = bench.report(run)
    assert report.time is not None
    window = (report.time.warm_up_s, report.time.steady_until_s)
    if workers:
        assert run._steady is not None
        assert window == run._steady.window == pytest.approx((6.0, 12.0), abs=1.0)
    else:
        assert window == (None, None)


def test_energy_while_idle(bench: Bench) -> None:
    """The idle energy is the energy used in the driver's utilization windows in which no CUDA kernel ran.

    If known windows cover less than nine tenths of the run, the idle energy is None.
    """
    bench.source.utilization[0], bench.source.power[0] = 0.0, 100.0
    bench.source.memory[0], bench.source.processes[0] = 2_000_000, me(500)
    run = bench.run()
    bench.pass_time(6.0)
    bench.source.utilization[0], bench.source.power[0] = 90.0, 300.0
    bench.pass_time(4.0)
    report = bench.report(run)
    assert report.energy_idle_j is not None
    # The first two utilization windows count too, although they may have begun before the run.
    assert report.energy_idle_j == pytest.approx(100.0 * 6, abs=100.0 * 0.4)
    assert report.gpus[0].energy_j == pytest.approx(100.0 * 6 + 300.0 * 4, abs=40.0)
    assert "energy_idle_j" not in report.gpus[0].missing
    run = bench.run()
    bench.pass_time(1.0)
    short = bench.report(run)
    assert short.energy_idle_j is None
    assert short.gpus[0].missing_ids["energy_idle_j"] == MessageId("too-few-windows", {})


def test_an_idle_run_draws_all_its_energy_while_idle(bench: Bench) -> None:
    """If no CUDA kernel runs, the idle energy equals the whole energy of the run, including that of its first
    utilization windows."""
    bench.source.utilization[0], bench.source.power[0] = 0.0, 100.0
    bench.source.memory[0], bench.source.processes[0] = 2_000_000, me(500)
    run = bench.run()
    bench.pass_time(5.0)
    report = bench.report(run)
    assert report.energy_idle_j == pytest.approx(report.gpus[0].energy_j)


def test_utilization_and_energy_over_the_run(bench: Bench) -> None:
    """Mean utilization is weighted by time, beginning with the first window that lies inside the run.

    Energy is the integral of power over time.
    """
    bench.source.utilization[0], bench.source.power[0] = 99.0, 200.0
    run = bench.run()
    bench.source.utilization[0] = 40.0
    bench.pass_time(4.0)
    gpu = bench.report(run).gpus[0]
    assert gpu.utilization is not None
    assert (gpu.utilization.mean, gpu.utilization.max) == pytest.approx((40.0, 40.0))
    assert gpu.energy_j == pytest.approx(800.0)
    assert gpu.power_w is not None
    assert (gpu.power_w.mean, gpu.power_w.max) == pytest.approx((200.0, 200.0))


def test_memory_reserved_by_the_driver(bench: Bench) -> None:
    """The report contains the memory that the driver reserves, or None with a reason."""
    one = bench.source.gpus[0]
    for kept in (644_939_776, None):
        source = FakeSource(gpus=1, clock=bench.clock)
        source.gpus = source.present = [replace(one, memory_reserved=kept)]
        other = Bench(source, bench.clock)
        gpu = other.report(other.run()).gpus[0]
        assert gpu.memory_reserved == kept
        assert ("memory_reserved" in gpu.missing) == (kept is None)
        other.close()


def test_a_run_shorter_than_the_drivers_window_has_no_utilization(bench: Bench) -> None:
    """If a run is shorter than the driver's utilization windows, values that need a window are None with a
    reason, never 0."""
    gpu = bench.report(bench.run()).gpus[0]
    assert (gpu.utilization, gpu.power_w, gpu.energy_j, gpu.levels["sm_activity"]) == (None, None, None, None)
    assert gpu.missing_ids["utilization"] == MessageId("too-short-for-windows", {"window_s": 0.2})
    too_short = MessageId("too-short", {"seconds": 0.1})
    assert (gpu.missing_ids["energy_j"], gpu.missing_ids["power_w"]) == (too_short, too_short)
    assert gpu.missing_ids["sm_activity"] == MessageId("no-counter-window", {"window_s": None})
    assert gpu.missing["torch"] == "torch is not loaded"
    assert gpu.missing_ids.keys() == gpu.missing.keys()
    assert gpu.missing_ids["utilization"] == MessageId("too-short-for-windows", {"window_s": 0.2})
    assert gpu.missing_ids["energy_j"] == MessageId("too-short", {"seconds": 0.1})
    assert gpu.missing_ids["sm_activity"] == MessageId("no-counter-window", {"window_s": None})
    assert gpu.missing_ids["torch"] == MessageId("torch-not-loaded", {})


@pytest.mark.parametrize(
    ("after", "level", "reason"),
    [
        (0.6, Level(30.0, 30.0), None),
        (0.8, None, MessageId("few-counter-windows", {"window_s": 0.5})),
    ],
)
def test_counters_count_only_inside_the_run(
    bench: Bench, after: float, level: Level | None, reason: MessageId | None
) -> None:
    """A window of the hardware counters is ignored if it began before the run.

    If the other windows cover less than six tenths of the run, the value is unknown.
    """
    bench.source.activity[0] = _window(bench.clock.time() - 0.5, 90.0)
    run = bench.run()
    bench.pass_time(0.2)
    bench.source.activity[0] = _window(bench.clock.time(), 30.0)
    bench.pass_time(after)
    gpu = bench.report(run).gpus[0]
    assert gpu.levels["sm_activity"] == level
    assert gpu.missing_ids.get("sm_activity") == reason
    assert gpu.levels["tensor_activity"] is None
    assert gpu.missing_ids["tensor_activity"] == MessageId("no-counter-value", {})


@pytest.mark.parametrize(("window_s", "length"), [(0.5, "0.5 s"), (1.0, "1.0 s")])
def test_a_reason_has_the_length_of_the_counters_windows(bench: Bench, window_s: float, length: str) -> None:
    """If no window of the hardware counters lies inside the run, the reason for the unknown value states how
    long the windows are."""
    run = bench.run()
    window = _window(bench.clock.time() - 0.2, 90.0)
    bench.source.activity[0] = replace(window, until=window.since + window_s)
    bench.pass_time(0.8)
    gpu = bench.report(run).gpus[0]
    assert gpu.missing_ids["sm_activity"].id == "no-counter-window"
    assert gpu.missing_ids["sm_activity"].params["window_s"] == pytest.approx(window_s)
    assert f"(up to {length})" in gpu.missing["sm_activity"]
    (found,) = {one.params["window_s"] for name, one in gpu.missing_ids.items() if name == "sm_activity"}
    assert found == pytest.approx(window_s)


def _window(since: float, sm: float) -> Activity:
    names = ("graphics", "sm_occupancy", "tensor", "dram", "fp64", "fp32", "fp16")
    links = ("pcie_tx", "pcie_rx", "nvlink_tx", "nvlink_rx")
    return Activity(since=since, until=since + 0.5, sm=sm, **dict.fromkeys((*names, *links)))


def test_all_gpus_are_shown_if_process_ids_do_not_match(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a container's process ids differ from the host's, memory is not attributed to this process.

    All GPUs are shown in that case.
    """
    monkeypatch.setattr(processes, "in_host_pid_namespace", lambda: False)
    bench.source.processes[0] = me(5_000)
    report = bench.report(bench.run())
    assert not report.attributed
    assert [gpu.shown for gpu in report.gpus] == [True, True]
    assert report.gpus[0].process_memory is None
    assert report.gpus[0].missing_ids["process_memory"] == MessageId("foreign-pids", {})
    assert report.note_ids[0] == MessageId("unattributed", {})


def test_a_recording_is_labeled_and_attributed_to_nobody(host: None) -> None:
    """A process in a recording is never mistaken for this process, even if the two have the same process
    id."""
    clock = FakeClock()
    source = FakeSource(gpus=1, kind="replay")
    source.processes[0] = me(5_000)
    bench = Bench(source, clock)
    report = bench.report(bench.run())
    bench.close()
    assert report.source.recording == "Recording of a test"
    assert (report.attributed, report.gpus[0].process_memory) == (False, None)


def test_without_a_gpu_the_report_has_the_reason() -> None:
    """Without a GPU, the report contains the duration, the host memory and the reason why there is no GPU."""
    clock = FakeClock()
    source = FakeSource(gpus=0, kind="none")
    source.reason = "There is no NVIDIA driver on this machine."
    bench = Bench(source, clock)
    report = bench.report(bench.run())
    bench.close()
    assert (report.source.kind, report.source.reason) == ("none", source.reason)
    assert report.gpus == ()
    assert report.host_memory.start is not None


def test_a_driver_that_hangs_while_it_is_opened() -> None:
    """If the driver hangs while it is opened, the first run starts after half a second and ends at once.

    Its report has the reason. Later runs are not delayed.
    """
    clock = FakeClock()
    source = FakeSource(gpus=2, clock=clock)
    source.hang_in_open = threading.Event()
    sampler = Sampler(source, clock)
    warm_up = sampler.subscribe()
    clock.until(lambda: source.calls["open"] > 0)
    for seconds in (0.5, 0.0):
        run = Run(sampler, RunOptions(gpus=("1",)), clock=clock)
        _, took = clock.timed(run.start)
        assert took == pytest.approx(seconds)
        run.end()
        report, took = clock.timed(run.report)
        assert took == 0.0
        assert report is not None
        assert report.gpus == ()
        assert report.source.reason_id == MessageId("not-sampled", {})
    warm_up.close()
    source.hang_in_open.set()
    sampler.stop()


def test_a_run_without_threads(no_threads: None) -> None:
    """If no thread can be started, the run's report says so, and does not blame the driver. The card does not
    claim that there is no GPU."""
    clock = FakeClock()
    run = Run(Sampler(FakeSource(gpus=2, clock=clock), clock), DEFAULTS, clock=clock)
    run.start()
    run.end()
    report = run.report()
    assert report is not None
    assert clock.monotonic() == 0.0
    assert report.source.reason_id == MessageId("no-thread", {})
    assert headline(report)[1] == "GPUs n/a"


def test_a_driver_that_is_opened_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the driver takes longer to open than a run waits for it, the selected GPUs are measured from then
    on, and their start values are unknown."""
    monkeypatch.setattr(processes, "in_host_pid_namespace", lambda: False)
    clock = FakeClock()
    source = FakeSource(gpus=2, clock=clock)
    source.hang_in_open = threading.Event()
    sampler = Sampler(source, clock)
    run = Run(sampler, RunOptions(gpus=("1",)), clock=clock)
    clock.timed(run.start)
    source.hang_in_open.set()
    clock.until(lambda: run.progress().gpus != (), step=0.05)
    run.end()
    report = run.report()
    assert report is not None
    assert [(gpu.index, gpu.device_memory) for gpu in report.gpus] == [(1, Span(None, 1_000_000, 1_000_000))]
    assert report.gpus[0].missing_ids["device_memory"] == MessageId("unanswered", {})
    sampler.stop()


@pytest.mark.parametrize("count", [1, 2])
def test_a_gpu_that_hangs_from_the_beginning(count: int) -> None:
    """If the calls to a GPU hang from the first one, a run's start and its end each take a quarter of a
    second. The report has the reason for the GPU's unknown values.
    """
    clock = FakeClock()
    source = FakeSource(gpus=count, clock=clock)
    source.hanging[0] = threading.Event()
    sampler = Sampler(source, clock)
    warm_up = sampler.subscribe()
    clock.until(lambda: source.calls["fast"] > 0)
    run = Run(sampler, DEFAULTS, clock=clock)
    _, took = clock.timed(run.start)
    assert took == pytest.approx(0.25)
    run.end()
    report, took = clock.timed(run.report)
    assert took == pytest.approx(0.25)
    assert report is not None
    warm_up.close()
    gpu = report.gpus[0]
    assert gpu.device_memory == Span(None, None, None)
    assert gpu.missing_ids["device_memory"] == MessageId("unanswered", {})
    source.hanging[0].set()
    sampler.stop()


def test_only_the_selected_gpus(bench: Bench) -> None:
    """With --gpu 1, the report contains GPU 1 and no other GPU, whichever GPUs this process uses."""
    report = bench.report(bench.run(RunOptions(gpus=("1",))))
    assert [(gpu.index, gpu.shown) for gpu in report.gpus] == [(1, True)]


def test_a_gpu_that_does_not_exist(bench: Bench) -> None:
    """Selecting a GPU that does not exist raises an error before the run starts."""
    with pytest.raises(OptionError, match="--gpu 5: no such GPU"):
        bench.run(RunOptions(gpus=("5",)))


def test_marks_and_printed_lines_are_on_the_timeline(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The timeline contains the user's marks and the lines that the cell prints."""
    import io

    class Stream(io.StringIO):
        pass

    monkeypatch.setattr(sys, "stdout", Stream())
    run = bench.run()
    bench.pass_time(0.5)
    run.mark("epoch 1")
    bench.pass_time(0.5)
    print("loss 0.5")
    report = bench.report(run)
    assert report.timeline is not None
    marks = [(round(mark.t, 3), mark.label, mark.kind) for mark in report.timeline.marks]
    assert marks == [(0.5, "epoch 1", "mark"), (1.0, "loss 0.5", "printed")]
    assert "write" not in sys.stdout.__dict__


def test_the_timeline_of_a_long_run_is_short(bench: Bench) -> None:
    """However long the run is, its timeline has at most 240 points and is valid JSON."""
    run = bench.run(RunOptions(interval_s=1.0))
    bench.pass_time(300.0, step=0.5)
    report = bench.report(run)
    assert report.timeline is not None
    assert 120 <= len(report.timeline.t) <= 240
    assert all(len(gpu.utilization) == len(report.timeline.t) for gpu in report.timeline.gpus)
    assert json.loads(json.dumps(report.to_dict(), allow_nan=False))["schema"] == 1


def test_the_gpu_drain_is_sampled_too(bench: Bench, monkeypatch: pytest.MonkeyPatch, host: None) -> None:
    """GPU work that continues after the code has ended is included in the run's energy and timeline.

    The time that this work takes is not included in the run's duration.
    """
    fake = FakeTorch()
    monkeypatch.setitem(sys.modules, "torch", fake)
    run = bench.run()
    bench.pass_time(1.0)
    bench.source.power[0] = 300.0

    def work(index: int) -> None:
        bench.pass_time(3.0)

    fake.cuda.synchronize = work
    report = bench.report(run)
    assert report.cell.duration_s == pytest.approx(1.0)
    assert report.cell.gpu_tail_s == pytest.approx(3.0)
    assert report.gpus[0].energy_j == pytest.approx(1.0 * 100 + 3.0 * 300, rel=0.05)
    assert report.timeline is not None
    assert len(report.timeline.t) > 30


def test_readings_from_before_the_run_do_not_count(bench: Bench) -> None:
    """A reading from before the run is not included in the report, even if the sampling interval is long."""
    bench.source.utilization[0], bench.source.power[0] = 100.0, 700.0
    bench.pass_time(0.4, step=0.2)
    bench.source.power[0] = 100.0
    run = bench.run(RunOptions(interval_s=4.0))
    bench.source.utilization[0] = 0.0
    bench._keep.close()
    bench.pass_time(3.0)
    gpu = bench.report(run).gpus[0]
    assert gpu.utilization == Level(0.0, 0.0)
    assert gpu.power_w == Level(100.0, 100.0)


def test_the_timeline_begins_with_the_run(bench: Bench) -> None:
    """Utilization that was measured in a window before the run is not on the run's timeline."""
    bench.source.utilization[0] = 99.0
    run = bench.run(RunOptions(gpus=("0",)))
    bench.source.utilization[0] = 40.0
    bench.pass_time(1.0)
    report = bench.report(run)
    assert report.timeline is not None
    assert report.timeline.gpus[0].utilization[0] is None
    assert set(report.timeline.gpus[0].utilization) == {None, 40.0}


def test_a_gap_in_sampling_is_not_filled_in(bench: Bench) -> None:
    """If gpuwidget could not sample for several seconds, the timeline is None for that time, the energy of
    the rest is reported as a lower limit, and the reason does not blame the driver."""
    run = bench.run(RunOptions(gpus=("0",)))
    bench.pass_time(1.0)
    bench.clock.advance(6.0)
    bench.clock.until(bench._all_wait)
    bench.pass_time(1.0)
    report = bench.report(run)
    gpu = report.gpus[0]
    assert gpu.energy_j is None
    assert gpu.energy_at_least_j == pytest.approx(100.0 * 2.0, rel=0.05)
    assert gpu.power_w is not None
    assert (gpu.power_w.mean, gpu.power_w.max) == pytest.approx((100.0, 100.0))
    assert gpu.missing_ids["energy_j"] == MessageId(
        "not-sampled-for", {"seconds": pytest.approx(6.0, abs=0.3)}
    )
    assert report.timeline is not None
    assert None in report.timeline.gpus[0].power_w


def test_a_gap_in_sampling_is_filled_by_the_energy_counter(bench: Bench) -> None:
    """If gpuwidget could not sample for several seconds, the driver's energy counter still counts them."""
    began = bench.clock.monotonic()
    bench.source.energy[0] = lambda: 1000.0 + 100.0 * (bench.clock.monotonic() - began)
    run = bench.run(RunOptions(gpus=("0",)))
    bench.pass_time(1.0)
    bench.clock.advance(6.0)
    bench.clock.until(bench._all_wait)
    bench.pass_time(1.0)
    gpu = bench.report(run).gpus[0]
    assert gpu.energy_j == pytest.approx(800.0, rel=0.01)
    assert (gpu.energy_at_least_j, "energy_j" in gpu.missing) == (None, False)
    assert gpu.power_w is not None
    assert gpu.power_w.mean == pytest.approx(100.0, rel=0.01)


@pytest.mark.parametrize("seconds", [3600.0, -3600.0], ids=["forward", "back"])
def test_setting_the_clock_during_a_run(bench: Bench, seconds: float) -> None:
    """If the system's clock is set during a run, its duration, its energy and the means over the driver's
    windows stay the same, and the report contains when the run really began."""
    began = bench.clock.time()
    run = bench.run(RunOptions(gpus=("0",)))
    for n in range(20):
        if n == 6:
            bench.clock.set_by = seconds
        now = bench.clock.time()
        values: dict[str, Any] = dict.fromkeys(field.name for field in fields(Activity))
        bench.source.activity[0] = Activity(**(values | {"since": now - 0.9, "until": now, "sm": 40.0}))
        bench.pass_time(0.3)
    report = bench.report(run)
    gpu = report.gpus[0]
    assert report.cell.started == began
    assert report.cell.duration_s == pytest.approx(6.0)
    assert gpu.energy_j == pytest.approx(600.0)
    assert gpu.utilization is not None
    assert gpu.utilization.mean == pytest.approx(50.0)
    assert gpu.levels["sm_activity"] is not None
    assert gpu.levels["sm_activity"].mean == pytest.approx(40.0)


def test_memory_that_jax_reserved_is_named(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory that JAX reserved in advance is named in a note and in the headline, not blamed on the cell. If
    the user has turned this off, JAX's memory is what the code needed, so nothing is said."""
    monkeypatch.delenv("XLA_PYTHON_CLIENT_PREALLOCATE", raising=False)
    bench.source.memory[0], bench.source.processes[0] = GIB, me(GIB)
    run = bench.run(RunOptions(gpus=("0",)))
    bench.source.memory[0], bench.source.processes[0] = 100 * GIB, me(100 * GIB)
    monkeypatch.setattr(
        "gpuwidget.measure.run_report.jax_pools", lambda: {0: JaxPool(99 * GIB, GIB, 2 * GIB)}
    )
    report = bench.report(run)
    assert MessageId("jax-pool", {"reserved": 99 * GIB, "in_use": GIB, "peak": 2 * GIB}) in report.note_ids
    assert any("JAX reserved 99.0 GiB" in figure for figure in headline(report))
    monkeypatch.setenv("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    run = bench.run(RunOptions(gpus=("0",)))
    as_needed = bench.report(run)
    assert "jax-pool" not in [note.id for note in as_needed.note_ids]
    assert not [segment for segment in headline(as_needed) if "JAX" in segment]


def test_a_driver_that_hangs_is_named(bench: Bench) -> None:
    """If the driver did not return for several seconds, the reason for an unknown energy names the driver."""
    run = bench.run(RunOptions(gpus=("0",)))
    bench.pass_time(1.0)
    bench.source.power[0] = None
    bench.pass_time(2.0)
    bench.source.power[0] = 100.0
    bench.pass_time(1.0)
    assert bench.report(run).gpus[0].missing_ids["energy_j"] == MessageId("gap", {})


def test_a_gpu_that_came_back_is_not_lost(bench: Bench) -> None:
    """If a GPU is lost during the run and comes back, it is not reported as lost.

    The report contains a note about the loss.
    """
    run = bench.run()
    bench.source.failing[0] = GpuLostError("lost")
    bench.pass_time(1.0)
    bench.source.failing.clear()
    bench.pass_time(7.0)
    report = bench.report(run)
    assert (report.gpus[0].lost_since, report.gpus[0].energy_j) == (None, None)
    assert report.note_ids[-1] == MessageId("gpu-came-back", {"gpu": "GPU 0"})


def test_a_gpu_that_appears_late_counts_from_then_on(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a GPU appears during the run, its earlier values are unknown.

    Other GPUs' time series are complete.
    """
    monkeypatch.setattr(processes, "in_host_pid_namespace", lambda: False)
    late = bench.source.present.pop()
    bench.sampler.stop()
    bench.sampler = Sampler(bench.source, bench.clock)
    run = bench.run()
    bench.source.utilization[0] = 100.0
    bench.pass_time(2.0)
    bench.source.present.append(late)
    bench.source.failing[0] = GpuLostError("a look at the driver")
    bench.clock.until(lambda: len(bench.sampler.known_gpus) == 2, step=0.1)
    bench.source.failing.clear()
    bench.pass_time(8.0)
    report = bench.report(run)
    joined = report.gpus[1]
    assert joined.device_memory == Span(None, 1_000_000, 1_000_000)
    assert joined.utilization is not None
    assert joined.utilization.mean == pytest.approx(50.0)
    assert (joined.energy_j, report.timeline is not None) == (None, True)
    assert report.timeline is not None
    assert report.timeline.gpus[0].utilization[4] == 100.0
    assert report.timeline.gpus[1].utilization[4] is None


def test_counters_that_user_code_reset_are_unknown(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """If user code resets a counter of torch during the run, the counter is None in the report, never
    negative."""
    fake = FakeTorch()
    uuid = bench.source.gpus[0].uuid[4:]
    fake.cuda.get_device_properties = lambda index: type("P", (), {"uuid": uuid})
    monkeypatch.setitem(sys.modules, "torch", fake)
    run = bench.run()
    stats = fake.cuda.memory_stats_as_nested_dict
    fake.cuda.memory_stats_as_nested_dict = lambda index: {**stats(index), "num_ooms": 0}
    gpu = bench.report(run).gpus[0]
    assert gpu.torch is not None
    assert (gpu.torch.ooms, gpu.torch.alloc_retries) == (None, 0)
    assert gpu.missing_ids["ooms"] == MessageId("counters-reset", {})


def test_a_gpu_lost_in_the_run(bench: Bench) -> None:
    """If a GPU is lost during the run, the report contains the time of the loss and the earlier readings.

    The GPU's memory at the end and its energy are unknown.
    """
    run = bench.run()
    bench.pass_time(1.0)
    bench.source.failing[0] = GpuLostError("lost")
    bench.pass_time(1.0)
    report = bench.report(run)
    gpu = report.gpus[0]
    assert gpu.lost_since is not None
    assert gpu.device_memory == Span(1_000_000, None, 1_000_000)
    assert (gpu.energy_j, gpu.missing["energy_j"]) == (None, "the GPU is lost")
    assert any("GPU 0 was lost at" in note for note in report.notes)
    assert report.gpus[1].energy_j == pytest.approx(200.0, rel=0.05)


def test_torch_peaks_are_exact(bench: Bench, monkeypatch: pytest.MonkeyPatch, host: None) -> None:
    """torch's peak includes a tensor that was allocated and freed between two samples."""
    fake = FakeTorch()
    uuid = bench.source.gpus[1].uuid[4:]
    fake.cuda.get_device_properties = lambda index: type("P", (), {"uuid": uuid})
    monkeypatch.setitem(sys.modules, "torch", fake)
    fake.allocate(1 * GIB)
    run = bench.run()
    fake.allocate(4 * GIB)
    fake.allocate(-4 * GIB)
    report = bench.report(run)
    gpu = report.gpus[1]
    assert gpu.torch_device == "cuda:0"
    assert gpu.torch is not None
    assert gpu.torch.allocated == Span(1 * GIB, 1 * GIB, 5 * GIB)
    assert (gpu.torch.alloc_retries, gpu.torch.ooms) == (0, 0)
    assert (gpu.shown, report.gpus[0].shown) == (True, False)
    assert report.gpus[0].missing_ids["torch"] == MessageId("not-a-torch-device", {})
    assert report.cell.gpu_tail_s is not None
    assert fake.waited == [0]


STRANGER = Process(pid=1, kind="compute", memory=700, user=None, program=None)


def held_by_both(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> FakeTorch:
    """Return a fake torch with contexts on both GPUs. Another process is on GPU 1, too."""
    fake = FakeTorch(2)
    uuids = [gpu.uuid[4:] for gpu in bench.source.gpus]
    fake.cuda.get_device_properties = lambda index: type("P", (), {"uuid": uuids[index]})
    fake.contexts = {0, 1}
    monkeypatch.setitem(sys.modules, "torch", fake)
    bench.source.memory = {0: 2_000_000, 1: 3_000_000}
    bench.source.processes = {0: me(500), 1: (*me(500), STRANGER)}
    return fake


def test_others_work_is_not_in_the_headline(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, host: None
) -> None:
    """If this process has contexts on two GPUs, works on one of them, and another process works on the other
    one, only the first GPU counts in the headline, the totals and the comparison. The other one is named."""
    fake = held_by_both(bench, monkeypatch)
    runs = []
    for others_power in (100.0, 700.0):
        bench.source.utilization = {0: 80.0, 1: others_power / 7}
        bench.source.power = {0: 200.0, 1: others_power}
        run = bench.run()
        fake.allocate(GIB, 0)  # A result, which comes from torch's cache.
        fake.allocate(-GIB, 0)
        bench.pass_time(4.0)
        runs.append(bench.report(run))
    busy = runs[1]
    assert [(gpu.shown, gpu.worked) for gpu in busy.gpus] == [(True, True), (True, False)]
    assert [gpu.index for gpu in busy.counted] == [0]
    assert busy.totals.energy_j == pytest.approx(800.0, rel=0.01)
    assert busy.metrics()["energy_j"] == busy.totals.energy_j
    assert headline(busy)[3:] == ["GPU busy 80 %", "energy 800 J (200 W)"]
    assert len(explanations(busy)) == 1
    assert "GPU 1" in explanations(busy)[0]
    compared = compare_reports(runs[0], runs[1], ("a", "b"))
    row = next(row for row in compared.rows if row.name == "energy")
    assert (row.values, row.change) == (("800 J", "800 J"), "±0 %")
    assert any(note.startswith("b: ") and "GPU 1" in note for note in compared.notes)
    # A note would blame others for figures that do not count.
    assert "shared-gpus" not in [note.id for note in busy.note_ids]


def test_only_others_work(bench: Bench, monkeypatch: pytest.MonkeyPatch, host: None) -> None:
    """If this process holds memory on GPUs where only others work, the headline has its memory, but neither
    their utilization nor their energy. Idle GPUs count."""
    held_by_both(bench, monkeypatch)
    run = bench.run()
    bench.pass_time(4.0)
    bench.source.processes[0] = (*me(500), STRANGER)
    bench.source.memory[0] = 2_500_000
    bench.pass_time(1.0)
    report = bench.report(run)
    assert ([gpu.worked for gpu in report.gpus], report.counted) == ([False, False], ())
    assert [figure.label for figure in figures(report)] == ["time", "peak memory", "memory kept"]
    assert report.totals.energy_j is None
    bench.source.utilization = {0: 0.0, 1: 50.0}
    run = bench.run()
    bench.pass_time(4.0)
    idle = bench.report(run)
    assert [gpu.index for gpu in idle.counted] == [0]
    assert headline(idle)[3] == "GPU busy 0 %"


def test_a_shared_gpu_is_named(bench: Bench, monkeypatch: pytest.MonkeyPatch, host: None) -> None:
    """If both this process and another one may have worked on a GPU, a note names the GPU."""
    fake = held_by_both(bench, monkeypatch)
    run = bench.run()
    fake.allocate(GIB, 1)
    bench.pass_time(1.0)
    report = bench.report(run)
    assert report.gpus[1].worked is True
    assert [note.params for note in report.note_ids if note.id == "shared-gpus"] == [{"gpus": "GPU 1"}]
    notes = compare_reports(report, report, ("a", "b")).notes
    assert any(note.startswith("a: other processes") for note in notes)


def test_a_selected_gpu_counts(bench: Bench, host: None) -> None:
    """A GPU that the user selects counts, whoever works on it."""
    bench.source.processes[1] = (STRANGER,)
    run = bench.run(RunOptions(gpus=("1",)))
    bench.pass_time(4.0)
    report = bench.report(run)
    assert ([gpu.worked for gpu in report.gpus], report.totals.utilization) == ([None], 50.0)


class BusyStream(NoLines):
    """A collector that has seen a stream of ``cuda:1`` working."""

    def snapshot(self) -> None: ...

    def busy_devices(self) -> frozenset[int]:
        return frozenset({1})


def test_a_busy_stream_is_work(bench: Bench, monkeypatch: pytest.MonkeyPatch, host: None) -> None:
    """Work that allocates no memory, such as a CUDA graph, is seen in this process's streams."""
    held_by_both(bench, monkeypatch)
    run = Run(bench.sampler, DEFAULTS, clock=bench.clock, collectors=(BusyStream(),))
    run.start()
    bench.pass_time(1.0)
    assert [gpu.worked for gpu in bench.report(run).gpus] == [True, True]


def test_a_container_proves_that_process_ids_match(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a container, the driver's process ids are used only if the driver lists this process's id on a GPU.

    Only GPUs on which torch has created a CUDA context are searched for that id.
    """
    monkeypatch.setattr(processes, "in_host_pid_namespace", lambda: False)
    fake = FakeTorch()
    uuid = bench.source.gpus[0].uuid[4:]
    fake.cuda.get_device_properties = lambda index: type("P", (), {"uuid": uuid})
    monkeypatch.setitem(sys.modules, "torch", fake)
    bench.source.memory[0], bench.source.processes[0] = 6_000, me(5_000)
    report = bench.report(bench.run())
    assert report.gpus[0].process_memory == Span(5_000, 5_000, 5_000)


def test_no_gpu_drain_after_an_error(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an error or an interrupt, or with --no-sync, the run does not wait for the GPU's remaining
    work."""
    fake = FakeTorch()
    monkeypatch.setitem(sys.modules, "torch", fake)
    for options, status in (
        (RunOptions(), "error"),
        (RunOptions(), "interrupted"),
        (RunOptions(sync=False), "ok"),
    ):
        assert bench.report(bench.run(options), status).cell.gpu_tail_s is None
    assert fake.waited == []


def test_waiting_for_a_failed_kernel_does_not_raise(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """If waiting for the GPU raises a CUDA error, the run suppresses the error.

    The user's next CUDA call raises the error, as it would without gpuwidget.
    """
    fake = FakeTorch()

    def fail(index: int) -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    fake.cuda.synchronize = fail
    monkeypatch.setitem(sys.modules, "torch", fake)
    assert bench.report(bench.run()).cell.gpu_tail_s is None


@pytest.mark.parametrize(
    ("processes", "note"),
    [
        (
            me(1 * GIB + 618 * 1024**2),
            "CUDA started on GPU 0 in this run: its context and libraries hold 618 MiB, which stays until "
            "the process ends and is not a leak.",
        ),
        (
            None,
            "CUDA started on GPU 0 in this run. Its context stays until the process ends and is not a leak.",
        ),
    ],
)
def test_the_first_context_is_no_leak(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, processes: tuple[Process, ...] | None, note: str
) -> None:
    """If a run initializes CUDA, a note explains that the additional memory is the CUDA context, not a
    leak."""
    fake = FakeTorch()
    fake.up = False
    uuid = bench.source.gpus[0].uuid[4:]
    fake.cuda.get_device_properties = lambda index: type("P", (), {"uuid": uuid})
    monkeypatch.setitem(sys.modules, "torch", fake)
    run = bench.run()
    fake.up = True
    fake.allocate(1 * GIB)
    bench.source.memory[0] = 2 * GIB
    bench.source.processes[0] = processes
    report = bench.report(run)
    assert report.gpus[0].torch is not None
    assert report.gpus[0].torch.allocated == Span(0, 1 * GIB, 1 * GIB)
    assert report.notes == (note,)


def test_resets_of_the_peak_are_in_the_notes(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The report contains a note about each reset of torch's peak counter.

    Both gpuwidget and user code may reset the counter.
    """
    fake = FakeTorch()
    uuid = bench.source.gpus[0].uuid[4:]
    fake.cuda.get_device_properties = lambda index: type("P", (), {"uuid": uuid})
    monkeypatch.setitem(sys.modules, "torch", fake)
    fake.allocate(9 * GIB)
    fake.allocate(-9 * GIB)
    run = bench.run()
    fake._C._cuda_resetPeakMemoryStats(0)
    report = bench.report(run)
    assert report.note_ids[:2] == (
        MessageId("peak-reset", {"gpu": "GPU 0", "bytes": 9 * GIB}),
        MessageId("peak-reset-by-code", {}),
    )
    assert "9.0 GiB" in report.notes[0]


def test_progress_for_the_live_chart(bench: Bench, host: None) -> None:
    """Live progress contains the time series of each GPU in use, as soon as this process begins to use the
    GPU."""
    run = bench.run()
    assert run.progress().gpus == ()
    bench.source.processes[1], bench.source.memory[1] = me(7_000), 2_000_000
    bench.pass_time(1.0)
    progress = run.progress()
    assert [gpu.gpu.index for gpu in progress.gpus] == [1]
    assert progress.gpus[0].process_memory == 7_000
    assert progress.gpus[0].device_memory[-1] == 2_000_000
    assert len(progress.t) == len(progress.gpus[0].utilization)
    assert progress.elapsed_s == pytest.approx(1.0)
    run.abandon()


def test_what_is_known_so_far(bench: Bench, host: None) -> None:
    """Live progress contains the memory at the start, now and at its peak, and the mean utilization."""
    run = bench.run()
    start = bench.source.memory[0]
    bench.source.processes[0], bench.source.memory[0] = me(9_000), 3_000_000
    bench.pass_time(1.0)
    bench.source.processes[0], bench.source.memory[0] = me(7_000), 2_000_000
    bench.pass_time(1.0)
    (gpu,) = run.progress().gpus
    assert gpu.so_far is not None
    assert gpu.so_far.process_memory == Span(0, 7_000, 9_000)
    assert gpu.so_far.device_memory == Span(start, 2_000_000, 3_000_000)
    report = bench.report(run).gpus[0]
    assert report.utilization is not None
    assert gpu.so_far.utilization == report.utilization.mean


def test_a_forked_child_has_no_report(bench: Bench) -> None:
    """If the process is forked during a run, the run has a report in the parent but none in the child."""
    run = bench.run()
    assert bench.report(run).cell.status == "ok"
    run = bench.run()
    run._reset_in_child()
    run.end()
    assert run.report() is None
