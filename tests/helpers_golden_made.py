"""Make the golden outputs that no test makes."""

from __future__ import annotations

import io
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from itertools import product
from types import SimpleNamespace
from typing import Any

import helpers_reports as reports
import psutil
from fakes import FakeClock, FakeSource
from helpers_golden import LANGUAGES, save
from helpers_golden_format import formatted, language, no_torch
from helpers_golden_machines import complete, views
from helpers_golden_magics import outputs as magics
from helpers_golden_played import played
from helpers_reports import HOSTILE, as_card, bare_gpu, cell, gib, gpu, marks, report, worker
from helpers_schemas import every_report_checked

from gpuwidget.cli.main import main
from gpuwidget.model.gpu_process import Process
from gpuwidget.model.report import CodeTime, FrameTime, Holder, Level, LineMemory, LineTime, Report, Span
from gpuwidget.sampler import Sampler
from gpuwidget.views import card
from gpuwidget.views.card import Reports
from gpuwidget.views.comparison import compare_reports

FRAMES = (FrameTime("train.py:31 step", 40.5, 88.0, "matmul", 31.0), FrameTime("In[2]:4 f", 20.0, None, None))
HOST_MEMORY = SimpleNamespace(total=gib(96), available=gib(60), used=gib(30), free=gib(50))
TIME = CodeTime(
    (
        LineTime(4, "loss = step(batch)", 70.1, 66.1, "matmul", "train.py:31 step", frames=FRAMES),
        LineTime(5, f"print('{HOSTILE}')", 20.0, None, None, None),
        LineTime(None, "other code", 9.9, 1.0, None, None),
    ),
    1204,
    0.01,
    None,
    101.5,
    310.2,
    2.5,
)
MEMORY = (
    LineMemory("src/model.py", 41, "forward", "h = f(x)", "In[5] line 7", "cuda:0", gib(96), 0, gib(9)),
    LineMemory("In[5]", 3, None, "x = torch.empty(n)", None, "cuda:0", gib(2), gib(2), None),
    LineMemory(None, None, None, "allocated by libraries", None, "cuda:0", 512, 512, 512),
)
HOLDERS = tuple(
    Holder("variable", (f"model_{n}", f"trainer.model_{n}"), "Net", "cuda:0", gib(9 - n), n) for n in range(8)
)


def detailed(gpus: int, count: int = 20, label: str = "epoch {n}: loss 0.4321") -> Report:
    """Return a report with every part of a card: workers, marks, time and memory by line, and holders."""
    return report(
        *(gpu(index, utilization=Level(11.0 + 5 * index, 96.0)) for index in range(gpus)),
        marks=marks(count, 14.0, label),
        workers=tuple(worker(rank, cpu=90.0 + rank) for rank in range(gpus)),
        time=TIME,
        lines=MEMORY,
        holders=HOLDERS,
        advice=reports.advised().advice,
        notes=("A note.", HOSTILE),
        host_memory=Span(gib(1), gib(2), gib(3)),
    )


def all_reports() -> Iterator[tuple[str, Report]]:
    """Yield reports of all sizes, by name."""
    names: tuple[str, ...] = (
        "starved",
        "ddp",
        "replay",
        "no_gpu",
        "unused",
        "lost",
        "failed",
        "interrupted",
        "short",
    )
    names += ("left_behind", "much_left_behind", "first_context", "mig", "no_torch", "little_known")
    for name in (*names, "hostile", "advised"):
        yield name, getattr(reports, name)()
    for count in (1, 2, 8, 16):
        yield f"{count}-gpus", report(*(gpu(index) for index in range(count)))
        yield f"{count}-gpus-bare", report(*(bare_gpu(index) for index in range(count)))
        yield f"{count}-gpus-hostile", reports.sixteen(count)
        for lines in (0, 20, 60, 1000):
            yield f"{count}-gpus-{lines}-marks", detailed(count, lines)
        yield f"{count}-gpus-60-long-marks", detailed(count, 60, "{n} a long line of output " * 4)
    for status in ("ok", "error", "interrupted"):
        yield f"one-{status}", report(gpu(0), cell=cell(3.0, status=status, label="Training"))


def save_cards() -> None:
    """Save the card of each report, its line, its text and the comparison with another run."""
    made = dict(all_reports())
    for name, one in made.items():
        save_both(f"card/{name}", lambda one=one: card.bundle(one))
        save_both(f"line/{name}", lambda one=one: card.line_bundle(one))
    for name in ("starved", "ddp", "no_gpu", "lost", "failed", "8-gpus", "16-gpus-20-marks", "1-gpus-bare"):
        whole = as_card(made[name])
        save_both(f"report/{name}", lambda whole=whole: f"{whole!r}\n{whole}")
    listed = Reports(made[name] for name in ("starved", "ddp", "failed", "no_gpu"))
    save_both("reports", lambda: listed)
    save_both("reports-none", lambda: Reports())
    compared = (
        "ddp",
        "replay",
        "no_gpu",
        "lost",
        "failed",
        "mig",
        "8-gpus",
        "2-gpus-20-marks",
        "little_known",
    )
    for first, second in (*product(["starved"], compared), ("2-gpus-20-marks", "8-gpus-20-marks")):
        pair = made[first], made[second]
        save_both(
            f"comparison/{first} {second}", lambda pair=pair: compare_reports(pair[0], pair[1], ("a", "b"))
        )
        save_both(
            f"card-with-last-run/{first} {second}", lambda pair=pair: card.bundle(pair[1], last=pair[0])
        )


def save_both(name: str, view: Any) -> None:
    """Save what ``view`` returns in each language."""
    for one in LANGUAGES:
        with language(one):
            save(f"{name}/{one}", formatted(view(), one))


def output_of(arguments: Sequence[str], sampler: Sampler | None = None) -> str:
    """Run ``gpuwidget`` in this process. Return its output, its errors and its exit status."""
    out, errors = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(errors):
        try:
            status: object = main(arguments, sampler)
        except SystemExit as end:
            status = end.code
    return f"{out.getvalue()}[stderr]\n{errors.getvalue()}[status]\n{status}\n"


def busy_source(gpus: int) -> FakeSource:
    """Return GPUs with processes of several users."""
    source = FakeSource(gpus=gpus)
    for index in range(gpus):
        source.processes[index] = (
            Process(42 + index, "compute", (5 + index) * 1024**3, "anna", "python a.py"),
        )
        source.memory[index] = gib(6 + index)
        source.utilization[index] = float(index * 6)
    return source


def save_commands() -> None:
    """Save the outputs of the command ``gpuwidget``."""
    for command in ((), ("record",), ("doctor",), ("usage",), ("run",), ("examples",), ("clean",)):
        save(f"cli/help/{' '.join(command) or 'gpuwidget'}", option_lists(output_of([*command, "--help"])))
    wrong = (["--interval", "x"], ["recrod"], ["usage", "--since", "3y"], ["record"], ["clean", "no.ipynb"])
    for arguments in wrong:
        save(f"cli/errors/{' '.join(arguments)}", output_of(arguments))
    for count, as_json in product((0, 1, 2, 8, 16), (False, True)):
        clock = FakeClock()
        with complete(Sampler(busy_source(count), clock), clock) as sampler:
            text = output_of(["--json"] if as_json else [], sampler)
        save(f"cli/gpus/{count}{'-json' if as_json else ''}", text)


def option_lists(text: str) -> str:
    """Return a command's help as all versions of Python write it, without the widths of its columns."""
    return re.sub("  +", "  ", text.replace("-i S, --interval S", "-i, --interval S"))


def save_machines() -> None:
    """Save what the stand-in for NVML returns, as a sample and as a table."""
    for name, text in views():
        save(f"nvml/{name}", text)


def save_magics() -> None:
    """Save the outputs of ``%gpu`` and ``%%gpuwatch``."""
    for one in LANGUAGES:
        for name, text in magics(one):
            save(f"magics/{name}/{one}", text)


def save_runs() -> None:
    """Save the cards of runs during recordings."""
    for name, one in played():
        save_both(f"run/{name}", lambda one=one: one)


if __name__ == "__main__":
    time.tzset()
    no_torch()
    psutil.virtual_memory = lambda: HOST_MEMORY  # of GPUs that share it
    with every_report_checked():
        save_cards()
        save_commands()
        save_machines()
        save_magics()
        save_runs()
