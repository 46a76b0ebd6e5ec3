"""On a real GPU: torch's switches change what they say, and nothing else of the process."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from helpers_kernel import Kernel

pytestmark = pytest.mark.gpu

PRODUCT = """\
a = torch.rand(512, 512, dtype=torch.float64, device="cuda")
b = torch.rand(512, 512, dtype=torch.float64, device="cuda")
print(bool(((a.float() @ b.float()).double() - a @ b).abs().max() > 2e-3))"""
"""Whether a float32 product is as far off as TF32's ten bits make it: each of the 512 sums is near 128."""
CONVOLUTION = """\
a = torch.rand(1, 64, 32, 32, dtype=torch.float64, device="cuda")
b = torch.rand(64, 64, 3, 3, dtype=torch.float64, device="cuda")
exact = torch.nn.functional.conv2d(a.cpu(), b.cpu())
print(bool((torch.nn.functional.conv2d(a.float(), b.float()).double().cpu() - exact).abs().max() > 2e-3))"""


@pytest.fixture
def kernel(start_kernel: Callable[..., Kernel]) -> Kernel:
    """A kernel of its own with gpuwidget and torch loaded."""
    made = start_kernel()
    made.ok("%load_ext gpuwidget\nimport os, torch")
    return made


def wish(kernel: Kernel, name: str, value: str) -> None:
    """As the panel does."""
    assert kernel.answer_to(ask="set_switch", name=name, value=value)["status"] == "ok"


def test_setting_and_reading_start_no_cuda(kernel: Kernel) -> None:
    """All six, in each of their choices: no context, no memory."""
    for name, value in (
        ("cudnn.enabled", "off"),
        ("cudnn.benchmark", "on"),
        ("cudnn.deterministic", "on"),
        ("cudnn.tf32", "off"),
        ("matmul.precision", "high"),
        ("deterministic", "warn"),
    ):
        wish(kernel, name, value)
    assert kernel.ok("print(torch.cuda.is_initialized())").text == "False\n"


def test_matmul_precision_is_the_gpu_s(kernel: Kernel) -> None:
    """With high, products lose the bits that TF32 has not; with highest they have them again."""
    if kernel.ok("print(torch.cuda.get_device_capability() < (8, 0))").text == "True\n":
        pytest.skip("this GPU has no TF32")
    assert kernel.ok(PRODUCT).text == "False\n"
    wish(kernel, "matmul.precision", "high")
    assert kernel.ok(PRODUCT).text == "True\n"
    wish(kernel, "matmul.precision", "highest")
    assert kernel.ok(PRODUCT).text == "False\n"


def test_cudnn_tf32_is_off_also_where_all_of_torch_was_set_to_it(kernel: Kernel) -> None:
    """The panel's off wins over what the user's code has said for everything."""
    if kernel.ok("print(torch.cuda.get_device_capability() < (8, 0))").text == "True\n":
        pytest.skip("this GPU has no TF32")
    kernel.ok("if hasattr(torch.backends, 'fp32_precision'): torch.backends.fp32_precision = 'tf32'")
    assert kernel.ok(CONVOLUTION).text == "True\n"
    wish(kernel, "cudnn.tf32", "off")
    assert kernel.ok(CONVOLUTION).text == "False\n"
