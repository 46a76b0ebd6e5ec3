"""Read the CUDA driver's list of devices, if this process has initialized the driver.

``torch.cuda.is_available()`` and other GPU libraries initialize the driver (``cuInit``) before torch does.
From then on, the order of the devices is fixed, and changes of the environment have no effect. This module
loads no library, does not initialize the driver and opens no context.
"""

from __future__ import annotations

import ctypes
import os
import uuid
from typing import Any

from gpuwidget.model.fork import reset_after_fork

_LIBRARY = "libcuda.so.1"
_SUCCESS = 0


def device_uuids() -> tuple[str, ...] | None:
    """Return the UUID of each CUDA device in the driver's order, without the prefix ``GPU-`` or ``MIG-``.

    Return None if this process has not initialized the driver, or if its library can't be found.
    """
    global _uuids
    if _uuids is None:
        library = _loaded_library()
        # Once the driver is initialized, the devices do not change until the process ends.
        _uuids = None if library is None else _read_uuids(library)
    return _uuids


_uuids: tuple[str, ...] | None = None


def _reset_in_child() -> None:
    """In a forked child, the driver is not initialized, even if it is in the parent."""
    global _uuids
    _uuids = None


reset_after_fork(_reset_in_child)


def _loaded_library() -> Any:
    """Return the driver's library if this process has loaded it, else None."""
    if not hasattr(os, "RTLD_NOLOAD"):
        return None
    try:
        return ctypes.CDLL(_LIBRARY, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    except OSError:
        return None


def _read_uuids(library: Any) -> tuple[str, ...] | None:
    # Until the driver is initialized, every one of its functions returns CUDA_ERROR_NOT_INITIALIZED:
    # https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__INITIALIZE.html
    count, device = ctypes.c_int(), ctypes.c_int()
    try:
        get_uuid = getattr(library, "cuDeviceGetUuid_v2", None) or library.cuDeviceGetUuid
        if library.cuDeviceGetCount(ctypes.byref(count)) != _SUCCESS:
            return None
        found = []
        for index in range(count.value):
            raw = ctypes.create_string_buffer(16)
            if library.cuDeviceGet(ctypes.byref(device), index) or get_uuid(raw, device):
                return None
            found.append(str(uuid.UUID(bytes=raw.raw)))
    except AttributeError:  # an unrelated library with the same name
        return None
    return tuple(found)
