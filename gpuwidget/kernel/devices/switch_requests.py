"""Set torch's switches, for the panel and for ``%gpu switches``.

The switches are flags of the whole process. Setting one in the middle of a cell would change the results of
the rest of the cell. Therefore, a request that the panel sends while a cell is running is stored, and applied
before the next cell.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

from gpuwidget.model.errors import OptionError
from gpuwidget.model.kernel_state import Switch
from gpuwidget.model.terminal_text import TableColumn, format_table, printable_lines
from gpuwidget.model.translation import Text, _, in_view_language, translatable
from gpuwidget.model.units import UNKNOWN
from gpuwidget.pytorch import torch_switches
from gpuwidget.pytorch.torch_switches import TORCH_SWITCHES, SwitchValue, TorchSwitch, find_switch
from gpuwidget.views.saved_outputs import output_metadata

_LOG = logging.getLogger(__name__)

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
_NO_TORCH = SwitchValue(None, translatable("torch is not imported yet."))


class SwitchRequests:
    """Applies requests to set torch's switches, and stores the requests that are pending."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._busy: Callable[[], bool] = lambda: False
        self._pending: dict[str, str] = {}
        self._ran: dict[str, str] = {}
        self._failed: dict[str, str] = {}

    def attach(self, busy: Callable[[], bool]) -> None:
        """From now on, store requests that arrive while ``busy()`` returns true, until the next cell begins.

        They are then applied by :meth:`apply_pending`.
        """
        self._busy = busy

    def detach(self) -> None:
        """Drop all requests. Switches that were set keep their values, as if the user's code had set them."""
        with self._lock:
            self._busy = lambda: False
            for requests in (self._pending, self._ran, self._failed):
                requests.clear()

    @property
    def state(self) -> tuple[Switch, ...]:
        """The state of all switches. It may be read on any thread."""
        with self._lock:
            values = torch_switches.switch_values()
            return tuple(
                self._switch(switch, _NO_TORCH if values is None else values[switch.name])
                for switch in TORCH_SWITCHES
            )

    def request(self, name: str, value: str) -> str:
        """Set a switch now if no cell is running, and otherwise before the next cell.

        Return a text for the user: the Python statement that sets the switch, or that nothing has to be run.
        Raise OptionError for an unknown switch or value, and if torch raises an error.
        """
        switch = find_switch(name, value)
        with self._lock:
            # apply_pending() takes the same lock, so no cell can start its code in the meantime.
            if not self._busy():
                return self._run(switch, value)
            statement = torch_switches.statement(switch, value)
            self._failed.pop(name, None)
            self._pending.pop(name, None)
            if switch.current_value() == value:
                return translatable("{name} is already {value}.", name=name, value=value)
            self._pending[name] = value
            return translatable("Takes effect in the next cell: {statement}", statement=statement)

    def set_now(self, name: str, value: str) -> str:
        """Set a switch immediately, and return the Python statement that was run.

        Raises OptionError as :meth:`request` does.
        """
        switch = find_switch(name, value)
        with self._lock:
            return self._run(switch, value)

    def apply_pending(self) -> None:
        """Apply the pending requests. Call this before each cell that is not nested in another.

        Never raises.
        """
        with self._lock:
            for name, value in self._pending.copy().items():
                try:
                    self._run(find_switch(name), value)
                except Exception as error:
                    self._failed[name] = _failure(error)
                    _LOG.debug("Could not set a torch switch", exc_info=True)

    def _run(self, switch: TorchSwitch, value: str) -> str:
        self._pending.pop(switch.name, None)
        self._failed.pop(switch.name, None)
        self._ran.pop(switch.name, None)
        self._ran[switch.name] = statement = torch_switches.set_switch(switch, value)
        return statement

    def _switch(self, switch: TorchSwitch, now: SwitchValue) -> Switch:
        pending = self._pending.get(switch.name)
        statement = self._ran.get(switch.name)
        if pending is not None:
            statement = torch_switches.statement(switch, pending)
        return Switch(
            name=switch.name,
            title=switch.title,
            value=now.value,
            choices=switch.choices,
            default=switch.default,
            pending=pending,
            statement=statement,
            trades=switch.trades,
            note=self._failed.get(switch.name, now.note),
        )


@in_view_language
def command(shell: Any, arguments: Sequence[str]) -> None:
    """Run ``%gpu switches [NAME [VALUE]]``."""
    if len(arguments) > 2:
        raise OptionError(
            translatable(
                "{command!r} is not a command.\n{usage}",
                command=f"%gpu switches {' '.join(arguments)}",
                usage=_USAGE,
            )
        )
    if len(arguments) == 2:
        text = _("Ran: {statement}", statement=SWITCHES.set_now(*arguments))
    else:
        names = {find_switch(name).name for name in arguments}
        shown = [switch for switch in SWITCHES.state if switch.name in names or not names]
        text = "\n".join([*_table(shown), *([f"\n{_(shown[0].trades)}"] if names else ["", _(_USAGE)])])
    shell.display_pub.publish(data={"text/plain": printable_lines(text)}, metadata=output_metadata())


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


def _failure(error: Exception) -> str:
    """Return the text of an error, which a view can translate if the error was raised with such a text."""
    return error.args[0] if error.args and isinstance(error.args[0], Text) else str(error)


SWITCHES = SwitchRequests()
"""The switch requests of this process."""
