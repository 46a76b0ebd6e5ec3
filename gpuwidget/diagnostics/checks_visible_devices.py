"""The link of CUDA_VISIBLE_DEVICES: which GPUs it leaves, and to whom."""

from __future__ import annotations

from collections.abc import Sequence

from gpuwidget.diagnostics import visible_devices
from gpuwidget.diagnostics.issues import Finding, counted, link
from gpuwidget.diagnostics.probe_results import Facts
from gpuwidget.model.diagnosis import Link

VISIBLE = ("visible", "Visible GPUs")

_NO_DEVICE = 100
"""Of CUresult, cuda.h."""


def visible_link(facts: Facts) -> Link:
    """Which GPUs CUDA_VISIBLE_DEVICES leaves."""
    value = facts.variables.get("CUDA_VISIBLE_DEVICES")
    count, mine = facts.libcuda.get("cu_count"), facts.notebook.devices
    evidence = {
        "CUDA_VISIBLE_DEVICES": value if value else None,
        "CUDA_DEVICE_ORDER": facts.variables.get("CUDA_DEVICE_ORDER"),
        "GPUs that CUDA shows": str(count) if isinstance(count, int) else None,
        "GPUs that this notebook has": None if mine is None else str(len(mine)),
    }
    too_late = _set_too_late(facts)
    if too_late is not None:
        found = (
            f"{len(mine or ())} of {counted(len(facts.gpus), 'GPU')}" if facts.gpus else str(len(mine or ()))
        )
        return link(VISIBLE, f"{found} in this notebook", [too_late], evidence)
    if value is None:
        return link(VISIBLE, "all: CUDA_VISIBLE_DEVICES is not set", [], evidence)
    remedy = (
        "Unset CUDA_VISIBLE_DEVICES, or name GPUs by nvidia-smi -L's numbers or UUIDs, and "
        "start the kernel anew."
    )
    if not value.strip():
        reason = "CUDA_VISIBLE_DEVICES is set and empty: it hides every GPU."
        return link(VISIBLE, "none", [Finding("broken", reason, remedy)], evidence)
    if not facts.gpus:
        return link(
            VISIBLE, value, [Finding("unknown", "There is no GPU to compare it with.", None)], evidence
        )
    read = _read_visible(facts)
    if read is None or read.bad is None:
        return link(VISIBLE, _left(read, facts), [], evidence)
    reason = f"CUDA_VISIBLE_DEVICES is {value!r}, of which {read.bad!r} is no GPU here: {read.why}"
    if not read.named:
        return link(VISIBLE, "none", [Finding("broken", f"{reason}. It hides every GPU.", remedy)], evidence)
    reason += ". CUDA passes over it and all that follows."
    return link(VISIBLE, _left(read, facts), [Finding("warning", reason, remedy)], evidence)


def hides_all(facts: Facts) -> bool:
    """Whether it leaves none of the GPUs there are."""
    read = _read_visible(facts)
    return read is not None and not read.named


def _set_too_late(facts: Facts) -> Finding | None:
    """Whether the variable was changed after the notebook's CUDA had read it; a child reads it now."""
    mine, now = facts.notebook.devices, _shown_now(facts)
    if not mine or now is None or (facts.nvml is not None and facts.nvml.lost) or _same(mine, now):
        return None
    value = facts.variables.get("CUDA_VISIBLE_DEVICES")
    if value is None and len(mine) > len(now):
        return None  # what is not set hides none
    reordered = len(mine) == len(now) and "CUDA_DEVICE_ORDER" in facts.variables
    what = "CUDA_VISIBLE_DEVICES was " + ("unset" if value is None else f"set to {value!r}")
    if reordered:
        what = "CUDA_VISIBLE_DEVICES or CUDA_DEVICE_ORDER was changed"
    reason = f"{what} after CUDA was started: it has no effect in this notebook until a restart."
    return Finding("warning", reason, "Restart the kernel, and set it before anything uses CUDA.")


def _shown_now(facts: Facts) -> list[str] | None:
    """UUIDs of the GPUs that CUDA shows to who starts it now; None where that is not known."""
    code, devices = facts.libcuda.get("cu_init"), facts.libcuda.get("cu_devices")
    if code == 0 and devices is not None:
        return [one["uuid"] for one in devices]
    return [] if code == _NO_DEVICE or hides_all(facts) else None


def _same(mine: Sequence[str | None], now: Sequence[str]) -> bool:
    """Whether these are the same GPUs in the same order; where torch does not say which, as many."""
    return len(mine) == len(now) and all(
        one is None or _digits(one) == _digits(other) for one, other in zip(mine, now, strict=True)
    )


def _digits(uuid: str) -> str:
    """NVML has GPU- before it, CUDA's own has no hyphens."""
    return uuid.lower().removeprefix("gpu-").removeprefix("mig-").replace("-", "")


def _read_visible(facts: Facts) -> visible_devices.Visible | None:
    """What CUDA makes of the variable; None where it is not set."""
    value = facts.variables.get("CUDA_VISIBLE_DEVICES")
    if value is None:
        return None
    slices = [uuid for gpu in facts.gpus for uuid in gpu.slices]
    return visible_devices.read(value, visible_devices.Known([gpu.uuid for gpu in facts.gpus], slices))


def _left(read: visible_devices.Visible | None, facts: Facts) -> str:
    named = len(read.named) if read is not None else 0
    return f"{named} of {counted(len(facts.gpus), 'GPU')}"
