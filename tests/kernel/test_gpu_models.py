"""A machine with different GPUs in a real kernel: which GPU each cuda:N is, and cards of other models.

torch is a stand-in with two GPUs.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers_kernel import TORCH_STANDIN, Kernel
from nvml_standin import Standin, build, profiles

CUDA_0, CUDA_1 = (f"GPU-{number:08d}-aaaa-bbbb-cccc-dddddddddddd" for number in range(2))
"""The UUIDs of the torch stand-in's devices."""
WHY = "CUDA puts the fastest GPU first, by a measure that NVIDIA does not document"

StartKernel = Callable[..., Kernel]


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Standin:
    """Return the driver of a machine whose GPU 0 is an RTX 3090 and whose GPU 1 is an RTX 4090.

    CUDA puts the RTX 4090 first.
    """
    made = Standin(build(tmp_path_factory.mktemp("library")), tmp_path_factory.mktemp("driver"))
    made.scenario(*profiles.machine("RTX 3090", "RTX 4090"), f"gpu.0.uuid={CUDA_1}", f"gpu.1.uuid={CUDA_0}")
    return made


def start(start_kernel: StartKernel, driver: Standin, **variables: str) -> Kernel:
    """Start a kernel on the machine with this driver."""
    path = driver.environment()["LD_LIBRARY_PATH"]
    kernel = start_kernel(
        PYTHONPATH=TORCH_STANDIN,
        GPUWIDGET_SOURCE="nvml",
        LD_LIBRARY_PATH=path,
        **{"CUDA_DEVICE_ORDER": None, "CUDA_VISIBLE_DEVICES": None, **driver.variables, **variables},
    )
    kernel.ok("%load_ext gpuwidget\nimport gpuwidget, os, torch")
    return kernel


def test_different_gpus_before_and_after_cuda_starts(start_kernel: StartKernel, driver: Standin) -> None:
    """Before CUDA starts, every GPU's model and memory is listed, and no cuda:N is guessed.

    Once it has started, cuda:0 is named by its UUID, and a note says that it is not nvidia-smi's GPU 0.
    """
    kernel = start(start_kernel, driver)
    before = kernel.ok("%gpu device").displayed
    assert before.splitlines()[1:-1] == [
        "  cpu",
        "  cuda:0 · GeForce RTX 3090 / GeForce RTX 4090 · known once your code has started CUDA",
        "  cuda:1 · GeForce RTX 3090 / GeForce RTX 4090 · known once your code has started CUDA",
        "GPUs of this machine, with nvidia-smi's numbers:",
        "  GPU 0 GeForce RTX 3090 (compute capability 8.6) · 23.4 of 24.0 GiB free",
        "  GPU 1 GeForce RTX 4090 (compute capability 8.9) · 23.4 of 24.0 GiB free",
    ]
    assert WHY in before.splitlines()[-1]
    listed = "[[gpu.name for gpu in one.candidates] for one in gpuwidget.devices()][1]"
    assert kernel.ok(listed).result == "['NVIDIA GeForce RTX 3090', 'NVIDIA GeForce RTX 4090']"
    state = kernel.answer_to(ask="state")["state"]
    assert (state["order"]["source"], state["order"]["note_ids"][0]["id"]) == (None, "device-order-unknown")
    assert [gpu["torch_device"] for gpu in state["gpus"]] == [None, None]
    assert kernel.ok("torch.cuda.is_initialized()").result == "False"

    kernel.ok("torch.cuda.init()")
    after = kernel.ok("%gpu device").displayed.splitlines()
    assert [line.split(" · ")[:2] for line in after[2:4]] == [
        ["  cuda:0", "GPU 1 GeForce RTX 4090 (compute capability 8.9)"],
        ["  cuda:1", "GPU 0 GeForce RTX 3090 (compute capability 8.6)"],
    ]
    state = kernel.answer_to(ask="state")["state"]
    numbers = {"device": "cuda:0", "gpu": 1, "visible": None, "by_speed": True}
    assert state["order"]["note_ids"] == [{"id": "device-numbers-differ", "params": numbers}]
    assert after[4] == state["order"]["notes"][0]
    assert (state["order"]["source"], state["choices"][1]["uuid"]) == ("cuda", CUDA_0)
    assert [gpu["torch_device"] for gpu in state["gpus"]] == ["cuda:1", "cuda:0"]


def test_an_environment_that_makes_the_order_certain(start_kernel: StartKernel, driver: Standin) -> None:
    """CUDA_DEVICE_ORDER=PCI_BUS_ID makes the order certain, whether the kernel was started with it or a cell
    sets it before CUDA starts."""
    kernel = start(start_kernel, driver)
    kernel.ok("os.environ['CUDA_DEVICE_ORDER'] = 'PCI_BUS_ID'")
    lines = kernel.ok("%gpu device").displayed.splitlines()
    assert [line.split(" · ")[:2] for line in lines[2:]] == [
        ["  cuda:0", "GPU 0 GeForce RTX 3090 (compute capability 8.6)"],
        ["  cuda:1", "GPU 1 GeForce RTX 4090 (compute capability 8.9)"],
    ]
    assert kernel.answer_to(ask="state")["state"]["order"] == {
        "source": "environment",
        "notes": [],
        "note_ids": [],
    }


def test_advice_about_the_device(start_kernel: StartKernel, driver: Standin, tmp_path: Path) -> None:
    """A cell that computes on the slower GPU and switches the device in a loop gets advice that names the
    faster GPU's device, and the line of the loop."""
    other = Standin(driver.library, tmp_path / "driver")
    scenario = [*profiles.machine("RTX 3090", "RTX 4090"), f"gpu.0.uuid={CUDA_1}", f"gpu.1.uuid={CUDA_0}"]
    other.scenario(
        *scenario, "gpu.0.compute=self:1073741824", "gpu.0.memory_used=1073741824", "gpu.0.util=97"
    )
    kernel = start(start_kernel, other)
    ran = kernel.ok(
        "%%gpuwatch\nimport time\nend = time.monotonic() + 3.2\nwhile time.monotonic() < end:\n"
        "    for i in range(2):\n        torch.cuda.set_device(i)\n    time.sleep(0.002)"
    )
    advice = {one["rule"]: one for one in ran.report["advice"]}
    assert "%gpu device cuda:0" in advice["slower-gpu"]["fix"]
    assert advice["device-switches"]["evidence"]["line"] == "In[2]:6 `torch.cuda.set_device(i)`"
    assert kernel.ok("torch._C._cuda_setDevice.__name__").result == "'_set_device'"


def test_a_card_of_each_model(start_kernel: StartKernel, driver: Standin, tmp_path: Path) -> None:
    """A watched cell on a machine with five models has a card with each of them. What a model lacks is n/a
    with the reason."""
    models = ("RTX 3090", "RTX 4090", "V100", "A100", "H100")
    other = Standin(driver.library, tmp_path / "driver")
    other.scenario(*profiles.machine(*models), "gpu.*.util=97", "gpu.*.gpm.2=55")
    kernel = start(start_kernel, other)
    ran = kernel.ok("%%gpuwatch --gpu 0,1,2,3,4\nimport time; time.sleep(1.6)")
    gpus = ran.report["gpus"]
    assert [gpu["name"] for gpu in gpus] == [profiles.PROFILES[model]["name"] for model in models]
    assert [gpu["sm_activity"] is not None for gpu in gpus] == [False, False, False, False, True]
    no_gpm = "the driver provides no performance counters for this GPU (only for Hopper and later)"
    first, *others = [gpu["missing"].get("sm_activity") for gpu in gpus]
    assert no_gpm.startswith(first.removesuffix("\N{HORIZONTAL ELLIPSIS}"))  # shortened if the card is large
    assert others == [*["as for GPU 0"] * 3, None]
    text = ran.cards[0]["text/plain"]
    assert all(profiles.PROFILES[model]["name"].removeprefix("NVIDIA ") in text for model in models)
    # The values of the hardware counters are those of the only GPU that has them.
    html = ran.cards[0]["text/html"]
    assert "<th scope='col'>GPU 4, mean<" in html
    assert "GPUs 0–4, mean" not in html  # noqa: RUF001 a range's dash
    assert re.search(r"<th scope='row'[^>]*>SM occupancy(<td>[0-9.]+\s%){2}(<td>n/a){2}<tr>", html)
