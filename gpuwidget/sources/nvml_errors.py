"""What one GPU reports of things gone wrong: uncorrected memory errors, and XIDs while somebody watches."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from gpuwidget.clock import Clock
from gpuwidget.sources import nvml_words as words

_MOST_AT_ONCE = 32
"""A GPU in trouble may report on and on; the rest is taken at the next look."""


def uncorrected(nvml: Any, handle: Any) -> int:
    """Uncorrected memory errors since the driver was loaded. Raises pynvml's NVMLError."""
    kind, since = nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
    return int(nvml.nvmlDeviceGetTotalEccErrors(handle, kind, since))


class Xids:
    """The newest XID of one GPU since this was made. The driver keeps them until they are asked for.

    Made and asked by one thread at a time. Raises pynvml's NVMLError.
    """

    def __init__(self, nvml: Any, handle: Any, clock: Clock) -> None:
        self._nvml = nvml
        self._clock = clock
        self._newest: tuple[int, float] | None = None
        self._set = nvml.nvmlEventSetCreate()
        try:
            nvml.nvmlDeviceRegisterEvents(handle, nvml.nvmlEventTypeXidCriticalError, self._set)
        except nvml.NVMLError:
            with suppress(nvml.NVMLError):
                nvml.nvmlEventSetFree(self._set)
            raise

    def newest(self) -> tuple[int, float] | None:
        """Its number and when it was noticed, epoch seconds; None where there was none. Waits for nothing."""
        nvml = self._nvml
        for _ in range(_MOST_AT_ONCE):
            try:
                event = nvml.nvmlEventSetWait_v2(self._set, 0)
            except nvml.NVMLError as error:
                if error.value == words.TIMEOUT:
                    break
                raise
            if event.eventType == nvml.nvmlEventTypeXidCriticalError:
                self._newest = (int(event.eventData), self._clock.time())
        return self._newest
