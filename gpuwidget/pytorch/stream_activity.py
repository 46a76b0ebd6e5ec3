"""Whether this process's default CUDA streams have work to do, asked without disturbing who gives them work.

``torch.cuda.default_stream(d).query()`` waits for nothing (0.6 µs on an H200), but by CUDA's rules a query
may spoil a graph that another thread captures, unless the thread that asks has first declared itself
relaxed. Where it can't, nothing is asked.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

from gpuwidget.pytorch import cuda_state

_RELAXED = 2
_CAPTURING_IMPLICITLY = 906
"""cudaErrorStreamCaptureImplicit."""
_MAKE_BLOCKING_STREAMS = ("cupy", "numba.cuda", "pycuda", "cuda")
_ROCM = "on AMD GPUs the streams are not asked"
_NO_LIBRARY = (
    "CUDA's library was not found in this process, without which asking its streams might disturb them"
)
_REFUSED = "CUDA did not let the streams be asked without a risk for graph captures"
_NO_CONTEXT = "this process has no context on a GPU"
_FAILED = "CUDA reported an error when its stream was asked, and was not asked again"


class DefaultStreams:
    """The default streams of the devices on which this process has a context; used by one thread, its own.

    Opens no context and initialises nothing.
    """

    def __init__(self, find_library: Callable[[], Any] | None = None) -> None:
        self._find_library = find_library or runtime_library
        self._runtime: Any = None
        self._relaxed = False
        self._queries: list[tuple[int, Callable[[], bool]]] = []
        """A device's bit, and what asks its stream."""
        self._gave_up = False
        self._careful = False
        self.devices: tuple[int, ...] = ()
        """The N of ``cuda:N`` that are asked, or were until asking failed."""
        self.reason: str | None = None
        """Why nothing is asked; None while it is."""

    def open(self) -> bool:
        """Meet the devices with a context; call it now and then. Whether any is asked."""
        if self._gave_up:
            return False
        devices = cuda_state.devices_with_context()
        if not devices:
            self.reason = cuda_state.absent() or _NO_CONTEXT
        elif devices != self.devices:
            try:
                self._meet(devices)
            except Exception:
                self._give_up(_FAILED)
        self._careful = any(name in sys.modules for name in _MAKE_BLOCKING_STREAMS)
        return bool(self._queries)

    def _meet(self, devices: tuple[int, ...]) -> None:
        torch: Any = cuda_state.loaded()
        if cuda_state.is_rocm():
            self._give_up(_ROCM)
            return
        if not self._relaxed:
            runtime = self._find_library()
            if runtime is None:
                self._give_up(_NO_LIBRARY)
                return
            enter_device(devices[0])
            if not relax(runtime):
                self._give_up(_REFUSED)
                return
            self._runtime, self._relaxed = runtime, True
        self._queries = [(1 << device, torch.cuda.default_stream(device).query) for device in devices]
        self.devices = devices
        self.reason = None

    def busy(self) -> int | None:
        """Bit N is set where the stream of ``cuda:N`` has work; None where nothing is asked.

        While a stream that blocks the default one captures a graph (CuPy's do, torch's don't), the default
        stream must not be touched: asked so, CUDA says it without harm.
        """
        bits = 0
        if self._careful and captures(self._runtime, None) is not False:
            return None
        try:
            for bit, query in self._queries:
                if not query():
                    bits |= bit
        except Exception:
            # A kernel failed: the error is the user's next call's to raise.
            self._give_up(_FAILED)
            return None
        return bits if self._queries else None

    def _give_up(self, reason: str) -> None:
        self._gave_up, self.reason = True, reason
        self._queries = []


def enter_device(index: int) -> None:
    """Have this thread, which is our own, work on ``cuda:index``, where this process has a context.

    A call to CUDA works on the thread's current device, which is 0 at first, and would open it.
    """
    torch: Any = cuda_state.loaded()
    if index != 0:
        torch._C._cuda_setDevice(index)


def relax(library: Any) -> bool:
    """Declare this thread relaxed: what it asks of CUDA spoils no graph that another thread captures."""
    mode = ctypes.c_int(_RELAXED)
    return bool(library.cudaThreadExchangeStreamCaptureMode(ctypes.byref(mode)) == 0)


def captures(library: Any, stream: int | None) -> bool | None:
    """Whether a graph is captured on the stream of that handle; None where CUDA has an error to report.

    No handle stands for the default stream, and any that blocks it. Asked on a relaxed thread it harms none.
    """
    status = ctypes.c_int(0)
    code = library.cudaStreamIsCapturing(stream, ctypes.byref(status))
    if code not in (0, _CAPTURING_IMPLICITLY):
        return None
    return bool(code or status.value)


def runtime_library() -> Any:
    """The CUDA runtime that this process has loaded already; None where there is none to be found."""
    global _found
    if _found is None:
        _found = next(filter(None, map(_usable, _names())), None)
    return _found


_found: Any = None


def _names() -> Iterator[str]:
    """What the loaded runtime may be called: as CUDA names it, and where it is mapped from.

    The name comes first: the list of what is mapped takes many system calls to read, at each of which a
    thread that computes in Python keeps the reader waiting.
    """
    version = getattr(getattr(cuda_state.loaded(), "version", None), "cuda", None)
    if version is not None:
        yield f"libcudart.so.{version.partition('.')[0]}"
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
            yield from sorted({line.split(None, 5)[5].strip() for line in maps if "libcudart" in line})
    except (OSError, IndexError):
        pass


def _usable(name: str) -> Any:
    """The library ``name`` if it is loaded and has what is needed; loads nothing."""
    try:
        library = ctypes.CDLL(name, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
        library.cudaThreadExchangeStreamCaptureMode  # noqa: B018 - raises where it has none
        library.cudaStreamIsCapturing.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    except (OSError, AttributeError):
        return None
    return library
