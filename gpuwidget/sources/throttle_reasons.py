"""Names of the bits in NVML's mask of clock throttle reasons.

The bits are those of nvmlClocksEventReasons in nvml.h (nvidia-smi: clocks_event_reasons). They are copied
instead of imported, so that a recording can be played on a machine without NVML.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

GPU_IDLE = 0x1
APPLICATIONS_CLOCKS_SETTING = 0x2
SW_POWER_CAP = 0x4
HW_SLOWDOWN = 0x8
SYNC_BOOST = 0x10
SW_THERMAL_SLOWDOWN = 0x20
HW_THERMAL_SLOWDOWN = 0x40
HW_POWER_BRAKE_SLOWDOWN = 0x80
DISPLAY_CLOCK_SETTING = 0x100
BOARD_LIMIT = 0x200
RELIABILITY = 0x400

IDLE = "idle"
"""The GPU has no work and therefore runs at a low clock."""

POWER_CAP = "power cap"
"""The GPU has reached its power limit, which is normal under full load."""

POWER_BRAKE = "power brake"
"""The power supply has signalled that the GPU must slow down."""

# The order is from the worst reason to the mildest. A view with room for one name shows the first one that
# applies.
_NAMES = {
    HW_THERMAL_SLOWDOWN: "too hot (hardware)",
    HW_POWER_BRAKE_SLOWDOWN: POWER_BRAKE,
    HW_SLOWDOWN: "hardware slowdown",
    SW_THERMAL_SLOWDOWN: "too hot",
    SW_POWER_CAP: POWER_CAP,
    BOARD_LIMIT: "board limit",
    RELIABILITY: "reliability limit",
    APPLICATIONS_CLOCKS_SETTING: "clock setting",
    SYNC_BOOST: "sync boost",
    DISPLAY_CLOCK_SETTING: "display setting",
    GPU_IDLE: IDLE,
}
ALL_NAMES = tuple(_NAMES.values())
"""The names of all known throttle reasons, the worst first."""
_NEEDS_ATTENTION = (
    HW_THERMAL_SLOWDOWN | HW_POWER_BRAKE_SLOWDOWN | HW_SLOWDOWN | SW_THERMAL_SLOWDOWN | SW_POWER_CAP
)  # The other bits are normal: limits, settings, or an idle GPU.
NEEDS_ATTENTION = frozenset(name for bit, name in _NAMES.items() if bit & _NEEDS_ATTENTION)
"""Names of the reasons for which a busy GPU runs slower than it could, because it lacks power or cooling."""


HARMFUL = tuple(name for name in ALL_NAMES if name in NEEDS_ATTENTION and name != POWER_CAP)
"""Names of the reasons that indicate a problem. The power cap is not included, because it is normal under
full load."""
THERMAL = frozenset(_NAMES[bit] for bit in (HW_THERMAL_SLOWDOWN, SW_THERMAL_SLOWDOWN))
"""Names of the reasons that apply if a GPU slows down because it is too hot."""


def reason_names(mask: int) -> tuple[str, ...]:
    """Return the names of the reasons in ``mask``, the worst first. Empty if nothing throttles the clock.

    An unknown bit, for example of a newer driver, is named by its value, such as ``reason 0x800``.
    """
    if mask & (HW_THERMAL_SLOWDOWN | HW_POWER_BRAKE_SLOWDOWN):
        # The driver sets the general slowdown bit in addition to these specific bits. The specific bits are
        # more informative, so drop the general bit.
        mask &= ~HW_SLOWDOWN
    known = [name for bit, name in _NAMES.items() if mask & bit]
    unnamed = [1 << bit for bit in range(mask.bit_length()) if mask >> bit & 1]
    return (*known, *(f"reason {bit:#x}" for bit in unnamed if bit not in _NAMES))


def reason_mask(reasons: Iterable[str]) -> int:
    """Return the bit mask for names that :func:`reason_names` has returned. Other names are ignored."""
    bits = {name: bit for bit, name in _NAMES.items()}
    total = 0
    for reason in reasons:
        name, _, number = reason.partition(" 0x")
        total |= int(number, 16) if name == "reason" and number else bits.get(reason, 0)
    return total


def needing_attention(reasons: Iterable[str]) -> tuple[str, ...]:
    """Return those of ``reasons`` that a person may want to act on, in their given order."""
    return tuple(reason for reason in reasons if reason in NEEDS_ATTENTION)
