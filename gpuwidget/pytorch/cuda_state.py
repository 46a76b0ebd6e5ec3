"""What torch, where the user has imported it, says of its devices; the one home of torch.

Nothing here imports torch, initialises CUDA or opens a context: a process in which torch is not loaded, or
in which CUDA is not up, has no device as far as this module is concerned.

The allocator has one peak counter a device, which anybody may reset and nobody can set
(https://github.com/pytorch/pytorch/issues/16266). :class:`Ledger` shares it among any number of runs.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from gpuwidget.model.fork import reset_after_fork
from gpuwidget.pytorch.hooks import Taps

_NOT_LOADED = "torch is not loaded"
_NOT_UP = "CUDA is not initialised in this process"
_RESETS = ("_cuda_resetPeakMemoryStats", "_accelerator_resetPeakStats")
_ASYNC_ALLOCATOR = "torch runs on cudaMallocAsync, whose counters are partial"


@dataclass(frozen=True, slots=True)
class TorchDevice:
    """One of torch's CUDA devices."""

    index: int
    """The N of ``cuda:N``."""
    uuid: str | None
    """NVML's UUID of the GPU or MIG slice behind it; None where this torch does not say."""

    @property
    def name(self) -> str:
        """``cuda:N``."""
        return f"cuda:{self.index}"


@dataclass(frozen=True, slots=True)
class Counters:
    """The caching allocator's counters of one device (torch.cuda.memory_stats), in bytes and counts."""

    allocated: int
    allocated_peak: int
    reserved: int
    reserved_peak: int
    alloc_retries: int
    ooms: int
    inactive_split: int
    """Free bytes beside allocated ones in a segment, which can't be given back."""


@dataclass(frozen=True, slots=True)
class TorchVersions:
    """What is loaded; None for what is not."""

    torch: str | None
    cuda: str | None
    cudnn: str | None
    default_device: str | None


def _torch() -> ModuleType | None:
    torch = sys.modules.get("torch")
    # While the user's own `import torch` runs on another thread, a half-built module stands there.
    cuda = getattr(torch, "cuda", None)
    return torch if callable(getattr(cuda, "is_initialized", None)) else None


def _torch_with_cuda_up() -> Any | None:
    torch = _torch()
    return torch if torch is not None and torch.cuda.is_initialized() else None


def loaded() -> Any | None:
    """The torch that the user's code has imported, None before."""
    return _torch()


def without_cuda() -> str | None:
    """Why the torch that is loaded can use no CUDA device at all, or None where it may."""
    torch: Any = _torch()
    if torch is None:
        return None
    version = getattr(torch, "version", None)
    if getattr(version, "cuda", None) is not None or getattr(version, "hip", None) is not None:
        return None
    return f"this torch ({getattr(torch, '__version__', 'of unknown version')}) was built without CUDA"


def is_rocm() -> bool:
    """Whether the torch that is loaded is AMD's, whose devices are called ``cuda:N`` too."""
    return getattr(getattr(_torch(), "version", None), "hip", None) is not None


def cuda_initialized() -> bool:
    """Whether torch has brought CUDA up in this process."""
    return _torch_with_cuda_up() is not None


def absent() -> str | None:
    """Why torch can say nothing of any device, or None where it can."""
    torch = _torch()
    if torch is None:
        return _NOT_LOADED
    return None if torch.cuda.is_initialized() else _NOT_UP


def versions() -> TorchVersions:
    """Versions of what is loaded, and this thread's default device."""
    torch: Any = _torch()
    if torch is None:
        return TorchVersions(None, None, None, None)
    return TorchVersions(
        torch=str(getattr(torch, "__version__", "")) or None,
        cuda=getattr(getattr(torch, "version", None), "cuda", None),
        cudnn=_cudnn_version(torch) if torch.cuda.is_initialized() else None,
        default_device=default_device(),
    )


def default_device() -> str | None:
    """torch's default device on this thread, None where torch is not loaded.

    Asks nothing of CUDA: for a device without a number torch.get_default_device makes a tensor, and so
    starts CUDA.
    """
    torch = _torch()
    if torch is None:
        return None
    context = device_scope(torch) or default_context(torch)
    return "cpu" if context is None else str(context.device)


def current_cuda_device() -> int | None:
    """The N of this thread's current ``cuda:N``, what ``"cuda"`` means; None while CUDA is not up."""
    torch = _torch_with_cuda_up()
    return None if torch is None else int(torch.cuda.current_device())


def default_context(torch: Any) -> Any:
    """What torch.set_default_device has put in place on this thread; None where nobody called it."""
    return getattr(getattr(torch, "_GLOBAL_DEVICE_CONTEXT", None), "device_context", None)


def device_scope(torch: Any) -> Any:
    """The ``with torch.device(...)`` that this thread is in; None outside of one."""
    stack = getattr(getattr(torch, "overrides", None), "_get_current_function_mode_stack", None)
    default = default_context(torch)
    for mode in reversed(stack() if callable(stack) else []):
        if type(mode).__name__ == "DeviceContext" and mode is not default:
            return mode
    return None


def _cudnn_version(torch: Any) -> str | None:
    try:
        number = torch.backends.cudnn.version()
    except Exception:
        return None
    if not isinstance(number, int):
        return None
    # cuDNN counts 8.9.7 as 8907 and 9.1.0 as 90100.
    major, rest = divmod(number, 10000 if number >= 90000 else 1000)
    return f"{major}.{rest // 100}.{rest % 100}"


def devices() -> tuple[TorchDevice, ...]:
    """The CUDA devices that torch sees, after CUDA_VISIBLE_DEVICES; empty while CUDA is not up."""
    global _devices
    torch = _torch_with_cuda_up()
    if torch is None:
        return ()
    if _devices is None or _devices[0] is not torch:
        # Once CUDA is up its devices are the same until the process ends.
        found = tuple(TorchDevice(index, _uuid(torch, index)) for index in range(torch.cuda.device_count()))
        _devices = (torch, found)
    return _devices[1]


_devices: tuple[Any, tuple[TorchDevice, ...]] | None = None


def _uuid(torch: Any, index: int) -> str | None:
    uuid = getattr(torch.cuda.get_device_properties(index), "uuid", None)
    return None if uuid is None else str(uuid)


def same_gpu(nvml_uuid: str, torch_uuid: str | None) -> bool:
    """Whether NVML's UUID (``GPU-…``, ``MIG-…``) and torch's (without the prefix) name the same."""
    if torch_uuid is None:
        return False
    return nvml_uuid.partition("-")[2].lower() == torch_uuid.lower() or nvml_uuid == torch_uuid


def devices_with_context() -> tuple[int, ...]:
    """The N of every ``cuda:N`` on which this process has opened a context, by whatever library."""
    torch = _torch_with_cuda_up()
    if torch is None:
        return ()
    has_context = getattr(torch._C, "_cuda_hasPrimaryContext", None)
    if has_context is None:
        return ()
    return tuple(index for index in range(torch.cuda.device_count()) if has_context(index))


def synchronize() -> None:
    """Wait until the GPU has done all work of this process, on devices where it has a context.

    Blocks without a bound and can't be interrupted: call it on a thread of its own. Raises whatever a
    kernel that failed left behind.
    """
    torch = _torch_with_cuda_up()
    if torch is None:
        return
    for index in devices_with_context():
        torch.cuda.synchronize(index)


def may_wait() -> bool:
    """Whether there may be work to wait for, and waiting does no harm; asked on the thread that queued it.

    While that thread captures a CUDA graph, to synchronize would spoil the capture.
    """
    torch = _torch_with_cuda_up()
    return torch is not None and not torch.cuda.is_current_stream_capturing() and bool(devices_with_context())


def counters() -> dict[int, Counters]:
    """The allocator's counters by device index; empty while CUDA is not up or where they are partial."""
    torch = _torch_with_cuda_up()
    if torch is None or _why_partial(torch) is not None:
        return {}
    return {index: _read(torch, index) for index in range(torch.cuda.device_count())}


def missing_reason() -> str | None:
    """Why there are no allocator counters, or None where there are."""
    torch = _torch_with_cuda_up()
    return absent() if torch is None else _why_partial(torch)


def _why_partial(torch: Any) -> str | None:
    backend = getattr(torch.cuda, "get_allocator_backend", None)
    if backend is not None and backend() == "cudaMallocAsync":
        return _ASYNC_ALLOCATOR
    return None


def _read(torch: Any, index: int) -> Counters:
    stats = torch.cuda.memory_stats_as_nested_dict(index)
    allocated = stats.get("allocated_bytes", {}).get("all", {})
    reserved = stats.get("reserved_bytes", {}).get("all", {})
    return Counters(
        allocated=allocated.get("current", 0),
        allocated_peak=allocated.get("peak", 0),
        reserved=reserved.get("current", 0),
        reserved_peak=reserved.get("peak", 0),
        alloc_retries=stats.get("num_alloc_retries", 0),
        ooms=stats.get("num_ooms", 0),
        inactive_split=stats.get("inactive_split_bytes", {}).get("all", {}).get("current", 0),
    )


@dataclass(slots=True)
class _Peaks:
    allocated: int = 0
    reserved: int = 0

    def raise_to(self, counters: Counters) -> None:
        self.allocated = max(self.allocated, counters.allocated_peak)
        self.reserved = max(self.reserved, counters.reserved_peak)


@dataclass(frozen=True, slots=True)
class DeviceAccount:
    """What one device's allocator did during a run; the peaks are exact."""

    before: Counters | None
    """None where CUDA was not up at the start: nothing was allocated then."""
    after: Counters
    allocated_peak: int
    reserved_peak: int


class Account:
    """One run's share of the peak counters, from :meth:`Ledger.open` to :meth:`Ledger.close`."""

    def __init__(self, before: dict[int, Counters]) -> None:
        self._before = before
        self._peaks: dict[int, _Peaks] = {}
        self.hidden_peaks: dict[int, int] = {}
        """By device index: the older peak (bytes) that would have hidden this run's, so that the counter
        was reset at the start."""
        self.user_resets = 0
        """How often other code reset the counter meanwhile."""

    def fold(self, index: int, counters: Counters) -> None:
        """Take over a peak that is about to be reset."""
        self._peaks.setdefault(index, _Peaks()).raise_to(counters)

    def settle(self, after: dict[int, Counters]) -> dict[int, DeviceAccount]:
        """The account of each device at the run's end."""
        accounts = {}
        for index, counters in after.items():
            self.fold(index, counters)
            peaks = self._peaks[index]
            accounts[index] = DeviceAccount(
                before=self._before.get(index),
                after=counters,
                allocated_peak=peaks.allocated,
                reserved_peak=peaks.reserved,
            )
        return accounts


class Ledger:
    """Shares torch's resettable peak counters among all runs of the process, nested and concurrent ones."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._accounts: list[Account] = []
        self._taps = Taps()

    def open(self) -> Account:
        """Begin a run. Resets a counter only where an older, higher peak would hide the run's own."""
        with self._lock:
            before = counters()
            account = Account(before)
            for index, now in before.items():
                if now.allocated_peak > now.allocated or now.reserved_peak > now.reserved:
                    self._reset(index, now)
                    hidden = now.allocated_peak if now.allocated_peak > now.allocated else now.reserved_peak
                    account.hidden_peaks[index] = hidden
            self._accounts.append(account)
            self.listen()
            return account

    def close(self, account: Account) -> dict[int, DeviceAccount]:
        """End a run, and say what each device's allocator did, by device index."""
        with self._lock:
            accounts = account.settle(counters())
            self.drop(account)
            return accounts

    def drop(self, account: Account) -> None:
        """End a run without asking anything; safe to call twice."""
        with self._lock:
            if account in self._accounts:
                self._accounts.remove(account)
            if not self._accounts:
                self._taps.remove()

    def listen(self) -> None:
        """Hear of resets by other code, as soon as torch is there; costs nothing until one happens.

        Every public way to reset the peaks ends in one of two functions of torch's; during a run each is
        preceded by a look at the peak that is about to be lost.
        """
        torch: Any = _torch()
        with self._lock:
            if torch is not None and self._accounts:
                self._taps.put(torch, _RESETS, self._noting)

    def _noting(self, original: Callable[..., None]) -> Callable[..., None]:
        def reset(*args: Any) -> None:
            self._note_user_reset()
            original(*args)

        return reset

    def _note_user_reset(self) -> None:
        with self._lock:
            now = counters()
            for account in self._accounts:
                account.user_resets += 1
                for index, device_counters in now.items():
                    account.fold(index, device_counters)

    def _reset(self, index: int, now: Counters) -> None:
        torch: Any = _torch()
        for account in self._accounts:
            account.fold(index, now)
        reset = self._taps.original(_RESETS[0]) or getattr(torch._C, _RESETS[0])
        reset(index)

    def reset_in_child(self) -> None:
        """After a fork no run is the child's, and a lock that another thread held is free."""
        self._lock = threading.RLock()
        self._accounts = []
        self._taps.remove()


LEDGER = Ledger()
"""The process's one."""

reset_after_fork(LEDGER.reset_in_child)
