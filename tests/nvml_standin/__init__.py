"""A C library that stands in for NVML and returns the values that a scenario sets.
With it, tests make the real ctypes calls without a GPU.

The scenario is a text of ``key=value`` lines. The library reads it again whenever the file changes; if a key
occurs twice, the later line wins. The prefix ``gpu.N.`` applies a key to GPU N, ``gpu.N.mig.M.`` to its slice
M, and ``gpu.*.`` to every GPU. A slice has the values of its GPU unless the scenario sets values for the
slice. If a call fails on the GPU, the value ``ok`` for the slice makes the call succeed there.

- ``gpus=8`` ``driver=580.95.05`` ``cuda=13000``: the machine
- ``gpu.0.util=97`` ``gpu.0.memory_util=40``: percent
- ``gpu.0.memory_used=B`` ``.memory_total`` ``.memory_reserved``: bytes
- ``gpu.0.power=650`` ``.power_average`` ``.power_limit``: watts; the energy counter integrates ``power``
- ``gpu.0.temperature`` ``.memory_temperature`` ``.sm_clock`` ``.pstate`` ``.throttle`` ``.fan``
  ``.memory_clock`` ``.encoder`` ``.decoder``: in NVML's units
- ``gpu.0.energy=2706.5``: the first value of the energy counter, in joules
- ``gpu.0.window=0.2`` ``gpu.0.samples=70``: seconds between the driver's utilization samples, and their count
- ``gpu.0.power_samples=119`` ``gpu.0.power_samples_ahead=-3600``: the number of the driver's samples of the
  power, which are 20 ms apart (0: not supported), and the seconds by which their times are ahead
- ``gpu.0.compute=self:1048576 4711``: compute processes as pid:bytes; ``self`` is the caller;
  without bytes, the size is unknown
- ``gpu.0.working=4711:30``: the processes that have run something, with their percentage
- ``gpu.0.graphics=...``: graphics processes, in the same format
- ``gpu.0.mig=0 2`` ``gpu.0.mig.2.memory_used=B``: the indices of the MIG slices, and a value of slice 2
- ``gpu.0.gpm=0`` ``gpu.0.gpm.2=55.5`` ``gpu.0.gpm.3=nan``: no GPM on GPU 0;
  values of the GPM metrics 2 and 3
- ``gpu.0.name`` ``.uuid`` ``.pci`` ``.compute_capability`` ``.slice_name`` ``.slice_uuid``:
  the GPU's identity
- ``gpu.0.cores`` ``.sm_clock_max`` ``.memory_clock_max`` ``.bus_width``: CUDA cores, MHz and bits
- ``gpu.1.nvmlDeviceGetMemoryInfo_v2=error 15``: the call fails for GPU 1;
  with ``gpu.1.*`` as the key, every call for GPU 1 fails
- ``gpu.1.nvmlDeviceGetMemoryInfo_v2=hang``: the call does not return while the scenario contains this line
- ``gpu.1.nvmlDeviceGetMemoryInfo_v2=slow 300``: the call succeeds after 300 ms
- ``restarts=1``: the driver has been restarted once. When the number changes, NVML must be initialized again,
  and the handles from before are invalid
- ``nvmlInitWithFlags=error 9``: a call that has no GPU argument fails; with ``*`` as the key, all calls fail
- ``gpu.0.field.186=error 3`` ``gpu.0.gpm.2=error 3`` ``gpu.0.memory_clock=error 3``: one value can't be read,
  but the call succeeds for others
- ``gpu.0.ecc=2`` ``.ecc_mode`` ``.remapped`` ``.remap_pending`` ``.remap_failed``
  ``.retired_pending``: errors and repairs of the GPU's memory
- ``gpu.0.xids=13 79``: the XIDs so far; a registered event set receives the XIDs that a test adds later
- ``gpu.0.persistence`` ``.compute_mode`` ``.mig_mode`` ``.mig_mode_pending``: the GPU's settings
- ``gpu.0.pcie_gen`` ``.pcie_gen_max`` ``.pcie_width`` ``.pcie_width_max``: the GPU's PCIe link
- ``gpu.0.p2p.1.2=5``: the P2P status from GPU 0 to GPU 1 for capability 2, NVLink (capability 0 is
  P2P reads)
- ``latency=h200``: calls take as long as on a real H200

:mod:`nvml_standin.profiles` has the lines for other models of GPUs.
"""

from __future__ import annotations

import mmap
import os
import shutil
import struct
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).with_name("nvml.c")
LIBRARY = "libnvidia-ml.so.1"
_COUNTER = struct.Struct("56sQ")
_SERVED = struct.Struct("ddihh8s")
_SERVED_COUNT = struct.Struct("Q")

OLD_DRIVER = (
    "nvmlDeviceGetMemoryInfo_v2",
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetGraphicsRunningProcesses_v3",
    "nvmlDeviceGetCurrentClocksEventReasons",
    "nvmlDeviceGetNumGpuCores",
    "nvmlDeviceGetMemoryBusWidth",
    "nvmlDeviceGetTemperatureV",
    "nvmlGpmQueryDeviceSupport",
    "nvmlGpmSampleAlloc",
    "nvmlGpmSampleFree",
    "nvmlGpmSampleGet",
    "nvmlGpmMigSampleGet",
    "nvmlGpmMetricsGet",
)
"""Functions of NVML that a driver of the 470 series lacks."""


def build(folder: Path, absent: Iterable[str] = ()) -> Path:
    """Compile the library into ``folder`` without the functions named in ``absent``,
    and return the library's path."""
    # Imported here, because the benchmarks load this module by its path, without ``tests`` on ``sys.path``.
    from helpers_programs import compile_library

    folder.mkdir(parents=True, exist_ok=True)
    library = folder / LIBRARY
    hidden = [f"-D{name}=absent_{name}" for name in absent]
    compile_library(SOURCE, library, *hidden, "-lm", "-lpthread")
    return library


class Served(NamedTuple):
    """A value that a call returned."""

    time: float
    """When it was returned, in seconds of ``time.monotonic()``."""
    value: float
    pid: int
    """The process that made the call."""
    gpu: int
    slice: int
    """The index of a MIG slice, or -1 for a whole GPU."""
    what: str
    """``memory`` or ``own`` (bytes), ``util`` or ``mem_util`` (percent), ``power`` (watts), ``energy``
    (joules), ``gpm.ID``, or the first 8 letters of another key of the scenario."""


class Standin:
    """A copy of the library in ``folder``, together with its scenario and its call counters."""

    def __init__(self, library: Path, folder: Path, scenario: str = "", *, record: bool = False) -> None:
        """With ``record``, the library records the values that calls return, for :meth:`served`."""
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        # Each copy of the library has its own static variables, so that no state of one test reaches the
        # next.
        self.library = Path(shutil.copy(library, folder / LIBRARY))
        self._scenario = folder / "scenario.txt"
        self._calls = folder / "calls"
        self._served = folder / "served"
        self._served_before = 0
        self._more = {"NVML_STANDIN_SERVED": str(self._served)} if record else {}
        self._counted: Counter[str] = Counter()
        self.scenario(scenario)

    def scenario(self, *lines: str) -> None:
        """Replace the scenario with these lines; the library reads them at its next call."""
        beside = self._scenario.with_suffix(".new")
        beside.write_text("\n".join(lines) + "\n")
        os.replace(beside, self._scenario)

    @property
    def variables(self) -> dict[str, str]:
        """Return the environment variables that the library reads."""
        return {"NVML_STANDIN": str(self._scenario), "NVML_STANDIN_CALLS": str(self._calls), **self._more}

    def environment(self) -> dict[str, str]:
        """Return an environment for a process that loads this library as NVML."""
        paths = [str(self.folder), os.environ.get("LD_LIBRARY_PATH", "")]
        return {**os.environ, **self.variables, "LD_LIBRARY_PATH": ":".join(filter(None, paths))}

    def calls(self) -> Counter[str]:
        """Return how often each function was called, by any process, since this method was last used."""
        counted: Counter[str] = Counter()
        if self._calls.exists():
            for name, count in _COUNTER.iter_unpack(self._calls.read_bytes()):
                if name[0]:
                    counted[name.rstrip(b"\0").decode()] = count
        since = counted - self._counted
        self._counted = counted
        return since

    def served(self) -> list[Served]:
        """Return the values that calls of any process returned since this method was last used, oldest first.

        Of more than 65,536 values, only the newest are returned.
        """
        if not self._served.exists():
            return []
        size = self._served.stat().st_size
        if size <= _SERVED_COUNT.size:
            return []
        found = []
        with (
            self._served.open("rb") as file,
            mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as content,
        ):
            (count,) = _SERVED_COUNT.unpack_from(content)
            room = (size - _SERVED_COUNT.size) // _SERVED.size
            for number in range(max(self._served_before, count - room), count):
                offset = _SERVED_COUNT.size + number % room * _SERVED.size
                at, value, pid, gpu, mig, what = _SERVED.unpack_from(content, offset)
                found.append(Served(at, value, pid, gpu, mig, what.rstrip(b"\0").decode()))
        self._served_before = count
        return found
