"""The inline dashboard: live charts of all GPUs and the device dropdown; ``%gpu``, ``gpuwidget.dashboard()``.

There is one in a kernel: a new one ends the one before. It samples while a cell runs and for ten minutes
after the last cell or click, then pauses, since a kernel does not hear that its browser has gone; the next
cell, or a click, lets it go on. It ends when it is closed.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from gpuwidget.kernel.devices import default_device
from gpuwidget.kernel.devices.device_choices import Choices
from gpuwidget.kernel.live import live_display
from gpuwidget.kernel.live.time_axis import TimeAxis
from gpuwidget.kernel.shell.output_slot import IOPubChannel
from gpuwidget.measure.progress import GpuProgress, Progress
from gpuwidget.model.clock import SYSTEM_CLOCK, Clock
from gpuwidget.model.errors import GpuWidgetError
from gpuwidget.model.kernel_state import DeviceState, KernelGpu
from gpuwidget.model.samples import Sample
from gpuwidget.pytorch.device_switch import DEVICE_SWITCH
from gpuwidget.sampler import Sampler, Subscription, process_sampler

if TYPE_CHECKING:
    from gpuwidget.kernel.live.dashboard_widgets import DashboardView

_LOG = logging.getLogger(__name__)

PERIOD_S = 0.5
WINDOW_S = 120.0
STAYS_S = 600.0
"""How long it goes on sampling after the last sign of a person."""

_DEVICES_EVERY_S = 10.0
_PAUSED_LOOK_S = 30.0
_STOP_TIMEOUT_S = 0.5
_PAUSED = "Paused: nothing has run in this notebook for a while. The next cell goes on with it, or a click."


_FAILED = "This dashboard has failed and shows what was last known: %gpu shows a new one."


class Presence:
    """Whether somebody may be looking: a cell runs, or there was a sign of a person not long ago."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK, stays_s: float = STAYS_S) -> None:
        self._clock = clock
        self._stays_s = stays_s
        self._running = 0
        self._last = clock.monotonic()

    def cell_begins(self) -> None:
        """A cell has been run."""
        self._running += 1
        self.sign()

    def cell_ends(self) -> None:
        """It has ended."""
        self._running = max(0, self._running - 1)  # the first to end is the one that showed the dashboard
        self.sign()

    def sign(self) -> None:
        """A person has done something."""
        self._last = self._clock.monotonic()

    @property
    def likely(self) -> bool:
        """Whether to go on for them."""
        return bool(self._running) or self._clock.monotonic() - self._last < self._stays_s


class Course:
    """The last two minutes of all GPUs."""

    def __init__(self) -> None:
        self._samples: deque[Sample] = deque(maxlen=round(WINDOW_S / PERIOD_S))

    def add(self, sample: Sample) -> None:
        """Take up a sample, once."""
        if not self._samples or self._samples[-1].time != sample.time:
            self._samples.append(sample)

    def progress(self, held: tuple[KernelGpu, ...]) -> Progress:
        """As the live chart shows it; ``held`` is what this kernel has on each GPU."""
        newest = self._samples[-1]
        start = newest.time - WINDOW_S
        samples = [sample for sample in self._samples if start <= sample.time <= newest.time]
        here = {gpu.uuid: gpu for gpu in held}
        gpus = []
        for gpu, reading in zip(newest.gpus, newest.readings, strict=True):
            readings = [next((r for r in s.readings if r.uuid == gpu.uuid), None) for s in samples]
            mine = here.get(gpu.uuid)
            gpus.append(
                GpuProgress(
                    gpu=gpu,
                    reading=reading,
                    torch_device=None if mine is None else mine.torch_device,
                    process_memory=None if mine is None else mine.process_memory,
                    utilization=tuple(None if r is None else r.utilization for r in readings),
                    device_memory=tuple(None if r is None else r.memory_used for r in readings),
                )
            )
        return Progress(
            elapsed_s=WINDOW_S,
            origin=newest.origin,
            attributed=True,
            t=tuple(sample.time - start for sample in samples),
            gpus=tuple(gpus),
            marks=(),
            advice=None,
        )


class Dashboard:
    """One dashboard; displaying it shows it, :meth:`close` ends it."""

    def __init__(self, shell: Any, sampler: Sampler, presence: Presence) -> None:
        self._shell = shell
        self._sampler = sampler
        self._presence = presence
        self._course = Course()
        self._window = TimeAxis.back(WINDOW_S)
        self._changed = threading.Condition()
        self._devices_due = 0.0
        self._devices_changed = True
        self._paused = False
        self._closed = False
        self._subscription: Subscription | None = None
        self._thread: threading.Thread | None = None
        self._view: DashboardView | None = None
        self._said = ""

    def __repr__(self) -> str:
        return default_device.overview()

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        return self.bundle()

    def bundle(self) -> dict[str, Any]:
        """The mime bundle that shows it, and starts it where it has not been; only text once it is closed."""
        bundle = {"text/plain": repr(self)}
        if self._view is None and not self._closed:
            self._start()
        return bundle if self._view is None else {**bundle, **self._view.bundle()}

    def close(self) -> None:
        """End it: nothing samples for it any more, and its widgets are gone. Safe to call twice."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        DEVICE_SWITCH.unsubscribe(self._device_changed)
        for event, hook in self._hooks():
            if hook in self._shell.events.callbacks[event]:
                self._shell.events.unregister(event, hook)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(_STOP_TIMEOUT_S)
        view, self._view = self._view, None
        if view is not None:
            view.close()

    # -- what wakes it -------------------------------------------------------------------------------

    def _hooks(self) -> tuple[tuple[str, Callable[..., None]], ...]:
        if self._shell is None:
            return ()
        return (("pre_run_cell", self._cell_begins), ("post_run_cell", self._cell_ends))

    def _cell_begins(self, info: object) -> None:
        self._presence.cell_begins()
        self._wake()

    def _cell_ends(self, result: object) -> None:
        self._presence.cell_ends()

    def _device_changed(self, state: DeviceState) -> None:
        with self._changed:
            self._devices_changed = True
            self._changed.notify_all()

    def _go_on(self) -> None:
        self._presence.sign()
        self._wake()

    def _wake(self) -> None:
        if self._paused:
            with self._changed:
                self._changed.notify_all()

    def _choose(self, value: str, light: bool) -> None:
        """A person picked a device or the mode."""
        self._presence.sign()
        try:
            default_device.set_device(value, new_tensors=not light)
            self._said = ""
        except GpuWidgetError as error:
            self._said = str(error)
        self._device_changed(DEVICE_SWITCH.state)  # also where it stays as it was: the dropdown goes back

    # -- its thread ----------------------------------------------------------------------------------

    def _start(self) -> None:
        if getattr(self._shell, "kernel", None) is None:
            return  # a terminal shows its text
        channel = IOPubChannel.of_running_cell(self._shell)
        live_display.prepare()
        from gpuwidget.kernel.live.dashboard_widgets import DashboardView

        self._view = DashboardView(self._choose, self._go_on)
        for event, hook in self._hooks():
            self._shell.events.register(event, hook)
        DEVICE_SWITCH.subscribe(self._device_changed)
        run = self._run if channel is None else channel.in_context(self._run)
        self._thread = threading.Thread(target=run, name="gpuwidget-dashboard", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        view = self._view
        try:
            while view is not None and not self._closed and not view.gone:
                if self._presence.likely:
                    self._step(view)
                elif not self._paused:
                    self._pause(view)
                if self._paused and self._devices_changed:
                    self._show_devices(view, None)
                with self._changed:
                    # What has come while it began to pause has woken nobody.
                    news = self._paused and (self._devices_changed or self._presence.likely)
                    if not self._closed and not news:
                        self._changed.wait(_PAUSED_LOOK_S if self._paused else PERIOD_S)
        except Exception:
            _LOG.debug("the dashboard ended early", exc_info=True)
            if view is not None:
                with suppress(Exception):
                    view.show_words(_FAILED)
        finally:
            self._let_go()

    def _step(self, view: DashboardView) -> None:
        if self._subscription is None:
            self._paused = False
            self._subscription = self._sampler.subscribe(interval_s=PERIOD_S)
            view.show_paused(False)
            self._devices_changed = True
        sample = self._sampler.latest
        if sample is None:
            return
        self._course.add(sample)
        view.show_progress(self._course.progress(default_device.observer().gpus(sample)), self._window)
        if self._devices_changed or time.monotonic() >= self._devices_due:
            self._show_devices(view, sample)

    def _pause(self, view: DashboardView) -> None:
        self._paused = True
        self._let_go()
        self._devices_changed = True
        view.show_paused(True)

    def _let_go(self) -> None:
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            subscription.close()

    def _show_devices(self, view: DashboardView, sample: Sample | None) -> None:
        self._devices_changed = False
        self._devices_due = time.monotonic() + _DEVICES_EVERY_S
        choices = default_device.observer().choices(sample)
        state = DEVICE_SWITCH.state
        options = _options(choices, state)
        view.show_devices(options, state.chosen or "none", not state.new_tensors, bool(choices.devices))
        paused = _PAUSED if self._paused else None
        said = (paused, self._said, default_device.words(state), choices.unavailable)
        view.show_words(" ".join(filter(None, said)))


def _options(choices: Choices, state: DeviceState) -> list[tuple[str, str]]:
    options = [("none: torch's own default", "none")]
    options += [(default_device.label(choice), choice.device) for choice in choices.devices]
    if state.chosen is not None and state.chosen not in [value for _, value in options]:
        options.append((state.chosen, state.chosen))
    return options


_lock = threading.Lock()
_newest: Dashboard | None = None


def dashboard() -> Dashboard:
    """Live charts of all GPUs with the dropdown of the default torch device; displays as a widget.

    Ends the dashboard before it. In a terminal it displays as a list of the devices. Raises GpuWidgetError
    where ipywidgets or bqplot can't be imported, when it is first shown.
    """
    return _new(_shell())


def show(shell: Any) -> None:
    """``%gpu``: display a new dashboard in the cell that runs."""
    shell.display_pub.publish(data=_new(shell).bundle(), metadata={})


def close() -> None:
    """End the dashboard there is, if any."""
    global _newest
    with _lock:
        before, _newest = _newest, None
    if before is not None:
        before.close()


def _new(shell: Any) -> Dashboard:
    global _newest
    close()
    made = Dashboard(shell, process_sampler(), Presence())
    with _lock:
        _newest = made
    return made


def _shell() -> Any:
    """The shell that runs the calling code; None in a script. Whoever has one has imported IPython."""
    ipython = sys.modules.get("IPython")
    return None if ipython is None else ipython.get_ipython()
