"""Freeing torch's cache from the panel, in a real kernel with the real torch and a fake allocator."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers_kernel import Kernel, Ran, skip_without_torch
from nvml_standin import Standin, build
from test_memory import SETUP

STANDIN = str(Path(__file__).parent.parent / "torch_standin")
LIBRARY = """
import ctypes
import gpuwidget.pytorch.stream_activity as s
class Runtime:
    modes, capturing, code = [], set(), 0
    def cudaThreadExchangeStreamCaptureMode(self, mode):
        self.modes.append(mode._obj.value)
        return 0
    def cudaStreamIsCapturing(self, stream, status):
        status._obj.value = int(stream in self.capturing)
        return self.code
runtime = Runtime()
s.cuda_runtime = lambda: runtime
"""
"""A fake of CUDA's runtime."""
DRIVERS = "Given back to the GPU: 20 MiB by torch's count; the driver's is not known."


@pytest.fixture
def kernel(start_kernel: Callable[..., Kernel]) -> Kernel:
    """A kernel with gpuwidget loaded, and a fake device in use."""
    skip_without_torch()
    made = start_kernel(GPUWIDGET_SOURCE="none")
    made.setup(SETUP)
    made.setup("%load_ext gpuwidget")
    made.setup(LIBRARY)
    return made


def run(kernel: Kernel, code: str) -> Ran:
    """Run a cell that must succeed."""
    ran = kernel.run(code)
    assert ran.reply["status"] == "ok", ran.reply
    return ran


def free(kernel: Kernel) -> dict[str, Any]:
    """Return the reply to the panel."""
    return kernel.answer_to(ask="free_cache")


def words(answer: dict[str, Any]) -> str:
    """Return what the reply says was done, without the duration."""
    assert answer["status"] == "ok", answer
    return re.sub(r"took [\d.]+ [mµ]?s", "took T", answer["done"])


def test_the_cache_goes_back(kernel: Kernel) -> None:
    """Unused cache goes back to the driver; the reply has the statement, its duration and the freed bytes."""
    run(kernel, "kept = gpu.empty(1_000_000); gone = gpu.empty(5_000_000)")
    run(kernel, "del gone")
    assert kernel.value("gpu.reserved - gpu.allocated > 20_000_000") == "True"
    answer = free(kernel)
    assert words(answer) == f"Ran torch.cuda.empty_cache(), which took T. {DRIVERS}"
    assert answer["state"]["torch"] is not None
    assert kernel.value("kept.sum().item(), gpu.reserved < 5_000_000, runtime.modes") == "(0.0, True, [2])"


def test_while_a_cell_runs(kernel: Kernel) -> None:
    """A busy kernel frees it at once too, and the reply has the cost; the cell continues undisturbed."""
    run(kernel, "import os\ngone = gpu.empty(5_000_000)\ndel gone")
    request = kernel.send("open('on', 'w').close()\nwhile not os.path.exists('stop'): pass\n'done'")
    kernel.wait_for_file("on")
    assert words(free(kernel)) == (
        f"Ran torch.cuda.empty_cache(), which took T. {DRIVERS} A cell was running: where it allocated "
        "meanwhile it waited too, and what it allocates next takes longer."
    )
    assert not kernel.has_ended(request, 0)
    (kernel.folder / "stop").touch()
    assert kernel.wait(request).result == "'done'"
    assert kernel.value("gpu.reserved") == "0"


def test_nothing_to_give_back(kernel: Kernel) -> None:
    """If nothing can be freed, torch is not called, since it would wait for the GPU."""
    kernel.setup("calls = []\ntorch.cuda.empty_cache = lambda: calls.append(1)")
    assert words(free(kernel)) == "Nothing was done: torch's cache is empty."
    run(kernel, "kept = gpu.empty(1000)")
    assert words(free(kernel)) == (
        "Nothing was done: the 2.0 MiB of torch's cache can't go back to the driver, since they lie beside "
        "tensors in use or belong to CUDA graphs."
    )
    assert kernel.value("calls") == "[]"


@pytest.mark.parametrize("stream", ["None", "7"])
def test_a_graph_that_is_captured_is_not_spoiled(kernel: Kernel, stream: str) -> None:
    """While a CUDA graph is captured nothing is freed, and the reply has the reason."""
    run(kernel, "gone = gpu.empty(5_000_000)\ndel gone")
    kernel.setup(
        "from types import SimpleNamespace as N\n"
        "torch.cuda.graph.default_capture_stream = N(cuda_stream=7)\n"
        f"runtime.capturing.add({stream})"
    )
    answer = free(kernel)
    assert (answer["status"], answer["reason"]) == (
        "error",
        "A CUDA graph is being captured, which giving memory back would spoil. Try again when that is done.",
    )
    kernel.setup("runtime.capturing.clear()")
    assert free(kernel)["status"] == "ok"
    kernel.setup("torch.cuda.graph.default_capture_stream = None")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        ("captures_underway.empty() INTERNAL ASSERT FAILED", "A CUDA graph is being captured"),
        ("CUDA error: misaligned address\\nmore", "torch.cuda.empty_cache() failed: CUDA error: misaligned"),
    ],
)
def test_what_torch_refuses_is_told(kernel: Kernel, error: str, reason: str) -> None:
    """If torch raises, the reply has the reason in a sentence, and the kernel continues."""
    run(kernel, "gone = gpu.empty(5_000_000)\ndel gone")
    kernel.setup(f"def fail():\n    raise RuntimeError('{error}')\ntorch.cuda.empty_cache = fail")
    answer = free(kernel)
    assert answer["status"] == "error"
    assert answer["reason"].startswith(reason)
    assert "more" not in answer["reason"]
    kernel.setup("torch.cuda.empty_cache = gpu.empty_cache")
    assert free(kernel)["status"] == "ok"


def test_after_an_error_of_cuda(kernel: Kernel) -> None:
    """After a CUDA error nothing is called: only a restart frees the memory."""
    run(kernel, "gone = gpu.empty(5_000_000)\ndel gone")
    kernel.setup("runtime.code = 700")
    assert free(kernel)["reason"].startswith("CUDA has reported an error in this process")


def test_a_running_cell_is_not_put_at_risk(kernel: Kernel) -> None:
    """If torch can't report captures, nothing is freed during a cell, but between cells."""
    run(kernel, "import os\ns.cuda_runtime = lambda: None\ngone = gpu.empty(5_000_000)\ndel gone")
    request = kernel.send("open('on', 'w').close()\nwhile not os.path.exists('stop'): pass")
    kernel.wait_for_file("on")
    answer = free(kernel)
    (kernel.folder / "stop").touch()
    kernel.wait(request)
    assert answer["reason"].startswith("A cell is running, and without CUDA's library")
    assert words(free(kernel)) == f"Ran torch.cuda.empty_cache(), which took T. {DRIVERS}"


def test_a_gpu_that_keeps_it_waiting_keeps_no_other_question_waiting(kernel: Kernel) -> None:
    """While the driver waits for the GPU, other requests are answered, and a second one fails."""
    run(kernel, "import threading\ndone = threading.Event()")
    run(kernel, "gone = gpu.empty(5_000_000)\ndel gone")
    kernel.setup(
        "def wait():\n    open('busy', 'w').close(); done.wait(); gpu.empty_cache()\n"
        "torch.cuda.empty_cache = wait"
    )
    channel = kernel.client.control_channel
    waiting = kernel.client.session.msg("gpuwidget_request", {"schema": 1, "ask": "free_cache"})
    channel.send(waiting)
    # Without a cell, which might run by the time that the answer looks whether one does.
    kernel.wait_for_file("busy")
    assert kernel.answer_to(ask="state")["status"] == "ok"
    second = free(kernel)
    assert (second["status"], second["reason"].split(":")[0]) == ("error", "It is under way already")
    run(kernel, "done.set()")
    while True:
        reply = channel.get_msg(timeout=30)
        if reply["parent_header"].get("msg_id") == waiting["header"]["msg_id"]:
            break
    assert words(reply["content"]) == f"Ran torch.cuda.empty_cache(), which took T. {DRIVERS}"


def test_without_torch_or_cuda(start_kernel: Callable[..., Kernel]) -> None:
    """Without torch, CUDA or counters, the reply has the reason, and nothing is initialized."""
    kernel = start_kernel(GPUWIDGET_SOURCE="none", PYTHONPATH=STANDIN)
    run(kernel, "%load_ext gpuwidget")
    nothing = "There is no cache of torch's to free: "
    assert free(kernel)["reason"] == f"{nothing}torch is not loaded."
    run(kernel, "import torch")
    assert free(kernel)["reason"] == f"{nothing}CUDA is not initialised in this process."
    assert kernel.value("torch.cuda.is_initialized()") == "False"
    run(kernel, "torch.cuda.init()")
    partial = "torch runs on cudaMallocAsync, whose counters are partial"
    assert free(kernel)["reason"] == f"{nothing}{partial}."
    run(kernel, "import standin_allocator\nstandin_allocator.install(torch)")
    assert free(kernel)["reason"] == f"{nothing}this process has no context on a GPU."
    run(kernel, "kept = torch.allocate(512)")
    assert words(free(kernel)) == "Nothing was done: torch's cache is empty."
    assert kernel.answer_to(schema=2, ask="free_cache")["status"] == "error"


def test_a_context_on_another_gpu_is_not_joined_by_one_on_the_first(kernel: Kernel) -> None:
    """With a context only on cuda:1, none is created on cuda:0."""
    run(kernel, "gone = gpu.empty(5_000_000)\ndel gone")
    kernel.setup(
        "torch.cuda.device_count = lambda: 2\nentered = []\n"
        "torch._C._cuda_hasPrimaryContext = lambda index: index == 1\n"
        "torch._C._cuda_setDevice = entered.append"
    )
    assert free(kernel)["status"] == "ok"
    assert kernel.value("entered") == "[1]"


def test_what_torch_holds_is_told(start_kernel: Callable[..., Kernel], tmp_path: Path) -> None:
    """The kernel's state has torch's reserved bytes per GPU, and none before CUDA is initialized."""
    driver = Standin(build(tmp_path / "library"), tmp_path / "driver")
    driver.scenario("gpus=2", *(f"gpu.{n}.uuid=GPU-0000000{n}-aaaa-bbbb-cccc-dddddddddddd" for n in (0, 1)))
    path = driver.environment()["LD_LIBRARY_PATH"]
    kernel = start_kernel(
        GPUWIDGET_SOURCE="nvml", LD_LIBRARY_PATH=path, PYTHONPATH=STANDIN, **driver.variables
    )
    run(kernel, "%load_ext gpuwidget\nimport torch, standin_allocator")

    def told() -> list[int | None]:
        answer = kernel.answer_to(ask="state")
        while not answer["state"]["gpus"]:  # the driver has not answered yet
            answer = kernel.answer_to(ask="state")
        return [gpu["torch_reserved"] for gpu in answer["state"]["gpus"]]

    assert told() == [None, None]
    run(kernel, "torch.cuda.init()\nstandin_allocator.install(torch)\nkept = torch.allocate(2**30)")
    assert told() == [2**30, 0]
