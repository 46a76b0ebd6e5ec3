"""The live chart's time axis: it grows in steps, so that the curve runs on instead of being squeezed."""

from __future__ import annotations

from dataclasses import dataclass

_UNITS = (
    ("s", 1.0, ((5, 1), (10, 2), (20, 5), (30, 5), (60, 10), (120, 20))),
    ("min", 60.0, ((5, 1), (10, 2), (20, 5), (30, 5), (60, 10), (120, 20))),
    ("h", 3600.0, ((5, 1), (10, 2), (24, 4), (48, 8))),
)


@dataclass(frozen=True, slots=True)
class TimeAxis:
    """How far the axis reaches, in a unit that keeps its numbers short."""

    unit: str
    """``s``, ``min`` or ``h``."""
    seconds: float
    """Seconds of one unit."""
    end: float
    """Its last value, in that unit; it begins at 0."""
    step: float
    """Distance of its ticks, in that unit."""
    until_now: bool = False
    """Whether its end is now, rather than so long after a beginning."""

    @classmethod
    def reaching(cls, elapsed_s: float) -> TimeAxis:
        """The shortest of a few round axes that holds so many seconds."""
        for unit, seconds, lengths in _UNITS:
            for end, step in lengths:
                if elapsed_s <= end * seconds:
                    return cls(unit, seconds, float(end), float(step))
        end, step = lengths[-1]
        while elapsed_s > end * seconds:
            end, step = end * 2, step * 2
        return cls(unit, seconds, float(end), float(step))

    @classmethod
    def back(cls, seconds: float) -> TimeAxis:
        """An axis of the last ``seconds``, whose numbers count up to now."""
        axis = cls.reaching(seconds)
        return cls(axis.unit, axis.seconds, axis.end, axis.step, until_now=True)

    @property
    def labels(self) -> list[tuple[float, str]]:
        """Its numbers, each with its place in percent; the last one names the unit."""
        if self.until_now:
            texts = [f"\N{MINUS SIGN}{self.end - tick:g}" for tick in self.ticks[:-1]]
            texts = [f"{texts[0]} {self.unit}", *texts[1:], "now"]
        else:
            texts = [f"{tick:g}" for tick in self.ticks]
            texts[-1] += f" {self.unit}"
        return [(100 * tick / self.end, text) for tick, text in zip(self.ticks, texts, strict=True)]

    @property
    def end_s(self) -> float:
        """How far it reaches, in seconds."""
        return self.end * self.seconds

    @property
    def ticks(self) -> list[float]:
        """Where its numbers stand."""
        return [index * self.step for index in range(int(self.end / self.step) + 1)]
