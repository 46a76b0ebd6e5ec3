"""Machines with any number of GPUs: the tests' stand-in for NVML, with the call times of a real H200."""

from __future__ import annotations

import importlib.util
import os
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

from benchmarks.settings import ROOT

_PACKAGE = ROOT / "tests" / "nvml_standin" / "__init__.py"
_HELD_BYTES = 4 << 30


def machine(folder: Path, gpus: int, *, spun: bool = False) -> Any:
    """A stand-in of ``gpus`` GPUs built in ``folder``; its ``environment()`` is for a measured process.

    The caller holds memory on each GPU, so that a card shows them all. The calls that take more than a
    millisecond sleep for as long as the H200's do; ``spun``: they keep the CPU busy instead, which no
    driver does throughout, so that what is measured is more than any machine would show.
    """
    standin = _tests_package()
    built = folder / ("spun" if spun else "slept")
    library = built / standin.LIBRARY
    if not library.exists():
        _build_spun(standin, library) if spun else standin.build(built)
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


def _tests_package() -> ModuleType:
    spec = importlib.util.spec_from_file_location("nvml_standin", _PACKAGE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _build_spun(standin: ModuleType, library: Path) -> None:
    library.parent.mkdir(parents=True)
    header = library.with_name("spun.h")
    # What is left of a call's time once it does not sleep, the stand-in waits for busily.
    header.write_text("#include <unistd.h>\n#define usleep(microseconds) ((void)(microseconds))\n")
    options = ("-O2", "-D_GNU_SOURCE=", "-shared", "-fPIC", "-include", header)
    command = (os.environ.get("CC", "cc"), *options, "-o", library, standin.SOURCE, "-lm", "-lpthread")
    subprocess.run(command, check=True)
