"""Watch cells: start a run before a cell, and show the run's report after the cell.

The cell itself runs as it would without gpuwidget. Hooks for IPython's ``pre_run_cell`` and ``post_run_cell``
events start and end the run. If these hooks do not find ``%%gpuwatch``, for example below another cell magic,
IPython calls the registered magic, which also uses :class:`CellWatch` to watch the body.
"""

from __future__ import annotations

import logging
import warnings
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from gpuwidget.kernel.cells import skip_cell
from gpuwidget.kernel.cells.cell_outcome import status_of, status_of_result, tell_no_card
from gpuwidget.kernel.cells.options import WatchOptions, find_in_cell, is_own_magic, parse
from gpuwidget.kernel.devices import default_device
from gpuwidget.kernel.devices.switch_requests import SWITCHES
from gpuwidget.kernel.shell.interrupts import (
    defer_interrupts,
    ignore_interrupts,
    interrupt_soon,
)
from gpuwidget.kernel.shell.running_cells import RunningCell, RunningCells
from gpuwidget.measure.run_options import RunOptions
from gpuwidget.model.boundary import Boundary, error_line, stopped
from gpuwidget.model.errors import OptionError
from gpuwidget.model.terminal_text import printable_lines
from gpuwidget.model.translation import error_text, in_view_language, translatable
from gpuwidget.pytorch import DEVICE_SWITCH, find_oom_error

if TYPE_CHECKING:
    from gpuwidget.kernel.cells.cell_watch import CellWatch

_LOG = logging.getLogger(__name__)

_INTERRUPTED = translatable("Interrupted before it began: the cell was not run.")
_WAIT_INTERRUPTED = translatable(
    "Interrupted while gpuwidget waited for the GPU: the cell's code had already ended."
)

_EVERY_CELL = WatchOptions(run=RunOptions(), live=False, quiet=False, label=None, device=None)
"""Options of a cell that has no ``%%gpuwatch`` line and is watched because ``%gpu watch on`` is in effect."""


class CellWatcher:
    """Starts and finishes the watches of one shell's cells."""

    def __init__(self, shell: Any, running: RunningCells) -> None:
        self._shell = shell
        self._running = running
        self._watches: WeakKeyDictionary[RunningCell, CellWatch] = WeakKeyDictionary()
        self.every_cell = False
        """Whether cells without ``%%gpuwatch`` get a one-line card."""

    @property
    def busy(self) -> bool:
        return self._running.busy

    def before(self, info: Any) -> None:
        """Handle ``pre_run_cell``: start watching if the cell has ``%%gpuwatch`` or every cell is watched."""
        cell = self._running.find(info)
        if cell is None:
            return
        watch: CellWatch | None = None
        needs_memory = False

        def still_needs_memory() -> bool:
            return needs_memory if watch is None else watch.needs_memory

        try:
            with defer_interrupts(), Boundary(_LOG, "the requested switches could not be set"):
                DEVICE_SWITCH.before_cell()
                if not self._running.nested:
                    SWITCHES.apply_pending()
            if not self._is_watched(cell):
                return
            needs_memory = _needs_memory(cell)
            with defer_interrupts():
                watch = self._watches[cell] = self._new_watch()
                watch.needs_memory = needs_memory
                cell.on_lost.append(watch.discard)
            self._start(watch, cell)
        except KeyboardInterrupt:
            # The user interrupted before the cell's code began. IPython ignores exceptions of hooks, so
            # gpuwidget sends the interrupt again, to arrive in the cell's code.
            if watch is not None:
                watch.abandon()
                watch.restore_device()
            # The interrupt that gpuwidget sends again would arrive only after the code has started. If the
            # cell still needs memory, its code must not start.
            if still_needs_memory():
                skip_cell.skip(self._shell, _view_text(OptionError(_INTERRUPTED)))
            else:
                interrupt_soon()
        except BaseException as error:
            stopped(_LOG, "a cell could not be watched", error)
            if still_needs_memory():
                from gpuwidget.kernel.cells.wait_for_memory import check_failed

                skip_cell.skip(self._shell, _view_text(check_failed(error)))
                if watch is not None:
                    watch.abandon()
                return
            if watch is None:
                watch = self._watches[cell] = self._new_watch()
            watch.fail(error)

    def _is_watched(self, cell: RunningCell) -> bool:
        raw_cell: str = getattr(cell.info, "raw_cell", None) or ""
        if find_in_cell(raw_cell) is not None:
            return True
        # A nested cell, such as the body of %%capture, shares the one-line card of the outer cell.
        return self.every_cell and len(self._running) <= 1 and not is_own_magic(raw_cell)

    def _new_watch(self) -> CellWatch:
        # Imported late, because of the time that it takes. The warning filters stay: if they changed,
        # Python would repeat warnings that it shows the user only once.
        with defer_interrupts():
            from gpuwidget.kernel.cells.cell_watch import CellWatch
        return CellWatch(self._shell)

    def failed(self, result: Any) -> None:
        """Handle ``post_run_cell``, before hints and cards are shown: if the cell failed, end its run."""
        if getattr(result, "error_in_exec", None) is not None:
            watch = self.watch_of(result)
            if watch is not None:
                watch.stop_listening()
                watch.end_failed(result)

    def after(self, result: Any) -> None:
        """Handle ``post_run_cell``: finish the run and show its card."""
        skip_cell.clear(self._shell)
        watch = self.watch_of(result)
        interrupted = False
        try:
            if watch is not None and watch.watching:
                status = status_of_result(result)
                watch.finish(
                    status,
                    cell_has_result=status != "ok" or getattr(result, "result", None) is not None,
                    # no card for the cell that runs `%gpu watch off`
                    keep=watch.requested or self.every_cell,
                )
                interrupted = watch.run is not None and watch.run.wait_interrupted
        except BaseException as error:
            stopped(_LOG, "a watched cell could not be reported", error)
            tell_no_card(error)
        finally:
            self._restore_device(watch)
            if watch is not None:
                watch.abandon()
        if interrupted:
            self._fail_interrupted(result)

    def _fail_interrupted(self, result: Any) -> None:
        """Let a cell fail whose user interrupted the wait for the GPU after the code, to stop "Run All".

        IPython ignores an interrupt that arrives in a later hook. The outer code of a nested cell continues,
        and the interrupt stops that code.
        """
        if self._running.nested:
            interrupt_soon()
            return
        error = KeyboardInterrupt(_view_text(OptionError(_WAIT_INTERRUPTED)))
        result.error_in_exec = error
        self._shell._showtraceback(type(error), error, [f"{type(error).__name__}: {error}"])

    def begin_body(self, options: WatchOptions, body: str) -> CellWatch:
        """Start watching the body of a ``%%gpuwatch`` magic. Raise OptionError if the body must not run."""
        watch = self._new_watch()
        try:
            wait_note = self._wait_for_memory(options)
            if options.device is not None:
                watch.enter_device(options.device)
        except BaseException:
            watch.restore_device()
            raise
        try:
            watch.start(options, body, wait_note=wait_note)
        except (OptionError, KeyboardInterrupt):
            watch.abandon()
            watch.restore_device()
            raise
        except BaseException as error:
            stopped(_LOG, "a cell's body could not be watched", error)
            watch.fail(error)
        return watch

    def end_body(self, watch: CellWatch, error: BaseException | None) -> None:
        """Finish a watch from :meth:`begin_body`; ``error`` is the body's exception, or None.

        If the body ran out of memory, the watch is finished with its cell instead: the card of the error,
        with which its card begins, is made after the traceback.
        """
        if error is not None and self._hand_over(watch, error):
            return
        run = watch.run
        try:
            with Boundary(_LOG, "a cell's body could not be reported", tell_no_card):
                watch.finish(status_of(error))
        finally:
            watch.restore_device()
            watch.abandon()
        if run is not None and run.wait_interrupted:
            interrupt_soon()

    def _hand_over(self, watch: CellWatch, error: BaseException) -> bool:
        """End the run of a body that ran out of memory. Return whether the cell's end shows its card."""
        try:
            cell = self._running.find(None)
            own = None if cell is None else self._watches.get(cell)
            if cell is None or (own is not None and own.watching) or find_oom_error(error) is None:
                return False
            watch.end_body(error)
            self._watches[cell] = watch
            cell.on_lost.append(watch.discard)
        except BaseException as failure:
            stopped(_LOG, "a cell's body could not be handed over to its cell", failure)
            return False
        return True

    def watch_of(self, result: Any) -> CellWatch | None:
        """Return the watch of the cell that has this result, if it is watched."""
        cell = self._running.find(getattr(result, "info", None))
        return None if cell is None else self._watches.get(cell)

    def _start(self, watch: CellWatch, cell: RunningCell) -> None:
        info: Any = cell.info
        raw_cell: str = info.raw_cell or ""
        line = find_in_cell(raw_cell)
        try:
            options = parse(line) if line is not None else _EVERY_CELL
            check(options)
        except OptionError:
            # There is nothing to watch: Extension._transform has replaced the cell with a magic that shows
            # this error.
            return
        wait_note = None
        if watch.needs_memory and self._compiles(info):
            try:
                wait_note = self._wait_for_memory(options)
            except OptionError as error:
                skip_cell.skip(self._shell, _view_text(error))
                return
            watch.needs_memory = False
        if options.device is not None:
            try:
                watch.enter_device(options.device)
            except BaseException as error:
                stopped(_LOG, "the device of a cell could not be set", error, foreign=True)
                _LOG.warning(
                    "The cell runs without --device %s: %s", options.device, printable_lines(str(error))
                )
        watch.requested = line is not None
        watch.start(options, raw_cell, cell.number, wait_note=wait_note, info=info)

    def _wait_for_memory(self, options: WatchOptions) -> str | None:
        if options.need is None:
            return None
        with defer_interrupts():
            from gpuwidget.kernel.cells.wait_for_memory import wait_for_memory
        return wait_for_memory(options, self._shell)

    def _compiles(self, info: Any) -> bool:
        """Return whether the cell is valid Python. If it is not, it fails without waiting for memory."""
        try:
            code = getattr(info, "transformed_cell", None)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the shell shows these warnings when it compiles the cell
                self._shell.compile.ast_parse(
                    self._shell.transform_cell(info.raw_cell) if code is None else code
                )
        except BaseException as error:
            stopped(_LOG, "the cell is not valid Python", error, foreign=True)
            return False
        return True

    def _restore_device(self, watch: CellWatch | None) -> None:
        with ignore_interrupts():
            try:
                if watch is not None:
                    watch.restore_device()
            except BaseException as error:
                stopped(_LOG, "the device of a cell could not be restored", error, foreign=True)
                _LOG.warning(
                    "The cell's --device could not be put back: %s", printable_lines(error_line(error))
                )
            with Boundary(_LOG, "the default device could not be read"):
                DEVICE_SWITCH.after_cell()


def _needs_memory(cell: RunningCell) -> bool:
    """Return whether the cell has the option ``--need``."""
    line = find_in_cell(getattr(cell.info, "raw_cell", None) or "")
    try:
        return line is not None and parse(line).need is not None
    except OptionError:
        return False


@in_view_language
def _view_text(error: OptionError) -> str:
    return error_text(error)


def check(options: WatchOptions) -> None:
    """Raise OptionError if ``options`` name a GPU or a device that can't be used."""
    if options.run.gpus:
        from gpuwidget.kernel.cells import watch_api

        watch_api.check(options.run)
    if options.device is not None:
        default_device.check_for_cell(options.device)
