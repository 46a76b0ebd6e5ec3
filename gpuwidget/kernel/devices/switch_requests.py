"""Set torch's switches, for the panel and for ``%gpu switches``.

The switches are flags of the whole process. Setting one in the middle of a cell would change the results of
the rest of the cell. Therefore, a request that the panel sends while a cell is running is stored, and applied
before the next cell.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from gpuwidget import pytorch
from gpuwidget.model.kernel_state import Switch
from gpuwidget.model.torch_state import SwitchValue
from gpuwidget.model.translation import Text, translatable
from gpuwidget.pytorch import TORCH_SWITCHES, TorchSwitch, find_switch

_LOG = logging.getLogger(__name__)

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
            values = pytorch.switch_values()
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
            statement = pytorch.switch_statement(switch, value)
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
        self._ran[switch.name] = statement = pytorch.set_switch(switch, value)
        return statement

    def _switch(self, switch: TorchSwitch, now: SwitchValue) -> Switch:
        pending = self._pending.get(switch.name)
        statement = self._ran.get(switch.name)
        if pending is not None:
            statement = pytorch.switch_statement(switch, pending)
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


def _failure(error: Exception) -> str:
    """Return the text of an error, which a view can translate if the error was raised with such a text."""
    return error.args[0] if error.args and isinstance(error.args[0], Text) else str(error)


SWITCHES = SwitchRequests()
"""The switch requests of this process."""
