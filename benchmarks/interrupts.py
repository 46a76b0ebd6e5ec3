"""Interrupt watched and plain cells at random moments, and check what the user sees.

A notebook's user who presses Interrupt expects what a plain cell does: one KeyboardInterrupt in the
user's own code, and a kernel that goes on. Watched cells run in a kernel with gpuwidget, and the same plain
cells in a kernel without it. Several such pairs of kernels run at the same time.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.figures import Figure
from benchmarks.kernels import CARD_MIME, Kernel, KernelLost, require_live_chart
from benchmarks.settings import ROOT, Settings, environment, log_progress
from benchmarks.standin import machine
from benchmarks.statistics import median

_INTERRUPTS = 2000
_KERNELS = 16
_GPUS = 2
_LONGEST_DELAY_S = 1.5
"""Interrupts arrive up to this long after the kernel has started the cell: during the preparation of the
watch, before and after the live chart appears, or, for the cells that end, while the card is made."""
_SETUP = """
import itertools, time
try:
    import torch
except ImportError:
    torch = None
else:
    a = torch.ones(512, 512, device='cuda' if torch.cuda.is_available() else 'cpu')
"""
_ENDLESS = {
    "printing": "for i in itertools.count():\n    print(i)\n    time.sleep(0.001)",
    "sleep": "time.sleep(600)",
    "pure Python": "while True: sum(range(1000))",
    "torch": "while True: a @ a",
}
"""Cells that only an interrupt can end."""
_ENDING = "time.sleep(0.2)"
"""A cell that ends before about half of the interrupts."""
_OPTIONS = ("", " --no-live")


class _Counts(Counter[str]):
    """The number of interrupts by their outcome."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []
        """Times from the interrupt to the reply of the endless cells."""
        self.faults: list[str] = []
        """What was wrong, one text per fault."""


def measure(settings: Settings) -> Iterator[Figure]:
    """Interrupt 2,000 watched cells and as many plain ones, and count what differs."""
    require_live_chart()
    kernels = min(_KERNELS, os.cpu_count() or 1)
    each = settings.pick(_INTERRUPTS, 60) // kernels
    with TemporaryDirectory() as folder:
        # With a real GPU, the driver's NVML is used.
        has_gpu = Path("/dev/nvidiactl").exists()
        variables = environment({} if has_gpu else machine(Path(folder), _GPUS).environment())
        with ThreadPoolExecutor(kernels) as pool:
            done = list(pool.map(lambda seed: _interrupt(seed, each, variables), range(kernels)))
    watched, plain = (_added(counts) for counts in zip(*done, strict=True))
    total = each * kernels
    yield Figure(
        benchmark="interrupts",
        what="watched cells whose interrupt was lost or whose error names code of gpuwidget",
        unit="%",
        bar=0,
        values=[100 * len(watched.faults) / total],
        conditions={
            "every kernel ran a watched cell afterwards, without further threads": all(
                "kernel" not in fault for fault in watched.faults
            )
        },
        details={
            "interrupts of watched cells": total,
            "by cell and outcome": ", ".join(f"{key}: {count}" for key, count in sorted(watched.items())),
            "the same for plain cells": ", ".join(f"{key}: {count}" for key, count in sorted(plain.items())),
            "faults of plain cells": plain.faults[:20],
            "GPU": "real" if has_gpu else "stand-in",
            "faults": watched.faults[:20],
        },
    )
    yield Figure(
        benchmark="interrupts",
        what="interrupt to reply of an endless watched cell, over a plain cell",
        unit="ms",
        values=[1e3 * (second - median(plain.seconds)) for second in watched.seconds],
        details={"a plain cell, median ms": 1e3 * median(plain.seconds)},
    )


def _interrupt(seed: int, number: int, variables: dict[str, str]) -> tuple[_Counts, _Counts]:
    """Interrupt ``number`` watched cells in a kernel with gpuwidget, and as many plain cells in a kernel
    without it. A kernel is replaced if it dies or sends no reply. Return the counts of both."""
    chance = random.Random(seed)
    watched, plain = _Counts(), _Counts()
    left = number
    while left > 0:
        with Kernel(variables) as kernel, Kernel(variables) as plain_kernel:
            threads = _set_up(kernel)
            plain_kernel.run(_SETUP)
            while left > 0:
                left -= 1
                name, body, delay = _choose(chance)
                options = chance.choice(_OPTIONS)
                ran = _count(watched, kernel, f"{name}{options}", f"%%gpuwatch{options}\n{body}", delay)
                if not (_count(plain, plain_kernel, name, f"\n{body}", delay) and ran):
                    break
                if left % 50 == 0:
                    log_progress(f"  kernel {seed}: {left} interrupts left, {len(watched.faults)} faults")
            else:
                _check(kernel, seed, threads, watched)
    return watched, plain


def _set_up(kernel: Kernel) -> int:
    """Load gpuwidget, run a watched cell, and return the number of threads after it."""
    kernel.run("%load_ext gpuwidget")
    kernel.run(_SETUP)
    kernel.run("%%gpuwatch\nimport threading; time.sleep(1)")
    return int(kernel.run("0", {"n": "threading.active_count()"}).values["n"])


def _choose(chance: random.Random) -> tuple[str, str, float]:
    """Return a cell's name and code, and the delay of its interrupt."""
    cells = {name: body for name, body in _ENDLESS.items() if find_spec("torch") or name != "torch"}
    name = chance.choice([*cells, "ends"])
    if name == "ends":
        return name, _ENDING, chance.uniform(0.15, 0.3)
    return name, cells[name], chance.uniform(0, _LONGEST_DELAY_S)


def _check(kernel: Kernel, seed: int, threads: int, watched: _Counts) -> None:
    """Add a fault if a watched cell does not run as before, or if threads are left over."""
    after = kernel.run("%%gpuwatch\ntime.sleep(1)\n6 * 7", {"n": "threading.active_count()"})
    status = [card[CARD_MIME]["cell"]["status"] for card in after.cards]
    if status != ["ok"] or int(after.values["n"]) > threads:
        watched.faults.append(f"kernel {seed}: {status}, {after.values['n']} threads, before {threads}")


def _count(counts: _Counts, kernel: Kernel, name: str, code: str, delay: float) -> bool:
    """Interrupt one cell and add its outcome. Return whether the kernel can run further cells."""
    where = f"{name} after {delay:.3f} s"
    try:
        ended = kernel.interrupt(code, delay)
    except KernelLost as error:
        # An interrupt that arrives while ipykernel sends the reply, after the cell, loses the reply.
        # ipykernel then logs this text.
        if "KeyboardInterrupt caught in kernel" in str(error):
            counts[f"{name}: no reply from ipykernel"] += 1
        else:
            counts.faults.append(f"{where}: {error}")
        return False
    outcome = ended.error or "ended"
    counts[f"{name}: {outcome}"] += 1
    if not name.startswith("ends"):
        counts.seconds.append(ended.seconds)
        if ended.interrupts > 1:
            counts.faults.append(f"{where}: lost")
    if outcome not in ("KeyboardInterrupt", "ended"):
        counts.faults.append(f"{where}: {outcome}")
    if any(
        f"{ROOT.name}/gpuwidget/" in line or "site-packages/gpuwidget/" in line for line in ended.traceback
    ):
        counts.faults.append(f"{where}: the traceback names gpuwidget:\n" + "\n".join(ended.traceback))
    return True


def _added(parts: tuple[_Counts, ...]) -> _Counts:
    """Return the sum of the kernels' counts."""
    total = _Counts()
    for part in parts:
        total.update(part)
        total.seconds += part.seconds
        total.faults += part.faults
    return total
