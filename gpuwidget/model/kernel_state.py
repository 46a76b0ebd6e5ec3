"""The state that a kernel sends to a view: its torch devices, its memory on each GPU, and torch's switches.

All classes are frozen, and no field has a default. An unknown value is None. Sizes are in bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from gpuwidget.model.messages import Message, MessageId

KERNEL_SCHEMA = 1
"""Version of the JSON schema. It is sent with every state."""


@dataclass(frozen=True, slots=True)
class DeviceState:
    """The default torch device of one kernel: the user's choice, and torch's current setting."""

    chosen: str | None
    """The user's last choice, ``cpu`` or ``cuda:N``. None stands for torch's own default."""
    new_tensors: bool
    """Whether new tensors are also created on the device (torch.set_default_device). If not, the choice
    changes only the current CUDA device."""
    pending: bool
    """Whether the choice still has to be applied, which happens before the next cell."""
    present: str | None
    """torch's default device on the thread that runs cells, read when a cell last started or ended. None if
    unknown."""
    note: str | None
    """A remark for the user, or None."""


@dataclass(frozen=True, slots=True)
class CandidateGpu:
    """A GPU that a device may be, as long as it is unknown which GPU the device is."""

    uuid: str
    index: int
    """NVML's index, as in nvidia-smi."""
    name: str
    """Product name."""
    compute_capability: str | None
    """Compute capability, such as "9.0"."""
    memory_total: int | None
    """Bytes of memory."""
    memory_free: int | None
    """Bytes of memory that no process uses, or None if that is unknown."""
    unified_memory: bool
    """Whether the GPU uses the host's memory."""


@dataclass(frozen=True, slots=True)
class DeviceChoice:
    """A device that the user can choose as the default, and its GPU."""

    device: str
    """torch's name of the device: ``cpu`` or ``cuda:N``."""
    uuid: str | None
    """UUID of the GPU, from NVML. None for the CPU, and as long as it is unknown which GPU the device will
    be."""
    index: int | None
    """NVML's index of the GPU, as in nvidia-smi; None for the CPU or if unknown."""
    name: str | None
    """Product name of the GPU."""
    compute_capability: str | None
    """Compute capability of the GPU, such as "9.0"."""
    memory_total: int | None
    """Bytes of memory."""
    memory_free: int | None
    """Bytes of memory that no process uses, or None if that is unknown."""
    unified_memory: bool
    """Whether the GPU uses the host's memory."""
    holders: tuple[str, ...]
    """The processes with a context on the GPU: "this notebook" and others. Empty if unknown. Names of other
    users and of their notebooks appear only in a :class:`KernelState`, because it is never saved in a
    notebook."""
    candidates: tuple[CandidateGpu, ...]
    """As long as it is unknown which GPU the device is: the GPUs that it may be, in NVML's order. Empty if
    the GPU is known, and for the CPU."""


@dataclass(frozen=True, slots=True)
class DeviceOrder:
    """How certain it is which GPU each ``cuda:N`` is."""

    source: Literal["cuda", "environment"] | None
    """``cuda``: CUDA has started in the kernel, and the GPUs' UUIDs come from it. ``environment``: CUDA has
    not started, but the order follows from the environment variables and the GPUs' models. None: it is
    unknown which GPU a device is, or there is no CUDA device."""
    notes: tuple[Message, ...]
    """Sentences for the user: why the order is unknown and how to make it certain, or where the numbers are
    not those of nvidia-smi and what makes them agree."""
    note_ids: tuple[MessageId, ...] = field(init=False)
    """The ids and parameters of ``notes``, in the same order."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "note_ids", tuple(note.message_id for note in self.notes))


@dataclass(frozen=True, slots=True)
class KernelGpu:
    """What this kernel uses of one GPU."""

    uuid: str
    torch_device: str | None
    """``cuda:N`` in this kernel. None if torch can't use the GPU, or if that is unknown."""
    process_memory: int | None
    """Bytes that the kernel and its children hold, or None if unknown."""
    torch_reserved: int | None
    """Bytes that torch's allocator has reserved in the kernel's process, including its cache but not the CUDA
    context. None if torch is not loaded, CUDA is not initialized or the value is unknown."""
    context: bool
    """Whether the kernel is known to have a CUDA context on the GPU. A context exists until the process
    ends."""


@dataclass(frozen=True, slots=True)
class Switch:
    """One of torch's switches that trade speed for precision or reproducibility."""

    name: str
    """The switch's name, such as ``cudnn.benchmark``."""
    title: str
    """The switch's name for users."""
    value: str | None
    """The current value, or None if it can't be read."""
    choices: tuple[str, ...]
    default: str
    """torch's default value."""
    pending: str | None
    """The requested value, which will apply from the next cell on, or None if no value is requested."""
    statement: str | None
    """The Python statement that will set the pending value. If no value is pending, the statement that last
    set the switch, or None if gpuwidget has not set it."""
    trades: str
    """Sentences that describe what the switch gains and what it costs."""
    note: str | None
    """A remark for the user, for example about why the value is unknown or was not set. None if there is
    none."""


@dataclass(frozen=True, slots=True)
class KernelState:
    """The state that a kernel sends to a view."""

    schema: int
    version: str
    """Version of gpuwidget in the kernel's environment."""
    pid: int
    """The kernel's process id in the PID namespace of the kernel."""
    torch: str | None
    """Version of torch, or None if torch is not loaded."""
    cuda_initialized: bool
    """Whether torch has initialized CUDA in the kernel's process."""
    watching: bool
    """Whether a one-line card is shown after every cell (``%gpu watch on``)."""
    device: DeviceState
    choices: tuple[DeviceChoice, ...]
    order: DeviceOrder
    unavailable: str | None
    """A sentence that explains why the user can't choose a device, or None."""
    gpus: tuple[KernelGpu, ...]
    """One entry per GPU of the kernel's source, in NVML's order."""
    switches: tuple[Switch, ...]
    """torch's switches. Their values are None while torch is not loaded."""
