"""Resolve the owners of GPU memory every two seconds and after changes, and send them to clients.

They are sent with the used memory of the sample for which they were resolved. If memory has changed and no
resolution has succeeded for two seconds, the previous owners are sent with the newest used memory, marked as
older.

To find the owners of processes, a file of ``/proc`` is read for each process and each of its ancestors. This
happens on a worker thread, one resolution at a time, and a resolution that hangs is abandoned. The event loop
only reads Jupyter's managers and sends encoded messages.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from gpuwidget.model.clock import Clock
from gpuwidget.model.errors import loggable
from gpuwidget.model.samples import Sample
from gpuwidget.server.gpu_use import GpuUseMonitor
from gpuwidget.server.history import HistoryStore
from gpuwidget.server.kernel_inventory import InventorySnapshot, KernelInventory
from gpuwidget.server.kernel_reports import KernelReports
from gpuwidget.server.ownership_resolver import (
    OwnershipRequest,
    OwnershipResolver,
    OwnershipResult,
    changed_gpus,
)
from gpuwidget.server.slurm import SlurmMonitor
from gpuwidget.server.wire import GpuMemoryOwnership, MemoryOwnership
from gpuwidget.system.abandonable_thread import Call, WorkerThread

_LOG = logging.getLogger(__name__)

_INTERVAL_S = 2.0
_MIN_INTERVAL_S = 0.5
"""Minimum seconds between resolutions, even if memory, kernels, terminals or processes change in between."""
_OLDER_S = 2.0
"""Seconds without a successful resolution after which changed memory is sent with the previous owners."""
_TIMEOUT_S = 10.0
_MAX_ABANDONED = 3
"""The maximum number of hung resolutions, each of which occupies a thread. When there are this many, no other
resolution starts until one of them returns."""
_NEVER = float("-inf")


class OwnershipMonitor:
    """Resolves the owners while it is enabled. All methods are called on the server's event loop; none waits.

    ``publish`` is called with each message that differs from the previous one. Messages are encoded once for
    all clients.
    """

    def __init__(
        self,
        inventory: KernelInventory,
        clock: Clock,
        history: HistoryStore,
        publish: Callable[[bytes], None],
        *,
        hide_other_users: bool = False,
    ) -> None:
        self.gpu_use: GpuUseMonitor | None = None
        """Receives the owners of the processes on each GPU; None if nobody needs them."""
        self.slurm: SlurmMonitor | None = None
        """Reads the Slurm job in which this server runs; None without one."""
        self._inventory = inventory
        self._clock = clock
        self._publish = publish
        self._hide_other_users = hide_other_users
        self._history = history
        self._reports = KernelReports(inventory, clock)
        self._resolver = self._new_resolver()
        self._worker: WorkerThread | None = None
        """The thread that resolves the owners, once it is needed."""
        self._abandoned: set[WorkerThread] = set()
        """The abandoned threads whose resolutions have not returned yet."""
        self._enabled = False
        self._last_request = self._due = _NEVER
        self._pending_since: float | None = None
        """Monotonic time since which no resolution has succeeded although one was due; None if the newest
        resolution succeeded."""
        self._last_inventory: InventorySnapshot | None = None
        self._resolved: tuple[Sample, tuple[GpuMemoryOwnership, ...]] | None = None
        """The newest owners, and the sample for which they were resolved; None while disabled."""
        self._newest_sample: Sample | None = None
        self.newest: bytes | None = None
        """The encoded form of the message that was sent last; None while disabled."""
        self.ownership: MemoryOwnership | None = None
        """The message that was sent last; None while disabled."""

    def enable(self, on: bool) -> None:
        """Start or stop resolving. Safe to call repeatedly."""
        if on and not self._enabled:
            self._last_request = self._due = _NEVER
        elif not on:
            self.newest = self.ownership = self._pending_since = self._resolved = self._newest_sample = None
            self._reports.close()
            self._inventory.close()
            self._abandon()
        self._enabled = on

    def add_sample(self, sample: Sample) -> None:
        """Process the newest sample, and start a resolution if one is due."""
        if not self._enabled:
            return
        now, self._newest_sample = self._clock.monotonic(), sample
        if self._worker is not None and self._worker.is_hung(now):
            self._abandon()
        changed = self._resolved is None or self._shows_older or bool(changed_gpus(self._resolved[0], sample))
        if now < (self._last_request + _MIN_INTERVAL_S if changed else self._due):
            return
        self._due = now + _MIN_INTERVAL_S
        inventory = self._inventory.snapshot()
        changed = changed or inventory != self._last_inventory
        if now - self._last_request < _INTERVAL_S and not changed:
            return
        self._last_request, self._last_inventory = now, inventory
        request = self._request(sample, inventory)
        pending_s = 0.0 if self._pending_since is None else now - self._pending_since
        if pending_s >= _TIMEOUT_S:
            self._send(request.timeout_message())
            if self.gpu_use is not None:
                self.gpu_use.add_unresolved(sample)
        elif pending_s >= _OLDER_S and self._resolved is not None:
            self._send(request.message_for_newer(*self._resolved))
        if not self._running:
            self._start(request._replace(sent=self.ownership), now)

    @property
    def _running(self) -> bool:
        return self._worker is not None and self._worker.call is not None

    @property
    def _shows_older(self) -> bool:
        return self.ownership is not None and any(gpu.older for gpu in self.ownership.gpus)

    def _request(self, sample: Sample, inventory: InventorySnapshot) -> OwnershipRequest:
        pids = {kernel: pid for pid, kernel in inventory.kernel_of.items()}
        kernels = {kernel.id: pids.get(kernel.id) for kernel in inventory.kernels}
        means = {gpu.uuid: self._history.mean_utilizations(gpu.uuid) for gpu in sample.gpus}
        reports = self._reports.newest(kernels)
        job = None if self.slurm is None else self.slurm.job
        find_owners = self.gpu_use is not None
        if self.gpu_use is not None:
            inventory = replace(inventory, kernels=tuple(map(self.gpu_use.with_use, inventory.kernels)))
        return OwnershipRequest(sample, inventory, kernels, reports, means, self.ownership, find_owners, job)

    def _start(self, request: OwnershipRequest, now: float) -> None:
        if self._pending_since is None:
            self._pending_since = now
        if len(self._abandoned) >= _MAX_ABANDONED:
            return
        if self._worker is None:
            self._worker = WorkerThread("gpuwidget-ownership")
            self._worker.start()
        worker, loop, resolver = self._worker, asyncio.get_running_loop(), self._resolver
        worker.call = Call("resolve", now, _TIMEOUT_S)

        def work() -> None:
            result = None
            try:
                result = resolver.resolve(request)
            except Exception as error:
                shown = loggable(error, hide_text=self._hide_other_users)
                _LOG.debug("the owners of the GPUs' memory could not be resolved", exc_info=shown)
            with suppress(RuntimeError):  # RuntimeError means that the event loop is closed.
                loop.call_soon_threadsafe(self._finish, worker, request, result)

        worker.submit(work)

    def _abandon(self) -> None:
        """Let the thread end after its current work, and discard the result of the running resolution."""
        worker, self._worker = self._worker, None
        if worker is not None and worker.abandon() is not None:
            self._abandoned.add(worker)
            # The old thread may still write to the old resolver, so the next resolution needs another one.
            self._resolver = self._new_resolver()

    def _new_resolver(self) -> OwnershipResolver:
        return OwnershipResolver(self._clock, hide_other_users=self._hide_other_users)

    def _finish(
        self, worker: WorkerThread, request: OwnershipRequest, result: OwnershipResult | None
    ) -> None:
        worker.call = None
        if worker.abandoned:
            self._abandoned.discard(worker)
            return
        if result is None:
            return
        self._pending_since = None
        self._reports.query(result.kernels_to_query)
        if self.gpu_use is not None:
            self.gpu_use.add_resolved(request.sample, request.inventory.kernels, result)
        self._resolved = request.sample, result.gpus
        if request.sent is self.ownership:
            self._send(result.message)
        elif self._newest_sample is not None:
            # A message about a newer sample has been sent meanwhile.
            newer = request._replace(sample=self._newest_sample, sent=self.ownership)
            self._send(newer.message_for_newer(*self._resolved))

    def _send(self, message: tuple[MemoryOwnership, bytes] | None) -> None:
        if message is not None:
            self.ownership, self.newest = message
            self._publish(message[1])
