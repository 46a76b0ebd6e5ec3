"""Show the card for an out-of-memory error in plain text and static HTML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from gpuwidget.heap.retention import Role
from gpuwidget.measure.memory_holders import LAST_ERROR
from gpuwidget.measure.out_of_memory import (
    OomContext,
    OomFacts,
    OomFix,
    OomHolder,
    causes,
    contradicts_itself,
    first_step,
    fixes,
    reductions,
)
from gpuwidget.model import units
from gpuwidget.model.terminal_text import clean_line, printable_lines
from gpuwidget.model.translation import _, in_view_language, translatable
from gpuwidget.views import styles
from gpuwidget.views.chart import Chart, Lane
from gpuwidget.views.chart import html as chart_html
from gpuwidget.views.styles import LEFT, QUIET

_MAX_HOLDERS = 10
_MAX_CELLS = 5
_MAX_OTHERS = 6
_MAX_NAMES = 3
_NAME = 60
_SOURCE = 60
_UNKNOWN_SHOWN_FROM = 0.01
"""Memory without a known holder has a row in the table only if it is at least this fraction of the GPU's
memory."""
_MAX_POINTS = 80
_MIN_POINTS = 3
_GAP_S = 2.0

_FIXES_HEADING = translatable("Each of these would have been enough for the request:")
_FIXES_AFTER_FIRST_STEP = translatable("Then do one of these. Each would have been enough for the request:")
_NO_FIX = translatable("No single known fix would have been enough.")
_ONLY_DELAYS = translatable(
    "A smaller batch or more memory would only delay the error, because memory rises with each step."
)
_OR_REDUCE = translatable("Or need less memory. Only a try shows whether it is enough:")
_REDUCE = translatable("Need less memory. Only a try shows whether it is enough:")
_CONTRADICTION = translatable(
    "By these values there was enough free memory, so something else probably used it for a "
    "moment. Try again, and check which other processes use the GPU."
)
_GENERAL_ADVICE = translatable(
    "Mixed precision and activation checkpointing reduce the memory of a training step. Only a "
    "try shows by how much."
)

_TABLE = f"{styles.TABLE}font-size:12px"
_CODE = "display:inline-block"
"""CSS that keeps a piece of code on one line if it fits."""


@dataclass(frozen=True, slots=True)
class _Row:
    """A row of the table."""

    holder: str
    cell: str
    bytes: int
    aside: bool = False
    """Whether the row is shown less prominently, because its memory is not in this notebook's tensors now."""
    total: int | None = None
    """The GPU's total memory in the row with the sum; None in all other rows."""

    @property
    def size(self) -> str:
        """The size as shown."""
        return (
            units.memory(self.bytes)
            if self.total in (None, self.bytes)
            else _(units.memory_of(self.bytes, self.total))
        )


def bundle(context: OomContext) -> dict[str, str]:
    """Return the mime bundle of the card."""
    return {"text/plain": text(context), "text/html": html(context)}


@in_view_language
def text(context: OomContext) -> str:
    """Return the card as plain text."""
    lines = [_title(context)]
    rows = _rows(context)
    if rows:
        lines += styles.text_table([[row.holder, row.cell, row.size] for row in rows], left=2)
    by_cell = _by_cell(context)
    lines += ["  " + _("By cell: {cells}.", cells=by_cell)] if by_cell else []
    by_use = _by_use(context.facts)
    lines += [f"  {by_use}"] if by_use else []
    sentence = _memory_sentence(context)
    lines += [f"  {sentence}"] if sentence else []
    lines += [f"  {line}" for line in _advice_lines(context.facts)]
    lines += [
        "  " + _("Not known: {reason}.", reason=clean_line(_(reason), 200)) for reason in context.unknown
    ]
    return printable_lines("\n".join(lines))


@in_view_language
def html(context: OomContext) -> str:
    """Return the card as static HTML without scripts. It is readable even without styles and chart."""
    rows = "".join(_html_row(row) for row in _rows(context))
    head = "".join(
        f"<th scope='col' style='font-weight:400;{style}'>{name}</th>"
        for name, style in ((_("held by"), LEFT), (_("from cell"), LEFT), (_("memory"), ""))
    )
    table = (
        f"<div style='overflow-x:auto'><table cellpadding='4' style='{_TABLE}'><thead><tr "
        f"style='{QUIET}'>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )
    by_cell, by_use = _by_cell(context), _by_use(context.facts)
    not_known = [_("Not known: {reason}.", reason=clean_line(_(reason), 200)) for reason in context.unknown]
    parts = [
        f"<div><b style='font-size:15px'>{escape(_title(context))}</b></div>",
        table if rows else "",
        f"<div style='{QUIET}'>{escape(_('By cell: {cells}.', cells=by_cell))}</div>" if by_cell else "",
        f"<div style='{QUIET}'>{escape(by_use)}</div>" if by_use else "",
        _memory_chart(context),
        _html_advice(context.facts),
        *(f"<div style='{QUIET}'>{escape(text)}</div>" for text in not_known),
    ]
    return styles.frame("".join(parts), styles.ERROR)


# -- what happened ---------------------------------------------------------------------------------------


def _title(context: OomContext) -> str:
    facts = context.facts
    where = facts.device or _("the GPU")
    if context.gpu is not None:
        where += f" ({clean_line(context.gpu, _NAME)})"
    parts = []
    if facts.requested is not None:
        parts.append(_("{requested} requested", requested=units.memory(facts.requested)))
    if facts.available is not None:
        parts.append(_free(facts, facts.available))
    return _(
        "Out of memory on {where}: {parts}",
        where=where,
        parts=", ".join(parts) or _("the error contains no sizes"),
    )


def _free(facts: OomFacts, room: int) -> str:
    if facts.limit is not None and room != facts.free:
        return _(
            "{room} left of this process's own limit of {limit} ({free} free on the GPU)",
            room=units.memory(room),
            limit=units.memory(facts.limit),
            free=units.memory(facts.free),
        )
    return _("{size} free", size=units.memory_of(room, facts.total))


def _rows(context: OomContext) -> list[_Row]:
    facts = context.facts
    rows = [_held(held) for held in facts.held[:_MAX_HOLDERS]]
    rest = facts.held[_MAX_HOLDERS:]
    if rest:
        size = sum(held.holder.bytes for held in rest)
        rows.append(_Row(_("{number} more", number=len(rest)), "", size))
    if context.freed >= units.MIB:
        rows.append(_Row(_("freed since the error"), "", context.freed, aside=True))
    if facts.fragmented:
        rows.append(_Row(_("torch: reserved but not in tensors"), "", facts.fragmented, aside=True))
    rows += [
        _Row(clean_line(_(other.name), _NAME), "", other.bytes, aside=True)
        for other in facts.others[:_MAX_OTHERS]
    ]
    if len(facts.others) > _MAX_OTHERS:
        left = facts.others[_MAX_OTHERS:]
        size = sum(other.bytes for other in left)
        rows.append(_Row(_("{number} more processes", number=len(left)), "", size, aside=True))
    return [*rows, *_sum(facts, rows)]


def _held(held: OomHolder) -> _Row:
    # The error's traceback is no other name of the variable: it only refers to the same memory.
    by_error = held.holder.kind == "variable" and LAST_ERROR in held.holder.names
    names = [
        clean_line(_(name), _NAME) for name in held.holder.names if not (by_error and name == LAST_ERROR)
    ]
    more = _(" and {number} more names", number=len(names) - _MAX_NAMES) if len(names) > _MAX_NAMES else ""
    holder = " = ".join(names[:_MAX_NAMES]) + more
    if by_error:
        holder += _(" (also reachable from the last error's traceback)")
    if held.is_error:
        holder = _("this error's frames (kept by the notebook itself)")
    elif held.holder.kind == "notebook":
        holder += _(" (kept by the notebook itself)")
    elif held.holder.kind == "unknown":
        holder = _("autograd or unknown")
    cell = "" if held.holder.cell is None else f"In [{held.holder.cell}]"
    return _Row(holder, cell, held.holder.bytes)


def _sum(facts: OomFacts, rows: Sequence[_Row]) -> list[_Row]:
    """Return the table's last rows: free memory, memory without a known holder, and the sum of all rows."""
    if not rows or facts.free is None or facts.total is None:
        return []
    available = facts.available
    if available is None or available == facts.free:
        found = [_Row(_("free"), "", facts.free, aside=True)]
    else:
        found = [
            _Row(_("free within this process's own limit"), "", available, aside=True),
            _Row(_("free, but above this process's own limit"), "", facts.free - available, aside=True),
        ]
    known = sum(row.bytes for row in rows) + facts.free
    unknown = facts.total - known
    if unknown >= _UNKNOWN_SHOWN_FROM * facts.total:
        found.append(_Row(_("holder unknown"), "", unknown, aside=True))
        known = facts.total
    return [*found, _Row(_("total"), "", known, total=facts.total)]


def _by_cell(context: OomContext) -> str:
    known = [share for share in context.cells if share.cell is not None][:_MAX_CELLS]
    if not known:
        return ""
    parts = [
        f"In [{share.cell}] {units.memory(share.bytes)}"
        + (f" ({clean_line(share.source, _SOURCE)})" if share.source else "")
        for share in known
    ]
    other = sum(share.bytes for share in context.cells if share not in known)
    return ", ".join(parts) + (
        _(", other or unknown cells {other}", other=units.memory(other)) if other else ""
    )


def _by_use(facts: OomFacts) -> str:
    """Return what torch's memory is used for; an empty string if there are only other tensors."""
    if not any(role != "other" for role, _size in facts.uses):
        return ""
    parts = [_use(role, units.memory(size)) for role, size in facts.uses]
    return _("By use: {uses}.", uses=", ".join(parts))


def _use(role: Role, size: str) -> str:
    return {
        "parameters": _("parameters {size}", size=size),
        "gradients": _("gradients {size}", size=size),
        "optimizer states": _("optimizer states {size}", size=size),
        "activations": _("saved for backward {size}", size=size),
        "other": _("other tensors {size}", size=size),
    }[role]


def _memory_sentence(context: OomContext) -> str:
    known = [(ago, size) for ago, size in context.recent if size is not None]
    if len(known) < _MIN_POINTS:
        return ""
    sizes = [size for _, size in known]
    highest = units.memory(max(sizes))
    most = (
        ""
        if highest in map(units.memory, (sizes[0], sizes[-1]))
        else _(", at most {highest}", highest=highest)
    )
    return _(
        "The GPU's memory over the last {seconds}, sampled: {change}{most}.",
        seconds=units.duration(known[0][0]),
        change=units.memory_change(sizes[0], sizes[-1]),
        most=most,
    )


def _memory_chart(context: OomContext) -> str:
    words = _memory_sentence(context)
    if not words:
        return ""
    whole = max(context.recent[0][0], 1.0)
    t: list[float] = []
    sizes: list[int | None] = []
    step = -(-len(context.recent) // _MAX_POINTS)
    for ago, size in context.recent[::-step][::-1]:
        if t and whole - ago - t[-1] > _GAP_S + step:
            # Interrupt the chart's line where samples are missing.
            t.append(t[-1])
            sizes.append(None)
        t.append(whole - ago)
        sizes.append(size)
    unknown = (None,) * len(t)
    lane = Lane(context.facts.device or "GPU", unknown, tuple(sizes), context.facts.total)
    chart = Chart(tuple(t), whole, (lane,), (), words)
    top = context.facts.total or max(size for _, size in context.recent if size is not None)
    key = _("Dashed: memory in use, from 0 at the bottom to {top} at the top.", top=units.memory(top))
    return f"{chart_html(chart, 0)}<div style='{QUIET}'>{escape(words)} {escape(key)}</div>"


# -- what to do ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Step:
    """One of the things to do, in this order: a sentence with code, and choices below it."""

    text: str
    codes: Sequence[str] = ()
    choices: Sequence[tuple[str, str | None]] = ()
    """Texts and codes, one of which is enough."""


def _steps(facts: OomFacts) -> list[_Step]:
    """Return what the user can do, in the order in which to do it."""
    found = [_Step(_(cause.text), () if cause.code is None else (cause.code,)) for cause in causes(facts)]
    frames = first_step(facts)
    clear = [one.clear for one in facts.retained if one.clear is not None] if found else []
    if clear:
        found.append(_Step(_("Free what is kept now, before you try again:"), clear))
    if frames is not None:
        found.append(_Step(_(frames.text), (frames.code or "",)))
    if any(cause.kind != "exception" for cause in causes(facts)):
        return found
    if contradicts_itself(facts):
        return [*found, _Step(_(_CONTRADICTION))]
    enough, less = fixes(facts), reductions(facts)
    if enough:
        heading = _FIXES_HEADING if frames is None else _FIXES_AFTER_FIRST_STEP
        found.append(_Step(_(heading), choices=_choices(enough, frames)))
    elif not less and not causes(facts):
        found.append(_Step(_(_NO_FIX)))
    if less:
        found.append(_Step(_(_OR_REDUCE if enough else _REDUCE), choices=_choices(less, None)))
    return found


def _choices(choices: Sequence[OomFix], frames: OomFix | None) -> list[tuple[str, str | None]]:
    """Return the text and the code of each choice. A choice that the step for the error's frames already
    contains has no code."""
    return [
        (_("{fix} (The command of step 1 does this too.)", fix=_(fix.text)), None)
        if frames is not None and fix.code == frames.code
        else (_(fix.text), fix.code)
        for fix in choices
    ]


def _numbers(steps: Sequence[_Step]) -> list[str]:
    """Return the number of each step; empty strings if there is only one."""
    return [f"{number}. " if len(steps) > 1 else "" for number in range(1, len(steps) + 1)]


def _remark(facts: OomFacts) -> str | None:
    """Return what to know below the steps, which is nothing to do now."""
    if any(cause.kind != "exception" for cause in causes(facts)):
        return _(_ONLY_DELAYS)
    return _(_GENERAL_ADVICE) if any(fix.kind == "batch" for fix in reductions(facts)) else None


def _advice_lines(facts: OomFacts) -> list[str]:
    steps = _steps(facts)
    lines = []
    for number, step in zip(_numbers(steps), steps, strict=True):
        lines.append(f"{number}{step.text}")
        lines += [f"    {code}" for code in step.codes]
        for text, code in step.choices:
            lines.append(f"- {text}")
            lines += [f"    {code}"] if code is not None else []
    remark = _remark(facts)
    return lines if remark is None else [*lines, remark]


def _html_advice(facts: OomFacts) -> str:
    steps = _steps(facts)
    parts = []
    for number, step in zip(_numbers(steps), steps, strict=True):
        items = "".join(f"<li>{_html_fix(text, code)}</li>" for text, code in step.choices)
        codes = "".join(f" <code style='{_CODE}'>{escape(code)}</code>" for code in step.codes)
        text = escape(clean_line(step.text, 900))
        parts.append(f"<div style='margin-top:4px'><b>{number}{text}</b>{codes}</div>")
        parts.append(f"<ul style='margin:0;padding-left:20px'>{items}</ul>" if items else "")
    remark = _remark(facts)
    if remark is not None:
        parts.append(f"<div style='{QUIET}'>{escape(remark)}</div>")
    return "".join(parts)


def _html_fix(text: str, code: str | None) -> str:
    shown = "" if code is None else f" <code style='{_CODE}'>{escape(code)}</code>"
    return f"{escape(clean_line(text, 600))}{shown}"


def _html_row(row: _Row) -> str:
    style = f"background:none;{QUIET}" if row.aside else "background:none"
    style += "" if row.total is None else ";border-top:1px solid"
    size = styles.unbroken(row.size)
    return (
        f"<tr style='{style}'><td style='{LEFT}'>{escape(row.holder)}</td>"
        f"<td style='{LEFT}'>{escape(row.cell)}</td><td>{size}</td></tr>"
    )
