"""The GPUs of this machine, as NVIDIA's management library (NVML) reports them.

Reached through NVIDIA's own Python binding, the module ``pynvml`` of the package nvidia-ml-py. This module
opens and closes it; what one GPU is asked is in ``nvml_device``.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from gpuwidget.model.clock import SYSTEM_CLOCK, Clock
from gpuwidget.model.errors import GpuLostError, SourceError, SourceLostError
from gpuwidget.model.fork import reset_after_fork
from gpuwidget.model.samples import Activity, Gpu, Origin, Process
from gpuwidget.sources import Fast, Inventory, Slow, Steady, Window
from gpuwidget.sources import nvml_messages as words
from gpuwidget.sources.nvml_device import SLOW_VALUES, STEADY_VALUES, Device, Library
from gpuwidget.sources.nvml_errors import Xids
from gpuwidget.sources.nvml_inventory import cuda_version, find_gpu, text
from gpuwidget.system import processes

_LOG = logging.getLogger(__name__)

_PATIENCE_S = 0.5
"""How long opening waits for calls that are under way, and these for it; one that hangs never ends."""
_CLOSED = "The NVIDIA driver is closed."
_NO_FAST = Fast(
    None,
    None,
    None,
    None,
    dict.fromkeys(("utilization", "memory_utilization", "memory_used", "power_w"), words.REOPENING),
)
_NO_STEADY = Steady(
    None,
    None,
    None,
    None,
    None,
    None,
    dict.fromkeys(STEADY_VALUES, words.REOPENING),
)
_NO_SLOW = Slow(None, None, None, None, None, dict.fromkeys(SLOW_VALUES, words.REOPENING))

_T = TypeVar("_T")


class _CannotOpen(Exception):
    """There is no GPU to read; its text says why and what to do."""


class _Opened(NamedTuple):
    inventory: Inventory
    devices: dict[str, Device]


class NvmlSource:
    """A source of readings (see :class:`gpuwidget.sources.Source`)."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._reset()
        reset_after_fork(self._reset_in_child)

    def _reset(self) -> None:
        self._closed_reason = _CLOSED
        self._changed = threading.Condition(threading.Lock())
        self._devices: dict[str, Device] = {}
        self._nvml: Any = None
        self._xids = Xids(self._clock)
        self._times_started = 0
        self._calls = 0
        self._opening_since: float | None = None
        self._close_after_calls = False

    def _reset_in_child(self) -> None:
        # What the parent process opened is the parent's to shut down.
        self._reset()
        self._closed_reason = "This process was forked from the one that opened the NVIDIA driver."

    # -- opening and closing -------------------------------------------------------------------------

    def open(self) -> Inventory:
        """Start NVML anew and find the GPUs. Never raises: without GPUs, the origin says why.

        A GPU that can't be opened is left out, the others are there.
        """
        self.forget_activity()
        with self._changed:
            self._close_after_calls = False
            self._opening_since = self._clock.monotonic()
            idle = self._await_calls()
            self._devices = {}
        if idle:
            self._shut_down()
        opened = self._start_safely()
        if idle and not opened.devices:
            self._shut_down()
        with self._changed:
            self._devices = opened.devices
            self._closed_reason = _CLOSED
            self._opening_since = None
            self._changed.notify_all()
        return replace(opened.inventory, xids=dict(self._xids.newest))

    def close(self) -> None:
        """Let go of the driver, once no call is under way any more. Safe to call twice."""
        self.forget_activity()
        with self._changed:
            self._devices = {}
            self._close_after_calls = self._calls > 0
            if self._close_after_calls:
                return
        self._shut_down()

    def _await_calls(self) -> bool:
        # NVML must not be shut down under a call; under one that hangs it would itself hang.
        deadline = self._clock.monotonic() + _PATIENCE_S
        while self._calls:
            left = deadline - self._clock.monotonic()
            if left <= 0:
                return False
            self._clock.wait(self._changed, left)
        return True

    def _shut_down(self) -> None:
        self._xids.let_go()
        while self._times_started:
            self._times_started -= 1
            with suppress(self._nvml.NVMLError):
                self._nvml.nvmlShutdown()

    def _start_safely(self) -> _Opened:
        try:
            return self._start()
        except (_CannotOpen, SourceError) as error:
            return _nothing(str(error))
        except Exception as error:
            # Whatever a binding of another version does: it is no reason to break a notebook.
            _LOG.debug("NVML could not be read", exc_info=True)
            return _nothing(f"The NVIDIA driver could not be read ({type(error).__name__}: {error}).")

    def _start(self) -> _Opened:
        self._nvml = nvml = _binding()
        try:
            nvml.nvmlInit()
            self._times_started += 1
            driver = text(nvml.nvmlSystemGetDriverVersion())
            count = nvml.nvmlDeviceGetCount()
        except nvml.NVMLError as error:
            raise _CannotOpen(words.cannot_start(error.value, str(error))) from error
        origin = Origin(
            kind="nvml", reason=None, recording=None, driver=driver, cuda_driver=cuda_version(nvml)
        )
        library = Library(
            nvml=nvml,
            clock=self._clock,
            directory=processes.Directory(self._clock) if processes.in_host_pid_namespace() else None,
            scrambled=words.scrambles_processes(driver),
            xids=self._xids,
        )
        gpus: list[Gpu] = []
        devices: dict[str, Device] = {}
        reason = words.NO_GPU
        for index in range(count):
            try:
                found = find_gpu(library, index)
            except nvml.NVMLError as error:
                reason = words.cannot_start(error.value, str(error))
                _LOG.debug("GPU %d can't be opened: %s", index, error)
            except GpuLostError as error:
                reason = str(error)
                _LOG.debug("GPU %d can't be opened: %s", index, error)
            else:
                gpus += (gpu for gpu, _ in found)
                devices.update((gpu.uuid, device) for gpu, device in found)
        if not gpus:
            return _nothing(reason, driver, origin.cuda_driver)
        return _Opened(Inventory(origin, tuple(gpus)), devices)

    # -- readings ------------------------------------------------------------------------------------

    def read_fast(self, gpu: Gpu) -> Fast:
        """Three NVML calls, one for a MIG slice, which has no utilization and power of its own.

        Power is that of the moment; on drivers without that field the mean of the last second.
        """
        return self._call(gpu, Device.read_fast, _NO_FAST)

    def read_memory(self, gpu: Gpu) -> int | None:
        """One NVML call; none where the GPU works in the host's memory."""
        return self._call(gpu, Device.read_memory, None)

    def read_processes(self, gpu: Gpu) -> tuple[Process, ...] | None:
        """Two NVML calls. Why it was None is in ``missing`` of the next ``read_fast``."""
        return self._call(gpu, Device.read_processes, None)

    def read_steady(self, gpu: Gpu) -> Steady:
        """Six NVML calls, none for a MIG slice."""
        return self._call(gpu, Device.read_steady, _NO_STEADY)

    def read_slow(self, gpu: Gpu) -> Slow:
        """One NVML call of some milliseconds, and cheap ones for errors.

        At first also those that find the utilization window.
        """
        return self._call(gpu, Device.read_slow, _NO_SLOW)

    def read_windows(self, gpu: Gpu) -> tuple[Window, ...]:
        """One NVML call of some milliseconds; the driver keeps about 14 s (H200)."""
        return self._call(gpu, Device.read_windows, ())

    def read_activity(self, gpu: Gpu) -> Activity | None:
        """Two NVML calls, one of 0.2 ms. Why it was None is in ``missing`` of the next ``read_fast``."""
        return self._call(gpu, Device.read_activity, None)

    def forget_activity(self) -> None:
        """Free the counters' samples; one that a hung call writes to is freed when that call returns."""
        for device in list(self._devices.values()):
            device.forget_activity()

    def _call(self, gpu: Gpu, read: Callable[[Device], _T], while_opening: _T) -> _T:
        device = self._enter(gpu)
        if device is None:
            return while_opening
        try:
            return read(device)
        finally:
            self._leave()

    def _enter(self, gpu: Gpu) -> Device | None:
        with self._changed:
            while self._opening_since is not None:
                left = self._opening_since + _PATIENCE_S - self._clock.monotonic()
                if left <= 0:
                    return None
                self._clock.wait(self._changed, left)
            device = self._devices.get(gpu.uuid)
            if device is None and not self._devices:
                raise SourceLostError(self._closed_reason)
            if device is None:
                raise GpuLostError(f"GPU {gpu.index} ({gpu.name}) is not there any more.")
            self._calls += 1
            return device

    def _leave(self) -> None:
        with self._changed:
            self._calls -= 1
            last = self._close_after_calls and not self._calls
            self._changed.notify_all()
        if last:
            self._close_after_calls = False
            self._shut_down()


def _binding() -> Any:
    try:
        import pynvml
    except ImportError:
        raise _CannotOpen(words.NO_PYNVML) from None
    if not hasattr(pynvml, "_nvmlGetFunctionPointer"):
        raise _CannotOpen(words.FOREIGN_PYNVML)
    return pynvml


def _nothing(reason: str, driver: str | None = None, cuda_driver: str | None = None) -> _Opened:
    origin = Origin(kind="none", reason=reason, recording=None, driver=driver, cuda_driver=cuda_driver)
    return _Opened(Inventory(origin, ()), {})
