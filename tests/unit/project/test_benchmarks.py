"""Tests of the benchmarks' arithmetic, and a test that the benchmarks start. No test measures durations."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[3]))

from benchmarks import __main__ as bench
from benchmarks.figures import Figure, table
from benchmarks.growth import growth
from benchmarks.labextensions import compressed_kib
from benchmarks.settings import ROOT, Settings
from benchmarks.statistics import alternating, median_interval, overhead_ratio, p99, ratios, slope

FACTS: dict[str, Any] = {"date": "2025-01-01T00:00Z", "gpus": [], "driver": None}


def test_p99_is_a_value_that_was_measured() -> None:
    """`p99()` returns a measured value: the 99th of a hundred sorted values, or the highest if there are only
    a few."""
    assert p99([float(value) for value in range(100, 0, -1)]) == 99.0
    assert p99([3.0, 1.0, 2.0]) == 3.0


def test_median_interval_covers_the_median_with_95_percent() -> None:
    """`median_interval()` returns the same order statistics as the tables of the sign test: the 2nd and 9th
    of 10 sorted values, the 6th and 15th of 20. With fewer than 6 values it returns None."""
    assert median_interval([float(value) for value in range(1, 11)]) == (2.0, 9.0)
    assert median_interval([float(value) for value in range(1, 21)]) == (6.0, 15.0)
    assert median_interval([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]) == (1.0, 6.0)
    assert median_interval([1.0, 2.0, 3.0, 4.0, 5.0]) is None


def test_slope_is_that_of_the_least_squares_line() -> None:
    """`slope()` returns the slope of the least-squares line with the 95 % interval of Student's t. Three
    points on a line have an interval of width 0, and two points have no interval at all."""
    times = [float(hour) for hour in range(12)]
    noise = [0.3, -0.3, 0.1, -0.1, -0.2, 0.2, -0.2, 0.2, 0.1, -0.1, -0.1, 0.1]
    found = slope(times, [5 + 2 * time + each for time, each in zip(times, noise, strict=True)])
    assert found is not None
    # The squares of the residuals add up to 0.4, and those of the times to 143 around their mean. Student's t
    # for 10 degrees of freedom is 2.2281.
    half = 2.2281 * (0.4 / 10 / 143) ** 0.5
    assert found.value == pytest.approx(2.0)
    assert (found.low, found.high) == pytest.approx((2.0 - half, 2.0 + half), abs=1e-4)
    exact = slope([0.0, 1.0, 2.0], [1.0, 1.5, 2.0])
    assert exact is not None
    assert (exact.low, exact.value, exact.high) == (0.5, 0.5, 0.5)
    assert slope([0.0, 1.0], [1.0, 2.0]) is None


def test_slope_of_correlated_values_is_less_certain() -> None:
    """If successive values resemble each other, as a process's memory does, the interval is wider than for
    the same values in another order."""
    times = [float(hour) for hour in range(20)]
    waves = [1.0, 1.0, 1.0, 1.0, 1.0, -1.0, -1.0, -1.0, -1.0, -1.0] * 2
    mixed = [1.0, -1.0] * 10
    wide, narrow = slope(times, waves), slope(times, mixed)
    assert wide is not None
    assert narrow is not None
    assert wide.high - wide.low > 2 * (narrow.high - narrow.low)


def test_growth_is_flat_up_to_one_per_hour() -> None:
    """Memory is flat if it grows by at most 1 MiB per hour. Memory that shrinks is flat, too. The row has the
    slope's interval; with two samples it is not measured, and not 0."""
    hours = [0.0, 0.5, 1.0, 1.5]
    flat = growth("soak", "memory", "MiB/h", hours, [10.0, 10.25, 10.5, 10.75])
    assert (flat.median, flat.met) == (0.5, True)
    assert flat.details["95 % of the slope"] == [0.5, 0.5]
    assert growth("soak", "memory", "MiB/h", hours, [10.0, 9.0, 8.0, 7.0]).met is True
    assert growth("soak", "memory", "MiB/h", hours, [10.0, 11.0, 12.0, 13.0]).met is False
    assert growth("soak", "memory", "MiB/h", hours[:2], [10.0, 11.0]).not_measured == (
        "2 samples are too few for a slope"
    )


def test_benchmarks_that_take_hours_run_only_by_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without names, all benchmarks run except those that take hours."""
    ran: list[str] = []

    def measure(name: str) -> list[Figure]:
        ran.append(name)
        return []

    names = ("import", "soak-page")
    monkeypatch.setattr(bench, "BENCHMARKS", {name: lambda _, name=name: measure(name) for name in names})
    assert bench.main(["--quick"]) == 0
    assert ran == ["import"]
    assert bench.main(["--quick", "soak-page"]) == 0
    assert ran == ["import", "soak-page"]


def test_pairs_alternate_which_runs_first() -> None:
    """The two variants that a benchmark compares take turns in running first, so that drift affects both
    equally."""
    order: list[str] = []

    def run(name: str) -> int:
        order.append(name)
        return len(order)

    pairs = alternating(3, lambda: run("plain"), lambda: run("watched"))
    assert order == ["plain", "watched", "watched", "plain", "plain", "watched"]
    assert pairs == [(1, 2), (4, 3), (5, 6)]
    assert ratios([(2.0, 3.0), (4.0, 4.0)]) == [1.5, 1.0]


def test_overhead_compares_disturbed_with_undisturbed_steps() -> None:
    """`overhead_ratio()` divides a run's duration by the duration that the run would have if all its steps
    were as fast as those without disturbance."""
    ends = [0.0, 1.5, 2.5, 4.0, 5.0, 6.0, 7.0, 8.5]
    assert overhead_ratio(ends, [(0.1, 0.2), (2.6, 2.7), (7.2, 9.0)]) == pytest.approx(8.5 / 7)
    assert overhead_ratio(ends, [(-1.0, 0.5), (1.6, 3.0), (8.0, 8.5)]) == pytest.approx(8.5 / 7)
    assert overhead_ratio(ends, [(-5.0, -1.0), (9.0, 9.5)]) == 1.0
    assert overhead_ratio(ends, [(0.0, 9.0)]) is None


def test_a_bar_is_met_by_the_median_and_every_condition() -> None:
    """A figure meets its bar (the limit that it must not exceed) only if its median is within the bar and all
    its conditions are true."""
    values = [1.0, 2.0, 9.0]
    assert Figure("import", "x", "ms", bar=2.0, values=values).met is True
    assert Figure("import", "x", "ms", bar=1.9, values=values).met is False
    assert (
        Figure("import", "x", "ms", bar=2.0, values=values, conditions={"loads no torch": False}).met is False
    )
    assert Figure("import", "x", "ms", values=values).met is None
    assert Figure("import", "x", "ms", bar=2.0, not_measured="no GPU").met is None


def test_results_are_kept_whole(tmp_path: Path) -> None:
    """The results file contains data about the machine, every measured value, and the reason for every figure
    that was not measured."""
    figures = [
        Figure("pass", "a cell", "ms", bar=5, values=[3.0, 1.0, 2.0], details={"GPUs on the card": 8}),
        Figure("training", "a loop", "ratio", bar=1.02, not_measured="no GPU"),
    ]
    path = tmp_path / "results" / "2025-01-01-all.json"
    bench.save(path, figures, FACTS, quick=True)
    assert json.loads(path.read_text()) == {
        "date": "2025-01-01T00:00Z",
        "gpus": [],
        "driver": None,
        "quick": True,
        "figures": [
            {
                "benchmark": "pass",
                "what": "a cell",
                "unit": "ms",
                "bar": 5,
                "median": 2.0,
                "median_95": None,
                "p99": 3.0,
                "met": True,
                "conditions": {},
                "details": {"GPUs on the card": 8},
                "not_measured": None,
                "values": [3.0, 1.0, 2.0],
            },
            {
                "benchmark": "training",
                "what": "a loop",
                "unit": "ratio",
                "bar": 1.02,
                "median": None,
                "median_95": None,
                "p99": None,
                "met": None,
                "conditions": {},
                "details": {},
                "not_measured": "no GPU",
                "values": [],
            },
        ],
    }


def test_the_table_shows_which_bars_are_met() -> None:
    """The printed table has one row per figure with its bar, median, p99 and verdict. A figure that was not
    measured is shown as n/a, not as 0."""
    figures = [
        Figure("pass", "a cell", "ms", bar=5, values=[3.0, 1.0, 2.0]),
        Figure("python-1", "a loop", "ratio", bar=1.01, values=[1.02]),
        Figure("training", "a real loop", "ratio", bar=1.02, not_measured="no GPU"),
    ]
    assert [line.split() for line in table(figures).splitlines()[2:]] == [
        ["a", "cell", "≤", "5.00", "ms", "2.00", "ms", "-", "3.00", "ms", "3", "met"],
        ["a", "loop", "≤", "1.0100", "1.0200", "-", "-", "1", "MISSED"],
        ["a", "real", "loop", "≤", "1.0200", "n/a", "-", "-", "0", "not", "measured"],
        ["no", "GPU"],
    ]


def test_a_failed_benchmark_does_not_affect_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """If one benchmark raises an exception, its row shows the error, the results of all others are saved, and
    the exit status is 1."""

    def fails(settings: Settings) -> list[Figure]:
        raise OSError("no compiler")

    def works(settings: Settings) -> list[Figure]:
        return [Figure("works", "it works", "ms", bar=1, values=[0.5])]

    monkeypatch.setattr(bench, "BENCHMARKS", {"fails": fails, "works": works})
    assert bench.main(["--quick", "--out", str(tmp_path / "found.json")]) == 1
    figures = json.loads((tmp_path / "found.json").read_text())["figures"]
    assert [(figure["benchmark"], figure["not_measured"]) for figure in figures] == [
        ("fails", "OSError: no compiler"),
        ("works", None),
    ]
    assert "it works" in capsys.readouterr().out


def test_an_unknown_benchmark_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """For an unknown benchmark name, the error lists the existing names, and no benchmark is run."""
    with pytest.raises(SystemExit) as raised:
        bench.main(["nonsense"])
    assert raised.value.code == 2
    assert "no benchmark 'nonsense'; there are import, load, pass" in capsys.readouterr().err


def test_starting_the_benchmarks_loads_no_torch() -> None:
    """Importing the benchmarks does not import torch."""
    program = "import sys, benchmarks.__main__; print('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"


def test_pages_start_with_the_helpers_of_the_browser_tests() -> None:
    """The benchmarks of pages find the module with which the browser tests start JupyterLab."""
    code = "from benchmarks import pages; print(pages.browser_helpers().Lab.__name__)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "Lab"


def test_the_size_of_a_labextension_is_what_a_page_loads_at_the_start(tmp_path: Path) -> None:
    """The scripts that a page loads at the start are counted separately from those of views that somebody
    opens. A folder without scripts has no size."""
    static = tmp_path / "static"
    static.mkdir()
    assert compressed_kib(tmp_path) is None
    for name in ("remoteEntry.0f.js", "12.3a.js", "dashboard.4b.js", "licenses.json"):
        (static / name).write_bytes(bytes(1_000_000))
    sizes = compressed_kib(tmp_path)
    assert sizes is not None
    assert sizes.at_start == pytest.approx(2 * sizes.later)
    assert 0.9 < sizes.later < 1.0
