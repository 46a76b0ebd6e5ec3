"""The check of CUDA_VISIBLE_DEVICES, which CUDA reads from left to right up to the first invalid entry.

Source: CUDA programming guide, environment variables
(https://docs.nvidia.com/cuda/cuda-programming-guide/05-appendices/environment-variables.html).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from gpuwidget.diagnostics.issues import Issue, build_check, pluralize
from gpuwidget.diagnostics.probe_results import ProbeResults
from gpuwidget.model.diagnosis import Check

VISIBLE = ("visible", "Visible GPUs")

_NO_DEVICE = 100
"""Value of CUresult in cuda.h."""


def check_visible_devices(results: ProbeResults) -> Check:
    """Check which GPUs CUDA_VISIBLE_DEVICES makes visible."""
    value = results.variables.get("CUDA_VISIBLE_DEVICES")
    count, in_notebook = results.libcuda.get("cu_count"), results.notebook.devices
    evidence = {
        "CUDA_VISIBLE_DEVICES": value if value else None,
        "CUDA_DEVICE_ORDER": results.variables.get("CUDA_DEVICE_ORDER"),
        "GPUs that CUDA shows": str(count) if isinstance(count, int) else None,
        "GPUs that this notebook has": None if in_notebook is None else str(len(in_notebook)),
    }
    changed = _changed_after_start_issue(results)
    if changed is not None:
        found = (
            f"{len(in_notebook or ())} of {pluralize(len(results.gpus), 'GPU')}"
            if results.gpus
            else str(len(in_notebook or ()))
        )
        return build_check(VISIBLE, f"{found} in this notebook", [changed], evidence)
    if value is None:
        return build_check(VISIBLE, "all: CUDA_VISIBLE_DEVICES is not set", [], evidence)
    fix = (
        "Unset CUDA_VISIBLE_DEVICES, or name GPUs by nvidia-smi -L's numbers or UUIDs, and "
        "start the kernel anew."
    )
    if not value.strip():
        reason = "CUDA_VISIBLE_DEVICES is set and empty: it hides every GPU."
        return build_check(VISIBLE, "none", [Issue("broken", reason, fix)], evidence)
    if not results.gpus:
        return build_check(
            VISIBLE, value, [Issue("unknown", "There is no GPU to compare it with.", None)], evidence
        )
    parsed = _parse_variable(results)
    if parsed is None or parsed.bad is None:
        return build_check(VISIBLE, _visible_count(parsed, results), [], evidence)
    reason = f"CUDA_VISIBLE_DEVICES is {value!r}, of which {parsed.bad!r} is no GPU here: {parsed.why}"
    if not parsed.named:
        return build_check(
            VISIBLE, "none", [Issue("broken", f"{reason}. It hides every GPU.", fix)], evidence
        )
    reason += ". CUDA passes over it and all that follows."
    return build_check(VISIBLE, _visible_count(parsed, results), [Issue("warning", reason, fix)], evidence)


def hides_all(results: ProbeResults) -> bool:
    """Return whether CUDA_VISIBLE_DEVICES hides all GPUs."""
    parsed = _parse_variable(results)
    return parsed is not None and not parsed.named


def _changed_after_start_issue(results: ProbeResults) -> Issue | None:
    """Return an issue if the variable changed after CUDA started in the notebook, which only a new process
    notices."""
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
        return None  # an unset variable hides no GPUs
    reordered = len(in_notebook) == len(now) and "CUDA_DEVICE_ORDER" in results.variables
    what = "CUDA_VISIBLE_DEVICES was " + ("unset" if value is None else f"set to {value!r}")
    if reordered:
        what = "CUDA_VISIBLE_DEVICES or CUDA_DEVICE_ORDER was changed"
    reason = f"{what} after CUDA was started: it has no effect in this notebook until a restart."
    return Issue("warning", reason, "Restart the kernel, and set it before anything uses CUDA.")


def _currently_visible(results: ProbeResults) -> list[str] | None:
    """Return the UUIDs of the GPUs that a new process would see; None if unknown."""
    code, devices = results.libcuda.get("cu_init"), results.libcuda.get("cu_devices")
    if code == 0 and devices is not None:
        return [one["uuid"] for one in devices]
    return [] if code == _NO_DEVICE or hides_all(results) else None


def _same_devices(in_notebook: Sequence[str | None], now: Sequence[str]) -> bool:
    """Return whether both lists have the same GPUs in the same order; only the count matters for unknown
    UUIDs."""
    return len(in_notebook) == len(now) and all(
        one is None or _uuid_digits(one) == _uuid_digits(other)
        for one, other in zip(in_notebook, now, strict=True)
    )


def _uuid_digits(uuid: str) -> str:
    """Return the UUID's digits, without NVML's prefix and the hyphens, which CUDA's own UUIDs lack."""
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
    return f"{named} of {pluralize(len(results.gpus), 'GPU')}"


# -- how CUDA reads the variable -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class VisibleDevices:
    """The GPUs that CUDA_VISIBLE_DEVICES makes visible."""

    named: tuple[str, ...]
    """The entries that CUDA accepts."""
    bad: str | None
    """The first entry that CUDA rejects, which ends the list; None if CUDA accepts all entries."""
    why: str | None
    """Why CUDA rejects that entry."""


@dataclass(frozen=True, slots=True)
class NameableDevices:
    """The devices that an entry can name: UUIDs of GPUs, in NVML's order, and of their MIG slices."""

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
        target, why = _resolve(entry, known)
        if target is None:
            return VisibleDevices(tuple(named), entry, why)
        if target in taken:
            return VisibleDevices((), entry, "it stands there twice, and then CUDA shows none at all")
        taken.add(target)
        named.append(entry)
    return VisibleDevices(tuple(named), None, None)


def _resolve(entry: str, known: NameableDevices) -> tuple[str | None, str | None]:
    count = len(known.gpus)
    if not entry:
        return None, "it is empty"
    number = re.match(r"[+-]?\d+", entry)
    if number is not None:  # CUDA ignores everything after the digits
        index = int(number[0])
        if index < 0:
            return None, "a negative number ends the list"
        if index >= count:
            return None, f"there {_count_phrase(count)}, numbered from 0"
        return known.gpus[index], None
    older = re.match(r"MIG-(GPU-[^/]+)/\d+/\d+$", entry)
    if older is not None and older[1] in known.gpus:
        return entry, None  # the format of drivers before 470, which does not contain the slice's UUID
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


def _count_phrase(count: int) -> str:
    return "is 1 GPU" if count == 1 else f"are {count} GPUs"
