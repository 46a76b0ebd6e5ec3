"""Read the state of the user's torch: versions, CUDA devices, default device, allocator counters.

Nothing in this module imports torch, initializes CUDA or opens a context. As long as torch is not imported or
CUDA is not initialized by the user's code, this module reports no devices.
"""

from __future__ import annotations

import logging
import sys
from contextlib import AbstractContextManager
from types import ModuleType
from typing import Any

from gpuwidget.model.boundary import Boundary
from gpuwidget.model.messages import Message, message
from gpuwidget.model.torch_state import AllocatorCounters, TorchDevice, TorchVersions, same_gpu
from gpuwidget.model.translation import translatable
from gpuwidget.pytorch import cuda_driver

_LOG = logging.getLogger(__name__)

_NOT_LOADED = message("torch-not-loaded", "torch is not loaded")
_NOT_INITIALIZED = message("cuda-not-initialized", "CUDA is not initialized in this process")
_ASYNC_ALLOCATOR = message(
    "async-allocator", "torch uses the allocator cudaMallocAsync, which provides only some counters"
)


# -- the torch module and its versions -------------------------------------------------------------------


def loaded_torch() -> ModuleType | None:
    """Return the torch module that the user's code has imported, or None.

    While another thread runs `import torch`, sys.modules contains a partially initialized module, which
    counts as not imported. So does a mock or another object that only resembles torch: it may raise anything,
    even SystemExit, and its values would be shown as a GPU's.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        return None
    with Boundary(_LOG, "the object in the place of torch is not torch", foreign=True):
        initialized = getattr(getattr(torch, "cuda", None), "is_initialized", None)
        return torch if callable(initialized) and type(initialized()) is bool else None
    return None


def is_loaded() -> bool:
    """Return whether the user's code has imported torch."""
    return loaded_torch() is not None


def _initialized_torch() -> Any | None:
    torch = loaded_torch()
    return torch if torch is not None and torch.cuda.is_initialized() else None


def cuda_initialized() -> bool:
    """Return whether torch has initialized CUDA in this process."""
    return _initialized_torch() is not None


def unavailable_reason() -> Message | None:
    """Return why torch uses no CUDA device (torch not imported, CUDA not initialized), or None."""
    torch = loaded_torch()
    if torch is None:
        return _NOT_LOADED
    return None if torch.cuda.is_initialized() else _NOT_INITIALIZED


def no_cuda_build_reason() -> str | None:
    """Return why the loaded build of torch can't support any CUDA device, or None if it may support some."""
    torch: Any = loaded_torch()
    if torch is None:
        return None
    build = getattr(torch, "version", None)
    if getattr(build, "cuda", None) is not None or getattr(build, "hip", None) is not None:
        return None
    version = getattr(torch, "__version__", translatable("of unknown version"))
    return translatable("this torch ({version}) was built without CUDA", version=version)


def is_rocm() -> bool:
    """Return whether the loaded torch is built for AMD GPUs, whose devices it also calls ``cuda:N``."""
    return getattr(getattr(loaded_torch(), "version", None), "hip", None) is not None


def torch_version() -> str | None:
    """Return the version of the loaded torch, or None if it is unknown or torch is not loaded."""
    return str(getattr(loaded_torch(), "__version__", "")) or None


def versions() -> TorchVersions:
    """Return the versions of torch, CUDA and cuDNN, and this thread's default device."""
    torch: Any = loaded_torch()
    if torch is None:
        return TorchVersions(None, None, None, None)
    return TorchVersions(
        torch=torch_version(),
        cuda=getattr(getattr(torch, "version", None), "cuda", None),
        cudnn=_cudnn_version(torch) if torch.cuda.is_initialized() else None,
        default_device=default_device(),
    )


def _cudnn_version(torch: Any) -> str | None:
    number: object = None
    with Boundary(_LOG, "cuDNN's version could not be read", foreign=True):
        number = torch.backends.cudnn.version()
    if not isinstance(number, int):
        return None
    # cuDNN encodes 8.9.7 as 8907 and 9.1.0 as 90100.
    major, rest = divmod(number, 10000 if number >= 90000 else 1000)
    return f"{major}.{rest // 100}.{rest % 100}"


# -- this thread's devices -------------------------------------------------------------------------------


def default_device() -> str | None:
    """Return torch's default device on this thread, or None if torch is not loaded.

    Makes no CUDA call. ``torch.get_default_device`` may make one: if the default device has no index, it
    creates a tensor, which initializes CUDA.
    """
    torch = loaded_torch()
    if torch is None:
        return None
    context = active_device_context(torch) or default_device_context(torch)
    return "cpu" if context is None else str(context.device)


def current_cuda_device() -> int | None:
    """Return the N of this thread's current device ``cuda:N``, or None if CUDA is not initialized."""
    torch = _initialized_torch()
    return None if torch is None else int(torch.cuda.current_device())


def default_device_context(torch: Any) -> Any:
    """Return the ``DeviceContext`` that torch.set_default_device entered on this thread, or None."""
    return getattr(getattr(torch, "_GLOBAL_DEVICE_CONTEXT", None), "device_context", None)


def active_device_context(torch: Any) -> Any:
    """Return the ``DeviceContext`` of the ``with torch.device(...)`` block that this thread is in, or
    None."""
    stack = getattr(getattr(torch, "overrides", None), "_get_current_function_mode_stack", None)
    default = default_device_context(torch)
    for mode in reversed(stack() if callable(stack) else []):
        if type(mode).__name__ == "DeviceContext" and mode is not default:
            return mode
    return None


# -- CUDA devices ----------------------------------------------------------------------------------------


def devices() -> tuple[TorchDevice, ...]:
    """Return the CUDA devices that torch can use (see CUDA_VISIBLE_DEVICES). Empty if CUDA is not
    initialized."""
    global _devices
    torch = _initialized_torch()
    if torch is None:
        return ()
    if _devices is None or _devices[0] is not torch:
        # Once CUDA is initialized, the devices do not change until the process ends.
        count = int(torch.cuda.device_count())
        found = tuple(TorchDevice(index, _uuid(torch, index, count)) for index in range(count))
        _devices = (torch, found)
    return _devices[1]


_devices: tuple[Any, tuple[TorchDevice, ...]] | None = None


def _uuid(torch: Any, index: int, count: int) -> str | None:
    uuid = getattr(torch.cuda.get_device_properties(index), "uuid", None)
    if uuid is not None:
        return str(uuid)
    # Older versions of torch do not report UUIDs.
    uuids = cuda_driver.device_uuids()
    return uuids[index] if uuids is not None and len(uuids) == count else None


def cuda_uuids() -> tuple[str | None, ...] | None:
    """Return the UUID of each CUDA device in CUDA's order, as torch or the CUDA driver reports it.

    A UUID that is unknown is None. Return None if this process has not initialized CUDA.
    """
    if cuda_initialized():
        return tuple(device.uuid for device in devices())
    # torch.cuda.is_available() initializes the driver, but not torch's CUDA.
    return cuda_driver.device_uuids()


def devices_with_context() -> tuple[int, ...]:
    """Return the N of every ``cuda:N`` on which this process has a context, whichever library opened it."""
    torch = _initialized_torch()
    if torch is None:
        return ()
    has_context = getattr(torch._C, "_cuda_hasPrimaryContext", None)
    if has_context is None:
        return ()
    return tuple(index for index in range(torch.cuda.device_count()) if has_context(index))


def has_context(nvml_uuid: str) -> bool:
    """Return whether this process has a context on a GPU, whichever library opened it."""
    with_context = devices_with_context()
    return any(device.index in with_context and same_gpu(nvml_uuid, device.uuid) for device in devices())


def on_device(index: int) -> AbstractContextManager[object]:
    """Return torch's context manager that makes ``cuda:index`` this thread's current device."""
    torch: Any = loaded_torch()
    return torch.cuda.device(index)  # type: ignore[no-any-return]


def synchronize() -> None:
    """Wait until the GPUs have finished this process's work, on all devices on which it has a context.

    Waits without a timeout and can't be interrupted, so call it on a separate thread. Raises the error of a
    CUDA kernel that failed earlier.
    """
    torch = _initialized_torch()
    if torch is None:
        return
    for index in devices_with_context():
        torch.cuda.synchronize(index)


def can_synchronize() -> bool:
    """Return whether :func:`synchronize` may be called. Call this on the thread that launched the work.

    The result is False if no device has a context, or if the calling thread captures a CUDA graph, because
    synchronizing would break the capture.
    """
    torch = _initialized_torch()
    return torch is not None and not torch.cuda.is_current_stream_capturing() and bool(devices_with_context())


# -- allocator counters ----------------------------------------------------------------------------------


def allocator_counters() -> dict[int, AllocatorCounters]:
    """Return the allocator's counters by device index. Empty if :func:`no_counters_reason` returns a
    reason."""
    torch = _initialized_torch()
    if torch is None or _partial_counters_reason(torch) is not None:
        return {}
    return {index: _read_counters(torch, index) for index in range(torch.cuda.device_count())}


def no_counters_reason() -> Message | None:
    """Return why there are no allocator counters, or None if there are counters."""
    torch = _initialized_torch()
    return unavailable_reason() if torch is None else _partial_counters_reason(torch)


def _partial_counters_reason(torch: Any) -> Message | None:
    backend = getattr(torch.cuda, "get_allocator_backend", None)
    if backend is not None and backend() == "cudaMallocAsync":
        return _ASYNC_ALLOCATOR
    return None


def _read_counters(torch: Any, index: int) -> AllocatorCounters:
    stats = torch.cuda.memory_stats_as_nested_dict(index)
    allocated = stats.get("allocated_bytes", {}).get("all", {})
    reserved = stats.get("reserved_bytes", {}).get("all", {})
    return AllocatorCounters(
        allocated=allocated.get("current", 0),
        allocated_peak=allocated.get("peak", 0),
        reserved=reserved.get("current", 0),
        reserved_peak=reserved.get("peak", 0),
        alloc_retries=stats.get("num_alloc_retries", 0),
        ooms=stats.get("num_ooms", 0),
        inactive_split=stats.get("inactive_split_bytes", {}).get("all", {}).get("current", 0),
        allocations=stats.get("allocation", {}).get("all", {}).get("allocated"),
    )
