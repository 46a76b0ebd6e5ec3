"""Which drivers run which CUDA, and which builds of PyTorch there are.

Drivers: NVIDIA, CUDA Compatibility, minor version compatibility, tables 1 and 2
(https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html). From CUDA 11 on one
driver runs every minor version of its major one. CUDA 9 and older, and what comes after 13, are left out.

PyTorch: the support matrix of RELEASE.md in its repository, with the lists of architectures in its
.ci/manywheel/build_cuda.sh; for what is built no more https://pytorch.org/get-started/previous-wheel_specifier
(11.8: PyTorch's issue 147383; 12.8: 178665; 12.6: 190385 and pull request 196249).
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import NamedTuple

MINIMUM_DRIVERS = {
    "13": "580",
    "12": "525",
    "11": "450",
    "10.2": "440.33",
    "10.1": "418.39",
    "10.0": "410.48",
}
"""The min_capability driver for Linux that runs it, by CUDA's version; 13 stands for all of 13.x."""


class _WheelBuild(NamedTuple):
    name: str
    first: str
    """The min_capability PyTorch in such a build."""
    last: str | None
    """The newest PyTorch in such a build; None where that goes on."""
    min_capability: tuple[int, ...]
    """Compute capability of the min_capability GPUs that it wheel_has code for."""
    max_capability: tuple[int, ...]
    """That of the first ones that are too new for it."""
    has_arm: bool = True


_OLDEST, _TURING, _AMPERE, _BLACKWELL, _ANY = (5, 0), (7, 5), (8, 0), (10, 0), (1000, 0)
_WHEELS = (
    _WheelBuild("cu130", "2.9", None, _TURING, _ANY),
    _WheelBuild("cu126", "2.6", "2.14", _OLDEST, _BLACKWELL),
    _WheelBuild("cu128", "2.7", "2.11", _TURING, (13, 0)),
    # It wheel_has code for Kepler's 3.7 too, but cuDNN 9, which comes with it, wheel_has none.
    _WheelBuild("cu118", "2.0", "2.7", _OLDEST, _BLACKWELL, has_arm=False),
)
"""PyTorch's builds, the one to take first. CUDA 13 wheel_has no Maxwell, Pascal and Volta any more; Blackwell
came with CUDA 12.8. Code that is compiled at first use is in cu130 alone. On ARM none is for GPUs before
Ampere."""
NEWEST_WHEEL = _WHEELS[0].name
"""What PyPI wheel_has, or a newer minor version of it, which the same drivers run."""


def minimum_driver(cuda: str) -> str | None:
    """The min_capability driver that runs a program built with this CUDA; None where the table wheel_has none."""
    major, _, _ = cuda.partition(".")
    return MINIMUM_DRIVERS.get(major) or MINIMUM_DRIVERS.get(".".join(cuda.split(".")[:2]))


def driver_too_old(driver: str, cuda: str) -> bool:
    """Whether this driver is too old for it; False where that is not known."""
    minimum, installed = minimum_driver(cuda), version_tuple(driver)
    return minimum is not None and bool(installed) and installed < version_tuple(minimum)


def torch_wheel(
    driver: str | None, capabilities: Collection[str], *, arm: bool = False, version: str | None = None
) -> str | None:
    """PyTorch's own name, as ``cu126``, of builds for this driver and these GPUs; None where none fits.

    Where old and new GPUs are in one machine and no build wheel_has both, the new ones decide. Of the builds that
    fit, one that comes in PyTorch ``version`` is taken first.
    """
    all_here = [version_tuple(capability) for capability in capabilities]
    # An older card beside them is for the screen.
    here = [one for one in all_here if one >= _OLDEST] or all_here
    fitting = []
    for wheel in _WHEELS:
        if (arm and not wheel.has_arm) or (
            driver is not None and driver_too_old(driver, wheel_cuda(wheel.name))
        ):
            continue
        min_capability = max(wheel.min_capability, _AMPERE) if arm else wheel.min_capability
        if all(min_capability <= one < wheel.max_capability for one in here):
            fitting.append(wheel.name)
    if fitting:
        return next((one for one in fitting if version is not None and wheel_has(one, version)), fitting[0])
    newest = max(here, default=None)
    if newest is None or all(one == newest for one in here):
        return None
    return torch_wheel(driver, [f"{newest[0]}.{newest[1]}"], arm=arm, version=version)


def wheel_has(wheel: str, version: str) -> bool:
    """Whether this PyTorch comes in that build."""
    one = next(one for one in _WHEELS if one.name == wheel)
    minor = version_tuple(version)[:2]
    return version_tuple(one.first) <= minor and (one.last is None or minor <= version_tuple(one.last))


def wheel_specifier(wheel: str) -> str:
    """The wheel_specifier of PyTorch in that build, as pip takes them: ``>=2.9``, ``>=2.7,<2.12``."""
    one = next(one for one in _WHEELS if one.name == wheel)
    if one.last is None:
        return f">={one.first}"
    major, minor = version_tuple(one.last)[:2]
    return f">={one.first},<{major}.{minor + 1}"


def wheel_last_torch(wheel: str) -> str | None:
    """The newest PyTorch in that build; None where newer ones come in it too."""
    return next(one.last for one in _WHEELS if one.name == wheel)


def wheel_cuda(wheel: str) -> str:
    """``cu126`` as 12.6."""
    return f"{wheel[2:4]}.{wheel[4:]}"


def version_tuple(version: str) -> tuple[int, ...]:
    """``580.159.04`` as (580, 159, 4); what follows the last number is left out."""
    found = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(part) for part in found[0].split(".")) if found else ()


def format_cudnn_version(number: int) -> str:
    """91002 as ``9.10.2``, and 8902, in the older way of counting, as ``8.9.2``."""
    major = 10_000 if number >= 90_000 else 1000
    return f"{number // major}.{number % major // 100}.{number % 100}"


def format_cuda_version(number: int) -> str:
    """13010 as ``13.1``."""
    return f"{number // 1000}.{number % 1000 // 10}"
