"""Tests of the workers on the card and in a comparison."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

from helpers_reports import NOT_REPORTED, gib, gpu, report, worker

from gpuwidget.model.messages import message
from gpuwidget.model.mime_types import MIME_TYPE
from gpuwidget.model.report import Advice, CodeTime, LineTime, Mark, Span
from gpuwidget.model.translation import use_language
from gpuwidget.views import card_workers
from gpuwidget.views.card import bundle
from gpuwidget.views.comparison import compare_reports
from gpuwidget.views.size_budget import LIMIT

HOSTILE = "<img src=x onerror=alert(1)>\x1b[31m"


def test_the_table_of_workers() -> None:
    """Each worker has a row with its GPU, memory, utilization, energy, CPU and status. Columns without any
    known value are omitted."""
    shown = report(gpu(0), gpu(1), workers=(worker(0), worker(1, status="failed", exit_code=1)))
    assert card_workers.table(shown, 64) == [
        ["worker", "GPU", "memory", "peak (sampled)", "util", "energy", "CPU", "status"],
        ["rank 0", "GPU 0", "0 → 3.0 GiB", "4.0 GiB", "97 %", "5.3 kJ", "101 %", "running"],
        ["rank 1", "GPU 1", "0 → 3.0 GiB", "4.0 GiB", "97 %", "5.3 kJ", "101 %", "failed (exit code 1)"],
    ]


def test_energy_with_an_error() -> None:
    """If a worker's energy may be wrong by more than 5 percent, the card states the error."""
    shown = report(gpu(0), workers=(worker(0, energy_j=5310.0, energy_error_j=640.0),))
    header, row = card_workers.table(shown, 64)
    assert row[header.index("energy")] == "5.3 ± 0.6 kJ"


def test_reported_values() -> None:
    """Torch peaks and steps have columns as soon as one worker has reported them. The others are n/a."""
    peak = Span(0, gib(2), gib(2.5))
    reported = worker(0, torch_allocated=peak, torch_reserved=peak, steps=20, step_s=0.21)
    header, first, second = card_workers.table(report(gpu(0), workers=(reported, worker(1))), 64)
    assert [row[header.index("torch peak")] for row in (first, second)] == ["2.5 GiB", "n/a"]
    assert [row[header.index("steps")] for row in (first, second)] == ["20 \u00d7 210 ms", "n/a"]


def test_the_summary_of_the_others() -> None:
    """The last row covers the workers without a row. It states how many of them a figure covers if it is
    unknown for the others."""
    peak = Span(0, gib(2), gib(2.5))
    others = (worker(1, torch_allocated=peak), worker(2, torch_allocated=peak, cpu=None))
    shown = report(gpu(0), workers=(worker(0, torch_allocated=peak), *others, worker(3)))
    header, _, last = card_workers.table(shown, 1)
    assert dict(zip(header, last, strict=True)) == {
        "worker": "3 more",
        "GPU": "3 GPUs",
        "memory": "",
        "peak (sampled)": "to 4.0 GiB",
        "torch peak": "to 2.5 GiB (known for 2 of 3 workers)",
        "util": "97 %",
        "energy": "",
        "CPU": "101 % (known for 2 of 3 workers)",
        "status": "3 running",
    }
    with use_language("zh_CN"):
        assert card_workers.table(shown, 1)[2][header.index("peak (sampled)")] == "最高 4.0 GiB"


def test_names_of_workers() -> None:
    """A rank has its number as name, a child process its program and process id, a Dask worker its name.
    Names of other hosts follow."""
    assert card_workers.worker_name(worker(3)) == "rank 3"
    assert card_workers.worker_name(worker(3, host="node-2")) == "rank 3 on node-2"
    assert card_workers.worker_name(worker(None)) == "python train.py (100)"
    assert card_workers.worker_name(worker(None, kind="dask", name="w-1", host="node-2")) == "w-1 on node-2"


def test_a_worker_without_gpu() -> None:
    """A worker that used no GPU has ``none`` in its place. If its GPU is unknown, the card shows n/a."""
    for reason, expected in (("no-gpu-memory", "none"), ("foreign-pids", "n/a")):
        one = worker(0, gpu=None, memory=None, missing={"memory": message(reason, reason)})
        header, row = card_workers.table(report(gpu(0), workers=(one,)), 64)
        assert row[header.index("GPU")] == expected


def test_reasons_of_unknown_values() -> None:
    """The details contain the reason for each unknown value, once for all workers that share it."""
    shown = report(gpu(0), workers=tuple(worker(rank) for rank in range(5)))
    assert card_workers.unknown_values(shown) == [
        ["torch's memory of rank 0, rank 1, rank 2 and 2 more workers", NOT_REPORTED]
    ]
    assert NOT_REPORTED in bundle(shown)["text/html"]


def test_foreign_text_is_escaped() -> None:
    """The name of a program or host can contain neither markup nor terminal codes in a card."""
    made = bundle(report(gpu(0), workers=(worker(None, name=HOSTILE, host=HOSTILE),)))
    assert "<img" not in made["text/html"]
    assert "\x1b" not in made["text/plain"] + made["text/html"]


def test_many_workers_fit_in_the_card() -> None:
    """A card with many workers stays under 20 kB, and says how many rows it leaves out."""
    for count in (8, 64, 1024):
        made = bundle(report(gpu(0), workers=tuple(worker(rank) for rank in range(count))))
        assert len(json.dumps(made, ensure_ascii=False).encode()) <= LIMIT
        kept = len(made[MIME_TYPE]["workers"])
        assert 0 < kept <= count
        left_out = f"{count - kept} of {count} rows of workers"
        assert (left_out in made["text/html"]) == (kept < count)


def test_code_lines_yield_before_points_and_rows() -> None:
    """With eight GPUs, long lines of code and 64 workers, a card has at most 20 kB. It keeps a row per GPU
    and the chart with fewer points, and leaves out lines of code."""
    gpus = [gpu(number) for number in range(8)]
    lines = tuple(LineTime(n, "é<" * 200, 8.0, 33.0, "é" * 200, "é" * 200) for n in range(12))
    time = CodeTime(lines, 1890, 0.02, None, 104.0, 382.0, 2.5)
    ranks = tuple(worker(rank, gpu=gpus[rank % 8].uuid) for rank in range(64))
    made = bundle(replace(report(*gpus, workers=ranks), time=time))
    assert len(json.dumps(made, ensure_ascii=False).encode()) <= LIMIT
    assert len(made[MIME_TYPE]["time"]["lines"]) < 3
    assert "<svg role='img'" in made["text/html"]
    table, _, workers = made["text/html"].partition("</table>")
    assert table.count("<th scope='row'") == 8
    assert workers.count("<th scope='row'") >= 6


def test_the_workers_that_matter_are_on_the_card() -> None:
    """If a card can't contain all 64 ranks, it contains the one that failed and the one that is late. The
    last row summarizes the ranks that it leaves out."""
    gpus = [gpu(number) for number in range(8)]
    ranks = [
        worker(
            rank,
            gpu=gpus[rank % 8].uuid,
            steps=20,
            step_s=0.2 + rank / 1000,
            cpu=100.0 + rank,
            status="ended",
        )
        for rank in range(64)
    ]
    ranks[63] = replace(ranks[63], status="failed", exit_code=1)
    late = Advice("straggler", True, "GPU 2 is late.", "Look.", {"late_ranks": [42]}, None)
    made = bundle(report(*gpus, workers=tuple(ranks), advice=(late,)))
    assert len(json.dumps(made, ensure_ascii=False).encode()) <= LIMIT
    kept = [row["rank"] for row in made[MIME_TYPE]["workers"]]
    assert kept == [63, 42, 0, 1, 2, 3]
    rows = [line.split() for line in made["text/plain"].splitlines()]
    assert [int(row[1]) for row in rows if row[:1] == ["rank"]] == kept
    assert ["58", "more", "8", "GPUs", "to", "4.0", "GiB", "97", "%", "104", "%", "to", "162", "%"] in [
        row[:14] for row in rows
    ]
    assert "204 ms to 262 ms 58 ended" in " ".join(made["text/plain"].split())
    assert "58 more" in made["text/html"]


def test_steps_on_the_timeline() -> None:
    """The card has as many steps of each rank as of the others, and they leave room for printed lines."""
    steps = [Mark(n / 10, f"rank {n % 2}: step {n // 2}", "step") for n in range(120)]
    printed = [Mark(n / 2, f"loss {n}", "printed") for n in range(20)]
    shown = report(gpu(0), workers=(worker(0), worker(1)))
    assert shown.timeline is not None
    made = bundle(replace(shown, timeline=replace(shown.timeline, marks=(*steps, *printed))))
    kept = Counter(mark["label"].split()[0:2][-1] for mark in made[MIME_TYPE]["timeline"]["marks"])
    assert (kept["0:"], kept["1:"], sum(kept.values())) == (5, 5, 20)
    assert "<summary>Marks (20)</summary>" in made["text/html"]


def test_metrics_of_ranks() -> None:
    """A logger gets the known figures of each rank, by names that begin with the rank."""
    found = report(gpu(0), workers=(worker(0), worker(1, energy_j=None), worker(None))).metrics()
    assert {name: value for name, value in found.items() if name.startswith("rank")} == {
        "rank0/memory_start": 0,
        "rank0/memory_end": gib(3),
        "rank0/memory_peak": gib(4),
        "rank0/utilization_mean": 97.2,
        "rank0/utilization_max": 100.0,
        "rank0/energy_j": 5310.0,
        "rank0/cpu": 101.3,
        "rank1/memory_start": 0,
        "rank1/memory_end": gib(3),
        "rank1/memory_peak": gib(4),
        "rank1/utilization_mean": 97.2,
        "rank1/utilization_max": 100.0,
        "rank1/cpu": 101.3,
    }


def test_comparing_runs_with_workers() -> None:
    """A comparison shows the number of workers, their highest memory and their longest mean step."""
    first = report(gpu(0), workers=(worker(0, step_s=0.2), worker(1, step_s=0.4)))
    second = report(gpu(0), workers=(worker(0, step_s=0.1, memory=Span(0, 0, gib(2))),))
    rows = {row.name: row.values for row in compare_reports(first, second, ("a", "b")).rows}
    assert rows["workers"] == ("2", "1")
    assert rows["highest memory of a worker"] == ("4.0 GiB", "2.0 GiB")
    assert rows["longest mean step of a worker"] == ("400 ms", "100 ms")
    assert "workers" not in {
        row.name for row in compare_reports(report(gpu(0)), report(gpu(0)), ("a", "b")).rows
    }
