"""Find how much GPU memory JAX has reserved, if the user's code uses JAX.

When JAX starts, it reserves three quarters of each GPU's memory in advance, unless the user has turned that
off. The driver counts all of it as used by the process, whatever the code needs.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import Any, NamedTuple

from gpuwidget.model.boundary import Boundary

_LOG = logging.getLogger(__name__)


class JaxPool(NamedTuple):
    """JAX's memory on one GPU, in bytes, from ``memory_stats()`` of its device."""

    reserved: int
    in_use: int
    """Bytes of arrays now."""
    peak: int
    """Highest number of bytes of arrays since JAX started."""


def reserves_in_advance() -> bool:
    """Return whether JAX reserves memory in advance, not only as needed, according to its variable."""
    return os.environ.get("XLA_PYTHON_CLIENT_PREALLOCATE") not in ("0", "false", "False")  # as JAX reads it


def jax_pools() -> dict[int, JaxPool]:
    """Return JAX's pool on each GPU, by the GPU's number among those that are visible to CUDA.

    Empty if JAX is not loaded or has not started on a GPU: this function never starts it. The call takes 30
    µs per GPU.
    """
    bridge: Any = sys.modules.get("jax._src.xla_bridge")
    jax: Any = sys.modules.get("jax")
    if bridge is None:
        return {}
    # These functions differ between versions of JAX, and the pool is only an explanation.
    with Boundary(_LOG, "JAX's pool could not be read", foreign=True):
        if not bridge.backends_are_initialized():
            return {}
        devices = [device for device in jax.local_devices() if device.platform == "gpu"]
        found = {}
        for place, device in enumerate(devices):
            stats = device.memory_stats() or {}
            if stats.get("pool_bytes"):
                number = getattr(device, "local_hardware_id", None)
                sizes = (int(stats[key]) for key in ("pool_bytes", "bytes_in_use", "peak_bytes_in_use"))
                found[place if number is None else number] = JaxPool(*sizes)
        return found
    return {}
