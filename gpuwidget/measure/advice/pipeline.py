"""The rule of a GPU that waits for its data, and what the loader it waits for could do about it."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from gpuwidget.measure.advice.compute import SMALL_PART
from gpuwidget.measure.advice.evidence import (
    HAS_GAPS,
    Facts,
    Spot,
    advice,
    average,
    busiest,
    mean,
    names,
    power,
    power_share,
    spots,
)
from gpuwidget.model import units
from gpuwidget.model.report import Advice, GpuReport
from gpuwidget.model.units import GIB
from gpuwidget.pytorch.torch_variables import Loader

LEAST_SHARE = 20.0
"""Percent of the run's time in loading, from which on a faster loader is worth its while."""
GPU_IDLE = 30.0
"""Percent of GPU activity meanwhile, up to which the GPU waits. A loader that keeps up is waited for while
the GPU still works through what was queued."""
HALF_IDLE = 50.0
"""Percent of mean utilization up to which a GPU that works in bursts stands still most of the time.
Recorded: 18 in the starved phase."""
_TOOK_PART = 0.5
"""Percent of the time that a GPU must have worked to have waited for the rest of it."""
_FIRST_WORKERS = 8
AT_WORK = 2.0
"""Percent of utilization from which on a GPU took part. Recorded: 12 in a whole starved phase, idle ones
0."""
FEWEST_BURSTS = 5
BURSTS_A_SECOND = 0.3
"""How often work must begin anew. Recorded: 1.9 a second; a run with one long start-up has one."""
LOW_POWER = 60.0
"""Percent of the power limit. Recorded: 30; fully busy training 90 and more."""
SMALL_SHARED_MEMORY = 1 * GIB
"""Room in /dev/shm below which more workers may run out of it; a container has 64 MiB unless told
otherwise."""

_LOADERS_CALL = re.compile(
    r"^(?:torch\.utils\.data\.)?_?\w*DataLoader\w*\.|^_\w*DatasetFetcher\.|^torch\.(?:_next_data|_try_get_data)$"
)
"""DataLoader's own code; before Python 3.11 a function's class is not known."""
_LOADERS_FRAME = re.compile(r"[ .](?:__getitems?__|collate(?:_\w+)?|\w+_collate)$")
"""Functions of the user's that a DataLoader calls; others may call them too."""


def input_pipeline(facts: Facts) -> Advice | None:
    """The GPU stands still while the next batch is made."""
    seen = spots(facts)
    return _seen(facts, seen) if seen else _looks_starved(facts)


def _seen(facts: Facts, seen: Sequence[Spot]) -> Advice | None:
    utilization = busiest(facts)
    if utilization is None or not _TOOK_PART <= utilization <= HAS_GAPS or _feeds_nobody(facts):
        return None
    loaders = facts.around.loaders
    loading = [(spot, share) for spot in seen if (share := _loads(spot, loaders)) and _gpu_idle(spot, facts)]
    loading.sort(key=lambda one: -one[1])
    share = sum(share for _, share in loading)
    if share < LEAST_SHARE:
        return None
    first, most = loading[0]
    sure = any(_surely(spot, loaders) for spot, _ in loading)
    busy = _busy_meanwhile(loading)
    loader = _loader([spot for spot, _ in loading], loaders)
    where = first.within if len(loading) == 1 else f"loading, {most:.0f} % of it in {first.within}"
    meanwhile = f"was {busy:.0f} % busy" if busy is not None else f"was {utilization:.0f} % busy on average"
    return advice(
        "input-pipeline",
        f"{'The GPU waits' if sure else 'It looks as if the GPU waited'} for its data: {share:.0f} % of the "
        f"time went to {where}; the GPU {meanwhile}.",
        fix(loader, facts),
        {
            "share": share,
            "gpu_busy": busy,
            "utilization": utilization,
            "line": first.line.line,
            "frame": first.frame,
            "call": first.call,
            **_settings(loader, facts),
        },
        sure=sure,
    )


def _looks_starved(facts: Facts) -> Advice | None:
    at_work = [gpu for gpu in facts.gpus if (mean(gpu.utilization) or 0) >= AT_WORK]
    found = [gpu for gpu in at_work if _in_bursts(gpu, facts.gpu_s)]
    # Beside GPUs that work in another way, bursts may as well be what those leave to it.
    if not found or len(found) < len(at_work):
        return None
    busy = average([mean(gpu.utilization) for gpu in found])
    bursts = sum(gpu.bursts or 0 for gpu in found) / len(found) / facts.gpu_s
    loaders = facts.around.loaders
    loader = loaders[0] if len(loaders) == 1 else None
    return advice(
        "input-pipeline",
        f"{names(found)} worked in bursts ({bursts:.1f} a second), {busy:.0f} % of the time in all, at "
        f"{power(found)}: that looks like an input pipeline that can't keep up.",
        fix(loader, facts),
        {
            "utilization": busy,
            "bursts_a_second": bursts,
            "power_w": average([mean(gpu.power_w) for gpu in found]),
            "sm_activity": average([mean(gpu.sm_activity) for gpu in found]),
            "gpus": [gpu.index for gpu in found],
            **_settings(loader, facts),
        },
        sure=False,
    )


def fix(loader: Loader | None, facts: Facts) -> str:
    """What that loader could do, within the cores and the shared memory that this process may use."""
    cores = _cores(facts)
    if loader is None:
        bound = f" (up to {cores}: the cores this process may use)" if cores is not None else ""
        return (
            f"See what feeds the GPU. A DataLoader: num_workers{bound}, pin_memory=True, prefetch_factor=4."
        )
    now = f"{loader.name} has num_workers={loader.num_workers}, pin_memory={loader.pin_memory}"
    if cores is not None and loader.num_workers >= cores:
        return (
            f"{now}, as many workers as this process has cores for ({cores}): more don't help. Make an item "
            "cheaper: decode less, keep it decoded, do the rest on the GPU in batches."
        )
    # A step at a time: what keeps up with the GPU is known once it was tried.
    more = max(_FIRST_WORKERS, 2 * loader.num_workers)
    changes = [f"num_workers={min(cores, more)}" if cores is not None else "more workers"]
    changes += ["pin_memory=True"] if not loader.pin_memory else []
    changes += ["persistent_workers=True"] if not loader.persistent_workers else []
    changes += ["prefetch_factor=4"] if loader.num_workers and (loader.prefetch_factor or 2) <= 2 else []
    text = f"{now} now. Try {', '.join(changes)}."
    room = facts.around.shared_memory
    if room is not None and room.free < SMALL_SHARED_MEMORY:
        text += (
            f" Workers hand batches over in /dev/shm, where {units.memory(room.free)} are free: give the "
            "container more first (--shm-size)."
        )
    return text


def _feeds_nobody(facts: Facts) -> bool:
    """Whether the GPU is known to have had no work in any line: who keeps it busy is somebody else."""
    lines = facts.time.lines if facts.time is not None else ()
    at_most = 100.0 - sum(line.share for line in lines)
    at_most += sum(line.share * (100.0 if line.gpu_busy is None else line.gpu_busy) / 100 for line in lines)
    return at_most < _TOOK_PART


def _busy_meanwhile(loading: Sequence[tuple[Spot, float]]) -> float | None:
    busy, whole = 0.0, 0.0
    for spot, share in loading:
        if spot.gpu_busy is None:
            return None
        busy, whole = busy + share * spot.gpu_busy, whole + share
    return busy / whole


def _loads(spot: Spot, loaders: Sequence[Loader]) -> float:
    """Percent of the run's time that went to loading there."""
    if spot.call is not None and _LOADERS_CALL.search(spot.call):
        return spot.call_share or 0.0
    if (spot.frame is not None and _LOADERS_FRAME.search(spot.frame)) or _iterates_one(spot, loaders):
        return spot.share
    return 0.0


def _surely(spot: Spot, loaders: Sequence[Loader]) -> bool:
    return bool(loaders) or (spot.call is not None and _LOADERS_CALL.search(spot.call) is not None)


def _iterates_one(spot: Spot, loaders: Sequence[Loader]) -> bool:
    # What the loader's line calls is the loader's doing, unless a frame of the user's says otherwise, or
    # lines that can't be told apart stand together.
    alone = spot.frame is None and spot.line.until is None
    return alone and any(_iterates(spot.source, loader.name) for loader in loaders)


def _iterates(source: str, name: str) -> bool:
    """Whether that line does nothing but take the next batch: what else stands on it may be the cause."""
    one = rf"\b{re.escape(name)}\b"
    head = rf"^\s*(?:async\s+)?for\b.+\bin\b.*{one}.*:\s*(?:#.*)?$"
    return re.search(rf"{head}|^[\w\s,()]*=\s*next\(.*{one}", source) is not None


def _gpu_idle(spot: Spot, facts: Facts) -> bool:
    if spot.gpu_busy is not None:
        return spot.gpu_busy <= GPU_IDLE
    utilization = busiest(facts)
    return facts.own and utilization is not None and utilization <= HALF_IDLE


def _in_bursts(gpu: GpuReport, seconds: float) -> bool:
    if gpu.utilization is None or gpu.bursts is None:
        return False
    busy, share, sm = gpu.utilization.mean, power_share(gpu), mean(gpu.sm_activity)
    return (
        busy <= HALF_IDLE
        and gpu.bursts >= max(FEWEST_BURSTS, BURSTS_A_SECOND * seconds)
        and share is not None
        and share <= LOW_POWER
        and (sm is None or sm > SMALL_PART * busy)
    )


def _loader(loading: Sequence[Spot], loaders: Sequence[Loader]) -> Loader | None:
    """The one that the lines name, or the only one there is."""
    texts = [text for spot in loading for text in (spot.line.source, spot.source)]
    named = [one for one in loaders if any(re.search(rf"\b{re.escape(one.name)}\b", text) for text in texts)]
    candidates = named or list(loaders)
    return candidates[0] if len(candidates) == 1 else None


def _cores(facts: Facts) -> int | None:
    """How many workers have a core each, the main process's left out."""
    cores = facts.around.cores
    return None if cores is None else max(1, math.floor(cores) - 1)


def _settings(loader: Loader | None, facts: Facts) -> dict[str, object]:
    """What is known of the loader now, for the evidence."""
    found: dict[str, object] = {"cores": facts.around.cores}
    if facts.around.shared_memory is not None:
        found["shared_memory_free_bytes"] = facts.around.shared_memory.free
    if loader is not None:
        found |= {
            "num_workers": loader.num_workers,
            "pin_memory": loader.pin_memory,
            "prefetch_factor": loader.prefetch_factor,
            "persistent_workers": loader.persistent_workers,
        }
    return found
