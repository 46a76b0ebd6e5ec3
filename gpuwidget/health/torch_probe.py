"""In a child: import torch and ask it, then CUDA's driver, step by step; any step may raise, crash or hang.

No CUDA context is made: ``cuInit`` and counting devices need none.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from gpuwidget.health.children import be_modest, say

LIBRARIES = (
    "libcudart",
    "libcudnn",
    "libnccl",
    "libcublas",
    "libcublasLt",
    "libcufft",
    "libcurand",
    "libcusolver",
    "libcusparse",
    "libcusparseLt",
    "libcupti",
    "libnvrtc",
    "libnvJitLink",
    "libnvToolsExt",
    "libnvshmem_host",
    "libcufile",
    "libcuda",
    "libtorch_cuda",
    "libtorch_cpu",
)
"""Shared libraries whose files are told, by the beginning of their names."""
_MOST_TEXT = 2000
_ATTRIBUTE_MAJOR, _ATTRIBUTE_MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_…


def main(path: Sequence[str]) -> None:
    """Say what there is; each step is said before it begins, so that a crash is known by its place."""
    be_modest()
    say(step="import")
    # From here on as in the notebook, with whatever of the user's comes before Python's own modules.
    sys.path[:] = path
    torch = _import()
    if torch is not None:
        say(step="ask")
        _ask(torch)
    say(step="maps", mapped=mapped_libraries())
    say(step="driver")
    _driver()
    say(step="end", mapped=mapped_libraries())


def _import() -> Any:
    try:
        with warnings.catch_warnings(record=True):
            warnings.simplefilter("always")
            torch = importlib.import_module("torch")
    except BaseException as error:  # also SystemExit: whatever a broken installation does
        say(import_error=_told(error), import_error_type=type(error).__name__)
        return None
    say(imported=True, version=_text(torch, "__version__"), file=_text(torch, "__file__"))
    return torch


def _ask(torch: Any) -> None:
    version = getattr(torch, "version", None)
    say(cuda=_text(version, "cuda"), hip=_text(version, "hip"))
    native: Any = getattr(torch, "_C", None)
    _tell("archs", lambda: (native._cuda_getArchFlags() or "").split())
    _tell("cudnn", lambda: int(torch.backends.cudnn.version() or 0) or None)
    _tell("cudnn_enabled", lambda: bool(torch.backends.cudnn.enabled))
    _tell("cudnn_compiled", lambda: ".".join(map(str, native._cudnn.getCompileVersion())))
    _tell("distributed", lambda: bool(torch.distributed.is_available()))
    _tell("nccl", lambda: ".".join(str(part) for part in torch.cuda.nccl.version()))
    say(step="available")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        _tell("available", lambda: bool(torch.cuda.is_available()))
        _tell("count", lambda: int(torch.cuda.device_count()))
    say(warnings=[str(one.message)[:_MOST_TEXT] for one in told][:5])


def _tell(name: str, value: Callable[[], Any]) -> None:
    try:
        say(**{name: value()})
    except Exception as error:
        say(**{name: None, f"{name}_error": _told(error)})


def _told(error: BaseException) -> str:
    return str(error)[:_MOST_TEXT]


def _text(of: Any, name: str) -> str | None:
    value = getattr(of, name, None)
    return None if value is None else str(value)


def mapped_libraries() -> list[str]:
    """The files of the libraries above that are mapped into this process, as the kernel names them."""
    found = set()
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
            for line in file:
                path = line.rstrip("\n").partition("/")[2]
                if path and os.path.basename(path).partition(".")[0].partition("_")[0] in _STEMS:
                    found.add("/" + path)
    except OSError:
        return []
    return sorted(found)


_STEMS = frozenset(name.partition("_")[0] for name in LIBRARIES)


def _driver() -> None:
    """CUDA's driver library on its own: what it says is true of torch too."""
    name = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        library = ctypes.CDLL(name)
    except OSError as error:
        say(libcuda_error=_told(error))
        return
    try:
        code = int(library.cuInit(0))
        version, count = ctypes.c_int(), ctypes.c_int()
        if library.cuDriverGetVersion(ctypes.byref(version)) == 0:
            say(cuda_driver=version.value)
        say(cu_init=code, cu_text=_error(library, code) if code else None)
        if code == 0:
            code = int(library.cuDeviceGetCount(ctypes.byref(count)))
            say(cu_count=count.value if code == 0 else None)
            say(cu_devices=[_device(library, place) for place in range(count.value)])
    except (AttributeError, OSError) as error:  # a stub, or something else of that name
        say(libcuda_error=_told(error))


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
