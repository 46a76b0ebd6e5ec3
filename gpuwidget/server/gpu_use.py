"""Monitor how this server's kernels and terminals use the GPUs, also without viewers.

Sampling continues every ten seconds. At the end of each step, :mod:`~gpuwidget.server.gpu_work` decides who
has worked, and the monitor passes the result on.
"""

from __future__ import annotations

from gpuwidget.model.clock import Clock
from gpuwidget.model.samples import Sample
from gpuwidget.sampler import Sampler, Subscription
from gpuwidget.sampler.subscriptions import WINDOWS_INTERVAL_S
from gpuwidget.server.gpu_work import STEP_S, GpuStep, GpuWorkTracker
from gpuwidget.server.jupyter_activity import JupyterActivity
from gpuwidget.server.ownership_resolver import OwnershipResult


class GpuUseMonitor:
    """Processes samples and the owners of the processes on each GPU.

    All methods are called on the server's event loop, and none of them waits. ``activity`` is None if GPU
    work does not count as activity.
    """

    interval_s = STEP_S
    """Seconds between two samples without viewers."""

    def __init__(self, sampler: Sampler, clock: Clock, activity: JupyterActivity | None) -> None:
        self._sampler = sampler
        self._clock = clock
        self._tracker = GpuWorkTracker(sampler)
        self._activity = activity
        self._subscription: Subscription | None = None

    def start(self) -> None:
        """Make the sampler read the driver's records. The hub receives the samples."""
        self._subscription = self._sampler.subscribe(interval_s=STEP_S)

    def stop(self) -> None:
        """End the subscription. Safe to call twice."""
        if self._subscription is not None:
            self._subscription.close()
            self._subscription = None

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

    def add_resolved(self, sample: Sample, result: OwnershipResult) -> None:
        """Process the owners of the processes in ``sample``."""
        if sample.origin.local_processes:
            self._end_step(sample, self._tracker.add_owners(sample, self._clock.monotonic(), result.owners))

    def add_unresolved(self, sample: Sample) -> None:
        """Process a sample whose owners can't be found, because resolving them hangs."""
        if sample.origin.local_processes:
            self._end_step(sample, self._tracker.add_owners(sample, self._clock.monotonic(), None))

    def _end_step(self, sample: Sample, steps: list[GpuStep] | None) -> None:
        if steps is not None and self._activity is not None:
            self._activity.record({owner for step in steps for owner in step.working}, sample.time)
