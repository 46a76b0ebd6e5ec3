"""A clock and a source of GPU readings that a test controls."""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from gpuwidget.model.clock import Clock
from gpuwidget.model.gpu_process import Process
from gpuwidget.model.messages import message
from gpuwidget.model.metrics import GROUPS, Group
from gpuwidget.model.readings import Activity
from gpuwidget.model.samples import Gpu, Origin
from gpuwidget.sources import GroupReading, Inventory, LostGpu, UtilizationWindow, Xid

T = TypeVar("T")

EPOCH = 1_700_000_000.0
_PATIENCE_S = 20.0
_ROUNDING_S = 1e-9
"""Differences of times that are smaller than this come from rounding."""


class SetClock:
    """A clock whose time a test sets."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def time(self) -> float:
        """Return the time that the test has set."""
        return self.now

    def monotonic(self) -> float:
        """Return the time that the test has set."""
        return self.now

    def wait(self, condition: object, seconds: float | None) -> None:
        """Fail the test, because the code under test must not wait."""
        raise AssertionError("nothing waits")


class FakeClock:
    """A clock that stands still until a test calls :meth:`advance`, apart from rounding errors."""

    def __init__(self) -> None:
        self._now = 0.0
        self.set_by = 0.0
        """Seconds by which the system's clock was set forward."""
        self._lock = threading.Lock()
        self._waiting: list[tuple[threading.Condition, float | None, threading.Thread]] = []
        self._users: set[threading.Thread] = set()
        """The threads that have read this clock or waited for it."""

    def time(self) -> float:
        self._users.add(threading.current_thread())
        return EPOCH + self.set_by + self._now

    def monotonic(self) -> float:
        self._users.add(threading.current_thread())
        return self._now

    def wait(self, condition: threading.Condition, seconds: float | None) -> None:
        if seconds is not None and seconds < _ROUNDING_S:
            # This is the rest of a wait that `advance` has ended, and is due to rounding. The clock moves by
            # this rest, at least to the next number, because nothing would wake the thread again.
            with self._lock:
                self._now = max(self._now + seconds, math.nextafter(self._now, math.inf))
            return
        self._users.add(threading.current_thread())
        with self._lock:
            # If the clock advanced between these two lines, nothing would wake the thread.
            entry = (condition, None if seconds is None else self._now + seconds, threading.current_thread())
            self._waiting.append(entry)
        condition.wait()
        with self._lock:
            self._waiting.remove(entry)

    def advance(self, seconds: float) -> None:
        """Advance the time, and wake the threads whose timeout has passed."""
        with self._lock:
            self._now += seconds
            due = {
                id(condition): condition
                for condition, until, _ in self._waiting
                if until is not None and until <= self._now + _ROUNDING_S
            }
        for condition in due.values():
            with condition:
                condition.notify_all()

    def is_awaited(self, seconds: float, name: str | None = None) -> bool:
        """Return whether a thread waits for the time that is ``seconds`` from now: any thread, or the thread
        with this name."""
        with self._lock:
            return any(
                until is not None and abs(until - self._now - seconds) < _ROUNDING_S
                for _, until, thread in self._waiting
                if name is None or thread.name == name
            )

    def all_wait(self, threads: Iterable[threading.Thread]) -> bool:
        """Return whether each of these threads waits for a later time or a notification.

        A thread whose time has come does not count, even if it has not continued yet. If any thread was
        notified and has not continued yet, the result is False.
        """
        with self._lock:
            later = self._now + _ROUNDING_S
            waiting = {thread for _, until, thread in self._waiting if until is None or until > later}
            entries = Counter(condition for condition, _, _ in self._waiting)
            # notify() removes a thread from the condition's waiters. The thread itself continues later.
            notified = any(len(vars(condition)["_waiters"]) < count for condition, count in entries.items())
        return not notified and waiting.issuperset(threads)

    def until(self, happened: Callable[[], bool], step: float = 0.0) -> None:
        """Let other threads run until the condition holds.

        Between two checks, the clock advances by ``step`` seconds, unless a thread still works for the
        current time. On a busy machine, several steps would otherwise be one for that thread.
        """
        patience = threading.Event()
        for _ in range(int(_PATIENCE_S / 0.002)):
            if happened():
                return
            if step and self.all_wait(self._working_threads()):
                self.advance(step)
            patience.wait(0.002)
        raise AssertionError("what was waited for has not happened")

    def _working_threads(self) -> set[threading.Thread]:
        """Return the threads that use this clock, without the current one and those in a call that hangs."""
        alive = {thread for thread in tuple(self._users) if thread.is_alive()}
        hanging = {thread for thread, end in tuple(_hung_calls.items()) if not end.is_set()}
        return alive - hanging - {threading.current_thread()}

    def timed(self, call: Callable[[], T]) -> tuple[T, float]:
        """Run ``call`` on another thread, and return its result and how many seconds it took.
        The clock advances only while the call waits, so the result does not depend on the machine's load.
        Nothing but its timeout may end such a wait."""
        began = self._now
        results: list[T] = []
        thread = threading.Thread(target=lambda: results.append(call()))
        thread.start()

        def ended() -> bool:
            with self._lock:
                waits = [until for _, until, waiting in self._waiting if waiting is thread]
            for until in waits:
                if until is not None and until > self._now:
                    self.advance(min(until - self._now, 0.05))
            return not thread.is_alive()

        self.until(ended)
        return results[0], self._now - began


def gpu(index: int, *, total: int = 150_000_000_000, name: str = "NVIDIA H200") -> Gpu:
    return Gpu(
        uuid=f"GPU-{index:08d}-aaaa-bbbb-cccc-dddddddddddd",
        index=index,
        mig_index=None,
        mig_parent=None,
        name=name,
        pci_bus_id=f"00000000:{index:02X}:00.0",
        memory_total=total,
        memory_reserved=0,
        unified_memory=False,
        compute_capability="9.0",
        peak_fp32_flops=66.9e12,
        memory_bandwidth=4.9e12,
    )


_hung_calls: dict[threading.Thread, threading.Event] = {}
"""The threads in a call that hangs until the event."""


def _hang(until: threading.Event) -> None:
    _hung_calls[threading.current_thread()] = until
    until.wait(_PATIENCE_S)
    del _hung_calls[threading.current_thread()]


class FakeSource:
    """A source with GPUs whose readings a test sets.
    It counts its calls, and a test can make them hang or fail."""

    def __init__(self, gpus: int = 1, *, kind: str = "nvml", clock: FakeClock | None = None) -> None:
        self.gpus = [gpu(index) for index in range(gpus)]
        self.present = list(self.gpus)
        self.lost: tuple[LostGpu, ...] = ()
        self.slices_unknown: frozenset[str] = frozenset()
        self.kind = kind
        self.reason: str | None = None
        self.clock = clock
        self.utilization: dict[int, float | None] = dict.fromkeys(range(gpus), 50.0)
        self.memory: dict[int, int | None] = dict.fromkeys(range(gpus), 1_000_000)
        self.power: dict[int, float | None] = dict.fromkeys(range(gpus), 100.0)
        self.processes: dict[int, tuple[Process, ...] | None] = dict.fromkeys(range(gpus), ())
        self.activity: dict[int, Activity | None] = dict.fromkeys(range(gpus))
        self.energy: dict[int, Callable[[], float]] = dict.fromkeys(range(gpus), lambda: 1000.0)
        self.power_samples: dict[int, tuple[tuple[float, float], ...]] = dict.fromkeys(range(gpus), ())
        self.windows: dict[int, tuple[UtilizationWindow, ...]] = dict.fromkeys(range(gpus), ())
        self.working: dict[int, frozenset[int] | None] = dict.fromkeys(range(gpus))
        self.missing: dict[str, str] = {}
        self.xids: dict[str, Xid] = {}
        self.failing: dict[int, Exception] = {}
        self.hanging: dict[int, threading.Event] = {}
        self.hang_in_open: threading.Event | None = None
        self.calls: Counter[str] = Counter()
        self.closed = 0

    def open(self) -> Inventory:
        self.calls["open"] += 1
        if self.hang_in_open is not None:
            _hang(self.hang_in_open)
        origin = Origin(
            kind=self.kind,  # type: ignore[arg-type]
            reason=None if self.reason is None else message("test", self.reason),
            recording="Recording of a test" if self.kind == "replay" else None,
            driver="580.00",
            cuda_driver="13.0",
        )
        return Inventory(origin, tuple(self.present), dict(self.xids), self.lost, self.slices_unknown)

    def close(self) -> None:
        self.closed += 1

    def rewound(self, clock: Clock) -> None:
        """Return None, as for live GPUs."""

    def _enter(self, call: str, one: Gpu) -> None:
        self.calls[call] += 1
        self.calls[f"{call} {one.index}"] += 1
        hang = self.hanging.get(one.index)
        if hang is not None:
            _hang(hang)
        error = self.failing.get(one.index)
        if error is not None:
            raise error

    def read(self, one: Gpu, group: Group) -> GroupReading:
        self._enter(group, one)
        missing = {name: message("test", why) for name, why in self.missing.items()}
        return GroupReading(self._values(one, group), missing if group == "fast" else {})

    def _values(self, one: Gpu, group: Group) -> dict[str, Any]:
        place, values = one.index, dict[str, Any].fromkeys(GROUPS[group])
        if group == "status":
            values |= {"power_limit_w": 700.0, "temperature_c": 40.0, "memory_temperature_c": 45.0}
            return values | {"sm_clock_mhz": 1980.0, "pstate": 0, "throttle": ()}
        if group == "slow":
            xid = self.xids.get(one.uuid)
            known: dict[str, Any] = {
                "energy_j": self.energy[place](),
                "utilization_window": 0.2,
                "ecc_uncorrected": 0,
            }
            return {**values, **known, "xid": xid}
        known = {
            "utilization": self.utilization[place],
            "memory_utilization": 10.0,
            "memory_used": self.memory[place],
            "power_w": self.power[place],
            "processes": self.processes[place],
            "activity": self.activity[place],
            "power_samples": self.power_samples[place],
            "windows": self.windows[place],
            "working_processes": self.working[place],
        }
        return {key: known.get(key) for key in values}

    def stop_activity(self) -> None:
        self.calls["forget"] += 1
