"""Tests of how numbers are shown with units."""

from __future__ import annotations

import pytest

from gpuwidget.model import units
from gpuwidget.model.units import GIB, KIB, MIB, MINUS


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (None, "n/a"),
        (float("nan"), "n/a"),
        (0, "0 MiB"),
        (512, "512 B"),
        (1023, "1023 B"),
        (512 * KIB, "512 KiB"),
        (MIB - 1, "1.0 MiB"),
        (2.5 * MIB, "2.5 MiB"),
        (9.96 * MIB, "10 MiB"),
        (64 * MIB, "64 MiB"),
        (GIB - 1, "1.0 GiB"),
        (15.55 * GIB, "15.6 GiB"),
        (2246.4 * GIB, "2246.4 GiB"),
        (-3 * GIB, f"{MINUS}3.0 GiB"),
        (-64 * MIB, f"{MINUS}64 MiB"),
    ],
)
def test_sizes_have_readable_units(size: float | None, text: str) -> None:
    """A size is shown in the largest unit in which it is at least 1. An unknown size is shown as n/a, not as
    0.
    """
    assert units.memory(size) == text


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        (12 * GIB, 15.2 * GIB, "+3.2 GiB"),
        (15.2 * GIB, 12 * GIB, f"{MINUS}3.2 GiB"),
        (GIB, GIB, "±0"),
        (None, GIB, "n/a"),
        (GIB, None, "n/a"),
    ],
)
def test_changes_have_a_sign(before: float | None, after: float | None, text: str) -> None:
    """A change of memory is shown with a sign. If the value before or after is unknown, the change is n/a."""
    assert units.memory_delta(before, after) == text


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        (12.4 * GIB, 15.6 * GIB, "12.4 → 15.6 GiB"),
        (0, 682 * MIB, "0 → 682 MiB"),
        (512 * MIB, 2 * GIB, "512 MiB → 2.0 GiB"),
        (2 * GIB, 0, "2.0 GiB → 0 MiB"),
        (12.4 * GIB, None, "12.4 GiB → n/a"),
        (None, 12.4 * GIB, "n/a → 12.4 GiB"),
    ],
)
def test_a_change_shows_a_shared_unit_once(before: float | None, after: float | None, text: str) -> None:
    """A change between two sizes that have the same unit shows the unit once: '12.4 → 15.6 GiB'."""
    assert units.memory_change(before, after) == text


@pytest.mark.parametrize(
    ("size", "total", "text"),
    [
        (15.6 * GIB, 140.4 * GIB, "15.6 of 140.4 GiB"),
        (64 * MIB, 140.4 * GIB, "64 MiB of 140.4 GiB"),
        (0, 140.4 * GIB, "0 of 140.4 GiB"),
        (15.6 * GIB, None, "15.6 GiB"),
        (None, 140.4 * GIB, "n/a of 140.4 GiB"),
    ],
)
def test_a_part_of_a_whole(size: float | None, total: float | None, text: str) -> None:
    """A part of a whole shows the unit once if both sizes have the same unit: '15.6 of 140.4 GiB'."""
    assert units.memory_of(size, total) == text


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (3.2 * GIB, "GiB", "3.2"),
        (0.1 * GIB, "GiB", "0.1"),
        (3 * MIB, "GiB", "3.0 MiB"),
        (0, "GiB", "0"),
        (682 * MIB, "MiB", "682"),
        (2315.6, "kJ", "2.3"),
        (12.0, "kJ", "12 J"),
        (0.4, "J", "0.4"),
        (850.0, "J", "850"),
        (None, "GiB", "n/a"),
    ],
)
def test_numbers_of_a_column(value: float | None, unit: str, text: str) -> None:
    """A number in a column whose title contains the unit is shown without a unit. If it would be rounded to
    0, it is shown with a smaller unit.
    """
    assert units.number_in_unit(value, unit) == text


@pytest.mark.parametrize(
    ("value", "text"), [(2.9 * GIB, "+2.9"), (-2.9 * GIB, f"{MINUS}2.9"), (0, "±0"), (None, "n/a")]
)
def test_changes_in_a_column_have_a_sign(value: float | None, text: str) -> None:
    """Changes in a column are shown with a sign."""
    assert units.number_in_unit(value, "GiB", signed=True) == text


@pytest.mark.parametrize(
    ("sizes", "unit"),
    [([64 * MIB, None], "MiB"), ([64 * MIB, 2 * GIB], "GiB"), ([None], "MiB"), ([0], "MiB")],
)
def test_the_unit_of_a_column_of_sizes(sizes: list[float | None], unit: str) -> None:
    """A column of sizes has the unit of its largest size."""
    assert units.memory_unit(sizes) == unit


@pytest.mark.parametrize(
    ("energies", "unit"), [([12.0, 850.0], "J"), ([12.0, 2315.6], "kJ"), ([3e6], "MJ"), ([None], "J")]
)
def test_the_unit_of_a_column_of_energies(energies: list[float | None], unit: str) -> None:
    """A column of energies has the unit of its largest energy."""
    assert units.energy_unit(energies) == unit


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "n/a"), (0, "0 %"), (0.12, "0.1 %"), (9.94, "9.9 %"), (9.96, "10 %"), (97.4, "97 %")],
)
def test_percent(value: float | None, text: str) -> None:
    """Percentages between 0 and 10 have one decimal, all others none. An unknown percentage is n/a."""
    assert units.percent(value) == text


@pytest.mark.parametrize(("value", "text"), [(None, "n/a"), (165.4, "165 W"), (float("inf"), "n/a")])
def test_power(value: float | None, text: str) -> None:
    """Power is shown in whole watts."""
    assert units.power(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "n/a"),
        (0.42, "0.4 J"),
        (850, "850 J"),
        (999.7, "1.0 kJ"),
        (2315.6, "2.3 kJ"),
        (1_250_000, "1.25 MJ"),
    ],
)
def test_energy(value: float | None, text: str) -> None:
    """Energy is shown in J, kJ or MJ, depending on its size."""
    assert units.energy(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "n/a"),
        (0, "0 µs"),
        (0.00038, "380 µs"),
        (0.0009997, "1.0 ms"),
        (0.0021, "2.1 ms"),
        (0.00996, "10 ms"),
        (0.25, "250 ms"),
        (0.9996, "1.0 s"),
        (14.0, "14.0 s"),
        (59.96, "1 min 00 s"),
        (185, "3 min 05 s"),
        (3599.7, "1 h 00 min"),
        (7450, "2 h 04 min"),
    ],
)
def test_durations(value: float | None, text: str) -> None:
    """Durations are shown in units from µs to h, and rounding never results in '60.0 s' or '1000 ms'."""
    assert units.duration(value) == text


@pytest.mark.parametrize(
    ("size", "text"), [(None, "n/a"), (0, "0.0"), (1, "<0.1"), (64 * MIB, "0.1"), (15.64 * GIB, "15.6")]
)
def test_a_size_in_a_column_of_gib(size: float | None, text: str) -> None:
    """In a column of sizes in GiB, a size above 0 that would be rounded to 0.0 is shown as '<0.1'."""
    assert units.gib(size) == text


def test_numbers_beside_their_unit() -> None:
    """Utilization, power and temperature are shown as whole numbers.

    An unknown value is n/a, and an unknown power limit is omitted.
    """
    assert (units.whole_number(96.6), units.whole_number(None)) == ("97", "n/a")
    assert (units.power_of(165.4, 700.0), units.power_of(165.4, None)) == ("165 of 700 W", "165 W")
    assert (units.temperature(61.5), units.temperature(None)) == ("62 °C", "n/a")
