"""Which drivers support which CUDA versions, and which builds of PyTorch exist.

Drivers: NVIDIA, CUDA Compatibility, minor version compatibility, tables 1 and 2
(https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html). From CUDA 11 on, a
driver that supports a major version supports all its minor versions. CUDA 9 and older, and versions after 13,
are not included.

PyTorch: the support matrix in RELEASE.md of its repository, with the architectures in its
.ci/manywheel/build_cuda.sh; for discontinued builds https://pytorch.org/get-started/previous-versions (11.8:
PyTorch's issue 147383; 12.8: 178665; 12.6: 190385 and pull request 196249).
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
"""The oldest Linux driver for each CUDA version; the key 13 covers all of 13.x."""


class _WheelBuild(NamedTuple):
    name: str
    first: str
    """The oldest PyTorch version with this build."""
    last: str | None
    """The newest PyTorch version with this build; None if PyTorch still publishes the build."""
    min_capability: tuple[int, ...]
    """The lowest compute capability that the build has code for."""
    max_capability: tuple[int, ...]
    """Exclusive upper limit: the build has no code for GPUs of this compute capability or a higher one."""
    has_arm: bool = True


_OLDEST, _TURING, _AMPERE, _BLACKWELL, _ANY = (5, 0), (7, 5), (8, 0), (10, 0), (1000, 0)
_WHEELS = (
    _WheelBuild("cu130", "2.9", None, _TURING, _ANY),
    _WheelBuild("cu126", "2.6", "2.14", _OLDEST, _BLACKWELL),
    _WheelBuild("cu128", "2.7", "2.11", _TURING, (13, 0)),
    # This build also has code for Kepler (3.7). Kepler is left out, because the build requires cuDNN 9, which
    # has no code for it.
    _WheelBuild("cu118", "2.0", "2.7", _OLDEST, _BLACKWELL, has_arm=False),
)
"""PyTorch's builds in order of preference. CUDA 13 dropped Maxwell, Pascal and Volta; Blackwell needs CUDA
12.8. Only cu130 has PTX. On ARM no build supports GPUs before Ampere."""
NEWEST_WHEEL = _WHEELS[0].name
"""The build that is closest to the one on PyPI. PyPI's build may be for a newer minor version of CUDA, which
the same drivers support."""


def minimum_driver(cuda: str) -> str | None:
    """Return the oldest driver for programs built with this version of CUDA; None if the table does not
    contain the version."""
    major, _, _ = cuda.partition(".")
    return MINIMUM_DRIVERS.get(major) or MINIMUM_DRIVERS.get(".".join(cuda.split(".")[:2]))


def driver_too_old(driver: str, cuda: str) -> bool:
    """Return whether this driver is too old for this version of CUDA; False if that is unknown."""
    minimum, installed = minimum_driver(cuda), version_tuple(driver)
    return minimum is not None and bool(installed) and installed < version_tuple(minimum)


def has_tf32(capability: str) -> bool:
    """Return whether GPUs of this compute capability have TF32."""
    return version_tuple(capability) >= _AMPERE


def torch_wheel(
    driver: str | None, capabilities: Collection[str], *, arm: bool = False, version: str | None = None
) -> str | None:
    """Return the name, such as ``cu126``, of a PyTorch build for this driver and these GPUs, or None.

    If no build supports both the old and the new GPUs of a machine, return a build for the newest GPU. If
    several builds fit, a build that exists for PyTorch ``version`` is preferred.
    """
    versions = [version_tuple(capability) for capability in capabilities]
    # A GPU that no PyTorch build supports because it is too old probably only drives a display, so it is
    # ignored if there are newer GPUs.
    deciding = [capability for capability in versions if capability >= _OLDEST] or versions
    suitable = []
    for wheel in _WHEELS:
        if (arm and not wheel.has_arm) or (
            driver is not None and driver_too_old(driver, wheel_cuda(wheel.name))
        ):
            continue
        min_capability = max(wheel.min_capability, _AMPERE) if arm else wheel.min_capability
        if all(min_capability <= capability < wheel.max_capability for capability in deciding):
            suitable.append(wheel.name)
    if suitable:
        return next(
            (wheel for wheel in suitable if version is not None and wheel_has(wheel, version)), suitable[0]
        )
    newest = max(deciding, default=None)
    if newest is None or all(capability == newest for capability in deciding):
        return None
    return torch_wheel(driver, [f"{newest[0]}.{newest[1]}"], arm=arm, version=version)


def wheel_has(wheel: str, version: str) -> bool:
    """Return whether this PyTorch version has the build ``wheel``."""
    build = next(build for build in _WHEELS if build.name == wheel)
    minor = version_tuple(version)[:2]
    return version_tuple(build.first) <= minor and (build.last is None or minor <= version_tuple(build.last))


def wheel_specifier(wheel: str) -> str:
    """Return a pip specifier for the PyTorch versions with this build, such as ``>=2.9`` or
    ``>=2.7,<2.12``."""
    build = next(build for build in _WHEELS if build.name == wheel)
    if build.last is None:
        return f">={build.first}"
    major, minor = version_tuple(build.last)[:2]
    return f">={build.first},<{major}.{minor + 1}"


def wheel_last_torch(wheel: str) -> str | None:
    """Return the newest PyTorch version with this build; None if PyTorch still publishes the build."""
    return next(build.last for build in _WHEELS if build.name == wheel)


def wheel_cuda(wheel: str) -> str:
    """Return the CUDA version of a build, such as 12.6 for ``cu126``."""
    return f"{wheel[2:4]}.{wheel[4:]}"


def version_tuple(version: str) -> tuple[int, ...]:
    """Return a version's numbers, such as (580, 159, 4) for ``580.159.04``; text after the last number is
    ignored."""
    found = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(part) for part in found[0].split(".")) if found else ()


def format_cudnn_version(number: int) -> str:
    """Return 91002 as ``9.10.2``, and 8902, which uses the older numbering before cuDNN 9, as ``8.9.2``."""
    major = 10_000 if number >= 90_000 else 1000
    return f"{number // major}.{number % major // 100}.{number % 100}"


def format_cuda_version(number: int) -> str:
    """Return CUDA's version number as text, such as ``13.1`` for 13010."""
    return f"{number // 1000}.{number % 1000 // 10}"
