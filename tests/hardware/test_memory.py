"""Tests on a real GPU that the holders of memory add up exactly to torch's count, and that freed memory
agrees with nvidia-smi."""

from __future__ import annotations

from typing import Any

import pytest
from helpers_gpu import nvidia_smi, run_program
from helpers_kernel import Kernel

pytestmark = pytest.mark.gpu

MIB = 1024**2
GIB = 1024**3
TRANSFORMER = """
import torch, gpuwidget

def sums():
    found = gpuwidget.holders()
    assert found.reason is None, found.reason
    for index in range(torch.cuda.device_count()):
        inside = [h.bytes for h in found.on(f"cuda:{index}") if h.kind != "outside torch"]
        assert sum(inside) == torch.cuda.memory_allocated(index), (found, torch.cuda.memory_allocated(index))
    return {h.names[0] if h.names else h.kind: h.bytes for h in found if h.kind != "outside torch"}

layer = torch.nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True)
model = torch.nn.TransformerEncoder(layer, 6).cuda()
del layer
optimizer = torch.optim.AdamW(model.parameters())
batch = torch.randn(16, 128, 512, device="cuda")
def step():
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(batch).float().square().mean()
    loss.backward()
    optimizer.step()
    return loss
"""


def test_a_transformer_with_adamw() -> None:
    """At each stage of training, the model with its gradients, the optimizer and the batch are listed with
    the expected sizes, and the holders add up exactly to torch's count."""
    result = run_program(
        TRANSFORMER
        + """
stages = [sums()]
loss = step()
stages.append(sums())
loss2 = model(batch).mean()  # its graph holds activations that nothing else refers to
stages.append(sums())
del loss2
views = [batch[n] for n in range(16)]; shared = {"flat": batch.view(-1), "raw": batch.untyped_storage()}
stages.append(sums())
rounded = lambda t: -(-t.numel() * t.element_size() // 512) * 512
result = {"stages": stages, "weights": sum(rounded(p) for p in model.parameters()), "batch": rounded(batch)}
"""
    )
    start, trained, graph, views = result["stages"]
    weights = result["weights"]
    # A block may be larger than the tensor in it, but never smaller.
    assert weights <= start["model"] < 1.02 * weights + 20 * MIB
    assert 2 * weights <= trained["model"] < 2.02 * weights + 40 * MIB
    assert 2 * weights <= trained["optimizer"] < 2.02 * weights + 40 * MIB
    assert graph["loss2"] > 10 * MIB
    assert graph.get("unknown", 0) == trained.get("unknown", 0)
    assert (views["model"], views["optimizer"]) == (trained["model"], trained["optimizer"])
    assert result["batch"] <= views["batch"] < 1.02 * result["batch"] + MIB


def test_kinds_of_tensors() -> None:
    """The holders add up exactly to torch's count with sparse tensors, the memory pool of a CUDA graph,
    pinned and CPU tensors, and tensors of other streams."""
    result = run_program(
        """
        import torch, gpuwidget
        def exact():
            found = [h for h in gpuwidget.holders() if h.kind != "outside torch"]
            return sum(h.bytes for h in found) == torch.cuda.memory_allocated()
        x = torch.eye(1000, device="cuda")
        sparse, csr = x.to_sparse(), x.to_sparse_csr()
        done = [exact()]
        pinned, host = torch.empty(10**6).pin_memory(), torch.empty(10**6)
        graph = torch.cuda.CUDAGraph()
        static = torch.zeros(10**6, device="cuda")
        with torch.cuda.graph(graph):
            out = static * 2 + 1
        graph.replay()
        done.append(exact())
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            y = torch.zeros(10**6, device="cuda")
            y.record_stream(torch.cuda.default_stream())
        done.append(exact())
        del y
        done.append(exact())
        names = {h.names[0]: h.bytes for h in gpuwidget.holders() if h.names and h.kind == "variable"}
        result = {"exact": done, "names": names}
        """
    )
    assert result["exact"] == [True, True, True, True]
    assert {"x", "sparse", "csr", "static", "out"} <= set(result["names"])
    assert not {"pinned", "host"} & set(result["names"])


def test_gradients_of_a_sharded_model() -> None:
    """All memory of a model that is sharded with FSDP is listed under the names of the user's variables,
    although its parameters only wrap the shards."""
    result = run_program(
        """
        import torch, gpuwidget
        import torch.distributed as dist
        from torch.distributed.fsdp import fully_shard
        dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
        model = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024, device="cuda") for _ in range(4)])
        fully_shard(model)
        optimizer = torch.optim.AdamW(model.parameters())
        model(torch.randn(64, 1024, device="cuda")).square().mean().backward()
        optimizer.step()
        torch.cuda.synchronize()
        found = [h for h in gpuwidget.holders() if h.kind != "outside torch"]
        names = {h.names[0]: h.bytes for h in found if h.names}
        result = {"exact": sum(h.bytes for h in found) == torch.cuda.memory_allocated(), "names": names,
                  "weights": sum(p.numel() * 4 for p in model.parameters())}
        dist.destroy_process_group()
        """
    )
    weights = result["weights"]
    assert result["exact"]
    assert 2 * weights <= result["names"]["model"] < 2.1 * weights + 2 * MIB
    assert 2 * weights <= result["names"]["optimizer"] < 2.1 * weights + 2 * MIB


@pytest.mark.parametrize("allocator", ["expandable_segments:False", "expandable_segments:True"])
def test_the_returnable_part_of_the_cache(allocator: str) -> None:
    """empty_cache() returns exactly the number of bytes that was predicted. From expandable segments, it
    returns whole pages only."""
    result = run_program(
        """
        import torch, gpuwidget
        many = [torch.empty(3 * 1024**2, dtype=torch.uint8, device="cuda") for _ in range(200)]
        many += [torch.empty(2000, device="cuda") for _ in range(2000)]
        big = torch.empty(1024**3, dtype=torch.uint8, device="cuda")
        gaps = [torch.empty(4 * 1024**2, dtype=torch.uint8, device="cuda") for _ in range(200)]
        del many[::2], big, gaps[::2]
        before = gpuwidget.holders().devices[0]
        with gpuwidget.watch() as w:
            torch.empty(1024, device="cuda")
        (watched,) = [gpu.torch for gpu in w.report.gpus if gpu.torch_device == "cuda:0"]
        torch.cuda.empty_cache()
        result = {"predicted": before.returnable, "watched": watched.returnable,
                  "reserved": before.reserved, "after": torch.cuda.memory_reserved(),
                  "fragmented": before.fragmented}
        """,
        PYTORCH_CUDA_ALLOC_CONF=allocator,
    )
    returned = result["reserved"] - result["after"]
    # Slightly less than 1 GiB may be returned, because an expandable segment keeps the pages that the large
    # tensor shares with the tensors next to it.
    assert returned >= GIB - 4 * MIB
    # The watched code freed what it allocated, so the cache is the same as before.
    assert {**result, "returned": returned} == {
        **result,
        "returned": result["predicted"],
        "watched": result["predicted"],
    }
    assert result["fragmented"] > 0


def test_the_users_memory_history_is_unchanged() -> None:
    """If the user records a memory history, holders() does not stop it and does not change its entries."""
    result = run_program(
        """
        import torch, gpuwidget
        torch.cuda.memory._record_memory_history(max_entries=1000)
        x = [torch.empty(1000, device="cuda") for _ in range(10)]
        def entries():
            found = torch.cuda.memory._snapshot()["device_traces"][0]
            # Each snapshot adds an entry.
            return sum(entry["action"] != "snapshot" for entry in found)
        before = entries()
        gpuwidget.holders()
        between = entries()
        x.append(torch.empty(1000, device="cuda"))
        result = [before, between, entries()]
        """
    )
    before, between, after = result
    assert (between, after > between) == (before, True)


def test_non_torch_memory() -> None:
    """The CUDA context is listed in addition to the tensors. If the memory of single processes is unknown,
    one entry contains both the context and other processes, and all entries add up to the memory in use."""
    result = run_program(
        """
        import torch, gpuwidget
        x = torch.empty(1024**3, dtype=torch.uint8, device="cuda")
        torch.cuda.synchronize()
        found = gpuwidget.holders()
        result = {"outside": [[h.names[0], h.bytes] for h in found if h.kind == "outside torch"],
                  "reserved": torch.cuda.memory_reserved(), "notes": list(found.notes), "text": repr(found),
                  "used": gpuwidget.sample().readings[0].memory_used}
        """
    )
    outside = dict(result["outside"])
    together = "CUDA context, other libraries and other processes"
    if together in outside:
        assert "process ids" in " ".join(result["notes"]) or "does not" in " ".join(result["notes"])
        assert abs(outside[together] + result["reserved"] - result["used"]) < 64 * MIB
    else:
        assert 100 * MIB < outside["CUDA context and other libraries"] < 2 * GIB
    assert "cuda:0 (GPU 0" in result["text"]


@pytest.mark.two_gpus
def test_two_devices() -> None:
    """On each of two devices, the holders add up exactly to torch's count. A variable with tensors on both
    devices is a holder on both."""
    result = run_program(
        """
        import torch, gpuwidget
        both = [torch.empty(10**8, device=f"cuda:{n}") for n in range(2)]
        one = torch.empty(10**7, device="cuda:1")
        found = [h for h in gpuwidget.holders() if h.kind != "outside torch"]
        sums = [sum(h.bytes for h in found if h.device == f"cuda:{n}") for n in range(2)]
        result = {"exact": sums == [torch.cuda.memory_allocated(n) for n in range(2)],
                  "found": [[h.names[0], h.device] for h in found]}
        """
    )
    assert result["exact"] is True
    assert sorted(result["found"]) == [["both", "cuda:0"], ["both", "cuda:1"], ["one", "cuda:1"]]


# -- in a notebook -------------------------------------------------------------------------------------------


@pytest.fixture
def kernel(kernel: Kernel) -> Kernel:
    """Return a kernel that has loaded gpuwidget, and has imported torch in In[2]."""
    kernel.ok("import torch, gpuwidget; from torch import nn")
    return kernel


def used() -> int:
    """Return the MiB that are in use on GPU 0 according to nvidia-smi."""
    return int(nvidia_smi("memory.used")[0][0])


def holders(kernel: Kernel) -> dict[str, tuple[int, int | None]]:
    """Return the bytes and the cell of each holder. The key is the first of the holder's names, or its kind
    if it has no name. Assert that the holders add up exactly to torch's count."""
    query = "[gpuwidget.holders() for _ in range(1)][0]"
    exact = (
        f"(lambda found: (sum(h.bytes for h in found if h.kind != 'outside torch') == "
        f"sum(c.bytes for c in found.cells) == torch.cuda.memory_allocated()))({query})"
    )
    assert kernel.value(exact) == "True"
    rows: list[Any] = eval(kernel.value(f"[(h.names, h.kind, h.bytes, h.cell) for h in {query}]"))
    return {names[0] if names else kind: (size, cell) for names, kind, size, cell in rows}


def test_error_frames_and_results_are_freed(kernel: Kernel) -> None:
    """%gpu free --yes releases the results and error frames that %gpu free listed. The memory that it reports
    as returned agrees with nvidia-smi."""
    kernel.ok("kept = torch.empty(1024**3, dtype=torch.uint8, device='cuda')")
    kernel.ok("torch.empty(2 * 1024**3, dtype=torch.uint8, device='cuda').view(1024, -1)")
    kernel.run(
        "def fail():\n    data = torch.empty(3 << 30, dtype=torch.uint8, device='cuda')\n    1 / 0\nfail()"
    )
    found = holders(kernel)
    assert found["the last error's traceback"] == (3 * GIB, 5)
    assert found["Out[4]"] == (2 * GIB, 4)
    assert found["kept"] == (GIB, 3)
    offered = kernel.ok("%gpu free").displayed
    assert "the last error's traceback: 3.0 GiB" in offered
    assert "Out[4], _, _4: 2.0 GiB" in offered
    before = used()
    done = kernel.ok("%gpu free --yes").displayed
    freed = before - used()
    assert "Released 5.0 GiB of tensors." in done
    assert freed * MIB == pytest.approx(5 * GIB, abs=64 * MIB)
    # In a container, the driver's process ids don't match the container's, so the driver's figure for this
    # process is unknown. The driver's figure for the whole GPU is shown instead.
    own, whole = (
        "Freed according to the driver: 5.0 GiB on GPU 0.",
        "according to torch: 5.0 GiB. According to the driver, which",
    )
    assert own in done or whole in done
    assert kernel.value("torch.cuda.memory_allocated() == kept.nbytes") == "True"


def test_out_of_memory_leaves_nothing_after_free(kernel: Kernel) -> None:
    """After a training step has run out of memory, %gpu free releases the frames of the error and keeps the
    model."""
    kernel.ok("model = nn.Linear(1000, 1000, device='cuda')")
    failed = kernel.run(
        "def step(n):\n    kept = [torch.empty(1 << 30, dtype=torch.uint8, device='cuda')]\n"
        "    kept.append(torch.empty(1 << 50, dtype=torch.uint8, device='cuda'))\nstep(1)"
    )
    assert failed.reply["ename"] == "OutOfMemoryError"
    assert holders(kernel)["the last error's traceback"][0] == GIB
    kernel.ok("%gpu free --yes")
    found = holders(kernel)
    assert found["model"][1] == 3
    assert "the last error's traceback" not in found
    assert kernel.value("torch.cuda.memory_allocated() < 10 * 1024**2") == "True"


def test_cells_of_a_training(kernel: Kernel) -> None:
    """After many training steps with thousands of temporary tensors, model and optimizer are still attributed
    to the cells that created them."""
    kernel.ok("model = nn.Sequential(*[nn.Linear(1024, 1024) for _ in range(8)]).cuda()")
    kernel.ok(
        "optimizer = torch.optim.AdamW(model.parameters()); batch = torch.randn(256, 1024, device='cuda')"
    )
    train = (
        "for _ in range({n}):\n    loss = model(batch).square().mean(); loss.backward()\n"
        "    optimizer.step(); optimizer.zero_grad()"
    )
    kernel.ok(train.format(n=1))
    for _ in range(3):
        kernel.ok(train.format(n=20))
    found = holders(kernel)
    assert (found["model"][1], found["batch"][1], found["optimizer"][1]) == (3, 4, 5)
    assert found["loss"][1] == 8
    lines = kernel.ok("%gpu memory --cells").displayed.splitlines()
    assert any(line.startswith("In [3]  model = nn.Sequential") for line in lines)


def test_a_storage_that_outlives_its_memory(kernel: Kernel) -> None:
    """If a storage is resized to 0, as FSDP does, and a new tensor gets the same address, the new tensor is
    attributed to its own cell."""
    kernel.ok("x = torch.empty(1 << 24, device='cuda')")
    kernel.ok(
        "address = x.data_ptr()\nx.untyped_storage().resize_(0)\ny = torch.empty(1 << 24, device='cuda')"
    )
    assert kernel.value("y.data_ptr() == address") == "True"
    assert holders(kernel)["y"] == (64 * MIB, 4)


def test_the_holders_of_a_watched_cell(kernel: Kernel) -> None:
    """A cell's card lists only holders of memory that this cell allocated. They add up to the increase of
    torch's allocated memory during the run."""
    kernel.ok("before = torch.empty(1 << 20, device='cuda')")
    cell = "%%gpuwatch\nx = torch.empty(1 << 28, device='cuda'); y = x[5:]\n(x[:1000] * 2).sum().item()"
    ran = kernel.ok(cell)
    report = ran.report
    allocated = next(gpu["torch"]["allocated"] for gpu in report["gpus"] if gpu["torch"])
    left = sum(holder["bytes"] for holder in report["holders"])
    assert left == allocated["end"] - allocated["start"]
    assert report["holders"][0]["names"] == ["x", "y"]
    assert report["holders"][0]["bytes"] == GIB
