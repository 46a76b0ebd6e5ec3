"""Measure the time from an out-of-memory error to its card, on a real GPU or on a stand-in.

The stand-in also works with a CPU-only build of torch.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from benchmarks.figures import Figure
from benchmarks.kernels import Kernel
from benchmarks.settings import ROOT, Settings, environment
from benchmarks.training import without_a_gpu

_BAR_MS = 300.0
_PREPARE = """\
import sys, time, torch
sys.path.insert(0, {tests!r})
if torch.cuda.is_available():
    total = torch.cuda.mem_get_info()[1]
    torch.cuda.set_per_process_memory_fraction(4 * 2**30 / total)
    def take(mib): return torch.empty(mib * 2**18, device="cuda")
else:
    from helpers_out_of_memory import LimitedGpu
    gpu = LimitedGpu(torch, 4 * 2**30)
    gpu.install()
    def take(mib): return gpu.empty(mib * 2**18)
model = torch.nn.ModuleList(torch.nn.Linear(64, 64) for _ in range(2000))
if torch.cuda.is_available():
    model = model.cuda()
else:
    gpu.move(model)
lists = [[n, str(n), {{n: n}}] for n in range(10_000)]
globals().update({{f"variable_{{n}}": [n] for n in range(2000)}})
kept = [take(1) for _ in range(500)]
def fail():
    batch = [take(16) for _ in range(8)]
    try:
        take(4096)
    except torch.OutOfMemoryError:
        globals().update(raised=time.perf_counter())
        raise
"""
_HOOK = """\
def done(result):
    if result.error_in_exec is not None:
        took.append((time.perf_counter() - raised) * 1e3)
took = []
_hooks = get_ipython().events.callbacks["post_run_cell"]
_names = [type(getattr(hook, "__self__", None)).__name__ for hook in _hooks]
_hooks.insert(_names.index("OutOfMemoryCards") + 1 if "OutOfMemoryCards" in _names else len(_hooks), done)
"""


def measure(settings: Settings) -> Iterator[Figure]:
    """Measure the milliseconds from the error to its card. For comparison, also measure the milliseconds from
    the error to IPython's traceback in a kernel without gpuwidget."""
    times = settings.pick(30, 3)
    where = "a stand-in GPU" if without_a_gpu() is not None else "a real GPU"
    what = f"from an out-of-memory error to its card, {where}"
    for description, load, bar in (
        (f"{what}: 4,500 tensors, 2,000 variables, 30,000 objects", True, _BAR_MS),
        (f"the same without gpuwidget: IPython's traceback, {where}", False, None),
    ):
        values = _errors(times, load=load)
        yield Figure(benchmark="oom", what=description, unit="ms", bar=bar, values=values)


def _errors(times: int, *, load: bool) -> Sequence[float]:
    with Kernel(environment()) as kernel:
        if load:
            kernel.run("%load_ext gpuwidget", rest_s=3.0)
        kernel.run(_PREPARE.format(tests=str(ROOT / "tests")))
        kernel.run(_HOOK)
        for _ in range(times + 1):
            try:
                kernel.run("fail()")
            except RuntimeError as error:
                if "OutOfMemoryError" not in str(error):
                    raise
        took = kernel.run("pass", {"took": "took"}).values["took"]
    values = ast.literal_eval(took)
    assert isinstance(values, list)
    # Drop the first measurement, which includes the time of imports.
    return [float(value) for value in values[1:]]
