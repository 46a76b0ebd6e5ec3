"""The time axis of the charts. In the live chart it grows in steps, so that the lines are rarely rescaled."""

from __future__ import annotations

from dataclasses import dataclass

from gpuwidget.model import units
from gpuwidget.model.translation import _

_LENGTHS = (
    (6, 1),
    (8, 2),
    (10, 2),
    (12, 2),
    (15, 5),
    (20, 5),
    (25, 5),
    (30, 5),
    (40, 10),
    (50, 10),
    (60, 10),
    (80, 20),
)
_UNITS = (
    ("s", 1.0, ((5, 1), *_LENGTHS, (100, 20), (120, 20))),
    ("min", 60.0, ((3, 1), (4, 1), (5, 1), *_LENGTHS, (100, 20), (120, 20))),
    ("h", 3600.0, ((3, 1), (4, 1), (5, 1), (6, 1), (8, 2), (12, 2), (16, 4), (24, 4), (32, 8), (48, 8))),
)


@dataclass(frozen=True, slots=True)
class TimeAxis:
    """The end and the ticks of the axis, in a unit that keeps its numbers short."""

    unit: str
    """``s``, ``min`` or ``h``."""
    seconds: float
    """Seconds per unit."""
    end: float
    """The value at the end of the axis, in ``unit``. The axis begins at 0."""
    step: float
    """The distance between two ticks, in ``unit``."""
    until_now: bool = False
    """Whether the axis ends at the present. Otherwise, it begins at the start of a run."""

    @classmethod
    def reaching(cls, elapsed_s: float) -> TimeAxis:
        """Return the shortest axis that includes ``elapsed_s`` and has a round length."""
        for unit, seconds, lengths in _UNITS:
            for end, step in lengths:
                if elapsed_s <= end * seconds:
                    return cls(unit, seconds, float(end), float(step))
        end, step = lengths[-1]
        while elapsed_s > end * seconds:
            end, step = end * 2, step * 2
        return cls(unit, seconds, float(end), float(step))

    @classmethod
    def last(cls, seconds: float) -> TimeAxis:
        """Return an axis that covers the last ``seconds``, labeled with negative numbers up to "now"."""
        axis = cls.reaching(seconds)
        return cls(axis.unit, axis.seconds, axis.end, axis.step, until_now=True)

    @property
    def labels(self) -> list[tuple[float, str]]:
        """The position of each tick in percent, and its text; one of the texts includes the unit."""
        if self.until_now:
            texts = [f"\N{MINUS SIGN}{self.end - tick:g}" for tick in self.ticks[:-1]]
            texts = [f"{texts[0]} {self.unit}", *texts[1:], _("now")]
        else:
            texts = [f"{tick:g}" for tick in self.ticks]
            texts[-1] += f" {self.unit}"
        return [(100 * tick / self.end, text) for tick, text in zip(self.ticks, texts, strict=True)]

    def label(self, t: float) -> str:
        """Return a time on the axis, in seconds since its beginning, as text."""
        if not self.until_now:
            return units.duration(t)
        return f"\N{MINUS SIGN}{units.duration(self.end_s - t)}"

    @property
    def end_s(self) -> float:
        """The value at the end of the axis, in seconds."""
        return self.end * self.seconds

    @property
    def ticks(self) -> list[float]:
        """The values of the ticks, in ``unit``."""
        return [index * self.step for index in range(int(self.end / self.step) + 1)]
