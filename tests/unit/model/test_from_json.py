"""Reports are read from their JSON as they were written, with texts that can still be translated."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from helpers_golden_made import all_reports
from helpers_reports import lost

from gpuwidget.measure.advice.multi_gpu import WAIT
from gpuwidget.model.from_json import from_json, restore, text_table
from gpuwidget.model.report import Report, RunInfo, Span
from gpuwidget.views import card

REPORTS = {name: report for name, report in all_reports() if name != "hostile"}
"""Without the report in which the same text is a note with an id and one without."""


@pytest.mark.parametrize("name", REPORTS)
def test_a_report_read_from_its_json_has_the_same_card(name: str) -> None:
    """A card made later from the stored report is the card that the run had."""
    report = REPORTS[name]
    stored = json.loads(json.dumps({"report": report.to_dict(), "texts": text_table(report)}))

    read = from_json(Report, restore(stored["report"], stored["texts"]))

    assert card.bundle(read) == card.bundle(report)


def test_texts_of_a_read_report_keep_their_ids() -> None:
    """Programs find the same ids and parameters of notes and reasons in a stored report."""
    report = lost()
    stored = json.loads(json.dumps({"report": report.to_dict(), "texts": text_table(report)}))

    read = from_json(Report, restore(stored["report"], stored["texts"]))

    assert [gpu.missing_ids for gpu in read.gpus] == [gpu.missing_ids for gpu in report.gpus]
    assert read.note_ids == report.note_ids


def test_a_template_of_a_newer_version_keeps_its_english() -> None:
    """A text with a format that this version does not know is shown as it was written."""
    sources = {
        "GPUs 0 and 1 wait.": {"template": "{gpus:new_format} wait.", "params": {"gpus": {"value": 1}}}
    }
    read = restore({"note": "GPUs 0 and 1 wait."}, {"sources": sources, "ids": {}})
    assert read == {"note": "GPUs 0 and 1 wait."}


def test_texts_are_restored_in_a_process_that_measures_nothing() -> None:
    """The server fills every template of a report without the modules that made it."""
    text = WAIT(gpus=["0", "1"], late="rank 2")
    stored = json.dumps({"values": [text], "texts": text_table([text])})
    program = """if True:
        import json, sys
        from gpuwidget.model.from_json import restore
        stored = json.load(sys.stdin)
        (found,) = restore(stored["values"], stored["texts"])
        print(type(found).__name__, found, "gpuwidget.measure" in sys.modules)
    """
    done = subprocess.run(
        [sys.executable, "-c", program], input=stored, capture_output=True, text=True, check=True
    )
    assert done.stdout == "Text GPUs 0 and 1 wait for rank 2. False\n"


def test_fields_of_newer_versions_are_ignored() -> None:
    """A file of a newer version can still be read."""
    assert from_json(Span, {"start": 1, "end": 2, "peak": 3, "mean": 2}) == Span(1, 2, 3)


@pytest.mark.parametrize(
    "values",
    [
        pytest.param({"start": "1", "end": 2, "peak": 3}, id="another type"),
        pytest.param({"start": True, "end": 2, "peak": 3}, id="a bool for a number"),
        pytest.param({"start": 1, "end": 2}, id="a missing field"),
        pytest.param([1, 2, 3], id="a list"),
        pytest.param(None, id="nothing"),
    ],
)
def test_values_of_another_form_are_refused(values: object) -> None:
    """A damaged file is an error, and never a report with wrong figures."""
    with pytest.raises(ValueError, match=r"not a Span|is not of type"):
        from_json(Span, values)


def test_an_unknown_status_is_refused() -> None:
    """A word that this version does not know is an error."""
    values = {"execution_count": 1, "label": None, "started": 1, "duration_s": 2.0, "gpu_tail_s": None}
    assert from_json(RunInfo, {**values, "status": "ok"}) == RunInfo(1, None, 1.0, 2.0, None, "ok")
    with pytest.raises(ValueError, match="'lost' is none of"):
        from_json(RunInfo, {**values, "status": "lost"})
