"""Tests of querying CUDA's default streams, which must not open contexts, break graph captures or hide errors
from the user.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from helpers_programs import compile_library
from helpers_torch import make_torch

from gpuwidget.pytorch.stream_activity import DefaultStreams


class Runtime:
    """Stand-in for the CUDA runtime that records its calls."""

    def __init__(self, code: int = 0) -> None:
        self.code = code
        self.calls: list[str] = []
        self.capturing = 0

    def cudaThreadExchangeStreamCaptureMode(self, mode: Any) -> int:
        self.calls.append(f"exchange {mode._obj.value}")
        return self.code

    def cudaStreamIsCapturing(self, stream: Any, status: Any) -> int:
        self.calls.append("capturing?")
        return self.capturing


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Any:
    made = make_torch()
    made.idle = {0: True, 1: True}
    made.asked = []

    def default_stream(index: int) -> Any:
        def query() -> bool:
            made.asked.append(index)
            if isinstance(made.idle[index], Exception):
                raise made.idle[index]
            return bool(made.idle[index])

        return SimpleNamespace(query=query)

    made.cuda.default_stream = default_stream
    # set_device of the user's code opens a context. Only gpuwidget's calls of _cuda_setDevice are recorded.
    set_device = made._C._cuda_setDevice

    def set_users_device(index: int) -> None:
        made.cuda._lazy_init()
        set_device(index)

    made.cuda.set_device = set_users_device
    made._C._cuda_setDevice = lambda index: made.asked.append(f"set {index}")
    monkeypatch.setitem(sys.modules, "torch", made)
    return made


def test_no_query_before_cuda_is_initialized(torch: Any) -> None:
    """Before CUDA is initialized, no stream is queried, and the reason is reported."""
    runtime = Runtime()
    streams = DefaultStreams(lambda: runtime)
    assert (streams.open(), streams.busy()) == (False, None)
    assert streams.reason is not None
    assert streams.reason.id == "cuda-not-initialized"
    assert (torch.cuda.is_initialized(), runtime.calls, torch.events) == (False, [], [])


def test_streams_are_queried_in_relaxed_mode(torch: Any) -> None:
    """The sampling thread switches its capture mode to relaxed once, before the first query.

    busy() returns one bit per device, which is set if the device is busy.
    """
    torch.cuda.set_device(0)
    runtime = Runtime()
    streams = DefaultStreams(lambda: runtime)
    assert streams.open()
    assert (streams.devices, streams.reason, streams.busy()) == ((0,), None, 0)
    torch.idle[0] = False
    assert streams.busy() == 1
    torch.cuda.set_device(1)
    assert streams.open()
    assert (streams.devices, streams.busy()) == ((0, 1), 1)
    torch.idle[1] = False
    assert streams.busy() == 3
    assert runtime.calls == ["exchange 2"]


def test_no_context_is_opened_on_another_device(torch: Any) -> None:
    """If only cuda:1 has a context, the sampling thread makes cuda:1 its current device first, so that no
    context is opened on cuda:0.
    """
    torch.cuda.set_device(1)
    streams = DefaultStreams(Runtime)
    assert streams.open()
    assert streams.busy() == 0
    assert (streams.devices, torch.asked) == ((1,), ["set 1", 1])
    assert torch.events == ["context on 1"]


def test_each_device_has_a_fixed_bit(torch: Any) -> None:
    """Bit N of the result belongs to cuda:N, no matter which devices are queried."""
    torch.cuda.set_device(1)
    streams = DefaultStreams(Runtime)
    torch.idle[1] = False
    assert streams.open()
    assert (streams.devices, streams.busy()) == ((1,), 2)
    torch.cuda.set_device(0)
    assert streams.open()
    assert (streams.devices, streams.busy()) == ((0, 1), 2)


@pytest.mark.parametrize(
    ("runtime", "reason"), [(None, "streams-no-cuda-library"), (Runtime(1), "streams-not-relaxed")]
)
def test_no_query_without_relaxed_mode(torch: Any, runtime: Runtime | None, reason: str) -> None:
    """If the capture mode can't be set to relaxed, no stream is queried, because a query could break a graph
    capture.
    """
    torch.cuda.set_device(0)
    streams = DefaultStreams(lambda: runtime)
    assert (streams.open(), streams.open(), streams.busy(), torch.asked) == (False, False, None, [])
    assert streams.reason is not None
    assert streams.reason.id == reason


def test_queries_stop_after_a_cuda_error(torch: Any) -> None:
    """After a query has reported a CUDA error, no more queries are made. The user's next CUDA call raises the
    error.
    """
    torch.cuda.set_device(0)
    streams = DefaultStreams(Runtime)
    assert streams.open()
    torch.idle[0] = RuntimeError("an illegal memory access was encountered")
    assert streams.busy() is None
    torch.idle[0] = True
    assert (streams.open(), streams.busy(), torch.asked) == (False, None, [0])
    # The device is still listed, so that earlier queries of it can be compared with the GPU's counters.
    assert streams.devices == (0,)
    assert streams.reason is not None
    assert streams.reason.id == "streams-failed"


def test_a_capture_that_blocks_the_default_stream(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """While CuPy captures a graph on a blocking stream, the default stream is not queried, since a query
    would break the capture.
    """
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace())
    torch.cuda.set_device(0)
    runtime = Runtime()
    streams = DefaultStreams(lambda: runtime)
    assert streams.open()
    runtime.capturing = 906
    assert (streams.busy(), torch.asked) == (None, [])
    runtime.capturing = 0
    assert (streams.busy(), torch.asked) == (0, [0])


_LOADING = """
import ctypes, sys
from types import SimpleNamespace
from helpers_torch import make_torch
from gpuwidget.pytorch import stream_activity
torch = sys.modules["torch"] = make_torch()
torch.version.cuda = "98.3"
torch.cuda.default_stream = lambda index: SimpleNamespace(query=lambda: True)
torch.cuda.set_device(0)
for name in (None, *sys.argv[1:]):
    stream_activity._runtime = None
    if name is not None:
        ctypes.CDLL("./" + name)
    streams = stream_activity.DefaultStreams()
    told = streams.open(), streams.busy()
    folder, _, found = getattr(stream_activity._runtime, "_name", "").rpartition("/")
    print(*told, found, bool(folder), "libcudart" in open("/proc/self/maps").read())
"""


def test_only_a_loaded_runtime_is_queried(tmp_path: Path) -> None:
    """The CUDA runtime that the process has loaded is found by its usual name or by the name that a wheel
    gave it. If none is loaded, gpuwidget loads none.
    """
    source = tmp_path / "runtime.c"
    source.write_text(
        "int cudaThreadExchangeStreamCaptureMode(void *mode) {return 0;}\n"
        "int cudaStreamIsCapturing(void *stream, void *status) {return 0;}\n"
    )
    usual, renamed = "libcudart.so.98", "libcudart-d0da41ae.so.98.1"
    for name in (usual, renamed):
        compile_library(source, tmp_path / name, f"-Wl,-soname,{name}")
    # The code runs in a separate process, because the tests' process may have loaded the real CUDA runtime,
    # and would not unload the two fake ones after the test.
    here = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", _LOADING, renamed, usual],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": here},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == [
        "False None  False False",
        f"True 0 {renamed} True True",
        f"True 0 {usual} False True",
    ]
