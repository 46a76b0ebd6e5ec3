"""Which drivers run which CUDA, and which builds of PyTorch there are.

Drivers: NVIDIA, CUDA Compatibility, minor version compatibility, tables 1 and 2
(https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html). From CUDA 11 on one
driver runs every minor version of its major one. CUDA 9 and older, and what comes after 13, are left out.

PyTorch: the support matrix of RELEASE.md in its repository, with the lists of architectures in its
.ci/manywheel/build_cuda.sh; for what is built no more https://pytorch.org/get-started/previous-versions
(11.8: PyTorch's issue 147383; 12.8: 178665; 12.6: 190385 and pull request 196249).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from gpuwidget.diagnostics.versions import numbers

MINIMUM = {
    "13": "580",
    "12": "525",
    "11": "450",
    "10.2": "440.33",
    "10.1": "418.39",
    "10.0": "410.48",
}
"""The oldest driver for Linux that runs it, by CUDA's version; 13 stands for all of 13.x."""


class _Wheel(NamedTuple):
    name: str
    first: str
    """The oldest PyTorch in such a build."""
    last: str | None
    """The newest PyTorch in such a build; None where that goes on."""
    oldest: tuple[int, ...]
    """Compute capability of the oldest GPUs that it has code for."""
    newer: tuple[int, ...]
    """That of the first ones that are too new for it."""
    on_arm: bool = True


_OLDEST, _TURING, _AMPERE, _BLACKWELL, _ANY = (5, 0), (7, 5), (8, 0), (10, 0), (1000, 0)
_WHEELS = (
    _Wheel("cu130", "2.9", None, _TURING, _ANY),
    _Wheel("cu126", "2.6", "2.14", _OLDEST, _BLACKWELL),
    _Wheel("cu128", "2.7", "2.11", _TURING, (13, 0)),
    # It has code for Kepler's 3.7 too, but cuDNN 9, which comes with it, has none.
    _Wheel("cu118", "2.0", "2.7", _OLDEST, _BLACKWELL, on_arm=False),
)
"""PyTorch's builds, the one to take first. CUDA 13 has no Maxwell, Pascal and Volta any more; Blackwell
came with CUDA 12.8. Code that is compiled at first use is in cu130 alone. On ARM none is for GPUs before
Ampere."""
NEWEST = _WHEELS[0].name
"""What PyPI has, or a newer minor version of it, which the same drivers run."""


def minimum(cuda: str) -> str | None:
    """The oldest driver that runs a program built with this CUDA; None where the table has none."""
    major, _, _ = cuda.partition(".")
    return MINIMUM.get(major) or MINIMUM.get(".".join(cuda.split(".")[:2]))


def too_old(driver: str, cuda: str) -> bool:
    """Whether this driver is too old for it; False where that is not known."""
    least, here = minimum(cuda), numbers(driver)
    return least is not None and here != () and here < numbers(least)


def torch_wheel(
    driver: str | None, capabilities: Collection[str], *, arm: bool = False, version: str | None = None
) -> str | None:
    """PyTorch's own name, as ``cu126``, of builds for this driver and these GPUs; None where none fits.

    Where old and new GPUs are in one machine and no build has both, the new ones decide. Of the builds that
    fit, one that comes in PyTorch ``version`` is taken first.
    """
    all_here = [numbers(capability) for capability in capabilities]
    # An older card beside them is for the screen.
    here = [one for one in all_here if one >= _OLDEST] or all_here
    fitting = []
    for wheel in _WHEELS:
        if (arm and not wheel.on_arm) or (driver is not None and too_old(driver, wheel_cuda(wheel.name))):
            continue
        oldest = max(wheel.oldest, _AMPERE) if arm else wheel.oldest
        if all(oldest <= one < wheel.newer for one in here):
            fitting.append(wheel.name)
    if fitting:
        return next((one for one in fitting if version is not None and has(one, version)), fitting[0])
    newest = max(here, default=None)
    if newest is None or all(one == newest for one in here):
        return None
    return torch_wheel(driver, [f"{newest[0]}.{newest[1]}"], arm=arm, version=version)


def has(wheel: str, version: str) -> bool:
    """Whether this PyTorch comes in that build."""
    one = next(one for one in _WHEELS if one.name == wheel)
    minor = numbers(version)[:2]
    return numbers(one.first) <= minor and (one.last is None or minor <= numbers(one.last))


def versions(wheel: str) -> str:
    """The versions of PyTorch in that build, as pip takes them: ``>=2.9``, ``>=2.7,<2.12``."""
    one = next(one for one in _WHEELS if one.name == wheel)
    if one.last is None:
        return f">={one.first}"
    major, minor = numbers(one.last)[:2]
    return f">={one.first},<{major}.{minor + 1}"


def last_torch(wheel: str) -> str | None:
    """The newest PyTorch in that build; None where newer ones come in it too."""
    return next(one.last for one in _WHEELS if one.name == wheel)


def wheel_cuda(wheel: str) -> str:
    """``cu126`` as 12.6."""
    return f"{wheel[2:4]}.{wheel[4:]}"
