"""The state that a kernel sends to a view: its torch devices, and its memory on each GPU.

Every class is frozen and no field has a default: an unknown value is None. Sizes are bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

SCHEMA = 1
"""Version of the state's schema, sent with every state."""


@dataclass(frozen=True, slots=True)
class DeviceState:
    """The default torch device of one kernel: the choice, and torch's own value."""

    chosen: str | None
    """The last choice, ``cpu`` or ``cuda:N``; None for torch's own default."""
    new_tensors: bool
    """Whether new tensors go there too (torch.set_default_device), or only the current CUDA device
    changes."""
    pending: bool
    """Whether the choice is stored and not applied yet: it applies from the next cell."""
    present: str | None
    """torch's default device on the cells' thread when a cell last started or ended; None while unknown."""
    note: str | None
    """A sentence for the user, or None."""


@dataclass(frozen=True, slots=True)
class DeviceChoice:
    """A device to choose, and the GPU behind it."""

    device: str
    """``cpu`` or ``cuda:N``, torch's name."""
    uuid: str | None
    """NVML's UUID of the GPU; None for the CPU and while it is unknown which GPU it will be."""
    index: int | None
    """NVML's index, nvidia-smi's number."""
    name: str | None
    """Product name."""
    compute_capability: str | None
    """As "9.0"."""
    memory_total: int | None
    """Bytes."""
    memory_free: int | None
    """Bytes that no process uses; None where unknown."""
    holders: tuple[str, ...]
    """The processes with a context on it: "this notebook" and others; empty where unknown. The names of other
    users and of their notebooks are only in a :class:`KernelState`, which no notebook saves."""


@dataclass(frozen=True, slots=True)
class KernelGpu:
    """This kernel's share of one GPU."""

    uuid: str
    torch_device: str | None
    """``cuda:N`` in this kernel; None where it is no torch device, or unknown."""
    process_memory: int | None
    """Bytes held by the kernel and its children, None where unknown."""
    torch_reserved: int | None
    """Bytes that torch's allocator in the kernel's process has reserved, with its cache and without the
    CUDA context; None where torch is not loaded, CUDA is not initialized or the value is unknown."""
    context: bool
    """Whether the kernel is known to have a CUDA context there, which stays until its process ends."""


@dataclass(frozen=True, slots=True)
class Switch:
    """One of torch's switches that trade speed for precision or reproducibility."""

    name: str
    """As ``cudnn.benchmark``."""
    title: str
    """Its name for users."""
    value: str | None
    """The current choice; None where it can't be read."""
    choices: tuple[str, ...]
    default: str
    """torch's default."""
    pending: str | None
    """The requested choice, which applies from the next cell; None without one."""
    statement: str | None
    """The Python statement that applies the pending choice; else the last one that ran for it, or None."""
    trades: str
    """What it trades for what, in sentences."""
    note: str | None
    """Why its value is unknown or was not set, or a remark; a sentence or None."""


@dataclass(frozen=True, slots=True)
class KernelState:
    """The state that a kernel sends to a view."""

    schema: int
    version: str
    """gpuwidget's, in the kernel's environment."""
    pid: int
    """The kernel's process id in its namespace."""
    torch: str | None
    """Version of the loaded torch, None without one."""
    cuda_initialized: bool
    """Whether torch has initialized CUDA in the kernel's process."""
    watching: bool
    """Whether every cell leaves a one-line card (``%gpu watch on``)."""
    device: DeviceState
    choices: tuple[DeviceChoice, ...]
    unavailable: str | None
    """Why there is nothing to choose, as a sentence, or None."""
    gpus: tuple[KernelGpu, ...]
    """One for each GPU of the kernel's source of readings, in NVML's order."""
    switches: tuple[Switch, ...]
    """torch's switches; without a value while torch is not loaded."""
