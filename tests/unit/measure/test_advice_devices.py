"""Tests of the advice about the choice of the device."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import fakes
import helpers_reports as reports
import pytest
from helpers_reports import gib, gpu

from gpuwidget.measure.advice import advise
from gpuwidget.measure.advice.evidence import NO_CONTEXT, RunContext, RunEvidence
from gpuwidget.model.report import Advice, GpuReport, Level, Span, TorchMemory
from gpuwidget.model.samples import Gpu
from gpuwidget.model.torch_state import CodeLine, DeviceChanges

PEAK_RATES = {
    "NVIDIA GeForce RTX 3090": (44.1e12, 936e9),
    "NVIDIA GeForce RTX 4090": (101.7e12, 1008e9),
    "NVIDIA A100-SXM4-80GB": (19.5e12, 2039e9),
}
"""Peak float32 operations and peak bytes of the memory per second, as NVML's constants give them."""
SLOW, FAST, A100 = PEAK_RATES


def torch_memory(allocated: int) -> TorchMemory:
    """Return torch's memory with this peak."""
    return TorchMemory(Span(0, allocated, allocated), Span(0, allocated, allocated), 0, 0, 0)


def working(index: int = 0, model: str = SLOW, **changes: Any) -> GpuReport:
    """Return a GPU on which this process holds 10 GiB and that was 87 % busy."""
    made = gpu(
        index,
        name=model,
        memory_total=gib(24),
        memory_reserved=0,
        device_memory=Span(0, gib(10), gib(10)),
        process_memory=Span(0, gib(10), gib(10)),
        torch=torch_memory(gib(9)),
        utilization=Level(87.0, 99.0),
        sm_activity=None,
    )
    return replace(made, **changes)


def idle(index: int = 1, model: str = FAST, **changes: Any) -> GpuReport:
    """Return a GPU that nobody used."""
    nothing = {"device_memory": Span(0, 0, 0), "process_memory": Span(0, 0, 0), "torch": torch_memory(0)}
    return working(index, model, **{**nothing, "utilization": Level(0.0, 0.0), **changes})


def constants(report: GpuReport) -> Gpu:
    """Return the constant properties of a GPU."""
    flops, bandwidth = PEAK_RATES[report.name]
    made = fakes.gpu(report.index, name=report.name)
    return replace(made, uuid=report.uuid, peak_fp32_flops=flops, memory_bandwidth=bandwidth)


def advice(*gpus: GpuReport, context: RunContext = NO_CONTEXT, attributed: bool = True) -> list[Advice]:
    """Return the advice about devices on a run of 20 seconds on a machine with these GPUs."""
    report = replace(reports.report(*gpus, cell=reports.cell(20.0)), attributed=attributed, time=None)
    found = advise(RunEvidence.of(report, context, None, map(constants, gpus)))
    return [one for one in found if one.rule in ("slower-gpu", "unused-contexts", "device-switches")]


# -- a faster GPU that is idle ---------------------------------------------------------------------------


def test_the_faster_gpu_is_idle() -> None:
    """If a slower GPU computes while a faster one is idle, the advice names both with their models and
    devices."""
    (found,) = advice(working(torch_device="cuda:1"), idle(torch_device="cuda:0"))
    assert (found.rule, found.sure) == ("slower-gpu", True)
    assert "%gpu device cuda:0" in found.fix
    assert ".to('cuda:0')" in found.fix
    assert found.evidence == {
        "working": 0,
        "working_model": SLOW,
        "idle": 1,
        "idle_model": FAST,
        "utilization": 87.0,
        "fp32_ratio": 2.3,
        "memory_bandwidth_ratio": 1.1,
    }


@pytest.mark.parametrize(
    ("gpus", "why"),
    [
        ((working(0, FAST), idle(1, SLOW)), "the slower GPU is idle"),
        ((working(), idle(1, SLOW)), "the same model"),
        ((working(), idle(1, A100)), "faster memory, but fewer float32 operations"),
        ((working(utilization=Level(10.0, 20.0)), idle()), "the slower GPU hardly works"),
        ((working(), idle(utilization=Level(3.0, 40.0))), "somebody uses the faster GPU"),
        ((working(), idle(device_memory=Span(gib(20), gib(20), gib(20)))), "others hold its memory"),
        ((working(), idle(device_memory=Span(None, None, None))), "its free memory is unknown"),
        ((working(), idle(torch_device=None)), "it is hidden on purpose"),
    ],
)
def test_no_advice_without_a_free_and_faster_gpu(gpus: tuple[GpuReport, ...], why: str) -> None:
    """There is no advice if the idle GPU is not faster in every respect, or could not take the work."""
    assert advice(*gpus) == [], why


def test_no_advice_on_the_gpus_of_others() -> None:
    """There is no advice if it is unknown which GPUs the process uses, or if another process works on the
    slower GPU."""
    assert advice(working(), idle(), attributed=False) == []
    theirs = working(process_memory=Span(0, 0, 0), torch=torch_memory(0))
    assert advice(theirs, idle()) == []


def test_a_faster_gpu_that_a_number_hides() -> None:
    """If CUDA_VISIBLE_DEVICES selects the slower GPU by a number, which counts in CUDA's order, the advice is
    a possibility and says how to select the GPU by its UUID."""
    hidden = idle(torch_device=None)
    by_number = RunContext(cuda_variables={"CUDA_VISIBLE_DEVICES": "1"})
    (found,) = advice(working(torch_device="cuda:0"), hidden, context=by_number)
    assert (found.rule, found.sure) == ("slower-gpu", False)
    assert f"CUDA_VISIBLE_DEVICES={hidden.uuid}" in found.fix
    assert "CUDA_DEVICE_ORDER=PCI_BUS_ID" in found.fix
    for variables in (
        {"CUDA_VISIBLE_DEVICES": hidden.uuid},
        {"CUDA_VISIBLE_DEVICES": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"},
    ):
        assert (
            advice(working(torch_device="cuda:0"), hidden, context=RunContext(cuda_variables=variables)) == []
        )


# -- contexts and switches -------------------------------------------------------------------------------


def name(line: CodeLine) -> str:
    """Return a name for a line of a cell."""
    return f"In[5]:{line.line} `torch.cuda.mem_get_info(i)`"


FIRST_LINES = {1: CodeLine("cell", 3), 2: CodeLine("cell", 3)}


def test_contexts_on_unused_gpus_are_named_with_their_line() -> None:
    """If a run opens CUDA contexts on GPUs that it does not use, the advice names the GPUs, the line and the
    memory."""
    context = RunContext(
        new_contexts=frozenset({"cuda:0", "cuda:1", "cuda:2"}),
        device_changes=DeviceChanges(first_lines=FIRST_LINES),
        line_name=name,
    )
    size = Span(0, gib(0.6), gib(0.6))
    unused = [idle(index, SLOW, process_memory=size) for index in (1, 2)]
    (found,) = advice(working(), *unused, context=context)
    assert (found.rule, found.sure) == ("unused-contexts", True)
    assert found.evidence == {
        "unused": [1, 2],
        "held_bytes": 2 * gib(0.6),
        "lines": ["In[5]:3 `torch.cuda.mem_get_info(i)`"],
    }
    (one,) = advice(working(), unused[0], context=replace(context, line_name=None))
    assert one.evidence == {"unused": [1], "held_bytes": gib(0.6)}


@pytest.mark.parametrize(
    ("gpus", "why"),
    [
        ((working(), idle(1, SLOW, torch=torch_memory(1))), "it had a tensor"),
        ((working(), idle(1, SLOW, utilization=Level(3.0, 30.0))), "it worked"),
        ((idle(0, SLOW), idle(1, SLOW)), "nothing was used: the next cell may use it"),
        ((working(), idle(2, SLOW)), "the context is older than the run"),
    ],
)
def test_contexts_that_need_no_advice(gpus: tuple[GpuReport, ...], why: str) -> None:
    """There is no advice about a context that was used, or that the run did not open."""
    assert advice(*gpus, context=RunContext(new_contexts=frozenset({"cuda:1"}))) == [], why


def test_frequent_switches_are_named_with_their_line() -> None:
    """If the code switches the current device often, the advice contains how often, and the line."""
    changes = DeviceChanges(12_000, CodeLine("cell", 4))
    line = "In[5]:4 `torch.cuda.mem_get_info(i)`"
    (found,) = advice(working(), context=RunContext(device_changes=changes, line_name=name))
    assert (found.rule, found.sure) == ("device-switches", True)
    assert found.evidence == {"switches": 12_000, "per_second": 600.0, "line": line}


@pytest.mark.parametrize("switches", [99, 199])
def test_a_few_switches_need_no_advice(switches: int) -> None:
    """There is no advice on fewer than 100 switches, or fewer than ten a second."""
    assert advice(working(), context=RunContext(device_changes=DeviceChanges(switches))) == []
