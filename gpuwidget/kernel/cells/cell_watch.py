"""Watches one cell: its run, its live chart and its card.

Importing this module takes as long as the rest of ``%load_ext gpuwidget``. It is imported when the kernel is
idle or for the first watched cell, whichever comes first.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from gpuwidget.kernel.cells import watch_api
from gpuwidget.kernel.cells.cell_errors import listen_for_error
from gpuwidget.kernel.cells.cell_outcome import status_of, status_of_result, tell_no_card
from gpuwidget.kernel.cells.collectors import collectors
from gpuwidget.kernel.cells.options import WatchOptions
from gpuwidget.kernel.cells.run_journal import RUN_JOURNAL
from gpuwidget.kernel.devices import default_device
from gpuwidget.kernel.live import chart_libraries, live_display
from gpuwidget.kernel.live.live_display import LiveKind
from gpuwidget.kernel.shell.front_end import prefers_html, shows_live
from gpuwidget.kernel.shell.interrupts import (
    allow_interrupts,
    defer_interrupts,
    hide_own_frames,
    ignore_interrupts,
    interrupt_soon,
)
from gpuwidget.kernel.shell.output_slot import OutputSlot
from gpuwidget.measure import notes
from gpuwidget.measure.collector import Collector
from gpuwidget.measure.run import Run
from gpuwidget.measure.run_report import empty_report
from gpuwidget.model.boundary import Boundary, error_line, stopped
from gpuwidget.model.clock import SYSTEM_CLOCK
from gpuwidget.model.report import Report, RunInfo, Status
from gpuwidget.model.terminal_text import printable_lines
from gpuwidget.model.translation import translatable
from gpuwidget.pytorch import DEVICE_SWITCH
from gpuwidget.views import card
from gpuwidget.views.card import CardReport
from gpuwidget.views.saved_outputs import output_metadata

_LOG = logging.getLogger(__name__)

_COLLECTORS = translatable("time by line and who holds the new memory")
_RUN = translatable("the run")

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
        chart: LiveKind | None = None
        if info is not None and options.live:
            with Boundary(_LOG, "the live chart could not be prepared"):
                chart = self._prepare_chart()
        with Boundary(_LOG, "a collector could not be created", partial(failures.__setitem__, _COLLECTORS)):
            found = collectors(options, self._shell, raw_cell)
        run = self.run = watch_api.new_run(options.run, options.label, number, found, raw_cell)
        for what, error in failures.items():
            run.add_failure(what, error)
        if info is not None:
            self._cell = getattr(info, "cell_id", None), raw_cell
            with Boundary(_LOG, "the outputs of a cell could not be prepared"):
                self._prepare_outputs(run, info, chart)
        if not options.quiet:  # The report of a quiet run stays in the kernel.
            RUN_JOURNAL.add_run(run, self._cell)
        watch_api.enter_cell(run)
        run.start()

    def _prepare_outputs(self, run: Run, info: object, chart: LiveKind | None) -> None:
        has_card = self._render is not None
        if chart is not None:
            self._slot = OutputSlot.reserve(self._shell, for_card=has_card)
        elif has_card:
            self._slot = OutputSlot.at_end(self._shell)
        if chart is not None and self._slot is not None:
            self._view = live_display.LiveDisplay(run.progress, self._slot, kind=chart)
            run.call_after(live_display.DELAY_S, self._view.show)
        self.stop_listening = listen_for_error(info, self.end_failed)

    def _prepare_chart(self) -> LiveKind | None:
        if not shows_live(self._shell):
            return None
        if prefers_html():
            return "html"
        try:
            chart_libraries.prepare_libraries()
        except chart_libraries.LiveUnavailable as error:
            _LOG.warning("%s", printable_lines(str(error)))
            return "html"
        return "widgets"

    def end_failed(self, result: Any) -> None:
        """End the run when the cell's code raises an error, before IPython spends time on the traceback."""
        try:
            with defer_interrupts():
                hide_own_frames(result.error_in_exec)
                if self._slot is not None:
                    self._slot.ends_with_result()
                if self.run is not None:
                    self.run.end(status_of_result(result))
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
            if run is not None:
                with Boundary(_LOG, "a run could not be ended in the journal"):
                    last = last or RUN_JOURNAL.last_run(run)
                    problem = RUN_JOURNAL.note(run)
                    report = report if problem is None else report.with_notes(problem)
                    RUN_JOURNAL.end(run, report, self.oom)
            watch_api.keep(report, self._cell)
            if self._render is not None:
                with Boundary(_LOG, "a card could not be shown", tell_no_card):
                    bundle = self._render(report, self.oom, last)
                    if bundle is not None:
                        self._show(bundle)
                        self.oom = None

    def end_body(self, error: BaseException) -> None:
        """End the run of a magic's body that failed, whose card the end of the cell shows."""
        if self.run is not None:
            self.run.end(status_of(error), wait_context=allow_interrupts)
            watch_api.leave_cell(self.run)
        self.restore_device()

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
                    RUN_JOURNAL.discard(run)
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
