"""Random schedules of faults. A seed always gives the same schedule."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from benchmarks.faults.cells import CELLS

GPUS = 2
"""The number of GPUs of the healthy machine."""

_OPENING = (
    "nvmlInitWithFlags",
    "nvmlSystemGetDriverVersion",
    "nvmlSystemGetCudaDriverVersion_v2",
    "nvmlDeviceGetCount_v2",
)
"""Functions without a GPU argument, which are called when the driver is opened."""
_PER_GPU = (
    "nvmlDeviceGetHandleByIndex_v2",
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetName",
    "nvmlDeviceGetPciInfo_v3",
    "nvmlDeviceGetCudaComputeCapability",
    "nvmlDeviceGetMaxClockInfo",
    "nvmlDeviceGetNumGpuCores",
    "nvmlDeviceGetMemoryBusWidth",
    "nvmlDeviceGetMaxMigDeviceCount",
    "nvmlDeviceGetMigDeviceHandleByIndex",
    "nvmlDeviceRegisterEvents",
    "nvmlEventSetWait_v2",
    "nvmlDeviceGetUtilizationRates",
    "nvmlDeviceGetMemoryInfo_v2",
    "nvmlDeviceGetFieldValues",
    "nvmlDeviceGetEnforcedPowerLimit",
    "nvmlDeviceGetTemperature",
    "nvmlDeviceGetClockInfo",
    "nvmlDeviceGetPerformanceState",
    "nvmlDeviceGetCurrentClocksEventReasons",
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetGraphicsRunningProcesses_v3",
    "nvmlDeviceGetTotalEnergyConsumption",
    "nvmlDeviceGetSamples",
    "nvmlDeviceGetTotalEccErrors",
    "nvmlGpmQueryDeviceSupport",
    "nvmlGpmSampleGet",
)
_FREQUENT = (
    "nvmlDeviceGetUtilizationRates",
    "nvmlDeviceGetMemoryInfo_v2",
    "nvmlDeviceGetFieldValues",
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlGpmSampleGet",
)
"""Functions that are called several times per second. A fault of another function often has no effect."""
_CODES = (*range(1, 30), 999)
_OPTIONS = ("", "", "", "", "--no-live", "--quiet", "--gpu 0", "--interval 0.05", "--no-sync", "--lines")
_CLOCK_JUMPS = (-86_400.0, -3600.0, -30.0, -1.0, -0.3, 0.3, 1.0, 30.0, 3600.0, 86_400.0, 3.2e7)


@dataclass(frozen=True)
class Step:
    """One action at one moment of a schedule."""

    at: float
    """Seconds after the kernel has begun to run the cell."""
    kind: str
    """The kind of fault, for the counts."""
    action: str
    """What happens, as in :meth:`benchmarks.faults.bench.Bench._act`."""


@dataclass(frozen=True)
class Schedule:
    """A watched cell, and the faults that happen before and while it runs."""

    cell: str
    """The name of the cell in :data:`CELLS`."""
    options: str
    """The options of ``%%gpuwatch``."""
    seconds: float
    """How long the cell runs."""
    steps: tuple[Step, ...]
    """In the order of their times."""

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of faults, including those that are a part of the cell."""
        own = {"fork"} if CELLS[self.cell].forks else set()
        return frozenset(step.kind for step in self.steps) | own


def schedule(seed: int) -> Schedule:
    choose = random.Random(f"faults {seed}")
    seconds = round(choose.uniform(2.5, 4.0) if choose.random() < 0.05 else choose.uniform(0.0, 1.1), 3)
    steps: list[Step] = []
    for _ in range(choose.choice((1, 1, 2, 2, 3, 4))):
        (kind,) = choose.choices(list(_FAULTS), weights=[weight for weight, _ in _FAULTS.values()])
        began = round(choose.uniform(-0.3, 1.0) * max(seconds, 0.3), 3)
        if kind == "dashboard":  # A cell shows or closes it, so this can't happen during another cell.
            began = -0.05
        steps += (
            Step(round(began + after, 3), kind, action) for after, action in _FAULTS[kind][1](choose, seconds)
        )
    cells = [name for name in CELLS if name != "shared memory"]
    cell = "shared memory" if any(step.kind == "full /dev/shm" for step in steps) else choose.choice(cells)
    if CELLS[cell].forks and any(step.kind == "interrupt" for step in steps):
        # An interrupt while Python forks can leave the lock of the module logging locked for ever, with or
        # without gpuwidget. Any thread that logs then hangs.
        cell = "sleep"
    return Schedule(cell, choose.choice(_OPTIONS), seconds, tuple(sorted(steps, key=lambda step: step.at)))


# -- the faults ----------------------------------------------------------------------------------------------

Actions = Iterator[tuple[float, str]]
"""Seconds after the fault's beginning, and what happens then."""


def _line(choose: random.Random, effect: str, functions: tuple[str, ...]) -> str:
    """Return a line of the stand-in's scenario with a random function and a random target."""
    function = choose.choice(functions)
    target = choose.choice(("gpu.0.", "gpu.1.", "gpu.*.")) if function in _PER_GPU else ""
    return f"{target}{function}={effect}"


def _for_a_while(choose: random.Random, seconds: float, line: str) -> Actions:
    yield 0.0, f"set {line}"
    if choose.random() < 0.5:
        yield choose.uniform(0.05, 0.7) * max(seconds, 0.3), f"unset {line.partition('=')[0]}"


def _functions(choose: random.Random) -> tuple[str, ...]:
    return choose.choice((_FREQUENT, _FREQUENT, _PER_GPU, _OPENING))


def _error(choose: random.Random, seconds: float) -> Actions:
    line = _line(choose, f"error {choose.choice(_CODES)}", _functions(choose))
    if line.endswith("nvmlDeviceGetMemoryInfo_v2=error 3"):
        # "Not supported" means that the GPU uses the host's memory, whose size the stand-in does not return.
        line = line.replace("error 3", "error 10")
    yield from _for_a_while(choose, seconds, line)


def _error_of_all(choose: random.Random, seconds: float) -> Actions:
    code = choose.choice((1, 9, 17, 18, 999))
    yield 0.0, f"set *=error {code}"
    yield 0.0, f"set gpu.*.*=error {code}"
    if choose.random() < 0.5:
        later = choose.uniform(0.05, 0.7) * max(seconds, 0.3)
        yield later, "unset *"
        yield later, "unset gpu.*.*"


def _hang(choose: random.Random, seconds: float) -> Actions:
    yield from _for_a_while(choose, seconds, _line(choose, "hang", _functions(choose)))


def _slow(choose: random.Random, seconds: float) -> Actions:
    line = _line(choose, f"slow {choose.choice((20, 100, 300, 800))}", _functions(choose))
    yield from _for_a_while(choose, seconds, line)


def _lost(choose: random.Random, seconds: float) -> Actions:
    gpu = choose.choice(("gpu.0", "gpu.1", "gpu.*"))
    yield from _for_a_while(choose, seconds, f"{gpu}.*=error {choose.choice((15, 16, 28))}")


def _count(choose: random.Random, seconds: float) -> Actions:
    yield from _for_a_while(choose, seconds, f"gpus={choose.choice((0, 1, 3))}")


def _mig(choose: random.Random, seconds: float) -> Actions:
    gpu = choose.choice((0, 1))
    yield 0.0, f"set gpu.{gpu}.mig={choose.choice(('0', '0 2', '1 2 3'))}"
    if choose.random() < 0.7:
        later = choose.uniform(0.1, 0.5)
        # The handles of the slices become invalid, and the whole GPU is found again.
        yield later, "restart driver" if choose.random() < 0.3 else f"set gpu.{gpu}.mig=4 5"
        yield later + choose.uniform(0.1, 0.5), f"unset gpu.{gpu}.mig"


def _restart(choose: random.Random, seconds: float) -> Actions:
    if choose.random() < 0.5:
        # While the driver restarts, it is not loaded.
        yield 0.0, "set nvmlInitWithFlags=error 9"
        yield 0.0, "restart driver"
        yield choose.uniform(0.05, 0.5), "unset nvmlInitWithFlags"
    else:
        yield 0.0, "restart driver"


def _one(action: str) -> Callable[[random.Random, float], Actions]:
    def once(choose: random.Random, seconds: float) -> Actions:
        yield 0.0, action

    return once


def _clock(choose: random.Random, seconds: float) -> Actions:
    yield 0.0, f"clock {choose.choice(_CLOCK_JUMPS)}"
    if choose.random() < 0.5:
        yield choose.uniform(0.1, 0.6), f"clock {choose.choice(_CLOCK_JUMPS)}"


def _shared_memory(choose: random.Random, seconds: float) -> Actions:
    yield 0.0, "shm fill"


def _interrupt(choose: random.Random, seconds: float) -> Actions:
    yield 0.0, "interrupt"
    if choose.random() < 0.15:
        yield choose.uniform(0.0, 0.3), "interrupt"


_FAULTS: dict[str, tuple[float, Callable[[random.Random, float], Actions]]] = {
    "error": (4.0, _error),
    "error of every call": (1.5, _error_of_all),
    "hang": (4.0, _hang),
    "slow call": (3.0, _slow),
    "lost GPU": (3.0, _lost),
    "another number of GPUs": (1.0, _count),
    "MIG": (2.0, _mig),
    "driver restart": (2.0, _restart),
    "clock jump": (2.0, _clock),
    "full /dev/shm": (0.5, _shared_memory),
    "interrupt": (3.0, _interrupt),
    "dropped client": (1.5, _one("client drop")),
    "slow client": (1.0, _one("client slow")),
    "dashboard": (0.7, _one("dashboard")),
    "kernel restart": (0.12, _one("kernel restart")),
    "killed kernel": (0.08, _one("kernel kill")),
    "server restart": (0.06, _one("server stop")),
    "killed server": (0.04, _one("server kill")),
}
"""For each kind of fault, how often it occurs compared with the others, and its actions."""
KINDS = (*_FAULTS, "fork")
