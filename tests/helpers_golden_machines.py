"""Samples and diagnoses of machines that the stand-in for NVML simulates."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timezone
from functools import partial
from itertools import groupby
from pathlib import Path

import pytest
from fakes import FakeClock
from helpers_golden_format import formatted
from helpers_nvml import Machine, replace_driver
from nvml_standin import OLD_DRIVER, build, profiles

from gpuwidget.cli.gpu_table import render_table
from gpuwidget.model.to_json import to_json
from gpuwidget.sampler import Sampler
from gpuwidget.sources import nvml_diagnostics
from gpuwidget.sources.nvml import NvmlSource

ERRORS = (*range(1, 30), 999)
"""Error codes of NVML."""
CALLS = (
    "nvmlDeviceGetUtilizationRates",
    "nvmlDeviceGetMemoryInfo_v2",
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetTotalEnergyConsumption",
    "nvmlDeviceGetTemperatureV",
    "nvmlDeviceGetClockInfo",
    "nvmlDeviceGetPerformanceState",
    "nvmlDeviceGetCurrentClocksEventReasons",
    "nvmlDeviceGetEnforcedPowerLimit",
    "nvmlDeviceGetName",
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetHandleByIndex_v2",
    "nvmlGpmQueryDeviceSupport",
    "field.186",
    "field.82",
)
IMPOSSIBLE = {
    "util": "101",
    "memory_util": "4294967295",
    "memory_used": str(2**64 - 1),
    "memory_total": "0",
    "power": "4294967",
    "temperature": "4294967295",
    "memory_temperature": "-1",
    "sm_clock": "4294967295",
    "fan": "4294967295",
    "pstate": "32",
    "throttle": "18446744073709551615",
    "compute": f"{2**30}:{2**64 - 1}",
    "name": "\x1b[31m",
    "compute_capability": "0.0",
}
MIG = ("gpus=2", "gpu.0.mig_mode=1", "gpu.0.mig=0 2", "gpu.0.mig.2.memory_used=1073741824")
FAILING = ("nvmlInitWithFlags", "nvmlSystemGetDriverVersion", "nvmlDeviceGetCount_v2", "*")
MACHINES: Mapping[str, Sequence[str]] = {
    "one": (),
    "none": ("gpus=0",),
    "sixteen": ("gpus=16",),
    "mig": MIG,
    "mig-lost": (*MIG, "gpu.0.*=error 15"),
    "models": profiles.machine(*profiles.PROFILES),
    "processes": (f"gpu.0.compute={2**30}:1048576 {2**30 + 1}", f"gpu.0.graphics={2**30 + 2}:4096"),
    **{f"model/{name}": profiles.machine(name) for name in profiles.PROFILES},
    **{f"impossible/{key}": (f"gpu.0.{key}={value}",) for key, value in IMPOSSIBLE.items()},
    **{f"call-fails/{call} error 3": ("gpus=2", f"gpu.0.{call}=error 3") for call in CALLS},
    **{f"call-fails/{call} error 999": ("gpus=2", f"gpu.0.{call}=error 999") for call in CALLS},
    **{f"gpu-fails/error {code}": ("gpus=2", f"gpu.1.*=error {code}") for code in ERRORS},
    **{f"driver-fails/{call} error {code}": (f"{call}=error {code}",) for call in FAILING for code in ERRORS},
    "busy": ("gpu.0.util=97", "gpu.0.memory_used=60000000000", "gpu.0.power=650", "gpu.0.throttle=8"),
    "broken-memory": ("gpu.0.ecc=2", "gpu.0.remapped=3", "gpu.0.remap_failed=1", "gpu.0.retired_pending=1"),
    "slow-link": ("gpu.0.pcie_gen=1", "gpu.0.pcie_width=4"),
    "exclusive": ("gpu.0.compute_mode=3", "gpu.0.persistence=0"),
}
"""The scenario of each machine. Machines with the same text before the slash are one output."""


def views() -> Iterator[tuple[str, str]]:
    """Yield the views of the samples and of the health of all machines, by the machines' name."""
    home = Path(os.environ["HOME"])
    libraries = {"": build(home / "nvml"), "-old-driver": build(home / "nvml-old", absent=OLD_DRIVER)}
    for driver, library in libraries.items():
        for name, machines in groupby(MACHINES, lambda name: name.partition("/")[0]):
            if driver and name.endswith("fails"):
                continue
            with (
                pytest.MonkeyPatch.context() as patch,
                replace_driver(home / f"{name}{driver}", patch) as put,
            ):
                yield f"{name}{driver}", "\n".join(map(partial(_views, put(library)), machines))


def _views(machine: Machine, name: str) -> str:
    """Return the table and the JSON of the machine's GPUs, and their health."""
    machine.set_scenario(*MACHINES[name])
    clock = FakeClock()
    with complete(Sampler(NvmlSource(clock), clock), clock) as sampler:
        sample = sampler.read_now(5.0)
        sampler.stop()
    assert sample is not None
    table = render_table(sample, width=100, tz=timezone.utc)
    text = json.dumps(to_json(sample), indent=1, ensure_ascii=False)
    text = re.sub(r'("energy_j": )[0-9.]+', r"\1ENERGY", text)
    return f"=== {name}\n{table}\n{text}\n{formatted(nvml_diagnostics.query_diagnostics())}"


@contextmanager
def complete(sampler: Sampler, clock: FakeClock) -> Iterator[Sampler]:
    """Yield the sampler once it has the slow readings, too, which arrive on another thread."""
    with sampler.subscribe():
        sampler.wait_until_open(5.0)
        sampler.read_now(5.0)
        clock.until(lambda: clock.all_wait(sampler._threads.threads))
        yield sampler
