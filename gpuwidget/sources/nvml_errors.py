"""Read a GPU's errors: uncorrected memory errors, and the XIDs that the driver reports while NVML is open."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from gpuwidget.model.clock import Clock
from gpuwidget.sources import Xid, nvml_messages

_MAX_EVENTS = 32
"""Maximum number of events that one poll reads, because a failing GPU may report events endlessly. The next
poll reads further events."""


def uncorrected_errors(nvml: Any, handle: Any) -> int:
    """Return the number of uncorrected memory errors since the driver was loaded. Raises pynvml's
    NVMLError."""
    kind, since = nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
    return int(nvml.nvmlDeviceGetTotalEccErrors(handle, kind, since))


class XidEvents:
    """Reads XIDs and keeps the newest one of each GPU, even if NVML is closed and reopened.

    The driver queues the events of each GPU in the GPU's event set until they are read. Only one thread at a
    time may read an event set. The methods raise pynvml's NVMLError.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sets: dict[str, tuple[Any, Any]] = {}
        """By GPU UUID: the module pynvml, and the event set that was created with it."""
        self.newest: dict[str, Xid] = {}
        """The newest XID by GPU UUID, for those GPUs that have reported one."""

    def register(self, nvml: Any, uuid: str, handle: Any) -> None:
        """Make the driver queue the XIDs of a GPU. Does nothing if the GPU is registered already."""
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
        """Return the newest XID of a registered GPU, or None if it has reported none. Does not wait."""
        nvml, event_set = self._sets[uuid]
        for _ in range(_MAX_EVENTS):
            try:
                event = nvml.nvmlEventSetWait_v2(event_set, 0)
            except nvml.NVMLError as error:
                if error.value == nvml_messages.TIMEOUT:
                    break
                # Either the driver was reopened after this event set was created, or the GPU is lost. The
                # next register() creates another event set.
                if self._sets.pop(uuid, None) is not None:
                    _free(nvml, event_set)
                raise
            if event.eventType == nvml.nvmlEventTypeXidCriticalError:
                self.newest[uuid] = Xid(int(event.eventData), self._clock.time())
        return self.newest.get(uuid)

    def close(self) -> None:
        """Read the events that are still queued, and free the event sets. Call it before NVML is shut
        down."""
        for uuid, (nvml, _) in list(self._sets.items()):
            with suppress(nvml.NVMLError):
                self.poll(uuid)
        for nvml, event_set in self._sets.values():
            _free(nvml, event_set)
        self._sets.clear()


def _free(nvml: Any, event_set: Any) -> None:
    with suppress(nvml.NVMLError):
        nvml.nvmlEventSetFree(event_set)
