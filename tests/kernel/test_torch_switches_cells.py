"""The PyTorch switches in a real kernel with the real torch, set by %gpu switches and in the panel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from helpers_kernel import Kernel

pytestmark = pytest.mark.usefixtures("needs_torch")

NOW = "torch.backends.cudnn.benchmark"
ON = "torch.backends.cudnn.benchmark = True"
HOLD = """\
import os, time
open("began", "w").close()
while not os.path.exists("go"): time.sleep(0.01)
"""


@pytest.fixture
def kernel(start_kernel: Callable[..., Kernel]) -> Kernel:
    """Return a kernel that has loaded gpuwidget and torch."""
    kernel = start_kernel(GPUWIDGET_SOURCE="none")
    kernel.ok("%load_ext gpuwidget")
    kernel.ok("import torch")
    return kernel


def switch(reply: dict[str, Any], name: str = "cudnn.benchmark") -> dict[str, Any]:
    """Return the state of one switch from a reply."""
    result: dict[str, Any] = next(one for one in reply["state"]["switches"] if one["name"] == name)
    return result


def request_switch(kernel: Kernel, value: str, name: str = "cudnn.benchmark") -> dict[str, Any]:
    """Send the panel's request to set a switch, and return the reply."""
    return kernel.answer_to(ask="set_switch", name=name, value=value)


def test_setting_a_switch_by_magic(kernel: Kernel) -> None:
    """%gpu switches sets a switch immediately and shows the statement that it ran.
    An invalid value is a usage error."""
    ran = kernel.ok(f"%gpu switches cudnn.benchmark on\nprint({NOW})")
    assert (ran.displayed, ran.text) == (f"Ran: {ON}", "True\n")
    assert (
        "matmul.precision     highest  highest  highest, high, medium" in kernel.ok("%gpu switches").displayed
    )
    refused = kernel.run("%gpu switches cudnn.benchmark maybe")
    assert refused.reply["ename"] == "UsageError"
    assert refused.reply["evalue"] == "cudnn.benchmark can be on or off, not 'maybe'."


def test_setting_a_switch_in_the_panel_between_cells(kernel: Kernel) -> None:
    """If no cell runs, the panel's request sets the switch immediately,
    and the reply contains the statement and the new state."""
    reply = request_switch(kernel, "on")
    assert (reply["status"], reply["done"]) == ("ok", ON)
    state = switch(reply)
    assert (state["value"], state["pending"], state["statement"], state["default"]) == ("on", None, ON, "off")
    assert kernel.value(NOW) == "True"


def test_setting_a_switch_in_the_panel_while_a_cell_runs(kernel: Kernel) -> None:
    """If the user sets a switch in the panel while a cell runs, that cell keeps the old value,
    and the next cell has the new one."""
    request = kernel.send(f"{HOLD}print({NOW})")
    kernel.wait_for_file("began")
    reply = request_switch(kernel, "on")
    assert (reply["status"], reply["done"]) == ("ok", f"Takes effect in the next cell: {ON}")
    assert (switch(reply)["value"], switch(reply)["pending"]) == ("off", "on")
    (kernel.folder / "go").touch()
    assert kernel.wait(request).text == "False\n"
    assert switch(kernel.answer_to(ask="state"))["pending"] == "on"
    assert kernel.ok(f"print({NOW})").text == "True\n"
    state = switch(kernel.answer_to(ask="state"))
    assert (state["value"], state["pending"], state["statement"]) == ("on", None, ON)


def test_the_cell_that_loads_gpuwidget(start_kernel: Callable[..., Kernel]) -> None:
    """If the user sets a switch in the panel while the cell that loads gpuwidget still runs,
    that cell keeps the old value too."""
    kernel = start_kernel(GPUWIDGET_SOURCE="none")
    request = kernel.send(f"import torch\n%load_ext gpuwidget\n{HOLD}print({NOW})")
    kernel.wait_for_file("began")
    assert switch(request_switch(kernel, "on"))["pending"] == "on"
    (kernel.folder / "go").touch()
    assert kernel.wait(request).text == "False\n"
    assert kernel.ok(f"print({NOW})").text == "True\n"
    assert request_switch(kernel, "off")["done"] == "torch.backends.cudnn.benchmark = False"


def test_a_nested_cell_does_not_apply_a_pending_switch(kernel: Kernel) -> None:
    """A pending switch is not applied before a nested cell,
    because a nested cell is part of the outer cell."""
    request = kernel.send(f"{HOLD}get_ipython().run_cell('seen = {NOW}')\nprint(seen, {NOW})")
    kernel.wait_for_file("began")
    request_switch(kernel, "on")
    (kernel.folder / "go").touch()
    assert kernel.wait(request).text == "False False\n"
    assert kernel.ok(f"print({NOW})").text == "True\n"


def test_both_tf32_settings_agree(kernel: Kernel) -> None:
    """If the user changes a TF32 setting in the panel, torch's older API (``allow_tf32``) and its newer API
    (``fp32_precision``) return the same setting, and neither raises an error."""
    kernel.ok("torch.backends.fp32_precision = 'tf32'")
    assert request_switch(kernel, "highest", "matmul.precision")["status"] == "ok"
    assert switch(request_switch(kernel, "off", "cudnn.tf32"), "cudnn.tf32")["value"] == "off"
    read = (
        "print(torch.get_float32_matmul_precision(), torch.backends.cuda.matmul.allow_tf32,"
        " torch.backends.cuda.matmul.fp32_precision, torch.backends.cudnn.allow_tf32,"
        " torch.backends.cudnn.conv.fp32_precision)"
    )
    assert kernel.ok(read).text == "highest False ieee False ieee\n"


def test_invalid_requests(start_kernel: Callable[..., Kernel]) -> None:
    """If torch is not imported yet, or if the switch or the value is unknown,
    the request gets an error with the reason."""
    kernel = start_kernel(GPUWIDGET_SOURCE="none")
    kernel.ok("%load_ext gpuwidget\nimport sys")
    reply = request_switch(kernel, "on")
    assert reply["status"] == "error"
    assert reply["reason"].startswith("torch is not imported yet: import it in a cell first.")
    assert switch(reply)["note"] == "torch is not imported yet."
    assert request_switch(kernel, "on", "nothing")["reason"].startswith(
        "'nothing' is not a switch. The switches:\n  cudnn.enabled\n"
    )
    assert kernel.answer_to(ask="set_switch", name="cudnn.enabled", value=True)["reason"].endswith(
        "reload the page."
    )
    assert kernel.value("'torch' in sys.modules") == "False"


def test_a_pending_switch_after_an_interrupt(kernel: Kernel) -> None:
    """If the running cell is interrupted, a pending switch is still applied before the next cell."""
    request = kernel.send(HOLD)
    kernel.wait_for_file("began")
    request_switch(kernel, "on")
    kernel.interrupt()
    assert kernel.wait(request).reply["status"] == "error"
    assert kernel.ok(f"print({NOW})").text == "True\n"
