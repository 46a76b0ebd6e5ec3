"""How much time was spent where, from looks at a thread that come when the interpreter lets them.

Looks are due at moments that have nothing to do with what the thread does, and each stands for the time since
the one before was due. One that is due while the thread holds the interpreter comes late: after 5 ms, when
the interpreter makes the thread let go where it stands, or when the thread lets go by itself (to wait, or to
call what needs no interpreter). In that case it may have been elsewhere when the look was due: the time goes
to where it was last made to let go, and how much time that is for any two lines is kept. Where it is much,
nobody can tell those two apart.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import NamedTuple

from gpuwidget.measure.places import Place

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
_RAN = 0.5
"""Part of a look's wait that the thread must have run in to be its cause."""
_CERTAIN_S = 0.0015
"""A look that had to wait so long did so for the interpreter: no machine at rest is that late by itself."""
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


class Tally:
    """Adds up looks; used by one thread, read by any."""

    def __init__(self, switch_s: float | None = None) -> None:
        self._switch = sys.getswitchinterval() if switch_s is None else switch_s
        self.spent: dict[Place, Spent] = {}
        self.looks = 0
        self.held = 0.0
        """Seconds for which a look had to wait."""
        self.known = 0.0
        """Seconds in which it was known whether the GPU was busy."""
        self.busy: dict[int, float] = {}
        """Seconds by which devices were busy, as bits."""
        self.turns: dict[frozenset[int | None], int] = {}
        """How often a look found one of two lines after the other."""
        self.doubts: dict[frozenset[int | None], float] = {}
        """Seconds that belong to one or the other of two lines; less of a look that came but a little late,
        as it does on a busy machine without anybody holding the interpreter."""
        self._whole = 0.0
        self._delayed = 0.0
        """Seconds for which a look waited for the machine."""
        self._last: Spent | None = None
        self._last_bits: int | None = None
        self._held: Spent | None = None
        self._held_at = float("-inf")
        self._held_bits: int | None = None
        self._other: int | None = None
        """The line before the present one."""
        self._other_at = float("-inf")

    def known_place(self, place: Place) -> Spent | None:
        """What is held of ``place``, None where it was never seen."""
        return self.spent.get(place)

    def meet(self, place: Place, line: int | None) -> Spent:
        """``place``, seen for the first time."""
        if len(self.spent) >= _MOST_PLACES:
            place = Place(place.own, place.own_at, 0, 0, 0)
        return self.spent.setdefault(place, Spent(place, line))

    def add(self, look: Look, here: Spent, bits: int | None) -> None:
        """A look that found the thread ``here`` and the devices of ``bits`` busy."""
        t, seconds, late = look.t, look.seconds, look.late
        self.looks += 1
        self._whole += seconds
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
            doubt = self._doubt(late)
            if late >= _EARLIEST * self._switch:
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
        then.seconds += seconds
        if bits_then is not None:
            then.known += seconds
            self.known += seconds
            if bits_then:
                then.busy += seconds
                self.busy[bits_then] = self.busy.get(bits_then, 0.0) + seconds
        self._last, self._last_bits = here, bits

    def _doubt(self, late: float) -> float:
        """How likely the thread was elsewhere when a look so late was due, 0 to 1."""
        if late < _EARLIEST * self._switch:
            return min(1.0, late / _CERTAIN_S)
        return _DOUBT_IF_BUSY if self._delayed > _BUSY_MACHINE * self._whole else 0.0
