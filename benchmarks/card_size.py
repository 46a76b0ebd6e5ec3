"""Measure the size of cards that show 16 GPUs, and the time to build the largest of these cards.

``python -m benchmarks.card_size SECONDS`` watches a run of SECONDS seconds and prints the card's mime bundle.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.figures import Figure
from benchmarks.settings import ROOT, Settings, environment
from benchmarks.standin import machine
from gpuwidget.views import card

_GPUS = 16
_SIZE_BAR = 20_000
_TIME_BAR_MS = 8.0
_FULL_S = 14.0
"""Length of the watched run in seconds. Its timeline has fewer points than the report of
:func:`_largest_test_report`, so the card of that report is measured too."""


def measure(settings: Settings) -> Iterator[Figure]:
    """Measure the card's size in bytes (UTF-8 JSON without white space) and the time to build the card."""
    seconds = settings.pick(int(_FULL_S), 4)
    with TemporaryDirectory() as folder:
        standin = machine(Path(folder), _GPUS)
        worker = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.card_size", str(seconds)],
            env=environment(standin.environment()),
            stdout=subprocess.PIPE,
            text=True,
        )
        _vary(standin, worker)
        assert worker.stdout is not None
        bundle = json.loads(worker.stdout.read())
        worker.wait()
    yield _figure(f"card of a {seconds} s run on {_GPUS} GPUs", bundle)
    report = _largest_test_report()
    yield _figure(f"card of the tests' fullest report of {_GPUS} GPUs", card.bundle(report))
    yield Figure(
        benchmark="card",
        what="time to make that card",
        unit="ms",
        bar=_TIME_BAR_MS,
        values=[_milliseconds(report) for _ in range(settings.pick(200, 20))],
    )


def _vary(standin: Any, worker: subprocess.Popen[str]) -> None:
    """Vary the readings of each GPU until the run ends, because constant readings make a smaller card."""
    step = 0
    while worker.poll() is None:
        step += 1
        lines = [f"gpus={_GPUS}"]
        for gpu in range(_GPUS):
            wave = (step * (gpu + 3) * 37) % 101
            lines += [
                f"gpu.{gpu}.util={wave}",
                f"gpu.{gpu}.memory_used={80_000_000_000 + wave * 123_456_789}",
                f"gpu.{gpu}.power={76 + wave * 6.237:.3f}",
                f"gpu.{gpu}.gpm.2={wave * 0.9137:.4f}",
                f"gpu.{gpu}.compute=self:{4_000_000_000 + wave * 98_765_432}",
            ]
        standin.scenario(*lines)
        time.sleep(0.07)


def _figure(what: str, bundle: Mapping[str, Any]) -> Figure:
    sizes = {kind: len(_encoded(content)) for kind, content in bundle.items()}
    report = bundle["application/vnd.gpuwidget.report+json"]
    timeline = report.get("timeline") or {"t": [], "gpus": []}
    return Figure(
        benchmark="card",
        what=what,
        unit="B",
        bar=_SIZE_BAR,
        values=[len(_encoded(bundle))],
        details={
            **sizes,
            "GPUs on the timeline": len(timeline["gpus"]),
            "points": len(timeline["t"]),
            "as a notebook's file has it (indented)": len(_indented(bundle)),
        },
    )


def _encoded(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _indented(bundle: Mapping[str, Any]) -> bytes:
    # Imitate nbformat, which writes text as a list of lines, and each value of a JSON bundle on a separate
    # line.
    split = {
        kind: content.splitlines(keepends=True) if isinstance(content, str) else content
        for kind, content in bundle.items()
    }
    return json.dumps(split, ensure_ascii=False, indent=1).encode()


def _milliseconds(report: Any) -> float:
    began = time.perf_counter()
    card.bundle(report)
    return (time.perf_counter() - began) * 1e3


def _largest_test_report() -> Any:
    """Return the largest report that the tests can make: 240 points, and every metric of every GPU."""
    sys.path.insert(0, str(ROOT / "tests"))
    try:
        helpers = importlib.import_module("helpers_reports")
    finally:
        sys.path.pop(0)
    return helpers.sixteen(_GPUS)


def _bundle_of_a_run(seconds: float) -> Mapping[str, Any]:
    import gpuwidget

    with gpuwidget.watch("a run") as watch:
        began = time.perf_counter()
        while (passed := time.perf_counter() - began) < seconds:
            print(f"epoch {int(passed / 0.5)}: loss {1 / (1 + passed):.4f}", file=sys.stderr)
            time.sleep(0.5)
    assert watch.report is not None
    bundle: Mapping[str, Any] = card.bundle(watch.report)
    return bundle


if __name__ == "__main__":
    print(json.dumps(_bundle_of_a_run(float(sys.argv[1]))))
