"""CUDA_VISIBLE_DEVICES as CUDA reads it: from the left, up to the first entry that names no GPU.

Source: CUDA programming guide, environment variables
(https://docs.nvidia.com/cuda/cuda-programming-guide/05-appendices/environment-variables.html).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Visible:
    """Which GPUs are left, and why not more."""

    named: tuple[str, ...]
    """The entries that CUDA takes."""
    bad: str | None
    """The first that it does not take, which also ends the list; None where there is none."""
    why: str | None
    """What is wrong with that one."""


@dataclass(frozen=True, slots=True)
class Known:
    """What can be named: the UUIDs of GPUs, in NVML's order, and those of the slices of each."""

    gpus: Sequence[str]
    slices: Sequence[str]


def read(value: str, known: Known) -> Visible:
    """What CUDA makes of ``value``."""
    named: list[str] = []
    taken: set[str] = set()
    entries = [entry.strip() for entry in value.split(",")]
    while len(entries) > 1 and not entries[-1]:
        entries.pop()  # a comma at the end names nothing, and hides nothing
    for entry in entries:
        target, why = _target(entry, known)
        if target is None:
            return Visible(tuple(named), entry, why)
        if target in taken:
            return Visible((), entry, "it stands there twice, and then CUDA shows none at all")
        taken.add(target)
        named.append(entry)
    return Visible(tuple(named), None, None)


def _target(entry: str, known: Known) -> tuple[str | None, str | None]:
    count = len(known.gpus)
    if not entry:
        return None, "it is empty"
    number = re.match(r"[+-]?\d+", entry)
    if number is not None:  # what follows the digits, CUDA passes over
        index = int(number[0])
        if index < 0:
            return None, "a negative number ends the list"
        if index >= count:
            return None, f"there {_are(count)}, numbered from 0"
        return known.gpus[index], None
    older = re.match(r"MIG-(GPU-[^/]+)/\d+/\d+$", entry)
    if older is not None and older[1] in known.gpus:
        return entry, None  # as drivers before 470 name a slice; which of the GPU's it is, nobody says
    for word, candidates in (("MIG-", known.slices), ("GPU-", known.gpus)):
        if entry.startswith(word):
            matches = [uuid for uuid in candidates if uuid.startswith(entry)]
            if len(matches) == 1:
                return matches[0], None
            what = "MIG slice" if word == "MIG-" else "GPU"
            return None, f"{len(matches)} {what}s here begin so" if matches else f"no {what} here begins so"
    if entry == "NoDevFiles":
        return None, "Slurm writes that for a job that asked for no GPU"
    return None, "it is neither a number nor a UUID that begins with GPU- or MIG-"


def _are(count: int) -> str:
    return "is 1 GPU" if count == 1 else f"are {count} GPUs"
