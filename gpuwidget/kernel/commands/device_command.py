"""``%gpu device``: show or set torch's default device."""

from __future__ import annotations

from gpuwidget.kernel.commands.subcommands import Invocation
from gpuwidget.kernel.devices import default_device
from gpuwidget.pytorch import DEVICE_SWITCH


def command(invocation: Invocation) -> None:
    """Run ``%gpu device [NAME [--light]]``."""
    arguments = invocation.arguments
    if arguments[1:] not in ([], ["--light"]):
        raise invocation.unknown()
    if arguments:
        default_device.set_device(arguments[0], new_tensors=len(arguments) == 1)
        invocation.display_text(default_device.describe(DEVICE_SWITCH.state))
    else:
        invocation.display_text(default_device.describe_devices())
