"""Tests of GPU memory outside torch: this process's CUDA context and libraries, and other processes."""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from fakes import FakeClock, FakeSource
from helpers_monitor import fake_monitor, torch_in_use
from helpers_samples import GIB, LIVE, h200, process, reading, sample

from gpuwidget.kernel.devices import default_device, non_torch_memory
from gpuwidget.kernel.devices.device_choices import GpuMonitor
from gpuwidget.kernel.devices.non_torch_memory import NonTorchMemory
from gpuwidget.measure.holder_ranking import DeviceMemory
from gpuwidget.measure.jax_pool import JaxPool
from gpuwidget.model.gpu_process import Process
from gpuwidget.model.messages import message
from gpuwidget.model.report import Holder
from gpuwidget.model.samples import Sample, origin_without_gpus
from gpuwidget.sampler import NO_THREAD, Sampler
from gpuwidget.system import processes
from gpuwidget.system.processes import own_user

ONE, TWO = h200(0), h200(1)
OURS = os.getpid()
KNOWN = (DeviceMemory("cuda:0", 9 * GIB, 10 * GIB, 0, 0),)


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Any:
    return torch_in_use(monkeypatch)


def find(monkeypatch: pytest.MonkeyPatch, now: Sample | None, *, pids_match: bool = True) -> Any:
    """Return the memory outside torch if the driver returns ``now``, and the reason if it is unknown."""
    fake_monitor(monkeypatch, lambda timeout_s: now, pids_match=pids_match, clock=FakeClock())
    return non_torch_memory.by_device(KNOWN)


def moment(*held: Process, used: int = 60 * GIB) -> Sample:
    """Return a sample with these processes on the first of two GPUs, which has ``used`` bytes in use."""
    return sample((ONE, reading(ONE, processes=held, memory_used=used)), (TWO, reading(TWO)))


def outside(name: str, size: int) -> Holder:
    """Return a holder of ``size`` bytes outside torch."""
    return Holder("outside torch", (name,), None, "cuda:0", size, None)


def test_notebooks_by_name_and_nccl(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel of another notebook is listed as "another notebook", without the notebook's file name.

    NCCL's buffers are mentioned if NCCL is in use.
    """
    torch.distributed = SimpleNamespace(is_initialized=lambda: True, get_backend=lambda: "nccl")
    notebooks = {11: "train.ipynb"}
    monkeypatch.setattr(processes, "notebook_of", notebooks.get)
    other = process(11, 3 * GIB, user=own_user(), program="python -m x")
    found, _ = find(monkeypatch, moment(process(OURS, 12 * GIB), other))
    assert found["cuda:0"].holders == (
        outside("CUDA context, NCCL's buffers and other libraries", 2 * GIB),
        outside("another notebook", 3 * GIB),
    )


def test_this_process_and_others(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The size of the CUDA context is the driver's value for this process minus torch's reserved memory.

    Because the list may be saved in a notebook, it names the program of another process only if the process
    belongs to the same user.
    """
    now = moment(
        process(OURS, 12 * GIB),
        process(11, 3 * GIB, user=own_user(), program="python a.py"),
        process(12, None),
        process(13, 2 * GIB),
        process(14, 2 * GIB, program="python b.py"),
        process(15, GIB, user=None),
    )
    found, reason = find(monkeypatch, now)
    assert reason is None
    assert found == {
        "cuda:0": NonTorchMemory(
            "GPU 0 H200",
            (
                outside("CUDA context and other libraries", 2 * GIB),
                outside("2 processes of other users", 4 * GIB),
                outside("another process: python a.py", 3 * GIB),
                outside("another process (15)", GIB),
            ),
            (),
        )
    }


def test_cupy_pool_is_listed(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """CuPy's memory pool is listed as a separate holder.

    CuPy returns the size of the pool on the current CUDA device. gpuwidget therefore selects the device
    before it reads the size.
    """
    entered: list[int] = []

    class Device:
        def __init__(self, index: int) -> None:
            entered.append(index)

        def __enter__(self) -> None: ...

        def __exit__(self, *_: object) -> None: ...

    torch.cuda.device = Device
    pool = SimpleNamespace(total_bytes=lambda: GIB)
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(get_default_memory_pool=lambda: pool))
    found, _ = find(monkeypatch, moment(process(OURS, 12 * GIB)))
    assert found["cuda:0"].holders == (
        outside("CuPy's memory pool", GIB),
        outside("CUDA context and other libraries", GIB),
    )
    assert entered == [0]
    pool.total_bytes = None
    assert non_torch_memory.cupy_pool(0) is None


def test_jax_pool_is_listed(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory that JAX has reserved in advance is listed as a separate holder."""
    monkeypatch.setattr(non_torch_memory, "jax_pools", lambda: {0: JaxPool(GIB, 1000, 2000)})
    found, _ = find(monkeypatch, moment(process(OURS, 12 * GIB)))
    assert found["cuda:0"].holders == (
        outside("JAX's memory pool", GIB),
        outside("CUDA context and other libraries", GIB),
    )


def test_process_ids_that_do_not_match(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a container has its own process ids, all memory outside torch is one holder, with a note that
    explains why."""
    found, _ = find(monkeypatch, moment(process(4711, 50 * GIB)), pids_match=False)
    assert found["cuda:0"].holders == (
        outside("CUDA context, other libraries and other processes", 50 * GIB),
    )
    assert found["cuda:0"].notes[0].startswith("Couldn't tell how much each process holds")


def test_a_reading_older_than_torchs_counters(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the driver's reading is too old to be compared with torch's counters, no CUDA context is listed.

    A note gives the reason.
    """
    found, _ = find(monkeypatch, moment(process(OURS, 9 * GIB)))
    (note,) = found["cuda:0"].notes
    assert found["cuda:0"] == NonTorchMemory("GPU 0 H200", (), (note,))
    assert "older than torch's" in note


def test_nothing_is_known_without_threads(monkeypatch: pytest.MonkeyPatch, no_threads: None) -> None:
    """If no thread can be started, that is the reason, and the driver is not blamed."""
    monitor = GpuMonitor(Sampler(FakeSource(), clock := FakeClock()), clock)
    monkeypatch.setattr(default_device, "monitor", lambda: monitor)
    assert (non_torch_memory.by_device(KNOWN)[1] or "").endswith(f". {NO_THREAD}")


def test_why_nothing_is_known(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the memory outside torch cannot be read, a reason is returned in its place.

    Reasons are a driver that does not answer or is missing, and GPUs of a recording.
    """
    assert (find(monkeypatch, None)[1] or "").endswith("did not answer in time.")
    nobody = sample(origin=origin_without_gpus(message("test", "No NVIDIA driver was found.")))
    assert (find(monkeypatch, nobody)[1] or "").endswith(". No NVIDIA driver was found.")
    recorded = sample(origin=LIVE.__class__("replay", None, "A recording", None, None))
    found, reason = find(monkeypatch, recorded)
    assert found == {}
    assert "The recorded processes" in (reason or "")
