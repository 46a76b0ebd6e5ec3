"""The default torch device in a real kernel: set for all cells, for one cell, and by a request of the panel.

torch is a stand-in with two GPUs; test_device_torch.py uses the real torch.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from helpers_kernel import TORCH_STANDIN, Kernel
from nvml_standin import Standin, build

from gpuwidget.views.card_summary import SHORT_S

NOW = "str(torch.get_default_device())"
_PANEL_TIMEOUT_S = 2.0
"""The number of seconds for which the panel waits for a reply."""


@pytest.fixture
def kernel(start_kernel: Callable[..., Kernel]) -> Kernel:
    """Return a new kernel with gpuwidget loaded, in which cells can import the torch stand-in."""
    kernel = start_kernel(PYTHONPATH=TORCH_STANDIN, GPUWIDGET_SOURCE="none")
    kernel.ok("%load_ext gpuwidget\nimport gpuwidget, threading")
    return kernel


@pytest.fixture
def with_torch(kernel: Kernel) -> Kernel:
    """Return a kernel with gpuwidget loaded, in which CUDA of the torch stand-in is initialized."""
    kernel.ok("import torch\ntorch.cuda.init()")
    return kernel


def test_setting_the_device_by_magic(with_torch: Kernel) -> None:
    """After %gpu device cuda:1, the next cell uses cuda:1, even for plain 'cuda'.
    %gpu device none restores torch's default."""
    ran = with_torch.ok(f"%gpu device cuda:1\nprint({NOW})")
    assert ran.text == "cpu\n"
    assert ran.displayed.startswith(
        "Default device: cuda:1 (also for new tensors, +1\N{EN DASH}3 µs per torch call). Takes effect"
    )
    cell = (
        "[str(one.device) for one in (torch.empty(3), torch.empty(3, device='cuda'), torch.empty(1).cuda())]"
    )
    assert with_torch.ok(cell).result == "['cuda:1', 'cuda:1', 'cuda:1']"
    assert with_torch.ok("torch.cuda.current_device()").result == "1"
    with_torch.ok("%gpu device none")
    assert with_torch.ok(f"{NOW}, torch.cuda.current_device()").result == "('cpu', 0)"


def test_listing_devices(with_torch: Kernel) -> None:
    """%gpu device without an argument shows the default device and lists all devices."""
    lines = with_torch.ok("%gpu device").displayed.splitlines()
    assert lines[0] == "Using PyTorch's default (cpu)."
    assert [line.split()[0] for line in lines[1:]] == ["cpu", "cuda:0", "cuda:1"]
    assert with_torch.ok("[d.device for d in gpuwidget.devices()]").result == "['cpu', 'cuda:0', 'cuda:1']"


def test_light_mode(with_torch: Kernel) -> None:
    """With --light, %gpu device changes only the current CUDA device, not the device of new tensors."""
    assert (
        "current CUDA device only, no cost per call" in with_torch.ok("%gpu device cuda:1 --light").displayed
    )
    assert with_torch.ok(f"{NOW}, torch.cuda.current_device()").result == "('cpu', 1)"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("%gpu device cuda:5", "'cuda:5': no such device. The devices:\n  cpu\n  cuda:0\n  cuda:1"),
        (
            "%gpu device cuda",
            "'cuda' does not name a single device. The devices:\n  cpu\n  cuda:0\n  cuda:1",
        ),
        ("%gpu device cpu --light", "cpu: the light mode changes only the current CUDA device."),
        ("%gpu device cuda:1 twice", "'%gpu device cuda:1 twice' is not a command."),
        ("%%gpuwatch --device cuda:5\nprint('ran')", "'cuda:5': no such device."),
    ],
)
def test_invalid_devices(with_torch: Kernel, line: str, message: str) -> None:
    """An invalid device is reported as a usage error, and the cell's code does not run."""
    ran = with_torch.run(line)
    assert (ran.reply["status"], ran.reply["ename"]) == ("error", "UsageError")
    assert "ran\n" not in ran.text
    assert ran.reply["evalue"].startswith(message)


def test_torch_without_cuda(start_kernel: Callable[..., Kernel]) -> None:
    """If torch was built without CUDA, the error on choosing a GPU gives that as the reason,
    and the panel offers only the CPU."""
    kernel = start_kernel(PYTHONPATH=TORCH_STANDIN, GPUWIDGET_SOURCE="none", TORCH_STANDIN_GPUS="0")
    kernel.ok("%load_ext gpuwidget\nimport gpuwidget, torch")
    reason = "This torch (2.13.0+cpu) was built without CUDA: there is only the CPU."
    assert kernel.run("gpuwidget.set_device('cuda:0')").reply["evalue"] == f"cuda:0: {reason}"
    state = kernel.answer_to(ask="state")["state"]
    assert (state["unavailable"], [choice["device"] for choice in state["choices"]]) == (reason, ["cpu"])
    kernel.ok("gpuwidget.set_device('cpu')")
    assert kernel.answer_to(ask="state")["state"]["device"]["chosen"] == "cpu"


def test_before_torch_is_imported(start_kernel: Callable[..., Kernel]) -> None:
    """A device that is chosen before torch is imported takes effect in the cell after the import.
    gpuwidget itself does not import torch."""
    kernel = start_kernel(PYTHONPATH=TORCH_STANDIN)
    kernel.ok("%load_ext gpuwidget\nimport sys")
    assert "When torch is imported, it will have these devices:" in kernel.ok("%gpu device").displayed
    chosen = kernel.ok("%gpu device cuda:1").displayed
    assert "torch is not imported yet: the choice takes effect" in chosen
    assert "Takes effect in the next cell" not in chosen
    assert kernel.ok("'torch' in sys.modules").result == "False"
    ran = kernel.run("%%gpuwatch --device cuda:1\nprint('ran')")
    assert ran.text == f"UsageError: {ran.reply['evalue']}\n"
    assert "torch is not imported yet" in ran.reply["evalue"]
    assert kernel.ok(f"import torch\n{NOW}").result == "'cpu'"
    assert kernel.ok(NOW).result == "'cuda:1'"


@pytest.mark.parametrize(
    "body",
    [
        "print(NOW)\n6 * 7",
        "print(NOW)\n1 / 0",
        "print(NOW)\nraise KeyboardInterrupt",
        "import asyncio\nawait asyncio.sleep(0)\nprint(NOW)",
        "%%time\nprint(NOW)",
        "get_ipython().run_cell('1 / 0');\nprint(NOW)",
        "print(NOW)\n%gpu device none",
    ],
)
def test_device_of_one_cell(with_torch: Kernel, body: str) -> None:
    """%%gpuwatch --device applies to one cell only, whether the cell succeeds or fails."""
    ran = with_torch.run(f"%%gpuwatch --device cuda:1\n{body}".replace("NOW", NOW))
    assert "cuda:1" in ran.text
    assert len(ran.cards) == 1
    assert ran.report["environment"]["default_device"] == "cuda:1"
    assert with_torch.ok(f"{NOW}, torch.cuda.current_device()").result == "('cpu', 0)"


def test_device_of_one_cell_by_run_cell_magic(with_torch: Kernel) -> None:
    """--device also applies if code runs %%gpuwatch with run_cell_magic()."""
    cell = f"get_ipython().run_cell_magic('gpuwatch', '--device cuda:1', \"print({NOW})\")"
    assert with_torch.ok(cell).text == "cuda:1\n"
    assert with_torch.ok(NOW).result == "'cpu'"


def test_device_of_an_interrupted_cell(with_torch: Kernel) -> None:
    """After a cell with --device is interrupted, the previous default device applies again."""
    body = "open('on', 'w').close()\nwhile True: threading.Event().wait(0.01)"
    request = with_torch.send(f"%%gpuwatch --device cuda:1\n{body}")
    with_torch.wait_for_file("on")
    with_torch.interrupt()
    assert with_torch.wait(request).reply["ename"] == "KeyboardInterrupt"
    assert with_torch.ok(f"{NOW}, torch.cuda.current_device()").result == "('cpu', 0)"


def test_a_panel_request_while_a_cell_runs(with_torch: Kernel) -> None:
    """The kernel replies to the panel while a cell runs.
    A device that is chosen in the panel takes effect from the next cell."""
    with_torch.ok("import os\ndef stopped(): return os.path.exists('stop')")
    request = with_torch.send(f"open('on', 'w').close()\nwhile not stopped(): pass\n{NOW}")
    with_torch.wait_for_file("on")
    reply = with_torch.answer_to(ask="set_device", device="cuda:1", new_tensors=True)
    assert reply["status"] == "ok"
    device = reply["state"]["device"]
    assert (device["chosen"], device["pending"], device["present"]) == ("cuda:1", True, "cpu")
    assert not with_torch.has_ended(request, 0)
    (with_torch.folder / "stop").touch()
    assert with_torch.wait(request).result == "'cpu'"
    assert with_torch.ok(NOW).result == "'cuda:1'"
    device = with_torch.answer_to(ask="state")["state"]["device"]
    assert device == {
        "chosen": "cuda:1",
        "new_tensors": True,
        "pending": False,
        "present": "cuda:1",
        "note": None,
    }


def test_replies_to_the_panel(with_torch: Kernel) -> None:
    """The kernel's reply to the panel contains the schema, the process id, torch's version and the devices.
    An invalid request gets an error with the reason."""
    state = with_torch.answer_to(ask="state")["state"]
    assert state["pid"] == with_torch.process_id
    assert (state["schema"], state["torch"], state["cuda_initialized"]) == (1, "2.13.0", True)
    assert [choice["device"] for choice in state["choices"]] == ["cpu", "cuda:0", "cuda:1"]
    refused = with_torch.answer_to(ask="set_device", device="cuda:9", new_tensors=True)
    assert refused["status"] == "error"
    assert refused["reason"].startswith("'cuda:9': no such device.")
    assert refused["state"]["device"]["chosen"] is None
    for request in ({"ask": "what"}, {"ask": "watch", "on": "yes"}, {"ask": "set_device", "device": 1}, {}):
        assert with_torch.answer_to(**request)["status"] == "error"
    assert with_torch.answer_to(schema=2, ask="state")["status"] == "error"


def test_watching_from_the_panel(with_torch: Kernel) -> None:
    """The panel's watch toggle and %gpu watch change the same setting."""
    assert with_torch.answer_to(ask="watch", on=True)["state"]["watching"] is True
    long = f"import time; time.sleep({SHORT_S})"  # a short cell that changes nothing has no card
    assert len(with_torch.ok(long).cards) == 1
    assert with_torch.answer_to(ask="watch", on=False)["state"]["watching"] is False
    assert with_torch.ok(long).cards == []


def test_a_hung_driver_does_not_delay_the_panel(start_kernel: Callable[..., Kernel], tmp_path: Path) -> None:
    """If the driver hangs, the panel still receives torch's devices before its timeout."""
    driver = Standin(build(tmp_path / "library"), tmp_path / "driver")
    driver.scenario("gpus=2", "*=hang")
    path = driver.environment()["LD_LIBRARY_PATH"]
    kernel = start_kernel(
        PYTHONPATH=TORCH_STANDIN, GPUWIDGET_SOURCE="nvml", LD_LIBRARY_PATH=path, **driver.variables
    )
    kernel.ok("%load_ext gpuwidget\nimport torch\ntorch.cuda.init()")
    reply = kernel.answer_to(ask="state", timeout_s=_PANEL_TIMEOUT_S)
    assert (reply["status"], reply["state"]["gpus"]) == ("ok", [])
    choices = reply["state"]["choices"]
    assert [(choice["device"], choice["memory_free"]) for choice in choices] == [
        ("cpu", None),
        ("cuda:0", None),
        ("cuda:1", None),
    ]


def test_after_unloading_nothing_is_left(with_torch: Kernel) -> None:
    """%unload_ext restores torch's defaults, and the kernel no longer replies to the panel."""
    with_torch.ok("%gpu device cuda:1")
    with_torch.ok("1")
    with_torch.ok("%unload_ext gpuwidget")
    assert with_torch.ok(f"{NOW}, torch.cuda.current_device()").result == "('cpu', 0)"
    with pytest.raises(TimeoutError):
        with_torch.answer_to(ask="state", timeout_s=1.0)


def test_tensors_on_different_devices(with_torch: Kernel) -> None:
    """If an operation fails because its tensors are on different devices, the error is unchanged,
    and the devices and a fix are shown below it."""
    plain = "x = torch.empty(3)\ny = torch.empty(3, device='cuda:1')\ndef add(a, b):\n    return a + b"
    with_torch.ok(plain)
    ran = with_torch.run("add(x, y)")
    kinds = [m.type for m in ran.messages if m.type in ("error", "display_data")]
    assert (ran.reply["ename"], kinds) == ("RuntimeError", ["error", "display_data"])
    what, fix = ran.displayed.splitlines()
    assert what.endswith(": a on cpu, b on cuda:1.")
    assert fix == 'Fix: a = a.to("cuda:1")'
    assert with_torch.ok("import sys\ntype(sys.last_value).__name__").result == "'RuntimeError'"
    assert with_torch.run("1 / 0").displayed == ""
