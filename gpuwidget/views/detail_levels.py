"""The detail levels of a card, from full to minimal.

Each level omits more than the level before. Lines of code are omitted first, then points of the chart and
separate columns for each GPU; the last are notes, the figures on which advice is based, and the chart. If a
new list is added to a report, each level needs a maximum length for that list, and
``reductions.py`` applies it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal


@dataclass(frozen=True, slots=True)
class DetailLevel:
    """How much of a report a card contains."""

    name: str
    points: int
    """Number of points of each series in the JSON; 0 omits the timeline."""
    drawn_points: int
    """Number of points of each line in the chart."""
    hover_columns: int
    marks: int
    mark_length: int
    """Maximum number of characters of a mark's label."""
    reason_length: int
    """Maximum number of characters of the reason for an unknown value."""
    holders: int
    time_lines: int
    """Maximum number of lines of code shown with their time. Those with the largest share are kept."""
    memory_lines: int
    """Maximum number of lines of code shown with their memory."""
    workers: int
    """Maximum number of workers. Ranks are kept first."""
    note_length: int
    """Maximum number of characters of a note."""
    drawn_memory: bool = True
    """Whether the chart has the lines of the memory."""
    advice: int = 3
    evidence: bool = True
    """Whether the details show the figures on which advice is based. Otherwise, only the JSON contains
    them."""
    tables: bool = True
    """Whether the details contain tables of the memory, of the hardware's readings and of the run."""
    gpus: int = 64
    """Maximum number of GPUs. GPUs in use are kept first."""
    gpu_rows: int = 64
    """Maximum number of GPUs in the table."""
    per_gpu: bool = True
    """Whether GPUs have separate columns in the details. Otherwise, they share columns, which show the range
    of their values."""
    terse: bool = False
    """Whether figures are rounded to the digits that a card shows, and the JSON contains each reason once."""
    optional_fields: Literal["kept", "null", "absent"] = "kept"
    """How the JSON contains :data:`~gpuwidget.views.reductions.OPTIONAL_FIELDS`: with values, as null, or
    not at all."""


FULL = DetailLevel(
    "full",
    points=80,
    drawn_points=120,
    hover_columns=40,
    marks=60,
    mark_length=80,
    reason_length=300,
    holders=10,
    time_lines=8,
    memory_lines=15,
    workers=64,
    note_length=300,
)
FEWER_LINES = replace(
    FULL,
    name="fewer lines",
    points=40,
    hover_columns=12,
    marks=20,
    mark_length=40,
    reason_length=160,
    holders=5,
    time_lines=3,
    memory_lines=4,
    note_length=200,
)
REDUCED = replace(
    FEWER_LINES,
    name="reduced",
    points=16,
    drawn_points=90,
    hover_columns=6,
    workers=16,
    per_gpu=False,
    terse=True,
)
COMPACT = replace(
    REDUCED,
    name="compact",
    points=0,
    drawn_points=40,
    hover_columns=0,
    marks=6,
    mark_length=32,
    reason_length=80,
    holders=2,
    memory_lines=3,
    workers=8,
    note_length=120,
    optional_fields="null",
)
BRIEF = replace(
    COMPACT,
    name="brief",
    drawn_points=32,
    marks=0,
    time_lines=2,
    optional_fields="absent",
)
LEAST_CHART = replace(
    BRIEF,
    name="least chart",
    drawn_points=16,
    time_lines=1,
    workers=6,
    advice=1,
    tables=False,
)
FEW_POINTS = replace(LEAST_CHART, name="few points", drawn_points=10, drawn_memory=False)
MINIMAL = replace(
    LEAST_CHART,
    name="minimal",
    drawn_points=0,
    evidence=False,
    reason_length=24,
    holders=0,
    memory_lines=0,
    workers=4,
    note_length=40,
    gpu_rows=6,
)
FEW_ROWS = replace(MINIMAL, name="few rows", drawn_points=8, drawn_memory=False)
