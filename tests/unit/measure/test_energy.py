"""Tests of a GPU's energy, which is computed from its power and the driver's energy counter."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from helpers_replay import Player

from gpuwidget.measure.energy import EnergyMeter
from gpuwidget.sources import PowerRecord


@pytest.fixture
def player() -> Iterator[Player]:
    """Yield a player of the recording as it is shipped."""
    player = Player()
    yield player
    player.close()


def read(meter: EnergyMeter, *powers: tuple[float, float | None]) -> None:
    """Add readings of the current power: seconds and watts."""
    for t, watts in powers:
        meter.add(t, watts)


def watts_of_steps(t: float) -> float:
    """The power of a GPU that works for 0.25 s, rests for 0.25 s, and so on."""
    return 600.0 if t % 0.5 < 0.25 else 100.0


def joules_of(watts: Callable[[float], float], seconds: float) -> float:
    """The energy that an ideal counter shows after this many seconds."""
    step = 0.001
    return sum(watts(n * step) * step for n in range(round(seconds / step)))


def test_energy_is_the_integral_of_power() -> None:
    """Two seconds at 100 W, followed by a linear rise to 300 W within one second, are 400 J."""
    meter = EnergyMeter(max_gap_s=1.0)
    read(meter, (0.0, 100.0), (1.0, 100.0), (2.0, 100.0), (3.0, 300.0))
    energy = meter.energy()
    assert (energy.joules, energy.known_s, energy.mean_w) == (400.0, 3.0, 400.0 / 3)


def test_a_gap_in_power_is_not_bridged() -> None:
    """While power is unknown, no energy is added, and the known time does not include it."""
    meter = EnergyMeter(max_gap_s=1.0)
    read(meter, (0.0, 100.0), (1.0, None), (2.0, 100.0), (3.0, 100.0), (5.0, 100.0))
    energy = meter.energy()
    assert (energy.joules, energy.known_s, energy.mean_w) == (100.0, 1.0, 100.0)


def test_nothing_is_known_without_power() -> None:
    """Without any reading, no time is known, and the mean is None, not 0."""
    energy = EnergyMeter(max_gap_s=1.0).energy()
    assert (energy.joules, energy.known_s, energy.mean_w) == (0.0, 0.0, None)


def test_the_counter_fills_a_gap() -> None:
    """If gpuwidget could not read the power for a long time, the energy comes from the driver's counter."""
    meter = EnergyMeter(max_gap_s=1.0)
    read(meter, (0.0, 100.0), (0.2, 100.0))
    meter.add_counter(0.2, 5000.0)
    read(meter, (6.2, 100.0))
    meter.add_counter(6.2, 7400.0)
    read(meter, (6.4, 100.0))
    energy = meter.energy()
    assert energy.joules == pytest.approx(20.0 + 2400.0 + 20.0)
    assert energy.known_s == pytest.approx(6.4)


@pytest.mark.parametrize(
    "counts",
    [(1000.0, 1000.0), (1000.0, 7.0), (1000.0, 4.5e6)],
    ids=["stands still", "restarts", "impossible"],
)
def test_an_unusable_counter_is_ignored(counts: tuple[float, float]) -> None:
    """A counter that does not move, that begins again because the driver was loaded again, or that counts
    more than a GPU can draw, changes nothing."""
    meter = EnergyMeter(max_gap_s=1.0)
    read(meter, (0.0, 100.0), (0.5, 100.0))
    meter.add_counter(0.5, counts[0])
    read(meter, (1.0, 100.0), (1.5, 100.0))
    meter.add_counter(1.5, counts[1])
    read(meter, (2.0, 100.0))
    energy = meter.energy()
    assert (energy.joules, energy.error_j, energy.known_s) == (200.0, 0.0, 2.0)


def test_the_drivers_samples_replace_readings() -> None:
    """The driver's samples, 20 ms apart, show steps of the power that readings miss: the energy is exact to
    two percent, also if samples arrive twice and begin before the run."""
    meter = EnergyMeter(max_gap_s=1.0)
    samples = tuple((n * 0.02, watts_of_steps(max(0.0, (n - 0.5) * 0.02))) for n in range(-50, 66))
    for n in range(14):
        meter.add(n * 0.1, 100.0)
        if n in (10, 13):
            known = tuple((t + 50.0, watts) for t, watts in samples if t <= n * 0.1)
            meter.add_record(PowerRecord(samples=known), began=50.0)
    energy = meter.energy()
    true = joules_of(watts_of_steps, 1.3)
    assert energy.joules == pytest.approx(true, rel=0.02)
    assert energy.known_s == pytest.approx(1.3)
    assert abs(energy.joules - true) <= energy.error_j <= 0.05 * true


@pytest.mark.parametrize("phase", [0.0, 0.05, 0.1, 0.15])
def test_a_stepping_power_has_a_stated_error(phase: float) -> None:
    """Without samples of the driver, the energy of a short run with a stepping power is within its stated
    error; with a counter, it is within 5 %."""

    def watts(t: float) -> float:
        return watts_of_steps(t + phase)

    only_power, with_counter = EnergyMeter(max_gap_s=1.0), EnergyMeter(max_gap_s=1.0)
    counts = [0.1, 0.6, 1.1, 1.6]
    for n in range(10):
        t = n * 0.2
        while counts and counts[0] <= t:
            at = counts.pop(0)
            with_counter.add_counter(at, 9000.0 + joules_of(watts, at))
        for meter in (only_power, with_counter):
            meter.add(t, watts(t))
    true = joules_of(watts, 1.8)
    for meter in (only_power, with_counter):
        energy = meter.energy()
        assert abs(energy.joules - true) <= energy.error_j
    assert with_counter.energy().joules == pytest.approx(true, rel=0.05)


def test_the_mean_of_every_recorded_run_is_its_energy_by_its_time(player: Player) -> None:
    """In 240 runs of two seconds over the packaged recording of four H200s, the mean power is the energy
    divided by the time, and the energy agrees with the recorded counter within 5 %, or its error is
    stated. One percent more is allowed, because the recording has the counter only once a second."""
    compared = 0
    for n in range(60):
        began = player.clock.monotonic()
        before = player.counters()
        report = player.measure(began, 2.0)
        seconds = player.clock.monotonic() - began
        for gpu in report.gpus:
            assert gpu.energy_j is not None, (n, gpu.index)
            assert gpu.power_w is not None
            compared += 1
            assert gpu.power_w.mean == pytest.approx(gpu.energy_j / seconds, rel=0.001)
            assert gpu.power_w.max >= gpu.power_w.mean
            counted = player.counters()[gpu.uuid] - before[gpu.uuid]
            allowed = max(0.06 * counted, gpu.energy_error_j or 0.0)
            assert abs(gpu.energy_j - counted) <= allowed, (n, gpu.index, gpu.energy_j, counted)
    assert compared == 240
