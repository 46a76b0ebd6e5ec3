"""Query whether this process's default CUDA streams have work to do, without side effects on user code.

``torch.cuda.default_stream(d).query()`` does not wait (0.6 µs on an H200). But by CUDA's rules a query may
invalidate a graph that another thread captures, unless the querying thread has set its stream capture mode to
relaxed. Where that is not possible, no stream is queried.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

from gpuwidget.pytorch import cuda_state

_CAPTURE_MODE_RELAXED = 2
"""cudaStreamCaptureModeRelaxed."""
_ERROR_CAPTURE_IMPLICIT = 906
"""cudaErrorStreamCaptureImplicit."""
_LIBRARIES_WITH_BLOCKING_STREAMS = ("cupy", "numba.cuda", "pycuda", "cuda")
_ROCM = "on AMD GPUs the streams are not asked"
_NO_LIBRARY = (
    "CUDA's library was not found in this process, without which asking its streams might disturb them"
)
_REFUSED = "CUDA did not let the streams be asked without a risk for graph captures"
_NO_CONTEXT = "this process has no context on a GPU"
_FAILED = "CUDA reported an error when its stream was asked, and was not asked again"


class DefaultStreams:
    """The default streams of the devices on which this process has a context. Use it on one dedicated thread.

    Opens no context and initializes nothing.
    """

    def __init__(self, find_runtime: Callable[[], Any] | None = None) -> None:
        self._find_runtime = find_runtime or cuda_runtime
        self._runtime: Any = None
        self._relaxed = False
        self._queries: list[tuple[int, Callable[[], bool]]] = []
        """A device's bit and the query of its stream."""
        self._disabled = False
        self._check_captures = False
        self.devices: tuple[int, ...] = ()
        """N of each ``cuda:N`` that is queried, or was queried before an error."""
        self.reason: str | None = None
        """Why no stream is queried; None while streams are queried."""

    def open(self) -> bool:
        """Find the devices with a context; call it periodically. Returns whether any stream is queried."""
        if self._disabled:
            return False
        devices = cuda_state.devices_with_context()
        if not devices:
            self.reason = cuda_state.unavailable_reason() or _NO_CONTEXT
        elif devices != self.devices:
            try:
                self._set_devices(devices)
            except Exception:
                self._disable(_FAILED)
        self._check_captures = any(name in sys.modules for name in _LIBRARIES_WITH_BLOCKING_STREAMS)
        return bool(self._queries)

    def _set_devices(self, devices: tuple[int, ...]) -> None:
        torch: Any = cuda_state.loaded_torch()
        if cuda_state.is_rocm():
            self._disable(_ROCM)
            return
        if not self._relaxed:
            runtime = self._find_runtime()
            if runtime is None:
                self._disable(_NO_LIBRARY)
                return
            set_thread_device(devices[0])
            if not relax_capture_mode(runtime):
                self._disable(_REFUSED)
                return
            self._runtime, self._relaxed = runtime, True
        self._queries = [(1 << device, torch.cuda.default_stream(device).query) for device in devices]
        self.devices = devices
        self.reason = None

    def busy(self) -> int | None:
        """Return a bit mask in which bit N is set where the stream of ``cuda:N`` has work; None if unknown.

        A stream that blocks the default one may capture a graph (CuPy's streams block it, torch's don't).
        Meanwhile the default stream must not be queried. CUDA reports such a capture without side effects.
        """
        bits = 0
        if self._check_captures and is_capturing(self._runtime, None) is not False:
            return None
        try:
            for bit, query in self._queries:
                if not query():
                    bits |= bit
        except Exception:
            # A CUDA kernel failed. The user's next CUDA call raises that error.
            self._disable(_FAILED)
            return None
        return bits if self._queries else None

    def _disable(self, reason: str) -> None:
        self._disabled, self.reason = True, reason
        self._queries = []


def set_thread_device(index: int) -> None:
    """Set the current device of this thread, which must be one of ours, to a device with a context.

    A CUDA call uses the thread's current device, initially 0, and would open a context there.
    """
    torch: Any = cuda_state.loaded_torch()
    if index != 0:
        torch._C._cuda_setDevice(index)


def relax_capture_mode(runtime: Any) -> bool:
    """Set this thread's stream capture mode to relaxed: its calls invalidate no capture of another thread."""
    mode = ctypes.c_int(_CAPTURE_MODE_RELAXED)
    return bool(runtime.cudaThreadExchangeStreamCaptureMode(ctypes.byref(mode)) == 0)


def is_capturing(runtime: Any, stream: int | None) -> bool | None:
    """Return whether a graph is captured on the stream with that handle; None where CUDA reports an error.

    None as handle stands for the default stream and any stream that blocks it. The call has no side effects
    on a thread with the relaxed capture mode.
    """
    status = ctypes.c_int(0)
    code = runtime.cudaStreamIsCapturing(stream, ctypes.byref(status))
    if code not in (0, _ERROR_CAPTURE_IMPLICIT):
        return None
    return bool(code or status.value)


def cuda_runtime() -> Any:
    """Return the CUDA runtime library that this process has loaded, or None where it is not found."""
    global _runtime
    if _runtime is None:
        _runtime = next(filter(None, map(_open_loaded, _runtime_names())), None)
    return _runtime


_runtime: Any = None


def _runtime_names() -> Iterator[str]:
    """Yield possible names of the loaded runtime: CUDA's standard name, then paths of mapped files.

    Reading the list of mapped files takes many system calls. Each releases the GIL, and a thread that runs
    Python code delays its return. So the standard name comes first.
    """
    version = getattr(getattr(cuda_state.loaded_torch(), "version", None), "cuda", None)
    if version is not None:
        yield f"libcudart.so.{version.partition('.')[0]}"
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
            yield from sorted({line.split(None, 5)[5].strip() for line in maps if "libcudart" in line})
    except (OSError, IndexError):
        pass


def _open_loaded(name: str) -> Any:
    """Return the library ``name`` if it is loaded already and has the functions needed. Loads nothing."""
    try:
        library = ctypes.CDLL(name, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
        library.cudaThreadExchangeStreamCaptureMode  # noqa: B018 - raises AttributeError where it is missing
        library.cudaStreamIsCapturing.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    except (OSError, AttributeError):
        return None
    return library
