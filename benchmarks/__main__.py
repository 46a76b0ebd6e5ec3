"""``python -m benchmarks [NAME …] [--quick] [--out FILE]``: measure, print a table, save the results."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from benchmarks import (
    card_size,
    cluster,
    cluster_page,
    dashboard,
    dashboard_peer,
    dask_workers,
    device,
    empty_cell,
    energy,
    faults,
    gil_waits,
    holders,
    idle,
    importing,
    interrupts,
    journal,
    kernel_memory,
    loading,
    out_of_memory,
    panel,
    printing,
    pure_python,
    sampling,
    soak,
    soak_page,
    stragglers,
    streams,
    ticks,
    training,
)
from benchmarks.figures import Figure, table
from benchmarks.settings import Settings, log_progress

Measure = Callable[[Settings], Iterator[Figure]]

BENCHMARKS: dict[str, Measure] = {
    "import": importing.measure,
    "load": loading.measure,
    "pass": empty_cell.measure,
    "memory": kernel_memory.measure,
    "printing": printing.measure,
    "python-short": pure_python.measure_short,
    "python-8": pure_python.measure_eight,
    "python-1": pure_python.measure_one,
    "python-peer": pure_python.measure_peer,
    "training": training.measure_heavy,
    "launch": training.measure_launch,
    "idle": idle.measure,
    "gil-waits": gil_waits.measure,
    "sampling": sampling.measure,
    "energy": energy.measure,
    "card": card_size.measure,
    "ticks": ticks.measure,
    "streams": streams.measure,
    "panel": panel.measure,
    "dashboard": dashboard.measure,
    "dashboard-peer": dashboard_peer.measure,
    "cluster": cluster.measure,
    "cluster-page": cluster_page.measure,
    "device": device.measure,
    "lines": training.measure_lines,
    "stragglers": stragglers.measure,
    "dask": dask_workers.measure,
    "oom": out_of_memory.measure,
    "holders": holders.measure,
    "interrupts": interrupts.measure,
    "journal": journal.measure,
    "soak": soak.measure,
    "soak-page": soak_page.measure,
    "faults": faults.measure,
}
_ONLY_BY_NAME = ("soak-page",)
"""Benchmarks that take hours, and that run only if they are named."""
_RESULTS = Path(__file__).with_name("results")
_PACKAGES = (
    "ipykernel",
    "ipython",
    "ipywidgets",
    "bqplot",
    "bqscales",
    "jupyter-client",
    "jupyter-server",
    "jupyterlab",
    "nvidia-ml-py",
    "psutil",
    "tornado",
    "torch",
    "ipyexperiments",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the named benchmarks; return 1 if a benchmark failed with an error."""
    options = _parser().parse_args(arguments)
    names: list[str] = options.names or [name for name in BENCHMARKS if name not in _ONLY_BY_NAME]
    for name in names:
        if name not in BENCHMARKS:
            _parser().error(f"no benchmark {name!r}; there are {', '.join(BENCHMARKS)}")
    out: Path | None = options.out
    if out is None and not options.quick:
        what = "all" if not options.names else "-".join(names)
        out = _RESULTS / f"{datetime.now(timezone.utc):%Y-%m-%d}-{what}.json"
    settings = Settings(quick=options.quick, seeds=options.seeds, first_seed=options.first_seed)
    facts = machine_info()
    figures: list[Figure] = []
    broken = False
    for name in names:
        log_progress(f"{name} …")
        began = time.perf_counter()
        try:
            figures += BENCHMARKS[name](settings)
        except Exception as error:
            traceback.print_exc()
            broken = True
            reason = f"{type(error).__name__}: {error}"
            figures.append(Figure(benchmark=name, what=name, unit="ms", not_measured=reason))
        log_progress(f"{name}: {time.perf_counter() - began:.0f} s")
        if out is not None:
            # Save after each benchmark, so that an interrupted run keeps its results.
            save(out, figures, facts, quick=options.quick)
    print(_headline(facts, quick=options.quick))
    print(table(figures))
    return int(broken)


def save(path: Path, figures: Sequence[Figure], facts: dict[str, Any], *, quick: bool) -> None:
    """Write the results, the hardware and the software versions to a JSON file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    found = {**facts, "quick": quick, "figures": [figure.as_json() for figure in figures]}
    path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def machine_info() -> dict[str, Any]:
    """Return the date, the hardware and the software versions, without the machine's name or folder names."""
    gpus = _nvidia_smi("name,driver_version")
    import gpuwidget

    return {
        "date": f"{datetime.now(timezone.utc):%Y-%m-%dT%H:%MZ}",
        "gpus": [row[0] for row in gpus],
        "driver": gpus[0][1] if gpus else None,
        "cpus": os.cpu_count(),
        "platform": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "gpuwidget": gpuwidget.__version__,
        "packages": {name: version for name in _PACKAGES if (version := _version(name)) is not None},
    }


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _nvidia_smi(query: str) -> list[list[str]]:
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    done = subprocess.run(
        [program, f"--query-gpu={query}", "--format=csv,noheader"],
        capture_output=True,
        text=True,
        check=False,
    )
    rows = done.stdout.splitlines() if done.returncode == 0 else []
    return [[word.strip() for word in row.split(",")] for row in rows]


def _headline(facts: dict[str, Any], *, quick: bool) -> str:
    gpus = (
        f"{len(facts['gpus'])} x {facts['gpus'][0]}, driver {facts['driver']}" if facts["gpus"] else "no GPU"
    )
    parts = [
        f"gpuwidget {facts['gpuwidget']}",
        f"Python {facts['python']}",
        f"{facts['cpus']} CPUs",
        gpus,
        facts["date"],
    ]
    return ", ".join(parts) + ("; quick: too few runs to judge by" if quick else "")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=(__doc__ or "").partition(":")[2]
    )
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"of {', '.join(BENCHMARKS)}; if none, all but {', '.join(_ONLY_BY_NAME)}",
    )
    parser.add_argument("--quick", action="store_true", help="few short runs, to see that everything works")
    parser.add_argument("--seeds", type=int, metavar="N", help="faults: how many random schedules to run")
    parser.add_argument(
        "--from", dest="first_seed", type=int, default=0, metavar="SEED", help="faults: the first schedule"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="where the results go, as JSON")
    return parser


if __name__ == "__main__":
    sys.exit(main())
