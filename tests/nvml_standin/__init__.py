"""A C library that stands in for NVML and follows a scenario: the real ctypes path without a GPU.

The scenario is a text of ``key=value`` lines, read again whenever the file changes; later lines win.
``gpu.N.`` before a key means GPU N, ``gpu.N.mig.M.`` its slice M, ``gpu.*.`` every GPU; a slice has the
values of its GPU unless it sets others, and ``ok`` makes a call succeed that fails for its GPU.

- ``gpus=8`` ``driver=580.95.05`` ``cuda=13000``: the machine
- ``gpu.0.util=97`` ``gpu.0.memory_util=40``: percent
- ``gpu.0.memory_used=B`` ``.memory_total`` ``.memory_reserved``: bytes
- ``gpu.0.power=650`` ``.power_average`` ``.power_limit``: watts; the energy counter integrates ``power``
- ``gpu.0.temperature`` ``.memory_temperature`` ``.sm_clock`` ``.pstate`` ``.throttle`` ``.fan``
  ``.memory_clock`` ``.encoder`` ``.decoder``: in NVML's units
- ``gpu.0.energy=2706.5``: joules that the counter starts from
- ``gpu.0.window=0.2`` ``gpu.0.samples=70``: the utilization samples that the driver keeps
- ``gpu.0.compute=self:1048576 4711``: pid:bytes; ``self`` is the caller; no bytes: unknown
- ``gpu.0.graphics=...``: likewise
- ``gpu.0.mig=0 2`` ``gpu.0.mig.2.memory_used=B``: the indices that hold a slice
- ``gpu.0.gpm=0`` ``gpu.0.gpm.2=55.5`` ``gpu.0.gpm.3=nan``: no GPM; metric 2
- ``gpu.0.name`` ``.uuid`` ``.pci`` ``.compute_capability`` ``.slice_name`` ``.slice_uuid``: its identity
- ``gpu.1.nvmlDeviceGetMemoryInfo_v2=error 15``: that call fails; ``gpu.1.*`` every call
- ``gpu.1.nvmlDeviceGetMemoryInfo_v2=hang``: it does not return while the scenario has this line
- ``nvmlInitWithFlags=error 9`` ``*=error 9``: a call without a GPU, every call
- ``gpu.0.field.186=error 3`` ``gpu.0.gpm.2=error 3``: that value fails, the call does not
- ``gpu.0.ecc=2`` ``.ecc_mode`` ``.remapped`` ``.remap_pending`` ``.remap_failed``
  ``.retired_pending``: its memory
- ``gpu.0.xids=13 79``: the XIDs so far; event sets registered before one was added get it
- ``gpu.0.persistence`` ``.compute_mode`` ``.mig_mode`` ``.mig_mode_pending``: its settings
- ``gpu.0.pcie_gen`` ``.pcie_gen_max`` ``.pcie_width`` ``.pcie_width_max``: its link
- ``gpu.0.p2p.1.2=5``: the status of NVLink (2; 0 reading) from GPU 0 to GPU 1
- ``latency=h200``: calls take as long as on a real H200
"""

from __future__ import annotations

import os
import shutil
import struct
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

SOURCE = Path(__file__).with_name("nvml.c")
LIBRARY = "libnvidia-ml.so.1"
_COUNTER = struct.Struct("56sQ")

OLD_DRIVER = (
    "nvmlDeviceGetMemoryInfo_v2",
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetGraphicsRunningProcesses_v3",
    "nvmlDeviceGetCurrentClocksEventReasons",
    "nvmlDeviceGetTemperatureV",
    "nvmlGpmQueryDeviceSupport",
    "nvmlGpmSampleAlloc",
    "nvmlGpmSampleFree",
    "nvmlGpmSampleGet",
    "nvmlGpmMigSampleGet",
    "nvmlGpmMetricsGet",
)
"""Functions that a driver of the 470 series lacks."""


def build(folder: Path, absent: Iterable[str] = ()) -> Path:
    """Compile the library into ``folder``, without the functions ``absent``; return its path."""
    # Imported late: the benchmarks load this module by its path, without the tests' folder on sys.path.
    from helpers_programs import compile_library

    folder.mkdir(parents=True, exist_ok=True)
    library = folder / LIBRARY
    hidden = [f"-D{name}=absent_{name}" for name in absent]
    compile_library(SOURCE, library, *hidden, "-lm", "-lpthread")
    return library


class Standin:
    """One library with its scenario and call counters, all in ``folder``."""

    def __init__(self, library: Path, folder: Path, scenario: str = "") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        # Each copy has its statics: nothing of one test is left for the next.
        self.library = Path(shutil.copy(library, folder / LIBRARY))
        self._scenario = folder / "scenario.txt"
        self._calls = folder / "calls"
        self._counted: Counter[str] = Counter()
        self.scenario(scenario)

    def scenario(self, *lines: str) -> None:
        """Replace the scenario by these lines; the next call reads them."""
        beside = self._scenario.with_suffix(".new")
        beside.write_text("\n".join(lines) + "\n")
        os.replace(beside, self._scenario)

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables that the library reads."""
        return {"NVML_STANDIN": str(self._scenario), "NVML_STANDIN_CALLS": str(self._calls)}

    def environment(self) -> dict[str, str]:
        """Return an environment for a process that loads this library as NVML."""
        paths = [str(self.folder), os.environ.get("LD_LIBRARY_PATH", "")]
        return {**os.environ, **self.variables, "LD_LIBRARY_PATH": ":".join(filter(None, paths))}

    def calls(self) -> Counter[str]:
        """Return how often each function was called since the last query, by all processes together."""
        counted: Counter[str] = Counter()
        if self._calls.exists():
            for name, count in _COUNTER.iter_unpack(self._calls.read_bytes()):
                if name[0]:
                    counted[name.rstrip(b"\0").decode()] = count
        since = counted - self._counted
        self._counted = counted
        return since
