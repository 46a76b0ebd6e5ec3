"""Tests of the comparison of two runs: what its table and its notes contain."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import helpers_reports as reports
import numpy
import pytest
from helpers_reports import HOSTILE, bare_gpu, cell, gib, gpu, report

from gpuwidget.kernel.cells import watch_api
from gpuwidget.kernel.commands import compare_command
from gpuwidget.kernel.commands.compare_command import compare
from gpuwidget.model.errors import OptionError
from gpuwidget.model.report import CodeTime, Level, Report, RunInfo, SoftwareVersions, Status
from gpuwidget.views import card
from gpuwidget.views.comparison import Comparison, change, since_last_run

BEFORE = report(gpu(0), cell=cell(14.0, execution_count=5))
AFTER = report(
    gpu(
        0,
        torch=replace(gpu().torch, allocated=replace(gpu().torch.allocated, peak=gib(12.4))),  # type: ignore[type-var, union-attr]
        utilization=Level(88.3, 99.0),
        power_w=Level(500.0, 600.0),
        energy_j=926.2,
    ),
    cell=cell(3.5, execution_count=9, label="repaired"),
)


@pytest.fixture(autouse=True)
def _no_earlier_reports() -> Iterator[None]:
    """Remove the stored reports before and after each test."""
    watch_api._reports.clear()
    yield
    watch_api._reports.clear()


def rows(made: Comparison) -> dict[str, tuple[str, str, str]]:
    """Return the two values and the change of each row, by the row's name."""
    return {row.name: (*row.values, row.change) for row in made.rows}


def timed(warm_up_s: float | None) -> CodeTime:
    """Return the time details of a run with a warm-up of this many seconds, or without one."""
    return CodeTime((), 100, 0.1, None, None, None, warm_up_s)


def test_side_by_side() -> None:
    """The table contains time, peak memory, energy and activity of both runs, and the ratios of the two
    values.
    """
    made = compare(BEFORE, AFTER)
    assert made.names == ("In [5]", "In [9] repaired")
    found = rows(made)
    assert found["time"] == ("14.0 s", "3.5 s", "\N{MINUS SIGN}75 %")
    assert found["torch memory, peak"] == ("14.6 GiB", "12.4 GiB", "\N{MINUS SIGN}15 %")
    assert found["peak above the start"] == ("3.2 GiB", "1.0 GiB", "\N{MINUS SIGN}69 %")
    assert found["torch memory, change"] == ("+2.9 GiB", "+2.9 GiB", "")
    assert found["energy"] == ("2.3 kJ", "926 J", "\N{MINUS SIGN}60 %")
    assert found["utilization"] == ("11 %", "88 %", "+77 points")
    assert found["power"] == ("165 W", "500 W", "+202 %")
    assert found["tensor activity"] == ("0.1 %", "0.1 %", "±0 points")
    assert made.differences == ()
    assert made.notes == ()


def test_differences_in_the_run_context() -> None:
    """The comparison lists versions, default devices and GPUs only if they differ between the two runs."""
    other = replace(
        AFTER,
        environment=SoftwareVersions("590.10", "13.0", None, None, None, None),
        gpus=(gpu(1, name="NVIDIA A100-SXM4-80GB"),),
    )
    made = compare(BEFORE, other)
    assert {row.name: row.values for row in made.differences} == {
        "driver": ("580.159.04", "590.10"),
        "torch": ("2.13.0+cu130", "not loaded"),
        "torch's CUDA": ("13.0", "not loaded"),
        "cuDNN": ("9.13.0", "not loaded"),
        "default device": ("cuda:0", "not loaded"),
        "GPU model": ("H200", "A100-SXM4-80GB"),
        "GPUs": ("0 (GPU-00000000)", "1 (GPU-00000001)"),
    }
    assert any(note.startswith("The GPUs are different models") for note in made.notes)


def test_unknown_values_have_a_reason() -> None:
    """If a value is unknown for one run, it is shown as n/a without a change, and a footnote contains the
    reason.
    """
    made = compare(BEFORE, report(bare_gpu(0), cell=cell(7.0, execution_count=6)))
    found = rows(made)
    assert found["energy"] == ("2.3 kJ", "n/a", "")
    assert found["power"] == ("165 W", "n/a", "")
    unsupported = bare_gpu(0).missing["power_w"]
    assert made.footnotes[1] == unsupported
    numbers = {row.name: row.footnotes for row in made.rows if any(row.footnotes)}
    assert numbers == {
        **dict.fromkeys(("SM activity", "tensor activity", "DRAM activity"), (0, 1)),
        **dict.fromkeys(("power", "energy"), (0, 2)),
    }
    assert "n/a²" in str(made)
    assert f"² {unsupported}" in str(made)
    # torch's memory is unknown for the second run, so the memory of the whole GPU is compared instead.
    assert found["whole GPU memory, sampled peak"] == ("16.1 GiB", "16.1 GiB", "±0 %")
    assert not [name for name in found if name.startswith("torch")]


def test_a_reason_names_each_metric_once() -> None:
    """Metrics that are unknown for both runs have no row. A note contains their names and the reason once."""
    run = report(bare_gpu(0), cell=cell(7.0, execution_count=6))
    made = compare(run, run)
    assert made.footnotes == ()
    assert f"power, energy: {bare_gpu(0).missing['power_w']}" in made.notes


def test_a_sum_with_an_unknown_part_is_unknown() -> None:
    """If the energy of one of two GPUs is unknown, their total energy is unknown."""
    half = gpu(1, energy_j=None, missing={"energy_j": "the GPU is lost"})
    made = compare(BEFORE, report(gpu(0), half, cell=cell(7.0, execution_count=6)))
    assert rows(made)["energy, sum of all GPUs"] == ("2.3 kJ", "n/a", "")
    assert "The numbers of GPUs differ." in made.notes


def test_without_a_gpu() -> None:
    """If one of the runs used no GPU, only time and host memory are compared, and a note explains this."""
    made = compare(replace(reports.no_gpu(), cell=cell(1.0, execution_count=2)), BEFORE)
    found = rows(made)
    assert found["time"] == ("1.0 s", "14.0 s", "\N{MULTIPLICATION SIGN}14")
    assert found["energy"] == ("n/a", "2.3 kJ", "")
    assert found["host memory, peak"] == ("2.4 GiB", "2.4 GiB", "±0 %")
    assert any(note.startswith("In [2]: no GPU use detected") for note in made.notes)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (replace(AFTER, cell=cell(1.0, execution_count=9, status="error")), "stopped by an error"),
        (replace(AFTER, cell=cell(1.0, execution_count=9, status="interrupted")), "interrupted"),
        (replace(reports.replay(), cell=cell(1.0, execution_count=9)), "a recording"),
        (replace(AFTER, attributed=False), "Couldn't tell which GPUs"),
    ],
)
def test_doubtful_values_have_a_note(made: Report, said: str) -> None:
    """A note warns if a run did not finish, if its values come from a recording, or if it is unknown which
    GPUs the run used.
    """
    notes = compare(BEFORE, made).notes
    assert [note for note in notes if said in note and "In [9]" in note]


def test_rates_of_the_steady_part() -> None:
    """If both runs were checked for a warm-up, utilization and power are compared without the warm-up, and a
    note explains this."""
    slow_start = replace(BEFORE, time=timed(7.0))
    assert slow_start.timeline is not None
    (course,) = slow_start.timeline.gpus
    halves = tuple(10.0 if t < 7.0 else 80.0 for t in slow_start.timeline.t)
    slow_start = replace(
        slow_start, timeline=replace(slow_start.timeline, gpus=(replace(course, utilization=halves),))
    )
    made = compare(slow_start, replace(AFTER, time=timed(None)))
    found = rows(made)
    assert found["utilization, steady part"][0] == "80 %"
    assert found["of which warm-up"] == ("7.0 s", "n/a", "")
    assert found["of which steady part"] == ("7.0 s", "3.5 s", "\N{MINUS SIGN}50 %")
    assert found["energy, whole run"] == ("2.3 kJ", "926 J", "\N{MINUS SIGN}60 %")
    assert "utilization" not in found
    rates, whole = made.notes[:2]
    assert rates == "Rates cover the steady part, after the warm-up."
    assert whole.startswith("In [9] repaired has no visible warm-up")


def test_a_sampling_gap_is_not_half_known() -> None:
    """The time in which nothing could be sampled counts in no rate, neither in the report's nor in that of
    the comparison's steady part. The value after the gap covers only the time after it."""
    slow_start = replace(BEFORE, time=timed(2.0))
    assert slow_start.timeline is not None
    (course,) = slow_start.timeline.gpus
    t = (*(number / 5 for number in range(1, 26)), 7.0, *(9.0 + number / 5 for number in range(26)))
    busy = tuple(None if moment == 7.0 else 90.0 if moment < 7.0 else 30.0 for moment in t)
    # Without the gap, 2.2 s at 90 % and 5 s at 30 % are known after the warm-up and its last window.
    gappy = replace(
        slow_start,
        timeline=replace(
            slow_start.timeline,
            t=t,
            gpus=(replace(course, utilization=busy, power_w=busy, sm_activity=busy),),
            gaps=((5.0, 9.0),),
        ),
    )
    found = rows(compare(gappy, gappy))
    assert found["utilization, steady part"] == ("48 %", "48 %", "±0 points")
    assert found["power, steady part"] == ("48 W", "48 W", "±0 %")


@pytest.mark.parametrize("warm_up_s", [None, 2.0])
def test_a_run_compared_with_itself_is_equal(warm_up_s: float | None) -> None:
    """A run compared with itself took the same time. All its values are equal, so none is shown, but their
    number is. No environment differs."""
    run = replace(BEFORE, time=timed(warm_up_s))
    made = compare(run, run)
    assert all(
        row.values[0] == row.values[1] and row.change in ("±0 %", "±0 points", "") for row in made.rows
    )
    assert made.differences == ()
    headline, hidden = str(made).splitlines()[:2]
    assert headline.endswith(": the same time")
    assert hidden == f"  Not shown: {len(made.rows)} equal values"


def test_a_run_without_a_warm_up_has_the_figures_of_its_report() -> None:
    """Beside a run with a warm-up, the other run's rates cover the whole run. They are the report's own,
    whatever its time series contains."""
    assert AFTER.timeline is not None
    (course,) = AFTER.timeline.gpus
    other = replace(
        AFTER,
        time=timed(None),
        timeline=replace(AFTER.timeline, gpus=(replace(course, utilization=(5.0,) * 240),)),
    )
    found = rows(compare(replace(BEFORE, time=timed(2.0)), other))
    assert found["utilization, steady part"][1] == "88 %"
    assert found["power, steady part"][1] == "500 W"


def test_a_steady_part_that_ends_before_the_run() -> None:
    """If workers did a run's work, their shutdown is not part of the steady part either, and the note
    contains this."""
    workers = replace(BEFORE, time=replace(timed(4.0), steady_until_s=10.0))
    assert workers.timeline is not None
    (course,) = workers.timeline.gpus
    working = tuple(80.0 if 4.0 < t <= 10.0 else 0.0 for t in workers.timeline.t)
    workers = replace(
        workers, timeline=replace(workers.timeline, gpus=(replace(course, utilization=working),))
    )
    made = compare(workers, replace(AFTER, time=timed(None)))
    found = rows(made)
    assert found["utilization, steady part"][0] == "80 %"
    assert found["of which warm-up"] == ("4.0 s", "n/a", "")
    assert found["of which steady part"] == ("6.0 s", "3.5 s", "\N{MINUS SIGN}42 %")
    rates, whole = made.notes[:2]
    assert "before the workers' shutdown" in rates
    assert whole.startswith("In [9] repaired has no visible warm-up")


def test_a_warm_up_of_only_one_run() -> None:
    """If only one of the runs was checked for a warm-up, the runs are compared as a whole, and a note
    explains this.
    """
    made = compare(replace(BEFORE, time=timed(2.5)), AFTER)
    assert rows(made)["utilization"][0] == "11 %"
    (note,) = made.notes
    assert "In [5] began with 2.5 s of warm-up" in note
    assert "of In [9] repaired is unknown" in note


def test_a_steady_part_too_short_has_no_rate() -> None:
    """If a run ended right after its warm-up, its values after the warm-up are n/a, and a note contains the
    reason.
    """
    made = compare(replace(BEFORE, time=timed(13.5)), replace(AFTER, time=timed(None)))
    assert rows(made)["utilization, steady part"][0] == "n/a"
    (footnote,) = made.footnotes
    assert "too few values in the steady part" in footnote
    assert [row.name for row in made.rows if row.footnotes == (1, 0)] == [
        *("utilization, steady part", "SM activity, steady part", "power, steady part"),
    ]


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        (2.0, 1.0, "\N{MINUS SIGN}50 %"),
        (1.0, 1.034, "+3.4 %"),
        (1.0, 1.0001, "±0 %"),
        (1.0, 9.9, "+890 %"),
        (1.0, 12.34, "\N{MULTIPLICATION SIGN}12"),
        (1.0, 1234.4, "\N{MULTIPLICATION SIGN}1234"),
        (1.0, 0.0, "\N{MINUS SIGN}100 %"),
        (1.0, 0.0094, "\N{MINUS SIGN}99 %"),
        (1000.0, 0.001, "> \N{MINUS SIGN}99 %"),
        (0.0, 1.0, ""),
        (None, 1.0, ""),
        (1.0, None, ""),
        (float("nan"), 1.0, ""),
    ],
)
def test_changes(first: float | None, second: float | None, said: str) -> None:
    """The change is relative to the first value and signed, and a factor if it is large. It is empty if
    either value is unknown, or if the first value is 0.
    """
    assert change(first, second) == said


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (3.2, "4.4\N{MULTIPLICATION SIGN} faster"),
        (12.0, "1.17\N{MULTIPLICATION SIGN} faster"),
        (13.99, "the same time"),
        (13.94, "about the same time"),
        (13.6, "about the same time"),
        (14.0, "the same time"),
        (28.0, "2.0\N{MULTIPLICATION SIGN} slower"),
        (2000.0, "143\N{MULTIPLICATION SIGN} slower"),
    ],
)
def test_the_direction(seconds: float, said: str) -> None:
    """The comparison begins with how many times faster or slower the second run was."""
    made = compare(BEFORE, replace(AFTER, cell=cell(seconds, execution_count=9)))
    assert made.direction == said
    assert str(made).splitlines()[0] == f"In [5] → In [9]: {said}"


@pytest.mark.parametrize(
    ("tails", "said", "verdict"),
    [
        # Code that only starts the work ends early: 4.3 s and 0.1 s of code, but 4.3 s and 2.3 s of work.
        ((0.0, 2.2), "1.87\N{MULTIPLICATION SIGN} faster", True),
        ((0.0, 0.0), "43.0\N{MULTIPLICATION SIGN} faster", None),
        ((0.0, 6.0), "1.42\N{MULTIPLICATION SIGN} slower", False),
        ((None, None), "43.0\N{MULTIPLICATION SIGN} faster", None),
        ((0.0, None), None, None),
        ((1.0, None), None, None),
    ],
)
def test_the_direction_includes_the_work_of_the_gpu(
    tails: tuple[float | None, float | None], said: str | None, verdict: bool | None
) -> None:
    """A run whose code ends before its work on the GPU is not called faster for that. If it is unknown when
    one of the runs finished, neither is called faster."""
    first = replace(BEFORE, cell=cell(4.3, execution_count=5, gpu_tail_s=tails[0]))
    second = replace(AFTER, cell=cell(0.1, execution_count=9, gpu_tail_s=tails[1]))
    made = compare(first, second)
    assert made.direction == said
    found = {row.name: row.is_better for row in made.rows}
    assert found.get("time until the GPU finished") is verdict
    assert (found["time"] is None) == ("time until the GPU finished" in found)
    since = since_last_run(first, second)
    assert (since is None) == (said is None)
    if since is not None and verdict is not None:
        change_of_time = {True: "\N{MINUS SIGN}47 %", False: "+42 %"}[verdict]
        assert since.changes.startswith(f"vs. last run: time {change_of_time}")


def test_a_short_rest_of_work_has_no_row() -> None:
    """The time until the GPU finished is left out if it reads as the time of the code."""
    made = compare(BEFORE, replace(AFTER, cell=cell(3.5, execution_count=9, gpu_tail_s=0.01)))
    assert [row.is_better for row in made.rows if row.name == "time"] == [True]
    assert "time until the GPU finished" not in [row.name for row in made.rows]


def test_a_small_difference_is_neither_better_nor_worse() -> None:
    """Two runs of the same code differ by less than 1 %: such a change has its sign, but no verdict."""
    made = compare(BEFORE, replace(BEFORE, cell=cell(13.9, execution_count=9)))
    assert [(row.change, row.is_better) for row in made.rows if row.name == "time"] == [
        ("\N{MINUS SIGN}0.7 %", None)
    ]


@pytest.mark.parametrize("status", ["error", "interrupted"])
def test_no_direction_for_a_run_that_did_not_finish(status: Status) -> None:
    """A run that did not finish is neither faster nor slower, and none of its values is better or worse."""
    made = compare(BEFORE, replace(AFTER, cell=cell(1.0, execution_count=9, status=status)))
    assert made.direction is None
    assert {row.is_better for row in made.rows} == {None}


def test_better_and_worse() -> None:
    """Less time, memory and energy is better. Utilization and power are neither better nor worse."""
    verdicts = {row.name: row.is_better for row in compare(AFTER, BEFORE).rows}
    assert {name for name, better in verdicts.items() if better is False} == {
        *("time", "torch memory, peak", "peak above the start", "energy"),
    }
    assert True not in verdicts.values()
    assert "+302 % worse" not in str(compare(BEFORE, AFTER))
    assert "\N{MINUS SIGN}75 % better" in str(compare(BEFORE, AFTER))


def test_only_what_differs_is_shown() -> None:
    """Rows with equal values are left out of the text, and folded in the HTML. Their number is shown."""
    made = compare(BEFORE, AFTER)
    lines = [line.split("  ") for line in str(made).splitlines()]
    assert not [line for line in lines if "host memory, peak" in line]
    assert "  Not shown: 5 equal values" in str(made).splitlines()
    before, _, folded = made.bundle()["text/html"].partition("<details")
    assert "host memory, peak" not in before
    assert "host memory, peak" in folded


def test_both_runs_are_in_one_chart() -> None:
    """The chart has the mean utilization of both runs' GPUs on one time axis. A run's line ends with it."""
    assert BEFORE.timeline is not None
    (course,) = BEFORE.timeline.gpus
    timeline = replace(
        BEFORE.timeline,
        t=(3.5, 7.0),
        gpus=(
            replace(course, utilization=(50.0, 80.0)),
            replace(course, uuid=gpu(1).uuid, utilization=(100.0, None)),
        ),
    )
    two = replace(report(gpu(0), gpu(1), cell=cell(7.0, execution_count=6)), timeline=timeline)
    one = replace(BEFORE, timeline=replace(timeline, t=(7.0, 14.0), gpus=timeline.gpus[:1]))
    chart = compare(one, two).chart
    assert chart is not None
    (lane,) = chart.lanes
    assert (chart.duration, chart.label) == (14.0, "mean GPU utilization, %")
    quarters = [len(chart.t) * quarter // 4 - 1 for quarter in (1, 2, 3, 4)]
    assert [lane.compared[n] for n in quarters] == [50.0, 50.0, 80.0, 80.0]
    assert [lane.utilization[n] for n in quarters] == [75.0, None, None, None]


def test_no_chart_without_utilization() -> None:
    """If the utilization of both runs is unknown, there is no chart."""
    bare = replace(BEFORE, timeline=None)
    assert compare(bare, bare).chart is None
    assert "<svg" not in compare(bare, bare).bundle()["text/html"]


def test_parts_of_the_time_are_listed_below_it() -> None:
    """Warm-up and steady part are listed below the time of the code, as parts of it. The time for which the
    GPU worked after the code is not listed as a part."""
    tail = cell(14.0, execution_count=5, gpu_tail_s=2.0)
    made = compare(replace(BEFORE, cell=tail, time=timed(7.0)), replace(AFTER, time=timed(None)))
    assert [row.name for row in made.rows][:4] == [
        *("time", "of which warm-up", "of which steady part", "time until the GPU finished"),
    ]


@pytest.mark.parametrize("first", [True, False])
def test_memory_of_child_processes_counts_whichever_run_had_them(first: bool) -> None:
    """If a run had child processes, the memory of the process and its children is compared, not torch's.

    If this memory is unknown for one of the runs, the memory of the whole GPU is compared.
    """
    parent = replace(BEFORE, gpus=(gpu(0, children=("python worker.py",)),))
    pair = (parent, AFTER) if first else (AFTER, parent)
    assert rows(compare(*pair))["process memory, sampled peak"] == ("15.6 GiB", "15.6 GiB", "±0 %")
    unknown = replace(AFTER, gpus=(gpu(0, process_memory=None),))
    pair = (parent, unknown) if first else (unknown, parent)
    assert rows(compare(*pair))["whole GPU memory, sampled peak"] == ("16.1 GiB", "16.1 GiB", "±0 %")


def test_a_change_over_several_gpus_is_their_sum() -> None:
    """If a run used several GPUs, the name of a row shows whether its value is the sum over all GPUs, their
    mean, or the highest value of one GPU."""
    found = rows(compare(BEFORE, report(gpu(0), gpu(1), cell=cell(7.0, execution_count=6))))
    assert found["torch memory, change, sum of all GPUs"] == ("+2.9 GiB", "+5.8 GiB", "")
    assert found["power, sum of all GPUs"] == ("165 W", "331 W", "+100 %")
    assert found["utilization, mean of all GPUs"] == ("11 %", "11 %", "±0 points")
    assert found["torch memory, peak, highest of one GPU"] == ("14.6 GiB", "14.6 GiB", "±0 %")


def test_selecting_a_run() -> None:
    """A run can be selected by its cell number, by its label, or by a variable that contains a report or a
    watch. If several runs match, the last one is selected.
    """
    older = replace(BEFORE, cell=cell(20.0, execution_count=5))
    labeled = replace(AFTER, cell=cell(2.0, label="big  batch", execution_count=None))
    for one in (older, BEFORE, AFTER, labeled):
        watch_api.keep(one)
    variables: dict[str, object] = {"kept": older, "five": 5}
    assert compare_command._find("5", variables) is BEFORE
    assert compare_command._find("In[9]", variables) is AFTER
    assert compare_command._find("big batch", variables) is labeled
    assert compare_command._find("kept", variables) is older
    assert compare(5, "repaired").names == ("In [5]", "In [9] repaired")
    assert compare(numpy.int64(5), "repaired").names == ("In [5]", "In [9] repaired")
    watch = gpuwidget_watch(older)
    assert compare(watch, 9).names == ("In [5]", "In [9] repaired")


def gpuwidget_watch(holds: Report) -> watch_api.Watch:
    """Return a watch that has this report."""
    watch = watch_api.Watch()
    watch.report = holds
    return watch


@pytest.mark.parametrize("what", ["7", "nonsense", "five", HOSTILE, 7, 1.5, None, True, object()])
def test_selecting_an_unknown_run(what: object) -> None:
    """If a value selects no run, the error lists the cells and labels that can be selected."""
    watch_api.keep(AFTER)
    with pytest.raises(OptionError) as raised:
        compare(what, 9)
    text = str(raised.value)
    assert "The watched cells and labels:\n  9\n  'repaired'" in text
    watch_api._reports.clear()
    with pytest.raises(OptionError, match="No cell has been watched yet"):
        compare(what, 9)


def test_selecting_a_run_without_a_report() -> None:
    """If a watch that has not ended is selected, or a watched function that was never called, the error
    explains that it has no report yet.
    """
    watch, function = watch_api.Watch(), watch_api.WatchedFunction(len, None)
    with pytest.raises(OptionError, match=r"^This object has no report yet: .* its block ends\.$"):
        compare(watch, 9)
    with pytest.raises(OptionError, match=r"^'step' has no report yet: a watched function .* a call ends\.$"):
        compare_command._find("step", {"step": function})


def test_runs_with_the_same_name_are_distinguished() -> None:
    """If both runs have the same label, their names also contain their start times."""
    one = replace(AFTER, cell=cell(1.0, execution_count=None, label="x", started=1_795_255_445.0))
    other = replace(one, cell=cell(1.0, execution_count=None, label="x", started=1_795_255_505.0))
    names = compare(one, other).names
    assert names[0] != names[1]
    assert all(name.startswith("x, ") for name in names)


@pytest.mark.parametrize("make", reports.ALL.values(), ids=reports.ALL.keys())
def test_every_pair_can_be_shown(make: object) -> None:
    """The comparison of any two reports is shown in less than 20 kB of static HTML, and all markup in its
    text is escaped.
    """
    for other in (reports.starved, reports.hostile, reports.no_gpu):
        made = compare(make(), other())  # type: ignore[operator]
        data, _ = made._repr_mimebundle_()
        assert sorted(data) == ["text/html", "text/plain"]
        assert len(json.dumps(data)) < 20_000
        assert "<img" not in data["text/html"]
        assert "<script" not in data["text/html"]
        assert "n/a n/a" not in data["text/plain"]
        assert made.rows[0].name == "time"
        assert repr(made) == data["text/plain"]


def test_changes_since_the_last_run() -> None:
    """The card of a cell tells the changes of its time and peak since its last run, with the numbers of
    ``%gpu compare``."""
    found = since_last_run(BEFORE, AFTER)
    assert found is not None
    assert found.changes == "vs. last run: time \N{MINUS SIGN}75 %, peak \N{MINUS SIGN}15 %"
    assert found.numbers == (5, 9)
    bundle = card.bundle(AFTER, last=BEFORE)
    assert f"<span class='gpuwidget-since' data-runs='5 9'>{found.changes}</span>" in bundle["text/html"]
    assert bundle["text/plain"].splitlines()[1].endswith(f" · {found.changes}")
    assert "last run" not in str(card.bundle(AFTER))


def test_an_equal_run() -> None:
    """If nothing has changed since the last run, the card has changes of ±0 %."""
    found = since_last_run(BEFORE, replace(BEFORE, cell=cell(14.0, execution_count=6)))
    assert found is not None
    assert found.changes == "vs. last run: time ±0 %, peak ±0 %"


def test_a_recording_is_neither_better_nor_worse() -> None:
    """GPU values from a recording say nothing about the code. So the card does not compare the peak with the
    last run's, and in a comparison, only the time is better or worse."""
    first, second = (
        replace(run, source=replace(run.source, recording="Recording of an H200")) for run in (BEFORE, AFTER)
    )
    found = since_last_run(first, second)
    assert found is not None
    assert found.changes == "vs. last run: time \N{MINUS SIGN}75 %"
    verdicts = [row.name for row in compare(first, second).rows if row.is_better is not None]
    assert verdicts == ["time"]


def test_another_gpu_than_in_the_last_run() -> None:
    """If a cell ran on another GPU than the last time, the peaks are not compared."""
    found = since_last_run(BEFORE, report(gpu(1), cell=cell(7.0, execution_count=6)))
    assert found is not None
    assert found.changes == "vs. last run: time \N{MINUS SIGN}50 %"


@pytest.mark.parametrize(
    "other",
    [
        cell(7.0, execution_count=6, status="error"),
        cell(7.0, execution_count=6, status="interrupted"),
        cell(7.0, execution_count=6, status="died"),
    ],
)
def test_runs_that_are_not_compared_with_the_last_run(other: RunInfo) -> None:
    """If one of the two runs did not finish, the card does not compare them."""
    odd = replace(BEFORE, cell=other)
    assert since_last_run(odd, AFTER) is None
    assert since_last_run(AFTER, odd) is None


def test_a_run_without_a_number_has_no_compare_button() -> None:
    """A run of another kernel is compared on the card, but ``%gpu compare`` can't find it."""
    found = since_last_run(replace(BEFORE, cell=cell(14.0, execution_count=None)), AFTER)
    assert found is not None
    assert found.numbers is None


def test_the_last_run_of_a_cell() -> None:
    """The last run of a cell is the newest one with its id, or else with its code. There is none if
    ``%gpu compare`` would find another run by its number."""
    other = replace(BEFORE, cell=cell(1.0, execution_count=6))
    watch_api.keep(BEFORE, ("a", "train()"))
    watch_api.keep(other, ("b", "train()"))
    assert watch_api.last_run(("a", "train()")) is BEFORE
    assert watch_api.last_run(("b", "train()")) is other
    assert watch_api.last_run(("a", "train(2)")) is BEFORE
    assert watch_api.last_run(("c", "train()\n")) is other
    assert watch_api.last_run((None, "train()")) is other
    assert watch_api.last_run(("c", "train(2)")) is None
    watch_api.keep(AFTER, ("a", "train()"))
    assert watch_api.last_run(("a", "train()")) is AFTER
    # The kernel has counted from 1 again.
    watch_api.keep(replace(other, cell=cell(1.0, execution_count=9)), None)
    assert watch_api.last_run(("a", "train()")) is None


def test_a_change_that_rounding_hides() -> None:
    """A run that took 4 % longer is slower, even if both times are the same in tenths of a second. Its time
    is not among the equal values."""
    made = compare(
        replace(BEFORE, cell=cell(1.0, execution_count=5)),
        replace(BEFORE, cell=cell(1.04, execution_count=9)),
    )
    headline, _names, time, *others = str(made).splitlines()
    assert headline == "In [5] → In [9]: 1.04\N{MULTIPLICATION SIGN} slower"
    assert " ".join(time.split()) == "time 1.0 s 1.0 s +4.0 % worse"
    assert others == [f"  Not shown: {len(made.rows) - 1} equal values"]
