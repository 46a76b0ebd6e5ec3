"""Numbers in the units that people read, one way for every view."""

from __future__ import annotations

GIB = 1024**3
MIB = 1024**2
UNKNOWN = "n/a"
MINUS = "\N{MINUS SIGN}"


def memory(size: float | None) -> str:
    """Bytes as ``15.6 GiB`` from 1 GiB on, as ``64 MiB`` below, as ``512 KiB`` below 1 MiB; ``n/a`` for None."""
    if size is None:
        return UNKNOWN
    magnitude = abs(size)
    sign = MINUS if size < 0 else ""
    if magnitude >= GIB:
        return f"{sign}{magnitude / GIB:.1f} GiB"
    if magnitude >= 10 * MIB or magnitude == 0:
        return f"{sign}{magnitude / MIB:.0f} MiB"
    if magnitude >= MIB:
        return f"{sign}{magnitude / MIB:.1f} MiB"
    if magnitude >= 1024:
        return f"{sign}{magnitude / 1024:.0f} KiB"
    return f"{sign}{magnitude:.0f} B"


def memory_delta(before: float | None, after: float | None) -> str:
    """The change from ``before`` to ``after`` with its sign, ``±0`` for none; ``n/a`` where one is None."""
    if before is None or after is None:
        return UNKNOWN
    change = after - before
    if change == 0:
        return "±0"
    return memory(change) if change < 0 else f"+{memory(change)}"


def percent(value: float | None) -> str:
    """Percent without decimals, with one below 10; ``n/a`` for None."""
    if value is None:
        return UNKNOWN
    return f"{value:.1f} %" if 0 < value < 9.95 else f"{value:.0f} %"


def power(watts: float | None) -> str:
    """Watts without decimals; ``n/a`` for None."""
    return UNKNOWN if watts is None else f"{watts:.0f} W"


def energy(joules: float | None) -> str:
    """Joules as ``850 J`` or ``2.3 kJ``, megajoules and so on above; ``n/a`` for None."""
    if joules is None:
        return UNKNOWN
    if joules < 10:
        return f"{joules:.1f} J"
    if joules < 1000:
        return f"{joules:.0f} J"
    if joules < 1e6:
        return f"{joules / 1e3:.1f} kJ"
    return f"{joules / 1e6:.2f} MJ"


def duration(seconds: float | None) -> str:
    """Seconds as ``380 µs``, ``2.1 ms``, ``14.0 s``, ``3 min 05 s`` or ``2 h 04 min``; ``n/a`` for None."""
    if seconds is None:
        return UNKNOWN
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} µs"
    if seconds < 0.9995:
        milliseconds = seconds * 1e3
        return f"{milliseconds:.1f} ms" if milliseconds < 10 else f"{milliseconds:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02d} min"
