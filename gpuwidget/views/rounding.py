"""Round figures to the digits that views show. Each view shows a rounded figure as it shows the original."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from gpuwidget.model import units

Format = Callable[[float], str]
Round = Callable[[float], float]
ENERGY: tuple[Format, ...] = (
    units.energy,
    *(partial(units.number_in_unit, unit=unit) for unit in ("J", "kJ", "MJ")),
)
"""How views show energies. The unit in a column depends on the column's largest energy."""


def error_formats(joules: float | None) -> tuple[Format, ...]:
    """Return how views show an error of this energy: with the energy's unit and decimals."""
    columns = (
        lambda error, unit=unit: units.number_in_unit(joules, unit, error=error) for unit in ("J", "kJ", "MJ")
    )
    return (lambda error: units.energy(joules, error), *columns)


def short(value: float) -> float:
    """Round to 2 decimals below 1, to 1 decimal below 100, and to integers from 100 on.

    This loses nothing, because no sensor is more precise.
    """
    magnitude = abs(value)
    rounded = round(value, 0 if magnitude >= 100 else 1 if magnitude >= 1 else 2)
    # An integer is shorter in JSON: 96 takes two bytes less than 96.0.
    return int(rounded) if rounded == int(rounded) else rounded


def as_shown(value: float) -> float:
    """Round to the digits that the card shows: from 10 on, to integers."""
    return round(value) if abs(value) >= 9.95 else short(value)


def six_digits(value: float) -> float:
    """Round to more digits than any sensor has, for figures of which views show the sum."""
    return float(f"{value:.6g}")


def as_drawn(value: float, *texts: Format, by: Round = short) -> float:
    """Return ``value`` rounded with ``by``, or with more digits if one of ``texts`` would differ.

    A value that is rounded twice can differ in its last digit: 2349.6 J is 2.3 kJ, but 2350 J is 2.4 kJ.
    """
    rounded = by(value)
    if rounded == value:
        return rounded
    drawn = [text(value) for text in texts]
    digits = 4
    while [text(rounded) for text in texts] != drawn:
        rounded = float(f"{value:.{digits}g}")
        digits += 1
    return rounded
