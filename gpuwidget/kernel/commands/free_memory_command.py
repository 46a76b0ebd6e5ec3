"""``%gpu free``: what the notebook itself holds, and torch's cache, given back when the user says so.

A user's variable goes only by its name. What was released is what the driver says, before and after.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from gpuwidget.heap.heap_walk import Root
from gpuwidget.kernel.attribution import memory_holders
from gpuwidget.kernel.attribution.memory_holders import HolderSearch
from gpuwidget.kernel.devices import driver_memory
from gpuwidget.kernel.shell import shell_references
from gpuwidget.measure.memory_holders import DEBUGGER, LAST_ERROR
from gpuwidget.model import units
from gpuwidget.model.errors import OptionError
from gpuwidget.model.terminal_text import printable_lines
from gpuwidget.pytorch import cuda_state

_LOG = logging.getLogger(__name__)

_FAILED = "Nothing was freed: gpuwidget could not look at what holds torch's memory."
_USAGE = (
    "%gpu free: what the notebook itself holds and torch's cache, as a list; --yes gives it back; with "
    "names, these variables are deleted."
)


def free(shell: Any, words: Sequence[str]) -> None:
    """``%gpu free [--yes] [NAME …]``."""
    names = [word for word in words if not word.startswith("-")]
    if any(word.startswith("-") and word != "--yes" for word in words):
        raise OptionError(f"{'%gpu free ' + ' '.join(words)!r} is not known. {_USAGE}")
    lines: list[str] = []
    if names:
        lines += _delete(shell, names)
    if "--yes" in words:
        lines += _release(shell)
    elif not names:
        lines += _offer(shell)
    shell.display_pub.publish(data={"text/plain": printable_lines("\n".join(lines))}, metadata={})


def _offer(shell: Any) -> list[str]:
    seen = _search(shell)
    if isinstance(seen, str):
        return [seen]
    held = _held(seen)
    lines = [f"  {', '.join(_named(seen, root))}: {units.memory(size)}" for root, size in held.items()]
    cache = sum(blocks.returnable for blocks in seen.blocks.values())
    if cache:
        lines.append(f"  torch's cache: {units.memory(cache)}")
    lines = ["%gpu free --yes would release:", *lines] if lines else ["There is nothing to free."]
    losses = _losses(seen, held)
    if losses:
        lines.append(f"Lost with it: {', '.join(losses)}.")
    also = _named_too(seen, held)
    if also:
        lines.append(f"Kept, since a variable holds it too: {', '.join(also)}.")
    return lines


def _release(shell: Any) -> list[str]:
    seen = _search(shell)
    if isinstance(seen, str):
        return [seen]
    held = _held(seen)
    before, allocated, reserved = driver_memory.look(), _allocated(), _reserved()
    losses = _losses(seen, held)
    roots = [seen.roots[number] for owner in held for number in seen.found.leading_roots[owner]]
    shell_references.release(shell, [root for root in roots if root.kind == "notebook"])
    del seen, roots, held
    gc.collect()  # frames and the errors that hold them refer to each other
    torch: Any = cuda_state.loaded_torch()
    torch.cuda.empty_cache()
    tensors, given = allocated - _allocated(), reserved - _reserved()
    lines = [f"Released {units.memory(tensors)} of tensors."] if tensors > 0 else []
    lines.append(driver_memory.given_back(before, driver_memory.look(), given))
    return [*lines, f"Lost with it: {', '.join(losses)}."] if losses else lines


def _delete(shell: Any, names: Sequence[str]) -> list[str]:
    unknown = [name for name in names if not shell_references.is_user_variable(shell, name)]
    if unknown:
        raise OptionError(
            f"{', '.join(unknown)}: no variable of yours, so nothing was deleted. What the notebook itself "
            "holds goes with %gpu free --yes."
        )
    before = _allocated()
    for name in dict.fromkeys(names):
        del shell.user_ns[name]
    gc.collect()
    released = before - _allocated()
    deleted = f"Deleted {', '.join(dict.fromkeys(names))}"
    reason = cuda_state.no_counters_reason()
    if reason is not None:
        return [f"{deleted}: how much GPU memory that released is not known: {reason}."]
    if released <= 0:
        return [f"{deleted}: no GPU memory of torch's was released. %gpu memory shows what else holds it."]
    return [f"{deleted}: {units.memory(released)} went back to torch's cache; %gpu free --yes empties that."]


def _search(shell: Any) -> HolderSearch | str:
    """What can be freed, or why nothing can."""
    reason = cuda_state.no_counters_reason()
    if reason is not None:
        return f"Nothing to free: {reason}."
    try:
        return memory_holders.search(shell)
    except Exception:
        _LOG.debug("memory was not looked at", exc_info=True)
        return _FAILED


def _held(seen: HolderSearch) -> dict[int, int]:
    """By number of a notebook's root: the bytes that no variable leads to; the largest first."""
    sums: dict[int, int] = {}
    for index, blocks in seen.blocks.items():
        for owner, size in zip(seen.found.owners[index], blocks.sizes, strict=True):
            if owner is not None and seen.roots[owner].kind == "notebook":
                sums[owner] = sums.get(owner, 0) + size
    return dict(sorted(sums.items(), key=lambda item: -item[1]))


def _named(seen: HolderSearch, root: int) -> Sequence[str]:
    return seen.found.names[root]


def _losses(seen: HolderSearch, held: Mapping[int, int]) -> list[str]:
    lost: list[str] = []
    for owner in held:
        for number in seen.found.leading_roots[owner]:
            root: Root = seen.roots[number]
            if root.name in (LAST_ERROR, DEBUGGER):
                lost.append("%debug and %tb of the last error")
            elif root.kind == "notebook" and root.name.startswith("Out["):
                lost.append(root.name)
    return list(dict.fromkeys(lost))


def _named_too(seen: HolderSearch, held: Mapping[int, int]) -> list[str]:
    """What the notebook holds of the user's own variables: freeing it would release nothing."""
    going = {seen.roots[number].name for owner in held for number in seen.found.leading_roots[owner]}
    found = []
    for owner, numbers in seen.found.leading_roots.items():
        if seen.roots[owner].kind == "variable":
            kept = [seen.roots[n].name for n in numbers if seen.roots[n].kind == "notebook"]
            kept = [name for name in dict.fromkeys(kept) if name == LAST_ERROR or name.startswith("Out[")]
            found += [f"{name} ({seen.roots[owner].name})" for name in kept if name not in going]
    return found


def _allocated() -> int:
    return sum(counters.allocated for counters in cuda_state.counters().values())


def _reserved() -> int:
    return sum(counters.reserved for counters in cuda_state.counters().values())
