"""Watch cells: start a run before a cell, and show the run's report after the cell.

The cell itself runs as it would without gpuwidget. Hooks for IPython's ``pre_run_cell`` and ``post_run_cell``
events start and end the run. If these hooks do not find ``%%gpuwatch``, for example below another cell magic,
IPython calls the registered magic, which also uses :class:`CellWatch` to watch the body.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from gpuwidget.kernel.cells import skip_cell, wait_for_memory, watch_api
from gpuwidget.kernel.cells.cell_errors import listen_for_error
from gpuwidget.kernel.cells.collectors import collectors
from gpuwidget.kernel.cells.options import WatchOptions, find_in_cell, is_own_magic, parse
from gpuwidget.kernel.devices import default_device
from gpuwidget.kernel.devices.switch_requests import SWITCHES
from gpuwidget.kernel.live import live_display
from gpuwidget.kernel.shell.front_end import shows_live
from gpuwidget.kernel.shell.interrupts import (
    allow_interrupts,
    defer_interrupts,
    hide_own_frames,
    ignore_interrupts,
    interrupt_soon,
)
from gpuwidget.kernel.shell.output_slot import OutputSlot
from gpuwidget.kernel.shell.running_cells import RunningCell, RunningCells
from gpuwidget.measure import notes
from gpuwidget.measure.collector import Collector
from gpuwidget.measure.run import Run, RunOptions
from gpuwidget.measure.run_report import empty_report
from gpuwidget.model.boundary import Boundary, error_line, stopped
from gpuwidget.model.clock import SYSTEM_CLOCK
from gpuwidget.model.errors import OptionError
from gpuwidget.model.report import Report, RunInfo, Status
from gpuwidget.model.terminal_text import printable_lines
from gpuwidget.model.translation import _, error_text, in_view_language, translatable
from gpuwidget.pytorch.device_switch import DEVICE_SWITCH
from gpuwidget.pytorch.oom_error import find_oom_error
from gpuwidget.views import card
from gpuwidget.views.card import CardReport
from gpuwidget.views.saved_outputs import output_metadata

_LOG = logging.getLogger(__name__)

_INTERRUPTED = translatable("Interrupted before it began: the cell was not run.")
_WAIT_INTERRUPTED = translatable(
    "Interrupted while gpuwidget waited for the GPU: the cell's code had already ended."
)

_COLLECTORS = translatable("time by line and who holds the new memory")
_RUN = translatable("the run")

_EVERY_CELL = WatchOptions(run=RunOptions(), live=False, quiet=False, label=None, device=None)
"""Options of a cell that has no ``%%gpuwatch`` line and is watched because ``%gpu watch on`` is in effect."""


_Render = Callable[[Report, Mapping[str, Any] | None, Report | None], dict[str, Any] | None]


class CellWatch:
    """Watches one cell, or the body of one ``%%gpuwatch`` magic.

    Manages the run, the live chart, the card, and the torch device of ``--device``.
    """

    def __init__(self, shell: Any) -> None:
        self.run: Run | None = None
        self.requested = True
        """Whether the cell has ``%%gpuwatch``."""
        self.needs_memory = False
        """Whether the cell must not run yet, because ``--need`` has not been checked successfully."""
        self.stop_listening: Callable[[], None] = lambda: None
        """Call it to stop listening for the cell's error."""
        self._shell = shell
        self._view: live_display.LiveDisplay | None = None
        self._slot: OutputSlot | None = None
        self._render: _Render | None = card.bundle
        """Makes the card from the report; None if no card is shown. A watch that fails before it knows its
        options has a full card."""
        self._restore_device: Callable[[], str | None] | None = None
        self._wait_note: str | None = None
        self._began = SYSTEM_CLOCK.time(), SYSTEM_CLOCK.monotonic()
        self._named: tuple[int | None, str | None] = None, None
        """The N of In[N] and the label."""
        self._cell: tuple[object, str] | None = None
        """The id and the code of the cell; None for the body of a magic."""
        self._failure: BaseException | None = None
        """Why there is no run, although the cell is watched."""
        self.oom: dict[str, Any] | None = None
        """The card of an out-of-memory error, with which the cell's card begins."""

    @property
    def watching(self) -> bool:
        """Whether the cell gets a report."""
        return self.run is not None or self._failure is not None

    @property
    def has_card(self) -> bool:
        """Whether a card will be shown below the cell."""
        return self.watching and self._render is not None

    def fail(self, error: BaseException) -> None:
        """Stop watching because of a defect. The report then has only the cell's duration and the error."""
        with Boundary(_LOG, "a watch could not be abandoned"):
            self.abandon()
        self._failure = error

    def enter_device(self, device: str) -> None:
        """Make ``device`` torch's default until :meth:`restore_device`."""
        name = default_device.validate_device(device) or "cpu"
        with defer_interrupts():
            self._restore_device = DEVICE_SWITCH.use_device(name)

    def restore_device(self) -> None:
        """Restore torch's default device. Safe to call twice."""
        restore, self._restore_device = self._restore_device, None
        if restore is not None:
            warning = restore()
            if warning is not None:
                _LOG.warning("%s", printable_lines(warning))

    def start(
        self,
        options: WatchOptions,
        raw_cell: str,
        number: int | None = None,
        *,
        wait_note: str | None = None,
        info: object = None,
    ) -> None:
        """Start the run. ``info`` is IPython's ExecutionInfo for a cell, and None for the body of a magic."""
        self._wait_note = wait_note
        self._named = number, options.label
        if options.quiet:
            self._render = None
        elif not self.requested:
            self._render = card.line_bundle
        failures: dict[str, BaseException] = {}
        found: list[Collector] = []
        show_chart = False
        if info is not None and options.live:
            with Boundary(_LOG, "the live chart could not be prepared"):
                show_chart = self._prepare_chart()
        with Boundary(_LOG, "a collector could not be created", partial(failures.__setitem__, _COLLECTORS)):
            found = collectors(options, self._shell, raw_cell)
        run = self.run = watch_api.new_run(options.run, options.label, number, found, raw_cell)
        for what, error in failures.items():
            run.add_failure(what, error)
        if info is not None:
            self._cell = getattr(info, "cell_id", None), raw_cell.strip()
            with Boundary(_LOG, "the outputs of a cell could not be prepared"):
                self._prepare_outputs(run, info, show_chart=show_chart)
        watch_api.enter_cell(run)
        run.start()

    def _prepare_outputs(self, run: Run, info: object, *, show_chart: bool) -> None:
        has_card = self._render is not None
        if show_chart:
            self._slot = OutputSlot.reserve(self._shell, for_card=has_card)
        elif has_card:
            self._slot = OutputSlot.at_end(self._shell)
        if show_chart and self._slot is not None:
            self._view = live_display.LiveDisplay(run.progress, self._slot)
            run.call_after(live_display.DELAY_S, self._view.show)
        self.stop_listening = listen_for_error(info, self.end_failed)

    def _prepare_chart(self) -> bool:
        if not shows_live(self._shell):
            return False
        try:
            live_display.prepare_libraries()
        except live_display.LiveUnavailable as error:
            _LOG.warning("%s", printable_lines(str(error)))
            return False
        return True

    def end_failed(self, result: Any) -> None:
        """End the run when the cell's code raises an error, before IPython spends time on the traceback."""
        try:
            with defer_interrupts():
                hide_own_frames(result.error_in_exec)
                if self._slot is not None:
                    self._slot.ends_with_result()
                if self.run is not None:
                    self.run.end(_status(result))
        except KeyboardInterrupt:
            # It arrived before the interrupts were deferred or just after that.
            interrupt_soon()
        except BaseException as error:
            stopped(_LOG, "the run of a failed cell could not be ended", error)

    def finish(self, status: Status, *, cell_has_result: bool = False, keep: bool = True) -> None:
        """End the run unless it has ended, and show the card; if ``keep`` is False, discard the report."""
        run = self.run
        if cell_has_result and self._slot is not None:
            with Boundary(_LOG, "the result of a cell could not be noted"):
                self._slot.ends_with_result()
        if run is not None:
            run.end(status, wait_context=allow_interrupts)
        with ignore_interrupts():
            if run is not None:
                with Boundary(_LOG, "the marks of a cell could not be ended"):
                    watch_api.leave_cell(run)
            report = self._failed_report(status) if run is None else run.report()
            if self._view is not None:
                self._view.stop()
            if report is None or not keep:
                return
            if self._wait_note is not None:
                report = replace(report, notes=(*report.notes, self._wait_note))
            last = None
            with Boundary(_LOG, "the last run of a cell could not be found"):
                last = self._cell and watch_api.last_run(self._cell)
            watch_api.keep(report, self._cell)
            if self._render is not None:
                with Boundary(_LOG, "a card could not be shown", _tell_no_card):
                    bundle = self._render(report, self.oom, last)
                    if bundle is not None:
                        self._show(bundle)
                        self.oom = None

    def _failed_report(self, status: Status) -> Report | None:
        """Return a report with the cell's duration and the error that prevented the run."""
        if self._failure is None:
            return None
        (number, label), (started, began) = self._named, self._began
        cell = RunInfo(number, label, started, SYSTEM_CLOCK.monotonic() - began, None, status)
        note = notes.not_measured({_RUN: error_line(self._failure)})
        return empty_report(CardReport, cell).with_notes(note)

    def _show(self, bundle: dict[str, Any]) -> None:
        # A card about an error belongs below the traceback, and the slot is above it.
        if self._slot is not None and self.oom is None:
            self._slot.close(bundle)
        else:
            self._shell.display_pub.publish(data=bundle, metadata=output_metadata())

    def _close_outputs(self) -> None:
        """Remove the chart, and leave its slot empty unless the card is in it."""
        view, self._view = self._view, None
        slot, self._slot = self._slot, None
        try:
            if view is not None:
                view.stop()
            if slot is not None:
                slot.close()
        finally:
            if view is not None:
                view.close()

    def abandon(self) -> None:
        """Stop watching, without a card. Safe to call twice."""
        run, self.run, self._failure = self.run, None, None
        try:
            with Boundary(_LOG, "a cell's error could not be ignored"):
                self.stop_listening()
            with Boundary(_LOG, "the run of a cell could not be abandoned"):
                if run is not None:
                    run.abandon()
            if run is not None:
                watch_api.leave_cell(run)
            with Boundary(_LOG, "the outputs of a cell could not be closed"):
                self._close_outputs()
        finally:
            oom, self.oom = self.oom, None
            if oom is not None:
                # The card that should have begun with it was not shown.
                self._shell.display_pub.publish(data=oom, metadata=output_metadata())

    def discard(self) -> None:
        """Stop watching a cell that ended without a ``post_run_cell`` event. Never raises."""
        try:
            self.abandon()
            self.restore_device()
        except BaseException as error:
            stopped(_LOG, "the watch of a lost cell could not be discarded", error)


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
        """Whether a cell is running."""
        return self._running.busy

    def before(self, info: Any) -> None:
        """Handle ``pre_run_cell``: start watching if the cell has ``%%gpuwatch`` or every cell is watched."""
        cell = self._running.find(info)
        if cell is None:
            return
        watch = self._watches[cell] = CellWatch(self._shell)
        cell.on_lost.append(watch.discard)
        try:
            with defer_interrupts(), Boundary(_LOG, "the requested switches could not be set"):
                DEVICE_SWITCH.before_cell()
                if not self._running.nested:
                    SWITCHES.apply_pending()
            self._start(watch, cell)
        except KeyboardInterrupt:
            # The user interrupted before the cell's code began. IPython ignores exceptions of hooks, so
            # gpuwidget sends the interrupt again, to arrive in the cell's code.
            watch.abandon()
            watch.restore_device()
            # The interrupt that gpuwidget sends again would arrive only after the code has started. If the
            # cell still needs memory, its code must not start.
            if watch.needs_memory:
                skip_cell.skip(self._shell, _view_text(OptionError(_INTERRUPTED)))
            else:
                interrupt_soon()
        except BaseException as error:
            stopped(_LOG, "a cell could not be watched", error)
            if watch.needs_memory:
                skip_cell.skip(self._shell, _view_text(wait_for_memory.check_failed(error)))
                watch.abandon()
            else:
                watch.fail(error)

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
                status = _status(result)
                watch.finish(
                    status,
                    cell_has_result=status != "ok" or getattr(result, "result", None) is not None,
                    # no card for the cell that runs `%gpu watch off`
                    keep=watch.requested or self.every_cell,
                )
                interrupted = watch.run is not None and watch.run.wait_interrupted
        except BaseException as error:
            stopped(_LOG, "a watched cell could not be reported", error)
            _tell_no_card(error)
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
        watch = CellWatch(self._shell)
        try:
            wait_note = wait_for_memory.wait_for_memory(options, self._shell)
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
            with Boundary(_LOG, "a cell's body could not be reported", _tell_no_card):
                watch.finish(watch_api.status_of(error))
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
            if cell is None or own is None or own.watching or find_oom_error(error) is None:
                return False
            if watch.run is not None:
                watch.run.end(watch_api.status_of(error), wait_context=allow_interrupts)
                watch_api.leave_cell(watch.run)
            watch.restore_device()
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
        # A nested cell, such as the body of %%capture, shares the one-line card of the outer cell.
        unwatched = not self.every_cell or len(self._running) > 1 or is_own_magic(raw_cell)
        if line is None and unwatched:
            return
        try:
            options = parse(line) if line is not None else _EVERY_CELL
            watch.needs_memory = options.need is not None
            check(options)
        except OptionError:
            # There is nothing to watch: Extension._transform has replaced the cell with a magic that shows
            # this error.
            return
        wait_note = None
        if watch.needs_memory and self._compiles(info):
            try:
                wait_note = wait_for_memory.wait_for_memory(options, self._shell)
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


@in_view_language
def _view_text(error: OptionError) -> str:
    return error_text(error)


def check(options: WatchOptions) -> None:
    """Raise OptionError if ``options`` name a GPU or a device that can't be used."""
    watch_api.check(options.run)
    if options.device is not None:
        default_device.check_for_cell(options.device)


@in_view_language
def _tell_no_card(error: BaseException) -> None:
    """Tell in one line that the cell has no card."""
    text = _("gpuwidget could not show this cell's card: {error}", error=error_line(error))
    _LOG.warning("%s", printable_lines(text))


def _status(result: Any) -> Status:
    if result is None:
        # The cell's task was cancelled, which is how an interrupt ends an `await`.
        return "interrupted"
    error = result.error_before_exec or result.error_in_exec
    if type(error).__name__ == "CancelledError":
        return "interrupted"
    if isinstance(error, GeneratorExit):
        return "error"  # GeneratorExit closes a generator normally, but is an error in a cell
    return watch_api.status_of(error)
