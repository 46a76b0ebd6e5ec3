"""Errors of a GPU: the uncorrected memory errors, and the XIDs that the driver reports while NVML is open."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from gpuwidget.model.clock import Clock
from gpuwidget.sources import Xid, nvml_messages

_MAX_EVENTS = 32
"""A failing GPU may report without end; the rest is read at the next poll."""


def uncorrected_errors(nvml: Any, handle: Any) -> int:
    """Return the uncorrected memory errors since the driver was loaded. Raises pynvml's NVMLError."""
    kind, since = nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
    return int(nvml.nvmlDeviceGetTotalEccErrors(handle, kind, since))


class XidEvents:
    """The newest XID of each GPU by UUID, kept while NVML is closed and opened again.

    The driver queues its events in one event set per GPU until they are read. One thread at a time reads the
    set of a GPU. Methods raise pynvml's NVMLError.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sets: dict[str, tuple[Any, Any]] = {}
        """The binding and the event set that it created."""
        self.newest: dict[str, Xid] = {}
        """Only of GPUs that have reported any."""

    def register(self, nvml: Any, uuid: str, handle: Any) -> None:
        """Make the driver queue the XIDs of that GPU, unless it does already."""
        if uuid in self._sets:
            return
        event_set = nvml.nvmlEventSetCreate()
        try:
            nvml.nvmlDeviceRegisterEvents(handle, nvml.nvmlEventTypeXidCriticalError, event_set)
        except nvml.NVMLError:
            _free(nvml, event_set)
            raise
        self._sets[uuid] = (nvml, event_set)

    def poll(self, uuid: str) -> Xid | None:
        """Return the newest XID of a registered GPU, None where there was none. Does not wait."""
        nvml, event_set = self._sets[uuid]
        for _ in range(_MAX_EVENTS):
            try:
                event = nvml.nvmlEventSetWait_v2(event_set, 0)
            except nvml.NVMLError as error:
                if error.value == nvml_messages.TIMEOUT:
                    break
                # The set belongs to a driver that was opened again meanwhile, or the GPU is gone: the next
                # register() creates a new one.
                if self._sets.pop(uuid, None) is not None:
                    _free(nvml, event_set)
                raise
            if event.eventType == nvml.nvmlEventTypeXidCriticalError:
                self.newest[uuid] = Xid(int(event.eventData), self._clock.time())
        return self.newest.get(uuid)

    def close(self) -> None:
        """Read the events that the driver still holds and free the sets, before NVML is shut down."""
        for uuid, (nvml, _) in list(self._sets.items()):
            with suppress(nvml.NVMLError):
                self.poll(uuid)
        for nvml, event_set in self._sets.values():
            _free(nvml, event_set)
        self._sets.clear()


def _free(nvml: Any, event_set: Any) -> None:
    with suppress(nvml.NVMLError):
        nvml.nvmlEventSetFree(event_set)
