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

from gpuwidget.measure.places import Place

PROMPT_S = 0.0003
"""A look that comes no later than this after it was due did not wait for the interpreter."""
_RECENT_S = 0.06
_TURNS_S = 1.0
"""Lines that were seen within so long of each other may take turns."""
_EARLIEST, _LATEST, _KEPT = 0.95, 1.3, 4.0
"""Of the interpreter's switch interval."""
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
        self._last: Spent | None = None
        self._last_bits: int | None = None
        self._held: Spent | None = None
        self._held_at = float("-inf")
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

    def add(
        self, t: float, late: float, between: bool, seconds: float, here: Spent, bits: int | None
    ) -> None:
        """A look at ``t``, ``late`` seconds after it was due, that stands for ``seconds``.

        ``between``: the thread stood between two instructions, not in the midst of a call.
        """
        self.looks += 1
        then = here
        last, last_bits = self._last, self._last_bits
        if last is not None and last.line != here.line:
            self._other, self._other_at = last.line, t
            turn = frozenset((last.line, here.line))
            self.turns[turn] = self.turns.get(turn, 0) + 1
        if late > PROMPT_S:
            self.held += seconds
        doubt = self._doubt(late, between)
        if doubt == 0.0 and late > PROMPT_S:
            self._held, self._held_at = here, t
        elif doubt > 0.0:
            if late < _EARLIEST * self._switch and self._held is not None and t - self._held_at <= _RECENT_S:
                then = self._held
                doubt /= 2
            other = then.line
            if other == here.line and t - self._other_at <= _TURNS_S:
                other = self._other
            if other != here.line:
                pair = frozenset((other, here.line))
                self.doubts[pair] = self.doubts.get(pair, 0.0) + doubt * seconds
            if last_bits is not None and last_bits != bits:
                then.doubtful += doubt * seconds
        then.seconds += seconds
        if bits is not None:
            then.known += seconds
            self.known += seconds
            if bits:
                then.busy += seconds
                self.busy[bits] = self.busy.get(bits, 0.0) + seconds
        self._last, self._last_bits = here, bits

    def _doubt(self, late: float, between: bool) -> float:
        """How likely the thread was elsewhere when a look so late was due, 0 to 1.

        It was not, where the look came just when the interpreter makes a thread let go, or much later: some
        call then kept the interpreter. A machine that is busy with other things delays looks by any time.
        """
        if late <= PROMPT_S:
            return 0.0
        if late < _EARLIEST * self._switch:
            return min(1.0, late / _CERTAIN_S)
        if between or late <= _LATEST * self._switch or late >= _KEPT * self._switch:
            return 0.0
        return 0.2
