"""Machines with any number of GPUs: the tests' NVML stand-in, with calls as slow as on a real H200."""

from __future__ import annotations

import importlib.util
import os
import random
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

from benchmarks.settings import ROOT

_PACKAGE = ROOT / "tests" / "nvml_standin" / "__init__.py"
_GIB = 1 << 30
_HELD_BYTES = 4 * _GIB


def machine(folder: Path, gpus: int, *, spun: bool = False, source: Path | None = None) -> Any:
    """Build a stand-in with ``gpus`` GPUs in ``folder``. Pass its ``environment()`` to the measured process.

    The measured process holds memory on each GPU, so that a card shows all GPUs. Calls that take more than a
    millisecond on an H200 sleep for the same time. With ``spun``, they keep the CPU busy instead. A real
    driver does not spin for the whole call, so the CPU time measured with ``spun`` is an upper bound.
    ``source`` is a C file that includes the stand-in's source and implements more calls.
    """
    standin = tests_package()
    source = source or standin.SOURCE
    built = folder / f"{source.stem}-{'spun' if spun else 'slept'}"
    library = built / standin.LIBRARY
    if not library.exists():
        _build(source, library, spun=spun)
    place = folder / f"{built.name}-{gpus}"
    made = standin.Standin(library, place)
    made.scenario(
        f"gpus={gpus}",
        "latency=h200",
        "gpu.*.util=97",
        "gpu.*.memory_used=80000000000",
        "gpu.*.power=650",
        f"gpu.*.compute=self:{_HELD_BYTES} 4711:{_HELD_BYTES}",
    )
    return made


def changing(gpus: int) -> list[str]:
    """Return the lines of a scenario with ``gpus`` GPUs and random readings. Each call returns different
    readings."""
    lines = [f"gpus={gpus}", "latency=h200", f"gpu.*.memory_total={140 * _GIB}", "gpu.*.power_limit=700"]
    for gpu in range(gpus):
        lines += [
            f"gpu.{gpu}.util={random.randint(0, 100)}",
            f"gpu.{gpu}.memory_used={random.randint(0, 140) * _GIB}",
            f"gpu.{gpu}.power={random.randint(60, 1000)}",
            f"gpu.{gpu}.temperature={random.randint(9, 101)}",
            f"gpu.{gpu}.sm_clock={random.randint(300, 1980)}",
            f"gpu.{gpu}.throttle={random.choice((0, 4))}",
        ]
    return lines


def tests_package() -> ModuleType:
    """Return the package of the tests' NVML stand-in."""
    spec = importlib.util.spec_from_file_location("nvml_standin", _PACKAGE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _build(source: Path, library: Path, *, spun: bool) -> None:
    library.parent.mkdir(parents=True)
    options: tuple[str | Path, ...] = ("-O2", "-shared", "-fPIC")
    if spun:
        header = library.with_name("spun.h")
        # Without usleep, the stand-in spins for as long as the call takes.
        header.write_text("#include <unistd.h>\n#define usleep(microseconds) ((void)(microseconds))\n")
        options = (*options, "-D_GNU_SOURCE=", "-include", header)
    command = (os.environ.get("CC", "cc"), *options, "-o", library, source, "-lm", "-lpthread")
    subprocess.run(command, check=True)
