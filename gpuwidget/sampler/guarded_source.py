"""The source as the lanes use it: opened and called so that nothing it does ends the sampling."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace

from gpuwidget.model.clock import Clock
from gpuwidget.model.errors import GpuLostError, SourceLostError
from gpuwidget.model.samples import SCHEMA, Gpu, Origin, Sample
from gpuwidget.sampler.gpu_state import GpuState
from gpuwidget.sampler.poll_threads import OPENING, Worker
from gpuwidget.sources import Inventory, Source

_LOG = logging.getLogger(__name__)

_REOPEN_AFTER_S = 1.0
_LOOK_FOR_LOST_EVERY_S = 5.0
_LOOK_FOR_DRIVER_EVERY_S = 30.0


class Driver:
    """One source, whether it is open, and what is known of its GPUs.

    ``lock`` is the sampler's. The methods that call the source are called without it; all others hold it.
    """

    def __init__(self, source: Source, clock: Clock, lock: threading.Lock) -> None:
        self.source = source
        self._clock = clock
        self._lock = lock
        self._origin: Origin | None = None
        self._states: dict[str, GpuState] = {}
        self.opened = False
        self.opening_since: float | None = None
        """Monotonic seconds at which the opening that goes on began; None outside one."""
        self._open_due = float("-inf")
        self._opened_at = float("-inf")
        self._stuck: set[Worker] = set()
        self._opening = threading.Lock()

    # -- what is known -------------------------------------------------------------------------------

    @property
    def states(self) -> list[GpuState]:
        """The GPUs found so far, lost ones included, in NVML's order."""
        return list(self._states.values())

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """The same, by who they are."""
        return tuple(state.gpu for state in self._states.values())

    def sample(self) -> Sample:
        """All readings as of now; once the source has been opened."""
        origin = self._origin
        assert origin is not None
        states = self._states.values()
        return Sample(
            schema=SCHEMA,
            time=self._clock.time(),
            origin=origin,
            gpus=tuple(state.gpu for state in states),
            readings=tuple(state.reading() for state in states),
        )

    # -- opening and closing -------------------------------------------------------------------------

    def begin_opening(self) -> bool:
        """Whether the source is to be opened now, because it is not or something was lost; notes the time."""
        now = self._clock.monotonic()
        if self.opened and not (self._must_look_again() and now >= self._open_due):
            return False
        # Where another thread still hangs in opening it, a second call would hang beside it.
        if self._stuck:
            return False
        self.opening_since = now
        return True

    def open(self, worker: Worker) -> Inventory:
        """Open the source. Never raises: what it did not foresee is the reason why there is no GPU."""
        worker.call = (OPENING, self._clock.monotonic())
        try:
            with self._opening:
                return self.source.open()
        except Exception as error:
            _LOG.debug("the source could not be opened", exc_info=True)
            reason = _unforeseen(error)
            return Inventory(Origin("none", reason, recording=None, driver=None, cuda_driver=None), ())
        finally:
            worker.call = None
            self._stuck.discard(worker)

    def take(self, inventory: Inventory) -> None:
        """Meet the GPUs that opening the source found; those that it did not find again are lost."""
        for gpu in inventory.gpus:
            self._states.setdefault(gpu.uuid, GpuState(gpu)).found(gpu)
        for uuid, xid in inventory.xids.items():
            if uuid in self._states:
                self._states[uuid].xid = xid
        found = {gpu.uuid for gpu in inventory.gpus}
        for uuid, state in self._states.items():
            if uuid not in found:
                state.lose(self._clock.time())
        self._states = dict(sorted(self._states.items(), key=lambda item: item[1].order))
        if inventory.gpus or self._origin is None or not self._states:
            self._origin = inventory.origin
        else:
            # The driver went away: the GPUs it had are shown as lost, with what it says now.
            self._origin = replace(self._origin, reason=inventory.origin.reason)
        self.opened = True
        self.opening_since = None
        self._opened_at = self._clock.monotonic()
        wait = _LOOK_FOR_LOST_EVERY_S if self._states else _LOOK_FOR_DRIVER_EVERY_S
        self._open_due = self._opened_at + wait

    def close(self) -> None:
        """Let go of the source."""
        with self._opening:
            try:
                self.source.close()
            except Exception:
                _LOG.debug("the source could not be closed", exc_info=True)

    def _must_look_again(self) -> bool:
        if not self._states:
            return self._origin is not None and not self._origin.recorded
        return any(state.lost_since is not None for state in self._states.values())

    # -- calls ---------------------------------------------------------------------------------------

    def call(self, worker: Worker, state: GpuState, read: Callable[[GpuState], None]) -> bool:
        """Make the calls of one GPU; False where this thread was given up meanwhile or must begin anew."""
        worker.call = (state.gpu.uuid, self._clock.monotonic())
        try:
            read(state)
        except GpuLostError:
            state.lose(self._clock.time())
            return not worker.abandoned
        except SourceLostError:
            with self._lock:
                for other in self._states.values():
                    other.lose(self._clock.time())
                self._open_due = min(self._open_due, self._opened_at + _REOPEN_AFTER_S)
            return False
        except Exception as error:
            # A source raises nothing else; should it do so all the same, that must not end the sampling.
            _LOG.debug("a GPU could not be read", exc_info=True)
            state.fail(_unforeseen(error))
            return not worker.abandoned
        else:
            state.answer(self._clock.time())
            return not worker.abandoned
        finally:
            worker.call = None
            state.returned(worker)

    def forget_activity(self) -> None:
        """Let go of the hardware counters."""
        try:
            self.source.forget_activity()
        except Exception:
            _LOG.debug("the hardware counters could not be let go of", exc_info=True)

    def leave_behind(self, worker: Worker) -> None:
        """That thread was given up; the GPU whose call it is in is left alone until the call returns."""
        worker.abandoned = True
        if worker.call is None:
            return
        uuid, since = worker.call
        if uuid == OPENING:
            self._stuck.add(worker)
        elif uuid in self._states:
            self._states[uuid].hang(worker, self._clock.time() - (self._clock.monotonic() - since))


def _unforeseen(error: Exception) -> str:
    return f"gpuwidget met an error it did not foresee ({type(error).__name__}: {error}); please report it."
