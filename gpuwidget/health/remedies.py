"""What is to be done, in the words that several links share."""

from __future__ import annotations

import re

from gpuwidget.health import packages
from gpuwidget.health.facts import Facts

_LIBRARY = re.compile(r"lib(?:cu|nv|nccl)\w*\.so[\d.]*|lib(?:torch|c10)\w*\.so")


def missing_library(facts: Facts) -> str | None:
    """The shared library for which importing torch failed, as ``libcudnn.so.9``."""
    error = facts.torch.get("import_error")
    found = _LIBRARY.search(error) if isinstance(error, str) else None
    return None if found is None else found[0]


def remedy_for(library: str, facts: Facts) -> str:
    """The remedy of a shared library that is missing or does not fit."""
    if library.startswith("libcuda.so"):
        return "That is a part of the driver: see there."
    shadow = facts.on_library_path(library.partition(".")[0])
    if shadow:
        return unset(next(iter(shadow)))
    return anew(facts)


def unset(folder: str) -> str:
    """The remedy of a folder in LD_LIBRARY_PATH."""
    return (
        f"Take {folder} out of LD_LIBRARY_PATH, whose files come before those PyTorch was built with, and "
        "start the kernel's server anew."
    )


def pip(facts: Facts) -> str:
    """pip of this very environment."""
    return f"{facts.python or 'python'} -m pip"


def anew(facts: Facts) -> str:
    """The remedy of libraries that do not fit: what is put before them, else the installation."""
    preload = facts.variables.get("LD_PRELOAD")
    if preload:
        return f"Unset LD_PRELOAD ({preload}) and try again: it puts a library before all others."
    if facts.machine.libraries:
        return unset(next(iter(facts.machine.libraries)))
    return reinstall(facts)


def reinstall(facts: Facts) -> str:
    """The remedy of a broken installation."""
    if packages.torch_is_condas(facts.packages):
        return "Install it anew: conda install --force-reinstall pytorch."
    return f"Install it anew with its libraries: {pip(facts)} install --force-reinstall torch."
