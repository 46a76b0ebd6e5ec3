"""A view's 'free its torch cache': what ran, what it cost and what came of it, in words."""

from __future__ import annotations

import threading

from gpuwidget.kernel.devices import driver_memory
from gpuwidget.model import units
from gpuwidget.model.clock import SYSTEM_CLOCK
from gpuwidget.model.errors import OptionError
from gpuwidget.pytorch import cuda_state, release_cache

_UNDER_WAY = (
    "It is under way already: the driver gives memory back when the GPU has done what it was given to do."
)
_WHILE_IT_RAN = (
    "A cell was running: where it allocated meanwhile it waited too, and what it allocates next takes longer."
)

_one_at_a_time = threading.Lock()


def free_cache(*, cell_runs: bool) -> str:
    """Give torch's cache back, and say what was released, as the driver sees it.

    Waits for the GPU without a bound. Raises OptionError where it can't be done, with the reason.
    """
    release_cache.check_available()
    if not _one_at_a_time.acquire(blocking=False):
        raise OptionError(_UNDER_WAY)
    try:
        return _free(cell_runs)
    finally:
        _one_at_a_time.release()


def _free(cell_runs: bool) -> str:
    if not release_cache.returnable():
        kept = release_cache.retained()
        if kept <= 0:
            return "Nothing was done: torch's cache is empty."
        return (
            f"Nothing was done: the {units.memory(kept)} of torch's cache can't go back to the driver, since "
            "they lie beside tensors in use or belong to CUDA graphs."
        )
    before, reserved = driver_memory.look(), _reserved()
    began = SYSTEM_CLOCK.monotonic()
    try:
        release_cache.release(cell_runs=cell_runs)
    except RuntimeError as error:
        raise OptionError(f"{release_cache.STATEMENT} failed: {str(error).splitlines()[0]}") from error
    took = SYSTEM_CLOCK.monotonic() - began
    given = driver_memory.given_back(before, driver_memory.look(), max(0, reserved - _reserved()))
    said = f"Ran {release_cache.STATEMENT}, which took {units.duration(took)}. {given}"
    return f"{said} {_WHILE_IT_RAN}" if cell_runs else said


def _reserved() -> int:
    return sum(counters.reserved for counters in cuda_state.counters().values())
