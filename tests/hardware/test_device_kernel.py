"""Tests in a real kernel with two real GPUs: the state that the panel shows, choosing the default device
(also while a cell runs), and the hints for CUDA errors."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest
from helpers_gpu import HOST_PIDS, nvidia_smi
from helpers_kernel import Kernel

pytestmark = [pytest.mark.gpu, pytest.mark.two_gpus]

GIB = 1024**3
NOW = "str(torch.get_default_device()), torch.cuda.current_device()"
USE = "torch.ones(2**28, device='{device}')"
"""An expression that allocates one GiB on a device."""


def state_of(kernel: Kernel, **request: Any) -> Any:
    """Repeat one of the panel's requests until the driver has reported the free memory of all GPUs. Return
    the kernel's state from the last reply."""
    for _ in range(100):
        answer = kernel.answer_to(**request)
        assert answer["status"] == "ok", answer
        state = answer["state"]
        if state["gpus"] and all(choice["memory_free"] is not None for choice in state["choices"][1:]):
            break
        kernel.idle_for(0.05)
    return answer["state"]


def test_the_state_for_views(kernel: Kernel) -> None:
    """The kernel's state lists each GPU with the same values as nvidia-smi. It also shows that contexts stay
    open after '%gpu device none'."""
    kernel.ok("import torch")
    smi = nvidia_smi("index,uuid,name,compute_cap,memory.total")
    before = state_of(kernel, ask="state")
    assert before["cuda_initialized"] is False
    assert [gpu["context"] for gpu in before["gpus"]] == [False for _ in smi]
    kernel.ok(f"x = {USE.format(device='cuda:0')}\n%gpu device cuda:1")
    kernel.ok(f"y = {USE.format(device='cuda')}\n%gpu device none")
    kernel.ok("z = 1")
    state = state_of(kernel, ask="state")
    names = [f"cuda:{number}" for number in range(len(smi))]
    choices = state["choices"]
    assert [choice["device"] for choice in choices] == ["cpu", *names]
    free = [int(row[0]) * 2**20 for row in nvidia_smi("memory.free")]
    for choice, (index, uuid, name, capability, total), left in zip(choices[1:], smi, free, strict=True):
        assert [str(choice["index"]), choice["uuid"], choice["name"]] == [index, uuid, name]
        assert choice["compute_capability"] == capability
        assert choice["memory_total"] == int(total) * 2**20
        assert choice["memory_free"] == pytest.approx(left, abs=GIB)
    assert [gpu["torch_device"] for gpu in state["gpus"]] == names
    assert [gpu["context"] for gpu in state["gpus"]] == [name in ("cuda:0", "cuda:1") for name in names]
    assert state["device"]["chosen"] is None
    assert kernel.ok(NOW).result == "('cpu', 0)"


@HOST_PIDS
def test_the_holders_of_a_gpu(kernel: Kernel) -> None:
    """For each GPU that this notebook uses, the kernel's state contains the notebook's memory and lists the
    notebook first among the holders."""
    kernel.ok(f"import torch\nx, y = {USE.format(device='cuda:0')}, {USE.format(device='cuda:1')}")
    for _ in range(100):
        state = state_of(kernel, ask="state")
        if all(choice["holders"] for choice in state["choices"][1:3]):
            break
        kernel.idle_for(0.05)  # Holders are polled rarely, so the first replies may lack them.
    assert [choice["holders"][0] for choice in state["choices"][1:3]] == ["this notebook"] * 2
    assert all(gpu["process_memory"] > GIB for gpu in state["gpus"][:2])


def test_a_choice_while_a_cell_computes(kernel: Kernel) -> None:
    """While a cell keeps a GPU busy, the kernel replies to the panel's request to choose a device, and the
    next cell uses that device."""
    kernel.ok("import os, torch\na = torch.ones(4096, 4096, device='cuda')")
    busy = "open('on', 'w').close()\nwhile not os.path.exists('off'): a @ a\ntorch.cuda.synchronize()\n" + NOW
    request = kernel.send(busy)
    kernel.wait_for_file("on")
    device = state_of(kernel, ask="set_device", device="cuda:1", new_tensors=True)["device"]
    assert (device["chosen"], device["pending"], device["present"]) == ("cuda:1", True, "cpu")
    (kernel.folder / "off").touch()
    assert kernel.wait(request).result == "('cpu', 0)"
    assert kernel.ok(NOW).result == "('cuda:1', 1)"
    assert state_of(kernel, ask="state")["device"]["pending"] is False


@pytest.mark.parametrize(
    ("package", "current"),
    [("cupy", "cupy.cuda.Device().id"), ("numba.cuda", "numba.cuda.get_current_device().id")],
)
def test_other_libraries_follow_the_next_cell(kernel: Kernel, package: str, current: str) -> None:
    """From the next cell on, CuPy and Numba use the chosen device too. After 'none', they use the first GPU
    again."""
    if importlib.util.find_spec(package.partition(".")[0]) is None:
        pytest.skip(f"{package} is not installed")
    kernel.ok(f"import torch, {package}\ntorch.cuda.init()\n%gpu device cuda:1")
    assert kernel.ok(f"{current}, {NOW}").result == "(1, 'cuda:1', 1)"
    kernel.ok("%gpu device cuda:0 --light")
    assert kernel.ok(f"{current}, {NOW}").result == "(0, 'cpu', 0)"
    kernel.ok("%gpu device none")
    assert kernel.ok(f"{current}, {NOW}").result == "(0, 'cpu', 0)"


def test_a_choice_before_torch(kernel: Kernel) -> None:
    """If a device is chosen before torch is imported, it is the default device from the first cell after the
    import."""
    assert "torch is not imported yet" in kernel.ok("import sys\n%gpu device cuda:1").displayed
    assert kernel.ok("'torch' in sys.modules").result == "False"
    assert kernel.ok("import torch\nstr(torch.get_default_device())").result == "'cpu'"
    assert kernel.ok("torch.cuda.is_initialized(), str(torch.empty(3).device)").result == "(False, 'cuda:1')"


def test_what_user_code_sets_stays(kernel: Kernel) -> None:
    """If user code sets a device after another one was chosen, the user's device stays, and a note in the
    kernel's state explains this."""
    kernel.ok("import torch\ntorch.cuda.init()\n%gpu device cuda:1")
    kernel.ok("torch.cuda.set_device(0)")
    assert kernel.ok(NOW).result == "('cuda:1', 0)"
    assert "set the current CUDA device to cuda:0" in state_of(kernel, ask="state")["device"]["note"]
    kernel.ok("torch.set_default_device('cpu')")
    assert kernel.ok(NOW).result == "('cpu', 0)"
    assert "set torch's default device to cpu" in state_of(kernel, ask="state")["device"]["note"]


def test_one_cells_device_and_an_interrupt(kernel: Kernel) -> None:
    """If a cell with --device is interrupted, it ends, and the previous devices are restored."""
    kernel.ok("import torch\ntorch.cuda.init()")
    work = "a = torch.ones(4096, 4096)\nopen('on', 'w').close()\nwhile True: (a @ a).sum().item()"
    request = kernel.send(f"%%gpuwatch --device cuda:1\n{work}")
    kernel.wait_for_file("on")
    kernel.interrupt()
    ran = kernel.wait(request)
    assert (ran.reply["ename"], len(ran.cards)) == ("KeyboardInterrupt", 1)
    assert kernel.ok(f"str(a.device), {NOW}").result == "('cuda:1', 'cpu', 0)"


def test_the_dashboard(kernel: Kernel) -> None:
    """In the dashboard, the list of devices contains the name and the free memory of every GPU."""
    ran = kernel.ok("import time, torch, gpuwidget\nboard = gpuwidget.dashboard()\nboard")
    offered: list[str] = []
    for _ in range(20):
        states = [m.content["data"].get("state", {}) for m in ran.messages + ran.late if "comm" in m.type]
        # Each update replaces the list, so only the last one counts.
        labels = [state["_options_labels"] for state in states if state.get("_options_labels")][-1:]
        offered = [str(label) for label in (labels[0] if labels else ()) if str(label).startswith("cuda:")]
        if offered:
            break
        ran = kernel.ok("time.sleep(0.5)")
    models = [row[0].removeprefix("NVIDIA ") for row in nvidia_smi("name")]
    assert [option.split(" · ")[0] for option in offered] == [f"cuda:{n}" for n in range(len(models))]
    for option, model in zip(offered, models, strict=True):
        assert model in option
        assert option.split(" · ")[2].endswith(" free")


KNOWN_ERRORS = {
    "fork": (
        "import os\ntorch.cuda.init()\n"
        "class Work(torch.utils.data.Dataset):\n"
        "    def __len__(self): return 4\n"
        "    def __getitem__(self, i): return torch.ones(2, device='cuda')\n"
        "list(torch.utils.data.DataLoader(Work(), num_workers=1, multiprocessing_context='fork'))",
        "A forked child process",
        'multiprocessing_context="spawn"',
    ),
    "two devices": (
        "x = torch.ones(3, device='cuda:0')\ny = torch.ones(3, device='cuda:1')\nx + y",
        "One operation received tensors on different devices: x on cuda:0, y on cuda:1.",
        'y = y.to("cuda:0")',
    ),
    "module": (
        "net = torch.nn.Linear(3, 3).to('cuda:1')\nbatch = torch.ones(2, 3)\nnet(batch)",
        "One operation received tensors on different devices: net on cuda:1, batch on cpu.",
        'batch = batch.to("cuda:1")',
    ),
}


@pytest.mark.parametrize("known_error", KNOWN_ERRORS.values(), ids=KNOWN_ERRORS.keys())
def test_hints_for_real_cuda_errors(kernel: Kernel, known_error: tuple[str, str, str]) -> None:
    """The hint for a real CUDA error explains the error, names the variables on each device, and contains the
    fix."""
    code, happened, fix = known_error
    kernel.ok("import torch")
    ran = kernel.run(code)
    assert ran.reply["status"] == "error"
    hint = ran.displayed.splitlines()
    assert hint[0].startswith(happened), ran.reply["evalue"]
    assert fix in hint[1]
