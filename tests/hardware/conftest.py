"""Fixtures for tests on real GPUs. If a machine lacks the GPUs that a test needs, the test is skipped with
the reason.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from helpers_kernel import Kernel

from gpuwidget.sources import open_source


@functools.cache
def _usable_gpus() -> tuple[int, str | None]:
    """Return the number of GPUs that torch can use. If there are none, also return the reason."""
    source = open_source("nvml")
    inventory = source.open()
    source.close()
    if not inventory.gpus:
        return 0, inventory.origin.reason
    if shutil.which("nvidia-smi") is None:
        return 0, "nvidia-smi, which the tests compare with, is not on the PATH"
    # This runs in a subprocess, because a CUDA context in this process would affect what the tests measure.
    process = subprocess.run(
        [sys.executable, "-c", "import torch; torch.cuda.init(); print(torch.cuda.device_count())"],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    if process.returncode != 0:
        error = process.stderr.strip().splitlines() or ["its process was killed"]
        return 0, f"torch does not see the GPUs: {error[-1]}"
    return int(process.stdout), None


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test, with the reason, if this machine lacks the GPUs that the test needs."""
    if item.get_closest_marker("gpu") is None:
        return
    count, reason = _usable_gpus()
    if reason is not None:
        pytest.skip(reason)
    if item.get_closest_marker("two_gpus") is not None and count < 2:
        pytest.skip("needs two NVIDIA GPUs, and there is one")


@pytest.fixture
def start_kernel(tmp_path: Path) -> Iterator[Callable[..., Kernel]]:
    """Return a function that starts a kernel on the real GPUs, with the given environment variables.

    The kernels are shut down after the test.
    """
    kernels: list[Kernel] = []

    def start(**environment: str | None) -> Kernel:
        path = os.environ.get("PYTHONPATH")
        variables = {"GPUWIDGET_SOURCE": None, "PYTHONPATH": path, **environment}
        kernels.append(Kernel(tmp_path / f"kernel {len(kernels)}", variables))
        return kernels[-1]

    yield start
    for kernel in kernels:
        kernel.shutdown()


@pytest.fixture
def kernel(start_kernel: Callable[..., Kernel]) -> Kernel:
    """Return a kernel that has loaded gpuwidget in its first cell."""
    made = start_kernel()
    made.ok("%load_ext gpuwidget")
    return made
