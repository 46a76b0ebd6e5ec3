"""Fixtures that start kernels:
single kernels, and a pair that runs the same cells without and with gpuwidget."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from helpers_kernel import Kernel, skip_without_torch
from helpers_pair import Pair


@pytest.fixture(scope="module")
def start_kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Kernel]]:
    """Return a function that starts a kernel with the given environment variables.
    The kernels are stopped after the module's tests."""
    kernels: list[Kernel] = []

    def start(**environment: str | None) -> Kernel:
        kernel = Kernel(tmp_path_factory.mktemp("kernel"), environment)
        kernels.append(kernel)
        return kernel

    yield start
    for kernel in kernels:
        kernel.shutdown()


@pytest.fixture(scope="module")
def needs_torch() -> None:
    """Skip the module's tests if the kernel's Python interpreter has no torch."""
    skip_without_torch()


@pytest.fixture(scope="module")
def pair(start_kernel: Callable[..., Kernel]) -> Pair:
    """Return two kernels at the same execution count: one without and one with gpuwidget loaded."""
    made = Pair(start_kernel(), start_kernel())
    made.run("pass", "%load_ext gpuwidget")
    made.both("'in step'")
    return made


@pytest.fixture(scope="module")
def kernel(start_kernel: Callable[..., Kernel]) -> Kernel:
    """Return a kernel with gpuwidget loaded."""
    made = start_kernel()
    made.ok("%load_ext gpuwidget")
    return made
