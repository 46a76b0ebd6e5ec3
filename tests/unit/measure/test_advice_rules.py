"""Tests of each advice rule: the evidence that the rule needs, and the figures of its advice."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import helpers_reports as reports
import pytest
from helpers_reports import gib, gpu

from gpuwidget.measure.advice import advise
from gpuwidget.measure.advice import rules as rules_module
from gpuwidget.measure.advice.evidence import EarlierRun, RunContext, RunEvidence, SteadyPart, own_gpus
from gpuwidget.measure.steady_state import SteadyWindow
from gpuwidget.model.report import (
    Advice,
    CodeTime,
    FrameTime,
    GpuReport,
    GpuTimeline,
    Level,
    LineTime,
    Span,
    Timeline,
    TorchMemory,
    Traffic,
    WorkerReport,
)
from gpuwidget.model.torch_state import ComputeSwitches, Loader, Model
from gpuwidget.system.host_limits import SharedMemory
from gpuwidget.views import card_html

LOADER = Loader("loader", num_workers=0, pin_memory=False, prefetch_factor=None, persistent_workers=False)
NOTHING = Traffic(Level(0.0, 0.0), Level(0.0, 0.0))
EXCHANGE = Traffic(Level(8.0 * gib(1), 8.0 * gib(1)), Level(8.0 * gib(1), 8.0 * gib(1)))
"""The traffic of a GPU that exchanges data with other GPUs."""
FRAGMENTED = TorchMemory(Span(0, gib(10), gib(18)), Span(0, gib(28), gib(30)), 3, 0, gib(12))
ON_CPU = RunContext(
    "model(x)", models=(Model("model", "Net", gib(0.5), 0, False),), can_use_cuda=True, process_cpu=350.0
)
"""A run whose model computes on the CPU."""
DOCS = (Path(__file__).parents[3] / "docs" / "reference" / "advice.md").read_text(encoding="utf-8")


def level(value: float) -> Level:
    """Return a ``Level`` (the mean and maximum of a measured value) in which both are ``value``."""
    return Level(value, value)


def busy(index: int = 0, **changes: Any) -> GpuReport:
    """Return the report of a GPU that trains in bfloat16 at full load."""
    made = gpu(
        index,
        utilization=level(99.0),
        bursts=0,
        memory_utilization=level(55.0),
        sm_activity=level(81.0),
        tensor_activity=level(31.0),
        fp32_activity=level(2.0),
        dram_activity=level(42.0),
        pcie=NOTHING,
        nvlink=NOTHING,
        power_w=level(670.0),
        torch=TorchMemory(Span(0, gib(10), gib(12)), Span(0, gib(13), gib(13)), 0, 0, 0),
    )
    return reports.changed(made, **changes)


def in_float32(index: int = 0, **changes: Any) -> GpuReport:
    """Return the report of a GPU that trains in float32, and hardly uses its tensor cores."""
    return busy(index, **({"tensor_activity": level(2.0), "fp32_activity": level(66.0)} | changes))


def half_idle(**changes: Any) -> GpuReport:
    """Return the report of a GPU with evenly spread gaps in its work."""
    levels = {"utilization": Level(40.0, 48.0), "sm_activity": level(34.0), "tensor_activity": level(12.0)}
    return busy(**(levels | {"power_w": level(300.0)} | changes))


def unused(index: int = 0, **changes: Any) -> GpuReport:
    """Return the report of a GPU that did nothing."""
    none = dict.fromkeys(("utilization", "sm_activity", "tensor_activity", "fp32_activity"), level(0.0))
    return busy(index, **({**none, "dram_activity": level(0.0), "power_w": level(120.0)} | changes))


def waiting_and_late() -> tuple[GpuReport, GpuReport]:
    """Return the reports of a GPU that waits for another one, and of the other one."""
    waiting = busy(
        sm_activity=level(48.0), tensor_activity=level(12.0), power_w=level(330.0), nvlink=EXCHANGE
    )
    return waiting, half_idle(nvlink=EXCHANGE, bursts=0, index=1, uuid="GPU-1")


def evidence(*gpus: GpuReport, context: RunContext | None = None, **changes: Any) -> RunEvidence:
    """Return the evidence of a run of 20 seconds on these GPUs."""
    made = RunEvidence(gpus, len(gpus), True, 20.0, 20.0, None, context or RunContext())
    return replace(made, **changes)


def time_of(*lines: LineTime, cpu: float | None = None) -> CodeTime:
    """Return a line profile with these lines."""
    return CodeTime(lines, 4000, 0.05, None, cpu, None, None)


def starved(source: str, call: str | None = None, share: float = 50.0) -> CodeTime:
    """Return the line profile of a loop that spends ``share`` percent of its time in a line with an idle GPU.

    It spends the rest of its time in a line with a busy GPU.
    """
    return time_of(
        line(source, share, 0.0, call), line("step(x)", 100.0 - share, 95.0, "Tensor.backward", number=8)
    )


def line(
    source: str,
    share: float,
    gpu_busy: float | None,
    call: str | None = None,
    frame: str | None = None,
    number: int | None = 7,
) -> LineTime:
    """Return the line profile's entry for one line of the cell."""
    within = share if call is not None else None
    frames = (FrameTime(frame, share, gpu_busy, call, within),) if frame is not None else ()
    return LineTime(number, source, share, gpu_busy, call, frame, None, frames, within)


def only(given: RunEvidence) -> Advice:
    """Return the advice on this evidence, and assert that there is exactly one piece of advice, which begins
    with a short sentence: its title on the card."""
    found = advise(given)
    assert len(found) == 1, found
    title = card_html.CLAUSE.split(found[0].text)[0]
    assert len(title) <= card_html.MAX_TITLE_LENGTH or "`" in title, title
    return found[0]


def rules(given: RunEvidence) -> list[str]:
    """Return the names of the rules that give advice on this evidence."""
    return [one.rule for one in advise(given)]


def test_a_healthy_run_gets_no_advice() -> None:
    """There is no advice about a run at full load in bfloat16, even if its loaders, settings and models are
    known."""
    model = Model("model", "Net", 0, gib(1), True)
    context = RunContext(
        "train()", (LOADER,), (model,), ComputeSwitches(False, True, True), True, True, 8.0, None, 100.0
    )
    steps = line("loss.backward()", 60.0, 99.0, "backward")
    assert rules(evidence(busy(0), busy(1), context=context, time=time_of(steps))) == []


def test_a_run_of_a_few_seconds_gets_no_advice() -> None:
    """There is no advice about a run of less than three seconds, because such a run contains too few of the
    driver's sampling windows."""
    hungry = in_float32()
    assert rules(evidence(hungry, gpu_s=2.9)) == []
    assert rules(evidence(hungry, gpu_s=3.0)) == ["tensor-cores-idle"]


def test_gpu_figures_cover_the_gpu_drain() -> None:
    """GPU readings also cover the GPU drain, the time for which GPU work continues after the code has ended.

    Here, the code takes 4 s and the GPU drain 60 s. The seconds of throttling and the number of bursts are
    compared with the sum, 64 s.
    """
    slowed = busy(throttled={"too hot": 60.0})
    assert only(evidence(slowed, duration_s=4.0, gpu_s=64.0)).evidence == {
        "held_down_s": {"too hot": 60.0},
        "run_s": 64.0,
        "gpus": [0],
    }
    assert rules(evidence(half_idle(bursts=10), duration_s=4.0, gpu_s=64.0)) == []
    assert rules(evidence(half_idle(bursts=10), duration_s=4.0, gpu_s=4.0)) == ["input-pipeline"]
    long = reports.report(slowed, cell=reports.cell(4.0, gpu_tail_s=60.0))
    assert (RunEvidence.of(long).duration_s, RunEvidence.of(long).gpu_s) == (4.0, 64.0)


def test_lines_of_short_code_get_no_advice() -> None:
    """If the code ran for less than three seconds, there is no advice about its lines.

    The length of the GPU drain after the code does not matter.
    """
    waits = time_of(line("loss.item()", 90.0, 90.0))
    assert rules(evidence(half_idle(), time=waits, duration_s=2.9, gpu_s=64.0)) == []
    assert rules(evidence(half_idle(), time=waits, duration_s=3.0, gpu_s=64.0)) == ["sync-points"]


@pytest.mark.stops_errors
def test_a_rule_that_fails_disables_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """If one rule raises an exception, the other rules still give their advice."""

    def fails(_: RunEvidence) -> None:
        raise ValueError("odd")

    first, *others = rules_module.RULES
    monkeypatch.setattr(rules_module, "RULES", (replace(first, find=fails), *others))
    assert rules(evidence(in_float32())) == ["tensor-cores-idle"]


# -- attribution of GPU work to this process -------------------------------------------------------------


def test_no_advice_on_work_that_is_not_attributed() -> None:
    """There is no advice about GPU work that cannot be attributed, because another process may have done it.

    The GPU work of a recording counts as the run's work.
    """
    hungry = in_float32(throttled={"too hot": 20.0})
    assert rules(evidence(hungry, attributed=False)) == []
    assert rules(evidence(hungry, attributed=False, recorded=True)) == ["tensor-cores-idle", "throttled"]


def test_unattributed_work_that_may_be_the_runs() -> None:
    """Unattributed GPU work leads to uncertain advice if the work may belong to this run.

    This is the case if this process uses another GPU library than torch or has child processes.
    """
    hungry = in_float32()
    said = only(evidence(hungry, attributed=False, context=RunContext(other_gpu_work=True)))
    assert (said.rule, said.sure) == ("tensor-cores-idle", False)
    assert said.text.endswith("Couldn't tell which process did that work.")
    figures = {"sm_activity": 81.0, "tensor_activity": 2.0, "fp32_activity": 66.0, "gpus": [0]}
    assert said.evidence == figures


def test_a_selected_gpu_that_the_process_does_not_use() -> None:
    """If ``--gpu 1`` selects a GPU that only other processes use, there is no advice about their work."""
    nothing = TorchMemory(Span(0, 0, 0), Span(0, 0, 0), 0, 0, 0)
    theirs = in_float32(1, process_memory=Span(0, 0, 0), torch=nothing)
    report = reports.report(theirs, cell=reports.cell(20.0))
    assert rules(RunEvidence.of(report)) == []
    assert rules(RunEvidence.of(replace(report, gpus=(in_float32(1),)))) == ["tensor-cores-idle"]


# -- advice about the input pipeline ---------------------------------------------------------------------


def test_a_starved_gpu_by_its_line() -> None:
    """The advice names the line that loads data, the call in that line, and the line's share of the time.

    It also states how busy the GPU was during the line.

    The fix contains better settings for the loader.
    """
    given = evidence(
        half_idle(),
        time=time_of(
            line("for x, y in loader:", 61.2, 4.0, "DataLoader._next_data"),
            line("step(x, y)", 38.8, 97.0, number=8),
        ),
        context=RunContext(loaders=(LOADER,), cores=8.0, shared_memory=SharedMemory(gib(64), gib(60))),
    )
    said = only(given)
    assert (said.rule, said.sure) == ("input-pipeline", True)
    assert said.evidence == {
        "share": 61.2,
        "gpu_busy": 4.0,
        "utilization": 40.0,
        "line": 7,
        "call": "DataLoader._next_data",
        "cores": 8.0,
        "shared_memory_free_bytes": gib(60),
        "num_workers": 0,
        "pin_memory": False,
        "persistent_workers": False,
    }
    assert "`num_workers=0, pin_memory=False`" in said.fix
    assert said.fix.endswith("num_workers=7, pin_memory=True, persistent_workers=True.")


@pytest.mark.parametrize(
    ("seen", "found"),
    [
        (line("for x in loader:", 61.0, 4.0), True),
        (line("for n, x in enumerate(loader):", 61.0, 4.0), True),
        (line("x, y = next(iter(loader))", 61.0, 4.0), True),
        (line("train()", 61.0, 4.0, "sleep", "In[2]:9 Images.__getitem__"), True),
        (line("train()", 61.0, 4.0, "sleep", "data.py:9 my_collate"), True),
        (line("train()", 61.0, None, "_MultiProcessingDataLoaderIter._next_data"), True),
        (line("train()", 61.0, 4.0, "torch._next_data"), True),
        (replace(line("for x in loader: a(x)", 61.0, 4.0, "DataLoader._next_data"), call_share=9.0), False),
        (line("for x in loader: step(x)", 61.0, 4.0), False),
        (line("state = torch.load(path)", 61.0, 0.0, "torch.load"), False),
        (line("df = pd.read_csv(path)", 61.0, 0.0, "pandas.read_csv"), False),
        (line("text = tokenizer.decode(ids)", 61.0, 0.0, "Tokenizer.decode"), False),
        (line("y = model(x)", 61.0, 4.0, None, "decoder.py:31 Decoder.forward"), False),
        (line("get_ipython().run_cell_magic('time', '', 'for x in loader:')", 61.0, 4.0), False),
        (line("for x in loader:", 61.0, 80.0), False),
        (replace(line("for x in loader:", 61.0, 4.0), until=9), False),
        (line("for x in train(loader):", 61.0, 4.0, None, "In[2]:9 augment"), False),
        (line("for x in loader:", 15.0, 4.0), False),
        (line("for x in batches:", 61.0, 4.0), False),
        (line("parse(text)", 61.0, 4.0, "parse"), False),
    ],
)
def test_which_lines_load(seen: LineTime, found: bool) -> None:
    """A line is recognized as loading data by the function that it calls or by the loader's name.

    Such a line leads to advice if it takes much of the time and the GPU is idle meanwhile.
    """
    given = evidence(half_idle(), time=time_of(seen), context=RunContext(loaders=(LOADER,)))
    assert rules(given) == (["input-pipeline"] if found else [])


def test_an_unused_gpu_does_not_wait_for_data() -> None:
    """A GPU does not count as waiting for data if it did no work, even if a line spends long on loading data.

    In that case, the process may be preparing data or training on the CPU. There is no advice about a GPU
    that was always busy either. If it is unknown during which lines the GPU was busy, there is advice only
    about GPU work that is attributed to this process.
    """
    waiting = starved("for x in loader:", "DataLoader._next_data")
    context = RunContext(loaders=(LOADER,))
    assert rules(evidence(half_idle(), time=waiting, context=context)) == ["input-pipeline"]
    assert rules(evidence(unused(), time=waiting, context=context)) == []
    assert rules(evidence(busy(), time=waiting, context=context)) == []
    on_cpu = time_of(line("for x in loader:", 60.0, 0.0), line("model(x)", 40.0, 0.0, number=8))
    assert rules(evidence(half_idle(), time=on_cpu, context=context)) == []
    unknown = time_of(line("for x in loader:", 60.0, None), line("model(x)", 40.0, None, number=8))
    assert rules(evidence(half_idle(), time=unknown, context=context)) == ["input-pipeline"]
    strangers = replace(context, other_gpu_work=True)
    assert rules(evidence(half_idle(), time=unknown, context=strangers, attributed=False)) == []


def test_advice_from_getitem_alone_is_uncertain() -> None:
    """If no loader is known, advice based on ``__getitem__`` is uncertain, because any class may define
    it."""
    seen = line("train()", 61.0, 4.0, "sleep", "In[2]:9 Images.__getitem__")
    said = only(evidence(half_idle(), time=time_of(seen)))
    assert (said.rule, said.sure) == ("input-pipeline", False)
    assert said.evidence == {
        "share": 61.0,
        "gpu_busy": 4.0,
        "utilization": 40.0,
        "line": 7,
        "frame": "In[2]:9 Images.__getitem__",
        "call": "sleep",
    }


def test_loading_in_several_places_names_the_largest() -> None:
    """If several lines or functions load data, the text contains their total share and names the largest
    one."""
    within = (
        FrameTime("data.py:9 Images.__getitem__", 40.0, 2.0, "sleep", 40.0),
        FrameTime("data.py:30 my_collate", 20.0, 8.0, None, None),
    )
    epoch = LineTime(7, "for x in loader:", 60.0, 4.0, None, None, None, within)
    given = evidence(half_idle(), time=time_of(epoch), context=RunContext(loaders=(LOADER,)))
    said = only(given)
    assert said.evidence["share"] == 60.0
    assert (said.evidence["line"], said.evidence["gpu_busy"]) == (7, 4.0)
    assert said.evidence["frame"] == "data.py:9 Images.__getitem__"
    assert "line 7 `for x in loader:` at data.py:9 Images.__getitem__ in sleep alone took 40 %" in said.text


def test_bursts_count_only_without_a_line_profile() -> None:
    """Bursts of GPU work count as a sign of slow loading, unless the line profile shows another cause."""
    bursts = half_idle(utilization=Level(20.0, 90.0), bursts=30)
    assert [(one.rule, one.sure) for one in advise(evidence(bursts))] == [("input-pipeline", False)]
    assert rules(evidence(bursts, time=time_of(line("parse(text)", 80.0, 0.0, "parse")))) == []


@pytest.mark.parametrize(
    ("loader", "context", "fix"),
    [
        (
            replace(LOADER, num_workers=7, pin_memory=True),
            RunContext(cores=8.0),
            "loader has `num_workers=7, pin_memory=True`: this process may use 7 cores, so more "
            "workers don't help. Make each item cheaper: store the items already decoded or smaller, and do "
            "the other transforms on the GPU.",
        ),
        (
            replace(LOADER, num_workers=2, prefetch_factor=2, persistent_workers=True),
            RunContext(cores=16.0, shared_memory=SharedMemory(64 * 1024**2, 60 * 1024**2)),
            "loader has `num_workers=2, pin_memory=False` now. Try num_workers=8, pin_memory=True, "
            "prefetch_factor=4. Workers pass batches through /dev/shm, which has only 60 MiB free: free or "
            "enlarge it first (in a container: --shm-size).",
        ),
        (
            replace(LOADER, pin_memory=True),
            RunContext(),
            "loader has `num_workers=0, pin_memory=True` now. Try more workers, persistent_workers=True.",
        ),
    ],
)
def test_loader_settings_are_bounded_by_the_host(loader: Loader, context: RunContext, fix: str) -> None:
    """The fix suggests no more workers than the process has cores for.

    It contains a warning if too little shared memory is free.
    """
    given = evidence(
        half_idle(),
        time=starved("for x in loader:"),
        context=replace(context, loaders=(loader,)),
    )
    assert only(given).fix == fix


def test_the_fix_applies_to_the_loader_in_the_line() -> None:
    """If there are two loaders, the fix applies to the loader that the line names.

    If the line names neither loader, the fix suggests no settings.
    """
    two = RunContext(loaders=(LOADER, replace(LOADER, name="valid", num_workers=4)))
    named = evidence(half_idle(), time=starved("for x in valid:"), context=two)
    assert only(named).evidence["num_workers"] == 4
    unnamed = evidence(half_idle(), time=starved("train()", "DataLoader.next"), context=two)
    assert "num_workers" not in only(unnamed).evidence


def test_idle_gpus_do_not_count_as_gaps() -> None:
    """There are gaps in the GPU work only if the busiest GPU had gaps. Idle GPUs are ignored."""
    waiting = time_of(line("loss.item()", 34.0, 99.0), line("for x in loader:", 60.0, None))
    context = RunContext(loaders=(LOADER,))
    four = (busy(0), unused(1), unused(2), unused(3))
    assert rules(evidence(*four, time=waiting, context=context, attributed=False)) == []


# -- advice about the code -------------------------------------------------------------------------------


def test_a_model_left_on_the_cpu() -> None:
    """If the model computes on the CPU and no GPU does anything, the advice is to move it to the GPU."""
    said = only(evidence(gpu_count=1, context=ON_CPU))
    assert said.rule == "model-on-cpu"
    assert said.evidence == {"model": "model", "on_cpu_bytes": gib(0.5), "cpu": 350.0}
    assert said.fix.startswith("model.to('cuda')")
    assert rules(evidence(unused(), context=ON_CPU)) == ["model-on-cpu"]


def test_a_model_on_the_cpu_without_attribution() -> None:
    """If this process never initialized CUDA, another process must have done all GPU work.

    In that case, there is advice about a model on the CPU although a GPU is busy.
    """
    context = replace(ON_CPU, cuda_initialized=False)
    said = only(evidence(busy(), context=context, attributed=False))
    assert said.evidence == {"model": "model", "on_cpu_bytes": gib(0.5), "cpu": 350.0}
    assert "CUDA was not started" in said.text
    assert rules(evidence(busy(), context=context)) == []  # the GPU's work may be a child process's


@pytest.mark.parametrize(
    "changes",
    [
        {"gpus": (busy(),)},
        {"gpu_count": 0},
        {"attributed": False},
        {"context": {"can_use_cuda": False}},
        {"context": {"process_cpu": 20.0}},
        {"context": {"process_cpu": None}},
        {"context": {"cell": "prepare(data)"}},
        {"context": {"models": (Model("model", "Net", gib(0.5), gib(0.5), False),)}},
        {"context": {"models": (Model("model", "Net", 4000, 0, False),)}},
        {"context": {"models": (Model("model", "Net", None, None, False),)}},
    ],
)
def test_a_model_on_the_cpu_without_advice(changes: dict[str, Any]) -> None:
    """There is no advice about a model on the CPU if it is tiny or if it does not compute on the CPU.

    There is none either if no GPU is known to be idle, or if torch cannot use CUDA.
    """
    context = replace(ON_CPU, **changes.pop("context", {}))
    assert rules(replace(evidence(gpu_count=1, context=context), **changes)) == []


@pytest.mark.parametrize(
    ("seen", "call", "fix"),
    [
        (line("total += loss.item()", 34.0, 90.0), "item", "Keep the value on the GPU"),
        (line("train()", 34.0, 90.0, "Tensor.item"), "item", "Keep the value on the GPU"),
        (line("x = x[mask.nonzero()]", 34.0, 90.0), "nonzero", "nonzero() and indexing with a boolean mask"),
        (
            line("torch.cuda.synchronize()", 34.0, 90.0, "torch.cuda.synchronize"),
            "synchronize",
            "Remove this call from the loop",
        ),
        (line("print(loss)", 34.0, 90.0, "Tensor.__repr__"), "print", "Print the tensor only every N steps"),
        (line("train()", 34.0, 90.0, None, "In[2]:4 step"), "item", "Keep the value on the GPU"),
    ],
)
def test_a_line_that_waits_for_the_gpu(seen: LineTime, call: str, fix: str) -> None:
    """If there are gaps in the GPU's work, the advice names the line that waits for the GPU, and the call in
    that line that waits."""
    context = RunContext(source_of=lambda frame: "total += loss.item()" if "In[2]:4" in frame else "")
    said = only(evidence(half_idle(), time=time_of(seen), context=context))
    assert (said.rule, said.evidence["call"], said.evidence["line"]) == ("sync-points", call, 7)
    assert said.fix.startswith(fix)


@pytest.mark.parametrize(
    ("gpu_report", "seen"),
    [
        (busy(), line("loss.item()", 34.0, 99.0)),
        (half_idle(), line("loss.item()", 5.0, 90.0)),
        (half_idle(), line("loss.item()", 34.0, 2.0)),
        (half_idle(), line("total = items(loss)", 34.0, 90.0)),
        (half_idle(), replace(line("loss.item()", 34.0, 90.0), until=9)),
        (half_idle(), line("x.cpu().numpy()", 34.0, 90.0, "heavy", "train.py:31 heavy")),
        (half_idle(), line("loss.item()", 34.0, None)),
        (half_idle(), line("print('epoch', epoch)", 34.0, 90.0)),
        (half_idle(), replace(line("synchronize()", 98.0, 90.0, "torch.cuda.synchronize"), call_share=30.0)),
        (half_idle(), replace(line("synchronize()", 14.0, 90.0, "torch.cuda.synchronize"), call_share=9.0)),
        (half_idle(), line("get_ipython().run_cell_magic('time', '', 'loss.item()')", 98.0, 90.0)),
    ],
)
def test_waiting_that_costs_nothing_gets_no_advice(gpu_report: GpuReport, seen: LineTime) -> None:
    """There is no advice about a line that waits if the GPU has no gaps in its work, or if the wait is short.

    There is none either if the GPU is idle during the wait, or if the line's time may have been spent in
    code that does not wait.
    """
    assert rules(evidence(gpu_report, time=time_of(seen))) == []


def test_without_cuda_nothing_waits_for_the_gpu() -> None:
    """If this process never initialized CUDA, a line with ``float(v)`` does not count as waiting for the GPU.

    This applies even if the GPU is busy, because another process must have done the work.
    """
    seen = time_of(line("x = sum([float(v) for v in rows])", 98.0, 90.0))
    assert [(one.rule, one.sure) for one in advise(evidence(half_idle(), time=seen))] == [
        ("sync-points", False)
    ]
    assert rules(evidence(half_idle(), time=seen, context=RunContext(cuda_initialized=False))) == []


def test_a_call_has_only_its_share_of_its_line() -> None:
    """The share in the text is the share of the call that waits, not the share of the whole line."""
    seen = replace(
        line("for x in xs: a(x); b(x); torch.cuda.synchronize()", 98.0, 80.0, "torch.cuda.synchronize"),
        call_share=60.0,
    )
    assert only(evidence(half_idle(), time=time_of(seen))).evidence == {
        "line": 7,
        "call": "synchronize",
        "share": 60.0,
        "utilization": 40.0,
    }


def test_the_rest_of_a_line_beside_its_frames_has_no_call() -> None:
    """If a line calls a function that waits for the GPU, only the time in that function counts as waiting.

    The rest of the line's time was spent outside the function, so there is no advice about it.
    """
    frame = FrameTime("In[2]:4 step", 50.0, 90.0, "Tensor.__repr__", 50.0)
    seen = LineTime(7, "log(step())", 90.0, 90.0, "Tensor.__repr__", frame.frame, None, (frame,), 50.0)
    said = only(evidence(half_idle(), time=time_of(seen)))
    assert (said.evidence["frame"], said.evidence["share"]) == ("In[2]:4 step", 50.0)
    assert (
        rules(evidence(half_idle(), time=time_of(replace(seen, frames=(replace(frame, share=5.0),))))) == []
    )


def test_a_long_line_is_shortened() -> None:
    """The text shows at most sixty characters of a source line, as the rest of the card does."""
    seen = line(f"total += ({'x + ' * 100}loss).item()", 34.0, 90.0)
    shown = f"`total += ({'x + ' * 12}x…`"
    assert shown in only(evidence(half_idle(), time=time_of(seen))).text


# -- advice about the GPU's work -------------------------------------------------------------------------


def test_tf32_that_is_off_is_named() -> None:
    """If TF32 is off, the text states this and the fix suggests TF32.

    If TF32 is on, neither the text nor the fix mentions TF32.
    """
    hungry = in_float32()
    off = only(evidence(hungry, context=RunContext(switches=ComputeSwitches(False, True, True))))
    figures = {"sm_activity": 81.0, "tensor_activity": 2.0, "fp32_activity": 66.0, "gpus": [0]}
    assert off.evidence == {**figures, "tf32_matmul": False}
    assert off.text.endswith("TF32 is off for matrix products.")
    assert off.fix.endswith("or torch.set_float32_matmul_precision('high') for TF32.")
    on = only(evidence(hungry, context=RunContext(switches=ComputeSwitches(True, True, True))))
    assert "TF32" not in on.text + on.fix
    unknown = only(evidence(hungry))
    assert unknown.evidence == figures
    assert "TF32" in unknown.fix
    assert "torch." not in unknown.fix


def test_copies_name_their_line() -> None:
    """If a line that copies data takes enough of the time, the advice about copies names that line."""
    copying = busy(
        utilization=level(95.0),
        sm_activity=level(1.0),
        tensor_activity=level(0.0),
        dram_activity=level(1.0),
        pcie=Traffic(level(3.0 * gib(1)), level(2.0 * gib(1))),
        power_w=level(131.0),
    )
    said = only(evidence(copying, time=time_of(line("y = x.cpu()", 71.0, 99.0, number=3))))
    assert said.rule == "copies"
    assert said.evidence == {
        "utilization": 95.0,
        "sm_activity": 1.0,
        "pcie_and_nvlink_bytes_s": 5.0 * gib(1),
        "gpus": [0],
    }
    assert said.text.endswith("Line 3 `y = x.cpu()` took 71 % of the time.")
    aside = time_of(line("train()", 90.0, 99.0), line("model.to('cuda')", 1.0, 0.0, number=3))
    assert "Line 3" not in only(evidence(copying, time=aside)).text


def test_gpus_that_hold_memory_but_do_nothing() -> None:
    """If this process holds memory on GPUs that did nothing, there is advice about these GPUs.

    There is no advice if GPU work is not attributed to processes.
    """
    said = only(evidence(busy(0), unused(1), unused(2)))
    assert said.rule == "idle-gpus"
    assert said.evidence == {"idle": [1, 2], "at_work": [0], "held_bytes": gib(24)}
    nothing_held = TorchMemory(Span(0, 0, 0), Span(0, 0, 0), 0, 0, 0)
    assert rules(evidence(busy(0), unused(1, torch=nothing_held))) == []
    assert rules(evidence(busy(0), unused(1), attributed=False)) == []


def test_two_gpus_one_of_which_waits() -> None:
    """With hardware counters, the straggler advice is given even if only two GPUs exchange data.

    One of them, the straggler, has gaps in its work, and the other one waits for it.
    """
    waits = busy(
        0,
        utilization=level(99.5),
        sm_activity=level(25.0),
        tensor_activity=level(3.0),
        power_w=level(190.0),
        nvlink=EXCHANGE,
    )
    late = half_idle(
        utilization=Level(11.0, 34.0), sm_activity=level(9.0), power_w=level(180.0), nvlink=EXCHANGE
    )
    late = replace(late, index=1, uuid="GPU-1", bursts=40)
    said = only(evidence(waits, late))
    assert (said.rule, said.sure) == ("straggler", True)
    assert said.evidence == {
        "waiting": [0],
        "late": 1,
        "waiting_utilization": 99.5,
        "waiting_sm_activity": 25.0,
        "waiting_power_w": 190.0,
        "late_utilization": 11.0,
        "late_sm_activity": 9.0,
    }
    assert "about 88 % of the time" in said.text
    assert rules(evidence(waits, late, unused(2), unused(3))) == ["straggler", "idle-gpus"]
    assert "straggler" not in rules(evidence(replace(waits, nvlink=NOTHING), late))


@pytest.mark.parametrize(
    "changes",
    [
        {"tensor_activity": level(40.0)},
        {"dram_activity": level(70.0)},
        {"sm_activity": level(80.0)},
        {"sm_activity": level(1.0)},
        {"power_w": level(600.0)},
        {"utilization": level(85.0)},
        {"nvlink": Traffic(level(40.0 * gib(1)), level(40.0 * gib(1)))},
        {"power_w": None},
        {"utilization": None},
    ],
)
def test_a_busier_gpu_that_does_not_only_wait(changes: dict[str, Any]) -> None:
    """A GPU that is busier than another one, and does more work, draws more power or exchanges more data than
    the other, does not wait for it. Nor does a GPU that only copies, or whose figures are unknown."""
    waits, late = waiting_and_late()
    assert rules(evidence(waits, late)) == ["straggler"]
    assert "straggler" not in rules(evidence(reports.changed(waits, **changes), late))


def rank(number: int, on: GpuReport) -> WorkerReport:
    """Return the report of a rank of a job of two ranks."""
    return reports.worker(number, gpu=on.uuid)


def test_a_pipeline_of_two_gpus_is_not_a_straggler() -> None:
    """If a model is divided over two GPUs, one of them may do less work than the other, which does not wait
    for it, also if the work is small."""
    links = Traffic(level(2.0 * gib(1)), level(2.0 * gib(1)))
    small = {"nvlink": links, "fp32_activity": level(0.5)}
    more = busy(
        0,
        utilization=level(93.0),
        sm_activity=level(16.0),
        tensor_activity=level(3.0),
        dram_activity=level(6.0),
        power_w=level(180.0),
        **small,
    )
    less = busy(
        1,
        utilization=level(60.0),
        sm_activity=level(10.0),
        tensor_activity=level(1.9),
        dram_activity=level(3.9),
        power_w=level(165.0),
        **small,
    )
    assert "straggler" not in rules(evidence(more, less))
    same = reports.changed(less, tensor_activity=level(2.9), dram_activity=level(5.8))
    assert rules(evidence(more, same)) == ["straggler"]


def test_the_late_ranks_are_named() -> None:
    """The advice names the ranks on the late GPU, if they are known."""
    waits, late = waiting_and_late()
    said = only(evidence(waits, late, workers=(rank(0, waits), rank(2, late), rank(1, late))))
    assert "GPU 1 (ranks 1 and 2)" in said.text
    assert "about 59 % of the time" in said.text
    assert "ranks 1 and 2" in said.fix
    assert said.evidence["late_ranks"] == [1, 2]


def test_the_steady_part_of_a_run_with_workers() -> None:
    """If workers did the GPU work, rules about it use the time without start-up and shutdown, and the text
    contains how long that was. The line profile and the loaders of the notebook are not about it."""
    idle = busy(0, utilization=level(45.0), sm_activity=level(40.0), fp32_activity=level(30.0), torch=None)
    hungry = reports.changed(
        idle, utilization=level(99.0), sm_activity=level(90.0), fp32_activity=level(66.0)
    )
    hungry = reports.changed(hungry, tensor_activity=level(2.0))
    steady = SteadyPart(SteadyWindow(12.0, 19.0), (hungry,))
    workers = (rank(0, idle),)
    said = only(evidence(idle, workers=workers, steady=steady))
    assert said.rule == "tensor-cores-idle"
    assert "over 7 of 20 s" in said.text
    assert (said.evidence["steady_from_s"], said.evidence["steady_until_s"]) == (12.0, 19.0)
    starving = half_idle(torch=None, bursts=30)
    steady = SteadyPart(SteadyWindow(6.0, 20.0), (starving,))
    waiting = time_of(line("!torchrun train.py", 100.0, 0.0))
    context = RunContext(loaders=(LOADER,))
    given = evidence(replace(starving, bursts=2), time=waiting, workers=workers, context=context)
    assert rules(given) == []
    said = only(replace(given, steady=steady))
    assert (said.rule, said.sure, "num_workers" in said.evidence) == ("input-pipeline", False, False)


def test_gpus_of_reporting_workers_belong_to_the_run() -> None:
    """If the driver's process ids are not valid here, the advice is about the GPUs that the workers have
    reported, and is not weakened. A worker without a GPU makes it unknown whose work it is."""
    hungry = [in_float32(n, torch=None) for n in (0, 1)]
    report = replace(
        reports.report(*hungry, duration=20.0), attributed=False, workers=(rank(0, hungry[1]),), timeline=None
    )
    (said,) = advise(RunEvidence.of(report))
    assert (said.sure, said.evidence["gpus"]) == (True, [1])
    unknown = replace(report, workers=(replace(rank(0, hungry[1]), gpu=None),))
    assert advise(RunEvidence.of(unknown)) == ()


def test_a_slow_gpu_is_late_though_it_is_busy() -> None:
    """A GPU without gaps in its work counts as a straggler if the other GPUs wait for it and it is more
    active than they are."""
    waits = [
        busy(n, sm_activity=level(25.0), tensor_activity=level(9.0), power_w=level(250.0), nvlink=EXCHANGE)
        for n in range(2)
    ]
    assert rules(evidence(*waits, busy(2, nvlink=EXCHANGE))) == ["straggler"]
    assert rules(evidence(*waits, busy(2, sm_activity=level(30.0), nvlink=EXCHANGE))) == []


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        ({"too hot": 12.0}, "GPU 0 was throttled (too hot). This lasted 12 of 20 s."),
        ({"power brake": 5.0, "idle": 3.0}, "GPU 0 was throttled (power brake). This lasted 5 of 20 s."),
        ({"power cap": 20.0}, None),
        ({"clock setting": 20.0}, None),
        ({"too hot": 2.0}, None),
        (None, None),
    ],
)
def test_which_throttle_reasons_get_advice(held: dict[str, float] | None, expected: str | None) -> None:
    """Throttling by heat or by the power supply leads to advice if it lasts long enough.

    It must last for at least 4 s and for at least a tenth of the run. Throttling by the power cap leads to
    no advice, because full load is expected to reach the cap.
    """
    found = advise(evidence(busy(throttled=held)))
    assert [one.text for one in found] == ([] if expected is None else [expected])


def test_cudnn_off() -> None:
    """Disabled cuDNN leads to advice only if a model uses cuDNN and a GPU did work."""
    model = Model("model", "ResNet", 0, gib(0.1), True)
    context = RunContext(models=(model,), switches=ComputeSwitches(False, False, False))
    assert rules(evidence(busy(), context=context)) == ["cudnn-off"]
    assert rules(evidence(unused(), context=context)) == []
    linear = replace(context, models=(replace(model, uses_cudnn=False),))
    assert rules(evidence(busy(), context=linear)) == []


def benchmark_mode(*, drops: int = 8, late: bool = True, share: float = 30.0, **changes: Any) -> RunEvidence:
    """Return the evidence of a loop of convolutions in cuDNN's benchmark mode.

    The memory in use falls ``drops`` times, because torch frees its cache when cuDNN has searched for the
    fastest algorithm. If ``late``, it falls in the second half of the run.
    """
    one = half_idle()
    assert one.torch is not None
    one = replace(one, torch=replace(one.torch, alloc_retries=0), **changes)
    t = tuple(20.0 * n / 200 for n in range(200))
    first = 100 if late else 0
    low = {first + 10 * n + 5 for n in range(drops)}
    memory = tuple(gib(9) if n in low else gib(10) for n in range(200))
    nothing = (None,) * 200
    course = Timeline(t, (), (GpuTimeline(one.uuid, nothing, memory, nothing, nothing),))
    forward = line("y = net(x)", share, 60.0, "Conv2d.forward", "In[2]:5 Net.forward")
    return evidence(
        one,
        context=RunContext("for x in sizes: net(x)", switches=ComputeSwitches(False, True, True, True)),
        time=time_of(forward, line("loss.backward()", 60.0, 70.0, "Tensor.backward", number=8)),
        timeline=course,
    )


def test_cudnn_that_searches_for_each_new_shape() -> None:
    """If cuDNN's benchmark mode is on, convolutions are slow, and torch repeatedly returns memory late in the
    run, the advice is that cuDNN searches again for each new input shape."""
    said = only(benchmark_mode())
    assert (said.rule, said.sure) == ("cudnn-benchmark", False)
    assert said.evidence == {
        "share": 30.0,
        "memory_falls": 8,
        "utilization": 40.0,
        "cudnn_benchmark": True,
    }
    assert "(line 7 `y = net(x)` at In[2]:5 Net.forward in Conv2d.forward)" in said.text
    assert said.fix.startswith("torch.backends.cudnn.benchmark = False")


def test_cudnn_that_searches_once_gets_no_advice() -> None:
    """The advice requires several late searches, slow convolutions, a GPU with gaps, and benchmark mode.

    There is no advice if the cell itself empties the cache.
    """
    found = benchmark_mode()
    assert rules(benchmark_mode(late=False)) == []
    assert rules(benchmark_mode(drops=2)) == []
    assert rules(benchmark_mode(share=5.0)) == []
    assert rules(benchmark_mode(utilization=level(97.0))) == []
    off = replace(found.context, switches=ComputeSwitches(False, True, True, False))
    assert rules(replace(found, context=off)) == []
    emptied = replace(found.context, cell="net(x); torch.cuda.empty_cache()")
    assert rules(replace(found, context=emptied)) == []
    assert rules(replace(found, timeline=None)) == []


# -- advice about memory ---------------------------------------------------------------------------------


def test_fragmentation_in_runs_of_any_length() -> None:
    """Fragmentation is reported if much reserved memory is unused although torch has flushed its cache.

    It is reported for short runs too, because torch's counters are exact.
    """
    said = only(evidence(busy(torch=FRAGMENTED), duration_s=0.5))
    assert said.evidence == {
        "gpu": 0,
        "reserved_peak_bytes": gib(30),
        "allocated_peak_bytes": gib(18),
        "inactive_split_bytes": gib(12),
        "alloc_retries": 3,
    }
    assert rules(evidence(busy(torch=replace(FRAGMENTED, alloc_retries=0)))) == []
    assert rules(evidence(busy(torch=replace(FRAGMENTED, alloc_retries=None)))) == []
    assert rules(evidence(busy(torch=replace(FRAGMENTED, allocated=Span(0, gib(29), gib(29)))))) == []


def test_memory_that_a_flush_returns_is_not_fragmented() -> None:
    """If a cache flush returned the memory that ``del`` had freed, no fragmentation is reported."""
    freed = TorchMemory(Span(gib(10), 0, gib(10)), Span(gib(10), 0, gib(22)), 1, 1, 0)
    assert rules(evidence(busy(torch=freed), duration_s=0.5)) == []
    assert rules(evidence(busy(torch=replace(freed, inactive_split=None)), duration_s=0.5)) == []


def ends(*sizes: float) -> tuple[EarlierRun, ...]:
    """Return one run per size, which is the memory in GiB at the end of the run.

    Each run starts with the memory that the previous run left in use.
    """
    return tuple(
        EarlierRun(gib(before), gib(after)) for before, after in zip((0.0, *sizes), sizes, strict=False)
    )


@pytest.mark.parametrize(
    ("runs", "grows"),
    [
        (ends(1.0, 2.0, 3.0, 4.0), True),
        (ends(9.0, 9.5, 10.0, 10.5), True),
        (ends(1.0, 2.0, 3.0), False),
        (ends(1.0, 2.0, 2.5, 2.6), False),
        (ends(1.0, 2.0, 3.0, 3.0), False),
        (ends(1.0, 1.001, 1.002, 1.003), False),
        ((*ends(1.0, 2.0, 3.0), EarlierRun(gib(0.1), gib(4.0))), False),
    ],
)
def test_memory_that_grows_from_run_to_run(runs: tuple[EarlierRun, ...], grows: bool) -> None:
    """Growing memory is reported if each of four runs adds about the same amount of memory.

    It is not reported if memory is freed between the runs. A cache that fills up is not reported either.
    """
    one = busy()
    found = rules(evidence(one, context=RunContext(earlier_runs={one.uuid: runs})))
    assert found == (["growing-memory"] if grows else [])


def test_growing_memory_has_the_number_of_runs_left() -> None:
    """The advice about growing memory contains how many more such runs fit into the GPU's memory.

    This number is computed from the GPU's total, used and reserved memory.
    """
    one = busy(device_memory=Span(gib(100), gib(120), gib(120)))
    past = RunContext(earlier_runs={one.uuid: ends(1.0, 6.0, 11.0, 16.0)})
    said = only(evidence(one, context=past))
    assert said.evidence == {
        "gpu": 0,
        "ends_bytes": [gib(1), gib(6), gib(11), gib(16)],
        "growth_bytes": gib(5),
    }
    assert "after 4 more such runs" in said.text
    # With 5.6 GiB reserved by the driver, only three more runs fit.
    reserved = only(evidence(replace(one, memory_reserved=gib(5.6)), context=past))
    assert "after 3 more such runs" in reserved.text
    assert "more such" not in only(evidence(replace(one, memory_reserved=None), context=past)).text


def test_sure_advice_comes_first() -> None:
    """Certain advice comes before uncertain advice."""
    bursts = half_idle(utilization=Level(20.0, 90.0), bursts=30, torch=FRAGMENTED)
    assert rules(evidence(bursts)) == ["fragmentation", "input-pipeline"]


def test_the_rules_in_order_of_importance() -> None:
    """Advice about GPUs that wait comes first, then advice about slow work, then advice about memory."""
    assert [rule.id for rule in rules_module.RULES] == [
        "model-on-cpu",
        "slower-gpu",
        "straggler",
        "input-pipeline",
        "copies",
        "sync-points",
        "small-kernels",
        "tensor-cores-idle",
        "idle-gpus",
        "throttled",
        "cudnn-off",
        "cudnn-benchmark",
        "memory-bound",
        "device-switches",
        "unused-contexts",
        "growing-memory",
        "fragmentation",
    ]


def test_two_rules_with_one_number_are_an_error() -> None:
    """Two rules with the same number have no order, so importing them fails."""
    first, second, *_ = rules_module.RULES
    with pytest.raises(ValueError, match="model-on-cpu and slower-gpu have the same order, 110"):
        rules_module.in_order((first, replace(second, order=first.order)))


def test_every_rule_has_its_section_in_the_docs() -> None:
    """The name of each rule is a heading in docs/reference/advice.md, and the rule's advice links to that
    heading."""
    headings = set(re.findall(r"^## (\S+)$", DOCS, re.M))
    assert {rule.id for rule in rules_module.RULES} <= headings


def test_a_figures_name_ends_with_its_unit() -> None:
    """Programs and the card find the unit of a rule's figure in its name, which ends as the card expects."""
    endings = {"bytes/s": "_bytes_s", "bytes": "_bytes", "W": "_w", "s": "_s"}
    for rule in rules_module.RULES:
        for name, unit in rule.figures.items():
            ending = next((ending for ending in endings.values() if name.endswith(ending)), None)
            assert ending == endings.get(unit), (rule.id, name)


def test_the_docs_name_the_rules_that_workers_and_stragglers_concern() -> None:
    """docs/reference/advice.md names the rules that use a run's steady part, that a straggler excludes, and
    that judge short runs."""
    page = " ".join(DOCS.split())
    for start, end, concerned in (
        ("These rules are", "If workers did", lambda rule: rule.part == "steady part"),
        ("If workers did all GPU work,", "also uses", lambda rule: rule.part == "steady part of workers"),
        ("these rules give none:", "*Do:*", lambda rule: not rule.beside_straggler),
        ("All rules need a run of at least three seconds, except", "**", lambda rule: rule.any_duration),
    ):
        said = page.partition(start)[2].partition(end)[0]
        assert set(re.findall(r"`([a-z-]+)`", said)) == {
            rule.id for rule in rules_module.RULES if concerned(rule)
        }, start


def test_others_work_and_divided_gpus_are_no_evidence() -> None:
    """Advice does not judge GPUs on which only other processes worked, nor a GPU that is divided into MIG
    slices beside its slices."""
    idle, theirs = gpu(1, worked=False, utilization=level(0.0)), gpu(2, worked=False, utilization=level(90.0))
    mine = gpu(0, worked=True)
    assert own_gpus((mine, idle, theirs), attributed=True) == (mine, idle)
    part = gpu(0, uuid="MIG-1", mig_index=1, mig_parent=mine.uuid)
    assert own_gpus((mine, part), attributed=True) == (part,)
    assert own_gpus((mine, part), attributed=False) == (part,)
