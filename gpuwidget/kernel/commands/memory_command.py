"""``%gpu memory``: show who holds the GPU's memory, or which cells allocated it."""

from __future__ import annotations

from gpuwidget.kernel.attribution.cell_memory import CELL_MEMORY
from gpuwidget.kernel.attribution.memory_holders import holders_of
from gpuwidget.kernel.commands.subcommands import Invocation
from gpuwidget.model.translation import translatable
from gpuwidget.views import holders_view

_USAGE = translatable(
    "%gpu memory          what holds the GPU memory\n"
    "%gpu memory --cells  which cells allocated the memory that is still held"
)


def command(invocation: Invocation) -> None:
    """Run ``%gpu memory [--cells]``."""
    arguments = invocation.arguments
    if arguments not in ([], ["--cells"]):
        raise invocation.wrong_arguments(_USAGE)
    found = holders_of(invocation.shell, outside=not arguments)
    if arguments:
        bundle = holders_view.cells_bundle(holders_view.of(found), attached=CELL_MEMORY.attached)
    else:
        bundle = found.bundle()
    invocation.display(bundle)
