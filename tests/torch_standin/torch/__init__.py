"""A stand-in for torch on imaginary GPUs, with the parts of its devices and tensors that gpuwidget uses.

Tests put its folder first on the ``sys.path`` of a separate process, which then imports it as torch. The
environment variable TORCH_STANDIN_GPUS (default 2) is the number of GPUs. If it is 0, the stand-in behaves
like a torch that was built without CUDA.

As in torch, each thread has its default device and its current device. The first use of CUDA initializes
CUDA and runs the calls that were queued until then. Setting the current device opens a context on it.
"""

from __future__ import annotations

import os
import threading
from types import SimpleNamespace
from typing import Any

GPUS = int(os.environ.get("TORCH_STANDIN_GPUS", "2"))
__version__ = "2.13.0" if GPUS else "2.13.0+cpu"
version = SimpleNamespace(cuda="13.0" if GPUS else None, hip=None)

_GLOBAL_DEVICE_CONTEXT = threading.local()
_thread = threading.local()
events: list[str] = []
"""Contains an entry for every CUDA context that was opened."""


class device:
    def __init__(self, name: object) -> None:
        self.type, _, number = str(name).partition(":")
        self.index = int(number) if number else None

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __repr__(self) -> str:
        return f"device({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def __enter__(self) -> None:
        _modes().append(DeviceContext(self))

    def __exit__(self, *_: object) -> None:
        _modes().pop()


class DeviceContext:
    def __init__(self, one: object) -> None:
        self.device = device(one)


class UntypedStorage:
    """A tensor's memory. As for a tensor on the CPU, its address is in no block of a GPU's memory."""

    def data_ptr(self) -> int:
        return 0

    def nbytes(self) -> int:
        return 0


class Tensor:
    device = property(lambda self: self._device)
    requires_grad = property(lambda self: False)
    is_leaf = property(lambda self: True)
    grad = grad_fn = property(lambda self: None)

    def __init__(self, one: device) -> None:
        self._device = one

    def to(self, one: object) -> Tensor:
        return Tensor(_resolved(device(one)))

    def cuda(self) -> Tensor:
        return self.to("cuda")

    def untyped_storage(self) -> UntypedStorage:
        return UntypedStorage()

    def __add__(self, other: Tensor) -> Tensor:
        if self.device != other.device:
            raise RuntimeError(
                "Expected all tensors to be on the same device, but found at least two devices, "
                f"{self.device} and {other.device}!"
            )
        return Tensor(self.device)


def _modes() -> list[Any]:
    if not hasattr(_thread, "modes"):
        _thread.modes = []
    return _thread.modes  # type: ignore[no-any-return]


def _stack() -> list[Any]:
    default = getattr(_GLOBAL_DEVICE_CONTEXT, "device_context", None)
    return [*([] if default is None else [default]), *_modes()]


def set_default_device(one: object) -> None:
    if _modes():
        raise AssertionError("within torch.device()")
    _GLOBAL_DEVICE_CONTEXT.device_context = None if one is None else DeviceContext(one)


def get_default_device() -> device:
    stack = _stack()
    return stack[-1].device if stack else device("cpu")


def empty(*_: int, device: object = None) -> Tensor:
    return Tensor(_resolved(get_default_device() if device is None else globals()["device"](device)))


def _resolved(one: device) -> device:
    if one.type != "cuda":
        return one
    cuda._lazy_init()
    index = cuda.current_device() if one.index is None else one.index
    cuda._open(index)
    return device(f"cuda:{index}")


class _Cuda:
    def __init__(self) -> None:
        self._up = False
        self._initializing = False
        self._queued: list[Any] = []
        self.contexts: set[int] = set()

    def is_initialized(self) -> bool:
        return self._up

    def is_available(self) -> bool:
        return GPUS > 0

    def _lazy_call(self, call: Any) -> None:
        if self._up:
            call()
        else:
            self._queued.append(call)

    def _lazy_init(self) -> None:
        if self._up or self._initializing:
            return
        if not GPUS:
            raise AssertionError("Torch not compiled with CUDA enabled")
        self._initializing = True
        for call in self._queued:
            call()
        self._initializing = False
        self._up = True

    def init(self) -> None:
        self._lazy_init()

    def device_count(self) -> int:
        return GPUS

    def current_device(self) -> int:
        self._lazy_init()
        return getattr(_thread, "current", 0)

    def set_device(self, one: object) -> None:
        index = one if isinstance(one, int) else device(one).index
        self._lazy_init()
        assert index is not None
        _C._cuda_setDevice(index)

    def _maybe_exchange_device(self, index: int) -> int:
        before, _thread.current = self.current_device(), index
        return before

    def _open(self, index: int) -> None:
        if index not in self.contexts:
            self.contexts.add(index)
            events.append(f"context on {index}")

    def get_device_properties(self, index: int) -> Any:
        return SimpleNamespace(uuid=f"{index:08d}-aaaa-bbbb-cccc-dddddddddddd")

    def is_current_stream_capturing(self) -> bool:
        return False

    def synchronize(self, index: int) -> None:
        pass

    def get_allocator_backend(self) -> str:
        return "cudaMallocAsync"  # With this backend, gpuwidget does not read memory counters.


def _set_device(index: int) -> None:
    if index >= GPUS:
        raise RuntimeError("CUDA error: invalid device ordinal\nCompile with TORCH_USE_CUDA_DSA")
    _thread.current = index
    cuda._open(index)


class _NoHooks:
    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


class _Module:
    def __init__(self) -> None:
        self._parameters: dict[str, Tensor] = {}
        self._buffers: dict[str, Tensor] = {}
        self._modules: dict[str, _Module] = {}


class _Optimizer:
    pass


class _FunctionCtx:
    pass


cuda = _Cuda()
nn = SimpleNamespace(Module=_Module)
optim = SimpleNamespace(Optimizer=_Optimizer)
autograd = SimpleNamespace(function=SimpleNamespace(FunctionCtx=_FunctionCtx))
overrides = SimpleNamespace(_get_current_function_mode_stack=_stack)
backends = SimpleNamespace(cudnn=SimpleNamespace(version=lambda: None))
_C = SimpleNamespace(
    _cuda_hasPrimaryContext=lambda index: index in cuda.contexts,
    _cuda_setDevice=_set_device,
    DisableTorchFunction=_NoHooks,
)
