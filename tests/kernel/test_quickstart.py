"""The quickstart notebook runs on any machine, and its committed outputs come from a real GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from gpuwidget.views.card_summary import SHORT_S

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "quickstart.ipynb"
REPORT = "application/vnd.gpuwidget.report+json"


def reports(notebook: Any) -> list[dict[str, Any]]:
    """Return the reports that a notebook's outputs contain."""
    return [
        output["data"][REPORT]
        for cell in notebook.cells
        for output in cell.get("outputs", ())
        if REPORT in output.get("data", {})
    ]


@pytest.mark.parametrize("source", ["replay", "none"])
def test_the_quickstart_runs_without_a_gpu(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """If GPU readings come from a recording or if there is no GPU, each cell of the notebook succeeds,
    and each watched cell has a card. In the tour, the short cell after ``%gpu watch on`` has none,
    because without a GPU it keeps no GPU memory."""
    monkeypatch.setenv("GPUWIDGET_SOURCE", source)
    notebook: Any = nbformat.read(NOTEBOOK, as_version=4)
    NotebookClient(notebook, timeout=200).execute()
    found = reports(notebook)
    labels = [report["cell"]["label"] for report in found]
    assert labels[:3] == ["a small model", "gone in a millisecond", "two phases"]
    # On a busy machine, the cell of the tour may take longer.
    assert all(report["cell"]["duration_s"] >= SHORT_S for report in found[3:])
    assert {report["source"]["kind"] for report in found} == {source}
    assert {report["cell"]["status"] for report in found} == {"ok"}


def test_committed_outputs_are_from_a_real_gpu() -> None:
    """The quickstart's committed outputs were measured on an H200, not replayed.
    They contain the exact peak of torch's memory and the energy used.
    The tour, which shows the reader's machine, has no outputs."""
    notebook: Any = nbformat.read(NOTEBOOK, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.source for cell in code[5:] if cell.source.startswith("%")] == [
        "%gpu device",
        "%gpu memory",
        "%gpu doctor",
        "%gpu watch on",
        "%gpu watch off",
    ]
    assert [cell.outputs for cell in code[5:]] == [[]] * 6
    training, gone, phases = reports(notebook)
    for report in (training, gone, phases):
        assert (report["source"]["kind"], report["gpus"][0]["name"]) == ("nvml", "NVIDIA H200")
    allocated = gone["gpus"][0]["torch"]["allocated"]
    assert allocated["peak"] - allocated["start"] == 4 * 1024**3
    assert training["gpus"][0]["energy_j"] > 0
    assert [mark["label"] for mark in phases["timeline"]["marks"]] == ["the GPU waits", "the GPU works"]
    assert "widgets" not in notebook.metadata
