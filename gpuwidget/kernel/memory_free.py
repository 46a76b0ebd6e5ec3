"""``%gpu free``: what the notebook itself holds, and torch's cache, given back when the user says so.

A user's variable goes only by its name. What was released is what the driver says, before and after.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping, Sequence
from typing import Any

from gpuwidget import torch_allocator, torch_state, units
from gpuwidget.errors import OptionError
from gpuwidget.kernel import devices, memory, notebook_holds
from gpuwidget.kernel.memory import Look
from gpuwidget.kernel.notebook_holds import DEBUGGER, ERROR
from gpuwidget.torch_storages import Root

_PATIENCE_S = 0.5
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
    shell.display_pub.publish(data={"text/plain": "\n".join(lines)}, metadata={})


def _offer(shell: Any) -> list[str]:
    reason = torch_allocator.why_none()
    if reason is not None:
        return [f"Nothing to free: {reason}."]
    seen = memory.search(shell)
    held = _held(seen)
    lines = [f"  {', '.join(_named(seen, root))}: {units.memory(size)}" for root, size in held.items()]
    cache = sum(blocks.returnable for blocks in seen.blocks.values())
    if cache:
        lines.append(f"  torch's cache: {units.memory(cache)}")
    lines = ["%gpu free --yes would release:", *lines] if lines else ["There is nothing to free."]
    losses = _losses(seen, held)
    if losses:
        lines.append(f"Lost with it: {', '.join(losses)}.")
    also = _named_too(seen)
    if also:
        lines.append(f"Kept, since a variable holds it too: {', '.join(also)}.")
    return lines


def _release(shell: Any) -> list[str]:
    reason = torch_allocator.why_none()
    if reason is not None:
        return [f"Nothing to free: {reason}."]
    in_use, allocated, reserved = _driver(), _allocated(), _reserved()
    seen = memory.search(shell)
    held = _held(seen)
    losses = _losses(seen, held)
    roots = [seen.roots[number] for owner in held for number in seen.reached.ways[owner]]
    notebook_holds.release(shell, [root for root in roots if root.kind == "notebook"])
    del seen, roots, held
    gc.collect()  # frames and the errors that hold them refer to each other
    torch: Any = torch_state.loaded()
    torch.cuda.empty_cache()
    tensors, given = allocated - _allocated(), reserved - _reserved()
    lines = [f"Released {units.memory(tensors)} of tensors."] if tensors > 0 else []
    lines.append(_given_back(in_use, given))
    return [*lines, f"Lost with it: {', '.join(losses)}."] if losses else lines


def _delete(shell: Any, names: Sequence[str]) -> list[str]:
    unknown = [name for name in names if not notebook_holds.is_users(shell, name)]
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
    if released <= 0:
        return [f"{deleted}: no GPU memory was released. %gpu memory shows what else holds it."]
    return [f"{deleted}: {units.memory(released)} went back to torch's cache; %gpu free --yes empties that."]


def _held(seen: Look) -> dict[int, int]:
    """By number of a notebook's root: the bytes that no variable leads to; the largest first."""
    sums: dict[int, int] = {}
    for index, blocks in seen.blocks.items():
        for owner, size in zip(seen.reached.owners[index], blocks.sizes, strict=True):
            if owner is not None and seen.roots[owner].kind == "notebook":
                sums[owner] = sums.get(owner, 0) + size
    return dict(sorted(sums.items(), key=lambda item: -item[1]))


def _named(seen: Look, root: int) -> Sequence[str]:
    return seen.reached.names[root]


def _losses(seen: Look, held: Mapping[int, int]) -> list[str]:
    lost: list[str] = []
    for owner in held:
        for number in seen.reached.ways[owner]:
            root: Root = seen.roots[number]
            if root.name in (ERROR, DEBUGGER):
                lost.append("%debug and %tb of the last error")
            elif root.kind == "notebook" and root.name.startswith("Out["):
                lost.append(root.name)
    return list(dict.fromkeys(lost))


def _named_too(seen: Look) -> list[str]:
    """What the notebook holds of the user's own variables: freeing it would release nothing."""
    found = []
    for owner, numbers in seen.reached.ways.items():
        if seen.roots[owner].kind == "variable":
            kept = [seen.roots[n].name for n in numbers if seen.roots[n].kind == "notebook"]
            kept = [name for name in dict.fromkeys(kept) if name == ERROR or name.startswith("Out[")]
            found += [f"{name} ({seen.roots[owner].name})" for name in kept]
    return found


def _allocated() -> int:
    return sum(counters.allocated for counters in torch_state.counters().values())


def _reserved() -> int:
    return sum(counters.reserved for counters in torch_state.counters().values())


def _driver() -> dict[str, int]:
    """Bytes in use on each GPU on which this process has a context, as the driver says now."""
    sample = devices.observer().look(_PATIENCE_S)
    if sample is None or sample.origin.kind != "nvml":
        return {}
    in_use = torch_state.devices_with_context()
    uuids = [device.uuid for device in torch_state.devices() if device.index in in_use]
    return {
        f"GPU {gpu.index}": reading.memory_used
        for gpu, reading in zip(sample.gpus, sample.readings, strict=True)
        if reading.memory_used is not None and any(torch_state.same_gpu(gpu.uuid, uuid) for uuid in uuids)
    }


def _given_back(before: Mapping[str, int], reserved: int) -> str:
    """What other programs can have now, by the driver's count, else by torch's."""
    after = _driver()
    if not before or after.keys() != before.keys():
        return f"Given back to the GPU: {units.memory(reserved)} by torch's count; the driver's is not known."
    changes = [
        f"{units.memory(before[name] - after[name])} on {name}"
        for name in before
        if before[name] > after[name]
    ]
    return f"Given back: {', '.join(changes) or 'nothing'}, as the driver sees it."
