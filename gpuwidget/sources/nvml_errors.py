"""What one GPU reports of things gone wrong: uncorrected memory errors, and XIDs while NVML is open."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from gpuwidget.model.clock import Clock
from gpuwidget.sources import Xid
from gpuwidget.sources import nvml_messages as words

_MOST_AT_ONCE = 32
"""A GPU in trouble may report on and on; the rest is taken at the next look."""


def uncorrected(nvml: Any, handle: Any) -> int:
    """Uncorrected memory errors since the driver was loaded. Raises pynvml's NVMLError."""
    kind, since = nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
    return int(nvml.nvmlDeviceGetTotalEccErrors(handle, kind, since))


class Xids:
    """The newest XID of each GPU, by its UUID; what was noticed outlasts the opening of NVML it came in.

    The driver keeps what it reports until it is asked for, in a set for each GPU. One thread at a time asks
    for a GPU. Raises pynvml's NVMLError.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sets: dict[str, tuple[Any, Any]] = {}
        """The binding and the set that it made."""
        self.newest: dict[str, Xid] = {}
        """Only of GPUs that have reported any."""

    def watch(self, nvml: Any, uuid: str, handle: Any) -> None:
        """Have the driver keep from now on what that GPU reports, unless it does already."""
        if uuid in self._sets:
            return
        made = nvml.nvmlEventSetCreate()
        try:
            nvml.nvmlDeviceRegisterEvents(handle, nvml.nvmlEventTypeXidCriticalError, made)
        except nvml.NVMLError:
            _free(nvml, made)
            raise
        self._sets[uuid] = (nvml, made)

    def look(self, uuid: str) -> Xid | None:
        """The newest of a GPU that is watched; None where there was none. Waits for nothing."""
        nvml, watched = self._sets[uuid]
        for _ in range(_MOST_AT_ONCE):
            try:
                event = nvml.nvmlEventSetWait_v2(watched, 0)
            except nvml.NVMLError as error:
                if error.value == words.TIMEOUT:
                    break
                # Of a driver that was opened anew meanwhile, or of a GPU that is gone: watched anew.
                if self._sets.pop(uuid, None) is not None:
                    _free(nvml, watched)
                raise
            if event.eventType == nvml.nvmlEventTypeXidCriticalError:
                self.newest[uuid] = Xid(int(event.eventData), self._clock.time())
        return self.newest.get(uuid)

    def let_go(self) -> None:
        """NVML is about to be shut down: take what the driver still keeps."""
        for uuid, (nvml, _) in list(self._sets.items()):
            with suppress(nvml.NVMLError):
                self.look(uuid)
        for nvml, made in self._sets.values():
            _free(nvml, made)
        self._sets.clear()


def _free(nvml: Any, made: Any) -> None:
    with suppress(nvml.NVMLError):
        nvml.nvmlEventSetFree(made)
