"""``%gpu switches``: show torch's switches, or set one."""

from __future__ import annotations

from collections.abc import Sequence

from gpuwidget.kernel.commands.subcommands import Invocation
from gpuwidget.kernel.devices.switch_requests import SWITCHES
from gpuwidget.model.kernel_state import Switch
from gpuwidget.model.terminal_text import TableColumn, format_table
from gpuwidget.model.translation import _, in_view_language, translatable
from gpuwidget.model.units import UNKNOWN
from gpuwidget.pytorch import find_switch

_USAGE = translatable(
    "%gpu switches             the values of all PyTorch switches\n"
    "%gpu switches NAME        what a switch gains and costs\n"
    "%gpu switches NAME VALUE  set a switch now"
)
_TITLES = (
    translatable("switch"),
    translatable("value"),
    translatable("default"),
    translatable("values"),
    translatable("next cell"),
)
_WIDTH = 100


@in_view_language
def command(invocation: Invocation) -> None:
    """Run ``%gpu switches [NAME [VALUE]]``."""
    arguments = invocation.arguments
    if len(arguments) > 2:
        raise invocation.wrong_arguments(_USAGE)
    if len(arguments) == 2:
        text = _("Ran: {statement}", statement=SWITCHES.set_now(*arguments))
    else:
        names = {find_switch(name).name for name in arguments}
        shown = [switch for switch in SWITCHES.state if switch.name in names or not names]
        text = "\n".join([*_table(shown), *([f"\n{_(shown[0].trades)}"] if names else ["", _(_USAGE)])])
    invocation.display_text(text)


def _table(switches: Sequence[Switch]) -> list[str]:
    """Return a table with one line per switch, and below it each note with the switches that it is about."""
    rows = [
        (
            switch.name,
            UNKNOWN if switch.value is None else switch.value,
            switch.default,
            ", ".join(switch.choices),
            switch.pending or "",
        )
        for switch in switches
    ]
    notes: dict[str, list[str]] = {}
    for switch in switches:
        if switch.note is not None:
            notes.setdefault(switch.note, []).append(switch.name)
    of_all = [_(note) for note, names in notes.items() if len(names) == len(switches)]
    of_some = [
        f"{', '.join(names)}: {_(note)}" for note, names in notes.items() if len(names) < len(switches)
    ]
    columns = [TableColumn(_(title), right=False) for title in _TITLES]
    return [*format_table(columns, rows, _WIDTH), *of_all, *of_some]
