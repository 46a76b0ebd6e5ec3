"""``%%gpuwatch --need`` and ``--exclusive``: a cell that begins when its GPU has room, or in its turn.

Nothing is reserved by waiting: between the look and the cell's own allocation another process may take what
was free. The turn is a lock among those who ask for it, and binds nobody else.
"""

from __future__ import annotations

import html
import logging
import os
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gpuwidget import torch_allocator, units
from gpuwidget.clock import SYSTEM_CLOCK, Clock
from gpuwidget.columns import printable_lines
from gpuwidget.errors import OptionError
from gpuwidget.gpu_locks import VARIABLE, GpuLock
from gpuwidget.kernel import devices
from gpuwidget.kernel.card_facts import clean
from gpuwidget.kernel.device_choices import free_memory
from gpuwidget.kernel.interrupts import Presses, deaf_to_interrupts
from gpuwidget.kernel.options import WatchOptions
from gpuwidget.kernel.place import EMPTY, CellPlace
from gpuwidget.kernel.targets import Target, targets
from gpuwidget.measure.report import Report
from gpuwidget.measure.run import OPEN_TIMEOUT_S
from gpuwidget.measure.witness import Witness
from gpuwidget.processes import Directory
from gpuwidget.sampler import Sampler, process_sampler
from gpuwidget.samples import Gpu, Reading, Sample

log = logging.getLogger("gpuwidget")

_LOOK_EVERY_S = 0.25
_ANSWER_S = 1.0
_MOST_NAME = 80
_MOST_PATH = 120
_MOST_HOLDERS = 6


@dataclass(slots=True)
class Entry:
    """A cell's leave to run, until :meth:`leave`."""

    locks: Sequence[GpuLock]
    note: str | None
    """What there was to wait for, and what counted as room; None where it began at once in free memory."""

    def leave(self) -> None:
        """The cell is done: the turn is the next one's. Safe to call twice."""
        for lock in self.locks:
            lock.release()


class _Waited:
    """Puts on the card what there was to say of the cell's leave to run."""

    def __init__(self, note: str) -> None:
        self._note = note

    def start(self) -> None:
        """Nothing to begin."""

    def stop(self) -> None:
        """Nothing to end."""

    def testify(self, report: Report) -> Report:
        """The report with the note."""
        return replace(report, notes=(*report.notes, self._note))

    def abandon(self) -> None:
        """Nothing to give up."""


def witnesses(entry: Entry | None) -> list[Witness]:
    """Who tells of the wait on the cell's card."""
    return [_Waited(entry.note)] if entry is not None and entry.note is not None else []


def enter(options: WatchOptions, shell: Any) -> Entry:
    """Wait until the cell may begin; on the thread that is to run it.

    Raises OptionError, in one line, where it may not: no such GPU, no room in time, interrupted, or whatever
    else goes wrong. The cell must not run then.
    """
    try:
        with process_sampler().subscribe():
            return Waiting(options, process_sampler(), _Line(shell)).wait()
    except OptionError:
        raise
    except Exception as error:
        raise failed(error) from error


def failed(error: Exception) -> OptionError:
    """What a cell is told that asked for room or for its turn, and for which nobody could look."""
    log.debug("a cell's --need or --exclusive could not be met", exc_info=error)
    return OptionError(
        "The cell was not run: whether there is what it asks for with --need or --exclusive could not be "
        f"told ({clean(f'{type(error).__name__}: {error}', 200)})."
    )


def lock_folder() -> Path:
    """Where the locks are: the group's directory that the administrator names, else this user's own."""
    named = os.environ.get(VARIABLE)
    if named:
        folder = Path(named)
        shown = clean(named, _MOST_PATH)
        try:
            if folder.is_dir():
                return folder
        except OSError as error:
            why = error.strerror or str(error)
            raise OptionError(
                f"--exclusive: {VARIABLE} names {shown}, which can't be looked at ({why})."
            ) from None
        raise OptionError(f"--exclusive: {VARIABLE} names {shown}, which is no directory. Have it made.")
    from jupyter_core.paths import jupyter_runtime_dir

    folder = Path(jupyter_runtime_dir())
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise OptionError(
            f"--exclusive: {folder} can't be made ({error.strerror}); let {VARIABLE} name a directory."
        ) from None
    return folder


class Waiting:
    """One cell's wait."""

    def __init__(
        self, options: WatchOptions, sampler: Sampler, line: _Line, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._options = options
        self._sampler = sampler
        self._line = line
        self._clock = clock
        self._began = clock.monotonic()
        self._asked = clock.time()
        self._pause = threading.Condition()

    def wait(self) -> Entry:
        """The entry, once everything asked for is there. Raises OptionError where that can't be."""
        with deaf_to_interrupts() as presses, ExitStack() as undo:
            undo.callback(self._line.close)
            self._sampler.wait_until_open(OPEN_TIMEOUT_S)
            sample = self._read()
            found, chosen_as = targets(self._options, sample)
            recorded = ", a recording" if sample is not None and sample.origin.kind == "replay" else ""
            where = f"{_names([target.gpu for target in found])} ({chosen_as}{recorded})"
            locks = _locks(found) if self._options.start.exclusive else []
            waited_for = self._wait_for_turn(locks, where, presses, undo)
            waited_for_room, counted = self._wait_for_room(found, where, presses)
            waited_for += waited_for_room
            self._heed(presses, where)
            undo.pop_all()
            self._line.close()
        seconds = self._clock.monotonic() - self._began
        notes = [f"Waited {units.duration(seconds)} for {' and '.join(waited_for)}."] if waited_for else []
        return Entry(locks, " ".join([*notes, *counted]) or None)

    # -- the two conditions --------------------------------------------------------------------------

    def _wait_for_turn(
        self, locks: Sequence[GpuLock], where: str, presses: Presses, undo: ExitStack
    ) -> list[str]:
        waited: list[str] = []
        for lock in locks:
            while not lock.take(_myself(self._options)):
                waited = [f"its turn on {where}"]
                holder = lock.holder()
                by = (
                    clean(holder, _MOST_NAME) if holder is not None else "another process, which says no more"
                )
                self._go_on(f"its turn on {where}", f"it is the turn of {by}", presses, "--exclusive")
            undo.callback(lock.release)
        return waited

    def _wait_for_room(
        self, found: Sequence[Target], where: str, presses: Presses
    ) -> tuple[list[str], list[str]]:
        """What was waited for; and in sentences, of which room only torch can make use."""
        need = self._options.start.need
        if need is None:
            return [], []
        wanted = f"{units.memory(need)} free on {where}"
        _refuse_impossible(need, wanted, [target.gpu for target in found])
        waited: list[str] = []
        while True:
            sample = self._read()
            rooms = [_now(target, need, sample, self._asked) for target in found]
            short = [one for one in rooms if not one.has(need)]
            if not short:
                return waited, [one.counted() for one in rooms if one.free is not None and one.free < need]
            waited = [wanted]
            self._go_on(wanted, "; ".join(one.words(len(found) > 1) for one in short), presses, "--need")

    def _go_on(self, wanted: str, why: str, presses: Presses, option: str) -> None:
        """Show what is waited for, and sleep a little. Raises OptionError where the wait is over."""
        self._heed(presses, wanted)
        waited = self._clock.monotonic() - self._began
        most = self._options.start.wait_s
        if most is None:
            raise OptionError(
                f"{option}: the cell was not run. It asks for {wanted}; {why}. "
                "With --wait 10m it waits for that."
            )
        if waited >= most:
            raise OptionError(
                f"{option}: the cell was not run. It waited {_seconds(most)} for {wanted}; {why}."
            )
        self._line.show(
            f"Waiting for {wanted}: {why}.",
            f"{_seconds(waited)} of at most {_seconds(most)}",
        )
        with self._pause:
            self._clock.wait(self._pause, min(_LOOK_EVERY_S, most - waited))

    def _heed(self, presses: Presses, wanted: str) -> None:
        """Raise OptionError where 'stop' was pressed."""
        if presses.pressed:
            waited = units.duration(self._clock.monotonic() - self._began)
            raise OptionError(f"Interrupted after {waited} of waiting for {wanted}: the cell was not run.")

    def _read(self) -> Sample | None:
        self._asked = self._clock.time()
        return self._sampler.read_now(_ANSWER_S)


# -- how much room there is ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Room:
    """One GPU at the moment."""

    gpu: Gpu
    free: int | None
    reason: str
    holders: tuple[str, ...]
    cached: int
    """Bytes beside the free ones that torch in this process would give back, or use anew, for the cell."""

    def has(self, need: int) -> bool:
        return self.free is not None and self.free + self.cached >= need

    def words(self, named: bool) -> str:
        name = f"GPU {_number(self.gpu)} has " if named else "it has "
        if self.free is None:
            return f"{name}{units.UNKNOWN} ({self.reason})"
        said = f"{name}{units.memory_of(self.free, self.gpu.memory_total)} free"
        if self.cached >= units.MIB:
            said += f" (and {units.memory(self.cached)} in this notebook's empty torch cache)"
        return f"{said}, held by {', '.join(self.holders)}" if self.holders else said

    def counted(self) -> str:
        return (
            f"{units.memory(self.free)} of GPU {_number(self.gpu)} were free; --need counted "
            f"{units.memory(self.cached)} of this notebook's empty torch cache too, which torch uses anew "
            "and nothing else can before torch.cuda.empty_cache()."
        )


def _refuse_impossible(need: int, wanted: str, gpus: Sequence[Gpu]) -> None:
    """Raise OptionError for what no wait can bring."""
    for gpu in gpus:
        name = f"GPU {_number(gpu)}"
        total, reserved = gpu.memory_total, gpu.memory_reserved
        if total is None or reserved is None:
            what = "how much memory it has" if total is None else "how much of it the driver keeps for itself"
            raise OptionError(
                f"--need: the cell was not run. It asks for {wanted}; what is free on {name} can't be told, "
                f"since {what} is not known."
            )
        if total - reserved < need:
            kept = f", of which the driver keeps {units.memory(reserved)}" if reserved else ""
            raise OptionError(
                f"--need: the cell was not run. It asks for {wanted}; {name} has {units.memory(total)} in "
                f"all{kept}."
            )


def _seconds(seconds: float) -> str:
    return "0 s" if seconds < 1 else units.duration(int(seconds))


def _now(target: Target, need: int, sample: Sample | None, asked: float) -> _Room:
    """How much room there is, from a reading made since ``asked`` (epoch seconds)."""
    reading = next((one for one in sample.readings if one.uuid == target.gpu.uuid), None) if sample else None
    if reading is None:
        return _Room(target.gpu, None, "the driver does not answer", (), 0)
    if reading.memory_used is not None and (reading.measured is None or reading.measured < asked):
        return _Room(target.gpu, None, "the driver has not answered in time", (), 0)
    lost = "the GPU is lost" if reading.lost_since is not None else "the driver does not say"
    reason = clean(reading.missing.get("memory_used", lost), 120)
    free = free_memory(target.gpu, reading)
    cached = _cached(target) if free is not None and free < need else 0
    return _Room(target.gpu, free, reason, _holders(reading), cached)


def _holders(reading: Reading) -> tuple[str, ...]:
    """Who holds memory there and how much, the largest first."""
    found = [(clean(name, _MOST_NAME), size) for name, size in devices.observer().holders(reading)]
    ranked = sorted(found, key=lambda item: -(item[1] or 0))
    named = [f"{name} {units.memory(size)}" if size is not None else name for name, size in ranked]
    more = len(named) - _MOST_HOLDERS
    return (*named[:_MOST_HOLDERS], *([f"{more} more"] if more > 0 else []))


def _cached(target: Target) -> int:
    """Bytes that torch keeps here without a tensor in them, and would give back."""
    if target.cuda_index is None:
        return 0
    try:
        blocks = torch_allocator.snapshot().get(target.cuda_index)
    except Exception:  # a torch that tells it in another way
        log.debug("torch's cache could not be looked at", exc_info=True)
        return 0
    return 0 if blocks is None else blocks.returnable


def _locks(found: Sequence[Target]) -> list[GpuLock]:
    # In an order that is the same for all, so that no two wait for each other.
    folder = lock_folder()
    return [GpuLock(folder, uuid) for uuid in sorted(target.gpu.uuid for target in found)]


def _names(gpus: Sequence[Gpu]) -> str:
    numbers = ", ".join(map(_number, gpus))
    kinds = ", ".join(dict.fromkeys(clean(gpu.name, 40).removeprefix("NVIDIA ") for gpu in gpus))
    return f"GPU{'s' if len(gpus) > 1 else ''} {numbers} {kinds}"


def _number(gpu: Gpu) -> str:
    return str(gpu.index) if gpu.mig_index is None else f"{gpu.index}:{gpu.mig_index}"


def _myself(options: WatchOptions) -> str:
    """What others read while this cell has its turn."""
    user = Directory().look_up(os.getpid()).user
    # Which notebook a kernel belongs to, where its server says so.
    notebook = os.path.basename(os.environ.get("JPY_SESSION_NAME", ""))
    parts = [user, f"process {os.getpid()}", notebook, options.label]
    return ", ".join(clean(part, _MOST_NAME) for part in parts if part)


# -- what is shown meanwhile -----------------------------------------------------------------------------


class _Line:
    """One line that is written anew in its place, and goes when the wait is over."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._place: CellPlace | None = None
        self._shown: tuple[str, str] | None = None

    def show(self, text: str, progress: str) -> None:
        """Show it; in a terminal, where nothing can be written anew, once."""
        if (text, progress) == self._shown:
            return
        first, self._shown = self._shown is None, (text, progress)
        if first:
            self._place = CellPlace.keep(self._shell)
        style = "border-left:3px solid #c77700;padding:2px 10px"
        page = f"<div style='{style}'>{html.escape(text)} <b>{html.escape(progress)}</b></div>"
        data = {"text/plain": printable_lines(f"{text} {progress}"), "text/html": page}
        if self._place is not None:
            self._place.fill(data)
        elif first:
            self._shell.display_pub.publish(data=data, metadata={})

    def close(self) -> None:
        """Take it away. Safe to call twice."""
        if self._place is not None:
            self._place.release()
            self._place.fill(EMPTY)
            self._place = None
