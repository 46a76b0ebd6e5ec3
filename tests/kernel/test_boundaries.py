"""Whatever fails in gpuwidget or around it: a watched cell runs as without gpuwidget, and ends with a card or
one line."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from helpers_kernel import TORCH_STANDIN, Kernel

from gpuwidget.model.boundary import STRICT_VARIABLE
from gpuwidget.views.card_summary import SHORT_S

CELL, WATCH = "gpuwidget.kernel.cells.watched_cells", "gpuwidget.kernel.cells.cell_watch"
SAMPLER = "gpuwidget.sampler.sampler:Sampler"
SHELL, RUN = "gpuwidget.kernel.shell", "gpuwidget.measure.run"
TORCH = "gpuwidget.pytorch"

STEPS = (
    # before the cell
    "gpuwidget.kernel.magics:find",
    "gpuwidget.kernel.magics:check",
    f"{SHELL}.running_cells:RunningCells.before",
    "gpuwidget.kernel.attribution.cell_memory:CellMemoryTracker.before",
    "gpuwidget.kernel.oom.handler:pytorch.allocated_memory",
    f"{TORCH}.device_switch:DeviceSwitch.before_cell",
    "gpuwidget.kernel.devices.switch_requests:SwitchRequests.apply_pending",
    f"{CELL}:find_in_cell",
    f"{CELL}:parse",
    f"{CELL}:check",
    f"{WATCH}:shows_live",
    f"{WATCH}:collectors",
    f"{WATCH}:watch_api.new_run",
    f"{WATCH}:watch_api.enter_cell",
    f"{WATCH}:OutputSlot.at_end",
    f"{WATCH}:live_display.LiveDisplay",
    f"{WATCH}:listen_for_error",
    "gpuwidget.ranks.rank_listener:listen",
    "gpuwidget.dask.clients:collector",
    # the run
    f"{SAMPLER}.subscribe",
    f"{SAMPLER}.wait_until_open",
    f"{SAMPLER}.read_now",
    f"{SAMPLER}.power_records",
    "gpuwidget.measure.run_gpus:RunGpus.begin",
    "gpuwidget.measure.run_gpus:RunGpus.add",
    "gpuwidget.measure.run_gpus:RunGpus.end",
    f"{TORCH}:devices",
    f"{TORCH}:devices_with_context",
    f"{TORCH}.cuda_state:allocator_counters",
    f"{TORCH}:versions",
    f"{TORCH}:can_synchronize",
    f"{TORCH}.peak_tracker:PeakTracker.open",
    f"{TORCH}.peak_tracker:PeakTracker.close",
    f"{TORCH}.peak_tracker:PeakTracker.discard",
    f"{TORCH}.device_changes:DeviceChangeTracker.open",
    f"{TORCH}.device_changes:DeviceChangeTracker.close",
    "gpuwidget.measure.resident_memory:ResidentMemory.begin",
    "gpuwidget.measure.resident_memory:ResidentMemory.end",
    "gpuwidget.measure.printed_lines:PrintedLines.subscribe",
    "gpuwidget.measure.printed_lines:PrintedLines.unsubscribe",
    "gpuwidget.measure.worker_updates:WorkerUpdates.subscribe",
    "gpuwidget.measure.worker_updates:WorkerUpdates.collect",
    "gpuwidget.profiler.sampling_profiler:SamplingProfiler.start",
    "gpuwidget.profiler.sampling_profiler:SamplingProfiler.stop",
    "gpuwidget.profiler.sampling_profiler:SamplingProfiler.annotate",
    "gpuwidget.profiler.sampling_profiler:SamplingProfiler.abandon",
    "gpuwidget.profiler.sampling_profiler:SamplingProfiler.take_sample",
    "gpuwidget.kernel.attribution.memory_holders:HolderCollector.annotate",
    # after the cell
    f"{RUN}:Run.start",
    f"{RUN}:Run.end",
    f"{RUN}:Run.report",
    f"{RUN}:Run.abandon",
    f"{RUN}:build_report",
    f"{RUN}:returnable",
    f"{RUN}:advise",
    f"{RUN}:RunContext",
    "gpuwidget.kernel.cells.run_context:RunContextBuilder.__call__",
    f"{WATCH}:watch_api.leave_cell",
    f"{WATCH}:watch_api.keep",
    f"{WATCH}:card.bundle",
    f"{WATCH}:CellWatch._show",
    f"{WATCH}:CellWatch._close_outputs",
    f"{SHELL}.output_slot:OutputSlot.close",
    f"{SHELL}.running_cells:RunningCells.find",
    f"{SHELL}.running_cells:RunningCells.ending",
    f"{SHELL}.running_cells:RunningCells.after",
    "gpuwidget.kernel.attribution.cell_memory:CellMemoryTracker.after",
    f"{TORCH}.device_switch:DeviceSwitch.after_cell",
)
"""The steps of a watched cell: functions by module and name."""

NO_REPORT: tuple[str, ...] = (
    f"{RUN}:Run.report",
    f"{WATCH}:watch_api.keep",
    f"{SHELL}.running_cells:RunningCells.before",
)
"""Steps without which there can be no report, so that only the line is left."""
NO_REPORT += (f"{SHELL}.running_cells:RunningCells.find", f"{CELL}:find_in_cell", f"{RUN}:Run.end")

BREAK = """
import importlib, errno
def broken(*args, **kwargs):
    if {error!r} == "SystemExit":
        raise SystemExit
    raise OSError(errno.EMFILE, "Too many open files")
module, _, path = {step!r}.partition(":")
owner = importlib.import_module(module)
*parents, name = path.split(".")
for parent in parents:
    owner = getattr(owner, parent)
original = vars(owner)[name]
importlib.import_module("gpuwidget.kernel.cells.watch_api")._reports.clear()
setattr(owner, name, broken)
"""
RESTORE = "setattr(owner, name, original)"


@pytest.fixture(scope="module")
def broken_kernel(start_kernel: Callable[..., Kernel]) -> Kernel:
    """Return a kernel with a stand-in for torch, in which boundaries may stop errors."""
    made = start_kernel(PYTHONPATH=TORCH_STANDIN, **{STRICT_VARIABLE: None})
    made.ok("%load_ext gpuwidget")
    made.ok("import gpuwidget, torch; torch.cuda.init()")
    return made


@pytest.mark.parametrize("error", ["OSError", "SystemExit"])
@pytest.mark.parametrize("step", STEPS)
def test_a_card_or_one_line(broken_kernel: Kernel, step: str, error: str) -> None:
    """Whichever step of a watched cell fails, and however: the cell has its result, and ends with a card or
    with one line that names the error. The next cell is watched as if nothing had happened."""
    kernel = broken_kernel
    kernel.setup(BREAK.format(step=step, error=error))
    ran = kernel.run("%%gpuwatch\n6 * 7")
    kernel.setup(RESTORE)
    assert (ran.reply["status"], ran.result) == ("ok", "42")
    assert len(ran.cards) + bool(ran.text) >= 1, ran.messages
    assert "Traceback" not in ran.text
    if step not in NO_REPORT:
        assert kernel.value("len(gpuwidget.reports())") != "0"
    if not ran.cards:
        assert error in ran.text
    healthy = kernel.ok("%%gpuwatch\n6 * 7")
    assert (healthy.text, healthy.result, healthy.report["notes"]) == ("", "42", [])


STRANGE = {
    "mock": "from unittest.mock import MagicMock\nstrange = MagicMock()",
    "exits": "class Strange:\n    def __getattr__(self, name): raise SystemExit(1)\nstrange = Strange()",
    "raises": "class Strange:\n    def __getattr__(self, name): raise ValueError(name)\nstrange = Strange()",
    "number": "strange = 42",
}


REPLACE = """
import sys
names = ("torch", "torch.utils.data", "cupy", "distributed", "jax", "jax._src.xla_bridge")
kept = {name: sys.modules.get(name) for name in names}
sys.modules.update(dict.fromkeys(names, strange))
"""
PUT_BACK = """
for name, module in kept.items():
    if module is None:
        del sys.modules[name]
    else:
        sys.modules[name] = module
"""


@pytest.mark.parametrize("every_cell", [False, True])
@pytest.mark.parametrize("kind", STRANGE)
def test_strange_modules(broken_kernel: Kernel, kind: str, every_cell: bool) -> None:
    """If a test in the notebook has replaced torch, CuPy, Dask, JAX or IPython's package by a mock or by an
    object that raises SystemExit, the kernel stays alive, and a watched cell has its usual card. If every
    cell is watched, a short cell has none, as usual."""
    kernel = broken_kernel
    kernel.setup(STRANGE[kind])
    kernel.setup(REPLACE)
    if every_cell:
        kernel.ok("%gpu watch on")
    ran = kernel.run("6 * 7" if every_cell else "%%gpuwatch\n6 * 7")
    if every_cell:
        kernel.run("%gpu watch off")
    memory = kernel.run("%gpu memory")
    kernel.setup(PUT_BACK)
    assert (ran.reply["status"], ran.result, ran.text) == ("ok", "42", "")
    if every_cell:
        # On a busy machine, the cell may take longer.
        assert not ran.cards or ran.report["cell"]["duration_s"] >= SHORT_S
    else:
        assert (ran.report["notes"], ran.report["environment"]["torch"]) == ([], None)
        assert json.dumps(ran.report)
    assert memory.reply["status"] == "ok"
    assert kernel.alive


def test_no_file_descriptors(broken_kernel: Kernel) -> None:
    """If the process can open no more files, a watched cell runs and has its card."""
    kernel = broken_kernel
    kernel.setup(
        "import os\nfull = []\n"
        "def fill():\n    try:\n        while True: full.append(os.open('/dev/null', os.O_RDONLY))\n"
        "    except OSError: pass"
    )
    ran = kernel.run("%%gpuwatch\nfill(); 6 * 7")
    second = kernel.run("%%gpuwatch\n6 * 7")
    # IPython's thread that saves the history also fails, and prints so at some moment, maybe in this cell.
    kernel.ok("for fd in full: os.close(fd)", silent=True, store_history=False)
    for one in (ran, second):
        assert (one.reply["status"], one.result) == ("ok", "42")
        assert len(one.cards) == 1, one.messages
