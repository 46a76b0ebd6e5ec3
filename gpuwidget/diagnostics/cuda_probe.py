"""In a child: start CUDA's driver library on its own, without torch, step by step.

No CUDA context is made: ``cuInit`` and counting devices need none.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from typing import Any

from gpuwidget.diagnostics.probe_process import announce, be_modest, error_text, finish, say
from gpuwidget.diagnostics.torch_probe import mapped_libraries

STEPS = {
    "load": ("driver", "loading CUDA's driver library"),
    "init": ("driver", "CUDA initialisation (cuInit)"),
    "devices": ("gpu", "listing CUDA devices"),
}
"""Each step in its order: the link whose problem it is, and its name on the screen."""
_ATTRIBUTE_MAJOR, _ATTRIBUTE_MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_…


def main(_path: Sequence[str]) -> None:
    """Load the library, initialise it and list its devices."""
    be_modest()
    announce("load")
    name = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        library = ctypes.CDLL(name)
        say(mapped=mapped_libraries())
        _start(library)
    except (AttributeError, OSError) as error:  # none, a stub, or another library of that name
        say(libcuda_error=error_text(error))
    finish()


def _start(library: Any) -> None:
    version, count = ctypes.c_int(), ctypes.c_int()
    if library.cuDriverGetVersion(ctypes.byref(version)) == 0:
        say(cuda_driver=version.value)
    announce("init")
    code = int(library.cuInit(0))
    say(cu_init=code, cu_text=_error(library, code) if code else None)
    if code == 0:
        announce("devices")
        code = int(library.cuDeviceGetCount(ctypes.byref(count)))
        say(cu_count=count.value if code == 0 else None)
        say(cu_devices=[_device(library, place) for place in range(count.value)])


def _error(library: Any, code: int) -> str:
    parts = []
    for function in (library.cuGetErrorName, library.cuGetErrorString):
        pointer = ctypes.c_char_p()
        if function(code, ctypes.byref(pointer)) == 0 and pointer.value:
            parts.append(pointer.value.decode("utf-8", "replace"))
    return ": ".join(parts)


def _device(library: Any, place: int) -> dict[str, str]:
    device, major, minor = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    name, uuid = ctypes.create_string_buffer(256), ctypes.create_string_buffer(16)
    library.cuDeviceGet(ctypes.byref(device), place)
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
