"""Tests of the sampling rate, which depends on what taking a sample costs."""

from __future__ import annotations

import pytest

from gpuwidget.profiler.code_locations import CodeLocation
from gpuwidget.profiler.sample_counts import LocationCounts, SampleCounts, StackSample
from gpuwidget.profiler.sampling_rate import sampling_period

SOMEWHERE = LocationCounts(CodeLocation(1, 0, 0, 0, 0), 1)


def counts_of(*, ran: float | None, bits: int | None, late: float = 0.0) -> SampleCounts:
    """Return ten seconds of samples, taken every 0.01 s, of a thread that used the CPU for ``ran`` seconds
    between two samples. ``bits`` has a bit for each busy GPU, and is None if the GPUs' state is unknown.
    """
    counts = SampleCounts(0.005)
    for number in range(1000):
        counts.add(StackSample(number / 100, late, 0.01, ran), SOMEWHERE, bits)
    return counts


def period(counts: SampleCounts, *, elapsed: float = 10.0, queries: bool = True, cpu: float = 1e-5) -> float:
    return sampling_period(counts, elapsed, queries_streams=queries, cpu_s=cpu, gil_s=4e-5)


@pytest.mark.parametrize(
    ("ran", "bits", "expected"),
    [
        (0.01, 0, 0.03),  # the GPU is idle while the thread launches kernels
        (0.002, 0, 0.006),
        (None, 0, 0.03),  # it is unknown whether the thread waits
        (0.01, None, 0.03),
        (0.01, 1, 0.005),  # the GPU has queued work
        (0.0, 0, 0.005),  # the thread waits
    ],
)
def test_a_thread_that_the_gpu_waits_for(ran: float | None, bits: int | None, expected: float) -> None:
    """If the GPU waits for the thread, sampling delays the run, so sampling takes at most 0.8 % of the
    time.
    """
    assert period(counts_of(ran=ran, bits=bits)) == pytest.approx(expected, rel=0.005)


def test_a_gpu_that_is_busy_now_and_then_waits_too() -> None:
    """If the GPU is idle in a third of the samples, sampling is limited as if the GPU always waited for the
    thread.
    """
    counts = SampleCounts(0.005)
    for number in range(1000):
        counts.add(StackSample(number / 100, 0.0, 0.01, 0.01), SOMEWHERE, number % 3 and 1)
    assert period(counts) == pytest.approx(0.03)


def test_code_that_holds_the_gil() -> None:
    """If samples have to wait for the GIL, sampling takes at most 0.5 % of the time."""
    for bits in (0, 1):
        assert period(counts_of(ran=0.01, bits=bits, late=0.005)) == pytest.approx(0.028)


def test_the_beginning_is_sampled_at_the_full_rate() -> None:
    """The beginning of a run is sampled at the full rate, or at a quarter of the full rate if no streams are
    queried.
    """
    exposed, holding = counts_of(ran=0.01, bits=0), counts_of(ran=0.01, bits=0, late=0.005)
    assert period(exposed, elapsed=0.24) == 0.005
    assert period(exposed, elapsed=0.25) == pytest.approx(0.03)
    assert period(holding, elapsed=0.9) == 0.005
    assert period(holding, elapsed=1.0) == pytest.approx(0.028)
    assert period(exposed, elapsed=0.24, queries=False) == 0.02
    assert period(SampleCounts(0.005), elapsed=1.0) == 0.005


def test_other_budgets() -> None:
    """Sampling uses at most 2 % of a CPU core, and becomes less frequent after about 10,000 samples. But the
    mean time between samples is never set to more than 50 ms."""
    busy = counts_of(ran=0.01, bits=1)
    assert period(busy, cpu=2e-4) == pytest.approx(0.01)
    assert period(busy, elapsed=200.0) == pytest.approx(0.02)
    assert period(busy, elapsed=3600.0) == 0.05
    assert period(busy, cpu=1.0) == 0.05
