"""Wrap a source for the poll loops, so that no error of the source ends the sampling."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Set
from dataclasses import replace

from gpuwidget.model.clock import Clock
from gpuwidget.model.errors import GpuLostError, SliceRemovedError, SourceLostError, loggable
from gpuwidget.model.messages import Message, english_message, message
from gpuwidget.model.samples import SAMPLE_SCHEMA, Gpu, Origin, Sample, is_unopened, origin_without_gpus
from gpuwidget.sampler.gpu_state import GpuState, order
from gpuwidget.sampler.poll_threads import OPENING, PollThread
from gpuwidget.sources import Inventory, Source

_LOG = logging.getLogger(__name__)

_NOT_LISTED = message(
    "gpu-lost", "the driver no longer lists the GPU; a reset of the GPU or a restart of the machine may help"
)
_REOPEN_AFTER_S = 1.0
_REOPEN_LOST_INTERVAL_S = 5.0
_REOPEN_DRIVER_INTERVAL_S = 30.0


class GuardedSource:
    """Wraps one source, and stores whether it is open and the states of its GPUs.

    ``lock`` is the sampler's lock. The caller must not hold it for :meth:`open`, :meth:`close`, :meth:`call`
    and :meth:`stop_activity`, which call the source, and must hold it for all other methods. With
    ``hide_errors``, neither a log nor a reading contains the text of an unexpected error.
    """

    def __init__(
        self, source: Source, clock: Clock, lock: threading.Lock, *, hide_errors: bool = False
    ) -> None:
        self.source = source
        self._hide_errors = hide_errors
        self._clock = clock
        self._lock = lock
        self._origin: Origin | None = None
        self._states: dict[str, GpuState] = {}
        self.opened = False
        self.opening_since: float | None = None
        """When the current opening of the source began, in monotonic seconds; None if it is not opening."""
        self._open_due = float("-inf")
        self._lost: Set[str] = set()
        self._lost_interval_s = _REOPEN_LOST_INTERVAL_S
        self._opened_at = float("-inf")
        self._hung_openings: set[PollThread] = set()
        self._opening = threading.Lock()

    # -- states --------------------------------------------------------------------------------------

    @property
    def states(self) -> list[GpuState]:
        """The states of all GPUs found so far, including lost ones, in NVML's order."""
        return list(self._states.values())

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """All GPUs found so far, including lost ones, in NVML's order."""
        return tuple(state.gpu for state in self._states.values() if not state.removed)

    def sample(self, since: float = float("-inf")) -> Sample:
        """Return the current readings of all GPUs; the source must have been opened.

        ``measured`` is None in each reading from before ``since`` (monotonic seconds). Its epoch seconds
        would not show its age if the system's clock has been set.
        """
        origin = self._origin
        assert origin is not None
        states = [state for state in self._states.values() if not state.removed]
        return Sample(
            schema=SAMPLE_SCHEMA,
            time=self._clock.time(),
            origin=origin,
            gpus=tuple(state.gpu for state in states),
            readings=tuple(
                state.reading() if state.read_at >= since else replace(state.reading(), measured=None)
                for state in states
            ),
        )

    # -- opening and closing -------------------------------------------------------------------------

    def begin_opening(self) -> bool:
        """Return whether to open the source now, and if so, store the time at which its opening began.

        The source must be opened if it is closed, has no GPU or has lost a GPU.
        """
        now = self._clock.monotonic()
        if self.opened and not (self._must_reopen() and now >= self._open_due):
            return False
        # If an earlier attempt to open the source still hangs in an abandoned thread, a second attempt would
        # hang as well.
        if self._hung_openings:
            return False
        self.opening_since = now
        return True

    def open(self, thread: PollThread) -> Inventory:
        """Open the source. Never raises: after an unexpected error the result has no GPUs and the reason."""
        thread.begin_call(OPENING, self._clock.monotonic())
        try:
            with self._opening:
                return self.source.open()
        except Exception as error:
            reason = self._unexpected("The source could not be opened.", error)
            return Inventory(origin_without_gpus(reason), ())
        finally:
            thread.call = None
            self._hung_openings.discard(thread)

    def end_opening(self, inventory: Inventory) -> None:
        """Store the GPUs that opening the source found, and mark those that it did not find as lost."""
        for gpu in inventory.gpus:
            self._states.setdefault(gpu.uuid, GpuState(gpu)).set_found(gpu)
        found = {gpu.uuid for gpu in inventory.gpus}
        reasons = self._lost_reasons(inventory, found)
        not_found = _NOT_LISTED if inventory.gpus else _driver_lost(inventory.origin)
        known = {order(state.gpu) for state in self._states.values() if not is_unopened(state.gpu)}
        for uuid, state in list(self._states.items()):
            parent = state.gpu.mig_parent
            if uuid in found:
                continue
            if is_unopened(state.gpu) and order(state.gpu) in known:
                del self._states[uuid]  # The GPU was opened, so its UUID is known now.
            elif uuid not in reasons and parent in found and parent not in inventory.slices_unknown:
                del self._states[uuid]  # An administrator removed the slice.
            else:
                state.set_lost(self._clock.time(), reasons.get(uuid, not_found))
        for uuid, xid in inventory.xids.items():
            if uuid in self._states:
                self._states[uuid].xid = xid
        self._states = dict(sorted(self._states.items(), key=lambda item: order(item[1].gpu)))
        if inventory.gpus or self._origin is None or not self._states:
            self._origin = inventory.origin
        else:
            # The driver is gone. Keep showing its GPUs, as lost, with the reason from the new origin.
            self._origin = replace(self._origin, reason=inventory.origin.reason)
        self.opened = True
        self.opening_since = None
        self._opened_at = self._clock.monotonic()
        self._open_due = self._opened_at + self._reopen_interval_s()

    def _lost_reasons(self, inventory: Inventory, found: Set[str]) -> dict[str, Message]:
        """Return why GPUs are lost, by UUID, and add the GPUs that were lost before they were ever opened."""
        reasons = {}
        for gpu, reason in inventory.lost:
            uuid = gpu.uuid
            if is_unopened(gpu):
                lost = (state.gpu for state in self._states.values() if state.gpu.uuid not in found)
                uuid = next((each.uuid for each in lost if order(each) == order(gpu)), uuid)
            self._states.setdefault(uuid, GpuState(gpu))
            reasons[uuid] = reason
        return reasons

    def _reopen_interval_s(self) -> float:
        """Return the seconds until the source is opened again if a GPU is lost then.

        Opening takes the driver's time, so it becomes rarer as long as the same GPUs stay lost.
        """
        if not self._states:
            return _REOPEN_DRIVER_INTERVAL_S
        lost = {uuid for uuid, state in self._states.items() if state.lost_since is not None}
        longer = min(2 * self._lost_interval_s, _REOPEN_DRIVER_INTERVAL_S)
        self._lost_interval_s = longer if lost and lost == self._lost else _REOPEN_LOST_INTERVAL_S
        self._lost = lost
        return self._lost_interval_s

    def close(self) -> None:
        with self._opening:
            try:
                self.source.close()
            except Exception as error:
                self._unexpected("The source could not be closed.", error)

    def _must_reopen(self) -> bool:
        if not self._states:
            return self._origin is not None and not self._origin.recorded
        return any(state.lost_since is not None for state in self._states.values())

    # -- calls ---------------------------------------------------------------------------------------

    def call(self, thread: PollThread, state: GpuState, read: Callable[[GpuState], None]) -> bool:
        """Call ``read`` for one GPU and record the outcome in its state. Returns False if the poll must end.

        A poll must end if its thread has been abandoned or the source must be opened again.
        """
        thread.begin_call(state.gpu.uuid, self._clock.monotonic())
        try:
            read(state)
        except GpuLostError as error:
            removed = isinstance(error, SliceRemovedError)
            state.set_lost(self._clock.time(), error.reason, removed=removed)
            return not thread.abandoned
        except SourceLostError:
            with self._lock:
                for other in self._states.values():
                    other.set_lost(self._clock.time())
                self._open_due = min(self._open_due, self._opened_at + _REOPEN_AFTER_S)
            return False
        except Exception as error:
            # According to its contract, a source raises no other errors, so this one is a bug in the source.
            # A bug must not end the sampling.
            state.set_failed(self._unexpected("A GPU could not be read.", error))
            return not thread.abandoned
        else:
            state.set_answered(self._clock.time())
            return not thread.abandoned
        finally:
            thread.call = None
            state.set_returned(thread)

    def stop_activity(self) -> None:
        """Free the hardware counters' samples that the source keeps."""
        try:
            self.source.stop_activity()
        except Exception as error:
            self._unexpected("The samples of the hardware counters could not be freed.", error)

    def abandon(self, thread: PollThread) -> None:
        """Abandon a thread. The GPU of its hung call is not called again until that call returns."""
        call = thread.abandon()
        if call is None:
            return
        if call.name == OPENING:
            self._hung_openings.add(thread)
        elif call.name in self._states:
            since = self._clock.time() - (self._clock.monotonic() - call.since)
            self._states[call.name].set_hung(thread, since)

    def _unexpected(self, failure: str, error: Exception) -> Message:
        """Log an unexpected error of the source, and return the reason for the values that it leaves out."""
        _LOG.debug(failure, exc_info=loggable(error, hide_text=self._hide_errors))
        name = type(error).__name__
        raised = name if self._hide_errors else f"{name}: {error}"
        text = f"gpuwidget failed with an unexpected error ({raised}); please report it."
        return english_message("unexpected-error", text, error=raised)


def _driver_lost(origin: Origin) -> Message | None:
    """Return the reason for the values of GPUs whose driver is gone; None if it is unknown."""
    return None if origin.reason is None else message("gpu-lost", origin.reason.rstrip("."))
