"""torch's switches as the user meets them: in the panel, where they wait for a cell's end, and in ``%gpu``.

They are flags of the whole process. Set in the middle of a cell they would change what its other half
computes: a view's wish is stored while a cell runs, and granted before the next one begins.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

from gpuwidget.model.errors import OptionError
from gpuwidget.model.kernel_state import Switch
from gpuwidget.model.terminal_text import printable_lines
from gpuwidget.pytorch import torch_switches
from gpuwidget.pytorch.torch_switches import TORCH_SWITCHES, SwitchValue, TorchSwitch, find_switch

_LOG = logging.getLogger(__name__)

_USAGE = "%gpu switches: torch's switches, and what they trade; %gpu switches NAME VALUE: set one."
_NO_TORCH = SwitchValue(None, "torch is not imported yet.")


class TorchSwitches:
    """What was wished of torch's switches, and what has been run for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._busy: Callable[[], bool] = lambda: False
        self._wishes: dict[str, str] = {}
        self._ran: dict[str, str] = {}
        self._failed: dict[str, str] = {}

    def attach(self, busy: Callable[[], bool]) -> None:
        """From now on a wish that comes while ``busy`` waits for the next cell."""
        self._busy = busy

    def detach(self) -> None:
        """Forget all; what was set stays, as if the user's own code had."""
        with self._lock:
            self._busy = lambda: False
            for kept in (self._wishes, self._ran, self._failed):
                kept.clear()

    @property
    def state(self) -> tuple[Switch, ...]:
        """All of them as they are now, on any thread."""
        with self._lock:
            values = torch_switches.switch_values()
            return tuple(
                self._switch(switch, _NO_TORCH if values is None else values[switch.name])
                for switch in TORCH_SWITCHES
            )

    def wish(self, name: str, value: str) -> str:
        """A view's: done at once while no cell runs, else before the next one; the statement, and when.

        Raises OptionError where there is no such switch or choice, or torch refuses.
        """
        switch = find_switch(name, value)
        with self._lock:
            # Under the lock, which before_cell() takes too: no cell's own code begins meanwhile.
            if not self._busy():
                return self._run(switch, value)
            statement = torch_switches.statement(switch, value)
            self._failed.pop(name, None)
            self._wishes.pop(name, None)
            if switch.current_value() == value:
                return f"{name} is {value}: nothing is to be run."
            self._wishes[name] = value
            return f"From the next cell: {statement}"

    def run(self, name: str, value: str) -> str:
        """Set it now, as the running cell says; the statement. Raises OptionError as :meth:`wish` does."""
        switch = find_switch(name, value)
        with self._lock:
            return self._run(switch, value)

    def before_cell(self) -> None:
        """Grant what is wished, where no other cell runs; never raises."""
        with self._lock:
            for name, value in self._wishes.copy().items():
                try:
                    self._run(find_switch(name), value)
                except Exception as error:
                    self._failed[name] = str(error)
                    _LOG.debug("a switch of torch's was not set", exc_info=True)

    def _run(self, switch: TorchSwitch, value: str) -> str:
        self._wishes.pop(switch.name, None)
        self._failed.pop(switch.name, None)
        self._ran.pop(switch.name, None)
        self._ran[switch.name] = statement = torch_switches.set_switch(switch, value)
        return statement

    def _switch(self, switch: TorchSwitch, now: SwitchValue) -> Switch:
        wish = self._wishes.get(switch.name)
        statement = self._ran.get(switch.name)
        if wish is not None:
            statement = torch_switches.statement(switch, wish)
        return Switch(
            name=switch.name,
            title=switch.title,
            value=now.value,
            choices=switch.choices,
            default=switch.default,
            pending=wish,
            statement=statement,
            trades=switch.trades,
            note=self._failed.get(switch.name, now.note),
        )


def command(shell: Any, words: Sequence[str]) -> None:
    """``%gpu switches [NAME [VALUE]]``."""
    if len(words) > 2:
        raise OptionError(f"{'%gpu switches ' + ' '.join(words)!r} is not known. {_USAGE}")
    if len(words) == 2:
        text = f"Ran: {SWITCHES.run(*words)}"
    else:
        names = {find_switch(name).name for name in words} or {switch.name for switch in TORCH_SWITCHES}
        text = "\n".join(line for one in SWITCHES.state if one.name in names for line in _lines(one))
    shell.display_pub.publish(data={"text/plain": printable_lines(text)}, metadata={})


def _lines(switch: Switch) -> list[str]:
    others = ", ".join(
        f"{choice} (torch's default)" if choice == switch.default else choice
        for choice in switch.choices
        if choice != switch.value
    )
    value = "n/a" if switch.value is None else switch.value
    said = [f"{switch.name}: {value}, or {others}"]
    said += [f"  from the next cell: {switch.pending}"] if switch.pending is not None else []
    said += [f"  {switch.note}"] if switch.note is not None else []
    return [*said, f"  {switch.trades}"]


SWITCHES = TorchSwitches()
"""The process's one."""
