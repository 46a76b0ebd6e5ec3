"""Tests on a real GPU of who holds memory: which processes use CUDA, torch's reserved memory, and freeing
torch's cache."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from helpers_gpu import run_program
from helpers_kernel import Kernel

pytestmark = pytest.mark.gpu

GIB = 1024**3


@pytest.fixture
def kernel(start_kernel: Callable[..., Kernel]) -> Kernel:
    """Return a kernel that has loaded gpuwidget and torch."""
    made = start_kernel()
    made.ok("%load_ext gpuwidget\nimport os, torch")
    return made


def test_uses_cuda() -> None:
    """``uses_cuda()`` is true for a process with a CUDA context. It is not true for a process that only
    samples GPUs, nor for a forked child."""
    before, after, child = run_program(
        """
        import os, gpuwidget
        from gpuwidget.system.processes import uses_cuda
        gpuwidget.sample()
        result = [uses_cuda(os.getpid())]
        import torch
        x = torch.ones(1, device="cuda")
        result.append(uses_cuda(os.getpid()))
        end, begin = os.pipe()
        child = os.fork()
        if not child:
            os.close(begin)
            os.read(end, 1)
            os._exit(0)
        result.append(uses_cuda(child))
        os.close(begin)
        os.waitpid(child, 0)
        """
    )
    assert after is True
    assert not before
    assert not child


def test_torchs_reserved_memory(kernel: Kernel) -> None:
    """The kernel reports the bytes that torch has reserved on each GPU. The driver's figure for the process
    is higher, because it includes the CUDA context."""
    kernel.ok("x = torch.ones(2**28, device='cuda')")
    state = next(
        gpu for gpu in kernel.answer_to(ask="state")["state"]["gpus"] if gpu["torch_device"] == "cuda:0"
    )
    assert state["torch_reserved"] == int(kernel.ok("torch.cuda.memory_reserved(0)").result or 0)
    if state["process_memory"] is not None:
        assert GIB <= state["torch_reserved"] < state["process_memory"] < state["torch_reserved"] + 2 * GIB


def test_freeing_the_cache_while_a_cell_computes(kernel: Kernel) -> None:
    """If torch's cache is freed while a cell computes, the memory is returned to the GPU, and the cell's
    result is correct."""
    # The first matrix products allocate cuBLAS's workspace. Run some now, so that both measurements of the
    # reserved memory include the workspace.
    kernel.ok("a = torch.ones(4096, 4096, device='cuda')\nfor _ in range(3): b = a @ a")
    kernel.ok("gone = torch.ones(2**30, device='cuda')\ndel gone")
    before = int(kernel.ok("torch.cuda.memory_reserved(0)").result or 0)
    busy = "open('on', 'w').close()\nwhile not os.path.exists('off'): b = a @ a\nfloat(b[0, 0])"
    request = kernel.send(busy)
    kernel.wait_for_file("on")
    answer = kernel.answer_to(ask="free_cache")
    assert answer["status"] == "ok", answer
    print(answer["done"])
    assert "Ran torch.cuda.empty_cache()" in answer["done"]
    (kernel.folder / "off").touch()
    assert kernel.wait(request).result == "4096.0"
    assert int(kernel.ok("torch.cuda.memory_reserved(0)").result or 0) < before - 3 * GIB


def test_freeing_the_cache_breaks_no_graph_capture(kernel: Kernel) -> None:
    """If the panel requests to free torch's cache while a cell captures CUDA graphs, no capture fails. Either
    the cache is freed, or the request is refused because of the capture."""
    kernel.ok("a = torch.ones(256, 256, device='cuda')\nb = a @ a\ntorch.cuda.synchronize()")
    capturing = """
open('on', 'w').close()
count = 0
while not os.path.exists('off'):
    gone = torch.ones(2**26, device='cuda')
    del gone
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        c = a @ a
        for _ in range(50):
            c = c @ a / 256
    graph.replay()
    torch.cuda.synchronize()
    assert float(c[0, 0]) == 256.0
    count += 1
count > 0
"""
    request = kernel.send(capturing)
    kernel.wait_for_file("on")
    answers = [kernel.answer_to(ask="free_cache") for _ in range(20)]
    (kernel.folder / "off").touch()
    assert kernel.wait(request).result == "True"
    outcomes = {answer.get("reason") or "done" for answer in answers}
    print(outcomes)
    captured = "A CUDA graph is being captured, and freeing memory would break the capture."
    assert all(one == "done" or one.startswith(captured) for one in outcomes)


@pytest.mark.two_gpus
def test_no_context_on_another_gpu(kernel: Kernel) -> None:
    """If the process has a context only on cuda:1, freeing its cache opens no context on cuda:0."""
    kernel.ok("x = torch.ones(2**28, device='cuda:1')\ndel x")
    assert kernel.answer_to(ask="free_cache")["status"] == "ok"
    contexts = "[torch._C._cuda_hasPrimaryContext(i) for i in range(2)]"
    assert kernel.ok(contexts).result == "[False, True]"
