"""Measure the line profile of cells in which C code waits and holds the GIL.

The cells run in a kernel with gpuwidget's usual threads. If torch can use a GPU, the code waits for the GPU
with ``cuCtxSynchronize``, called through ``ctypes.PyDLL``, which keeps the GIL. While the driver waits, the
thread either sleeps ("blocking") or computes ("spinning"). In any case, there are also waits in ``usleep``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.figures import Figure
from benchmarks.idle import profile_errors
from benchmarks.kernels import CARD_MIME, Kernel
from benchmarks.settings import Settings, environment

_SHARE_BAR = 3.0
_PERIODS_S = (0.03, 0.1, 0.3)
_SINGLE_S = 3.5
_SHORT_S = 0.25
_LOOP = "for _ in range({rounds}):\n    hold({held})\n    time.sleep({rest})\n"
_ITERATOR = "for _ in map(hold, [{held}] * {rounds}):\n    time.sleep({rest})\n"
_SINGLE = f"time.sleep({_SHORT_S})\nhold({_SINGLE_S})\ntime.sleep({_SHORT_S})\n"
_PREPARE = """\
import ctypes, sys, time
class _Part:
    def __init__(self):
        self.seconds = 0.0
_held = _Part()
_process, _driver = ctypes.PyDLL(None), None
def _sleep(seconds):
    _process.usleep(int(1e6 * seconds))
def _gpu(seconds):
    torch.cuda._sleep(int(seconds * _cycles))
    _driver.cuCtxSynchronize()
def _measured(wait):
    def hold(seconds):
        began = time.perf_counter()
        wait(seconds)
        _held.seconds += time.perf_counter() - began
    return hold
"""
_USE_GPU = """\
import torch
_driver = ctypes.PyDLL("libcuda.so.1")
_driver.cuInit(0)
_driver.cuDevicePrimaryCtxSetFlags_v2(0, {flags})
torch.cuda._sleep(1000), torch.cuda.synchronize()
_began = time.perf_counter()
torch.cuda._sleep(200_000_000), torch.cuda.synchronize()
_cycles = 200_000_000 / (time.perf_counter() - _began)
"""
_WAITS: Mapping[str, tuple[str, str]] = {
    "usleep": ("", "_sleep"),
    "GPU, blocking": (_USE_GPU.format(flags=4), "_gpu"),
    "GPU, spinning": (_USE_GPU.format(flags=1), "_gpu"),
}
_GPU_READY = "__import__('importlib').util.find_spec('torch') and __import__('torch').cuda.is_available()"


def measure(settings: Settings) -> Iterator[Figure]:
    """Measure the largest error of a line's share, in percentage points.

    The share of merged lines is compared with the sum of their true shares.
    """
    for name, (prepare, wait) in _WAITS.items():
        with Kernel(environment()) as kernel:
            kernel.run("%load_ext gpuwidget")
            ready = kernel.run("import importlib.util", {"gpu": _GPU_READY}).values["gpu"] == "True"
            if prepare and not ready:
                yield Figure("gil-waits", name, "%", bar=_SHARE_BAR, not_measured="torch can use no GPU")
                continue
            kernel.run(f"{_PREPARE}{prepare}hold = _measured({wait})")
            for period in _PERIODS_S:
                for kind, cell in (("loop", _LOOP), ("iterator", _ITERATOR)):
                    rounds = max(2, round(settings.pick(3.0, 1.5) / period))
                    body = cell.format(rounds=rounds, held=0.94 * period, rest=0.06 * period)
                    lines = (3, 4) if kind == "loop" else (2, 3)
                    what = f"{name}, {kind}, period {1e3 * period:.0f} ms"
                    yield _figure(kernel, what, body, lines, settings.pick(3, 1))
            yield _figure(kernel, f"{name}, single wait", _SINGLE, (3,), settings.pick(12, 2))


def _figure(kernel: Kernel, what: str, body: str, lines: Sequence[int], runs: int) -> Figure:
    """Return the errors of all runs. ``lines`` are the line that waits and, in a loop, the other line."""
    errors: list[float] = []
    profiles: list[Any] = []
    merged = 0
    for number in range(runs):
        kernel.run("_held.seconds = 0.0", rest_s=0.0)
        ran = kernel.run(f"%%gpuwatch{' --no-live' if number % 2 else ''}\n{body}", {"held": "_held.seconds"})
        (card,) = ran.cards
        report = card[CARD_MIME]
        profile = [
            {"gpu_busy": None, **entry, "until": entry.get("until")}
            for entry in report["time"]["lines"]
            if entry["line"] is not None
        ]
        held = 100 * float(ran.values["held"]) / report["cell"]["duration_s"]
        others = lines[1:] or (2, 4)
        truth = {str(lines[0]): (held, 0.0)} | {str(n): ((100 - held) / len(others), 0.0) for n in others}
        merged += any(entry["until"] is not None for entry in profile)
        # A line that takes most of the time, but is missing from the profile, is an error of its whole share.
        shown = any(entry["line"] <= lines[0] <= (entry["until"] or entry["line"]) for entry in profile)
        errors.append(profile_errors(profile, truth).share if shown else held)
        profiles.append([[entry["line"], entry["until"], entry["share"]] for entry in profile])
    details = {"runs with merged lines": merged, "profiles": str(profiles), "true": str(truth)}
    return Figure(
        "gil-waits",
        f"{what}: worst error of a share, points",
        "%",
        bar=_SHARE_BAR,
        values=errors,
        conditions={"every run": max(errors) <= _SHARE_BAR},
        details=details,
    )
