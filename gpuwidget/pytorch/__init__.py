"""Public interface to the torch that the user has imported. Other packages import it, never its modules.

Nothing here imports torch or initializes CUDA. Only ``DEVICE_SWITCH`` and ``empty_cache`` may open a context,
which their modules explain. Records without behavior are in ``model/torch_state.py``. Only this package and
``heap/`` handle torch's objects.
"""

from gpuwidget.pytorch.allocation_history import (
    ALLOCATION_HISTORY,
    MAX_HISTORY_EVENTS,
    HistoryScope,
    blocks_in_use,
)
from gpuwidget.pytorch.allocator import allocation_counts, memory_blocks
from gpuwidget.pytorch.cuda_state import (
    allocator_counters,
    can_synchronize,
    cuda_initialized,
    cuda_uuids,
    current_cuda_device,
    default_device,
    devices,
    devices_with_context,
    has_context,
    is_loaded,
    is_rocm,
    loaded_torch,
    no_counters_reason,
    no_cuda_build_reason,
    on_device,
    synchronize,
    torch_version,
    unavailable_reason,
    versions,
)
from gpuwidget.pytorch.device_changes import DEVICE_CHANGES, DeviceChangeScope
from gpuwidget.pytorch.device_switch import DEVICE_SWITCH, device_context_note
from gpuwidget.pytorch.distributed import spawned_ranks, uses_nccl
from gpuwidget.pytorch.oom_error import (
    allocated_memory,
    allocator_setting,
    allocator_state,
    error_message,
    failed_stage,
    find_oom_error,
    has_zero_grad,
)
from gpuwidget.pytorch.peak_tracker import PEAK_TRACKER, PeakScope
from gpuwidget.pytorch.release_cache import (
    FREE_CACHE_STATEMENT,
    check_cache_available,
    empty_cache,
    free_cache,
    retained_cache,
    returnable_cache,
)
from gpuwidget.pytorch.stream_activity import DefaultStreams
from gpuwidget.pytorch.torch_switches import (
    TORCH_SWITCHES,
    TorchSwitch,
    compute_switches,
    cpu_threads,
    find_switch,
    set_switch,
    switch_statement,
    switch_values,
)
from gpuwidget.pytorch.torch_variables import devices_of_tensors, loaders, models

__all__ = [  # noqa: RUF022 - by topic
    # torch and its build
    "is_loaded",
    "loaded_torch",
    "torch_version",
    "versions",
    "is_rocm",
    "no_cuda_build_reason",
    "unavailable_reason",
    "cuda_initialized",
    # devices and contexts
    "devices",
    "cuda_uuids",
    "devices_with_context",
    "has_context",
    "default_device",
    "current_cuda_device",
    "device_context_note",
    "on_device",
    "DEVICE_SWITCH",
    "DEVICE_CHANGES",
    "DeviceChangeScope",
    # the GPU's work
    "DefaultStreams",
    "can_synchronize",
    "synchronize",
    # memory: in use, peak, reserved
    "no_counters_reason",
    "allocator_counters",
    "allocation_counts",
    "memory_blocks",
    "PEAK_TRACKER",
    "PeakScope",
    "ALLOCATION_HISTORY",
    "MAX_HISTORY_EVENTS",
    "HistoryScope",
    "blocks_in_use",
    # what can be freed
    "check_cache_available",
    "returnable_cache",
    "retained_cache",
    "free_cache",
    "empty_cache",
    "FREE_CACHE_STATEMENT",
    # an out-of-memory error
    "find_oom_error",
    "error_message",
    "failed_stage",
    "allocated_memory",
    "allocator_state",
    "allocator_setting",
    "has_zero_grad",
    # switches
    "TORCH_SWITCHES",
    "TorchSwitch",
    "find_switch",
    "switch_values",
    "switch_statement",
    "set_switch",
    "compute_switches",
    "cpu_threads",
    # the user's variables and processes
    "loaders",
    "models",
    "devices_of_tensors",
    "spawned_ranks",
    "uses_nccl",
]
