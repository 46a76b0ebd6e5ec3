"""Tests of throttle reasons: how they are converted between the driver's bits and names, and which ones are
harmful."""

from __future__ import annotations

import pytest

from gpuwidget.sources import throttle_reasons
from gpuwidget.sources.throttle_reasons import needing_attention, reason_mask, reason_names


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        (0x0, ()),
        (0x1, ("idle",)),
        (0x2, ("clock setting",)),
        (0x4, ("power cap",)),
        (0x8, ("hardware slowdown",)),
        (0x10, ("sync boost",)),
        (0x20, ("too hot",)),
        (0x40, ("too hot (hardware)",)),
        (0x80, ("power brake",)),
        (0x100, ("display setting",)),
        (0x200, ("board limit",)),
        (0x400, ("reliability limit",)),
        (0x25, ("too hot", "power cap", "idle")),
    ],
)
def test_each_reason_has_its_name_and_the_worst_comes_first(mask: int, expected: tuple[str, ...]) -> None:
    """The driver's bit mask of throttle reasons is converted to names, the most severe reason first."""
    assert reason_names(mask) == expected


def test_the_general_slowdown_gives_way_to_the_specific_one() -> None:
    """If the driver reports a specific hardware slowdown (heat or power brake), the general reason "hardware
    slowdown" is omitted."""
    assert reason_names(0x8 | 0x40) == ("too hot (hardware)",)
    assert reason_names(0x8 | 0x80) == ("power brake",)


def test_a_reason_of_a_newer_driver_is_not_hidden() -> None:
    """A bit that this version of gpuwidget has no name for is shown as a hexadecimal number."""
    assert reason_names(0x800 | 0x4) == ("power cap", "reason 0x800")


def test_idle_and_settings_need_no_attention() -> None:
    """Heat, power and hardware slowdowns need attention. Idling, clock settings and display settings
    don't."""
    assert needing_attention(reason_names(0x1FF)) == (
        "too hot (hardware)",
        "power brake",
        "too hot",
        "power cap",
    )
    assert needing_attention(reason_names(0x1 | 0x2 | 0x10 | 0x100)) == ()
    assert needing_attention(reason_names(0x8)) == ("hardware slowdown",)


@pytest.mark.parametrize("bits", [0x0, 0x1, 0x4, 0x8, 0x40, 0x1 | 0x2 | 0x10 | 0x20 | 0x100, 0x604, 0x804])
def test_names_convert_back_to_bits(bits: int) -> None:
    """Names of throttle reasons are converted back to the same bit mask. An unknown name is converted
    to 0."""
    assert reason_mask(reason_names(bits)) == bits
    assert reason_mask(("somebody else's word",)) == 0


def test_harmful_reasons() -> None:
    """Alerts, the doctor and the panel warn about heat, the power brake and a slowdown by the hardware, but
    not about the power cap, which full load reaches."""
    assert throttle_reasons.HARMFUL == ("too hot (hardware)", "power brake", "hardware slowdown", "too hot")
    assert {"too hot (hardware)", "too hot"} == throttle_reasons.THERMAL
