"""Find kernels that have been idle for a long time and hold much GPU memory."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from logging import Logger
from typing import NamedTuple

from gpuwidget.server.wire import GpuMemoryOwnership, IdleHolder, ServerKernel

_GIB = 1024**3
_MINUTE_S = 60.0
_CLOCK_MARGIN_S = 1.0


class _IdleTime(NamedTuple):
    """The time for which a kernel has been idle and has held more than the limit."""

    begun: float
    """In monotonic seconds."""
    idle_since: float | None
    """The kernel's ``idle_since`` in the last step."""

    def continued(self, idle_since: float | None, time: float, now: float) -> _IdleTime:
        """Return the idle time at the next step. It restarts if the kernel was active in between.

        ``idle_since`` and ``time`` are wall-clock times, and ``now`` is in monotonic seconds. After the
        system's clock was set back, an old activity is in the future. Therefore only a change of
        ``idle_since`` counts as activity.
        """
        if idle_since is None or idle_since == self.idle_since:
            return self
        return _IdleTime(max(self.begun, now - max(0.0, time - idle_since)), idle_since)


class IdleHolders:
    """The idle holders of GPU memory. All methods are called on the server's event loop.

    A kernel is an idle holder if it has held more than ``memory`` bytes for ``idle_s`` seconds without
    activity and without working on a GPU. Activity is what Jupyter Server records: code, but also completions
    and messages of widgets. Memory of unknown size does not count towards that limit.

    A cell may start and end between two steps. The kernel is then idle at both steps, but its ``idle_since``
    has changed. If ``idle_since`` is unknown, only the kernel's state at each step counts.
    """

    def __init__(self, memory: float, idle_s: float, log: Logger) -> None:
        self._memory = memory
        self._idle_s = idle_s
        self._log = log
        self._idle: dict[str, _IdleTime] = {}
        """The idle time of each kernel that is idle and holds more than the limit, by the kernel's id."""
        self.found: Mapping[str, IdleHolder] = {}
        """The idle holders by the kernel's id."""

    def update(
        self,
        kernels: Iterable[ServerKernel],
        ownership: Iterable[GpuMemoryOwnership],
        working: Collection[str | None],
        time: float,
        now: float,
        *,
        has_pages: bool,
    ) -> None:
        """Find the idle holders at ``time``, in epoch seconds, which is ``now`` in monotonic seconds.

        ``working`` has the ids of the kernels that have worked on a GPU in the last step. A new idle holder
        is logged if there are no pages on which the user can be notified.
        """
        held: dict[str | None, int] = {}
        incomplete: set[str | None] = set()
        for gpu in ownership:
            for holder in gpu.holdings:
                if holder.memory is None:
                    incomplete.add(holder.kernel)
                else:
                    held[holder.kernel] = held.get(holder.kernel, 0) + holder.memory
        idle, found = {}, {}
        for kernel in kernels:
            memory = held.get(kernel.id, 0)
            if memory <= self._memory or kernel.state != "idle" or kernel.id in working:
                continue
            new = _IdleTime(now, kernel.idle_since)
            idle[kernel.id] = self._idle.get(kernel.id, new).continued(kernel.idle_since, time, now)
            idle_s = now - idle[kernel.id].begun
            if idle_s < self._idle_s:
                continue
            complete = kernel.id not in incomplete
            found[kernel.id] = IdleHolder(self._begun(kernel.id, time - idle_s), memory, complete)
            if kernel.id not in self.found and not has_pages:
                self._log.warning(
                    "The kernel of %s has been idle for %.0f min and holds %s%.1f GiB of GPU memory "
                    "(kernel %s).",
                    kernel.name or "no notebook",
                    idle_s / _MINUTE_S,
                    "" if complete else "at least ",
                    memory / _GIB,
                    kernel.id,
                )
        self._idle, self.found = idle, found

    def _begun(self, kernel: str, since: float) -> float:
        """Return when the idle time began, in epoch seconds: the same as before unless the clock was set."""
        before = self.found.get(kernel)
        return since if before is None or abs(before.since - since) > _CLOCK_MARGIN_S else before.since
