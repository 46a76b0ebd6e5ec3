"""torch's switches in a real kernel with the real torch: by magic, and by the panel's request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from helpers_kernel import Kernel, skip_without_torch

NOW = "torch.backends.cudnn.benchmark"
ON = "torch.backends.cudnn.benchmark = True"
HOLD = """\
import os, time
open("began", "w").close()
while not os.path.exists("go"): time.sleep(0.01)
"""


@pytest.fixture(scope="module", autouse=True)
def _has_torch() -> None:
    skip_without_torch()


@pytest.fixture
def kernel(start_kernel: Callable[..., Kernel]) -> Kernel:
    """A kernel with gpuwidget and torch loaded."""
    made = start_kernel(GPUWIDGET_SOURCE="none")
    made.ok("%load_ext gpuwidget")
    made.ok("import torch")
    return made


def switch(answer: dict[str, Any], name: str = "cudnn.benchmark") -> dict[str, Any]:
    """Return one of the switches in the state of a reply."""
    found: dict[str, Any] = next(one for one in answer["state"]["switches"] if one["name"] == name)
    return found


def request_switch(kernel: Kernel, value: str, name: str = "cudnn.benchmark") -> dict[str, Any]:
    """Return the reply to the panel's request."""
    return kernel.answer_to(ask="set_switch", name=name, value=value)


def test_by_magic(kernel: Kernel) -> None:
    """%gpu switches sets one in the running cell and shows the statement; an unknown name is one line."""
    ran = kernel.ok(f"%gpu switches cudnn.benchmark on\nprint({NOW})")
    assert (ran.displayed, ran.text) == (f"Ran: {ON}", "True\n")
    assert "matmul.precision: highest, or high, medium" in kernel.ok("%gpu switches").displayed
    refused = kernel.run("%gpu switches cudnn.benchmark maybe")
    assert refused.reply["ename"] == "UsageError"
    assert refused.reply["evalue"] == "cudnn.benchmark can be on or off, not 'maybe'."


def test_from_the_panel_while_nothing_runs(kernel: Kernel) -> None:
    """A request between cells is applied at once; the reply has the statement and the new state."""
    answer = request_switch(kernel, "on")
    assert (answer["status"], answer["done"]) == ("ok", ON)
    found = switch(answer)
    assert (found["value"], found["pending"], found["statement"], found["default"]) == ("on", None, ON, "off")
    assert kernel.value(NOW) == "True"


def test_from_the_panel_while_a_cell_runs(kernel: Kernel) -> None:
    """The running cell keeps its value; the next one has the new value from its first line."""
    request = kernel.send(f"{HOLD}print({NOW})")
    kernel.wait_for_file("began")
    answer = request_switch(kernel, "on")
    assert (answer["status"], answer["done"]) == ("ok", f"From the next cell: {ON}")
    assert (switch(answer)["value"], switch(answer)["pending"]) == ("off", "on")
    (kernel.folder / "go").touch()
    assert kernel.wait(request).text == "False\n"
    assert switch(kernel.answer_to(ask="state"))["pending"] == "on"
    assert kernel.ok(f"print({NOW})").text == "True\n"
    found = switch(kernel.answer_to(ask="state"))
    assert (found["value"], found["pending"], found["statement"]) == ("on", None, ON)


def test_the_cell_that_loads_gpuwidget_is_not_changed_either(start_kernel: Callable[..., Kernel]) -> None:
    """It keeps its values although no hook ran at its start."""
    made = start_kernel(GPUWIDGET_SOURCE="none")
    request = made.send(f"import torch\n%load_ext gpuwidget\n{HOLD}print({NOW})")
    made.wait_for_file("began")
    assert switch(request_switch(made, "on"))["pending"] == "on"
    (made.folder / "go").touch()
    assert made.wait(request).text == "False\n"
    assert made.ok(f"print({NOW})").text == "True\n"
    assert request_switch(made, "off")["done"] == "torch.backends.cudnn.benchmark = False"


def test_a_cell_within_a_cell_does_not_grant_it(kernel: Kernel) -> None:
    """A cell run by %%capture is part of the outer cell: nothing is applied before it."""
    request = kernel.send(f"{HOLD}get_ipython().run_cell('seen = {NOW}')\nprint(seen, {NOW})")
    kernel.wait_for_file("began")
    request_switch(kernel, "on")
    (kernel.folder / "go").touch()
    assert kernel.wait(request).text == "False False\n"
    assert kernel.ok(f"print({NOW})").text == "True\n"


def test_either_way_of_torch_s_reads_tf32_after_the_panel_has_set_it(kernel: Kernel) -> None:
    """torch raises if its two settings are mixed: code that uses either still works."""
    kernel.ok("torch.backends.fp32_precision = 'tf32'")
    assert request_switch(kernel, "highest", "matmul.precision")["status"] == "ok"
    assert switch(request_switch(kernel, "off", "cudnn.tf32"), "cudnn.tf32")["value"] == "off"
    read = (
        "print(torch.get_float32_matmul_precision(), torch.backends.cuda.matmul.allow_tf32,"
        " torch.backends.cuda.matmul.fp32_precision, torch.backends.cudnn.allow_tf32,"
        " torch.backends.cudnn.conv.fp32_precision)"
    )
    assert kernel.ok(read).text == "highest False ieee False ieee\n"


def test_refused_with_its_reason(start_kernel: Callable[..., Kernel]) -> None:
    """Requests before torch is imported, and for unknown switches or values, fail."""
    made = start_kernel(GPUWIDGET_SOURCE="none")
    made.ok("%load_ext gpuwidget\nimport sys")
    answer = request_switch(made, "on")
    assert answer["status"] == "error"
    assert answer["reason"].startswith("torch is not imported yet: import it in a cell first.")
    assert switch(answer)["note"] == "torch is not imported yet."
    assert request_switch(made, "on", "nothing")["reason"].startswith(
        "'nothing' is no switch. There are: cudnn.enabled,"
    )
    assert made.answer_to(ask="set_switch", name="cudnn.enabled", value=True)["reason"].endswith(
        "reload the page."
    )
    assert made.value("'torch' in sys.modules") == "False"


def test_an_interrupted_cell_keeps_what_waits(kernel: Kernel) -> None:
    """The request applies to the next cell, whatever ends the current one."""
    request = kernel.send(HOLD)
    kernel.wait_for_file("began")
    request_switch(kernel, "on")
    kernel.interrupt()
    assert kernel.wait(request).reply["status"] == "error"
    assert kernel.ok(f"print({NOW})").text == "True\n"
