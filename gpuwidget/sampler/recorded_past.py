"""The samples that a recording would have given in the past, so that a chart of it need not begin empty."""

from __future__ import annotations

from collections.abc import Iterator

from gpuwidget.model.errors import GpuLostError
from gpuwidget.model.samples import SAMPLE_SCHEMA, Sample
from gpuwidget.sampler.gpu_state import GpuState
from gpuwidget.sources import Source


class _PastClock:
    """A clock that is set to times in the past."""

    def __init__(self, now: float) -> None:
        self.now = now

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now

    def wait(self, condition: object, seconds: float | None) -> None:
        raise NotImplementedError("A recording is read without waiting.")


def recorded_past(source: Source, since: float, until: float, interval_s: float) -> Iterator[Sample]:
    """Yield a sample per ``interval_s`` between two times (epoch seconds); none if the GPUs are live."""
    clock = _PastClock(since)
    past = source.rewound(clock)
    if past is None:
        return
    inventory = past.open()
    states = [GpuState(gpu) for gpu in inventory.gpus]
    while clock.now < until:
        for state in states:
            try:
                _read(past, state, clock.now)
            except GpuLostError as error:
                state.set_lost(clock.now, error.reason)
        yield Sample(
            schema=SAMPLE_SCHEMA,
            time=clock.now,
            origin=inventory.origin,
            gpus=inventory.gpus,
            readings=tuple(state.reading() for state in states),
        )
        clock.now += interval_s


def _read(past: Source, state: GpuState, now: float) -> None:
    for group in ("fast", "status", "processes"):
        state.store(group, past.read(state.gpu, group))
    state.measured = now
    activity = past.read(state.gpu, "activity")
    if activity.values["activity"] is not None:
        state.add_activity(activity)
    state.set_answered(now)
