"""The source without GPUs, which gives the reason why there is no GPU."""

from __future__ import annotations

from gpuwidget.model.clock import Clock
from gpuwidget.model.errors import SourceLostError
from gpuwidget.model.messages import Message, english_message
from gpuwidget.model.metrics import Group
from gpuwidget.model.samples import Gpu, origin_without_gpus
from gpuwidget.sources import GroupReading, Inventory


def switched_off(setting: str) -> Message:
    """Return the reason why there is no GPU if ``setting``, a variable or trait, is set to ``none``."""
    text = f"{setting} is 'none': unset it to see this machine's GPUs."
    return english_message("source-switched-off", text, setting=setting)


class NoSource:
    """A source that has no GPUs."""

    def __init__(self, reason: Message) -> None:
        self._reason = reason

    def open(self) -> Inventory:
        """Return an inventory that contains no GPUs, and the reason."""
        return Inventory(origin=origin_without_gpus(self._reason), gpus=())

    def close(self) -> None:
        """Do nothing."""

    def read(self, gpu: Gpu, group: Group) -> GroupReading:
        """Never called, because there is no GPU."""
        raise SourceLostError(self._reason)

    def rewound(self, clock: Clock) -> None:
        """Return None, because there is nothing to play."""

    def stop_activity(self) -> None:
        """Do nothing."""
