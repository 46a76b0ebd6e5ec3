"""Tests that every form of a report shows the same digits: its card, its JSON and the list of reports."""

from __future__ import annotations

import math
import random
import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import helpers_reports as reports
import pytest

from gpuwidget.model import units
from gpuwidget.model.messages import Message, message
from gpuwidget.model.metrics import REPORTED
from gpuwidget.model.mime_types import MIME_TYPE
from gpuwidget.model.report import (
    CodeTime,
    FrameTime,
    GpuReport,
    Level,
    LineTime,
    Report,
    Traffic,
    WorkerReport,
)
from gpuwidget.model.to_json import INLINED
from gpuwidget.views import card, card_html, card_summary, card_text
from gpuwidget.views.card_gpus import table_columns
from gpuwidget.views.detail_levels import FULL

T = TypeVar("T")
DISTANCES = (0.0, 0.4, 0.04, 0.004, 4e-4, 4e-6)
"""Distances from a tie, in units of the digit before it."""


class Values:
    """Pseudorandom values, most of which are close to a tie of some rounding."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def between(self, low: float, high: float) -> float:
        """Return a value between two powers of ten."""
        value = 10 ** self._random.uniform(math.log10(low), math.log10(high))
        unit = 10.0 ** (math.floor(math.log10(value)) - self._random.randint(0, 3))
        tie = (math.floor(value / unit) + 0.5) * unit
        return tie + self._random.choice((-1, 1)) * self._random.choice(DISTANCES) * unit

    def percentage(self) -> float:
        return min(100.0, self.between(0.01, 100))

    def level(self) -> Level:
        return Level(*sorted((self.percentage(), self.percentage())))

    def traffic(self) -> Traffic:
        rates = [self.between(1, 1e5) * self._random.choice((1, 1024, 1024**2)) for _ in range(2)]
        return Traffic(*(Level(rate, rate) for rate in rates))

    def energy(self) -> float:
        return self.between(0.01, 1e8)

    def time(self) -> float:
        return self._random.choice((1, 1, 60)) * self.between(1e-6, 1e4)

    def gpu(self, index: int) -> GpuReport:
        """Return a GPU with such figures."""
        exact = self._random.random() < 0.7
        return reports.gpu(
            index,
            **{name: self.level() for name in ("utilization", "sm_activity", "sm_occupancy")},
            **{name: self.level() for name in ("tensor_activity", "fp32_activity", "dram_activity")},
            memory_utilization=self.level(),
            pcie=self.traffic(),
            nvlink=self.traffic(),
            power_w=Level(self.between(1, 1000), self.between(1, 1000)),
            throttled={"too hot": self.time()},
            energy_j=self.energy() if exact else None,
            energy_at_least_j=None if exact else self.energy(),
            energy_error_j=self.energy() if exact and self._random.random() < 0.5 else None,
            missing={} if exact else {"energy_j": "not known for the whole run"},
        )

    def code_time(self) -> CodeTime:
        frame = FrameTime("step", self.percentage(), self.percentage(), "Tensor.item", self.percentage())
        line = LineTime(7, "loss = step()", self.percentage(), self.percentage(), "Tensor.item", "step")
        line = replace(line, call_share=self.percentage(), frames=(frame,))
        return CodeTime((line,), 900, self.time(), None, self.percentage(), self.percentage(), self.time())

    def worker(self, rank: int) -> WorkerReport:
        energy = self.energy()
        return reports.worker(
            rank,
            utilization=self.level(),
            energy_j=energy,
            energy_error_j=self.between(0.05, 0.5) * energy if self._random.random() < 0.5 else None,
            cpu=self.percentage(),
            steps=12,
            step_s=self.time(),
            started_s=self.time(),
        )

    def report(self, *gpus: GpuReport) -> Report:
        duration = self.time()
        energies = [gpu.energy_j for gpu in gpus if gpu.energy_j is not None]
        made = reports.report(
            *gpus,
            cell=reports.cell(
                duration,
                started=1_795_255_445 + self._random.choice((0.0, 0.5, 0.9994, 0.9996, 0.99999)),
                gpu_tail_s=self._random.choice((0.0, self.time())),
            ),
            time=self.code_time(),
            workers=(self.worker(0), self.worker(1)),
            energy_idle_j=sum(energies) * self._random.random() if len(energies) == len(gpus) else None,
        )
        return replace(made, timeline=None)


def from_json(kind: type[T], values: Mapping[str, Any]) -> T:
    """Return the dataclass ``kind`` with the values of its JSON. A field that the JSON omits is empty."""
    hints = get_type_hints(kind)
    made: dict[str, Any] = {}
    for field in fields(kind):  # type: ignore[arg-type]
        if field.metadata == INLINED:
            hint = get_args(hints[field.name])[1]
            names = (reported.name for _, reported in REPORTED)
            made[field.name] = {name: _value(hint, values.get(name)) for name in names}
        elif field.init and field.name in values:
            made[field.name] = _value(hints[field.name], values[field.name])
        elif field.init:
            made[field.name] = {} if "missing" in field.name else None
    return kind(**made)


def _value(hint: Any, value: Any) -> Any:
    if value is None:
        return None
    if hint is Message:
        return message("test", value)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        hint = next((one for one in arguments if is_dataclass(one) or one is Message or get_args(one)), None)
        return _value(hint, value)
    if origin is tuple and arguments[-1] is Ellipsis:
        return tuple(_value(arguments[0], one) for one in value)
    if origin is not None and isinstance(value, dict):
        return {name: _value(arguments[1], one) for name, one in value.items()}
    return from_json(hint, value) if is_dataclass(hint) and isinstance(hint, type) else value


@pytest.mark.parametrize("seed", range(80))
def test_every_form_shows_the_same_digits(seed: int) -> None:
    """The card, the one-line card, `str(report)`, the table of `reports()`, and the same views of the card's
    JSON show the same digits, even for values that would be rounded differently after a first rounding."""
    values = Values(seed)
    report = values.report(values.gpu(0))
    bundle = card.bundle(report)
    text = card_text.card(report, FULL)
    assert bundle["text/plain"] == text
    again = from_json(Report, bundle[MIME_TYPE])
    assert card_text.card(again, FULL) == text
    assert bundle["text/html"] == card_html.card(report, FULL) == card_html.card(again, FULL)
    assert card_text.table([again]) == card_text.table([report])
    line = card.line_bundle(report)
    assert line is not None
    again = from_json(Report, line[MIME_TYPE])
    assert line["text/plain"] == card_text.short_line(report) == card_text.short_line(again)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("count", [2, 16])
def test_many_gpus_show_the_same_digits(seed: int, count: int) -> None:
    """The sums over several GPUs, and each GPU's figures, have the same digits on the card, in its JSON and
    in the table of `reports()`, even if the card rounds more to stay small."""
    values = Values(seed)
    report = replace(values.report(*map(values.gpu, range(count))), workers=(), energy_idle_j=None)
    bundle = card.bundle(report)
    first = " · ".join(card_summary.headline(report))
    assert bundle["text/plain"].splitlines()[0] == first
    totals = bundle[MIME_TYPE]["totals"]
    assert f"GPU busy {units.percent(totals['utilization'])}" in first
    # An error may stand between the number and its unit.
    joules, unit = units.energy(totals["energy_j"]).split()
    assert f" {joules} {unit}" in first
    row = card_text.table_rows([report])[1]
    assert units.percent(totals["utilization"]) == row[5]
    assert joules in row[6].split()
    assert row[6].endswith(unit)
    again = [from_json(GpuReport, gpu) for gpu in bundle[MIME_TYPE]["gpus"]]
    assert table_columns(again) == table_columns(report.shown)


def test_values_near_a_tie() -> None:
    """A utilization of 63.46 % is 63 % everywhere, and an energy of 2349.6 J is 2.3 kJ. If they were rounded
    to 63.5 % and 2350 J first, they would be 64 % and 2.4 kJ."""
    worker = reports.worker(energy_j=2349.6)
    report = reports.report(reports.gpu(0, utilization=Level(63.46, 100.0)), workers=(worker,))
    bundle = card.bundle(report)
    assert "GPU busy 63 %" in bundle["text/plain"]
    assert "63 %" in card_text.table([report])
    assert units.percent(bundle[MIME_TYPE]["totals"]["utilization"]) == "63 %"
    assert units.percent(bundle[MIME_TYPE]["gpus"][0]["utilization"]["mean"]) == "63 %"
    assert " 2.3 kJ " in bundle["text/plain"]
    assert units.energy(bundle[MIME_TYPE]["workers"][0]["energy_j"]) == "2.3 kJ"
