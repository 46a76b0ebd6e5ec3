"""Query whether this process's default CUDA streams have work to do, without side effects on user code.

``torch.cuda.default_stream(d).query()`` does not wait (0.6 µs on an H200). However, by CUDA's rules a query
may invalidate a graph that another thread is capturing, unless the querying thread has set its stream capture
mode to relaxed. If the mode can't be set, gpuwidget queries no stream.
"""

from __future__ import annotations

import ctypes
import logging
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

from gpuwidget.model.boundary import stopped
from gpuwidget.model.messages import Message, message
from gpuwidget.pytorch import cuda_state

_LOG = logging.getLogger(__name__)

_CAPTURE_MODE_RELAXED = 2
"""CUDA's constant cudaStreamCaptureModeRelaxed."""
_ERROR_CAPTURE_IMPLICIT = 906
"""CUDA's constant cudaErrorStreamCaptureImplicit."""
_LIBRARIES_WITH_BLOCKING_STREAMS = ("cupy", "numba.cuda", "pycuda", "cuda")
_ROCM = message("streams-rocm", "streams are not queried on AMD GPUs")
_NO_LIBRARY = message(
    "streams-no-cuda-library",
    "CUDA's library was not found in this process, so a query of CUDA streams might disturb them",
)
_REFUSED = message(
    "streams-not-relaxed", "streams can't be queried here without a risk for CUDA graph captures"
)
_NO_CONTEXT = message("no-context", "this process has no context on a GPU")
_FAILED = message(
    "streams-failed", "CUDA reported an error when a stream was queried, so streams were not queried again"
)


class DefaultStreams:
    """Queries the default stream of each device on which this process has a context.

    Use an instance on one thread only, and run no user code on that thread. The instance opens no context and
    initializes nothing.
    """

    def __init__(self, find_runtime: Callable[[], Any] | None = None) -> None:
        self._find_runtime = find_runtime or cuda_runtime
        self._runtime: Any = None
        self._relaxed = False
        self._queries: list[tuple[int, Callable[[], bool]]] = []
        """For each device: its bit in the mask of :meth:`busy`, and the query function of its stream."""
        self._disabled = False
        self._check_captures = False
        self.devices: tuple[int, ...] = ()
        """The N of each ``cuda:N`` whose stream is queried, or was queried until an error occurred."""
        self.reason: Message | None = None
        """Why no stream is queried; None while streams are queried."""

    def open(self) -> bool:
        """Find the devices that have a context, and return whether any stream can be queried.

        Call it periodically, because the user's code may open more contexts.
        """
        if self._disabled:
            return False
        devices = cuda_state.devices_with_context()
        if not devices:
            self.reason = cuda_state.unavailable_reason() or _NO_CONTEXT
        elif devices != self.devices:
            try:
                self._set_devices(devices)
            except BaseException as error:
                stopped(_LOG, "the CUDA streams could not be found", error, foreign=True)
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
        """Return a bit mask in which bit N is set if the stream of ``cuda:N`` has work; None if unknown.

        The default stream must not be queried while a graph is captured on a stream that blocks the default
        stream. CuPy's streams block it, torch's don't. Checking for such a capture has no side effects.
        """
        bits = 0
        if self._check_captures and is_capturing(self._runtime, None) is not False:
            return None
        try:
            for bit, query in self._queries:
                if not query():
                    bits |= bit
        except BaseException as error:
            # A CUDA kernel has failed. The error is not shown here, because the user's next CUDA call will
            # raise it, too.
            stopped(_LOG, "a CUDA stream could not be queried", error, foreign=True)
            self._disable(_FAILED)
            return None
        return bits if self._queries else None

    def _disable(self, reason: Message) -> None:
        self._disabled, self.reason = True, reason
        self._queries = []


def set_thread_device(index: int) -> None:
    """Set this thread's current device to one that has a context. Call it only on a thread of gpuwidget.

    Otherwise a CUDA call would open a context on the thread's current device, which is initially device 0.
    """
    torch: Any = cuda_state.loaded_torch()
    if index != 0:
        torch._C._cuda_setDevice(index)


def relax_capture_mode(runtime: Any) -> bool:
    """Set this thread's stream capture mode to relaxed, and return whether CUDA accepted that.

    In relaxed mode, CUDA calls on this thread do not invalidate a graph that another thread captures.
    """
    mode = ctypes.c_int(_CAPTURE_MODE_RELAXED)
    return bool(runtime.cudaThreadExchangeStreamCaptureMode(ctypes.byref(mode)) == 0)


def is_capturing(runtime: Any, stream: int | None) -> bool | None:
    """Return whether a graph is being captured on a stream, or None if CUDA reports an error.

    ``stream`` is a CUDA stream handle. None stands for the default stream and all
    streams that synchronize with it. On a
    thread whose capture mode is relaxed, the call has no side effects.
    """
    status = ctypes.c_int(0)
    code = runtime.cudaStreamIsCapturing(stream, ctypes.byref(status))
    if code not in (0, _ERROR_CAPTURE_IMPLICIT):
        return None
    return bool(code or status.value)


def cuda_runtime() -> Any:
    """Return the CUDA runtime library that this process has loaded, or None if it is not found."""
    global _runtime
    if _runtime is None:
        _runtime = next(filter(None, map(_open_loaded, _runtime_names())), None)
    return _runtime


_runtime: Any = None


def _runtime_names() -> Iterator[str]:
    """Yield possible names of the loaded CUDA runtime: first its standard name, then the paths of mapped
    files.

    The standard name comes first, because reading the list of mapped files takes many system calls. Each call
    releases the GIL, and may then have to wait for it while another thread runs Python code.
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
    """Return the library ``name`` if it is already loaded and has the functions needed here. Loads
    nothing."""
    try:
        library = ctypes.CDLL(name, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
        library.cudaThreadExchangeStreamCaptureMode  # noqa: B018 - raises AttributeError where it is missing
        library.cudaStreamIsCapturing.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    except (OSError, AttributeError):
        return None
    return library
