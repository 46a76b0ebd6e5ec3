"""``%gpu free``: free torch's cache, and memory that is held only by IPython's references to past results and
errors.

Without ``--yes``, the command only lists that memory. It deletes variables only if the user names them. The
amount of freed memory is the difference between the driver's readings before and after.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from gpuwidget import pytorch
from gpuwidget.heap.heap_walk import Root
from gpuwidget.kernel.attribution import memory_holders
from gpuwidget.kernel.attribution.memory_holders import HolderSearch
from gpuwidget.kernel.commands.subcommands import Invocation
from gpuwidget.kernel.devices.driver_memory import FreedMemory
from gpuwidget.kernel.shell import shell_references
from gpuwidget.measure.holder_ranking import DEBUGGER, LAST_ERROR
from gpuwidget.model import units
from gpuwidget.model.boundary import stopped
from gpuwidget.model.errors import OptionError
from gpuwidget.model.translation import _, in_view_language, joined, translatable

_LOG = logging.getLogger(__name__)

_MIN_UNNAMED = 1 << 20
"""Fewer bytes to which no name leads are not listed: libraries such as cuBLAS hold some in any case."""

_FAILED = translatable("Nothing was freed: gpuwidget could not find out what holds torch's memory.")
_USAGE = translatable(
    "%gpu free            list the memory that can be freed: results of past cells, torch's cache\n"
    "%gpu free --yes      free it\n"
    "%gpu free NAME ...   delete these variables"
)


@in_view_language
def command(invocation: Invocation) -> None:
    """Run ``%gpu free [--yes] [NAME …]``."""
    shell, arguments = invocation.shell, invocation.arguments
    names = [argument for argument in arguments if not argument.startswith("-")]
    if any(argument.startswith("-") and argument != "--yes" for argument in arguments):
        raise invocation.wrong_arguments(_USAGE)
    lines: list[str] = []
    if names:
        lines += _delete(shell, names)
    if "--yes" in arguments:
        lines += _release(shell)
    elif not names:
        lines += _list_freeable(shell)
    invocation.display_text("\n".join(lines))


def _list_freeable(shell: Any) -> list[str]:
    search = _search(shell)
    if isinstance(search, str):
        return [_(search)]
    freeable = _freeable(search)
    lines = [
        f"  {_(joined(search.found.names[root]))}: {units.memory(size)}" for root, size in freeable.items()
    ]
    cache = sum(blocks.returnable for blocks in search.blocks.values())
    if cache:
        lines.append("  " + _("torch's cache: {size}", size=units.memory(cache)))
    unnamed = _unnamed(search)
    if unnamed >= _MIN_UNNAMED:
        lines.append(
            "  "
            + _(
                "memory to which no name leads, if Python has not collected it yet: up to {size}",
                size=units.memory(unnamed),
            )
        )
    lines = [_("%gpu free --yes would release:"), *lines] if lines else [_("There is nothing to free.")]
    lost = _lost_references(search, freeable)
    if lost:
        lines.append(_("This also deletes: {names}.", names=joined(lost)))
    kept = _kept_by_variables(search, freeable)
    if kept:
        lines.append(
            _(
                "Not freed, because the variable in parentheses holds the same memory: {names}.",
                names=joined(kept),
            )
        )
    return lines


def _release(shell: Any) -> list[str]:
    search = _search(shell)
    if isinstance(search, str):
        return [_(search)]
    freeable = _freeable(search)
    freed, allocated = FreedMemory(), _allocated()
    lost = _lost_references(search, freeable)
    roots = [search.roots[number] for owner in freeable for number in search.found.leading_roots[owner]]
    shell_references.release(shell, [root for root in roots if root.kind == "notebook"])
    del search, roots, freeable
    gc.collect()  # free reference cycles, such as an error and its frames
    pytorch.empty_cache()
    tensors = allocated - _allocated()
    lines = [_("Released {size} of tensors.", size=units.memory(tensors))] if tensors > 0 else []
    lines.append(_(freed.describe()))
    return [*lines, _("Also deleted: {names}.", names=joined(lost))] if lost else lines


def _delete(shell: Any, names: Sequence[str]) -> list[str]:
    unknown = [name for name in names if not shell_references.is_user_variable(shell, name)]
    if unknown:
        raise OptionError(
            translatable(
                "Nothing was deleted, because you have no variable with this name: {names}. %gpu free --yes "
                "frees what the notebook itself keeps.",
                names=", ".join(unknown),
            )
        )
    before = _allocated()
    for name in dict.fromkeys(names):
        del shell.user_ns[name]
    gc.collect()
    released = before - _allocated()
    deleted = ", ".join(dict.fromkeys(names))
    reason = pytorch.no_counters_reason()
    if reason is not None:
        return [
            _(
                "Deleted {names}. Couldn't tell how much GPU memory this released, because {reason}.",
                names=deleted,
                reason=reason,
            )
        ]
    if released <= 0:
        return [
            _(
                "Deleted {names}. This released none of torch's GPU memory. %gpu memory shows what holds it.",
                names=deleted,
            )
        ]
    return [
        _(
            "Deleted {names}. {size} went back to torch's cache, which %gpu free --yes frees.",
            names=deleted,
            size=units.memory(released),
        )
    ]


def _search(shell: Any) -> HolderSearch | str:
    """Return the result of the search for the holders of torch's memory, or why nothing can be freed."""
    reason = pytorch.no_counters_reason()
    if reason is not None:
        return translatable("Nothing to free, because {reason}.", reason=reason)
    try:
        return memory_holders.search(shell)
    except BaseException as error:
        stopped(_LOG, "Could not find the holders of torch's memory", error)
        return _FAILED


def _freeable(search: HolderSearch) -> dict[int, int]:
    """Return the bytes that only IPython's references hold, by index in ``search.roots``, the largest
    first."""
    sums: dict[int, int] = {}
    for index, blocks in search.blocks.items():
        for owner, size in zip(search.found.owners[index], blocks.sizes, strict=True):
            if owner is not None and search.roots[owner].kind == "notebook":
                sums[owner] = sums.get(owner, 0) + size
    return dict(sorted(sums.items(), key=lambda item: -item[1]))


def _unnamed(search: HolderSearch) -> int:
    """Return the bytes to which no name leads. Some may be garbage in reference cycles, such as the frames of
    earlier errors, which is only found out by collecting it."""
    return sum(
        size
        for index, blocks in search.blocks.items()
        for owner, size in zip(search.found.owners[index], blocks.sizes, strict=True)
        if owner is None
    )


def _lost_references(search: HolderSearch, freeable: Mapping[int, int]) -> list[str]:
    lost: list[str] = []
    for owner in freeable:
        for number in search.found.leading_roots[owner]:
            root: Root = search.roots[number]
            if root.name in (LAST_ERROR, DEBUGGER):
                lost.append(translatable("%debug and %tb of the last error"))
            elif root.kind == "notebook" and root.name.startswith("Out["):
                lost.append(root.name)
    return list(dict.fromkeys(lost))


def _kept_by_variables(search: HolderSearch, freeable: Mapping[int, int]) -> list[str]:
    """Return IPython's references to memory that variables hold, too.

    Deleting these references would free nothing.
    """
    dropped = {
        search.roots[number].name for owner in freeable for number in search.found.leading_roots[owner]
    }
    found: list[str] = []
    for owner, numbers in search.found.leading_roots.items():
        if search.roots[owner].kind == "variable":
            kept = [search.roots[n].name for n in numbers if search.roots[n].kind == "notebook"]
            kept = [name for name in dict.fromkeys(kept) if name == LAST_ERROR or name.startswith("Out[")]
            found += [
                translatable("{name} ({variable})", name=name, variable=search.roots[owner].name)
                for name in kept
                if name not in dropped
            ]
    return found


def _allocated() -> int:
    return sum(counters.allocated for counters in pytorch.allocator_counters().values())
