"""Tests of the report of one GPU and of its reasons for unknown values."""

from __future__ import annotations

from dataclasses import replace

import pytest
from helpers_samples import GIB, h200, reading

from gpuwidget.measure.gpu_totals import GpuTotals
from gpuwidget.measure.run_report import GpuReportBuilder
from gpuwidget.model.messages import MessageId
from gpuwidget.model.report import Span, TorchMemory
from gpuwidget.model.torch_state import AllocatorCounters, DevicePeaks, TorchDevice

pytestmark = pytest.mark.usefixtures("no_torch")

GPU = h200(0)
DEVICE = TorchDevice(index=1, uuid=GPU.uuid)
BEFORE = AllocatorCounters(
    allocated=1 * GIB,
    allocated_peak=1 * GIB,
    reserved=2 * GIB,
    reserved_peak=2 * GIB,
    alloc_retries=3,
    ooms=1,
    inactive_split=0,
)
AFTER = replace(BEFORE, allocated=3 * GIB, reserved=4 * GIB, alloc_retries=5)
ACCOUNT = DevicePeaks(before=BEFORE, after=AFTER, allocated_peak=3 * GIB, reserved_peak=4 * GIB)


def totals() -> GpuTotals:
    """Return the totals of a GPU that was read once."""
    return GpuTotals(GPU, reading(GPU), 1.0)


def test_torchs_memory_counters() -> None:
    """The report contains the GPU's torch device and the changes of torch's memory counters on that
    device."""
    report = GpuReportBuilder([DEVICE], {1: ACCOUNT}, {1: GIB}, recorded=False).build(
        totals(), 1.0, shown=True
    )
    assert (report.uuid, report.index, report.torch_device, report.shown) == (GPU.uuid, 0, "cuda:1", True)
    assert report.torch == TorchMemory(
        allocated=Span(1 * GIB, 3 * GIB, 3 * GIB),
        reserved=Span(2 * GIB, 4 * GIB, 4 * GIB),
        alloc_retries=2,
        ooms=0,
        inactive_split=0,
        returnable=GIB,
    )
    assert not {"torch", "returnable", "alloc_retries", "ooms"} & set(report.missing)


def test_unknown_counters_have_a_reason() -> None:
    """If counters were reset, or there is no usable list of segments, the values are None with a reason."""
    account = replace(ACCOUNT, before=replace(BEFORE, ooms=9))
    report = GpuReportBuilder([DEVICE], {1: account}, {1: None}, recorded=False).build(
        totals(), 1.0, shown=True
    )
    assert report.torch is not None
    assert (report.torch.ooms, report.torch.returnable) == (None, None)
    assert report.missing_ids["ooms"] == MessageId("counters-reset", {})
    assert report.missing_ids["returnable"] == MessageId("no-segments", {})
    unchanged = GpuReportBuilder([DEVICE], {1: ACCOUNT}, {}, recorded=False).build(totals(), 1.0, shown=True)
    assert unchanged.missing_ids["returnable"] == MessageId("segments-not-read", {})


def test_why_torchs_memory_is_missing() -> None:
    """If torch's memory is missing, the report contains the reason.

    Either torch is not loaded, or the GPU is from a recording.
    """
    reasons = [
        GpuReportBuilder([], {}, {}, recorded=recorded).build(totals(), 1.0, shown=False).missing_ids["torch"]
        for recorded in (False, True)
    ]
    assert [reason.id for reason in reasons] == ["torch-not-loaded", "recorded-torch"]


def test_reserved_memory_may_be_unknown() -> None:
    """If the driver does not report the memory that it reserves, the value is missing with a reason."""
    one = replace(GPU, memory_reserved=None)
    found = [
        GpuReportBuilder([], {}, {}, recorded=False).build(GpuTotals(gpu, reading(gpu), 1.0), 1.0, shown=True)
        for gpu in (GPU, one)
    ]
    assert ["memory_reserved" in report.missing for report in found] == [False, True]
