"""``gpuwidget usage``, with a real Prometheus that has known data."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers_prometheus import Prometheus, find_programs

from gpuwidget.cli.main import main

STEP_S = 60
HOURS = 4
"""The data covers this many hours up to now."""
GIB = 1024**3
ANNA = {"user": "anna", "notebook": "n1", "kernel": "k1", "gpu": "0", "UUID": "GPU-0"}
BEN = {"user": "ben", "notebook": "n2", "kernel": "k2", "gpu": "1", "UUID": "GPU-1"}
TERMINAL = {"user": "anna", "notebook": "", "kernel": "", "gpu": "1", "UUID": "GPU-1"}
COUNTERS = {
    "gpuwidget_kernel_gpu_held_seconds": [(ANNA, 1.0), (BEN, 0.5), (TERMINAL, 0.25)],
    "gpuwidget_kernel_gpu_busy_seconds": [(ANNA, 0.75)],
    "gpuwidget_kernel_gpu_memory_byte_seconds": [(ANNA, 20.0 * GIB), (BEN, 8.0 * GIB)],
    "gpuwidget_kernel_gpu_energy_joules": [(ANNA, 360.0)],
}
"""Each counter's increase per second, by labels."""


def data(now: float) -> str:
    """Return the samples in the text format of OpenMetrics."""
    times = [now - STEP_S * step for step in range(HOURS * 3600 // STEP_S, -1, -1)]
    lines: list[str] = []

    def series(name: str, labels: dict[str, str], values: list[float]) -> None:
        text = ",".join(f'{label}="{value}"' for label, value in labels.items())
        lines.extend(f"{name}{{{text}}} {value} {at}" for at, value in zip(times, values, strict=True))

    for name, rows in COUNTERS.items():
        lines.append(f"# TYPE {name} counter")
        for labels, rate in rows:
            # The server of BEN restarts after two of the four hours, and its counters start again at 0.
            elapsed = [at - times[0] for at in times]
            half = len(times) // 2
            reset = [at if place < half else at - elapsed[half] for place, at in enumerate(elapsed)]
            counted = reset if labels is BEN else elapsed
            series(f"{name}_total", labels, [rate * seconds for seconds in counted])
    lines.append("# TYPE gpuwidget_kernel_info gauge")
    named = {"kernel": "k1", "notebook": "n1", "user": "anna", "path": "work/train.ipynb"}
    series("gpuwidget_kernel_info", named, [1.0] * len(times))
    return "\n".join([*lines, "# EOF\n"])


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the address of a Prometheus with four hours of known data."""
    found = find_programs()
    folder = tmp_path_factory.mktemp("prometheus")
    source = folder / "data.txt"
    source.write_text(data(float(int(time.time()))))
    subprocess.run(
        [found["promtool"], "tsdb", "create-blocks-from", "openmetrics", str(source), str(folder / "data")],
        check=True,
        capture_output=True,
    )
    server = Prometheus(found["prometheus"], folder, {"job_name": "none", "static_configs": []})
    server.wait_until_ready()
    yield server.url
    server.stop()


def usage(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Run the command, and return what it prints."""
    assert main(["usage", *arguments]) == 0
    return capsys.readouterr().out


def rounded(value: float | None) -> float | None:
    """Round a value of Prometheus: the query comes a moment after the last sample."""
    return None if value is None else round(value, 1)


def test_the_use_of_each_notebook_is_exact(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The use in a range of time is the increase of the counters, with the notebooks' paths where the servers
    export them. What is unknown is null."""
    reply = json.loads(usage(capsys, "--since", "1h", "--by", "notebook", "--prometheus", url, "--json"))
    assert (reply["since_s"], reply["by"]) == (3600.0, "notebook")
    units = {"held_s": 36, "busy_s": 36, "memory_byte_s": 36 * GIB, "energy_j": 3.6e4}
    hours = [
        (
            *(row[key] for key in ("user", "notebook", "path", "kernel")),
            *(rounded(None if row[key] is None else row[key] / unit) for key, unit in units.items()),
        )
        for row in reply["use"]
    ]
    assert hours == [
        ("anna", "n1", "work/train.ipynb", None, 100.0, 75.0, 2000.0, 36.0),
        ("ben", "n2", None, None, 50.0, None, 800.0, None),
        ("anna", "", None, None, 25.0, None, None, None),
    ]


def test_a_restart_of_a_server(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A restart of the server within the range loses at most the time until its first scrape."""
    reply = json.loads(usage(capsys, "--since", "3h", "--by", "kernel", "--prometheus", url, "--json"))
    held = {row["kernel"]: row["held_s"] for row in reply["use"]}
    assert held["k1"] == pytest.approx(3 * 3600, abs=1)
    assert held["k2"] == pytest.approx(3 * 1800, abs=STEP_S)
    assert held[""] == pytest.approx(3 * 900, abs=1)


def test_the_table(
    url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without options, address, matchers and price come from Jupyter's configuration."""
    config = f"c.GpuWidget.prometheus_url = {url!r}\nc.GpuWidget.gpu_hour_price = 2\n"
    config += "c.GpuWidget.gpu_hour_currency = 'EUR'\nc.GpuWidget.prometheus_matchers = 'kernel=\"k1\"'\n"
    (tmp_path / "jupyter_server_config.py").write_text(config)
    monkeypatch.setenv("JUPYTER_CONFIG_DIR", str(tmp_path))
    assert usage(capsys, "--since", "1h").splitlines() == [
        "User  GPU-hours held  busy  GiB-hours   kWh   EUR",
        "anna            1.00  0.75      20.00  0.36  2.00",
    ]
    assert usage(capsys, "--since", "1h", "--by", "kernel").splitlines() == [
        "User  Notebook          Kernel  GPU-hours held  busy  GiB-hours   kWh   EUR",
        "anna  work/train.ipynb  k1                1.00  0.75      20.00  0.36  2.00",
    ]


def test_no_prometheus(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without an address, and for a configuration that fails, the error states what to do."""
    monkeypatch.setenv("JUPYTER_CONFIG_DIR", str(tmp_path))
    assert main(["usage"]) == 2
    assert capsys.readouterr().err == (
        "gpuwidget: No Prometheus is configured. Give its address with --prometheus, or set "
        "c.GpuWidget.prometheus_url in jupyter_server_config.py.\n"
    )
    (tmp_path / "jupyter_server_config.py").write_text("1 / 0\n")
    assert main(["usage"]) == 2
    assert "ZeroDivisionError: division by zero" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [(), ("--prometheus", "http://127.0.0.1:9")])
def test_the_timeout_of_the_configuration(
    arguments: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """The time-out of a query is the configured one, since an error advises to set a longer one there."""
    config = "c.GpuWidget.prometheus_url = 'http://127.0.0.1:9'\nc.GpuWidget.prometheus_timeout = 90\n"
    (tmp_path / "jupyter_server_config.py").write_text(config)
    monkeypatch.setenv("JUPYTER_CONFIG_DIR", str(tmp_path))
    assert main(["usage", *arguments]) == 2
    assert capsys.readouterr().err == (
        "gpuwidget: prometheus_timeout can't be 90: give a number of seconds from 1 to 60.\n"
    )


def test_an_invalid_time(capsys: pytest.CaptureFixture[str]) -> None:
    """A time has a unit."""
    for text in ("30", "0d", "1y", "d"):
        with pytest.raises(SystemExit) as ended:
            main(["usage", "--since", text])
        assert ended.value.code == 2
        assert (
            f"{text!r} is not a time: give a number and m, h, d or w, such as 30d" in capsys.readouterr().err
        )
