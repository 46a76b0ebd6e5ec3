"""Watching cells: a run is armed before the cell and settled after it, outside the user's code.

The cell itself runs as it always does. IPython's ``pre_run_cell`` and ``post_run_cell`` bracket it; nested
cells (a cell that runs a cell) bracket each other, some cells reach only one of the two, and a cancelled
one has no result: :mod:`gpuwidget.kernel.shell.running_cells` sorts that out.
"""

from __future__ import annotations

import logging
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gpuwidget.kernel.cells import skip_cell, wait_for_memory, watch_api
from gpuwidget.kernel.cells.card_output import CardPlace
from gpuwidget.kernel.cells.cell_errors import tell_of_error
from gpuwidget.kernel.cells.collectors import witnesses
from gpuwidget.kernel.cells.options import WatchOptions, find_in_cell, parse
from gpuwidget.kernel.devices import default_device
from gpuwidget.kernel.devices.switch_requests import SWITCHES
from gpuwidget.kernel.live import live_display
from gpuwidget.kernel.shell.interrupts import (
    defer_interrupts,
    hide_own_frames,
    ignore_interrupts,
    interrupt_soon,
)
from gpuwidget.kernel.shell.running_cells import RunningCells, cells_on_this_thread
from gpuwidget.measure.run import Run, RunOptions
from gpuwidget.model.errors import OptionError
from gpuwidget.model.report import Report, Status
from gpuwidget.model.terminal_text import printable_lines
from gpuwidget.pytorch.device_switch import DEVICE_SWITCH
from gpuwidget.views import card

_LOG = logging.getLogger(__name__)

_EVERY_CELL = WatchOptions(run=RunOptions(), live=False, quiet=False, label=None, device=None)


@dataclass(slots=True)
class _Armed:
    """One cell that runs now, and what watches it, if anything does."""

    run: Run | None = None
    view: live_display.LiveView | None = None
    place: CardPlace | None = None
    render: Callable[[Report], dict[str, Any]] | None = None
    """How its card is made; None for no card."""
    asked: bool = True
    """Whether the cell itself asked to be watched."""
    leave_device: Callable[[], str | None] | None = None
    """Takes back the torch device that the cell asked for."""
    needs_memory: bool = False
    """Whether the cell must not run yet: ``--need`` asks for free memory that is not confirmed."""
    stop_listening: Callable[[], None] = lambda: None
    """Ends that the cell's first word of an error is heard."""

    def stop_showing(self, *, followed: bool = False) -> None:
        """Take the chart away, and what watches over the card's place."""
        if self.view is not None:
            self.view.stop()
        if self.place is not None:
            self.place.stop(followed=followed)

    def restore_device(self) -> None:
        """Put torch's default device back to what it was before the cell. Safe to call twice."""
        leave, self.leave_device = self.leave_device, None
        if leave is not None:
            left = leave()
            if left is not None:
                _LOG.warning("%s", printable_lines(left))

    def fail(self, result: Any) -> None:
        """The cell's code has failed: its time is over, though it may be some until the cell has ended."""
        try:
            with defer_interrupts():
                hide_own_frames(result.error_in_exec)
                if self.run is not None:
                    self.run.end(_status(result))
        except Exception:
            _LOG.debug("a failed cell's run could not be ended", exc_info=True)

    def abandon(self) -> None:
        """Stop watching, without a card. Safe to call twice."""
        self.stop_listening()
        if self.run is not None:
            self.run.abandon()
            watch_api.leave_cell(self.run)
        self.stop_showing()
        self.run = self.view = self.place = None

    def give_up(self) -> None:
        """The cell ended unheard of: leave nothing of its own behind."""
        try:
            self.abandon()
            self.restore_device()
        except Exception:
            _LOG.debug("a cell that was lost could not be let go of", exc_info=True)


class CellWatcher:
    """Arms and settles the runs of one shell's cells."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._armed = RunningCells[_Armed](_Armed.give_up)
        self._loading = threading.get_ident() if cells_on_this_thread() else None
        """The thread of the cell that loads us: it runs, and nobody has told of its beginning."""
        self.every_cell = False
        """Whether cells without ``%%gpuwatch`` leave a one-line card."""

    @property
    def busy(self) -> bool:
        """Whether a cell is running."""
        return bool(self._armed) or self._loading is not None

    def before(self, info: Any) -> None:
        """``pre_run_cell``: start watching the cell if it asks for that."""
        armed = _Armed()
        if self._loading == threading.get_ident() and cells_on_this_thread() == 1:
            self._loading = None  # its end went unheard of
        self._armed.forget_lost()
        self._armed.begin(info, armed)
        try:
            with defer_interrupts():
                DEVICE_SWITCH.before_cell()
                if len(self._armed) == 1 and self._loading is None:  # in the middle of no other cell
                    SWITCHES.before_cell()
            self._arm(armed, info)
        except KeyboardInterrupt:
            # Stop was pressed before the cell's own code began. IPython takes no exception from here: the
            # interrupt is delivered again, to the code it was meant for.
            armed.abandon()
            armed.restore_device()
            if armed.needs_memory:  # the interrupt would come only after that code has started
                skip_cell.refuse(self._shell, "Interrupted before it began: the cell was not run.")
            else:
                interrupt_soon()
        except Exception as error:
            _LOG.debug("a cell could not be watched", exc_info=True)
            if armed.needs_memory:
                skip_cell.refuse(self._shell, str(wait_for_memory.check_failed(error)))
            armed.abandon()

    def failed(self, result: Any) -> None:
        """``post_run_cell``, first of all: the time that explaining a failure takes is not the cell's."""
        if getattr(result, "error_in_exec", None) is not None:
            armed = self._armed.find(getattr(result, "info", None))
            if armed is not None:
                armed.stop_listening()
                armed.fail(result)

    def after(self, result: Any) -> None:
        """``post_run_cell``: settle the run, and show its card."""
        skip_cell.withdraw(self._shell)
        armed = self._armed.end(getattr(result, "info", None))
        if armed is None and self._loading == threading.get_ident():
            self._loading = None
        if armed is None or armed.run is None:
            self._device_after(armed)
            if armed is not None:
                armed.abandon()
            return
        interrupted = False
        try:
            status = _status(result)
            ended_on_output = status != "ok" or getattr(result, "result", None) is not None
            self._settle(armed, armed.run, status, ended_on_output)
            interrupted = armed.run.wait_interrupted
        except Exception:
            _LOG.debug("a watched cell could not be reported", exc_info=True)
        finally:
            self._device_after(armed)
            armed.abandon()
        if interrupted:
            # Stop was pressed while the GPU finished: that ends the wait, and is meant for Run All too.
            interrupt_soon()

    def abandon_all(self) -> None:
        """Stop watching whatever runs, without a card."""
        self._armed.clear()

    def _arm(self, armed: _Armed, info: Any) -> None:
        line = find_in_cell(info.raw_cell or "")
        # A cell within a cell, as %%capture makes of its body, is the outer one's doing: one line for both.
        if line is None and (not self.every_cell or len(self._armed) > 1):
            return
        try:
            options = parse(line) if line is not None else _EVERY_CELL
            armed.needs_memory = options.need is not None
            check(options)
        except OptionError:
            # The body does not run either: what stands in its place shows the error.
            return
        wait_note = None
        if armed.needs_memory and runs_at_all(self._shell, info):
            try:
                wait_note = wait_for_memory.wait_for_memory(options, self._shell)
            except OptionError as error:
                skip_cell.refuse(self._shell, str(error))
                return
            armed.needs_memory = False
        if options.device is not None:
            try:
                armed.leave_device = enter_device(options.device)
            except Exception as error:
                _LOG.warning(
                    "The cell runs without --device %s: %s", options.device, printable_lines(str(error))
                )
        with_chart = options.live and self._prepare_chart()
        armed.asked = line is not None
        armed.render = None if options.quiet else card.bundle if line is not None else card.line_bundle
        # IPython 9 has counted shell.execution_count up by now, older ones not yet; Out[N] is the cell's N.
        stored = getattr(info, "store_history", False)
        count = self._shell.displayhook.prompt_count if stored else None
        looking = [
            *witnesses(options, self._shell, info.raw_cell or ""),
            *wait_for_memory.witnesses(wait_note),
        ]
        run = watch_api.new_run(options.run, options.label, count, looking, info.raw_cell)
        armed.run = run
        if armed.render is not None:
            armed.place = CardPlace(self._shell)
            armed.place.start()
        if with_chart:
            armed.view = live_display.LiveView(run.progress, self._shell)
            armed.view.start()
        watch_api.enter_cell(run)
        armed.stop_listening = tell_of_error(info, armed.fail)
        run.start()

    def _prepare_chart(self) -> bool:
        if not has_front_end(self._shell):
            return False
        try:
            live_display.prepare()
        except live_display.LiveUnavailable as error:
            _LOG.warning("%s", printable_lines(str(error)))
            return False
        return True

    def _device_after(self, armed: _Armed | None) -> None:
        with ignore_interrupts():
            try:
                if armed is not None:
                    armed.restore_device()
            except Exception:
                _LOG.warning("The cell's --device could not be put back", exc_info=True)
            DEVICE_SWITCH.after_cell()

    def _settle(self, armed: _Armed, run: Run, status: Status, ended_on_output: bool) -> None:
        run.end(status)
        with ignore_interrupts():
            watch_api.leave_cell(run)
            try:
                report = run.report()
            finally:
                armed.stop_showing(followed=ended_on_output)
            if not armed.asked and not self.every_cell:
                return  # the cell that said `%gpu watch off`
            watch_api.keep(report)
            if report is not None and armed.render is not None and armed.place is not None:
                armed.place.show(armed.render(report))


def check(options: WatchOptions) -> None:
    """Raise OptionError where a GPU or a device that ``options`` name can't be used."""
    watch_api.check(options.run)
    if options.device is not None:
        default_device.check_for_cell(options.device)


def runs_at_all(shell: Any, info: Any) -> bool:
    """Whether the cell is Python that can be compiled: for one that is not, nobody need wait."""
    try:
        cell = getattr(info, "transformed_cell", None)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the shell compiles it again, and says them then
            shell.compile.ast_parse(shell.transform_cell(info.raw_cell) if cell is None else cell)
    except Exception:
        return False
    return True


def enter_device(device: str) -> Callable[[], str | None]:
    """Use ``device`` until what is returned is called; see :meth:`DeviceSwitch.enter`."""
    name = default_device.checked(device) or "cpu"
    with defer_interrupts():
        return DEVICE_SWITCH.use_device(name)


def has_front_end(shell: Any) -> bool:
    """Whether a notebook may be listening: a live chart needs a kernel's messages."""
    return getattr(shell, "kernel", None) is not None


def _status(result: Any) -> Status:
    if result is None:
        # The cell's task was cancelled: that is how an interrupt ends an `await`.
        return "interrupted"
    error = result.error_before_exec or result.error_in_exec
    if type(error).__name__ == "CancelledError":
        return "interrupted"
    if isinstance(error, GeneratorExit):
        return "error"  # which ends a generator as it should, but no cell
    return watch_api.status_of(error)
