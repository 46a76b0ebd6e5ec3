"""Show the holders of the GPU's memory as a table, in plain text and static HTML."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from gpuwidget.measure.holder_ranking import DEBUGGER, LAST_ERROR, CellAllocation, DeviceMemory
from gpuwidget.model import units
from gpuwidget.model.report import Holder
from gpuwidget.model.terminal_text import clean_line, display_width, pad, printable_lines
from gpuwidget.model.translation import _, counted, in_view_language, listed, translatable
from gpuwidget.views import styles
from gpuwidget.views.styles import LEFT, QUIET

MAX_ROWS = 30
"""Maximum number of holders shown per device. All smaller holders share one further row."""
_MAX_NAMES = 5
_MAX_NAME = 60
_MAX_SOURCE = 70
_NOTEBOOK = translatable("kept by the notebook itself")
_UNKNOWN = translatable("autograd or unknown")
_TABLE = f"{styles.TABLE}font-size:12px"


@dataclass(frozen=True, slots=True)
class HolderRow:
    """A row of the table: one holder, or several small holders together."""

    what: str
    other_names: str
    """Further names that lead to the holder's memory."""
    type: str
    cell: str
    size: str


@dataclass(frozen=True, slots=True)
class DeviceSection:
    """The table of one device."""

    title: str
    rows: tuple[HolderRow, ...]
    outside: tuple[HolderRow, ...]
    remarks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HoldersView:
    """The texts of all tables."""

    sections: tuple[DeviceSection, ...]
    cells: tuple[CellAllocation, ...]
    notes: tuple[str, ...]


@in_view_language
def of(holders: Any) -> HoldersView:
    """Return the view of a :class:`~gpuwidget.kernel.attribution.memory_holders.Holders`."""
    notes = list(holders.notes)
    if holders.reason is not None:
        notes.insert(0, _("No PyTorch GPU memory to show, because {reason}.", reason=_(holders.reason)))
    elif not holders.devices and not holders:
        notes.insert(0, _("torch holds no GPU memory."))
    devices = {device.device: device for device in holders.devices}
    names = sorted({*devices, *(holder.device for holder in holders)})
    sections = tuple(
        _section(name, devices.get(name), holders.on(name), holders.gpus.get(name), _graphs(holders, name))
        for name in names
    )
    return HoldersView(sections, holders.cells, tuple(map(_, notes)))


def names(holder: Holder) -> tuple[str, str]:
    """Return a holder's first name as shown, and its other names."""
    if holder.kind == "unknown":
        return _(_UNKNOWN), ""
    first, *others = (clean_line(_(name), _MAX_NAME) for name in holder.names)
    return first, _(listed(others, _MAX_NAMES)) if len(others) > _MAX_NAMES else ", ".join(others)


@in_view_language
def text(view: HoldersView) -> str:
    """Return the tables as plain text."""
    lines: list[str] = []
    for section in view.sections:
        rows = [*section.rows, *section.outside]
        widths = [max((display_width(_cells_of(row)[n]) for row in rows), default=0) for n in range(4)]
        lines.append(section.title)
        for row in rows:
            what, kind, cell, size = _cells_of(row)
            line = f"  {pad(what, widths[0])}  {pad(kind, widths[1])}  {pad(cell, widths[2])}"
            lines.append(f"{line}  {size.rjust(widths[3])}")
        lines += [f"  {remark}" for remark in section.remarks]
    return printable_lines("\n".join([*lines, *view.notes]))


@in_view_language
def html(view: HoldersView) -> str:
    """Return the tables as static HTML."""
    parts = []
    for section in view.sections:
        rows = "".join(_row(row, "") for row in section.rows)
        rows += "".join(_row(row, f" style='{QUIET}'") for row in section.outside)
        remarks = "".join(f"<div style='{QUIET}'>{escape(remark)}</div>" for remark in section.remarks)
        parts.append(
            f"<div style='margin-top:6px'><b>{escape(section.title)}</b></div>"
            f"<div style='overflow-x:auto'><table cellpadding='4' style='{_TABLE}'>"
            f"<thead><tr style='{QUIET}'>{_head()}</tr></thead><tbody>{rows}</tbody></table></div>{remarks}"
        )
    parts += [f"<div style='{QUIET}'>{escape(note)}</div>" for note in view.notes]
    return f"<div style='{styles.FONT}'>{''.join(parts)}</div>"


@in_view_language
def cells_bundle(view: HoldersView, *, attached: bool) -> dict[str, str]:
    """Return the mime bundle for ``%gpu memory --cells``: which cells allocated the memory in use."""
    notes = view.notes[:1] if not view.sections else ()
    if not attached:
        notes = (_("Cells are known only for memory allocated after %load_ext gpuwidget."),)
    several = len({cell.device for cell in view.cells}) > 1
    rows = [
        (
            f"In [{cell.cell}]" if cell.cell is not None else "",
            clean_line(_(cell.source), _MAX_SOURCE),
            cell.device if several else "",
            units.memory(cell.bytes),
        )
        for cell in view.cells
    ]
    widths = [max((display_width(row[n]) for row in rows), default=0) for n in range(4)]
    lines = [
        "  ".join(pad(part, width) for part, width in zip(row[:3], widths, strict=False) if width)
        + f"  {row[3].rjust(widths[3])}"
        for row in rows
    ]
    body = "".join(
        f"<tr style='background:none'><td style='{LEFT}'>{escape(number).replace(' ', '&nbsp;')}</td>"
        f"<td style='{LEFT}'><code>{escape(source)}</code></td>"
        f"{f'<td>{escape(device)}</td>' if several else ''}<td>{styles.unbroken(size)}</td></tr>"
        for number, source, device, size in rows
    )
    table = f"<table cellpadding='4' style='{_TABLE}'><tbody>{body}</tbody></table>"
    remarks = "".join(f"<div style='{QUIET}'>{escape(note)}</div>" for note in notes)
    return {
        "text/plain": printable_lines("\n".join([*lines, *notes])),
        "text/html": f"<div style='{styles.FONT}'>{table if rows else ''}{remarks}</div>",
    }


def _head() -> str:
    """Return the titles of the columns as HTML."""
    columns = ((_("held by"), LEFT), (_("type"), LEFT), (_("cell"), LEFT), (_("memory"), ""))
    return "".join(
        f"<th scope='col' style='{f'{style};' if style else ''}font-weight:400'>{escape(name)}</th>"
        for name, style in columns
    )


def _section(
    name: str, device: DeviceMemory | None, found: Sequence[Holder], gpu: str | None, graphs: Iterable[str]
) -> DeviceSection:
    title = name if gpu is None else f"{name} ({gpu})"
    remarks: list[str] = []
    if device is not None:
        title = _(
            "{device}: {allocated} in tensors, {reserved} reserved",
            device=title,
            allocated=units.memory(device.allocated),
            reserved=units.memory(device.reserved),
        )
        remarks += _cache(device)
    inside = [holder for holder in found if holder.kind != "outside torch"]
    remarks += graphs
    rows = [_of_holder(holder) for holder in inside[:MAX_ROWS]]
    if len(inside) > MAX_ROWS:
        rest = inside[MAX_ROWS:]
        rows.append(
            HolderRow(
                _("{number} more", number=len(rest)), "", "", "", units.memory(sum(h.bytes for h in rest))
            )
        )
    outside = [_of_holder(holder) for holder in found if holder.kind == "outside torch"]
    return DeviceSection(title, tuple(rows), tuple(outside), tuple(remarks))


def _graphs(holders: Any, device: str) -> Iterator[str]:
    """Yield notes about memory that autograd graphs keep alive on one device."""
    saved = sorted((graph for graph in holders.saved if graph[1] == device), key=lambda graph: -graph[2])
    for name, _device, size in saved[:_MAX_NAMES]:
        yield (
            _(
                "{name}: {size} of its memory is saved in an autograd graph for backward().",
                name=clean_line(name, _MAX_NAME),
                size=units.memory(size),
            )
        )
    if holders.graphs and any(holder.kind == "unknown" for holder in holders.on(device)):
        some = ", ".join(clean_line(graph, _MAX_NAME) for graph in holders.graphs[:_MAX_NAMES])
        yield _(
            "{unknown}: the autograd graph of {some} may hold a part of this memory.",
            unknown=_UNKNOWN,
            some=some,
        )


def _cache(device: DeviceMemory) -> list[str]:
    if not device.cached:
        return []
    parts = [
        (device.returnable, _("can be freed (%gpu free --yes)")),
        (device.pending_free, _("can be freed once another stream no longer uses it")),
        (device.private_pools, _("is in private pools of CUDA graphs")),
        (device.fragmented, _("can't be freed, because it shares segments with tensors (fragmentation)")),
    ]
    said = ", ".join(f"{units.memory(size)} {what}" for size, what in parts if size)
    cache = _(
        "Cache: {cached} reserved but not in tensors, of which {said}.",
        cached=units.memory(device.cached),
        said=said,
    )
    if not device.alloc_retries:
        return [cache]
    flushed = counted(
        device.alloc_retries,
        "torch flushed it once to find memory.",
        "torch flushed it {number} times to find memory.",
    )
    return [f"{cache} {_(flushed)}"]


def _of_holder(holder: Holder) -> HolderRow:
    first, other_names = names(holder)
    kind = holder.type or ""
    if holder.kind == "notebook":
        named = not {LAST_ERROR, DEBUGGER}.isdisjoint(holder.names)
        kind = _(_NOTEBOOK) if named else f"{kind}, {_(_NOTEBOOK)}"
    if holder.kind == "outside torch":
        kind = _("outside torch")
    cell = f"In [{holder.cell}]" if holder.cell is not None else ""
    return HolderRow(first, other_names, clean_line(kind, _MAX_NAME), cell, units.memory(holder.bytes))


def _cells_of(row: HolderRow) -> tuple[str, str, str, str]:
    return (
        _("{name}, also {names}", name=row.what, names=row.other_names) if row.other_names else row.what,
        row.type,
        row.cell,
        row.size,
    )


def _row(row: HolderRow, style: str) -> str:
    other_names = (
        f" <span style='{QUIET}'>{escape(_('also {names}', names=row.other_names))}</span>"
        if row.other_names
        else ""
    )
    return (
        f"<tr style='background:none'><td style='{LEFT}'><span{style}>{escape(row.what)}</span>"
        f"{other_names}</td>"
        f"<td style='{LEFT}'>{escape(row.type)}</td><td style='{LEFT}'>{styles.unbroken(row.cell)}</td>"
        f"<td>{styles.unbroken(row.size)}</td></tr>"
    )
