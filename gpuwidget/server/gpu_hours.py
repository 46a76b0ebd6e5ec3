"""Count how long, with how much memory and with how much energy each kernel has used each GPU.

The counters start with the server's process. They are integrated over the steps of
:mod:`~gpuwidget.server.gpu_work`. Time in which nothing was sampled is not counted. Three rules apply:

- A GPU that several holders share is held by each of them in full.
- Busy time and energy are counted only while all processes on the GPU belong to one kernel or terminal.
- Energy is the difference of two readings of the GPU's counter, which is read once a minute. A minute in
  which the GPU changed its owner is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gpuwidget.model.samples import Gpu
from gpuwidget.server.gpu_owners import ProcessOwner
from gpuwidget.server.gpu_work import GpuStep
from gpuwidget.server.wire import GpuHours, GpuMemoryOwnership, ServerKernel

_SHARED = 0.95
"""A notebook has shared its GPUs if it was alone for less than this fraction of the time."""
_EXPORT_S = 900.0
"""Seconds for which the counters of a kernel that no longer holds memory are exported, so that Prometheus can
scrape their last values."""
_HOUR_S = 3600.0
_TERMINALS = ProcessOwner(None, "")


@dataclass(slots=True)
class UseCounters:
    """The use of one GPU by one kernel, or by all terminals together."""

    gpu: Gpu
    kernel: str | None
    """Jupyter's id of the kernel; None for the terminals."""
    path: str | None
    """Path of the notebook; None without one."""
    held_s: float = 0.0
    """Seconds in which it held memory of the GPU."""
    alone_s: float = 0.0
    """The part of ``held_s`` in which it was the only owner of processes on the GPU."""
    busy_s: float | None = None
    """The part of ``alone_s`` in which any CUDA kernel ran on the GPU; None if that was never known."""
    memory_byte_s: float | None = None
    """Integral of the held memory, in byte-seconds; None if the memory was never known."""
    energy_j: float | None = None
    """Joules that the GPU drew while this was its only owner; None if that was never known."""
    changed: float = 0.0
    """When it last held memory, in monotonic seconds."""


class GpuHoursCounter:
    """Adds up the use of all GPUs. All methods are called on the server's event loop."""

    def __init__(self, price: float | None = None, currency: str = "") -> None:
        """``price`` is the price of one GPU-hour in ``currency``; None if there is none."""
        self._price = price
        self._currency = currency
        self._counters: dict[tuple[str, str | None, str | None], UseCounters] = {}
        self._held: dict[str, Mapping[ProcessOwner, int | None]] = {}
        """The memory of each GPU's holders at the end of the previous step."""
        self._paths: dict[str, str | None] = {}
        """Path of each kernel's notebook at the end of the previous step."""
        self._energy: dict[str, _EnergySpan] = {}

    def add(
        self,
        steps: Iterable[GpuStep],
        energy_j: Mapping[str, float | None],
        ownership: Sequence[GpuMemoryOwnership],
        kernels: Iterable[ServerKernel],
        now: float,
    ) -> None:
        """Add one step of each GPU. ``energy_j`` has each GPU's energy counter, and ``now`` is in monotonic
        seconds."""
        newest = {kernel.id: kernel.path for kernel in kernels}
        # A kernel that has ended in this step is no longer listed.
        paths, self._paths = {**self._paths, **newest}, newest
        memory = {gpu.uuid: _held_memory(gpu) for gpu in ownership}
        held, self._held = self._held, {}
        for step in steps:
            uuid = step.gpu.uuid
            before = held.get(uuid, {})
            self._held[uuid] = memory.get(uuid, {})
            sole_owner = None if step.sole_owner is None else _counted(step.sole_owner)
            if step.seconds is not None:
                for owner, size in before.items():
                    row = self._row(step.gpu, owner, paths, now)
                    _add_time(row, step.seconds, size, step.busy_s if owner == sole_owner else None)
                    row.alone_s += step.seconds if owner == sole_owner else 0.0
            span = self._energy.setdefault(uuid, _EnergySpan())
            joules = span.end(energy_j.get(uuid), sole_owner if step.seconds is not None else None)
            if joules is not None and sole_owner is not None and sole_owner in before:
                row = self._row(step.gpu, sole_owner, paths, now)
                row.energy_j = (row.energy_j or 0.0) + joules

    def exported(self, now: float) -> list[UseCounters]:
        """Return the counters that have changed recently. ``now`` is in monotonic seconds."""
        return [row for row in self._counters.values() if now - row.changed <= _EXPORT_S]

    def total(self, kernel: ServerKernel) -> GpuHours | None:
        """Return the use by a kernel's notebook or, without a notebook, by the kernel. None without any."""
        rows = [
            row
            for row in self._counters.values()
            if row.kernel is not None
            and (row.kernel == kernel.id if kernel.path is None else row.path == kernel.path)
        ]
        held_s = sum(row.held_s for row in rows)
        if not held_s:
            return None
        return GpuHours(
            held_s=held_s,
            busy_s=_sum(row.busy_s for row in rows),
            memory_byte_s=_sum(row.memory_byte_s for row in rows),
            energy_j=_sum(row.energy_j for row in rows),
            shared=sum(row.alone_s for row in rows) < _SHARED * held_s,
            price=None if self._price is None else self._price * held_s / _HOUR_S,
            currency=self._currency,
        )

    def _row(self, gpu: Gpu, owner: ProcessOwner, paths: Mapping[str, str | None], now: float) -> UseCounters:
        path = None if owner.kernel is None else paths.get(owner.kernel)
        key = (gpu.uuid, owner.kernel, path)
        row = self._counters.setdefault(key, UseCounters(gpu, owner.kernel, path))
        row.changed = now
        return row


def _add_time(row: UseCounters, seconds: float, size: int | None, busy_s: float | None) -> None:
    """Add a step in which ``size`` bytes were held, and ``busy_s`` seconds of work by only this owner."""
    row.held_s += seconds
    if size is not None:
        row.memory_byte_s = (row.memory_byte_s or 0.0) + size * seconds
    if busy_s is not None:
        row.busy_s = (row.busy_s or 0.0) + busy_s


class _EnergySpan:
    """The time since the energy counter of one GPU was last read."""

    def __init__(self) -> None:
        self._joules: float | None = None
        self._owner: ProcessOwner | None = None
        """The only owner in all steps since then; None if there were none or several."""

    def end(self, joules: float | None, owner: ProcessOwner | None) -> float | None:
        """Process the counter and the only owner of the next step.

        If the counter was read again and the owner has not changed, return the energy in between.
        """
        if joules == self._joules:
            if owner != self._owner:
                self._owner = None
            return None
        before, self._joules = self._joules, joules
        same, self._owner = owner == self._owner and owner is not None, owner
        if before is None or joules is None or not same or joules < before:
            return None
        return joules - before


def _held_memory(gpu: GpuMemoryOwnership) -> dict[ProcessOwner, int | None]:
    """Return the memory that each kernel, and all terminals together, hold on a GPU."""
    held: dict[ProcessOwner, int | None] = {}
    for holder in gpu.holdings:
        if holder.kernel is not None or holder.terminal is not None:
            owner = _counted(ProcessOwner(holder.kernel, holder.terminal))
            before = held.get(owner, 0)
            held[owner] = None if before is None or holder.memory is None else before + holder.memory
    return held


def _counted(owner: ProcessOwner) -> ProcessOwner:
    """Return the owner for which a process's use is counted. All terminals are counted as one."""
    return _TERMINALS if owner.kernel is None and owner.terminal is not None else owner


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
