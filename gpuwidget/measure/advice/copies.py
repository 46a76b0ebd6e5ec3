"""The rule of a GPU that copies instead of computing."""

from __future__ import annotations

import re

from gpuwidget.measure.advice.compute import (
    AT_REST_POWER,
    HIGHEST_AT_REST_POWER,
    MOST_MOVED,
    SMALL_PART,
)
from gpuwidget.measure.advice.evidence import (
    Facts,
    advice,
    average,
    mean,
    moved,
    names,
    power,
    power_share,
    spots,
    verb,
)
from gpuwidget.model import units
from gpuwidget.model.report import Advice, GpuReport

BUSY = 30.0
"""Percent of utilization, which counts copies, from which on they take the time. Recorded: 100."""
READS_FULL = 90.0
LEAST_SHARE = 10.0
"""Percent of the time from which on a line is one that it goes to."""
_COPIES = re.compile(r"\.(?:cpu|cuda|numpy|to|copy_)\(")


def copies(facts: Facts) -> Advice | None:
    """The time goes to moving data over PCIe or NVLink while the multiprocessors stand still."""
    found = [gpu for gpu in facts.gpus if _copies(gpu)]
    if found:
        rate = average([moved(gpu) for gpu in found])
        assert rate is not None
        sm, busy = average([mean(gpu.sm_activity) for gpu in found]), _utilization(found)
        where = _line(facts)
        return advice(
            "copies",
            f"{names(found)} moved {units.memory(rate)}/s and computed with {sm:.0f} % of the "
            "multiprocessors, "
            f"at a utilization of {busy:.0f} %: the time goes to copies{where}.",
            "Keep tensors on the GPU between steps; move whole batches, once, from pinned memory "
            "(pin_memory=True, .to(device, non_blocking=True)).",
            {
                "utilization": busy,
                "sm_activity": sm,
                "pcie_and_nvlink_bytes_s": rate,
                "gpus": [gpu.index for gpu in found],
            },
        )
    found = [gpu for gpu in facts.gpus if _looks_like_copies(gpu)]
    if not found:
        return None
    return advice(
        "copies",
        f"{names(found)} {verb(found, 'reads', 'read')} {_utilization(found):.0f} % busy but drew "
        f"{power(found)}, hardly more than at "
        "rest: that looks like copies, or waiting, rather than computing (no hardware counters here to "
        "tell).",
        "See whether tensors go back and forth (.cpu(), .to(…)) in the loop, or whether the code waits "
        "for another GPU.",
        {"utilization": _utilization(found), "power_w": average([mean(gpu.power_w) for gpu in found])},
        sure=False,
    )


def _copies(gpu: GpuReport) -> bool:
    busy, sm, rate = mean(gpu.utilization), mean(gpu.sm_activity), moved(gpu)
    return (
        busy is not None
        and busy >= BUSY
        and sm is not None
        and sm <= SMALL_PART * busy
        and rate is not None
        and rate >= MOST_MOVED
    )


def _looks_like_copies(gpu: GpuReport) -> bool:
    busy, share, highest = mean(gpu.utilization), power_share(gpu), power_share(gpu, highest=True)
    return (
        gpu.sm_activity is None
        and busy is not None
        and busy >= READS_FULL
        and share is not None
        and share <= AT_REST_POWER
        and highest is not None
        and highest <= HIGHEST_AT_REST_POWER
    )


def _line(facts: Facts) -> str:
    found = next(
        (spot for spot in spots(facts) if spot.share >= LEAST_SHARE and _COPIES.search(spot.source)), None
    )
    return "" if found is None else f" ({found.where}: {found.share:.0f} % of the time)"


def _utilization(gpus: list[GpuReport]) -> float | None:
    return average([mean(gpu.utilization) for gpu in gpus])
