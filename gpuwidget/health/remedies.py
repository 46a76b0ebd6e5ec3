"""What is to be done, in the words that several links share."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gpuwidget.health import drivers, packages
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
    return install(facts, "Install it anew with its libraries")


def install(
    facts: Facts,
    what: str,
    *,
    force: bool = True,
    always_index: bool = False,
    capabilities: Sequence[str] | None = None,
) -> str:
    """To install a build of PyTorch that runs here, with ``what`` before it; else what must come first.

    The newest build needs no address, unless another index may be configured here (``always_index``).
    """
    here = facts.capabilities if capabilities is None else capabilities
    wheel = drivers.torch_wheel(facts.driver, here, arm=facts.arm)
    if wheel is None:
        newest = drivers.torch_wheel(None, here, arm=facts.arm)
        if facts.driver is not None and newest is not None:
            why = f"no build of PyTorch runs with {facts.driver}"
            least = drivers.minimum(drivers.wheel_cuda(newest))
            return f"Update the driver to {least} or newer first: {why}."
        return (
            "PyTorch's builds have no code for this GPU any more: use another GPU, or build it from source."
        )
    # For these PyPI has, or long had, the build for the CPU.
    elsewhere = facts.arm or facts.machine.system == "win32"
    if wheel == drivers.NEWEST and not (always_index or elsewhere):
        return f"{what}: {pip(facts)} install{' --force-reinstall' if force else ''} torch."
    return f"{what}: {build(facts, wheel, force=force)}.{last(wheel)}"


def build(facts: Facts, wheel: str, *, force: bool = True) -> str:
    """The command that installs this build."""
    how = "install --force-reinstall" if force else "install"
    return f"{pip(facts)} {how} torch --index-url https://download.pytorch.org/whl/{wheel}"


def last(wheel: str) -> str:
    """What must be known of a build that newer versions do not come in; empty for others."""
    version = drivers.last_torch(wheel)
    return "" if version is None else f" PyTorch {version} is the last with such a build."
