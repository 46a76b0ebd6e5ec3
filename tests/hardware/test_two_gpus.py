"""Tests on two real GPUs that torch's devices are matched with the right GPUs for any
CUDA_VISIBLE_DEVICES."""

from __future__ import annotations

import pytest
from helpers_gpu import nvidia_smi, run_program

pytestmark = [pytest.mark.gpu, pytest.mark.two_gpus]

GIB = 1024**3


@pytest.mark.parametrize("visible", ["0,1", "1,0", "1"])
def test_cuda_devices_are_joined_by_uuid(visible: str) -> None:
    """Memory on cuda:0 is reported for the GPU that is first in CUDA_VISIBLE_DEVICES, and for no other
    GPU."""
    result = run_program(
        """
        import torch, gpuwidget
        with gpuwidget.watch() as w:
            x = torch.empty(5 * 1024**3, dtype=torch.uint8, device="cuda:0")
        result = w.report.to_dict()["gpus"]
        """,
        CUDA_VISIBLE_DEVICES=visible,
    )
    first = int(visible.split(",")[0])
    uuids = [row[0] for row in nvidia_smi("uuid")]
    used = result[first]
    unused = result[1 - first]
    assert (used["uuid"], used["torch_device"], used["shown"]) == (uuids[first], "cuda:0", True)
    assert used["torch"]["allocated"]["end"] == 5 * GIB
    assert used["device_memory"]["end"] - used["device_memory"]["start"] > 5 * GIB
    assert unused["device_memory"]["end"] - unused["device_memory"]["start"] < GIB
    assert unused["shown"] is False
    assert unused["torch_device"] == ("cuda:1" if "," in visible else None)


def test_gpu_option_by_cuda_name() -> None:
    """With CUDA_VISIBLE_DEVICES=1,0, the option cuda:0 selects the GPU that is number 1 in nvidia-smi, before
    and after CUDA is initialized."""
    result = run_program(
        """
        import gpuwidget
        from gpuwidget.measure.gpu_selection import select_gpus
        gpus = gpuwidget.sample().gpus
        before = select_gpus(["cuda:0"], gpus)
        import torch
        torch.empty(1, device="cuda:0")
        result = [list(before), list(select_gpus(["cuda:0"], gpus)), gpus[1].uuid]
        """,
        CUDA_VISIBLE_DEVICES="1,0",
    )
    assert result[0] == result[1] == [result[2]]


def test_no_context_is_opened_on_the_other_gpu() -> None:
    """At the end of a run, gpuwidget waits for the GPU. This opens no CUDA context on a GPU that the process
    does not use."""
    result = run_program(
        """
        import torch, gpuwidget
        x = torch.zeros(1, device="cuda:1")
        with gpuwidget.watch():
            x += 1
        result = [torch._C._cuda_hasPrimaryContext(i) for i in range(2)]
        """
    )
    assert result == [False, True]
