"""Rule for a GPU that waits for its input data, with loader settings that could help."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import partial

from gpuwidget.measure.advice.compute import SMALL_PART
from gpuwidget.measure.advice.evidence import (
    HAS_GAPS,
    Hotspot,
    RunEvidence,
    busiest,
    hotspots,
    mean,
    mean_level,
    mean_power,
    mean_utilization,
    power_share,
)
from gpuwidget.measure.advice.rule import Finding, Rule, numbers, power
from gpuwidget.model.messages import Sentences
from gpuwidget.model.report import GpuReport
from gpuwidget.model.torch_state import Loader
from gpuwidget.model.translation import joined, translatable
from gpuwidget.model.units import GIB

MIN_SHARE = 20.0
"""Percent of the run's time spent on loading data, at or above which a faster loader is worth the effort."""
GPU_IDLE = 30.0
"""GPU activity during loading, in percent, at or below which the GPU waits for data. The code may also wait
for a loader that is fast enough for the GPU. The GPU then still has queued work, so its activity is
higher."""
HALF_IDLE = 50.0
"""Mean utilization, in percent, at or below which a GPU that works in bursts is mostly idle. In recorded
runs: 18 while the GPU lacks data."""
_TOOK_PART = 0.5
"""With stack samples, a GPU that worked for less than this percentage of the time counts as having taken no
part in the run, so its idle time does not count as waiting for data."""
_FIRST_WORKERS = 8
MIN_UTILIZATION = 2.0
"""Without stack samples, a GPU counts as having taken part in the work if its mean utilization was at least
this percentage. In recorded runs: 12 while the GPU lacks data, 0 for idle GPUs."""
MIN_BURSTS = 5
MIN_BURSTS_PER_SECOND = 0.3
"""Minimum bursts of work per second. In recorded runs: 1.9 while the GPU lacks data. The minimum excludes
runs whose GPU idled only during a long start-up, because they have a single burst."""
LOW_POWER = 60.0
"""Mean power, in percent of the power limit, at or below which a GPU is often idle. In recorded runs: 30 with
bursts, 90 or more for fully busy training."""
SMALL_SHARED_MEMORY = 1 * GIB
"""Free bytes in /dev/shm below which more workers may exhaust it. In a container, /dev/shm has 64 MiB by
default."""

_LOADER_CALL = re.compile(
    r"^(?:torch\.utils\.data\.)?_?\w*DataLoader\w*\.|^_\w*DatasetFetcher\.|^torch\.(?:_next_data|_try_get_data)$"
)
"""Matches calls inside DataLoader. Before Python 3.11, a function's class is unknown, so two methods of
DataLoader are also matched by package (``torch._next_data``)."""
_LOADER_CALLBACK = re.compile(r"[ .](?:__getitems?__|collate(?:_\w+)?|\w+_collate)$")
"""Matches the user's functions that a DataLoader calls. Other code may call them too."""


WAITS = translatable("The GPU waits for its data.")
PROBABLY_WAITS = translatable("The GPU probably waits for its data.")
LOADING = Sentences(
    (
        "Loading took {share:.0f} % of the time, and {where} alone took {most:.0f} %.",
        "{share:.0f} % of the time went to {where}.",
    ),
    (
        "Meanwhile, the GPU was {busy:.0f} % busy.",
        "On average, the GPU was {utilization:.0f} % busy.",
    ),
)
BURSTS = Sentences(
    "The input pipeline probably can't keep up. {gpus:gpu_names} worked in bursts ({bursts:.1f} per second), "
    "{utilization:.0f} % of the time in total, at {power}."
)
FEED_GPU = Sentences(
    (
        "Check the code that feeds the GPU. For a DataLoader: num_workers (up to {cores}, the cores that "
        "this process may use), pin_memory=True, prefetch_factor=4.",
        "Check the code that feeds the GPU. For a DataLoader: num_workers, pin_memory=True, "
        "prefetch_factor=4.",
    )
)
SETTINGS = Sentences("{name} has `num_workers={num_workers}, pin_memory={pin_memory}`")
CHEAPER_ITEMS = Sentences(
    "{settings}: this process may use {cores} cores, so more workers don't help. Make each item cheaper: "
    "store the items already decoded or smaller, and do the other transforms on the GPU."
)
CHANGE_SETTINGS = Sentences(
    "{settings} now. Try {changes:list}.",
    "Workers pass batches through /dev/shm, which has only {free:memory} free: free or enlarge it first (in "
    "a container: --shm-size).",
)
MORE_WORKERS = translatable("more workers")


@partial(
    Rule,
    "input-pipeline",
    {
        "share": "%",
        "gpu_busy": "%",
        "utilization": "%",
        "line": "name",
        "frame": "name",
        "call": "name",
        "bursts_a_second": "1/s",
        "power_w": "W",
        "sm_activity": "%",
        "gpus": "GPU index",
        "cores": "count",
        "shared_memory_free_bytes": "bytes",
        "num_workers": "setting",
        "pin_memory": "setting",
        "prefetch_factor": "setting",
        "persistent_workers": "setting",
    },
    order=140,
    beside_straggler=False,
    part="steady part of workers",
)
def input_pipeline(evidence: RunEvidence) -> Finding | None:
    """Return advice if the GPU is idle while the code loads the next batch."""
    spots = hotspots(evidence)
    return _from_hotspots(evidence, spots) if spots else _from_bursts(evidence)


def _from_hotspots(evidence: RunEvidence, spots: Sequence[Hotspot]) -> Finding | None:
    utilization = busiest(evidence)
    if utilization is None or not _TOOK_PART <= utilization <= HAS_GAPS or _no_line_uses_gpu(evidence):
        return None
    loaders = evidence.context.loaders
    loading = [
        (spot, share)
        for spot in spots
        if (share := _loading_share(spot, loaders)) and _is_gpu_idle(spot, evidence)
    ]
    loading.sort(key=lambda candidate: -candidate[1])
    share = sum(share for _, share in loading)
    if share < MIN_SHARE:
        return None
    first, most = loading[0]
    sure = bool(loaders) or any(_is_loader_call(spot.call) for spot, _ in loading)
    busy = _busy_while_loading(loading)
    loader = _loader([spot for spot, _ in loading], loaders)
    alone = len(loading) == 1 or f"{share:.0f}" == f"{most:.0f}"
    text = LOADING(
        share=share,
        where=first.name_with_call,
        most=None if alone else most,
        busy=busy,
        utilization=utilization,
    )
    return Finding(
        joined([WAITS if sure else PROBABLY_WAITS, text], " "),
        _loader_fix(loader, evidence),
        {
            "share": share,
            "gpu_busy": busy,
            "utilization": utilization,
            "line": first.line.line,
            "frame": first.frame,
            "call": first.call,
            **_loader_evidence(loader, evidence),
        },
        sure=sure,
    )


def _from_bursts(evidence: RunEvidence) -> Finding | None:
    busy_gpus = [gpu for gpu in evidence.gpus if (mean(gpu.utilization) or 0) >= MIN_UTILIZATION]
    found = [gpu for gpu in busy_gpus if _works_in_bursts(gpu, evidence.gpu_s)]
    # If other GPUs work steadily, the bursts may just be this GPU's smaller share of the work, so there is no
    # advice.
    if not found or len(found) < len(busy_gpus):
        return None
    busy = mean_utilization(found)
    bursts = sum(gpu.bursts or 0 for gpu in found) / len(found) / evidence.gpu_s
    loaders = evidence.context.loaders
    loader = loaders[0] if len(loaders) == 1 else None
    return Finding(
        BURSTS(gpus=numbers(found), bursts=bursts, utilization=busy, power=power(found)),
        _loader_fix(loader, evidence),
        {
            "utilization": busy,
            "bursts_a_second": bursts,
            "power_w": mean_power(found),
            "sm_activity": mean_level(found, "sm_activity"),
            "gpus": [gpu.index for gpu in found],
            **_loader_evidence(loader, evidence),
        },
        sure=False,
    )


def _loader_fix(loader: Loader | None, evidence: RunEvidence) -> str:
    """Return the fix for a slow loader, suited to the CPU cores and shared memory of this process."""
    cores = _worker_cores(evidence)
    if loader is None:
        return FEED_GPU(cores=cores)
    settings = SETTINGS(name=loader.name, num_workers=loader.num_workers, pin_memory=loader.pin_memory)
    if cores is not None and loader.num_workers >= cores:
        return CHEAPER_ITEMS(settings=settings, cores=cores)
    # Only a trial shows how many workers keep up with the GPU, so suggest one step at a time.
    workers = max(_FIRST_WORKERS, 2 * loader.num_workers)
    changes = [MORE_WORKERS if cores is None else f"num_workers={min(cores, workers)}"]
    changes += ["pin_memory=True"] if not loader.pin_memory else []
    changes += ["persistent_workers=True"] if not loader.persistent_workers else []
    changes += ["prefetch_factor=4"] if loader.num_workers and (loader.prefetch_factor or 2) <= 2 else []
    memory = evidence.context.shared_memory
    scarce = memory is not None and memory.free < SMALL_SHARED_MEMORY
    return CHANGE_SETTINGS(
        settings=settings, changes=changes, free=memory.free if memory is not None and scarce else None
    )


def _no_line_uses_gpu(evidence: RunEvidence) -> bool:
    """Return whether this process left the GPU idle during every line. If so, all measured GPU work was done
    by other processes."""
    lines = evidence.time.lines if evidence.time is not None else ()
    at_most = 100.0 - sum(line.share for line in lines)
    at_most += sum(line.share * (100.0 if line.gpu_busy is None else line.gpu_busy) / 100 for line in lines)
    return at_most < _TOOK_PART


def _busy_while_loading(loading: Sequence[tuple[Hotspot, float]]) -> float | None:
    busy, total = 0.0, 0.0
    for spot, share in loading:
        if spot.gpu_busy is None:
            return None
        busy, total = busy + share * spot.gpu_busy, total + share
    return busy / total


def _loading_share(spot: Hotspot, loaders: Sequence[Loader]) -> float:
    """Return the percent of the run's time that a hotspot spends on loading data."""
    if _is_loader_call(spot.call):
        return spot.call_share or 0.0
    if (spot.frame is not None and _LOADER_CALLBACK.search(spot.frame)) or _only_iterates(spot, loaders):
        return spot.share
    return 0.0


def _is_loader_call(call: str | None) -> bool:
    return call is not None and _LOADER_CALL.search(call) is not None


def _only_iterates(spot: Hotspot, loaders: Sequence[Loader]) -> bool:
    """Return whether a hotspot is one line that only iterates over a loader.

    All time of such a line is spent in the loader. A hotspot in one of the user's functions or over several
    lines does not count.
    """
    alone = spot.frame is None and spot.line.until is None
    return alone and any(_takes_batch(spot.source, loader.name) for loader in loaders)


def _takes_batch(source: str, name: str) -> bool:
    """Return whether a source line only takes the next batch from the loader and does nothing else."""
    loader = rf"\b{re.escape(name)}\b"
    head = rf"^\s*(?:async\s+)?for\b.+\bin\b.*{loader}.*:\s*(?:#.*)?$"
    return re.search(rf"{head}|^[\w\s,()]*=\s*next\(.*{loader}", source) is not None


def _is_gpu_idle(spot: Hotspot, evidence: RunEvidence) -> bool:
    if spot.gpu_busy is not None:
        return spot.gpu_busy <= GPU_IDLE
    utilization = busiest(evidence)
    return evidence.own and utilization is not None and utilization <= HALF_IDLE


def _works_in_bursts(gpu: GpuReport, seconds: float) -> bool:
    if gpu.utilization is None or gpu.bursts is None:
        return False
    busy, share, sm = gpu.utilization.mean, power_share(gpu), mean(gpu.levels["sm_activity"])
    return (
        busy <= HALF_IDLE
        and gpu.bursts >= max(MIN_BURSTS, MIN_BURSTS_PER_SECOND * seconds)
        and share is not None
        and share <= LOW_POWER
        and (sm is None or sm > SMALL_PART * busy)
    )


def _loader(loading: Sequence[Hotspot], loaders: Sequence[Loader]) -> Loader | None:
    """Return the loader that the hotspots' source names or, if it names none, the run's loader.

    Return None unless there is exactly one such loader.
    """
    texts = [text for spot in loading for text in (spot.line.source, spot.source)]
    named = [
        loader
        for loader in loaders
        if any(re.search(rf"\b{re.escape(loader.name)}\b", text) for text in texts)
    ]
    candidates = named or list(loaders)
    return candidates[0] if len(candidates) == 1 else None


def _worker_cores(evidence: RunEvidence) -> int | None:
    """Return the number of workers that can each have a CPU core if the main process keeps one."""
    cores = evidence.context.cores
    return None if cores is None else max(1, math.floor(cores) - 1)


def _loader_evidence(loader: Loader | None, evidence: RunEvidence) -> dict[str, object]:
    """Return the loader's settings and this process's limits on cores and shared memory."""
    found: dict[str, object] = {"cores": evidence.context.cores}
    if evidence.context.shared_memory is not None:
        found["shared_memory_free_bytes"] = evidence.context.shared_memory.free
    if loader is not None:
        found |= {
            "num_workers": loader.num_workers,
            "pin_memory": loader.pin_memory,
            "prefetch_factor": loader.prefetch_factor,
            "persistent_workers": loader.persistent_workers,
        }
    return found
