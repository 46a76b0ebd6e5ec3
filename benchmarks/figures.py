"""Measured quantities ("figures"), and the table in which a benchmark prints them.

A figure has values, conditions and a limit, ``bar``, which is the highest acceptable median. Lower values are
better.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from benchmarks import statistics

Unit = Literal["ms", "ratio", "%", "B", "KiB", "MiB/h", "/h"]

_FORMATS: Mapping[Unit, str] = {
    "ms": "{:,.2f} ms",
    "ratio": "{:.4f}",
    "%": "{:.3f} %",
    "B": "{:,.0f} B",
    "KiB": "{:,.0f} KiB",
    "MiB/h": "{:,.3f} MiB/h",
    "/h": "{:,.2f} /h",
}


@dataclass(frozen=True)
class Figure:
    """One measured quantity; one row of the results table."""

    benchmark: str
    """Name of the benchmark."""
    what: str
    unit: Unit
    bar: float | None = None
    """The highest acceptable median; None for a figure that is only for comparison."""
    values: Sequence[float] = ()
    """Every measured value, in order; empty if nothing was measured."""
    conditions: Mapping[str, bool] = field(default_factory=dict)
    """Conditions that must hold, besides the bar, for the figure to be met; keyed by description."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """Additional observations, which do not decide whether the figure is met."""
    not_measured: str | None = None
    """The reason why there are no values; None if the figure was measured."""

    @property
    def median(self) -> float | None:
        """Median of the values."""
        return statistics.median(self.values) if self.values else None

    @property
    def p99(self) -> float | None:
        """99th percentile of the values, or the highest value if there are fewer than 100."""
        return statistics.p99(self.values) if self.values else None

    @property
    def met(self) -> bool | None:
        """Whether the median is within the bar and every condition holds; None if there is no bar or there
        are no values."""
        if self.bar is None or self.median is None:
            return None
        return self.median <= self.bar and all(self.conditions.values())

    def as_json(self) -> dict[str, Any]:
        """Return the figure as JSON values, with every measured value."""
        interval = statistics.median_interval(self.values)
        return {
            "benchmark": self.benchmark,
            "what": self.what,
            "unit": self.unit,
            "bar": self.bar,
            "median": _rounded(self.median),
            "median_95": None if interval is None else [_rounded(value) for value in interval],
            "p99": _rounded(self.p99),
            "met": self.met,
            "conditions": dict(self.conditions),
            "details": dict(self.details),
            "not_measured": self.not_measured,
            "values": [_rounded(value) for value in self.values],
        }


def table(figures: Sequence[Figure]) -> str:
    """Return all figures as one plain-text table, with remarks below the rows that they explain."""
    head = ("figure", "bar", "median", "95 % of median", "p99", "runs", "met")
    rows = [head, *(_row(figure) for figure in figures)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    lines = [_line(head, widths), "  ".join("-" * width for width in widths)]
    for figure, row in zip(figures, rows[1:], strict=True):
        lines.append(_line(row, widths))
        lines += [f"    {remark}" for remark in _remarks(figure)]
    return "\n".join(lines)


def _row(figure: Figure) -> tuple[str, ...]:
    interval = statistics.median_interval(figure.values)
    met = {True: "met", False: "MISSED", None: "-"}[figure.met]
    return (
        figure.what,
        "-" if figure.bar is None else f"≤ {_shown(figure.bar, figure.unit)}",
        "n/a" if figure.median is None else _shown(figure.median, figure.unit),
        "-" if interval is None else " to ".join(_shown(value, figure.unit) for value in interval),
        "-" if figure.p99 is None or len(figure.values) < 2 else _shown(figure.p99, figure.unit),
        str(len(figure.values)),
        "not measured" if figure.not_measured is not None else met,
    )


def _remarks(figure: Figure) -> list[str]:
    if figure.not_measured is not None:
        return [figure.not_measured]
    remarks = [
        f"{'holds' if holds else 'DOES NOT HOLD'}: {text}" for text, holds in figure.conditions.items()
    ]
    return remarks + [f"{name}: {_brief(value)}" for name, value in figure.details.items()]


def _brief(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.5g}"
    if isinstance(value, (list, tuple)):
        return ", ".join(_brief(item) for item in value) or "none"
    return str(value)


def _shown(value: float, unit: Unit) -> str:
    return _FORMATS[unit].format(value)


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.6g}")
