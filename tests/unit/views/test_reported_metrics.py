"""Every metric that the table declares for reports reaches the views that its entry names."""

from __future__ import annotations

from typing import Any

import helpers_reports as reports
import pytest
from helpers_reports import gpu

from gpuwidget.model import units
from gpuwidget.model.metrics import REPORTED, Metric, Reported
from gpuwidget.model.report import Level
from gpuwidget.views import card_details, card_gpus
from gpuwidget.views.comparison import compare_reports
from gpuwidget.views.detail_levels import BRIEF
from gpuwidget.views.reductions import reduce


def levels(reported: Reported, level: Level | None) -> dict[str, Any]:
    """Return the level of the metric by its name in the report."""
    return {reported.name: level}


_EACH = pytest.mark.parametrize(("metric", "reported"), REPORTED, ids=[metric.key for metric, _ in REPORTED])


@_EACH
def test_the_metric_is_read_during_a_short_run(metric: Metric, reported: Reported) -> None:
    """A report's value is never from before the run, because the metric is read several times per second."""
    assert metric.group in ("fast", "activity")


@_EACH
def test_the_json_has_the_metric(metric: Metric, reported: Reported) -> None:
    """The JSON and the flat metrics have the metric, except that the flat metrics and the JSON of a small
    card omit a secondary one."""
    report = reports.report(gpu(**levels(reported, Level(7.0, 8.0))))
    assert report.to_dict()["gpus"][0][reported.name] == {"mean": 7.0, "max": 8.0}
    assert (f"gpu0/{reported.name}_mean" in report.metrics()) == (not reported.secondary)
    assert (reported.name in reduce(report, BRIEF).stored["gpus"][0]) == (not reported.secondary)


@_EACH
@pytest.mark.parametrize("count", [1, 5])
def test_the_card_has_the_metric(metric: Metric, reported: Reported, count: int) -> None:
    """The card has a column and a row of the metric if its entry says so, or else the reason why it is
    unknown. A table of many GPUs has fewer columns."""
    text = units.KINDS[metric.kind].text
    report = reports.report(*(gpu(index, **levels(reported, Level(7.0, 8.0))) for index in range(count)))
    rows = card_gpus.hardware_table(report, per_gpu=False)
    assert ([reported.title, text(7.0), text(8.0)] in rows) == (reported.title is not None)
    titles = [column.title for column in card_gpus.table_columns(report.gpus)]
    assert (reported.title in titles) == (
        reported.column in (("always", "few GPUs") if count == 1 else ("always",))
    )
    unknown = reports.report(gpu(**levels(reported, None), missing={reported.name: "not supported"}))
    expected = [] if reported.label is None else [[reported.label, "not supported"]]
    assert card_details.unknown_values(unknown) == expected


@_EACH
def test_the_comparison_has_the_metric(metric: Metric, reported: Reported) -> None:
    """A comparison has a row of the metric's mean if its entry says so."""
    runs = [reports.report(gpu(**levels(reported, Level(mean, 9.0)))) for mean in (3.0, 7.0)]
    rows = {row.values for row in compare_reports(runs[0], runs[1], ("a", "b")).rows}
    text = units.KINDS[metric.kind].text
    if reported.name != "sm_activity":  # It has a row because the time series contain it.
        assert ((text(3.0), text(7.0)) in rows) == reported.compared
