"""The check of CUDA_VISIBLE_DEVICES, which CUDA reads from left to right up to the first invalid entry.

If a GPU is listed twice, CUDA ignores the whole list. Source: CUDA programming guide, environment variables
(https://docs.nvidia.com/cuda/cuda-programming-guide/05-appendices/environment-variables.html).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gpuwidget.diagnostics import messages_gpu as messages
from gpuwidget.diagnostics.issues import build_check
from gpuwidget.diagnostics.probe_results import ProbeResults
from gpuwidget.model.diagnosis import Check, Issue
from gpuwidget.model.translation import translatable

VISIBLE = ("visible", translatable("Visible GPUs"))

_NO_DEVICE = 100
"""Value of CUresult in cuda.h."""


def check_visible_devices(results: ProbeResults) -> Check:
    """Check which GPUs CUDA_VISIBLE_DEVICES makes visible."""
    value = results.variables.get("CUDA_VISIBLE_DEVICES")
    count, in_notebook = results.libcuda.get("cu_count"), results.notebook.devices
    evidence = {
        "CUDA_VISIBLE_DEVICES": value if value else None,
        "CUDA_DEVICE_ORDER": results.variables.get("CUDA_DEVICE_ORDER"),
        "GPUs visible to CUDA": str(count) if isinstance(count, int) else None,
        "GPUs visible to this notebook": None if in_notebook is None else str(len(in_notebook)),
    }
    changed = _changed_after_start_issue(results)
    if changed is not None:
        found = _count_of(len(in_notebook or ()), results) if results.gpus else str(len(in_notebook or ()))
        return build_check(
            VISIBLE, translatable("{found} in this notebook", found=found), [changed], evidence
        )
    if value is None:
        return build_check(VISIBLE, translatable("all: CUDA_VISIBLE_DEVICES is not set"), [], evidence)
    if not value.strip():
        return build_check(VISIBLE, translatable("none"), [messages.VISIBLE_DEVICES_EMPTY()], evidence)
    if not results.gpus:
        return build_check(VISIBLE, value, [messages.VISIBLE_DEVICES_UNKNOWN()], evidence)
    parsed = _parse_variable(results)
    if parsed is None or parsed.rejected is None:
        return build_check(VISIBLE, _visible_count(parsed, results), [], evidence)
    issue = rejected_issue(value, parsed.rejected, hides_all=not parsed.named)
    found = _visible_count(parsed, results) if parsed.named else translatable("none")
    return build_check(VISIBLE, found, [issue], evidence)


def rejected_issue(value: str, rejected: RejectedEntry, *, hides_all: bool) -> Issue:
    """Return the issue reporting that CUDA rejects an entry. ``hides_all`` is whether CUDA then shows no
    GPU."""
    template = messages.ALL_ENTRIES_REJECTED if hides_all else messages.ENTRY_REJECTED
    why = messages.REJECTIONS[rejected.why](number=rejected.number)
    return template(value=value, **rejected._asdict(), shown={"why": why})


def hides_all(results: ProbeResults) -> bool:
    """Return whether CUDA_VISIBLE_DEVICES hides all GPUs."""
    parsed = _parse_variable(results)
    return parsed is not None and not parsed.named


def _changed_after_start_issue(results: ProbeResults) -> Issue | None:
    """Return an issue if CUDA_VISIBLE_DEVICES was changed after CUDA started in the notebook. Such a change
    has no effect on the notebook."""
    in_notebook, now = results.notebook.devices, _currently_visible(results)
    if (
        not in_notebook
        or now is None
        or (results.nvml is not None and results.nvml.lost)
        or _same_devices(in_notebook, now)
    ):
        return None
    value = results.variables.get("CUDA_VISIBLE_DEVICES")
    if value is None and len(in_notebook) > len(now):
        return None  # an unset variable hides no GPUs, so the missing GPUs have another cause
    reordered = len(in_notebook) == len(now) and "CUDA_DEVICE_ORDER" in results.variables
    template = messages.DEVICES_REORDERED if reordered else messages.VISIBLE_DEVICES_CHANGED
    return template(value=value, reordered=reordered)


def _currently_visible(results: ProbeResults) -> list[str] | None:
    """Return the UUIDs of the GPUs that CUDA would list in a new process; None if unknown."""
    code, devices = results.libcuda.get("cu_init"), results.libcuda.get("cu_devices")
    if code == 0 and devices is not None:
        return [device["uuid"] for device in devices]
    return [] if code == _NO_DEVICE or hides_all(results) else None


def _same_devices(in_notebook: Sequence[str | None], now: Sequence[str]) -> bool:
    """Return whether both lists have the same GPUs in the same order. An unknown UUID matches any UUID."""
    return len(in_notebook) == len(now) and all(
        old is None or _uuid_digits(old) == _uuid_digits(other)
        for old, other in zip(in_notebook, now, strict=True)
    )


def _uuid_digits(uuid: str) -> str:
    """Return the UUID without NVML's prefix and hyphens, which CUDA's UUIDs do not have."""
    return uuid.lower().removeprefix("gpu-").removeprefix("mig-").replace("-", "")


def _parse_variable(results: ProbeResults) -> VisibleDevices | None:
    """Return how CUDA interprets the variable's value; None if it is not set."""
    value = results.variables.get("CUDA_VISIBLE_DEVICES")
    if value is None:
        return None
    slices = [uuid for gpu in results.gpus for uuid in gpu.slices]
    return parse_visible_devices(value, NameableDevices([gpu.uuid for gpu in results.gpus], slices))


def _visible_count(parsed: VisibleDevices | None, results: ProbeResults) -> str:
    named = len(parsed.named) if parsed is not None else 0
    return _count_of(named, results)


def _count_of(number: int, results: ProbeResults) -> str:
    return translatable("{number} of {total:gpus}", number=number, total=len(results.gpus))


# -- how CUDA reads the variable -------------------------------------------------------------------------


class RejectedEntry(NamedTuple):
    """The first entry that CUDA rejects. CUDA also ignores the entries after it. If the rejected entry is a
    duplicate, CUDA ignores all entries."""

    entry: str
    why: messages.Rejection
    number: int
    """How many GPUs or slices match the entry. For an index that is out of range: how many GPUs there are."""


@dataclass(frozen=True, slots=True)
class VisibleDevices:
    """The GPUs that CUDA_VISIBLE_DEVICES makes visible."""

    named: tuple[str, ...]
    """The entries that CUDA uses."""
    rejected: RejectedEntry | None
    """The first entry that CUDA rejects; None if CUDA accepts all entries."""


@dataclass(frozen=True, slots=True)
class NameableDevices:
    """The devices that an entry can refer to: UUIDs of the GPUs, in NVML's order, and of their MIG slices."""

    gpus: Sequence[str]
    slices: Sequence[str]


def parse_visible_devices(value: str, known: NameableDevices) -> VisibleDevices:
    """Return how CUDA interprets ``value``."""
    named: list[str] = []
    taken: set[str] = set()
    entries = [entry.strip() for entry in value.split(",")]
    while len(entries) > 1 and not entries[-1]:
        entries.pop()  # CUDA ignores a trailing comma
    for entry in entries:
        target = _resolve(entry, known)
        if isinstance(target, RejectedEntry):
            return VisibleDevices(tuple(named), target)
        if target in taken:
            return VisibleDevices((), RejectedEntry(entry, "duplicate", 2))
        taken.add(target)
        named.append(entry)
    return VisibleDevices(tuple(named), None)


def _resolve(entry: str, known: NameableDevices) -> str | RejectedEntry:
    """Return the UUID of the device that the entry refers to, or the reason why CUDA rejects the entry."""
    count = len(known.gpus)
    if not entry:
        return RejectedEntry(entry, "empty", 0)
    number = re.match(r"[+-]?\d+", entry)
    if number is not None:  # CUDA ignores everything after the digits
        index = int(number[0])
        if index < 0:
            return RejectedEntry(entry, "negative", 0)
        return RejectedEntry(entry, "out-of-range", count) if index >= count else known.gpus[index]
    older = re.match(r"MIG-(GPU-[^/]+)/\d+/\d+$", entry)
    if older is not None and older[1] in known.gpus:
        # Drivers before 470 used this format for MIG slices. It does not contain the slice's UUID, so return
        # the entry itself.
        return entry
    if entry.startswith("MIG-"):
        slices = [uuid for uuid in known.slices if uuid.startswith(entry)]
        if len(slices) == 1:
            return slices[0]
        return RejectedEntry(entry, "several-slices-match" if slices else "no-slice-matches", len(slices))
    if entry.startswith("GPU-"):
        gpus = [uuid for uuid in known.gpus if uuid.startswith(entry)]
        if len(gpus) == 1:
            return gpus[0]
        return RejectedEntry(entry, "several-gpus-match" if gpus else "no-gpu-matches", len(gpus))
    return RejectedEntry(entry, "slurm" if entry == "NoDevFiles" else "unknown-format", 0)
