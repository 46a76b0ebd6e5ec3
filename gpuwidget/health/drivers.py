"""Which drivers run which CUDA. Source: NVIDIA, CUDA Compatibility, minor version compatibility
(https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html) for CUDA 11 and later,
where one driver runs every minor version of its major one; for CUDA 10 the same page's table of that time.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from gpuwidget.health.versions import numbers

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
    oldest: tuple[int, ...]
    """Compute capability of the oldest GPUs that it has code for."""
    newer: tuple[int, ...]
    """That of the first ones that are too new for it."""


_OLDEST, _BLACKWELL, _ANY = (5, 0), (10, 0), (1000, 0)
_WHEELS = (
    _Wheel("cu130", (7, 5), _ANY),
    _Wheel("cu126", _OLDEST, _BLACKWELL),
    _Wheel("cu128", (7, 5), _ANY),
    _Wheel("cu118", _OLDEST, _BLACKWELL),
)
"""PyTorch's builds, the one to take first (https://pytorch.org/get-started, RELEASE.md in its repository).
CUDA 13 has no Maxwell, Pascal and Volta any more; Blackwell came with CUDA 12.8."""
NEWEST = _WHEELS[0].name
LAST_CU118 = "2.7"
"""The newest PyTorch that was built with CUDA 11.8."""


def minimum(cuda: str) -> str | None:
    """The oldest driver that runs a program built with this CUDA; None where the table has none."""
    major, _, _ = cuda.partition(".")
    return MINIMUM.get(major) or MINIMUM.get(".".join(cuda.split(".")[:2]))


def too_old(driver: str, cuda: str) -> bool:
    """Whether this driver is too old for it; False where that is not known."""
    least = minimum(cuda)
    return least is not None and numbers(driver) < numbers(least)


def torch_wheel(driver: str | None, capabilities: Collection[str]) -> str | None:
    """PyTorch's own name, as ``cu126``, of builds for this driver and these GPUs; None where none fits.

    Where old and new GPUs are in one machine and no build has both, the new ones decide.
    """
    all_here = [numbers(capability) for capability in capabilities]
    # An older card beside them is for the screen.
    here = [one for one in all_here if one >= _OLDEST] or all_here
    for wheel in _WHEELS:
        if driver is not None and too_old(driver, wheel_cuda(wheel.name)):
            continue
        if all(wheel.oldest <= one < wheel.newer for one in here):
            return wheel.name
    newest = max(here, default=None)
    if newest is None or all(one == newest for one in here):
        return None
    return torch_wheel(driver, [f"{newest[0]}.{newest[1]}"])


def wheel_cuda(wheel: str) -> str:
    """``cu126`` as 12.6."""
    return f"{wheel[2:4]}.{wheel[4:]}"
