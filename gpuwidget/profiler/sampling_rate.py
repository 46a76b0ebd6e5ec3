"""Choose the sampling rate so that samples take at most a fixed part of a run's time."""

from __future__ import annotations

from gpuwidget.profiler.sample_counts import SampleCounts

MAX_PERIOD_S = 0.05
PERIOD_S = 0.005
"""Mean seconds between samples that query the GPU. The period is longer if samples are expensive."""
_PERIOD_WITHOUT_GPU_S = 0.02
"""Mean seconds between samples if there is no GPU to query. The period is longer if samples are expensive."""
_FULL_RATE_S = 1.0
_FULL_RATE_EXPOSED_S = 0.25
_MAX_EXPOSED_SHARE = 0.008
"""Maximum fraction by which sampling may lengthen a run in which the GPU waits for the code."""
_WAKING_S = 2e-4
"""Additional seconds that a sample costs a thread that releases the GIL for a moment, as torch's operations
do. If the sampling thread takes the GIL in that moment, the other thread sleeps and must be woken. On an H200
machine, each sample of 0.07 ms cost a launch-bound loop 0.13 ms, although the loop's thread ran only half of
the time."""
_MAX_GIL_SHARE = 0.005
"""Maximum fraction by which sampling may lengthen a run whose code holds the GIL all the time."""
_HANDOVER_S = 1e-4
"""Seconds for which a thread that is preempted for a sample waits until it gets the GIL back."""
_MAX_CPU = 0.02
"""Maximum fraction of one CPU core that sampling may use. Most of the CPU time is spent on waking the
sampling thread."""
_ENOUGH_SAMPLES = 10_000
"""Once a run has about this many samples, it is sampled less often. With this number, the error of a line's
share of the time is at most one percentage point."""


def sampling_period(
    counts: SampleCounts, elapsed_s: float, *, queries_streams: bool, cpu_s: float, gil_s: float
) -> float:
    """Return the mean seconds between further samples: the shortest period within the overhead limits.

    Args:
        counts: The samples taken so far.
        elapsed_s: Seconds since sampling began. Short runs are sampled at the full rate.
        queries_streams: Whether samples query the GPU.
        cpu_s: CPU seconds per sample, including the time to wake the sampling thread.
        gil_s: Seconds per sample for which the sampling thread holds the GIL.
    """
    period = PERIOD_S if queries_streams else _PERIOD_WITHOUT_GPU_S
    if not counts.total_s:
        return period
    if elapsed_s >= _FULL_RATE_EXPOSED_S:
        period = max(period, counts.exposed_s / counts.total_s * (gil_s + _WAKING_S) / _MAX_EXPOSED_SHARE)
    if elapsed_s >= _FULL_RATE_S:
        period = max(
            period,
            cpu_s / _MAX_CPU,
            counts.delayed_s / counts.total_s * (gil_s + _HANDOVER_S) / _MAX_GIL_SHARE,
            elapsed_s / _ENOUGH_SAMPLES,
        )
    return min(MAX_PERIOD_S, period)
