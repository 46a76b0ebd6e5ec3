"""The simulated GPU driver, whose values always change, and the record of the values that it returned."""

from __future__ import annotations

import math
import random
import struct
import subprocess
import time
from bisect import bisect_left, bisect_right
from pathlib import Path
from typing import Any

from benchmarks.faults.schedules import GPUS
from benchmarks.standin import tests_package

_MIB = 1 << 20
_REVISIONS = 60_000
"""After this many changes, the memory readings repeat."""
_KEPT_S = 60.0
"""Seconds for which returned values are kept."""
_COUNTERS = (1, 2, 3, 5, 10, 11, 12, 13)
"""The hardware counters that have values."""


class Driver:
    """A machine with two GPUs. No two scenarios have the same memory readings, so each value shows when it
    was current."""

    def __init__(self, folder: Path) -> None:
        standin = tests_package()
        self._clock = folder / "clock"
        self._clock.write_bytes(struct.pack("d", 0.0))
        self._preload = folder / "clock.so"
        source = standin.SOURCE.with_name("clock.c")
        subprocess.run(
            ["cc", "-O2", "-shared", "-fPIC", "-o", self._preload, source, "-ldl", "-lm"], check=True
        )
        library = folder / "built" / standin.LIBRARY
        library.parent.mkdir()
        subprocess.run(
            ["cc", "-O2", "-shared", "-fPIC", "-o", library, standin.SOURCE, "-lm", "-lpthread"], check=True
        )
        self._standin: Any = standin.Standin(library, folder / "driver", record=True)
        self._lines: dict[str, str] = {}
        self._restarts = 0
        self._revision = 0
        self._random = random.Random(0)
        self._powers: dict[int, list[tuple[float, float]]] = {}
        self._served: dict[tuple[int, int, int, str], tuple[list[float], list[float]]] = {}
        self.change()

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables of a process that uses this driver and this clock."""
        path: str = self._standin.environment()["LD_LIBRARY_PATH"]
        return {
            **self._standin.variables,
            "LD_LIBRARY_PATH": path,
            "LD_PRELOAD": str(self._preload),
            "CLOCK_STANDIN": str(self._clock),
        }

    # -- what the driver returns -------------------------------------------------------------------------

    def change(self) -> None:
        """Give every reading a new value."""
        self._revision = (self._revision + 1) % _REVISIONS
        choose = self._random
        lines = [f"gpus={GPUS}", f"restarts={self._restarts}"]
        for gpu in range(GPUS + 1):
            number = self._revision * (GPUS + 1) + gpu + 1
            lines += [
                f"gpu.{gpu}.memory_used={number * _MIB // 2}",
                f"gpu.{gpu}.compute=self:{number * _MIB // 4}",
                f"gpu.{gpu}.util={choose.randint(1, 100)}",
                f"gpu.{gpu}.memory_util={choose.randint(1, 100)}",
                # The driver has two functions for the power. They return the same value.
                f"gpu.{gpu}.power={(power := choose.randint(60, 700))}",
                f"gpu.{gpu}.power_average={power}",
                *(f"gpu.{gpu}.gpm.{counter}={choose.uniform(1, 99):.2f}" for counter in _COUNTERS),
            ]
            self._powers.setdefault(gpu, []).append((time.monotonic(), float(power)))
        self._standin.scenario(*lines, *(f"{key}={value}" for key, value in self._lines.items()))

    def set(self, line: str) -> None:
        """Add a line to the scenario."""
        key, _, value = line.partition("=")
        self._lines.pop(key, None)
        self._lines[key] = value
        self.change()

    def unset(self, key: str) -> None:
        """Remove a line from the scenario. Does nothing if there is no such line."""
        self._lines.pop(key, None)
        self.change()

    def restart(self) -> None:
        """Restart the driver: NVML must be initialized again, and all handles are invalid."""
        self._restarts += 1
        self.change()

    def jump(self, seconds: float) -> None:
        """Move the time of day of the measured processes."""
        (offset,) = struct.unpack("d", self._clock.read_bytes())
        with self._clock.open("r+b") as file:
            file.write(struct.pack("d", offset + seconds if seconds else 0.0))

    def heal(self) -> None:
        self._lines.clear()
        self.jump(0.0)
        self.change()

    # -- what the driver has returned --------------------------------------------------------------------

    def collect(self) -> None:
        """Read what the driver has returned, for :meth:`values`."""
        for each in self._standin.served():
            times, values = self._served.setdefault((each.pid, each.gpu, each.slice, each.what), ([], []))
            times.append(each.time)
            values.append(each.value)
        oldest = time.monotonic() - _KEPT_S
        for key, (times, values) in list(self._served.items()):
            first = bisect_left(times, oldest)
            del times[:first], values[:first]
            if not times:
                del self._served[key]

    def values(
        self, pid: int, gpu: int, mig: int | None, what: str, since: float, until: float
    ) -> list[float]:
        """Return the values that calls of a process returned between two times of ``time.monotonic()``.

        ``power drawn`` has the powers that the GPU had then, whether or not a call returned them: the energy
        counter contains them all.
        """
        if what == "power drawn":
            powers = self._powers.get(gpu, [])
            first = max(0, bisect_right(powers, (since, math.inf)) - 1)
            return [power for at, power in powers[first:] if at <= until]
        times, values = self._served.get((pid, gpu, -1 if mig is None else mig, what), ([], []))
        return values[bisect_left(times, since) : bisect_right(times, until)]
