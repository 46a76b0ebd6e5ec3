"""``%gpu watch``: show or set whether every cell is watched."""

from __future__ import annotations

from gpuwidget.kernel.commands.subcommands import Invocation
from gpuwidget.model.translation import _, in_view_language


@in_view_language
def command(invocation: Invocation) -> None:
    """Run ``%gpu watch [on|off]``."""
    watcher, arguments = invocation.watcher, invocation.arguments
    if arguments in (["on"], ["off"]):
        watcher.every_cell = arguments == ["on"]
    elif arguments:
        raise invocation.unknown()
    elif watcher.every_cell:
        invocation.display_text(_("Watching every cell. Turn it off: %gpu watch off"))
    else:
        invocation.display_text(_("Watching only cells with %%gpuwatch. Watch every cell: %gpu watch on"))
