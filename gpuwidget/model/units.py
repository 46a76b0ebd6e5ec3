"""Format numbers with their units, in the same way for all views."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from itertools import pairwise
from typing import NamedTuple, TypeGuard

from gpuwidget.model.metrics import Kind
from gpuwidget.model.translation import Text, translatable

GIB = 1024**3
MIB = 1024**2
KIB = 1024
UNKNOWN = "n/a"
MINUS = "\N{MINUS SIGN}"
ARROW = "\N{RIGHTWARDS ARROW}"

_MEMORY_UNITS = (("GiB", GIB), ("MiB", MIB), ("KiB", KIB), ("B", 1))
_ENERGY_UNITS = (("MJ", 1e6), ("kJ", 1e3), ("J", 1.0))
_SIZES = dict(_MEMORY_UNITS) | dict(_ENERGY_UNITS)


def memory(size: float | None) -> str:
    """Return bytes with a suitable unit: ``15.6 GiB``, ``64 MiB`` or ``512 KiB``, and ``n/a`` for None."""
    if not _known(size):
        return UNKNOWN
    if size == 0:
        return "0 MiB"
    unit = _unit(size, _MEMORY_UNITS, rounds_up_at=1023.5)
    decimals = 1 if unit == "GiB" or (unit == "MiB" and abs(size) < 9.95 * MIB) else 0
    return f"{_minus(size / _SIZES[unit], decimals)} {unit}"


def memory_delta(before: float | None, after: float | None) -> str:
    """Return the signed change from ``before`` to ``after``: ``±0`` if there is none, ``n/a`` if one of them
    is None."""
    if not _known(before) or not _known(after):
        return UNKNOWN
    change = after - before
    if change == 0:
        return "±0"
    return memory(change) if change < 0 else f"+{memory(change)}"


def memory_change(before: float | None, after: float | None) -> str:
    """Return both sizes, such as ``12.4 → 15.6 GiB`` or ``0 → 682 MiB``. A unit that both share is shown
    once."""
    start, _, start_unit = memory(before).partition(" ")
    _, _, end_unit = memory(after).partition(" ")
    unit = f" {start_unit}" if start_unit and start_unit != end_unit and before != 0 else ""
    return f"{start}{unit} {ARROW} {memory(after)}"


def memory_of(size: float | None, total: float | None) -> str:
    """Return a part of a whole, such as ``15.6 of 140.4 GiB``. A unit that both share is shown once."""
    if total is None:
        return memory(size)
    part, _, unit = memory(size).partition(" ")
    same = size == 0 or unit == memory(total).partition(" ")[2]
    return translatable("{part} of {total}", part=part if same else memory(size), total=memory(total))


def gib(size: float | None) -> str:
    """Return bytes as a number of GiB with one decimal: ``<0.1`` instead of 0.0, and ``n/a`` for None."""
    if not _known(size):
        return UNKNOWN
    return "<0.1" if 0 < size < 0.05 * GIB else f"{size / GIB:.1f}"


def memory_unit(sizes: Iterable[float | None]) -> str:
    """Return the unit for a column of sizes: the unit of the largest size, but at least ``MiB``."""
    largest = max((abs(size) for size in sizes if _known(size)), default=0)
    return "GiB" if largest >= 1023.5 * MIB else "MiB"


def energy_unit(energies: Iterable[float | None]) -> str:
    """Return the unit for a column of energies in joules: the unit of the largest energy."""
    largest = max((joules for joules in energies if _known(joules)), default=0)
    return _unit(largest, _ENERGY_UNITS, rounds_up_at=999.5)


def number_in_unit(
    value: float | None, unit: str, *, signed: bool = False, error: float | None = None
) -> str:
    """Return bytes or joules, converted to ``unit``, as a number for a column whose title contains the unit.

    A value that is too small for ``unit`` is shown in a smaller unit with its name, such as ``+3.0 MiB`` in a
    column of GiB. ``error`` is shown in the value's unit, as in ``2.3 ± 0.1``.
    """
    if not _known(value):
        return UNKNOWN
    if value == 0:
        return "±0" if signed else "0"
    sign = "+" if signed and value > 0 else ""
    if abs(value) < 0.095 * _SIZES[unit]:
        return sign + (memory(value) if unit in dict(_MEMORY_UNITS) else energy(value, error))
    whole = unit in ("J", "MiB") and abs(value) >= 9.95 * _SIZES[unit]
    decimals = 0 if whole else 1
    return sign + _minus(value / _SIZES[unit], decimals) + _error(error, unit, decimals)


def percent(value: float | None) -> str:
    """Return a percentage with one decimal if it is below 10, otherwise with none; ``n/a`` for None."""
    return UNKNOWN if not _known(value) else f"{percent_number(value)} %"


def percent_number(value: float | None) -> str:
    """Return a percentage like :func:`percent`, but without the ``%`` sign."""
    if not _known(value):
        return UNKNOWN
    return f"{value:.1f}" if 0 < value < 9.95 else f"{value:.0f}"


def whole_number(value: float | None) -> str:
    """Return a number without decimals or unit, for texts that add the unit; ``n/a`` for None."""
    return UNKNOWN if not _known(value) else f"{value:.0f}"


def power(watts: float | None) -> str:
    """Return watts without decimals, such as ``165 W``, or ``n/a`` for None."""
    return UNKNOWN if not _known(watts) else f"{watts:.0f} W"


def power_of(watts: float | None, limit: float | None) -> str:
    """Return power and limit, such as ``165 of 700 W``. If the limit is None, return only the power."""
    if not _known(limit):
        return power(watts)
    return translatable("{part} of {total}", part=whole_number(watts), total=power(limit))


def temperature(celsius: float | None) -> str:
    """Return degrees Celsius without decimals, such as ``45 °C``, or ``n/a`` for None."""
    return UNKNOWN if not _known(celsius) else f"{celsius:.0f} °C"


def clock(mhz: float | None) -> str:
    """Return MHz without decimals, such as ``1980 MHz``, or ``n/a`` for None."""
    return UNKNOWN if not _known(mhz) else f"{mhz:.0f} MHz"


def energy(joules: float | None, error: float | None = None) -> str:
    """Return joules, such as ``0.4 J``, ``850 J``, ``2.3 kJ`` or ``1.25 MJ``, or ``n/a`` for None.

    ``error`` is in joules too: ``2.3 ± 0.1 kJ``.
    """
    if not _known(joules):
        return UNKNOWN
    unit = _unit(joules, _ENERGY_UNITS, rounds_up_at=999.5)
    decimals = {"MJ": 2, "kJ": 1, "J": 1 if joules < 9.95 else 0}[unit]
    return f"{joules / _SIZES[unit]:.{decimals}f}{_error(error, unit, decimals)} {unit}"


def _error(error: float | None, unit: str, decimals: int) -> str:
    """Return the error of a value that has this many decimals; nothing without one. It is never ``± 0``."""
    return f" ± {max(error / _SIZES[unit], 10**-decimals):.{decimals}f}" if error else ""


def duration(seconds: float | None) -> str:
    """Return a duration, such as ``380 µs``, ``2.1 ms``, ``14.0 s``, ``3 min 05 s`` or ``2 h 04 min``.

    For None, return ``n/a``.
    """
    if not _known(seconds):
        return UNKNOWN
    if seconds < 0.9995e-3:
        return f"{seconds * 1e6:.0f} µs"
    if seconds < 0.9995:
        milliseconds = seconds * 1e3
        return f"{milliseconds:.1f} ms" if milliseconds < 9.95 else f"{milliseconds:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02d} min"


def clock_time(epoch: float) -> str:
    """Return the local time of day, such as ``14:05:09``."""
    return time.strftime("%H:%M:%S", time.localtime(epoch))


def date_and_time(epoch: float) -> str:
    """Return a moment as local date and time, such as ``2026-11-30 03:12``."""
    return datetime.fromtimestamp(epoch).strftime("%Y-%m-%d %H:%M")


def gpu_number(index: int, mig_index: int | None) -> str:
    """Return a GPU's number as in nvidia-smi. For the first MIG slice of GPU 1, this is ``1:0``."""
    return str(index) if mig_index is None else f"{index}:{mig_index}"


def ordinal(number: int) -> Text:
    """Return a number as an English ordinal, such as ``2nd``."""
    match number % 10 if number % 100 not in (11, 12, 13) else 0:
        case 1:
            return translatable("{number}st", number=number)
        case 2:
            return translatable("{number}nd", number=number)
        case 3:
            return translatable("{number}rd", number=number)
        case _:
            return translatable("{number}th", number=number)


class KindFormat(NamedTuple):
    """How views show quantities of one kind."""

    text: Callable[[float | None], str]
    """Returns a quantity with its unit."""
    number: Callable[[float | None], str]
    """Returns a quantity without its unit, for a column whose title contains the unit."""
    unit: str


KINDS: Mapping[Kind, KindFormat] = {
    "percent": KindFormat(percent, percent_number, "%"),
    "power": KindFormat(power, whole_number, "W"),
    "temperature": KindFormat(temperature, whole_number, "°C"),
    "clock": KindFormat(clock, whole_number, "MHz"),
}
"""The kinds of metrics that a report can have by :data:`~gpuwidget.model.metrics.REPORTED`."""


def _known(value: float | None) -> TypeGuard[float]:
    """Return whether the value is a finite number. Some counters return NaN or infinity."""
    return value is not None and math.isfinite(value)


def _unit(value: float, units: tuple[tuple[str, float], ...], rounds_up_at: float) -> str:
    """Return the largest unit in which ``value`` is at least 1 after rounding."""
    for (unit, _), (_, smaller) in pairwise(units):
        if abs(value) >= rounds_up_at * smaller:
            return unit
    return units[-1][0]


def _minus(value: float, decimals: int) -> str:
    text = f"{abs(value):.{decimals}f}"
    return MINUS + text if value < 0 else text
