"""Use the sampler for one command: wait until the driver has started, and stop the sampler at the end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gpuwidget.cli.command import SILENCE_S, report
from gpuwidget.model.errors import GpuWidgetError
from gpuwidget.sampler import NO_THREAD, Sampler, process_sampler

_OPEN_TIMEOUT_S = 30.0
"""Maximum seconds to wait for the driver to start. Unless another program keeps the driver initialized,
starting it takes seconds per GPU."""


def no_answer(seconds: float) -> GpuWidgetError:
    """Return the error for a driver that has not answered for ``seconds``."""
    return GpuWidgetError(
        f"The driver has not answered for {seconds:.0f} seconds. If nvidia-smi hangs too, the driver "
        "or a GPU is stuck: see the kernel log (dmesg). A restart of the machine usually helps."
    )


@contextmanager
def stopped_at_end(sampler: Sampler | None) -> Iterator[Sampler]:
    """Yield the sampler, or the process's sampler if it is None, and stop it at the end."""
    chosen = sampler or process_sampler()
    try:
        yield chosen
    finally:
        chosen.stop()


def wait_until_open(sampler: Sampler) -> None:
    """Wait until the driver has started. After a few seconds, report on stderr which call it has not
    answered."""
    if sampler.wait_until_open(SILENCE_S):
        return
    if sampler.has_no_thread:
        raise GpuWidgetError(NO_THREAD)
    call = sampler.current_call() or "the first call"
    report(f"the driver has not answered {call} for {SILENCE_S:.0f} seconds. Still waiting…")
    if not sampler.wait_until_open(_OPEN_TIMEOUT_S):
        raise no_answer(SILENCE_S + _OPEN_TIMEOUT_S)
