"""These tests run where real GPUs are, and say elsewhere what is missing."""

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
def _found() -> tuple[int, str | None]:
    """How many GPUs torch sees to test on, and why there is none."""
    source = open_source("nvml")
    inventory = source.open()
    source.close()
    if not inventory.gpus:
        return 0, inventory.origin.reason
    if shutil.which("nvidia-smi") is None:
        return 0, "nvidia-smi, which the tests compare with, is not on the PATH"
    # Asked in a process of its own: a CUDA context here would be seen by the tests.
    asked = subprocess.run(
        [sys.executable, "-c", "import torch; torch.cuda.init(); print(torch.cuda.device_count())"],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    if asked.returncode != 0:
        said = asked.stderr.strip().splitlines() or ["its process was killed"]
        return 0, f"torch does not see the GPUs: {said[-1]}"
    return int(asked.stdout), None


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what this machine has not the GPUs for, with the reason."""
    if item.get_closest_marker("gpu") is None:
        return
    count, reason = _found()
    if reason is not None:
        pytest.skip(reason)
    if item.get_closest_marker("two_gpus") is not None and count < 2:
        pytest.skip("needs two NVIDIA GPUs, and there is one")


@pytest.fixture
def start_kernel(tmp_path: Path) -> Iterator[Callable[..., Kernel]]:
    """Starts kernels on the real GPUs, with environment variables as keywords, that end with the test."""
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
    """A kernel of its own with gpuwidget loaded in In[1]."""
    made = start_kernel()
    made.ok("%load_ext gpuwidget")
    return made
