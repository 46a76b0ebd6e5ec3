"""Measure ``%%gpuwatch`` on a cell that does nothing, which is the minimum cost of watching."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.figures import Figure
from benchmarks.kernels import CARD_MIME, Kernel, Ran, require_live_chart
from benchmarks.settings import Settings, environment
from benchmarks.standin import machine
from benchmarks.statistics import alternating, median

_GPUS = 8
_WARM_UP_S = 3.0
_LONG_REST_S = 33.0
"""Seconds without watched cells; longer than the sampler keeps the driver open after a watched cell."""
_FORMS = (
    ("%%gpuwatch on pass, over pass", "%%gpuwatch\npass"),
    ("%%gpuwatch --no-live on pass, over pass", "%%gpuwatch --no-live\npass"),
    ("%%gpuwatch --quiet on pass, over pass", "%%gpuwatch --quiet\npass"),
)


def measure(settings: Settings) -> Iterator[Figure]:
    """Measure the time from request to reply, minus the time of a plain cell. If the cell makes a card, the
    time includes making it."""
    require_live_chart()
    with TemporaryDirectory() as folder:
        variables = environment(machine(Path(folder), _GPUS).environment())
        with Kernel(variables) as kernel:
            kernel.run("%load_ext gpuwidget")
            kernel.run("pass", rest_s=_WARM_UP_S)
            for place, (what, code) in enumerate(_FORMS):
                # %%gpuwatch --quiet makes no card. No limit is set for its time, which is measured only to
                # show how much of the time of the other two forms is spent on the card.
                bar = 5 if place < 2 else None
                yield _figure(kernel, settings.pick(200, 15), f"{what}, {_GPUS} GPUs", code, bar)
            if not settings.quick:
                yield _after_rest(kernel)


def _figure(kernel: Kernel, pairs: int, what: str, code: str, bar: float | None) -> Figure:
    kernel.run(code)
    runs = alternating(pairs, partial(kernel.run, "pass"), partial(kernel.run, code))
    return Figure(
        benchmark="pass",
        what=what,
        unit="ms",
        bar=bar,
        values=[(watched.seconds - plain.seconds) * 1e3 for plain, watched in runs],
        details={
            "a plain cell, median ms": median([plain.seconds for plain, _ in runs]) * 1e3,
            "GPUs on the card": _gpus_shown(runs[-1][1]),
        },
    )


def _after_rest(kernel: Kernel) -> Figure:
    values = []
    for _ in range(3):
        plain = kernel.run("pass").seconds
        values.append((kernel.run("%%gpuwatch\npass", rest_s=_LONG_REST_S).seconds - plain) * 1e3)
    return Figure(
        benchmark="pass",
        what=f"the same {_LONG_REST_S:g} s after the last watched cell",
        unit="ms",
        values=values,
    )


def _gpus_shown(ran: Ran) -> int:
    reports = [card[CARD_MIME] for card in ran.cards]
    return sum(gpu["shown"] for report in reports for gpu in report["gpus"])
