"""The card under an out-of-memory error, as text and as static HTML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from gpuwidget.measure.out_of_memory import (
    Facts,
    Held,
    Remedy,
    Story,
    contradicts_itself,
    first_step,
    remedies,
)
from gpuwidget.model import units
from gpuwidget.model.terminal_text import clean_line, printable_lines
from gpuwidget.views import styles
from gpuwidget.views.sparkline import Chart, Lane, svg
from gpuwidget.views.styles import LEFT, QUIET

_MOST_HOLDERS = 10
_MOST_CELLS = 5
_MOST_OTHERS = 6
_MOST_NAMES = 3
_NAME = 60
_SOURCE = 60
_MUCH_UNKNOWN = 0.01
"""Part of the GPU's memory from which on it has a row of its own that nobody is known to hold it."""
_MOST_POINTS = 80
_FEWEST_POINTS = 3
_GAP_S = 2.0

_ENOUGH = "What would have been enough"
_NOTHING = "Nothing that is known here would have been enough by itself."
_ODD = (
    "By these figures there was room for it: something else took the memory for a moment. Try again, and "
    "look at who else is on the GPU."
)
_IN_GENERAL = (
    "Mixed precision and activation checkpointing make a training step need less; by how much is not known "
    "before it is tried."
)

_TABLE = f"{styles.TABLE}font-size:12px"
_CODE = "display:inline-block"
"""Goes to the next line whole, where it fits there."""


@dataclass(frozen=True, slots=True)
class _Row:
    """A line of the table: who, made by which cell, how much."""

    who: str
    cell: str
    bytes: int
    aside: bool = False
    """Whether it is no memory of a tensor of this notebook's."""
    of: int | None = None
    """Of the sum of all rows: the bytes that it should come to."""

    @property
    def size(self) -> str:
        """As it is shown."""
        return (
            units.memory(self.bytes)
            if self.of in (None, self.bytes)
            else units.memory_of(self.bytes, self.of)
        )


def bundle(story: Story) -> dict[str, str]:
    """The mime bundle that shows it."""
    return {"text/plain": text(story), "text/html": html(story)}


def text(story: Story) -> str:
    """For a terminal."""
    lines = [_title(story)]
    rows = _rows(story)
    if rows:
        lines += styles.text_table([[row.who, row.cell, row.size] for row in rows], left=2)
    by_cell = _by_cell(story)
    lines += [f"  By cell: {by_cell}."] if by_cell else []
    course = _course(story)
    lines += [f"  {course}"] if course else []
    lines += [f"  {line}" for line in _advice_lines(story.facts)]
    lines += [f"  Not known: {clean_line(reason, 200)}." for reason in story.unknown]
    return printable_lines("\n".join(lines))


def html(story: Story) -> str:
    """Static, without a script, readable without its styles and its picture."""
    rows = "".join(_html_row(row) for row in _rows(story))
    head = "".join(
        f"<th scope='col' style='font-weight:400;{style}'>{name}</th>"
        for name, style in (("held by", LEFT), ("from cell", LEFT), ("memory", ""))
    )
    table = (
        f"<div style='overflow-x:auto'><table cellpadding='4' style='{_TABLE}'><thead><tr "
        f"style='{QUIET}'>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )
    by_cell = _by_cell(story)
    parts = [
        f"<div><b style='font-size:15px'>{escape(_title(story))}</b></div>",
        table if rows else "",
        f"<div style='{QUIET}'>By cell: {escape(by_cell)}.</div>" if by_cell else "",
        _picture(story),
        _html_advice(story.facts),
        *(
            f"<div style='{QUIET}'>Not known: {escape(clean_line(reason, 200))}.</div>"
            for reason in story.unknown
        ),
    ]
    return styles.frame("".join(parts), styles.ERROR)


# -- what happened ---------------------------------------------------------------------------------------


def _title(story: Story) -> str:
    facts = story.facts
    where = facts.device or "the GPU"
    if story.gpu is not None:
        where += f" ({clean_line(story.gpu, _NAME)})"
    parts = []
    if facts.requested is not None:
        parts.append(f"{units.memory(facts.requested)} asked for")
    if facts.room is not None:
        parts.append(_free(facts, facts.room))
    return f"Out of memory on {where}: {', '.join(parts) or 'the error says no figures'}"


def _free(facts: Facts, room: int) -> str:
    if facts.limit is not None and room != facts.free:
        return (
            f"{units.memory(room)} left of the {units.memory(facts.limit)} that this process lets itself "
            f"have ({units.memory(facts.free)} of the GPU free)"
        )
    return f"{units.memory_of(room, facts.total)} free"


def _rows(story: Story) -> list[_Row]:
    facts = story.facts
    rows = [_held(held) for held in facts.held[:_MOST_HOLDERS]]
    rest = facts.held[_MOST_HOLDERS:]
    if rest:
        size = sum(held.holder.bytes for held in rest)
        rows.append(_Row(f"{len(rest)} more", "", size))
    if story.let_go >= units.MIB:
        rows.append(_Row("let go of since the error", "", story.let_go, aside=True))
    if facts.stuck:
        rows.append(_Row("torch: reserved, in no tensor", "", facts.stuck, aside=True))
    rows += [
        _Row(clean_line(other.name, _NAME), "", other.bytes, aside=True)
        for other in facts.others[:_MOST_OTHERS]
    ]
    if len(facts.others) > _MOST_OTHERS:
        left = facts.others[_MOST_OTHERS:]
        size = sum(other.bytes for other in left)
        rows.append(_Row(f"{len(left)} more processes", "", size, aside=True))
    return [*rows, *_sum(facts, rows)]


def _held(held: Held) -> _Row:
    names = [clean_line(name, _NAME) for name in held.holder.names]
    also = f" and {len(names) - _MOST_NAMES} more names" if len(names) > _MOST_NAMES else ""
    who = " = ".join(names[:_MOST_NAMES]) + also
    if held.is_error:
        who = "this error's frames (kept by the notebook itself)"
    elif held.holder.kind == "notebook":
        who += " (kept by the notebook itself)"
    elif held.holder.kind == "unknown":
        who = "autograd or unknown"
    cell = "" if held.holder.cell is None else f"In [{held.holder.cell}]"
    return _Row(who, cell, held.holder.bytes)


def _sum(facts: Facts, rows: Sequence[_Row]) -> list[_Row]:
    """What was free, what nobody is known to hold, and all rows together, so that it adds up to the GPU."""
    if not rows or facts.free is None or facts.total is None:
        return []
    found = [_Row("free", "", facts.free, aside=True)]
    known = sum(row.bytes for row in rows) + facts.free
    unknown = facts.total - known
    if unknown >= _MUCH_UNKNOWN * facts.total:
        found.append(_Row("not known who holds it", "", unknown, aside=True))
        known = facts.total
    return [*found, _Row("in all", "", known, of=facts.total)]


def _by_cell(story: Story) -> str:
    known = [share for share in story.cells if share.cell is not None][:_MOST_CELLS]
    if not known:
        return ""
    parts = [
        f"In [{share.cell}] {units.memory(share.bytes)}"
        + (f" ({clean_line(share.source, _SOURCE)})" if share.source else "")
        for share in known
    ]
    other = sum(share.bytes for share in story.cells if share not in known)
    return ", ".join(parts) + (f", others or not known {units.memory(other)}" if other else "")


def _course(story: Story) -> str:
    known = [(ago, size) for ago, size in story.recent if size is not None]
    if len(known) < _FEWEST_POINTS:
        return ""
    sizes = [size for _, size in known]
    highest = units.memory(max(sizes))
    most = "" if highest in map(units.memory, (sizes[0], sizes[-1])) else f", at most {highest}"
    return (
        f"The GPU's memory over the last {units.duration(known[0][0])}, sampled: "
        f"{units.memory_change(sizes[0], sizes[-1])}{most}."
    )


def _picture(story: Story) -> str:
    words = _course(story)
    if not words:
        return ""
    whole = max(story.recent[0][0], 1.0)
    t: list[float] = []
    sizes: list[int | None] = []
    step = -(-len(story.recent) // _MOST_POINTS)
    for ago, size in story.recent[::-step][::-1]:
        if t and whole - ago - t[-1] > _GAP_S + step:
            # A gap is no straight line from what was before it to what came after.
            t.append(t[-1])
            sizes.append(None)
        t.append(whole - ago)
        sizes.append(size)
    unknown = (None,) * len(t)
    lane = Lane(story.facts.device or "GPU", unknown, tuple(sizes), story.facts.total)
    chart = Chart(tuple(t), whole, (lane,), (), words)
    style = "display:block;width:300px;height:36px;margin:6px 0 0;border-top:1px dotted"
    top = story.facts.total or max(size for _, size in story.recent if size is not None)
    key = f"Dashed: memory in use, from 0 at the bottom to {units.memory(top)} at the top."
    return f"{svg(chart, style, 240, outlined=True)}<div style='{QUIET}'>{escape(words)} {escape(key)}</div>"


# -- what to do ------------------------------------------------------------------------------------------


def _advice(facts: Facts) -> tuple[str, Sequence[Remedy], Remedy | None]:
    found = remedies(facts)
    if contradicts_itself(facts):
        return _ODD, (), first_step(facts)
    return (f"{_ENOUGH}:" if found else _NOTHING), found, first_step(facts)


def _advice_lines(facts: Facts) -> list[str]:
    opening, found, first = _advice(facts)
    lines = [opening]
    for remedy in found:
        lines.append(f"- {remedy.text}")
        lines += [f"    {remedy.code}"] if remedy.code is not None else []
    lines += [first.text, f"    {first.code}"] if first is not None else []
    return [*lines, _IN_GENERAL]


def _html_advice(facts: Facts) -> str:
    opening, found, first = _advice(facts)
    items = "".join(f"<li>{_html_remedy(remedy)}</li>" for remedy in found)
    made = f"<ul style='margin:0;padding-left:20px'>{items}</ul>" if items else ""
    before = f"<div>{_html_remedy(first)}</div>" if first is not None else ""
    return (
        f"<div style='margin-top:4px'><b>{escape(opening)}</b></div>{made}{before}"
        f"<div style='{QUIET}'>{escape(_IN_GENERAL)}</div>"
    )


def _html_remedy(remedy: Remedy) -> str:
    code = "" if remedy.code is None else f" <code style='{_CODE}'>{escape(remedy.code)}</code>"
    return f"{escape(clean_line(remedy.text, 600))}{code}"


def _html_row(row: _Row) -> str:
    style = f"background:none;{QUIET}" if row.aside else "background:none"
    style += "" if row.of is None else ";border-top:1px solid"
    size = styles.unbroken(row.size)
    return (
        f"<tr style='{style}'><td style='{LEFT}'>{escape(row.who)}</td>"
        f"<td style='{LEFT}'>{escape(row.cell)}</td><td>{size}</td></tr>"
    )
