"""Tests on a real GPU that the PyTorch switches for TF32 take effect, and that no switch initializes CUDA."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from helpers_kernel import Kernel

pytestmark = pytest.mark.gpu

PRODUCT = """\
a = torch.rand(512, 512, dtype=torch.float64, device="cuda")
b = torch.rand(512, 512, dtype=torch.float64, device="cuda")
print(bool(((a.float() @ b.float()).double() - a @ b).abs().max() > 2e-3))"""
"""Prints whether a product of float32 matrices has an error that is typical of TF32. Each element is a sum of
512 terms and is near 128."""
CONVOLUTION = """\
a = torch.rand(1, 64, 32, 32, dtype=torch.float64, device="cuda")
b = torch.rand(64, 64, 3, 3, dtype=torch.float64, device="cuda")
exact = torch.nn.functional.conv2d(a.cpu(), b.cpu())
print(bool((torch.nn.functional.conv2d(a.float(), b.float()).double().cpu() - exact).abs().max() > 2e-3))"""


@pytest.fixture
def kernel(start_kernel: Callable[..., Kernel]) -> Kernel:
    """Return a kernel that has loaded gpuwidget and torch."""
    made = start_kernel()
    made.ok("%load_ext gpuwidget\nimport os, torch")
    return made


def set_switch(kernel: Kernel, name: str, value: str) -> None:
    """Set a PyTorch switch, with the request that the panel sends."""
    assert kernel.answer_to(ask="set_switch", name=name, value=value)["status"] == "ok"


def test_switches_do_not_initialize_cuda(kernel: Kernel) -> None:
    """Setting the six PyTorch switches does not initialize CUDA."""
    for name, value in (
        ("cudnn.enabled", "off"),
        ("cudnn.benchmark", "on"),
        ("cudnn.deterministic", "on"),
        ("cudnn.tf32", "off"),
        ("matmul.precision", "high"),
        ("deterministic", "warn"),
    ):
        set_switch(kernel, name, value)
    assert kernel.ok("print(torch.cuda.is_initialized())").text == "False\n"


def test_matmul_precision(kernel: Kernel) -> None:
    """With the precision "high", products of float32 matrices have an error that is typical of TF32. With
    "highest", they don't."""
    if kernel.ok("print(torch.cuda.get_device_capability() < (8, 0))").text == "True\n":
        pytest.skip("this GPU has no TF32")
    assert kernel.ok(PRODUCT).text == "False\n"
    set_switch(kernel, "matmul.precision", "high")
    assert kernel.ok(PRODUCT).text == "True\n"
    set_switch(kernel, "matmul.precision", "highest")
    assert kernel.ok(PRODUCT).text == "False\n"


def test_cudnn_tf32_overrides_a_global_setting(kernel: Kernel) -> None:
    """If user code has turned on TF32 for all of torch, turning off cuDNN's TF32 in the panel still takes
    effect."""
    if kernel.ok("print(torch.cuda.get_device_capability() < (8, 0))").text == "True\n":
        pytest.skip("this GPU has no TF32")
    kernel.ok("if hasattr(torch.backends, 'fp32_precision'): torch.backends.fp32_precision = 'tf32'")
    assert kernel.ok(CONVOLUTION).text == "True\n"
    set_switch(kernel, "cudnn.tf32", "off")
    assert kernel.ok(CONVOLUTION).text == "False\n"
