"""Tests of a report's exports: as a dict, as JSON, as a data frame, and as flat metrics for a logger."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import replace

import helpers_reports as reports
import pytest
from helpers_reports import bare_gpu, gib, gpu

from gpuwidget.model.errors import GpuWidgetError, MissingPackageError
from gpuwidget.model.report import CodeTime, Report, Span

EVERY = pytest.mark.parametrize("make", reports.ALL.values(), ids=reports.ALL.keys())


def report(*gpus: object, **changes: object) -> Report:
    """Return the report of a 14-second run on these GPUs."""
    return replace(reports.report(), gpus=gpus or (gpu(),), **changes)  # type: ignore[arg-type]


def test_json_is_the_dict() -> None:
    """The JSON text has the same content as the dict. It is a single line unless an indent is given."""
    made = report()
    assert json.loads(made.to_json()) == made.to_dict()
    assert "\n" not in made.to_json()
    assert json.loads(made.to_json(indent=2)) == made.to_dict()
    assert made.to_dict()["gpus"][0]["energy_j"] == 2315.6


def test_any_report_can_be_written_as_text() -> None:
    """A report can be saved as JSON even if its label contains a lone surrogate, for example from the name of
    a file.
    """
    made = report(gpu(0), cell=reports.cell(label="run \ud800 \N{GREEK SMALL LETTER ALPHA}"))
    assert json.loads(made.to_json().encode())["cell"]["label"] == "run ? \N{GREEK SMALL LETTER ALPHA}"


def test_metrics_by_name() -> None:
    """The metrics of every GPU that the card shows have the names that the docs page lists. GPUs that are not
    shown have no metrics.
    """
    found = report(gpu(0), gpu(1, energy_j=100.0), gpu(2, shown=False)).metrics()
    assert found["duration_s"] == 14.0
    assert found["gpu0/torch_allocated_peak"] == gib(14.6)
    assert found["gpu0/process_memory_end"] == gib(15.6)
    assert found["gpu0/device_memory_start"] == gib(12.9)
    assert found["gpu1/utilization_mean"] == 11.04
    assert found["gpu1/power_w_max"] == 402.7
    assert found["gpu1/energy_j"] == 100.0
    assert found["energy_j"] == pytest.approx(2415.6)
    assert not [name for name in found if name.startswith("gpu2")]


def test_an_unknown_value_has_no_metric() -> None:
    """An unknown value is omitted from the metrics, and so is every sum that would include it. Neither is
    exported as 0.
    """
    found = report(gpu(0), bare_gpu(1, mig_index=2)).metrics()
    assert "gpu0/energy_j" in found
    assert "energy_j" not in found
    assert not [name for name in found if name.startswith("gpu1-mig2/torch")]
    assert found["gpu1-mig2/device_memory_end"] == gib(16.1)
    assert "warm_up_s" not in found
    timed = CodeTime((), 10, 0.1, None, 101.5, None, 2.5)
    found = report(time=timed).metrics()
    assert (found["warm_up_s"], found["cpu"], "cpu_children" in found) == (2.5, 101.5, False)


@EVERY
def test_every_metric_is_a_finite_number(make: object) -> None:
    """The name of every metric is plain ASCII and its value is finite, so that any logger accepts it."""
    for name, value in make().metrics().items():  # type: ignore[operator]
        assert type(value) in (int, float)
        assert math.isfinite(value)
        assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789_/-")


def test_a_data_frame_has_a_row_per_gpu() -> None:
    """The data frame has one row per GPU, including GPUs that the card does not show. Its columns have the
    names of the metrics.

    An unknown value is NaN.
    """
    pytest.importorskip("pandas")
    table = report(gpu(0), bare_gpu(1, shown=False)).to_frame()
    assert list(table["index"]) == [0, 1]
    assert list(table["shown"]) == [True, False]
    assert table["torch_allocated_peak"][0] == gib(14.6)
    assert math.isnan(table["torch_allocated_peak"][1])
    assert table["energy_j"].dtype == float
    assert set(table["duration_s"]) == {14.0}
    assert len(replace(report(), gpus=()).to_frame()) == 0


def test_without_pandas_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """If pandas is missing, to_frame() raises an error that explains how to install pandas and that to_dict()
    works without it.
    """
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingPackageError, match=r"pip install pandas.*to_dict\(\)") as raised:
        report().to_frame()
    assert isinstance(raised.value, (GpuWidgetError, ImportError))


def test_only_data_frames_import_pandas() -> None:
    """Exporting a report as metrics or as JSON does not import pandas."""
    code = (
        "import sys, gpuwidget\nwith gpuwidget.watch() as w: pass\n"
        "w.report.metrics(); w.report.to_json(); print('pandas' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_a_span_without_an_end() -> None:
    """If a GPU was lost during the run, the memory values that are known are still exported."""
    found = report(gpu(0, device_memory=Span(5, None, 7))).metrics()
    assert found["gpu0/device_memory_start"] == 5
    assert "gpu0/device_memory_end" not in found
