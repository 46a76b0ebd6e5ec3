"""Show the card for an out-of-memory error in plain text and static HTML.

The request and the free memory come first, then one bar of the memory up to the limit that applied, then the
fixes. The holders are folded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Literal

from gpuwidget.heap.retention import Role
from gpuwidget.measure.holder_ranking import LAST_ERROR
from gpuwidget.measure.oom.facts import OomContext, OomFacts, OomHolder
from gpuwidget.measure.oom.fix_templates import OomFix
from gpuwidget.measure.oom.fixes import advise, contradicts_itself
from gpuwidget.model import units
from gpuwidget.model.mime_types import CARD_MIME_TYPE
from gpuwidget.model.terminal_text import clean_line, printable_lines
from gpuwidget.model.translation import _, in_view_language, translatable
from gpuwidget.views import elements, styles
from gpuwidget.views.chart import Chart, Lane
from gpuwidget.views.chart import html as chart_html
from gpuwidget.views.elements import Figure
from gpuwidget.views.styles import QUIET

_Kind = Literal["own", "error", "cache", "other", "free", "unknown", "total"]

_MAX_HOLDERS = 10
_MAX_CELLS = 5
_MAX_OTHERS = 6
_MAX_NAMES = 3
_NAME = 60
_SHORT_NAME = 32
_SOURCE = 60
_FIX, _WHY = 200, 300
_MAX_BYTES, _MAX_PART_BYTES = 18_000, 11_500
"""Maximum size of the card, and of the card as a part of a watched cell's card, which has at most 20 kB."""
_SHOWN_FROM = 0.01
"""Memory without a known holder is shown only if it is at least this fraction of the memory, and a piece of
the bar has a key only from this fraction."""
_MAX_POINTS = 80
_MIN_POINTS = 3
_GAP_S = 2.0
_HOVER_COLUMNS = 10

_ENOUGH = translatable("Each of these would have been enough:")
_ONE_ENOUGH = translatable("This would have been enough:")
_UNSURE = translatable("Only a try shows whether this is enough:")
_NO_FIX = translatable("No single known fix would have been enough.")
_ONLY_DELAYS = translatable("A smaller batch or more memory would only delay the error.")
_CONTRADICTION = translatable(
    "By these figures enough memory was free, so another process probably used it for a moment. Try again."
)

_GRAY = "var(--jp-ui-font-color3,#8a8a8a)"
_STRIPES = "repeating-linear-gradient(45deg,{0} 0 4px,transparent 4px 8px)"
_COLORS: dict[_Kind, tuple[str, bool, tuple[float, ...]]] = {
    "own": (styles.UTILIZATION, False, (1, 0.8, 0.65, 0.5)),
    "error": (styles.MEMORY, False, (1, 0.6)),
    "cache": (styles.UTILIZATION, False, (0.3,)),
    "other": (_GRAY, False, (1, 0.75, 0.5)),
    "unknown": (_GRAY, True, (1,)),
}
"""The color of each kind of piece of the bar, whether it is striped, and the opacity of the first and of each
further piece."""
_KEYS = {False: "\N{BLACK SQUARE}", True: "\N{SQUARE WITH UPPER RIGHT TO LOWER LEFT FILL}"}
_REQUEST = f"background:{_STRIPES.format(styles.ERROR)};outline:1px dashed {styles.ERROR};outline-offset:-1px"
_BAR = "display:flex;height:20px;margin:8px 0 4px;overflow:hidden;border-radius:3px;background:#8883"
_LEGEND = "display:flex;flex-wrap:wrap;gap:0 16px;font-size:12px"
_CODE = "display:inline-block"
_LINE = "display:flex;gap:10px;align-items:baseline;margin:3px 0"


@dataclass(frozen=True, slots=True)
class _Row:
    """A row of the table of holders."""

    holder: str
    bytes: int
    kind: _Kind
    cell: str = ""
    name: str = ""
    """A short form of :attr:`holder` for the bar, if there is one."""
    total: int | None = None
    """The GPU's total memory in the row with the sum; None in all other rows."""

    @property
    def size(self) -> str:
        return (
            units.memory(self.bytes)
            if self.total in (None, self.bytes)
            else _(units.memory_of(self.bytes, self.total))
        )


@in_view_language
def bundle(context: OomContext, *, is_part: bool = False) -> dict[str, Any]:
    """Return the mime bundle of the card. Its details are left out if they would take too much space.

    ``is_part`` tells whether it begins the card of a watched cell, which has its own chart of the memory.
    """
    rows = _rows(context)
    table = [_header(), *([row.holder, row.cell, row.size] for row in rows)] if rows else []
    lines = [_title(context), *(f"  {line}" for line in _text_advice(context.facts))]
    inner = f"{_figures(context)}{_bar(context.facts, rows)}{_html_advice(context.facts)}"
    holders = styles.text_table(table, left=2) if table else []
    details = [*holders, *(f"  {line}" for line in _further(context))]
    folded = _fold(context, table, "" if is_part else _memory_chart(context))
    size = sum(len(part.encode()) for part in (*lines, *details, inner, folded))
    if size > (_MAX_PART_BYTES if is_part else _MAX_BYTES):
        details, folded = [], ""
    return {
        "text/plain": printable_lines("\n".join([*lines, *details])),
        "text/html": styles.frame(f"{inner}{folded}", styles.ERROR),
        CARD_MIME_TYPE: {},
    }


# -- the request and the free memory ---------------------------------------------------------------------


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
    if facts.is_limited:
        return _(
            "{room} left of this process's own limit of {limit} ({free} free on the GPU)",
            room=units.memory(room),
            limit=units.memory(facts.limit),
            free=units.memory(facts.free),
        )
    return _("{size} free", size=units.memory_of(room, facts.total))


def _figures(context: OomContext) -> str:
    facts, found = context.facts, []
    if facts.requested is not None:
        found.append(Figure(units.memory(facts.requested), _("requested"), color=styles.ERROR))
    gpu = "" if context.gpu is None else clean_line(context.gpu, _SHORT_NAME)
    device = facts.device or _("the GPU")
    if facts.is_limited:
        of = _("of {total}", total=units.memory(facts.limit))
        found.append(Figure(units.memory(facts.available), _("free within this process's own limit"), of))
    if facts.free is not None:
        of = "" if facts.total is None else _("of {total}", total=units.memory(facts.total))
        below = " · ".join(filter(None, (of, gpu)))
        found.append(Figure(units.memory(facts.free), _("free on {device}", device=device), below))
    return elements.figures_row(found) if found else f"<div><b>{escape(_title(context))}</b></div>"


# -- the bar ---------------------------------------------------------------------------------------------


def _bar(facts: OomFacts, rows: Sequence[_Row]) -> str:
    """Return a bar of the memory up to the limit that applied, with the request drawn beyond it."""
    requested, free = facts.requested, facts.available
    whole = facts.limit if facts.is_limited else facts.total
    if requested is None or free is None or not whole:
        return ""
    # The memory of other processes does not count in this process's own limit.
    limits = {"own": 3, "error": 2, "cache": 1} | ({} if facts.is_limited else {"other": 2})
    pieces = [
        piece
        for kind, limit in limits.items()
        for piece in _merged([row for row in rows if row.kind == kind], limit)
    ]
    unknown = whole - free - sum(piece.bytes for piece in pieces)
    if unknown >= _SHOWN_FROM * whole:
        pieces.append(_Row(_("holder unknown"), unknown, "unknown"))
    inside, over = min(requested, free), max(0, requested - free)
    # The part of a huge request that is drawn ends at twice the limit, so that the pieces stay visible.
    scale = (sum(piece.bytes for piece in pieces) + free + min(over, whole)) / 100
    drawn = keys = ""
    for number, piece in enumerate(pieces):
        color, stripes, opacities = _COLORS[piece.kind]
        place = sum(earlier.kind == piece.kind for earlier in pieces[:number])
        faded = f"opacity:{opacities[min(place, len(opacities) - 1)]}"
        name = f"{escape(clean_line(piece.name or piece.holder, _SHORT_NAME))} {styles.unbroken(piece.size)}"
        fill = _STRIPES.format(color) if stripes else color
        drawn += (
            f"<i title='{name}' style='width:{piece.bytes / scale:.2f}%;margin-right:1px;background:{fill};"
            f"{faded}'></i>"
        )
        if piece.bytes >= _SHOWN_FROM * whole:
            keys += f"<span><b style='color:{color};{faded}'>{_KEYS[stripes]}</b> {name}</span> "
    size, beyond = units.memory(requested), units.memory(over)
    if over > whole:
        request = _("requested {size} · {over} too much (drawn shorter)", size=size, over=beyond)
    elif over:
        request = _("requested {size} · {over} too much", size=size, over=beyond)
    else:
        request = _("requested {size}", size=size)
    drawn += f"<i style='width:{inside / scale:.2f}%;{_REQUEST};opacity:.6'></i>"
    drawn += f"<i style='width:{(free - inside) / scale:.2f}%'></i>"
    if over:
        width = f"width:{min(over, whole) / scale:.2f}%;border-left:2px solid"
        drawn += f"<i title='{escape(request)}' style='{width};{_REQUEST}'></i>"
    keys += f"<span><b style='color:{styles.ERROR}'>{_KEYS[True]}</b> {styles.unbroken(request)}</span>"
    return f"<div style='{_BAR}'>{drawn}</div><div style='{_LEGEND}'>{keys}</div>"


def _merged(rows: Sequence[_Row], limit: int) -> list[_Row]:
    """Return the largest rows, and one row for all smaller ones."""
    ordered = sorted(rows, key=lambda row: -row.bytes)
    if len(ordered) <= limit + 1:
        return ordered
    rest = sum(row.bytes for row in ordered[limit:])
    return [*ordered[:limit], _Row(_("smaller ones"), rest, ordered[0].kind)]


# -- the holders -----------------------------------------------------------------------------------------


def _rows(context: OomContext) -> list[_Row]:
    facts = context.facts
    rows = [_held(held) for held in facts.held[:_MAX_HOLDERS]]
    rest = facts.held[_MAX_HOLDERS:]
    if rest:
        more = _("{number} more", number=len(rest))
        rows.append(_Row(more, sum(held.holder.bytes for held in rest), "own"))
    if facts.freed >= units.MIB:
        rows.append(_Row(_("freed since the error"), facts.freed, "error"))
    if facts.fragmented:
        name = _("torch, not in tensors")
        rows.append(_Row(_("torch: reserved but not in tensors"), facts.fragmented, "cache", name=name))
    rows += [
        _Row(clean_line(_(other.name), _NAME), other.bytes, "other") for other in facts.others[:_MAX_OTHERS]
    ]
    left = facts.others[_MAX_OTHERS:]
    if left:
        more = _("{number} more processes", number=len(left))
        rows.append(_Row(more, sum(other.bytes for other in left), "other"))
    return [*rows, *_sum(facts, rows)]


def _held(held: OomHolder) -> _Row:
    # The error's traceback is no other name of the variable: it only refers to the same memory.
    by_error = held.holder.kind == "variable" and LAST_ERROR in held.holder.names
    names = [
        clean_line(_(name), _NAME) for name in held.holder.names if not (by_error and name == LAST_ERROR)
    ]
    holder = " = ".join(names[:_MAX_NAMES])
    if len(names) > _MAX_NAMES:
        holder = _("{names} and {number} more names", names=holder, number=len(names) - _MAX_NAMES)
    if by_error:
        holder = _("{holder} (also reachable from the last error's traceback)", holder=holder)
    name = names[0] if names else ""
    if held.is_error:
        name = _("this error's frames")
        holder = _("this error's frames (kept by the notebook itself)")
    elif held.holder.kind == "notebook":
        holder = _("{holder} (kept by the notebook itself)", holder=holder)
    elif held.holder.kind == "unknown":
        name = holder = _("autograd or unknown")
    cell = "" if held.holder.cell is None else f"In [{held.holder.cell}]"
    return _Row(holder, held.holder.bytes, "error" if held.is_error else "own", cell, name)


def _sum(facts: OomFacts, rows: Sequence[_Row]) -> list[_Row]:
    """Return the table's last rows: free memory, memory without a known holder, and the sum of all rows."""
    if not rows or facts.free is None or facts.total is None:
        return []
    available = facts.available
    if not facts.is_limited or available is None:
        found = [_Row(_("free"), facts.free, "free")]
    else:
        found = [
            _Row(_("free within this process's own limit"), available, "free"),
            _Row(_("free, but above this process's own limit"), facts.free - available, "free"),
        ]
    known = sum(row.bytes for row in rows) + facts.free
    unknown = facts.total - known
    if unknown >= _SHOWN_FROM * facts.total:
        found.append(_Row(_("holder unknown"), unknown, "unknown"))
        known = facts.total
    return [*found, _Row(_("total"), known, "total", total=facts.total)]


def _cells(context: OomContext) -> list[list[str]]:
    """Return the cell, the source and the memory of each cell that allocated some, the largest first."""
    known = [share for share in context.cells if share.cell is not None][:_MAX_CELLS]
    other = sum(share.bytes for share in context.cells if share not in known)
    rows = [
        [f"In [{share.cell}]", clean_line(share.source, _SOURCE), units.memory(share.bytes)]
        for share in known
    ]
    return [*rows, [_("other or unknown cells"), "", units.memory(other)]] if known and other else rows


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
    seconds, change = units.duration(known[0][0]), units.memory_change(sizes[0], sizes[-1])
    if highest in map(units.memory, (sizes[0], sizes[-1])):
        return _(
            "The GPU's memory over the last {seconds}, sampled: {change}.", seconds=seconds, change=change
        )
    return _(
        "The GPU's memory over the last {seconds}, sampled: {change}, at most {highest}.",
        seconds=seconds,
        change=change,
        highest=highest,
    )


def _memory_chart(context: OomContext) -> str:
    words = _memory_sentence(context)
    if not words:
        return ""
    if not context.facts.total:  # the chart is in percent
        return f"<div>{escape(words)}</div>"
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
    return f"{chart_html(chart, _HOVER_COLUMNS)}<div>{escape(words)}</div>"


def _unknown(context: OomContext) -> list[str]:
    return [clean_line(_(reason), 240) for reason in context.unknown]


def _further(context: OomContext) -> list[str]:
    """Return the text form's last lines."""
    cells = ", ".join(
        f"{cell} {size} ({source})" if source else f"{cell} {size}" for cell, source, size in _cells(context)
    )
    by_cell = _("By cell: {cells}.", cells=cells) if cells else ""
    found = [by_cell, _by_use(context.facts), _memory_sentence(context), *_unknown(context)]
    return [line for line in found if line]


def _fold(context: OomContext, holders: list[list[str]], chart: str) -> str:
    """Return the collapsed part: all holders, the memory by cell and by use, and what is not known."""
    cells = _cells(context)
    tables = (holders, [[_("from cell"), "", _("memory")], *cells] if cells else [])
    notes = [note for note in (_by_use(context.facts), *_unknown(context)) if note]
    inner = [
        f"<div style='overflow-x:auto'>{styles.html_table(table, left=2)}</div>" for table in tables if table
    ]
    inner += [*(f"<div>{escape(note)}</div>" for note in notes), chart]
    title = _("All holders by name and cell") if holders else _("Details")
    return elements.folds([elements.fold(title, "".join(inner))])


def _header() -> list[str]:
    return [_("held by"), _("from cell"), _("memory")]


# -- what to do ------------------------------------------------------------------------------------------


def _steps(facts: OomFacts) -> list[tuple[str, list[OomFix]]]:
    """Return what the user can do, in groups with a caption, which is empty for what to do in any case."""
    first, enough, unsure, rises = advise(facts)
    found = [("", first)] if first else []
    if contradicts_itself(facts) and not rises:
        return [*found, (_(_CONTRADICTION), [])]
    if enough:
        found.append((_(_ENOUGH if len(enough) > 1 else _ONE_ENOUGH), enough))
    if unsure:
        found.append((_(_UNSURE), unsure))
    if rises:
        found.append((_(_ONLY_DELAYS), []))
    elif not enough and not unsure and not any(fix.kind == "exception" for fix in first):
        found.append((_(_NO_FIX), []))
    return found


def _numbered(facts: OomFacts) -> Iterator[tuple[str, list[tuple[OomFix, int, str, str, str, str]]]]:
    """Yield the caption of each group, and each fix in it with its number, text, code, reasons and size."""
    number = 0
    codes: dict[str | None, int] = {}
    for caption, fixes in _steps(facts):
        group = []
        for fix in fixes:
            number += 1
            done_by = codes.setdefault(fix.code, number)
            why = [clean_line(_(reason), _WHY) for reason in fix.why]
            if fix.code is not None and done_by != number:
                why.append(_("the command of {number} does this too", number=done_by))
            code = fix.code if fix.code is not None and done_by == number else ""
            size = "" if fix.bytes is None else units.memory(fix.bytes)
            group.append((fix, number, clean_line(_(fix.text), _FIX), code, " · ".join(why), size))
        yield caption, group


def _text_advice(facts: OomFacts) -> list[str]:
    lines = []
    for caption, fixes in _numbered(facts):
        lines += [caption] if caption else []
        for _fix, number, text, code, why, size in fixes:
            lines.append(" · ".join(filter(None, (f"{number}. {text}", size))))
            lines += [f"    {line}" for line in (code, why) if line]
    return lines


def _html_advice(facts: OomFacts) -> str:
    found = ""
    for caption, fixes in _numbered(facts):
        found += styles.quiet(escape(caption)) if caption else ""
        for fix, number, text, code, why, size in fixes:
            shown = escape(text)
            if code:  # what replaces a line of the failing code is no cell of its own
                done = elements.fix_code(code, is_statement=fix.kind != "retention", style=_CODE)
                shown += f" {done}"
            reasons = f"<br><span style='{QUIET};font-size:11px'>{escape(why)}</span>" if why else ""
            found += (
                f"<div style='{_LINE}'><b>{number}</b> <span style='flex:1'>{shown}{reasons}</span> "
                f"<span style='{QUIET}'>{styles.unbroken(size)}</span></div>"
            )
    return f"<div style='margin:8px 0 4px'>{found}</div>"
