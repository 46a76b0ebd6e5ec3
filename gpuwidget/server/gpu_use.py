"""Monitor how this server's kernels and terminals use the GPUs, also without viewers.

Sampling continues every ten seconds. At the end of each step, :mod:`~gpuwidget.server.gpu_work` decides who
has worked. The activity of kernels and of the server, the GPU-hours and the idle holders are derived from
that. An administrator turns on each of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from gpuwidget.model.clock import Clock
from gpuwidget.model.samples import Sample
from gpuwidget.sampler import Sampler, Subscription
from gpuwidget.sampler.subscriptions import WINDOWS_INTERVAL_S
from gpuwidget.server.gpu_hours import GpuHoursCounter, UseCounters
from gpuwidget.server.gpu_work import STEP_S, GpuStep, GpuWorkTracker
from gpuwidget.server.idle_holders import IdleHolders
from gpuwidget.server.jupyter_activity import JupyterActivity
from gpuwidget.server.ownership_resolver import OwnershipResult
from gpuwidget.server.wire import GpuHours, IdleHolder, ServerKernel

_FREQUENT_S = 1.0
"""Seconds between two samples if the driver keeps no records of the time in between."""
_REFRESH_S = 60.0
"""Seconds between two updates of the GPU-hours that clients get. Each update is a message to all clients."""


@dataclass(frozen=True, slots=True)
class GpuUseOptions:
    """What is derived from the use of the GPUs. Everything that is None is off."""

    activity: JupyterActivity | None = None
    hours: GpuHoursCounter | None = None
    idle_holders: IdleHolders | None = None

    def __bool__(self) -> bool:
        return any((self.activity, self.hours, self.idle_holders))


class GpuUseMonitor:
    """Processes samples and the owners of the processes on each GPU.

    All methods are called on the server's event loop, and none of them waits.
    """

    def __init__(self, sampler: Sampler, clock: Clock, options: GpuUseOptions) -> None:
        self._sampler = sampler
        self._clock = clock
        self._options = options
        self._tracker = GpuWorkTracker(sampler)
        self._subscription: Subscription | None = None
        self._has_pages: Callable[[], bool] = lambda: False
        self._totals: dict[str, tuple[float, GpuHours | None]] = {}
        """The GPU-hours that clients have got, by the kernel's id, and when they were computed."""

    def start(self, has_pages: Callable[[], bool]) -> None:
        """Make the sampler read the driver's records. The hub receives the samples.

        ``has_pages`` returns whether there are pages that receive the stream.
        """
        self._has_pages = has_pages
        self._subscription = self._sampler.subscribe(interval_s=STEP_S)

    def stop(self) -> None:
        """End the subscription. Safe to call twice."""
        if self._subscription is not None:
            self._subscription.close()
            self._subscription = None

    @property
    def interval_s(self) -> float:
        """Seconds between two samples without viewers."""
        return _FREQUENT_S if self._tracker.needs_frequent_samples else STEP_S

    # -- results -------------------------------------------------------------------------------------

    def with_use(self, kernel: ServerKernel) -> ServerKernel:
        """Return the kernel with its GPU-hours and, if it is an idle holder, since when."""
        return replace(kernel, gpu_hours=self._total(kernel), idle_holder=self.idle_holders.get(kernel.id))

    @property
    def idle_holders(self) -> dict[str, IdleHolder]:
        """The idle holders by the kernel's id."""
        holders = self._options.idle_holders
        return {} if holders is None else dict(holders.found)

    def counters(self) -> list[UseCounters]:
        """Return the counters for Prometheus."""
        hours = self._options.hours
        return [] if hours is None else hours.exported(self._clock.monotonic())

    def _total(self, kernel: ServerKernel) -> GpuHours | None:
        if self._options.hours is None:
            return None
        now = self._clock.monotonic()
        computed, total = self._totals.get(kernel.id, (float("-inf"), None))
        if now - computed >= _REFRESH_S or total is None:
            total = self._options.hours.total(kernel)
            self._totals[kernel.id] = (now, total)
        return total

    # -- samples -------------------------------------------------------------------------------------

    def observe(self, sample: Sample) -> None:
        """Process the newest sample, before its owners are known."""
        if self._subscription is not None and sample.origin.local_processes:
            self._tracker.observe(sample)
            self._subscription.windows = frozenset(gpu.uuid for gpu in sample.gpus)
            shared = self._tracker.needs_working_processes
            self._subscription.working_processes = shared
            # The driver rounds a process's work to a percentage of the time between two reads, so that the
            # time must be short.
            self._subscription.windows_interval_s = WINDOWS_INTERVAL_S if shared else STEP_S
            self._subscription.activity = self._tracker.needs_activity

    def add_resolved(
        self, sample: Sample, kernels: tuple[ServerKernel, ...], result: OwnershipResult
    ) -> None:
        """Process the owners of the processes in ``sample``. ``kernels`` are those at that time."""
        if not sample.origin.local_processes:
            return
        steps = self._tracker.add_owners(sample, self._clock.monotonic(), result.owners)
        if steps is None:
            return
        self._record_activity(sample, steps)
        options = self._options
        if options.hours is not None:
            energy = {reading.uuid: reading.energy_j for reading in sample.readings}
            options.hours.add(steps, energy, result.gpus, kernels, self._clock.monotonic())
            self._totals = {
                kernel.id: self._totals[kernel.id] for kernel in kernels if kernel.id in self._totals
            }
        if options.idle_holders is not None:
            working = {owner.kernel for step in steps for owner in step.working}
            in_use = {step.gpu.uuid for step in steps}
            options.idle_holders.update(
                kernels,
                [gpu for gpu in result.gpus if gpu.uuid in in_use],
                working,
                sample.time,
                self._clock.monotonic(),
                has_pages=self._has_pages(),
            )

    def add_unresolved(self, sample: Sample) -> None:
        """Process a sample whose owners can't be found, because resolving them hangs."""
        if sample.origin.local_processes:
            steps = self._tracker.add_owners(sample, self._clock.monotonic(), None)
            self._record_activity(sample, steps or [])

    def _record_activity(self, sample: Sample, steps: list[GpuStep]) -> None:
        if self._options.activity is not None:
            self._options.activity.record({owner for step in steps for owner in step.working}, sample.time)
