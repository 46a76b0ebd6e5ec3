"""Who holds what, told to those who listen: looked up every two seconds, and when something has changed.

What costs time (whose process it is, by a file of ``/proc`` for each and its elders) is done on a thread: one
look after the other, and one that hangs is left behind. The event loop asks Jupyter's managers, and hands out
what is ready to send.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from gpuwidget.model.clock import Clock
from gpuwidget.model.gpu_process import Process
from gpuwidget.model.samples import Sample
from gpuwidget.model.to_json import to_json
from gpuwidget.server.gpu_holders import Owner, People, gpu_usage
from gpuwidget.server.kernel_reports import KernelWords, Word
from gpuwidget.server.notebooks import Known, Notebooks
from gpuwidget.server.pid_matching import Matching
from gpuwidget.server.rolling_mean import Means
from gpuwidget.server.wire import GpuUsage, MeanUtilization, Usage
from gpuwidget.server.worker import Worker
from gpuwidget.system import processes
from gpuwidget.system.processes import Identity, ProcessDirectory, ProcessTrees

_LOG = logging.getLogger(__name__)

_EVERY_S = 2.0
_SOONEST_S = 0.5
_HUNG_AFTER_S = 10.0
_MOST_LEFT = 3
"""Looks that hang, each with its thread; beyond that none is begun until one of them has returned."""
_NEVER = float("-inf")
_SILENT = "This machine has not said for 10 seconds whose the processes on the GPUs are."
_NOBODY = Owner(None, None)


class UsageWatch:
    """Looks while somebody listens. All methods belong to the server's event loop, and none waits.

    ``tell`` is handed each message, encoded once, and only what differs from the one before.
    """

    def __init__(
        self, notebooks: Notebooks, clock: Clock, interval_s: float, tell: Callable[[bytes], None]
    ) -> None:
        self._notebooks = notebooks
        self._clock = clock
        self._tell = tell
        self._means = Means(interval_s)
        self._words = KernelWords(notebooks, clock)
        self._desk = _Desk(clock)
        self._worker = Worker("gpuwidget-usage")
        self._listening = False
        self._looked = self._due = self._begun = _NEVER
        self._unanswered_since: float | None = None
        """When the first look began that was not answered since the last one that was."""
        self._number = self._under_way = 0
        """Looks are numbered; 0 where none is under way."""
        self._left: set[int] = set()
        """The looks that were left behind and have not returned yet."""
        self._seen: object = None
        self.newest: bytes | None = None
        """The message that was sent last, None while nobody listens."""
        self.told: Usage | None = None
        """The same before it was encoded."""

    def listen(self, on: bool) -> None:
        """Somebody listens from now on, or nobody does any more."""
        if on and not self._listening:
            self._looked = self._due = _NEVER
        elif not on:
            self.newest = self.told = self._unanswered_since = None
            self._words.close()
            self._notebooks.close()
            self._let_go()
        self._listening = on

    def see(self, sample: Sample, arrived: float) -> None:
        """Take up the newest sample, and look up whose the memory is, where it is time for that.

        ``arrived`` is when it came, monotonic seconds: the event loop may have been busy since.
        """
        self._means.add(sample, arrived)
        if not self._listening:
            return
        now = self._clock.monotonic()
        since = self._unanswered_since
        silent = since is not None and now - since >= _HUNG_AFTER_S
        if self._under_way and now - self._begun >= _HUNG_AFTER_S:
            self._let_go()
        if now < self._due or (self._under_way and not silent):
            return
        self._due = now + _SOONEST_S
        known = self._notebooks.look()
        seen = _signature(known, sample)
        if now - self._looked < _EVERY_S and seen == self._seen:
            return
        self._looked, self._seen = now, seen
        look = self._look(sample, known)
        if silent:
            self._publish(look.unanswered())
        if not self._under_way:
            self._begin(look, now)

    def _look(self, sample: Sample, known: Known) -> _Look:
        pids = {kernel: pid for pid, kernel in known.kernel_of.items()}
        kernels = {kernel.id: pids.get(kernel.id) for kernel in known.kernels}
        means = {gpu.uuid: self._means.of(gpu.uuid) for gpu in sample.gpus}
        return _Look(sample, known, kernels, self._words.said(kernels), means, self.told)

    def _begin(self, look: _Look, now: float) -> None:
        if self._unanswered_since is None:
            self._unanswered_since = now
        if len(self._left) >= _MOST_LEFT:
            return
        self._begun = now
        self._number += 1
        self._under_way = number = self._number
        loop, desk = asyncio.get_running_loop(), self._desk

        def work() -> None:
            found = None
            try:
                found = desk.answer(look)
            except Exception:
                _LOG.debug("it could not be told who holds the GPUs' memory", exc_info=True)
            with suppress(RuntimeError):  # the server has ended meanwhile
                loop.call_soon_threadsafe(self._take, number, look, found)

        self._worker.do(work)

    def _let_go(self) -> None:
        """Leave the thread to itself: what it says some day is of no use any more."""
        self._worker.stop()
        if self._under_way:
            self._left.add(self._under_way)
            self._under_way = 0
            # That thread may still write into the old one.
            self._desk = _Desk(self._clock)

    def _take(self, number: int, look: _Look, found: _Found | None) -> None:
        if number != self._under_way:
            self._left.discard(number)
            return
        self._under_way = 0
        if found is None:
            return
        self._unanswered_since = None
        self._words.ask(found.to_ask)
        if found.told is None and look.told is not self.told:
            # That there is no answer was told meanwhile.
            self._looked = self._due = _NEVER
        self._publish(found.told)

    def _publish(self, told: tuple[Usage, bytes] | None) -> None:
        if told is not None:
            self.told, self.newest = told
            self._tell(told[1])


class _Look(NamedTuple):
    """What a thread is to tell."""

    sample: Sample
    known: Known
    kernels: Mapping[str, int | None]
    """Every kernel, and its process id where it runs on this machine."""
    words: Mapping[str, Mapping[str, Word]]
    means: Mapping[str, tuple[MeanUtilization, ...]]
    told: Usage | None
    """What was told before."""

    def usage(self, gpus: tuple[GpuUsage, ...]) -> tuple[Usage, bytes] | None:
        """The message, and the same encoded; None where it says nothing new."""
        usage = Usage("usage", self.sample.time, self.known.kernels, gpus)
        told = self.told
        if told is not None and replace(usage, time=told.time) == told:
            return None
        return usage, json.dumps(to_json(usage), allow_nan=False, separators=(",", ":")).encode()

    def unanswered(self) -> tuple[Usage, bytes] | None:
        """The message where the machine does not say whose processes they are."""
        gpus = (
            GpuUsage(one.uuid, (), one.memory_used, _SILENT, self.means[one.uuid])
            for one in self.sample.readings
        )
        return self.usage(tuple(gpus))


class _Found(NamedTuple):
    told: tuple[Usage, bytes] | None
    to_ask: Mapping[str, int | None]


class _Desk:
    """Tells who holds what; used by one thread at a time, and remembers from one to the next."""

    def __init__(self, clock: Clock) -> None:
        self._families = ProcessTrees(clock)
        self._directory = ProcessDirectory(clock)
        self._matching = Matching()

    def answer(self, look: _Look) -> _Found:
        known, sample = look.known, look.sample
        self._families.set_roots((*known.kernel_of, *known.terminal_of))

        def owner(pid: int) -> Owner:
            root = self._families.root_of(pid)
            if root is None:
                return _NOBODY
            return Owner(known.kernel_of.get(root), known.terminal_of.get(root))

        def identity(process: Process) -> Identity:
            if process.user is not None or process.program is not None:
                return Identity(process.user, process.program, process.arguments)
            return self._directory.look_up(process.pid)

        def says_so(pid: int, uuid: str) -> bool:
            word = look.words.get(owner(pid).kernel or "", {}).get(uuid)
            return word is not None and word.context

        if sample.origin.local_processes:
            self._matching.look(sample.readings, says_so)
        people = People(
            owner=owner,
            identity=identity,
            kernels=look.kernels,
            match=self._matching.proven,
            in_container=not self._matching.in_host_namespace,
            words=look.words,
            elsewhere=known.elsewhere,
        )
        gpus = tuple(gpu_usage(one, sample.origin, people, look.means[one.uuid]) for one in sample.readings)
        return _Found(look.usage(gpus), self._to_ask(look, owner))

    def _to_ask(self, look: _Look, owner: Callable[[int], Owner]) -> Mapping[str, int | None]:
        """The kernels whose own word would say more: those that may use CUDA, where the driver's does not."""
        if not look.sample.origin.local_processes:
            return {}
        readings = [one for one in look.sample.readings if one.lost_since is None]
        if not self._matching.proven or any(one.processes is None for one in readings):
            # A process that has not even CUDA's device open holds nothing, and need not be disturbed.
            return {
                kernel: pid
                for kernel, pid in look.kernels.items()
                if pid is None or processes.uses_cuda(pid) is not False
            }
        unsaid = {
            owner(process.pid).kernel
            for one in readings
            for process in one.processes or ()
            if process.memory is None
        }
        return {kernel: pid for kernel, pid in look.kernels.items() if kernel in unsaid}


def _signature(known: Known, sample: Sample) -> object:
    """What a look is made anew for before its time; memory changes too often for that."""
    listed = [
        None if one.processes is None else tuple(process.pid for process in one.processes)
        for one in sample.readings
    ]
    return known.kernels, known.kernel_of, known.terminal_of, listed
