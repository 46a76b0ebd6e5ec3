"""Tests of the removal of gpuwidget's outputs from a notebook."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import helpers_reports as reports
import pytest

from gpuwidget.views import card
from gpuwidget.views.saved_outputs import Removed, output_metadata, remove_outputs

VIEW = "application/vnd.jupyter.widget-view+json"
STATE = "application/vnd.jupyter.widget-state+json"
NOTEBOOKS = sorted((Path(__file__).parents[3] / "notebooks").glob("*.ipynb"))

TEXT = {"output_type": "stream", "name": "stdout", "text": ["loss 0.1\n"]}
PLOT = {
    "output_type": "display_data",
    "data": {"image/png": "aGk=", "text/plain": "<Figure>"},
    "metadata": {},
}
HTML = {
    "output_type": "execute_result",
    "data": {"text/html": ["<div style='color:red'>", "table</div>"], "text/plain": "table"},
    "metadata": {},
    "execution_count": 3,
}
ERROR = {"output_type": "error", "ename": "ValueError", "evalue": "x", "traceback": ["x"]}
USER = (TEXT, PLOT, HTML, ERROR)


def output(data: dict[str, Any], *, marked: bool = True, kind: str = "display_data") -> dict[str, Any]:
    """Return an output with this MIME bundle."""
    return {"output_type": kind, "data": data, "metadata": output_metadata() if marked else {}}


def notebook(*cells: tuple[dict[str, Any], ...], widgets: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return a notebook with one code cell for each tuple of outputs, and a text cell at the end."""
    metadata: dict[str, Any] = {"kernelspec": {"name": "python3"}}
    if widgets is not None:
        metadata["widgets"] = {STATE: {"state": widgets, "version_major": 2, "version_minor": 0}}
    return {
        "cells": [
            *({"cell_type": "code", "source": "x", "outputs": list(outputs)} for outputs in cells),
            {"cell_type": "markdown", "source": "# gpuwidget", "metadata": {}},
        ],
        "metadata": metadata,
        "nbformat": 4,
        "nbformat_minor": 5,
    }


CARD = output(card.bundle(reports.starved()))
TEXT_ONLY = output({"text/plain": "default device: cuda:0"})
EMPTY_SLOT = output({})


@pytest.mark.parametrize(
    "own",
    [
        CARD,
        TEXT_ONLY,
        EMPTY_SLOT,
        {**CARD, "output_type": "execute_result", "execution_count": 1},
        {**CARD, "metadata": {}},
        output({"text/html": "<div style='color:red'>hint</div>", "text/plain": "hint"}),
        output({"text/plain": "live GPU chart", VIEW: {"model_id": "not saved"}}),
    ],
    ids=["card", "text", "empty slot", "result", "unmarked card", "hint", "live chart"],
)
def test_an_output_is_removed(own: dict[str, Any]) -> None:
    """An output of gpuwidget is removed from its cell, and the user's outputs stay in their order."""
    made = notebook((), (TEXT, own, PLOT, own, HTML, ERROR))
    assert remove_outputs(made) == Removed(outputs=2, cells=1, widgets=0)
    assert made == notebook((), USER)


@pytest.mark.parametrize("lines", [False, True])
def test_a_front_end_has_dropped_the_metadata(lines: bool) -> None:
    """Outputs with HTML are recognized even without the mark in their metadata, and if the HTML is stored as
    lines."""
    html: Any = card.Reports([reports.starved()])._repr_mimebundle_()[0]["text/html"]
    own = output(
        {"text/plain": "x", "text/html": html.splitlines(keepends=True) if lines else html}, marked=False
    )
    made = notebook((own,))
    assert remove_outputs(made) == Removed(1, 1, 0)
    assert made == notebook(())


def test_other_entries_of_a_bundle_stay() -> None:
    """If a bundle with a report also has entries of another program, these entries stay."""
    mixed = output({**CARD["data"], "text/latex": "x"}, marked=False)
    made = notebook((mixed,))
    assert remove_outputs(made) == Removed(1, 1, 0)
    assert made == notebook((output({"text/latex": "x"}, marked=False),))


def test_a_notebook_without_gpuwidget_is_unchanged() -> None:
    """Nothing is removed from a notebook without gpuwidget's outputs, even if its text mentions gpuwidget."""
    users = {"a": {"model_name": "HTMLModel", "state": {"value": "gpuwidget-live", "_dom_classes": ["big"]}}}
    made = notebook(USER, widgets=users)
    before = copy.deepcopy(made)
    assert remove_outputs(made) == Removed(0, 0, 0)
    assert made == before


def model(*references: str, classes: tuple[str, ...] = (), **state: Any) -> dict[str, Any]:
    """Return the saved state of a widget that refers to other widgets."""
    children = [f"IPY_MODEL_{reference}" for reference in references]
    return {"model_name": "BoxModel", "state": {"_dom_classes": list(classes), "children": children, **state}}


LIVE = {
    "root": model("axes", "figure", classes=("gpuwidget-live", "gpuwidget-rows")),
    "axes": model(layout="IPY_MODEL_plain"),
    "figure": model(scales={"x": "IPY_MODEL_scale"}),
    "scale": model(),
    "plain": model(),
}


def test_widgets_of_live_views() -> None:
    """The saved state of live charts and dashboards is removed with all their widgets, and so is the output
    that shows them. Widgets of the user stay."""
    users = {"slider": model("style", classes=("big",)), "style": model()}
    dashboard = {"box": model("root", classes=("gpuwidget-dashboard",))}
    view = output({"text/plain": "devices", VIEW: {"model_id": "box"}}, marked=False)
    slider = output({"text/plain": "slider", VIEW: {"model_id": "slider"}}, marked=False)
    made = notebook((view, slider), widgets={**LIVE, **users, **dashboard})
    assert remove_outputs(made) == Removed(1, 1, 6)
    assert made == notebook((slider,), widgets=users)


def test_parts_of_a_chart() -> None:
    """If a part of a live chart was not saved, the other parts are removed as well, by the classes in their
    HTML. The user's HTML stays."""
    users = {"mine": model(value='<b class="mine">gpuwidget-live</b>')}
    part = {"readings": model("style", value='<div class="gpuwidget-header"></div>'), "style": model()}
    made = notebook((), widgets={**users, **part})
    assert remove_outputs(made) == Removed(0, 0, 2)
    assert made == notebook((), widgets=users)


def test_the_metadata_of_a_notebook_without_widgets() -> None:
    """If no widget is left, the notebook has no metadata about widgets. Other metadata stay."""
    made = notebook((), widgets=dict(LIVE))
    assert remove_outputs(made) == Removed(0, 0, 5)
    assert made == notebook(())


def test_widgets_that_the_user_needs() -> None:
    """A widget of the user that shows part of a dashboard keeps what it needs, but never a live chart."""
    users = {"mine": model("figure", "root")}
    made = notebook((), widgets={**LIVE, **users})
    assert remove_outputs(made) == Removed(0, 0, 3)
    assert sorted(made["metadata"]["widgets"][STATE]["state"]) == ["figure", "mine", "scale"]


def test_outputs_that_a_widget_captured() -> None:
    """Cards that an Output widget of the user has captured are removed from the widget's saved state."""
    made = notebook((), widgets={"out": {"model_name": "OutputModel", "state": {"outputs": [TEXT, CARD]}}})
    assert remove_outputs(made) == Removed(1, 0, 0)
    assert made == notebook((), widgets={"out": {"model_name": "OutputModel", "state": {"outputs": [TEXT]}}})


@pytest.mark.parametrize(
    "made",
    [
        {},
        {"cells": None, "metadata": []},
        {"cells": [None, {"outputs": 1}, {"outputs": [None, 1, {"data": []}, {"metadata": 1}]}]},
        {"cells": [{"outputs": [{"data": {VIEW: []}}, {"data": {"text/html": [1]}}]}]},
        {"cells": [{"outputs": [{"data": {VIEW: {"model_id": {}}}}]}]},
        {"metadata": {"widgets": {STATE: {"state": {"a": None, "b": {"state": {"_dom_classes": 1}}}}}}},
        {"metadata": {"widgets": {STATE: {"state": []}}}},
    ],
)
def test_notebooks_of_an_unexpected_form(made: dict[str, Any]) -> None:
    """Parts of a notebook that do not have the expected form are left unchanged."""
    before = copy.deepcopy(made)
    assert remove_outputs(made) == Removed(0, 0, 0)
    assert made == before


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_example_notebooks(path: Path) -> None:
    """The cards in the example notebooks are removed, and no output mentions gpuwidget any more."""
    made = json.loads(path.read_text(encoding="utf-8"))
    assert remove_outputs(made).outputs >= 3
    outputs = [output for cell in made["cells"] for output in cell.get("outputs", [])]
    assert "gpuwidget" not in json.dumps(outputs)
