"""These tests run where real GPUs are, and say elsewhere what is missing."""

from __future__ import annotations

import functools
import shutil
import subprocess
import sys

import pytest

from gpuwidget.sources import open_source


@functools.cache
def _found() -> tuple[int, str | None]:
    """How many GPUs there are to test on, and why there is none."""
    source = open_source("nvml")
    inventory = source.open()
    source.close()
    whole = [gpu for gpu in inventory.gpus if gpu.mig_parent is None]
    if not whole:
        return 0, inventory.origin.reason
    if shutil.which("nvidia-smi") is None:
        return 0, "nvidia-smi, which the tests compare with, is not on the PATH"
    # Asked in a process of its own: a CUDA context here would be seen by the tests.
    asked = subprocess.run(
        [sys.executable, "-c", "import torch; raise SystemExit(not torch.cuda.is_available())"],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    if asked.returncode != 0:
        said = asked.stderr.strip().splitlines() or ["torch.cuda.is_available() is False"]
        return 0, f"torch does not see the GPUs: {said[-1]}"
    return len(whole), None


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what this machine has not the GPUs for, with the reason."""
    if item.get_closest_marker("gpu") is None:
        return
    count, reason = _found()
    if reason is not None:
        pytest.skip(reason)
    if item.get_closest_marker("two_gpus") is not None and count < 2:
        pytest.skip("needs two NVIDIA GPUs, and there is one")
