"""torch's allocation history, recorded while a run wants it and shared by all that do.

The recording is one for the whole process, and also the user's: one that is on already is used as it is and
never touched. What we begin, we end. Where the user's code begins or ends a recording meanwhile, the
recording is theirs from then on.

Nothing here imports torch or starts CUDA: before the user's code has, nothing is recorded, and from then on
at once (torch calls back when it has initialised CUDA).
"""

from __future__ import annotations

import inspect
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuwidget.model.fork import reset_after_fork
from gpuwidget.pytorch import cuda_state
from gpuwidget.pytorch.hooks import Taps, WhenCudaIsUp

_LOG = logging.getLogger(__name__)

MOST_EVENTS = 200_000
"""Of these the history of each device holds the last; each takes some hundred bytes, and time to read out."""
_RECORD = ("_cuda_record_memory_history", "_cuda_record_memory_history_legacy")
_SPARED = ["free_completed", "segment_alloc", "segment_free", "segment_map", "segment_unmap", "snapshot"]
"""Events that nobody here looks at."""

_NOT_SAID = "this version of torch does not say whether an allocation history is on: none was begun"
_TAKEN_OVER = (
    "Code in this run switched torch's allocation history itself (torch.cuda.memory._record_memory_history): "
    "the lines are those of what it has left."
)
_USERS = (
    "torch's allocation history was on already and was left as it is: the lines are those of what it keeps."
)


@dataclass(frozen=True, slots=True)
class Count:
    """The allocator's own count of bytes asked for on one device."""

    ever: int
    now: int
    peak: int


@dataclass(frozen=True, slots=True)
class Recorded:
    """What the history has for one run."""

    snapshot: Mapping[str, Any]
    since_us: float | None
    """Epoch microseconds of the run's start; None where nothing older can be in it."""
    until_us: float
    before: Mapping[int, Count]
    """The counts at the run's start, by device index; a device without one had allocated nothing."""
    after: Mapping[int, Count]
    older: frozenset[int] | None
    """Addresses of blocks that were in use, and known to the history, at the run's start; None where the
    recording is not ours."""
    note: str | None
    """What is to be said of where it comes from."""


class Listener:
    """One run's share of the history, from :meth:`History.open` to :meth:`History.close`."""

    def __init__(self) -> None:
        self.since_us = time.time_ns() / 1000
        self.until_us: float | None = None
        self.before: dict[int, Count] = {}
        self.after: dict[int, Count] = {}
        self.older: frozenset[int] | None = None
        self.joined = False
        """Whether a recording was on when it came, or has begun since."""
        self.alone = False
        """Whether nothing older than the run is in the history."""

    def stop(self) -> None:
        """The run has ended: what comes now is not its doing."""
        self.after = _counts()
        self.until_us = time.time_ns() / 1000


class History:
    """The recording of one process, and who wants it."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._listeners: list[Listener] = []
        self._ours = False
        self._taken_over = False
        self._taps = Taps()
        self._when_cuda_is_up = WhenCudaIsUp(self._begin_with_cuda)

    def open(self) -> Listener:
        """Begin to record where CUDA is up and nobody records yet; else join, or wait for CUDA."""
        with self._lock:
            listener = Listener()
            self._listeners.append(listener)
            try:
                torch: Any = cuda_state.loaded()
                if cuda_state.cuda_initialized():
                    self._begin(torch, _recorded_blocks)
                elif torch is not None:
                    self._when_cuda_is_up.ask(torch)
                listener.before = _counts()
                listener.since_us = time.time_ns() / 1000
            except BaseException:  # nobody has the listener yet, to close it
                self.close(listener)
                raise
            return listener

    def listen(self) -> None:
        """Have torch call back, now that it may be there: the run's own code may have imported it."""
        with self._lock:
            torch: Any = cuda_state.loaded()
            if torch is None or not self._listeners or any(one.joined for one in self._listeners):
                return
            if cuda_state.cuda_initialized():
                self._begin(torch, _recorded_blocks)
            else:
                self._when_cuda_is_up.ask(torch)

    def take(self, listener: Listener) -> Recorded | str:
        """What was recorded for a run, or why there is nothing; after its :meth:`Listener.stop`."""
        with self._lock:
            torch: Any = cuda_state.loaded()
            reason = cuda_state.missing_reason()
            if reason is not None:
                return f"{reason}: no line allocated anything there"
            if not listener.joined:
                return _why_not(torch) or "CUDA came up without a word to gpuwidget, so nothing was recorded"
            if not torch._C._cuda_isHistoryEnabled():
                return "code in this run ended torch's allocation history"
            note = _TAKEN_OVER if self._taken_over else None if self._ours else _USERS
            return Recorded(
                snapshot=torch.cuda.memory._snapshot(),
                since_us=None if listener.alone else listener.since_us,
                until_us=listener.until_us or time.time_ns() / 1000,
                before=listener.before,
                after=listener.after,
                older=listener.older if self._ours else None,
                note=note,
            )

    def close(self, listener: Listener) -> None:
        """A run wants no more of it; the last one ends what we began. Safe to call twice."""
        with self._lock:
            if listener in self._listeners:
                self._listeners.remove(listener)
            if self._listeners:
                return
            ours, self._ours, self._taken_over = self._ours, False, False
            self._taps.remove()
            torch: Any = cuda_state.loaded()
            if ours and torch is not None:
                self._guarded(lambda: torch.cuda.memory._record_memory_history(None))

    def reset_in_child(self) -> None:
        """After a fork CUDA can't be used, so nothing is asked of torch, and no run is the child's."""
        self._lock = threading.RLock()
        self._listeners = []
        self._ours = self._taken_over = False
        self._taps.remove()

    # -- the recording -------------------------------------------------------------------------------

    def _begin(self, torch: Any, recorded_blocks: Callable[[Any], frozenset[int]]) -> None:
        """With CUDA up: record, unless somebody does."""
        if _why_not(torch) is None:
            self._guarded(lambda: self._join(torch, recorded_blocks))

    def _join(self, torch: Any, recorded_blocks: Callable[[Any], frozenset[int]]) -> None:
        already = bool(torch._C._cuda_isHistoryEnabled())
        older = recorded_blocks(torch) if self._ours or not already else None
        if not already:
            # Said before, so that an interrupt in between leaves nothing on that nobody ends.
            self._ours = True
            try:
                _record(torch)
            except Exception:
                self._ours = False
                raise
        # Other code that switches the recording does so by one of these.
        self._taps.put(torch, _RECORD, self._noting)
        for listener in self._listeners:
            if not listener.joined:
                listener.joined, listener.alone, listener.older = True, not already, older

    def _guarded(self, step: Callable[[], object]) -> None:
        try:
            step()
        except Exception:
            _LOG.debug("torch's allocation history", exc_info=True)

    def _begin_with_cuda(self, torch: Any) -> None:
        if self._listeners:
            self._begin(torch, lambda _: frozenset())

    def _noting(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def record(*args: Any, **options: Any) -> Any:
            self._taken_over, self._ours = True, False
            return original(*args, **options)

        return record


def _why_not(torch: Any) -> str | None:
    return None if callable(getattr(torch._C, "_cuda_isHistoryEnabled", None)) else _NOT_SAID


def _record(torch: Any) -> None:
    record = torch.cuda.memory._record_memory_history
    options: dict[str, Any] = {"context": "alloc", "stacks": "python", "max_entries": MOST_EVENTS}
    if "skip_actions" in inspect.signature(record).parameters:
        options["skip_actions"] = _SPARED
    record("all", **options)


def _recorded_blocks(torch: Any) -> frozenset[int]:
    return addresses_with_frames(torch.cuda.memory._snapshot())


def _counts() -> dict[int, Count]:
    """By device index; empty while CUDA is not up or where torch does not count."""
    if cuda_state.missing_reason() is not None:
        return {}
    torch: Any = cuda_state.loaded()
    found = {}
    for index in range(torch.cuda.device_count()):
        counted = torch.cuda.memory_stats_as_nested_dict(index).get("requested_bytes", {}).get("all")
        if counted:
            found[index] = Count(counted["allocated"], counted["current"], counted["peak"])
    return found


HISTORY = History()
"""The process's one."""

reset_after_fork(HISTORY.reset_in_child)


def addresses_with_frames(snapshot: Mapping[str, Any]) -> frozenset[int]:
    """Of the blocks in use, those whose allocation was recorded."""
    return frozenset(address for _, address, _, frames in blocks_in_use(snapshot) if frames)


def blocks_in_use(
    snapshot: Mapping[str, Any],
) -> Iterator[tuple[int, int, int, Sequence[Mapping[str, Any]]]]:
    """Yield device index, address, bytes requested and frames of each allocated block of a snapshot."""
    for segment in snapshot.get("segments") or ():
        address = int(segment.get("address", 0))
        for block in segment.get("blocks") or ():
            size = int(block.get("size", 0))
            # Newer versions say each block's address, older ones only the segment's.
            at = int(block.get("address", address))
            if block.get("state") == "active_allocated":
                asked = int(block.get("requested_size", size))
                yield int(segment.get("device", 0)), at, asked, block.get("frames") or ()
            address = at + size
