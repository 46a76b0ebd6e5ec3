"""How much time was spent where, from looks at a thread that come when the interpreter lets them.

Looks are due at moments that have nothing to do with what the thread does, and each stands for the time since
the one before was due. One that is due while the thread holds the interpreter comes late: after 5 ms, when
the interpreter makes the thread let go where it stands (sooner where another thread has waited before), or
when the thread lets go by itself (to wait, or to call what needs no interpreter). In that case it may have
been elsewhere when the look was due: the time goes to where it was last made to let go, and how much time
that is for any two lines is kept. Where it is much, nobody can tell those two apart.

Python looks only at calls, and where a loop begins anew, whether it should let go: what a thread was made to
let go at is the operation that took the time, or one since the last such place. A look that comes much later
than it was due has waited for a single operation.

What comes before the first look in the cell's code, and after the last, is not the cell's.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import NamedTuple

from gpuwidget.profiler.code_places import Place

PROMPT_S = 0.0003
"""A look that comes no later than this after it was due did not wait for the interpreter."""
_RECENT_S = 0.06
_TURNS_S = 1.0
"""Lines that were seen within so long of each other may take turns."""
_EARLIEST = 0.95
"""Of the interpreter's switch interval, from which on the thread was made to let go: where it was found is
where it kept the interpreter, or a call did that it has just come back from."""
_BUSY_MACHINE = 0.1
"""Part of the looks that were late though the thread did not run, from which on the machine is too busy for a
long wait to mean that the thread was made to let go."""
_DOUBT_IF_BUSY = 0.5
_KEPT = 5.0
"""Of the switch interval, beyond which a look has waited for one operation: some other threads that want the
interpreter as well are done sooner."""
_RAN = 0.5
"""Part of a look's wait that the thread must have run in to be its cause."""
_CERTAIN_S = 0.0015
"""A look that had to wait so long did so for the interpreter: no machine at rest is that late by itself."""
_STEADILY = 3
"""So many looks in succession that find the GPU busy say that it has work to go on with."""
_MOST_PLACES = 4000


@dataclass(slots=True)
class Spent:
    """Seconds at one place."""

    place: Place
    line: int | None
    """Of the cell."""
    seconds: float = 0.0
    known: float = 0.0
    """Of these, seconds in which it was known whether the GPU was busy."""
    busy: float = 0.0
    doubtful: float = 0.0
    """Seconds in which the GPU's state changed while the look was waiting."""
    forced: float = 0.0
    """Seconds after which it was made to let go here: at this operation, or one since Python last looked."""
    kept: float = 0.0
    """Of these, seconds of waiting for a single operation."""


class Look(NamedTuple):
    """One look at the thread."""

    t: float
    late: float
    """Seconds after it was due."""
    seconds: float
    """What it stands for."""
    ran: float | None
    """CPU seconds that the thread has had since the look before, None where nobody knows. One that did not
    run kept nobody waiting: the machine was busy with something else."""
    made_to: bool = False
    """Whether the thread was found where it lets go of the interpreter only if it is made to."""


@dataclass(slots=True)
class _Share:
    """What looks add to one place."""

    looks: int = 0
    seconds: float = 0.0
    known: float = 0.0
    busy: float = 0.0
    forced: float = 0.0
    kept: float = 0.0

    def join(self, other: _Share) -> None:
        self.looks += other.looks
        self.seconds += other.seconds
        self.known += other.known
        self.busy += other.busy
        self.forced += other.forced
        self.kept += other.kept


class Tally:
    """Adds up looks; used by one thread, read by any."""

    def __init__(self, switch_s: float | None = None) -> None:
        self._switch = sys.getswitchinterval() if switch_s is None else switch_s
        self.spent: dict[Place, Spent] = {}
        """From the first look in the cell's code to the last."""
        self.looks = 0
        self.counted = 0
        """Looks that :attr:`spent` rests on."""
        self.whole = 0.0
        """Seconds of all looks, those before and after the cell's code included."""
        self.missed = 0.0
        """Seconds for which a look failed."""
        self.held = 0.0
        """Seconds for which a look had to wait."""
        self.exposed = 0.0
        """Seconds in which the thread ran, and let looks in, while no device was known to have work to go on
        with: what the thread loses then the run loses."""
        self.known = 0.0
        """Of :attr:`whole`, seconds in which it was known whether the GPU was busy."""
        self.busy: dict[int, float] = {}
        """Seconds by which devices were busy, as bits."""
        self.turns: dict[frozenset[int | None], int] = {}
        """How often a look found one of two lines after the other."""
        self.doubts: dict[frozenset[int | None], float] = {}
        """Seconds that belong to one or the other of two lines; less of a look that came but a little late,
        as it does on a busy machine without anybody holding the interpreter."""
        self.kept: dict[tuple[int | None, int | None], float] = {}
        """Seconds in which an operation between two lines of the cell, both included, kept the interpreter:
        from the line last seen before (None: the first) to the one seen next (None: the last so far)."""
        self._delayed = 0.0
        """Seconds for which a look waited for the machine."""
        self._last: Spent | None = None
        self._last_bits: int | None = None
        self._busy_looks = 0
        """So many in succession have found the GPU busy."""
        self._held: Spent | None = None
        self._held_at = float("-inf")
        self._held_bits: int | None = None
        self._other: int | None = None
        """The line before the present one."""
        self._other_at = float("-inf")
        self._inside: Spent | None = None
        """Where in the cell's code it was last seen."""
        self._outside: dict[Place, tuple[Spent, _Share]] = {}
        """What it did elsewhere since then: part of the run if it comes back."""
        self._first: _Share | None = None
        """What an operation kept that ended before the cell's code was ever seen."""
        self._open = 0.0
        """Seconds that were kept since the cell's code was last seen."""

    def known_place(self, place: Place) -> Spent | None:
        """What is held of ``place``, None where it was never seen."""
        known = self.spent.get(place)
        if known is None and place in self._outside:
            return self._outside[place][0]
        return known

    def meet(self, place: Place, line: int | None) -> Spent:
        """``place``, seen for the first time."""
        if len(self.spent) >= _MOST_PLACES:
            place = Place(place.own, place.own_at, 0, 0, 0)
        known = self.spent.get(place)
        if known is None:
            known = Spent(place, line)
            if place.own:
                self.spent[place] = known
        return known

    def was_made_to(self, look: Look) -> bool:
        """Whether the thread was made to let go of the interpreter for this look, where it was found."""
        made_to = look.made_to or look.late >= _EARLIEST * self._switch
        return made_to and look.late > PROMPT_S and (look.ran is None or look.ran >= _RAN * look.late)

    def miss(self, seconds: float) -> None:
        """A look that failed would have stood for so long."""
        self.missed += seconds

    def add(self, look: Look, here: Spent, bits: int | None) -> None:
        """A look that found the thread ``here`` and the devices of ``bits`` busy."""
        t, seconds, late = look.t, look.seconds, look.late
        self.looks += 1
        self.whole += seconds
        self._busy_looks = self._busy_looks + 1 if bits else 0
        if self._busy_looks < _STEADILY and late <= PROMPT_S:
            self.exposed += seconds if look.ran is None else min(seconds, look.ran)
        forced = self.was_made_to(look)
        kept = forced and self._is_long(look)
        if look.ran is not None and look.ran < _RAN * late:
            if late > _CERTAIN_S:
                self._delayed += seconds
            late = 0.0
        then, moved, bits_then = here, False, bits
        last, last_bits = self._last, self._last_bits
        if last is not None and last.line != here.line:
            self._other, self._other_at = last.line, t
            turn = frozenset((last.line, here.line))
            self.turns[turn] = self.turns.get(turn, 0) + 1
        if late > PROMPT_S:
            self.held += seconds
            doubt = self._doubt(late, forced)
            if forced:
                self._held, self._held_at, self._held_bits = here, t, bits
            elif self._held is not None and t - self._held_at <= _RECENT_S:
                then = self._held
                doubt /= 2
                moved = True
            other = then.line
            if other == here.line and t - self._other_at <= _TURNS_S:
                other = self._other
            if doubt and other != here.line:
                pair = frozenset((other, here.line))
                self.doubts[pair] = self.doubts.get(pair, 0.0) + doubt * seconds
            if moved:
                # As it was where the thread was: what it has come to may have given the GPU work already.
                bits_then = self._held_bits
            if last_bits is not None and last_bits != bits_then:
                then.doubtful += doubt * seconds
            if kept and last_bits != bits_then:
                bits_then = None  # nobody knows when in all that time it changed
        known = busy = 0.0
        if bits_then is not None:
            known = seconds
            self.known += seconds
            if bits_then:
                busy = seconds
                self.busy[bits_then] = self.busy.get(bits_then, 0.0) + seconds
        held, single = seconds if forced else 0.0, seconds if kept else 0.0
        if then.place.own:
            self.counted += 1
            then.seconds += seconds
            then.known += known
            then.busy += busy
            then.forced += held
            then.kept += single
        else:
            self._leave(then.place, then, _Share(1, seconds, known, busy, held, single), look)
        if here.place.own:
            self._enter(here)
        self._last, self._last_bits = here, bits

    def end(self, look: Look) -> None:
        """The run ended while a look was waiting: the time is the cell's that was at work before."""
        if not self._is_long(look) or any(place.user or place.call for place in self._outside):
            return  # other code ran after the cell's last statement
        self.looks += 1
        self.whole += look.seconds
        self.held += look.seconds
        kept = look.seconds if self.was_made_to(look) else 0.0
        self._keep(_Share(1, look.seconds, forced=kept, kept=kept))

    def _is_long(self, look: Look) -> bool:
        return look.late > _KEPT * self._switch

    def _leave(self, place: Place, where: Spent, share: _Share, look: Look) -> None:
        """The thread is elsewhere, at ``place``."""
        if self._is_long(look) and not place.user and not place.call:
            # Nothing runs but what runs the cell: all that time until now one of its statements did.
            self._keep(share)
        else:
            self._outside.setdefault(place, (where, _Share()))[1].join(share)

    def _keep(self, share: _Share) -> None:
        if self._inside is None:
            self._first = self._first or _Share()
            self._first.join(share)
            return
        self._return()
        self._spend(self._inside, share)
        self._open += share.seconds

    def _enter(self, here: Spent) -> None:
        """The thread is in the cell's code, at ``here``."""
        if self._inside is None:
            self._outside.clear()  # its beginning
            if self._first is not None:
                self._spend(here, self._first)
                self._note_kept(None, here.line, self._first.seconds)
        elif self._outside or self._open:
            self._return()
            if self._open:
                self._note_kept(self._inside.line, here.line, self._open)
                self._open = 0.0
        self._inside = here

    def _return(self) -> None:
        for where, share in self._outside.values():
            self._spend(where, share)
        self._outside.clear()

    def _spend(self, where: Spent, share: _Share) -> None:
        where = self.spent.setdefault(where.place, where)
        self.counted += share.looks
        where.seconds += share.seconds
        where.known += share.known
        where.busy += share.busy
        where.forced += share.forced
        where.kept += share.kept

    def _note_kept(self, since: int | None, until: int | None, seconds: float) -> None:
        between = (since, until)
        self.kept[between] = self.kept.get(between, 0.0) + seconds

    @property
    def kept_at_end(self) -> tuple[int | None, float]:
        """The line of the cell last seen, and the seconds that an operation after it kept the interpreter."""
        return (self._inside.line if self._inside is not None else None), self._open

    def _doubt(self, late: float, forced: bool) -> float:
        """How likely the thread was elsewhere when a look so late was due, 0 to 1."""
        if not forced:
            return min(1.0, late / _CERTAIN_S)
        return _DOUBT_IF_BUSY if self._delayed > _BUSY_MACHINE * self.whole else 0.0
