"""Tests of the sums over a run's GPUs: the card, its saved JSON, tables, the comparison and metrics agree."""

from __future__ import annotations

from dataclasses import replace

import helpers_reports as reports
import pytest
from helpers_reports import cell, gib, gpu, report

from gpuwidget.model import units
from gpuwidget.model.mime_types import MIME_TYPE
from gpuwidget.model.report import GpuReport, Level, Report, RunTotals, Span
from gpuwidget.views import card, card_summary, card_text
from gpuwidget.views.comparison import compare_reports


def values(made: Report, name: str) -> tuple[str, str]:
    """Return a row of the comparison of a run with itself."""
    found = compare_reports(made, made, ("a", "b"))
    return next(row.values for row in found.rows if row.name == name)


def divided() -> tuple[GpuReport, GpuReport]:
    """Return a GPU and its only MIG slice, on which the process holds 2 GiB more than at the start.
    The driver lists the process for both."""
    held = {"process_memory": Span(gib(1), gib(3), gib(3)), "torch": None, "torch_device": None}
    parent = gpu(0, utilization=None, **held)
    part = {"uuid": "MIG-1", "mig_index": 1, "mig_parent": parent.uuid, "memory_total": gib(17)}
    return parent, gpu(0, utilization=None, energy_j=None, power_w=None, **part, **held)


def test_memory_in_a_mig_slice_counts_once() -> None:
    """The driver lists a process on a MIG slice for the slice's parent, too. No sum contains both: not the
    card's, not that of ``%gpu watch on``, ``reports()``, the saved JSON, the metrics or the comparison."""
    made = report(*divided())
    assert card_summary.headline(made)[1:3] == [
        "peak memory 3.0 GiB (sampled, of 17.0 GiB)",
        "memory kept +2.0 GiB",
    ]
    assert card_summary.second_line(made)[:2] == [
        "GPU 0 MIG 1 H200",
        "this notebook 1.0 \N{RIGHTWARDS ARROW} 3.0 of 17.0 GiB",
    ]
    assert card_summary.short_line(made)[1:] == [*card_summary.headline(made)[1:3], "GPU 0 MIG 1"]
    assert card_text.table_rows([made])[1][3:5] == ["+2.0 GiB", "3.0 GiB (sampled)"]
    assert values(made, "process memory, change") == ("+2.0 GiB", "+2.0 GiB")
    saved = card.bundle(made)[MIME_TYPE]
    assert (saved["totals"]["gpus"], len(saved["gpus"])) == (1, 2)
    assert saved["totals"]["memory"] == {"start": gib(1), "end": gib(3), "peak": gib(3)}
    # The energy of the whole GPU may be that of other slices.
    assert "energy_j" not in made.metrics()


def test_a_divided_gpu_without_its_slices_counts() -> None:
    """If only the divided GPU itself is selected, its figures are the run's."""
    parent, _ = divided()
    assert report(parent).totals.memory == Span(gib(1), gib(3), gib(3))


@pytest.mark.parametrize("count", [1, 4, 22, 64])
def test_totals_are_saved_as_totals(count: int) -> None:
    """However many GPUs fit into the saved JSON, its totals are those of all GPUs, as on the card."""
    made = reports.sixteen(count)
    saved = card.bundle(made)[MIME_TYPE]
    totals = saved["totals"]
    assert (totals["gpus"], totals["energy_gpus"], totals["ooms"]) == (count, count, 0)
    assert totals["energy_j"] == pytest.approx(sum(one.energy_j or 0 for one in made.gpus), rel=0.001)
    assert card_summary.total_energy(made.counted) == units.energy(totals["energy_j"])
    assert totals["memory_kind"] == "torch"
    assert totals["memory"]["end"] == sum(one.torch.allocated.end or 0 for one in made.gpus if one.torch)
    assert len(saved["gpus"]) == count or count > 16


def test_totals_of_a_report() -> None:
    """``report.totals`` has the sums, and how many GPUs they include. A sum of bytes with an unknown part is
    unknown."""
    lost = gpu(1, utilization=None, energy_j=None, process_memory=None, torch=None)
    made = report(gpu(0, utilization=Level(40.0, 90.0), energy_j=100.0), lost)
    memory = Span(gib(12.9) * 2, gib(16.1) * 2, gib(16.1))
    assert made.totals == RunTotals(2, "device", memory, 40.0, 1, 100.0, 1, 0)
    unknown = replace(lost, device_memory=Span(None, gib(1), None))
    assert report(gpu(0), unknown).totals.memory == Span(None, gib(17.1), gib(16.1))
    assert report(cell=cell()).totals == RunTotals(0, None, None, None, 0, None, 0, 0)
