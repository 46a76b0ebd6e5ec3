"""Record torch's allocation history while at least one run needs it.

torch has one recording per process, which the user's code may use too. If a recording is already on,
gpuwidget uses it and does not change it. gpuwidget stops only a recording that it started itself. If the
user's code starts or stops a recording in the meantime, gpuwidget treats the recording as the user's and does
not stop it.

Nothing in this module imports torch or initializes CUDA. Until the user's code initializes CUDA, nothing is
recorded. Right after initializing CUDA, torch runs a callback of gpuwidget, which starts the recording.
"""

from __future__ import annotations

import inspect
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from gpuwidget.model.boundary import stopped
from gpuwidget.model.clock import SYSTEM_CLOCK
from gpuwidget.model.fork import reset_after_fork
from gpuwidget.model.torch_state import RecordedHistory, RequestedBytes
from gpuwidget.model.translation import translatable
from gpuwidget.pytorch import cuda_state
from gpuwidget.pytorch.hooks import OnCudaInit, PatchedFunctions

_LOG = logging.getLogger(__name__)

MAX_HISTORY_EVENTS = 200_000
"""Maximum number of events that torch's history keeps per device. Each event takes a few hundred bytes of
memory, and makes reading the history slower."""
_RECORD_FUNCTIONS = ("_cuda_record_memory_history", "_cuda_record_memory_history_legacy")
_SKIPPED_EVENTS = [
    "free_completed",
    "segment_alloc",
    "segment_free",
    "segment_map",
    "segment_unmap",
    "snapshot",
]
"""Kinds of events that torch need not record, because gpuwidget does not use them."""

_UNKNOWN_STATE = translatable(
    "this version of torch does not report whether its allocation history is on, so "
    "gpuwidget did not turn it on"
)
_TAKEN_OVER = translatable(
    "Code in this run turned torch's allocation history on or off "
    "(torch.cuda.memory._record_memory_history): the lines cover only the allocations "
    "that are still in the history."
)
_USERS_RECORDING = translatable(
    "torch's allocation history was already on, and gpuwidget did not change it: the "
    "lines cover only the allocations in this history."
)


class HistoryScope:
    """One run's use of the history, from ``AllocationHistory.open`` to ``AllocationHistory.close``."""

    def __init__(self) -> None:
        self.since_us = SYSTEM_CLOCK.time() * 1e6
        self.until_us: float | None = None
        self.before: dict[int, RequestedBytes] = {}
        self.after: dict[int, RequestedBytes] = {}
        self.recorded_before: frozenset[int] | None = None
        self.recording = False
        """Whether a recording was on when the run began, or was started during the run."""
        self.started_recording = False
        """Whether the recording was started during this run. If so, it has no events from before the run."""

    def stop(self) -> None:
        """Mark the end of the run. Later events are not part of the run."""
        self.after = _requested_bytes()
        self.until_us = SYSTEM_CLOCK.time() * 1e6


class AllocationHistory:
    """torch's allocation history in this process, and the scopes of the runs that use it."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._scopes: list[HistoryScope] = []
        self._ours = False
        self._taken_over = False
        self._patches = PatchedFunctions()
        self._on_cuda_init = OnCudaInit(self._start_on_cuda_init)

    def open(self) -> HistoryScope:
        """Begin a scope. Start a recording or use the one that is on. Until CUDA is initialized, nothing can
        be recorded."""
        with self._lock:
            scope = HistoryScope()
            self._scopes.append(scope)
            try:
                torch: Any = cuda_state.loaded_torch()
                if cuda_state.cuda_initialized():
                    self._start(torch, _recorded_blocks)
                elif torch is not None:
                    self._on_cuda_init.register(torch)
                scope.before = _requested_bytes()
                scope.since_us = SYSTEM_CLOCK.time() * 1e6
            except BaseException:  # The caller has not received the scope yet, so the caller can't close it.
                self.close(scope)
                raise
            return scope

    def poll_torch(self) -> None:
        """If torch was imported after the run's start, start recording now or once CUDA is initialized.

        Call this while a run's code executes.
        """
        with self._lock:
            torch: Any = cuda_state.loaded_torch()
            if torch is None or not self._scopes or any(scope.recording for scope in self._scopes):
                return
            if cuda_state.cuda_initialized():
                self._start(torch, _recorded_blocks)
            else:
                self._on_cuda_init.register(torch)

    def read(self, scope: HistoryScope) -> RecordedHistory | str:
        """Return a run's history, or the reason why there is none. Call :meth:`HistoryScope.stop` first."""
        with self._lock:
            torch: Any = cuda_state.loaded_torch()
            reason = cuda_state.no_counters_reason()
            if reason is not None:
                return translatable("{reason}: no line allocated GPU memory", reason=reason)
            if not scope.recording:
                unsupported = _unsupported_reason(torch)
                return unsupported or translatable(
                    "gpuwidget did not notice the start of CUDA, so nothing was recorded"
                )
            if not torch._C._cuda_isHistoryEnabled():
                return translatable("code in this run ended torch's allocation history")
            note = _TAKEN_OVER if self._taken_over else None if self._ours else _USERS_RECORDING
            return RecordedHistory(
                snapshot=torch.cuda.memory._snapshot(),
                since_us=None if scope.started_recording else scope.since_us,
                until_us=scope.until_us or SYSTEM_CLOCK.time() * 1e6,
                before=scope.before,
                after=scope.after,
                recorded_before=scope.recorded_before if self._ours else None,
                note=note,
            )

    def close(self, scope: HistoryScope) -> None:
        """End a scope. When the last scope ends, stop the recording if gpuwidget started it. Safe to call
        twice."""
        with self._lock:
            if scope in self._scopes:
                self._scopes.remove(scope)
            if self._scopes:
                return
            ours, self._ours, self._taken_over = self._ours, False, False
            self._patches.restore()
            torch: Any = cuda_state.loaded_torch()
            if ours and torch is not None:
                _log_errors(lambda: torch.cuda.memory._record_memory_history(None))

    def reset_in_child(self) -> None:
        """Drop the scopes inherited from the parent. Do not call torch, because CUDA can't be used after a
        fork."""
        self._lock = threading.RLock()
        self._scopes = []
        self._ours = self._taken_over = False
        self._patches.restore()

    # -- the recording -------------------------------------------------------------------------------

    def _start(self, torch: Any, recorded_blocks: Callable[[Any], frozenset[int]]) -> None:
        """Start a recording unless one is on. CUDA must be initialized."""
        if _unsupported_reason(torch) is None:
            _log_errors(lambda: self._start_or_join(torch, recorded_blocks))

    def _start_or_join(self, torch: Any, recorded_blocks: Callable[[Any], frozenset[int]]) -> None:
        already_on = bool(torch._C._cuda_isHistoryEnabled())
        recorded_before = recorded_blocks(torch) if self._ours or not already_on else None
        if not already_on:
            # Set _ours before the recording starts, so that close() stops the recording even after an
            # interrupt.
            self._ours = True
            try:
                _record(torch)
            except Exception:
                self._ours = False
                raise
        # These are all the functions through which other code can start or stop a recording.
        self._patches.patch(torch._C, _RECORD_FUNCTIONS, self._wrap_record)
        for scope in self._scopes:
            if not scope.recording:
                scope.recording, scope.started_recording = True, not already_on
                scope.recorded_before = recorded_before

    def _start_on_cuda_init(self, torch: Any) -> None:
        if self._scopes:
            self._start(torch, lambda _: frozenset())

    def _wrap_record(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def record(*args: Any, **options: Any) -> Any:
            self._taken_over, self._ours = True, False
            return original(*args, **options)

        return record


def _log_errors(step: Callable[[], object]) -> None:
    try:
        step()
    except BaseException as error:
        stopped(_LOG, "torch's allocation history could not be switched", error)


def _unsupported_reason(torch: Any) -> str | None:
    return None if callable(getattr(torch._C, "_cuda_isHistoryEnabled", None)) else _UNKNOWN_STATE


def _record(torch: Any) -> None:
    record = torch.cuda.memory._record_memory_history
    options: dict[str, Any] = {"context": "alloc", "stacks": "python", "max_entries": MAX_HISTORY_EVENTS}
    if "skip_actions" in inspect.signature(record).parameters:
        options["skip_actions"] = _SKIPPED_EVENTS
    record("all", **options)


def _requested_bytes() -> dict[int, RequestedBytes]:
    """Return the counters by device index. Empty if CUDA is not initialized or torch has no counters."""
    if cuda_state.no_counters_reason() is not None:
        return {}
    torch: Any = cuda_state.loaded_torch()
    found = {}
    for index in range(torch.cuda.device_count()):
        stats = torch.cuda.memory_stats_as_nested_dict(index).get("requested_bytes", {}).get("all")
        if stats:
            found[index] = RequestedBytes(stats["allocated"], stats["current"], stats["peak"])
    return found


ALLOCATION_HISTORY = AllocationHistory()
"""The only instance in the process."""

reset_after_fork(ALLOCATION_HISTORY.reset_in_child)


# -- snapshots -------------------------------------------------------------------------------------------


def _recorded_blocks(torch: Any) -> frozenset[int]:
    return addresses_with_frames(torch.cuda.memory._snapshot())


def addresses_with_frames(snapshot: Mapping[str, Any]) -> frozenset[int]:
    """Return the addresses of the blocks in use whose allocation was recorded."""
    return frozenset(address for _, address, _, frames in blocks_in_use(snapshot) if frames)


def blocks_in_use(
    snapshot: Mapping[str, Any],
) -> Iterator[tuple[int, int, int, Sequence[Mapping[str, Any]]]]:
    """Yield device index, address, requested bytes and frames of each allocated block of a snapshot."""
    for segment in snapshot.get("segments") or ():
        address = int(segment.get("address", 0))
        for block in segment.get("blocks") or ():
            size = int(block.get("size", 0))
            # Newer versions of torch include the address of each block, older ones only the segment's
            # address.
            address = int(block.get("address", address))
            if block.get("state") == "active_allocated":
                requested = int(block.get("requested_size", size))
                yield int(segment.get("device", 0)), address, requested, block.get("frames") or ()
            address += size
