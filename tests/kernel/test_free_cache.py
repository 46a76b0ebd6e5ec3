"""Freeing torch's cache from the panel, in a real kernel with the real torch and a fake allocator."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers_kernel import Kernel, skip_without_torch
from kernel.test_memory import SETUP
from nvml_standin import Standin, build

STANDIN = str(Path(__file__).parent.parent / "torch_standin")
CUDA_RUNTIME = """
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
"""Code that replaces CUDA's runtime library with a fake."""
FREED = "Freed on the GPU according to torch: 20 MiB. The driver's value is unknown."


@pytest.fixture
def kernel(start_kernel: Callable[..., Kernel]) -> Kernel:
    """Return a kernel with gpuwidget loaded and a stand-in GPU in use."""
    skip_without_torch()
    kernel = start_kernel(GPUWIDGET_SOURCE="none")
    kernel.setup(SETUP)
    kernel.setup("%load_ext gpuwidget")
    kernel.setup(CUDA_RUNTIME)
    return kernel


def free(kernel: Kernel) -> dict[str, Any]:
    """Send the panel's request to free the cache, and return the reply."""
    return kernel.answer_to(ask="free_cache")


def done(reply: dict[str, Any]) -> str:
    """Return the reply's description of what was done, with the duration replaced by T."""
    assert reply["status"] == "ok", reply
    return re.sub(r"took [\d.]+ [mµ]?s", "took T", reply["done"])


def test_the_cache_is_freed(kernel: Kernel) -> None:
    """Freeing the cache returns its unused memory to the driver.
    The reply contains the statement that ran, how long it took and how many bytes it freed."""
    kernel.ok("kept = gpu.empty(1_000_000); gone = gpu.empty(5_000_000)")
    kernel.ok("del gone")
    assert kernel.value("gpu.reserved - gpu.allocated > 20_000_000") == "True"
    reply = free(kernel)
    assert done(reply) == f"Ran torch.cuda.empty_cache(), which took T. {FREED}"
    assert reply["state"]["torch"] is not None
    assert kernel.value("kept.sum().item(), gpu.reserved < 5_000_000, runtime.modes") == "(0.0, True, [2])"


def test_the_cache_is_freed_while_a_cell_runs(kernel: Kernel) -> None:
    """The cache is freed even while a cell runs.
    The cell continues, and the reply explains how freeing the cache slows the cell down."""
    kernel.ok("import os\ngone = gpu.empty(5_000_000)\ndel gone")
    request = kernel.send("open('on', 'w').close()\nwhile not os.path.exists('stop'): pass\n'done'")
    kernel.wait_for_file("on")
    text = done(free(kernel))
    assert text.startswith(f"Ran torch.cuda.empty_cache(), which took T. {FREED} A cell was running: ")
    assert not kernel.has_ended(request, 0)
    (kernel.folder / "stop").touch()
    assert kernel.wait(request).result == "'done'"
    assert kernel.value("gpu.reserved") == "0"


def test_nothing_to_free(kernel: Kernel) -> None:
    """If the cache has nothing to free, torch.cuda.empty_cache() is not called,
    because the call would wait for the GPU."""
    kernel.setup("calls = []\ntorch.cuda.empty_cache = lambda: calls.append(1)")
    assert done(free(kernel)) == "Nothing was done: torch's cache is empty."
    kernel.ok("kept = gpu.empty(1000)")
    assert done(free(kernel)).startswith("Nothing was done: torch's cache (2.0 MiB) can't be freed")
    assert kernel.value("calls") == "[]"


@pytest.mark.parametrize("stream", ["None", "7"])
def test_during_graph_capture(kernel: Kernel, stream: str) -> None:
    """While a CUDA graph is being captured, nothing is freed, and the reply gives the reason."""
    kernel.ok("gone = gpu.empty(5_000_000)\ndel gone")
    kernel.setup(
        "from types import SimpleNamespace as N\n"
        "torch.cuda.graph.default_capture_stream = N(cuda_stream=7)\n"
        f"runtime.capturing.add({stream})"
    )
    reply = free(kernel)
    assert reply["status"] == "error"
    assert reply["reason"].startswith("A CUDA graph is being captured")
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
def test_errors_of_torch(kernel: Kernel, error: str, reason: str) -> None:
    """If torch raises an error, the reply gives the reason in one sentence, and the next request works."""
    kernel.ok("gone = gpu.empty(5_000_000)\ndel gone")
    kernel.setup(f"def fail():\n    raise RuntimeError('{error}')\ntorch.cuda.empty_cache = fail")
    reply = free(kernel)
    assert reply["status"] == "error"
    assert reply["reason"].startswith(reason)
    assert "more" not in reply["reason"]
    kernel.setup("torch.cuda.empty_cache = gpu.empty_cache")
    assert free(kernel)["status"] == "ok"


def test_after_a_cuda_error(kernel: Kernel) -> None:
    """After a CUDA error, gpuwidget does not call torch,
    because only restarting the process frees the memory."""
    kernel.ok("gone = gpu.empty(5_000_000)\ndel gone")
    kernel.setup("runtime.code = 700")
    assert free(kernel)["reason"].startswith("CUDA has reported an error")


def test_without_capture_status(kernel: Kernel) -> None:
    """If gpuwidget can't detect whether a graph is being captured, it frees the cache between cells,
    but not while a cell runs."""
    kernel.ok("import os\ns.cuda_runtime = lambda: None\ngone = gpu.empty(5_000_000)\ndel gone")
    request = kernel.send("open('on', 'w').close()\nwhile not os.path.exists('stop'): pass")
    kernel.wait_for_file("on")
    reply = free(kernel)
    (kernel.folder / "stop").touch()
    kernel.wait(request)
    assert reply["reason"].startswith("A cell is running. CUDA's library")
    assert done(free(kernel)) == f"Ran torch.cuda.empty_cache(), which took T. {FREED}"


def test_other_requests_during_a_slow_one(kernel: Kernel) -> None:
    """While the cache is being freed, the kernel replies to other requests,
    and refuses a second request to free it."""
    kernel.ok("import threading\ndone = threading.Event()")
    kernel.ok("gone = gpu.empty(5_000_000)\ndel gone")
    kernel.setup(
        "def wait():\n    open('busy', 'w').close(); done.wait(); gpu.empty_cache()\n"
        "torch.cuda.empty_cache = wait"
    )
    channel = kernel.client.control_channel
    slow = kernel.client.session.msg("gpuwidget_request", {"schema": 1, "ask": "free_cache"})
    channel.send(slow)
    # Do not wait by running a cell: it might still be running when empty_cache is called.
    kernel.wait_for_file("busy")
    assert kernel.answer_to(ask="state")["status"] == "ok"
    second = free(kernel)
    assert (second["status"], second["reason"].split(".")[0]) == ("error", "The cache is already being freed")
    kernel.ok("done.set()")
    while True:
        reply = channel.get_msg(timeout=30)
        if reply["parent_header"].get("msg_id") == slow["header"]["msg_id"]:
            break
    assert done(reply["content"]) == f"Ran torch.cuda.empty_cache(), which took T. {FREED}"


def test_without_torch_or_cuda(start_kernel: Callable[..., Kernel]) -> None:
    """If torch, CUDA, torch's memory counters or a CUDA context is missing,
    the reply gives that as the reason, and CUDA is not initialized."""
    kernel = start_kernel(GPUWIDGET_SOURCE="none", PYTHONPATH=STANDIN)
    kernel.ok("%load_ext gpuwidget")
    assert "because torch is not loaded" in free(kernel)["reason"]
    kernel.ok("import torch")
    assert "because CUDA is not initialized" in free(kernel)["reason"]
    assert kernel.value("torch.cuda.is_initialized()") == "False"
    kernel.ok("torch.cuda.init()")
    assert "cudaMallocAsync" in free(kernel)["reason"]
    kernel.ok("import standin_allocator\nstandin_allocator.install(torch)")
    assert "no context on a GPU" in free(kernel)["reason"]
    kernel.ok("kept = torch.allocate(512)")
    assert done(free(kernel)) == "Nothing was done: torch's cache is empty."
    assert kernel.answer_to(schema=2, ask="free_cache")["status"] == "error"


def test_no_context_is_created_on_another_gpu(kernel: Kernel) -> None:
    """If the process has a context only on cuda:1, freeing the cache does not create one on cuda:0."""
    kernel.ok("gone = gpu.empty(5_000_000)\ndel gone")
    kernel.setup(
        "torch.cuda.device_count = lambda: 2\nentered = []\n"
        "torch._C._cuda_hasPrimaryContext = lambda index: index == 1\n"
        "torch._C._cuda_setDevice = entered.append"
    )
    assert free(kernel)["status"] == "ok"
    assert kernel.value("entered") == "[1]"


def test_the_state_has_the_reserved_memory(start_kernel: Callable[..., Kernel], tmp_path: Path) -> None:
    """The kernel's state contains the bytes that torch has reserved on each GPU.
    Before CUDA is initialized, they are unknown."""
    driver = Standin(build(tmp_path / "library"), tmp_path / "driver")
    driver.scenario("gpus=2", *(f"gpu.{n}.uuid=GPU-0000000{n}-aaaa-bbbb-cccc-dddddddddddd" for n in (0, 1)))
    path = driver.environment()["LD_LIBRARY_PATH"]
    kernel = start_kernel(
        GPUWIDGET_SOURCE="nvml", LD_LIBRARY_PATH=path, PYTHONPATH=STANDIN, **driver.variables
    )
    kernel.ok("%load_ext gpuwidget\nimport torch, standin_allocator")

    def reserved() -> list[int | None]:
        reply = kernel.answer_to(ask="state")
        while not reply["state"]["gpus"]:  # The list is empty until the driver has replied.
            reply = kernel.answer_to(ask="state")
        return [gpu["torch_reserved"] for gpu in reply["state"]["gpus"]]

    assert reserved() == [None, None]
    kernel.ok("torch.cuda.init()\nstandin_allocator.install(torch)\nkept = torch.allocate(2**30)")
    assert reserved() == [2**30, 0]
