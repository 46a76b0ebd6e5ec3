"""What is generated from the table of GPU metrics."""

from __future__ import annotations

import pytest

from gpuwidget.model.metrics import METRICS
from tools import metrics


def test_generated_files_match_the_table() -> None:
    """A metric that is in the table is in the dataclasses, the labextension and the docs."""
    different = [path.name for path, text in metrics.generated() if path.read_text(encoding="utf-8") != text]
    assert different == []


def test_a_difference_is_reported(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """``make check`` fails where somebody forgot to generate, and names the command."""
    monkeypatch.setattr(metrics, "METRICS", METRICS[:-1])
    assert metrics.main(["--check"]) == 1
    assert (
        "readings.py does not match the table of metrics: run python -m tools.metrics."
        in capsys.readouterr().err
    )


def test_each_metric_is_declared_once() -> None:
    """Keys, names in recordings and exported names are unique."""
    for names in (
        [metric.key for metric in METRICS],
        [metric.recorded.key for metric in METRICS if metric.recorded is not None],
        [metric.exported.name for metric in METRICS if metric.exported is not None],
    ):
        assert sorted(names) == sorted(set(names))


def test_each_chart_explains_its_metric() -> None:
    """A metric that can be charted has a label and a sentence."""
    assert [metric.key for metric in METRICS if bool(metric.label) != bool(metric.description)] == []
