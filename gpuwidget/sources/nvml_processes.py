"""Read NVML's lists of the processes that have a context on a GPU."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from gpuwidget.model.gpu_process import ProcessKind
from gpuwidget.sources import nvml_messages

_FUNCTIONS: dict[ProcessKind, str] = {
    "compute": "nvmlDeviceGetComputeRunningProcesses",
    "graphics": "nvmlDeviceGetGraphicsRunningProcesses",
}
_INITIAL_CAPACITY = 32
_MAX_CAPACITY = 16_384
"""Capacity from which on the driver's error counts, because a broken driver may always require more."""
_UNAVAILABLE = 2**64 - 1


class ProcessInfo(ctypes.Structure):
    """The structure nvmlProcessInfo_v2_t, which versions 2 and 3 of the NVML call fill in.

    It is defined here because its layout differs between releases of pynvml.
    """

    _fields_ = (
        ("pid", ctypes.c_uint),
        ("memory", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


def list_processes(nvml: Any, kind: ProcessKind, version: int, handle: Any) -> Sequence[ProcessInfo]:
    """Return the compute or the graphics processes of a GPU. Raises pynvml's NVMLError.

    ``version`` is the version of the NVML call, 3 or 2. pynvml's function is not used, because it makes two
    calls: it reads the number of entries and then the list. Each call may have to wait for the GIL, and the
    second one fails if a process starts in between.
    """
    call = nvml._nvmlGetFunctionPointer(f"{_FUNCTIONS[kind]}_v{version}")
    capacity = _INITIAL_CAPACITY
    while True:
        buffer = (ProcessInfo * capacity)()
        count = ctypes.c_uint(capacity)
        code = call(handle, ctypes.byref(count), buffer)
        if code == nvml_messages.INSUFFICIENT_SIZE and capacity < _MAX_CAPACITY:
            capacity = min(max(2 * capacity, count.value), _MAX_CAPACITY)
        elif code:
            raise nvml.NVMLError(code)
        else:
            return buffer[: count.value]


def memory_by_pid(listed: Sequence[ProcessInfo]) -> dict[int, int | None]:
    """Return the bytes that each listed process holds. The bytes are None if the driver does not report them.

    The driver does not report them on WSL and with WDDM. On a GPU with MIG, the list contains a process once
    per slice that it uses; the bytes of these entries are added up.
    """
    memory: dict[int, int | None] = {}
    for info in listed:
        size = None if info.memory == _UNAVAILABLE else int(info.memory)
        before = memory.get(info.pid, 0)
        memory[info.pid] = None if size is None or before is None else before + size
    return memory
