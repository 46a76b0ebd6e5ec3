"""The GPUs of this machine, read through NVIDIA's management library (NVML).

The Python binding is NVIDIA's: the module ``pynvml`` of the package nvidia-ml-py. This module opens and
closes NVML and finds the GPUs; ``nvml_device`` makes the calls for one GPU.
"""

from __future__ import annotations

import logging
import threading
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

from gpuwidget.model.clock import SYSTEM_CLOCK, Clock
from gpuwidget.model.errors import GpuLostError, SliceRemovedError, SourceError, SourceLostError
from gpuwidget.model.fork import reset_after_fork
from gpuwidget.model.messages import Message, english_message, message
from gpuwidget.model.metrics import Group
from gpuwidget.model.samples import Gpu, Origin, origin_without_gpus, unopened_gpu, unopened_slice
from gpuwidget.sources import GroupReading, Inventory, LostGpu, nvml_messages, unknown
from gpuwidget.sources.nvml_device import NvmlDevice, NvmlSession
from gpuwidget.sources.nvml_errors import XidEvents
from gpuwidget.system import processes

_LOG = logging.getLogger(__name__)

_CALL_WAIT_S = 0.5
"""Seconds that ``open`` waits for running calls to end, and that a new call waits for ``open`` to end.

The wait is limited, because a call that hangs never returns.
"""
_CLOSED = "The NVIDIA driver is closed."


class _OpenError(Exception):
    """There is no GPU to read."""

    def __init__(self, reason: Message) -> None:
        """``reason`` states why there is no GPU and what to do."""
        super().__init__(reason)
        self.reason = reason


class _Opened(NamedTuple):
    inventory: Inventory
    devices: dict[str, NvmlDevice]


class NvmlSource:
    """The source that reads NVML."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._reset()
        reset_after_fork(self._reset_in_child)

    def _reset(self) -> None:
        self._closed_reason = _CLOSED
        # Each read takes the lock twice, and the condition's own methods would take longer.
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._devices: dict[str, NvmlDevice] = {}
        self._nvml: Any = None
        self._xids = XidEvents(self._clock)
        self._times_started = 0
        self._calls = 0
        self._opening_since: float | None = None
        self._close_after_calls = False

    def _reset_in_child(self) -> None:
        # The parent process opened NVML, so only the parent may shut it down. The child just discards its
        # copy of the state.
        self._reset()
        self._closed_reason = "This process was forked from the one that opened the NVIDIA driver."

    # -- opening and closing -------------------------------------------------------------------------

    def open(self) -> Inventory:
        """Restart NVML and find the GPUs. Never raises: if there is no GPU, the result's origin has the
        reason.

        The result lists GPUs that can't be opened as lost. It omits GPUs that this process may not use.
        """
        self.stop_activity()
        with self._lock:
            self._close_after_calls = False
            self._opening_since = self._clock.monotonic()
            idle = self._await_calls()
            self._devices = {}
        if idle:
            self._shut_down()
        opened = self._start_or_reason()
        if idle and not opened.devices:
            self._shut_down()
        with self._lock:
            self._devices = opened.devices
            self._closed_reason = _CLOSED
            self._opening_since = None
            self._changed.notify_all()
        return replace(opened.inventory, xids=dict(self._xids.newest))

    def close(self) -> None:
        """Shut NVML down, as soon as no call is running. Safe to call twice."""
        self.stop_activity()
        with self._lock:
            self._devices = {}
            self._close_after_calls = self._calls > 0
            if self._close_after_calls:
                return
        self._shut_down()

    def _await_calls(self) -> bool:
        # NVML must not be shut down during a call. If the call hangs, the shutdown would hang too.
        deadline = self._clock.monotonic() + _CALL_WAIT_S
        while self._calls:
            left = deadline - self._clock.monotonic()
            if left <= 0:
                return False
            self._clock.wait(self._changed, left)
        return True

    def _shut_down(self) -> None:
        self._xids.close()
        while self._times_started:
            self._times_started -= 1
            with suppress(self._nvml.NVMLError):
                self._nvml.nvmlShutdown()

    def _start_or_reason(self) -> _Opened:
        try:
            return self._start()
        except _OpenError as error:
            return _no_gpus(error.reason)
        except SourceError as error:
            return _no_gpus(message("source-lost", str(error)))
        except Exception as error:
            # Some versions of pynvml may raise any exception here, which must not break a notebook.
            _LOG.debug("NVML could not be read", exc_info=True)
            raised = f"{type(error).__name__}: {error}"
            text = f"The NVIDIA driver could not be read ({raised})."
            return _no_gpus(english_message("driver-unreadable", text, error=raised))

    def _start(self) -> _Opened:
        self._nvml = nvml = _binding()
        try:
            nvml.nvmlInit()
            self._times_started += 1
            driver = text(nvml.nvmlSystemGetDriverVersion())
            count = nvml.nvmlDeviceGetCount()
        except nvml.NVMLError as error:
            raise _OpenError(_start_reason(error)) from error
        origin = Origin(
            kind="nvml",
            reason=None,
            recording=None,
            driver=driver,
            cuda_driver=cuda_version(nvml),
        )
        session = NvmlSession(
            nvml=nvml,
            clock=self._clock,
            process_directory=processes.ProcessDirectory(self._clock)
            if processes.in_host_pid_namespace()
            else None,
            scrambled=nvml_messages.scrambles_process_lists(driver),
            xids=self._xids,
        )
        search = _Search(session)
        for index in range(count):
            search.open_gpu(index)
        if not search.gpus:
            reason = search.reason
            if search.driver_lost or not search.lost:
                return _no_gpus(reason, driver, origin.cuda_driver)
            origin = replace(origin, reason=reason)
        inventory = Inventory(
            origin,
            tuple(search.gpus),
            lost=tuple(search.lost),
            slices_unknown=frozenset(search.slices_unknown),
        )
        return _Opened(inventory, search.devices)

    # -- readings ------------------------------------------------------------------------------------

    def read(self, gpu: Gpu, group: Group) -> GroupReading:
        """Make the NVML calls of ``group`` for one GPU, as :class:`NvmlDevice` describes.

        While NVML is being opened again for a longer time, all values are unknown.
        """
        device = self._enter(gpu)
        if device is None:
            return unknown(group, nvml_messages.REOPENING)
        try:
            return device.read(group)
        finally:
            self._leave()

    def rewound(self, clock: Clock) -> None:
        """Return None, because the driver knows no past."""

    def stop_activity(self) -> None:
        """Free the samples of the hardware counters.

        If a hung call is still writing to a sample, that sample is freed when the call returns.
        """
        for device in list(self._devices.values()):
            device.stop_activity()

    def _enter(self, gpu: Gpu) -> NvmlDevice | None:
        with self._lock:
            while self._opening_since is not None:
                left = self._opening_since + _CALL_WAIT_S - self._clock.monotonic()
                if left <= 0:
                    return None
                self._clock.wait(self._changed, left)
            device = self._devices.get(gpu.uuid)
            if device is None and not self._devices:
                raise SourceLostError(self._closed_reason)
            if device is None:
                raise GpuLostError(f"GPU {gpu.index} ({gpu.name}) no longer exists.")
            self._calls += 1
            return device

    def _leave(self) -> None:
        with self._lock:
            self._calls -= 1
            last = self._close_after_calls and not self._calls
            if self._opening_since is not None:
                self._changed.notify_all()
        if last:
            self._close_after_calls = False
            self._shut_down()


def _binding() -> Any:
    try:
        import pynvml
    except ImportError:
        raise _OpenError(message("no-pynvml", nvml_messages.NO_PYNVML)) from None
    if not hasattr(pynvml, "_nvmlGetFunctionPointer"):
        raise _OpenError(message("foreign-pynvml", nvml_messages.FOREIGN_PYNVML))
    return pynvml


def _start_reason(error: Any) -> Message:
    """Return the reason why NVML failed to start with ``error``. The id is the same for all errors."""
    text = nvml_messages.start_error(error.value, str(error))
    return message("driver-start-failed", text, code=int(error.value), error=str(error))


def _no_gpus(reason: Message, driver: str | None = None, cuda_driver: str | None = None) -> _Opened:
    return _Opened(Inventory(origin_without_gpus(reason, driver, cuda_driver), ()), {})


class _Search:
    """Opens the GPUs and MIG slices that the driver counts, and collects them."""

    def __init__(self, session: NvmlSession) -> None:
        self._session = session
        self._nvml = session.nvml
        self.gpus: list[Gpu] = []
        self.devices: dict[str, NvmlDevice] = {}
        self.lost: list[LostGpu] = []
        self.slices_unknown: set[str] = set()
        self.reason = message("no-gpu", nvml_messages.NO_GPU)
        """Why there is no GPU, if none is found."""
        self.driver_lost = False
        """Whether an error shows that the driver, not a GPU, is lost."""

    def open_gpu(self, index: int) -> None:
        """Open a GPU and its MIG slices. Raises SourceLostError."""
        nvml, known = self._nvml, unopened_gpu(index)
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            known = replace(known, name=text(nvml.nvmlDeviceGetName(handle)))
            known = replace(known, uuid=text(nvml.nvmlDeviceGetUUID(handle)))
            device = NvmlDevice(self._session, handle, f"GPU {index} ({known.name})")
            gpu = _describe(nvml, device, known)
            device.register_xids(gpu.uuid)
            slices = self._open_slices(gpu, device)
        except nvml.NVMLError as error:
            self.reason = _start_reason(error)
            self.driver_lost |= error.value in nvml_messages.SOURCE_LOST
            self._add_lost(known, error)
        except GpuLostError as error:
            self.reason = message("gpu-lost", str(error))
            self._add_lost(known, error)
        else:
            for opened, its_device in ((gpu, device), *slices):
                self.gpus.append(opened)
                self.devices[opened.uuid] = its_device

    def _open_slices(self, parent: Gpu, whole: NvmlDevice) -> list[tuple[Gpu, NvmlDevice]]:
        nvml = self._nvml
        found: list[tuple[Gpu, NvmlDevice]] = []
        missing: dict[str, Message] = {}
        # The count is 0 if MIG is off or unknown, so there is no need for nvmlDeviceGetMigMode (144 µs on an
        # H200).
        count = whole.query("mig", (nvml.nvmlDeviceGetMaxMigDeviceCount,), missing) or 0
        if missing and missing["mig"] not in nvml_messages.PERMANENT.values():
            self.slices_unknown.add(parent.uuid)
        whole.mig_on = count > 0
        for index in range(count):
            known = unopened_slice(parent, index)
            try:
                handle = nvml.nvmlDeviceGetMigDeviceHandleByIndex(whole.handle, index)
                known = replace(known, name=text(nvml.nvmlDeviceGetName(handle)))
                known = replace(known, uuid=text(nvml.nvmlDeviceGetUUID(handle)))
                label = f"MIG slice {index} of GPU {parent.index} ({known.name})"
                device = NvmlDevice(self._session, handle, label, whole)
                total, reserved = device.memory_size()
            except (nvml.NVMLError, GpuLostError) as error:
                # An error of one slice must not affect the others.
                self._add_lost(known, error)
                continue
            slice_ = replace(
                known,
                pci_bus_id=parent.pci_bus_id,
                memory_total=total,
                memory_reserved=reserved,
                compute_capability=parent.compute_capability,
            )
            found.append((slice_, device))
        return found

    def _add_lost(self, known: Gpu, error: Any) -> None:
        """Add a GPU or slice that can't be opened, unless it is absent or this process may not use it."""
        _LOG.debug("%s %s can't be opened: %s", known.name, known.uuid, error)
        if isinstance(error, SliceRemovedError):
            return
        if isinstance(error, GpuLostError):
            reason = error.reason or nvml_messages.LOST(problem=str(error))
        else:
            gap = known.mig_parent is not None and error.value in nvml_messages.NO_SLICE
            if gap or error.value == nvml_messages.NO_PERMISSION:
                return
            reason = nvml_messages.LOST(problem=nvml_messages.lost_gpu(error.value, str(error)))
        self.lost.append(LostGpu(known, reason))


def _describe(nvml: Any, device: NvmlDevice, known: Gpu) -> Gpu:
    """Return a whole GPU with its constant properties. Raises GpuLostError and SourceLostError."""
    unknown: dict[str, Message] = {}
    pci = device.query("pci_bus_id", (nvml.nvmlDeviceGetPciInfo_v3,), unknown)
    capability = device.query("compute_capability", (nvml.nvmlDeviceGetCudaComputeCapability,), unknown)
    total, reserved = device.memory_size()
    flops, bandwidth = device.peak_rates()
    return replace(
        known,
        pci_bus_id=None if pci is None else text(pci.busId),
        memory_total=total,
        memory_reserved=reserved,
        unified_memory=device.unified,
        compute_capability=None if capability is None else "{}.{}".format(*capability),
        peak_fp32_flops=flops,
        memory_bandwidth=bandwidth,
    )


def cuda_version(nvml: Any) -> str | None:
    """Return the newest CUDA version that the driver supports, such as "13.0", or None if unknown."""
    try:
        version = int(nvml.nvmlSystemGetCudaDriverVersion_v2())
    except nvml.NVMLError:
        return None
    return f"{version // 1000}.{version % 1000 // 10}"


def text(value: str | bytes) -> str:
    """Return a string from NVML as str. Some versions of pynvml return str, others bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
