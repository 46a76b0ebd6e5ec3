"""In a probe process: initialize CUDA's driver library without torch, step by step.

No CUDA context is created, because neither ``cuInit`` nor counting the devices needs one.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from gpuwidget.diagnostics.probe_process import begin_step, error_text, finish, lower_priority, send
from gpuwidget.diagnostics.torch_probe import mapped_libraries
from gpuwidget.model.translation import translatable

STEPS = {
    "load": ("driver", translatable("loading CUDA's driver library")),
    "init": ("driver", translatable("CUDA initialization (cuInit)")),
    "devices": ("gpu", translatable("listing CUDA devices")),
}
"""The steps in order: for each, the id of its check, and its name as displayed."""
_ATTRIBUTE_MAJOR, _ATTRIBUTE_MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_…


def main(_path: Sequence[str]) -> None:
    """Load the library, initialize it and list its devices."""
    lower_priority()
    begin_step("load")
    try:
        library = ctypes.CDLL("libcuda.so.1")
        send(mapped=mapped_libraries())
        _initialize(library)
    except (AttributeError, OSError) as error:  # the library is missing, a stub, or an unrelated one
        send(libcuda_error=error_text(error))
    finish()


def _initialize(library: Any) -> None:
    version, count = ctypes.c_int(), ctypes.c_int()
    if library.cuDriverGetVersion(ctypes.byref(version)) == 0:
        send(cuda_driver=version.value)
    begin_step("init")
    code = int(library.cuInit(0))
    send(cu_init=code, cu_text=_error(library, code) if code else None)
    if code == 0:
        begin_step("devices")
        code = int(library.cuDeviceGetCount(ctypes.byref(count)))
        send(cu_count=count.value if code == 0 else None)
        send(cu_devices=[_device(library, index) for index in range(count.value)])


def _error(library: Any, code: int) -> str:
    parts = []
    for function in (library.cuGetErrorName, library.cuGetErrorString):
        pointer = ctypes.c_char_p()
        if function(code, ctypes.byref(pointer)) == 0 and pointer.value:
            parts.append(pointer.value.decode("utf-8", "replace"))
    return ": ".join(parts)


def _device(library: Any, index: int) -> dict[str, str]:
    device, major, minor = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    name, uuid = ctypes.create_string_buffer(256), ctypes.create_string_buffer(16)
    library.cuDeviceGet(ctypes.byref(device), index)
    library.cuDeviceGetName(name, 256, device)
    library.cuDeviceGetAttribute(ctypes.byref(major), _ATTRIBUTE_MAJOR, device)
    library.cuDeviceGetAttribute(ctypes.byref(minor), _ATTRIBUTE_MINOR, device)
    get_uuid = getattr(library, "cuDeviceGetUuid_v2", library.cuDeviceGetUuid)
    get_uuid(uuid, device)
    return {
        "name": name.value.decode("utf-8", "replace"),
        "uuid": uuid.raw.hex(),
        "capability": f"{major.value}.{minor.value}",
    }
