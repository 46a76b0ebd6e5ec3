"""``%%gpuwatch --need`` and ``--exclusive``: a cell that begins when its GPU has room, or in its turn.

Nothing is reserved by waiting: between the look and the cell's own allocation another process may take what
was free. The turn is a lock among those who ask for it, and binds nobody else.
"""

from __future__ import annotations

import html
import os
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gpuwidget import torch_state, units
from gpuwidget.clock import SYSTEM_CLOCK, Clock
from gpuwidget.errors import OptionError
from gpuwidget.gpu_locks import VARIABLE, GpuLock
from gpuwidget.kernel import devices
from gpuwidget.kernel.card_facts import clean
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

_LOOK_EVERY_S = 0.25
_ANSWER_S = 1.0
_MOST_NAME = 80
_MOST_HOLDERS = 6


@dataclass(slots=True)
class Entry:
    """A cell's leave to run, until :meth:`leave`."""

    locks: Sequence[GpuLock]
    note: str | None
    """What there was to wait for, as a sentence; None where it began at once."""

    def leave(self) -> None:
        """The cell is done: the turn is the next one's. Safe to call twice."""
        for lock in self.locks:
            lock.release()


class _Waited:
    """Puts on the card what the cell had waited for."""

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

    Raises OptionError, in one line, where it may not: no such GPU, no room in time, or interrupted. The
    cell must not run then.
    """
    with process_sampler().subscribe():
        return Waiting(options, process_sampler(), _Line(shell)).wait()


def lock_folder() -> Path:
    """Where the locks are: the group's directory that the administrator names, else this user's own."""
    named = os.environ.get(VARIABLE)
    if named:
        folder = Path(named)
        if not folder.is_dir():
            raise OptionError(f"--exclusive: {VARIABLE} names {named}, which is no directory. Have it made.")
        return folder
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
            waited_for += self._wait_for_room(found, where, presses)
            self._heed(presses, where)
            undo.pop_all()
            self._line.close()
        seconds = self._clock.monotonic() - self._began
        note = f"Waited {units.duration(seconds)} for {' and '.join(waited_for)}." if waited_for else None
        return Entry(locks, note)

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

    def _wait_for_room(self, found: Sequence[Target], where: str, presses: Presses) -> list[str]:
        need = self._options.start.need
        if need is None:
            return []
        wanted = f"{units.memory(need)} free on {where}"
        most = min((one.gpu.memory_total for one in found if one.gpu.memory_total is not None), default=need)
        if most < need:
            raise OptionError(
                f"--need: the cell was not run. It asks for {wanted}, which has {units.memory(most)} in all."
            )
        waited: list[str] = []
        while True:
            sample = self._read()
            short = [
                one for one in (_now(target, sample, self._asked) for target in found) if not one.has(need)
            ]
            if not short:
                return waited
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

    def has(self, need: int) -> bool:
        return self.free is not None and self.free >= need

    def words(self, named: bool) -> str:
        name = f"GPU {_number(self.gpu)} has " if named else "it has "
        if self.free is None:
            return f"{name}{units.UNKNOWN} ({self.reason})"
        said = f"{name}{units.memory_of(self.free, self.gpu.memory_total)} free"
        held = f", held by {', '.join(self.holders)}" if self.holders else ""
        cache = (
            f" ({units.memory(self.cached)} of it is torch's empty cache here: torch.cuda.empty_cache())"
            if self.cached >= units.MIB
            else ""
        )
        return f"{said}{held}{cache}"


def _seconds(seconds: float) -> str:
    return "0 s" if seconds < 1 else units.duration(int(seconds))


def _now(target: Target, sample: Sample | None, asked: float) -> _Room:
    """How much room there is, from a reading made since ``asked`` (epoch seconds)."""
    reading = next((one for one in sample.readings if one.uuid == target.gpu.uuid), None) if sample else None
    if reading is None:
        return _Room(target.gpu, None, "the driver does not answer", (), 0)
    if reading.memory_used is not None and (reading.measured is None or reading.measured < asked):
        return _Room(target.gpu, None, "the driver has not answered in time", (), 0)
    total, used = target.gpu.memory_total, reading.memory_used
    reason = clean(reading.missing.get("memory_used", "the driver does not say"), 120)
    free = None if total is None or used is None else max(0, total - used)
    return _Room(target.gpu, free, reason, _holders(reading), _cached(target))


def _holders(reading: Reading) -> tuple[str, ...]:
    """Who holds memory there and how much, the largest first."""
    sizes: dict[str, int | None] = {}
    for process in reading.processes or ():
        name = clean(devices.observer().named(process), _MOST_NAME)
        before = sizes.get(name, 0)
        sizes[name] = None if before is None or process.memory is None else before + process.memory
    ranked = sorted(sizes.items(), key=lambda item: -(item[1] or 0))
    named = [f"{name} {units.memory(size)}" if size is not None else name for name, size in ranked]
    more = len(named) - _MOST_HOLDERS
    return (*named[:_MOST_HOLDERS], *([f"{more} more"] if more > 0 else []))


def _cached(target: Target) -> int:
    """Bytes that torch keeps here without a tensor in them."""
    if target.cuda_index is None:
        return 0
    counters = torch_state.counters().get(target.cuda_index)
    return 0 if counters is None else counters.reserved - counters.allocated


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
        data = {"text/plain": f"{text} {progress}", "text/html": page}
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
