"""Which drivers run which CUDA. Source: NVIDIA, CUDA Compatibility, minor version compatibility
(https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html) for CUDA 11 and later,
where one driver runs every minor version of its major one; for CUDA 10 the same page's table of that time.
"""

from __future__ import annotations

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


def minimum(cuda: str) -> str | None:
    """The oldest driver that runs a program built with this CUDA; None where the table has none."""
    major, _, _ = cuda.partition(".")
    return MINIMUM.get(major) or MINIMUM.get(".".join(cuda.split(".")[:2]))


def too_old(driver: str, cuda: str) -> bool:
    """Whether this driver is too old for it; False where that is not known."""
    least = minimum(cuda)
    return least is not None and numbers(driver) < numbers(least)


def newest_cuda(driver: str) -> str | None:
    """The newest major CUDA whose programs this driver runs."""
    return next((cuda for cuda in MINIMUM if not too_old(driver, cuda)), None)


def torch_wheel(driver: str | None, capability: str | None) -> str:
    """PyTorch's own name, as ``cu126``, of builds for this driver and GPU: "
    "https://pytorch.org/get-started."""
    if driver is None or not too_old(driver, "13"):
        return "cu130"
    # The architecture of Blackwell is in builds with CUDA 12.8 and later only.
    return "cu128" if capability is not None and numbers(capability) >= (10, 0) else "cu126"
