"""Tests of the files that tools/metrics.py generates from the table of GPU metrics."""

from __future__ import annotations

from dataclasses import fields

import pytest

from gpuwidget.model import readings
from gpuwidget.model.metrics import METRICS
from tools import metrics


def test_generated_files_match_the_table() -> None:
    """The generated dataclasses, TypeScript files and docs match the table of metrics."""
    different = [path.name for path, text in metrics.generated() if path.read_text(encoding="utf-8") != text]
    assert different == []


def test_a_difference_is_reported(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a generated file does not match the table, the tool's ``--check`` fails and names the command that
    generates the file."""
    monkeypatch.setattr(metrics, "METRICS", METRICS[:-1])
    assert metrics.main(["--check"]) == 1
    assert (
        "readings.py does not match the table of metrics: run python -m tools.metrics."
        in capsys.readouterr().err
    )


def test_each_metric_is_declared_once() -> None:
    """No two metrics have the same key, the same name in recordings or the same exported name."""
    for names in (
        [metric.key for metric in METRICS],
        [metric.recorded.key for metric in METRICS if metric.recorded is not None],
        [metric.exported.name for metric in METRICS if metric.exported is not None],
    ):
        assert sorted(names) == sorted(set(names))


def test_each_chart_explains_its_metric() -> None:
    """A metric that has a label for its chart also has a description, and the other way round."""
    assert [metric.key for metric in METRICS if bool(metric.label) != bool(metric.description)] == []


@pytest.mark.parametrize(
    "generated",
    [member for member in vars(readings).values() if getattr(member, "__module__", "") == readings.__name__],
)
def test_readings_take_no_value_by_position(generated: type) -> None:
    """A value of a generated reading is always given by name. If a row of the table moves, no value becomes
    that of another metric."""
    assert [field.name for field in fields(generated) if not field.kw_only] == []
