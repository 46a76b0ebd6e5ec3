"""How often a thread may be looked at, by what the looks cost it."""

from __future__ import annotations

from gpuwidget.profiler.sample_counts import Tally

PERIOD_S = 0.005
"""Mean seconds between looks while the GPU is asked, where a look costs little."""
WITHOUT_GPU_S = 0.02
"""The same while there is no GPU to ask."""
SLOWEST_S = 0.05
_SHARE_OF_CPU = 0.02
"""Of one core, that the looks take at most in the long run; most of it wakes the thread, beside the code."""
_SHARE_OF_INTERPRETER = 0.005
"""Of the time of code that holds the interpreter all the while, that the looks take at most from it."""
_HANDOVER_S = 5e-5
"""What a thread loses when it is made to let go of the interpreter and gets it back."""
_FULL_RATE_S = 2.0
_SHARE_OF_THREAD = 0.008
"""Of the time of code that runs while the GPU waits for it, that the looks take at most from it."""
_WAKING_S = 2e-4
"""What a thread loses beside that time which lets go of the interpreter for a moment, as torch's operations
do, and finds it taken by a look: it sleeps and must be woken. A launch-bound loop on an H200 machine, whose
thread ran for half of the time, lost 0.13 ms to each look of 0.07 ms."""
_FULL_RATE_EXPOSED_S = 0.25
_ENOUGH_LOOKS = 10_000
"""Which leave a share uncertain by a point at most: a run that has had so many is looked at less often."""


def period(tally: Tally, elapsed_s: float, *, asked: bool, cpu_s: float, taken_s: float) -> float:
    """Mean seconds between looks from now on: the least that the budgets allow, at the full rate at first.

    Args:
        tally: The looks so far.
        elapsed_s: Seconds since they began.
        asked: Whether the GPU is asked.
        cpu_s: CPU seconds of a look, its waking included.
        taken_s: Seconds for which a look holds the interpreter.
    """
    found = PERIOD_S if asked else WITHOUT_GPU_S
    if not tally.whole:
        return found
    if elapsed_s >= _FULL_RATE_EXPOSED_S:
        found = max(found, tally.exposed / tally.whole * (taken_s + _WAKING_S) / _SHARE_OF_THREAD)
    if elapsed_s >= _FULL_RATE_S:
        found = max(
            found,
            cpu_s / _SHARE_OF_CPU,
            tally.held / tally.whole * (taken_s + _HANDOVER_S) / _SHARE_OF_INTERPRETER,
            elapsed_s / _ENOUGH_LOOKS,
        )
    return min(SLOWEST_S, found)
