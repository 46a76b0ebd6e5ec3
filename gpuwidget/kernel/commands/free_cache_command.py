"""Free torch's cache for the panel, and describe what ran, how long it took, and how much memory was
freed."""

from __future__ import annotations

import threading

from gpuwidget import pytorch
from gpuwidget.kernel.devices.driver_memory import FreedMemory
from gpuwidget.model import units
from gpuwidget.model.clock import SYSTEM_CLOCK
from gpuwidget.model.errors import OptionError
from gpuwidget.model.translation import translatable

_IN_PROGRESS = translatable(
    "The cache is already being freed. The driver frees memory when the GPU has finished its work."
)

_lock = threading.Lock()


def free_cache(*, cell_runs: bool) -> str:
    """Free torch's cache and return sentences that describe what ran and how much memory was freed.

    Waits for the GPU without a timeout. Raises OptionError with the reason if the cache can't be freed.
    """
    pytorch.check_cache_available()
    if not _lock.acquire(blocking=False):
        raise OptionError(_IN_PROGRESS)
    try:
        return _free(cell_runs)
    finally:
        _lock.release()


def _free(cell_runs: bool) -> str:
    if not pytorch.returnable_cache():
        kept = pytorch.retained_cache()
        if kept <= 0:
            return translatable("Nothing was done: torch's cache is empty.")
        return translatable(
            "Nothing was done: torch's cache ({size}) can't be freed, because it shares segments with "
            "tensors or belongs to CUDA graphs.",
            size=units.memory(kept),
        )
    freed = FreedMemory()
    began = SYSTEM_CLOCK.monotonic()
    try:
        pytorch.free_cache(cell_runs=cell_runs)
    except RuntimeError as error:
        raise OptionError(
            translatable(
                "{statement} failed: {error}",
                statement=pytorch.FREE_CACHE_STATEMENT,
                error=str(error).splitlines()[0],
            )
        ) from error
    took = SYSTEM_CLOCK.monotonic() - began
    text = translatable(
        "Ran {statement}, which took {duration}. {freed}",
        statement=pytorch.FREE_CACHE_STATEMENT,
        duration=units.duration(took),
        freed=freed.describe(),
    )
    if not cell_runs:
        return text
    return translatable(
        "{text} A cell was running: its allocations had to wait, and its next allocations take longer.",
        text=text,
    )
