"""``%gpu``: show the live dashboard."""

from __future__ import annotations

from gpuwidget.kernel.commands.subcommands import Invocation
from gpuwidget.kernel.live.dashboard import new_dashboard


def command(invocation: Invocation) -> None:
    """Display a new dashboard in the running cell."""
    invocation.display(new_dashboard(invocation.shell).bundle())
