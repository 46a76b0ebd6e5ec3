"""The inline dashboard of ``%gpu`` and ``gpuwidget.dashboard()``: live charts and a device dropdown.

A kernel has at most one dashboard: opening a new one closes the old one. A dashboard samples while a cell
runs and for ten minutes after the last cell or click. Then it pauses, because a kernel is not notified when
its browser disconnects. The next cell or click resumes it.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

from gpuwidget.kernel.devices import default_device
from gpuwidget.kernel.devices.device_choices import DeviceChoices
from gpuwidget.kernel.live import chart_libraries
from gpuwidget.kernel.shell.interrupts import defer_interrupts, ignore_interrupts
from gpuwidget.kernel.shell.output_slot import IOPubChannel
from gpuwidget.kernel.shell.running_cells import RunningCells
from gpuwidget.measure.progress import GpuProgress, Progress
from gpuwidget.model.boundary import Boundary, foreign_attribute, stopped
from gpuwidget.model.clock import SYSTEM_CLOCK, Clock
from gpuwidget.model.errors import GpuWidgetError
from gpuwidget.model.kernel_state import DeviceState, KernelGpu
from gpuwidget.model.lazy_imports import own_warning_filters
from gpuwidget.model.samples import Sample
from gpuwidget.model.translation import _, error_text, in_view_language, translatable
from gpuwidget.pytorch import DEVICE_SWITCH
from gpuwidget.sampler import Sampler, Subscription, process_sampler
from gpuwidget.views.saved_outputs import output_metadata
from gpuwidget.views.time_axis import TimeAxis

if TYPE_CHECKING:
    from gpuwidget.kernel.live.dashboard_widgets import DashboardView

_LOG = logging.getLogger(__name__)

PERIOD_S = 0.5
WINDOW_S = 120.0
ACTIVE_S = 600.0
"""Seconds for which the dashboard keeps sampling after the last cell or click."""

_DEVICES_EVERY_S = 10.0
_PAUSED_CHECK_S = 30.0
_STOP_TIMEOUT_S = 0.5
_PAUSED = translatable("Paused: no cell has run for ten minutes. Run a cell or click Resume to continue.")
_FAILED = translatable("This dashboard has failed and shows the last known values. Run %gpu for a new one.")


class UserActivity:
    """Tracks whether the notebook is in use: a cell is running, or the last cell or click is recent."""

    def __init__(
        self, running: RunningCells, clock: Clock = SYSTEM_CLOCK, active_s: float = ACTIVE_S
    ) -> None:
        self._running = running
        self._clock = clock
        self._active_s = active_s
        self._last = clock.monotonic()

    def record(self) -> None:
        """Record an action of the user: the start or the end of a cell, or a click."""
        self._last = self._clock.monotonic()

    @property
    def recent(self) -> bool:
        """Whether a cell is running, or the last action is recent."""
        return self._running.busy or self._clock.monotonic() - self._last < self._active_s


class RecentSamples:
    """The samples of the last two minutes."""

    def __init__(self) -> None:
        self._samples: deque[Sample] = deque(maxlen=round(WINDOW_S / PERIOD_S))

    def add(self, sample: Sample) -> None:
        """Add a sample, unless it is the one that was added last."""
        if not self._samples or self._samples[-1].time != sample.time:
            self._samples.append(sample)

    def progress(self, kernel_gpus: tuple[KernelGpu, ...]) -> Progress:
        """Return the samples in the form that a live chart takes, with this kernel's share of each GPU."""
        newest = self._samples[-1]
        start = newest.time - WINDOW_S
        samples = [sample for sample in self._samples if start <= sample.time <= newest.time]
        shares = {gpu.uuid: gpu for gpu in kernel_gpus}
        gpus = []
        for gpu, reading in zip(newest.gpus, newest.readings, strict=True):
            readings = [next((r for r in s.readings if r.uuid == gpu.uuid), None) for s in samples]
            share = shares.get(gpu.uuid)
            gpus.append(
                GpuProgress(
                    gpu=gpu,
                    reading=reading,
                    torch_device=None if share is None else share.torch_device,
                    process_memory=None if share is None else share.process_memory,
                    utilization=tuple(None if r is None else r.utilization for r in readings),
                    device_memory=tuple(None if r is None else r.memory_used for r in readings),
                )
            )
        return Progress(
            elapsed_s=WINDOW_S,
            label=None,
            origin=newest.origin,
            attributed=True,
            t=tuple(sample.time - start for sample in samples),
            gpus=tuple(gpus),
            marks=(),
            advice=None,
        )


class Dashboard:
    """A dashboard. Displaying it shows its widgets; :meth:`close` closes them."""

    def __init__(self, shell: Any, sampler: Sampler) -> None:
        self._shell = shell
        self._sampler = sampler
        # Do not use the extension's RunningCells, because the dashboard must also work without %load_ext.
        self._running = RunningCells(shell)
        self._activity = UserActivity(self._running)
        self._samples = RecentSamples()
        self._window = TimeAxis.last(WINDOW_S)
        self._changed = threading.Condition()
        self._devices_due = 0.0
        self._devices_changed = True
        self._paused = False
        self._closed = False
        self._subscription: Subscription | None = None
        self._thread: threading.Thread | None = None
        self._view: DashboardView | None = None
        self._error = ""

    def __repr__(self) -> str:
        return default_device.describe_devices()

    def _repr_mimebundle_(
        self, include: object = None, exclude: object = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        return self.bundle(), output_metadata()

    def bundle(self) -> dict[str, Any]:
        """Return the mime bundle. The first call starts sampling. After :meth:`close`, the bundle contains
        only text."""
        bundle = {"text/plain": repr(self)}
        if self._view is None and not self._closed:
            self._start()
        return bundle if self._view is None else {**bundle, **self._view.bundle()}

    def close(self) -> None:
        """Stop sampling and close the widgets. Safe to call twice."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        DEVICE_SWITCH.unsubscribe(self._device_changed)
        for event, hook in self._hooks:
            if hook in self._shell.events.callbacks[event]:
                self._shell.events.unregister(event, hook)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(_STOP_TIMEOUT_S)
        view, self._view = self._view, None
        if view is not None:
            view.close()

    # -- event handlers ------------------------------------------------------------------------------

    @cached_property
    def _hooks(self) -> tuple[tuple[str, Callable[..., None]], ...]:
        if self._shell is None:
            return ()
        # IPython shows the traceback of an interrupt that arrives in a hook.
        defer, ignore = defer_interrupts(), ignore_interrupts()
        return (
            ("pre_run_cell", defer(self._running.before)),
            ("pre_run_cell", defer(self._cell_started)),
            ("post_run_cell", ignore(self._running.ending)),
            ("post_run_cell", ignore(self._running.after)),
            ("post_run_cell", ignore(self._cell_finished)),
        )

    def _cell_started(self, info: object) -> None:
        self._activity.record()
        self._wake()

    def _cell_finished(self, result: object) -> None:
        self._activity.record()

    def _device_changed(self, state: DeviceState) -> None:
        with self._changed:
            self._devices_changed = True
            self._changed.notify_all()

    def _resume(self) -> None:
        self._activity.record()
        self._wake()

    def _wake(self) -> None:
        if self._paused:
            with self._changed:
                self._changed.notify_all()

    def _set_device(self, value: str, new_tensors: bool) -> None:
        """Set the device that the user selected. Unless ``new_tensors``, set only the current CUDA device."""
        self._activity.record()
        try:
            default_device.set_device(value, new_tensors=new_tensors)
            self._error = ""
        except GpuWidgetError as error:
            self._error = _error_text(error)
        # If the device could not be set, this resets the dropdown.
        self._device_changed(DEVICE_SWITCH.state)

    # -- the thread that updates the widgets ---------------------------------------------------------

    def _start(self) -> None:
        if getattr(self._shell, "kernel", None) is None:
            return  # A terminal needs no widgets: it shows only the mime bundle's text.
        channel = IOPubChannel.of_running_cell(self._shell)
        chart_libraries.import_libraries()
        with own_warning_filters():
            from gpuwidget.kernel.live.dashboard_widgets import DashboardView

        self._view = DashboardView(self._set_device, self._resume)
        for event, hook in self._hooks:
            self._shell.events.register(event, hook)
        DEVICE_SWITCH.subscribe(self._device_changed)
        run = self._run if channel is None else channel.in_context(self._run)
        self._thread = threading.Thread(target=run, name="gpuwidget-dashboard", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        view = self._view
        try:
            while view is not None and not self._closed and not view.closed:
                if self._activity.recent:
                    self._step(view)
                elif not self._paused:
                    self._pause(view)
                if self._paused and self._devices_changed:
                    self._show_devices(view, None)
                with self._changed:
                    # An event that arrived while the dashboard was pausing has not woken this thread, so
                    # check for it before waiting.
                    resume = self._paused and (self._devices_changed or self._activity.recent)
                    if not self._closed and not resume:
                        self._changed.wait(_PAUSED_CHECK_S if self._paused else PERIOD_S)
        except BaseException as error:
            stopped(_LOG, "The dashboard failed", error)
            if view is not None:
                with Boundary(_LOG, "the dashboard could not show its error"):
                    view.show_text(_in_view_language(_FAILED))
        finally:
            self._unsubscribe()

    def _step(self, view: DashboardView) -> None:
        if self._subscription is None:
            self._paused = False
            self._subscription = self._sampler.subscribe(interval_s=PERIOD_S)
            view.show_paused(False)
            self._devices_changed = True
        sample = self._sampler.latest
        if sample is None:
            return
        self._samples.add(sample)
        view.show_progress(self._samples.progress(default_device.monitor().kernel_gpus(sample)), self._window)
        if self._devices_changed or SYSTEM_CLOCK.monotonic() >= self._devices_due:
            self._show_devices(view, sample)

    def _pause(self, view: DashboardView) -> None:
        self._paused = True
        self._unsubscribe()
        self._devices_changed = True
        view.show_paused(True)

    def _unsubscribe(self) -> None:
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            subscription.close()

    @in_view_language
    def _show_devices(self, view: DashboardView, sample: Sample | None) -> None:
        self._devices_changed = False
        self._devices_due = SYSTEM_CLOCK.monotonic() + _DEVICES_EVERY_S
        choices = default_device.monitor().device_choices(sample)
        state = DEVICE_SWITCH.state
        options = _options(choices, state)
        view.show_devices(options, state.chosen or "none", state.new_tensors, bool(choices.devices))
        paused = _(_PAUSED) if self._paused else None
        texts = (paused, self._error, default_device.describe(state), _(choices.unavailable or ""))
        view.show_text(" ".join(filter(None, texts)))


def _options(choices: DeviceChoices, state: DeviceState) -> list[tuple[str, str]]:
    options = [(default_device.default_label(state), "none")]
    options += [(default_device.label(choice), choice.device) for choice in choices.devices]
    if state.chosen is not None and state.chosen not in [value for _, value in options]:
        options.append((state.chosen, state.chosen))
    return options


@in_view_language
def _in_view_language(text: str) -> str:
    return _(text)


@in_view_language
def _error_text(error: GpuWidgetError) -> str:
    return error_text(error)


_lock = threading.Lock()
_current: Dashboard | None = None


def dashboard() -> Dashboard:
    """Return a dashboard with live charts of all GPUs and a dropdown for torch's default device.

    It displays as a widget, or in a terminal as a list of the devices. A previous dashboard is closed.
    Displaying the new dashboard raises GpuWidgetError if ipywidgets or bqplot can't be imported.
    """
    return new_dashboard(_shell())


def new_dashboard(shell: Any) -> Dashboard:
    """Return a dashboard of this shell, and close the previous one."""
    global _current
    close()
    created = Dashboard(shell, process_sampler())
    with _lock:
        _current = created
    return created


def close() -> None:
    """Close the current dashboard, if there is one."""
    global _current
    with _lock:
        before, _current = _current, None
    if before is not None:
        before.close()


def _shell() -> Any:
    """Return the running IPython shell; None if there is none, as in a script."""
    get_ipython = foreign_attribute("IPython", "get_ipython")
    return None if get_ipython is None else get_ipython()
