"""``%%gpuwatch --need`` and ``--wait``: run a cell only when its GPU has enough free memory.

Nothing is reserved: another process may allocate the memory between the check and the cell's first
allocation.
"""

from __future__ import annotations

import html
import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gpuwidget import pytorch
from gpuwidget.kernel.cells.options import WatchOptions
from gpuwidget.kernel.cells.target_gpus import TargetGpu, find_target_gpus
from gpuwidget.kernel.devices import default_device
from gpuwidget.kernel.devices.device_choices import free_memory
from gpuwidget.kernel.shell.interrupts import InterruptState, ignore_interrupts
from gpuwidget.kernel.shell.output_slot import OutputSlot
from gpuwidget.model import units
from gpuwidget.model.boundary import Boundary, stopped
from gpuwidget.model.clock import SYSTEM_CLOCK, Clock
from gpuwidget.model.errors import OptionError
from gpuwidget.model.messages import Sentences
from gpuwidget.model.readings import Reading
from gpuwidget.model.samples import Gpu, Sample
from gpuwidget.model.terminal_text import clean_line, printable_lines
from gpuwidget.model.translation import Text, _, in_view_language, joined, translatable, with_english
from gpuwidget.sampler import NO_THREAD, OPEN_TIMEOUT_S, Sampler, process_sampler
from gpuwidget.views.saved_outputs import output_metadata

_LOG = logging.getLogger(__name__)

_CHECK_INTERVAL_S = 0.25
_READ_TIMEOUT_S = 1.0
_MAX_NAME_LENGTH = 80
_MAX_HOLDERS = 6

_CHECK_FAILED = Sentences(
    "The cell was not run: gpuwidget could not check whether the GPU has the memory that --need asks for "
    "({error})."
)
_INTERRUPTED = Sentences("Interrupted after {elapsed} of waiting for {wanted}: the cell was not run.")
_NOT_FREE = Sentences(
    "--need: the cell was not run. It needs {wanted}; {why}. With --wait 10m, it waits up to 10 minutes for "
    "the memory."
)
_NOT_FREE_IN_TIME = Sentences("--need: the cell was not run. It waited {duration} for {wanted}; {why}.")
_TOO_SMALL = Sentences("--need: the cell was not run. It needs {wanted}; {gpu} has a total of {size}.")
_SIZE_UNKNOWN = Sentences(
    "--need: the cell was not run. It needs {wanted}; the free memory of {gpu} is unknown, because the "
    "driver does not report {missing}."
)
_CACHE_COUNTED = Sentences(
    "GPU {gpu} had {free} free. --need also counted {cached} in this notebook's torch cache, which no tensor "
    "uses: torch can reuse this memory, but other libraries and processes can't before "
    "torch.cuda.empty_cache()."
)


def wait_for_memory(options: WatchOptions, shell: Any) -> str | None:
    """Wait until the cell's GPUs have the free memory that ``--need`` requests.

    Call it on the thread that is about to run the cell. Return the note for the cell's card, or None if there
    was no wait and the cell does not need the memory in torch's cache. Raise OptionError, with a one-line
    message, if the cell must not run: the GPU does not exist, the memory is not free in time, the user
    interrupts, or the check fails.
    """
    if options.need is None:
        return None
    try:
        with process_sampler().subscribe():
            return MemoryWait(options, options.need, process_sampler(), StatusLine(shell)).wait()
    except OptionError:
        raise
    except BaseException as error:
        stopped(_LOG, "the free memory could not be checked", error, foreign=True)
        raise check_failed(error) from error


def check_failed(error: BaseException) -> OptionError:
    """Return the error for a cell whose ``--need`` could not be checked."""
    return OptionError(_CHECK_FAILED(error=clean_line(f"{type(error).__name__}: {error}", 200)))


class MemoryWait:
    """One cell's wait for ``need`` free bytes on each of its GPUs."""

    def __init__(
        self,
        options: WatchOptions,
        need: int,
        sampler: Sampler,
        line: StatusLine,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._options = options
        self._need = need
        self._sampler = sampler
        self._line = line
        self._clock = clock
        self._started = clock.monotonic()
        self._requested = clock.time()
        self._pause = threading.Condition()

    def wait(self) -> str | None:
        """Wait until the memory is free and return the card's note, as :func:`wait_for_memory` does."""
        with ignore_interrupts() as state:
            try:
                return self._wait(state)
            finally:
                self._line.close()

    def _wait(self, state: InterruptState) -> str | None:
        self._sampler.wait_until_open(OPEN_TIMEOUT_S)
        sample = self._read()
        if sample is None and self._sampler.has_no_thread:
            raise OptionError(NO_THREAD)
        found, selected_by = find_target_gpus(self._options, sample)
        if sample is not None and sample.origin.recorded:
            selected_by = translatable("{selected_by}; values are from a recording", selected_by=selected_by)
        gpus = [target.gpu for target in found]
        wanted = translatable(
            "{size} free on {gpus} ({selected_by})",
            size=units.memory(self._need),
            gpus=_names(gpus),
            selected_by=selected_by,
        )
        _check_possible(self._need, wanted, gpus)
        waited = False
        while True:
            sample = self._read()
            memory = [_gpu_memory(target, self._need, sample, self._requested) for target in found]
            lacking = [gpu for gpu in memory if not gpu.has(self._need)]
            self._check_interrupt(state, wanted)
            if not lacking:
                break
            self._pause_or_give_up(wanted, joined([gpu.describe(len(found) > 1) for gpu in lacking], "; "))
            waited = True
        notes = []
        if waited:
            duration = units.duration(self._elapsed())
            notes.append(translatable("Waited {duration} for {wanted}.", duration=duration, wanted=wanted))
        notes += [
            _CACHE_COUNTED(gpu=_number(one.gpu), free=units.memory(one.free), cached=units.memory(one.cached))
            for one in memory
            if one.free is not None and one.free < self._need
        ]
        return joined(notes, " ") if notes else None

    def _pause_or_give_up(self, wanted: str, why: str) -> None:
        """Show the status line and pause. Raise OptionError if the cell has waited as long as ``--wait``
        allows."""
        limit = self._options.wait_s
        if limit is None:
            raise OptionError(_NOT_FREE(wanted=wanted, why=why))
        elapsed = self._elapsed()
        if elapsed >= limit:
            raise OptionError(_NOT_FREE_IN_TIME(duration=_seconds(limit), wanted=wanted, why=why))
        self._line.show(
            translatable("Waiting for {wanted}: {why}.", wanted=wanted, why=why),
            translatable("{elapsed} of at most {limit}", elapsed=_seconds(elapsed), limit=_seconds(limit)),
        )
        with self._pause:
            self._clock.wait(self._pause, min(_CHECK_INTERVAL_S, limit - elapsed))

    def _check_interrupt(self, state: InterruptState, wanted: str) -> None:
        """Raise OptionError if the user interrupted the wait."""
        if state.interrupted:
            raise OptionError(_INTERRUPTED(elapsed=units.duration(self._elapsed()), wanted=wanted))

    def _elapsed(self) -> float:
        return self._clock.monotonic() - self._started

    def _read(self) -> Sample | None:
        self._requested = self._clock.time()
        return self._sampler.read_now(_READ_TIMEOUT_S)


# -- how much memory is free -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _GpuMemory:
    """The memory of one GPU when it was last read."""

    gpu: Gpu
    free: int | None
    """Bytes; None if unknown."""
    reason: str
    """Why ``free`` is unknown."""
    holders: tuple[str, ...]
    cached: int
    """Bytes of this process's torch cache that no tensor uses, which the cell can allocate again."""

    def has(self, need: int) -> bool:
        return self.free is not None and self.free + self.cached >= need

    def describe(self, named: bool) -> Text:
        gpu = f"GPU {_number(self.gpu)}" if named else translatable("the GPU")
        if self.free is None:
            return translatable("the free memory of {gpu} is unknown ({reason})", gpu=gpu, reason=self.reason)
        free = units.memory_of(self.free, self.gpu.memory_total)
        text = translatable("{gpu} has {size} free", gpu=gpu, size=free)
        if self.cached >= units.MIB:
            cached = units.memory(self.cached)
            text = translatable(
                "{text} (and {size} in this notebook's torch cache, not in tensors)", text=text, size=cached
            )
        if not self.holders:
            return text
        return translatable("{text} (holders: {holders})", text=text, holders=joined(self.holders))


def _check_possible(need: int, wanted: str, gpus: Sequence[Gpu]) -> None:
    """Raise OptionError if a GPU can never have ``need`` free bytes, or if its total memory is unknown."""
    for gpu in gpus:
        name = f"GPU {_number(gpu)}"
        total, reserved = gpu.memory_total, gpu.memory_reserved
        if total is None or reserved is None:
            missing = (
                translatable("the GPU's total memory")
                if total is None
                else translatable("how much memory is reserved")
            )
            raise OptionError(_SIZE_UNKNOWN(wanted=wanted, gpu=name, missing=missing))
        if total - reserved < need:
            size: str = units.memory(total)
            if reserved:
                size = translatable(
                    "{total}, of which the driver reserves {reserved}",
                    total=size,
                    reserved=units.memory(reserved),
                )
            raise OptionError(_TOO_SMALL(wanted=wanted, gpu=name, size=size))


def _gpu_memory(target: TargetGpu, need: int, sample: Sample | None, requested: float) -> _GpuMemory:
    """Return the GPU's memory.

    The memory is unknown if it was read before ``requested``, the time of the request in epoch seconds.
    """
    readings = () if sample is None else sample.readings
    reading = next((reading for reading in readings if reading.uuid == target.gpu.uuid), None)
    if sample is None or reading is None:
        return _GpuMemory(target.gpu, None, translatable("the driver does not answer"), (), 0)
    if reading.memory_used is not None and (reading.measured is None or reading.measured < requested):
        return _GpuMemory(target.gpu, None, translatable("the driver has not answered in time"), (), 0)
    fallback = (
        translatable("the GPU is lost")
        if reading.lost_since is not None
        else translatable("the driver does not report it")
    )
    why = reading.missing.get("memory_used", fallback)
    reason = with_english(why, clean_line(why, 120))
    free = free_memory(target.gpu, reading)
    cached = _returnable_cache(target) if free is not None and free < need else 0
    return _GpuMemory(target.gpu, free, reason, _holders(sample, reading), cached)


def _holders(sample: Sample, reading: Reading) -> tuple[str, ...]:
    """Return texts with the names and sizes of the largest holders of the GPU's memory.

    A last text contains the number of the other holders.
    """
    found = [
        (with_english(name, clean_line(name, _MAX_NAME_LENGTH)), size)
        for name, size in default_device.monitor().holders(sample, reading)
    ]
    ranked = sorted(found, key=lambda item: -(item[1] or 0))
    named = [
        name if size is None else translatable("{holder} {size}", holder=name, size=units.memory(size))
        for name, size in ranked
    ]
    more = len(named) - _MAX_HOLDERS
    return (*named[:_MAX_HOLDERS], *([translatable("{number} more", number=more)] if more > 0 else []))


def _returnable_cache(target: TargetGpu) -> int:
    """Return the bytes that torch has reserved in this process and that no tensor uses."""
    if target.cuda_index is None:
        return 0
    # This version of torch may have a different snapshot format.
    with Boundary(_LOG, "torch's cache could not be read", foreign=True):
        blocks = pytorch.memory_blocks().get(target.cuda_index)
        return 0 if blocks is None else blocks.returnable
    return 0


def _seconds(seconds: float) -> str:
    return "0 s" if seconds < 1 else units.duration(int(seconds))


def _names(gpus: Sequence[Gpu]) -> str:
    numbers = ", ".join(map(_number, gpus))
    kinds = ", ".join(dict.fromkeys(clean_line(gpu.name, 40).removeprefix("NVIDIA ") for gpu in gpus))
    return f"GPU{'s' if len(gpus) > 1 else ''} {numbers} {kinds}"


def _number(gpu: Gpu) -> str:
    return str(gpu.index) if gpu.mig_index is None else f"{gpu.index}:{gpu.mig_index}"


# -- what is shown during the wait -----------------------------------------------------------------------


class StatusLine:
    """One line in the cell's output that is updated in place and removed when the wait ends."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._slot: OutputSlot | None = None
        self._shown: tuple[str, str] | None = None

    @in_view_language
    def show(self, text: str, progress: str) -> None:
        """Show the line in the view's language. In a terminal, which can't update it, only the first call
        shows it."""
        text, progress = _(text), _(progress)
        if (text, progress) == self._shown:
            return
        first, self._shown = self._shown is None, (text, progress)
        if first:
            self._slot = OutputSlot.reserve(self._shell)
        style = "border-left:3px solid #c77700;padding:2px 10px"
        page = f"<div style='{style}'>{html.escape(text)} <b>{html.escape(progress)}</b></div>"
        data = {"text/plain": printable_lines(f"{text} {progress}"), "text/html": page}
        if self._slot is not None:
            self._slot.fill(data)
        elif first:
            self._shell.display_pub.publish(data=data, metadata=output_metadata())

    def close(self) -> None:
        """Remove the line. Safe to call twice."""
        if self._slot is not None:
            self._slot.close()
            self._slot = None
