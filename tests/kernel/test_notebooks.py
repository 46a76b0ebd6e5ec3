"""Each example notebook runs on any machine, and its committed outputs come from a real GPU."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from kernel.test_quickstart import reports
from nbclient import NotebookClient

from gpuwidget.cli.commands.examples import notebooks

LABELS = {
    "starved_data_loader": ["starved", "repaired"],
    "mixed_precision": ["float32", "bfloat16"],
    "out_of_memory": ["at once", "in eight parts"],
    "leak_across_cells": ["epoch 1", "epoch 2", "epoch 3, repaired"],
    "several_gpus": ["on the one chosen", "side by side", "one after the other"],
    "cudnn_and_tf32": [
        *("TF32 off", "TF32 on", "without cuDNN", "with cuDNN", "the search", "after the search"),
    ],
}
"""Maps each notebook to the labels of its watched cells."""

FOUND = {path.stem: path for path in notebooks()}
EACH = pytest.mark.parametrize("name", LABELS)


def read(path: Path) -> Any:
    """Return the notebook that this file contains."""
    return nbformat.read(path, as_version=4)


def test_all_notebooks_are_tested() -> None:
    """The tests in this module run every notebook of the repository except the quickstart."""
    assert set(FOUND) == {*LABELS, "quickstart"}


@EACH
@pytest.mark.parametrize("source", ["replay", "none"])
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed (TORCH=0)")
def test_notebooks_run_without_a_gpu(name: str, source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """If GPU readings come from a recording or if there is no GPU, each cell of the notebook succeeds,
    and each watched cell has a card."""
    monkeypatch.setenv("GPUWIDGET_SOURCE", source)
    notebook = read(FOUND[name])
    NotebookClient(notebook, timeout=200).execute()
    found = reports(notebook)
    assert [report["cell"]["label"] for report in found] == LABELS[name]
    assert {report["cell"]["status"] for report in found} == {"ok"}
    assert {report["source"]["kind"] for report in found} == {source}
    # With a GPU, some cells fail on purpose. Without a GPU, no cell fails.
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    assert [output for output in outputs if output["output_type"] == "error"] == []
    texts = [output.get("data", {}).get("text/plain", "") for output in outputs]
    tables = [text for text in texts if re.match(r".* → .*\n  (?:.* change\n|Not shown: )", text)]
    assert len(tables) == sum("%gpu compare" in line for cell in notebook.cells for line in lines(cell))


def lines(cell: Any) -> list[str]:
    """Return the lines of a code cell; for any other cell, return an empty list."""
    return str(cell.source).splitlines() if cell.cell_type == "code" else []


@EACH
def test_committed_outputs_are_from_a_real_gpu(name: str) -> None:
    """The notebook's committed outputs come from a single run on an H200, not from a recording."""
    notebook = read(FOUND[name])
    assert "widgets" not in notebook.metadata
    found = reports(notebook)
    if not found:
        pytest.skip("it is committed without outputs")
    assert [report["cell"]["label"] for report in found] == LABELS[name]
    for report in found:
        assert (report["source"]["kind"], report["gpus"][0]["name"]) == ("nvml", "NVIDIA H200")
    counts = [cell.execution_count for cell in notebook.cells if cell.cell_type == "code"]
    assert counts == list(range(1, len(counts) + 1))
