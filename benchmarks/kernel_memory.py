"""Measure how much resident memory gpuwidget adds to a kernel, with and without the live chart libraries."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.figures import Figure
from benchmarks.kernels import Kernel, require_live_chart
from benchmarks.settings import Settings, environment, log_progress
from benchmarks.standin import machine

_GPUS = 8
_AFTER_S = 10.0
_RESIDENT = "int(next(line for line in open('/proc/self/status') if line.startswith('VmRSS:')).split()[1])"
_PLAIN = ("pass",)
_WITH_LIBRARIES = ("%load_ext gpuwidget",)
_WITHOUT_LIBRARIES = (
    # None in sys.modules makes the import fail, as if the package were not installed.
    "import sys\nsys.modules['bqplot'] = sys.modules['ipywidgets'] = None",
    "%load_ext gpuwidget",
)
_KINDS = {
    "with the live chart's libraries, which a kernel loads when it is idle": _WITH_LIBRARIES,
    "without the live chart's libraries": _WITHOUT_LIBRARIES,
}


def measure(settings: Settings) -> Iterator[Figure]:
    """Measure a kernel's resident memory 10 s after ``%load_ext gpuwidget``, minus the memory of a plain
    kernel."""
    require_live_chart()
    values: dict[str, list[float]] = {kind: [] for kind in _KINDS}
    rounds = settings.pick(8, 2)
    with TemporaryDirectory() as folder:
        variables = environment(machine(Path(folder), _GPUS).environment())
        for number in range(rounds):
            log_progress(f"  memory of a kernel: round {number + 1} of {rounds}")
            plain = _resident_kib(variables, _PLAIN)
            for kind in sorted(_KINDS, reverse=bool(number % 2)):
                values[kind].append(_resident_kib(variables, _KINDS[kind]) - plain)
    for kind, found in values.items():
        yield Figure(
            benchmark="memory",
            what=f"resident memory {_AFTER_S:g} s after %load_ext, {kind}",
            unit="KiB",
            values=found,
        )


def _resident_kib(variables: dict[str, str], cells: tuple[str, ...]) -> int:
    with Kernel(variables) as kernel:
        for cell in cells:
            kernel.run(cell)
        return int(kernel.run("pass", {"resident": _RESIDENT}, rest_s=_AFTER_S).values["resident"])
