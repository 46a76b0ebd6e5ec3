"""The links of how well things are: errors of GPUs, their connections, shared memory, and our own package."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from gpuwidget.diagnostics import packages
from gpuwidget.diagnostics.fixes import our_package
from gpuwidget.diagnostics.issues import Finding, counted, link, skipped
from gpuwidget.diagnostics.probe_results import Facts
from gpuwidget.model import units
from gpuwidget.model.diagnosis import Link
from gpuwidget.sources import xids
from gpuwidget.sources.nvml_diagnostics import GpuHealth
from gpuwidget.sources.throttle_reasons import POWER_CAP, needing_attention

HEALTH = ("health", "GPU health")
PCIE = ("pcie", "PCIe")
PEERS = ("peers", "Between GPUs")
SHM = ("shm", "Shared memory")
PACKAGE = ("package", "gpuwidget")

_ENOUGH_SHM = units.GIB
"""Docker gives 64 MiB unless told otherwise; a DataLoader's workers hand whole batches through it."""
_RESET = "sudo nvidia-smi --gpu-reset"
_KEEP_READY = "sudo systemctl enable --now nvidia-persistenced"
_MORE_SHM = "sudo mount -o remount,size=50% /dev/shm"
_LIST_SHM = "ls -la /dev/shm"
_TOPOLOGY = "nvidia-smi topo -m"
_REPLACE = "Have the GPU replaced, and do not use it until then."


def health_link(facts: Facts) -> Link:
    """Memory errors, what holds the clocks down, persistence."""
    if not facts.gpus:
        return skipped(HEALTH, "no GPU to be seen")
    findings: list[Finding] = []
    evidence: dict[str, str | None] = {}
    none_well = all(gpu.remap_failed for gpu in facts.gpus)
    for gpu in facts.gpus:
        findings += _errors(gpu, "broken" if none_well else "warning")
        findings += _slowed(gpu)
        evidence[f"GPU {gpu.index}"] = _memory(gpu)
    findings += _persistence(facts)
    findings += _reported(facts)
    logged = facts.machine.xids
    evidence["errors in the kernel's log"] = (
        "this user may not read it" if logged is None else ", ".join(map(_said, _each(logged))) or "none"
    )
    if not findings:
        return link(HEALTH, "no errors of memory, nothing slows them", [], evidence)
    return link(HEALTH, counted(len(findings), "finding"), findings, evidence)


def _errors(gpu: GpuHealth, failed: Literal["broken", "warning"]) -> list[Finding]:
    name, found = f"GPU {gpu.index}", []
    if gpu.remap_failed:
        reason = f"{name} has broken memory that it could not replace (row remapping failed)."
        found.append(Finding(failed, reason, _REPLACE))
    if gpu.remap_pending or gpu.retired_pending:
        reason = f"{name} has memory to set aside after an error, which waits for a reset."
        found.append(Finding("warning", reason, f"Stop what uses it, then {_RESET}, or reboot.", _RESET))
    if gpu.ecc_uncorrected:
        reason = (
            f"{name} had {counted(gpu.ecc_uncorrected, 'uncorrected memory error')} since the "
            "driver was loaded: "
            "results of programs that ran then may be lost."
        )
        remedy = "Reset or restart it; should they come back, have the GPU checked (nvidia-smi -q -d ECC)."
        found.append(Finding("warning", reason, remedy))
    return found


def _slowed(gpu: GpuHealth) -> list[Finding]:
    # Under full load the power limit is reached: that is how it is meant.
    reasons = [reason for reason in needing_attention(gpu.throttle or ()) if reason != POWER_CAP]
    if not reasons:
        return []
    reason = f"GPU {gpu.index} is slowed down now: {', '.join(reasons)}."
    hot = any("hot" in one for one in reasons)
    remedy = "See to its cooling." if hot else "See to its power supply and its cooling."
    return [Finding("warning", reason, remedy)]


def _reported(facts: Facts) -> list[Finding]:
    """Errors that the driver reported since the machine was started, but those of users' programs."""
    of_gpus = [one for one in _each(facts.machine.xids or ()) if one[1] not in xids.APPLICATION_XIDS]
    if not of_gpus:
        return []
    reason = f"The driver has reported {', '.join(map(_said, of_gpus))}."
    remedy = "See what NVIDIA says to do about it: https://docs.nvidia.com/deploy/xid-errors/."
    return [Finding("warning", reason, remedy)]


def _each(logged: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    """Each once, the newest last."""
    return list(reversed(dict.fromkeys(reversed(logged))))


def _said(one: tuple[str, int]) -> str:
    return f"XID {one[1]} of {one[0]} ({xids.describe(one[1])})"


def _persistence(facts: Facts) -> list[Finding]:
    off = [gpu for gpu in facts.gpus if gpu.persistence is False]
    if not off or facts.machine.system != "linux":
        return []
    reason = (
        f"Nothing keeps {counted(len(off), 'GPU')} initialised (persistence mode is off): the first use "
        "after a pause waits seconds for the driver, and what was set is lost."
    )
    return [Finding("warning", reason, f"Keep them ready: {_KEEP_READY}.", _KEEP_READY)]


def _memory(gpu: GpuHealth) -> str:
    ecc = "ECC n/a" if gpu.ecc is None else "ECC on" if gpu.ecc else "ECC off"
    parts = [ecc]
    if gpu.ecc_uncorrected is not None:
        parts.append(f"{gpu.ecc_uncorrected} uncorrected")
    if gpu.remapped is not None:
        parts.append(f"{counted(gpu.remapped, 'row')} replaced")
    persistence = {True: "on", False: "off", None: "n/a"}[gpu.persistence]
    return ", ".join([*parts, f"persistence {persistence}"])


# -- connections -----------------------------------------------------------------------------------------


def pcie_link(facts: Facts) -> Link:
    """Whether each GPU has all the lanes it could have. Its generation falls while it is idle: no fault."""
    known = [gpu for gpu in facts.gpus if gpu.pcie_width is not None and gpu.pcie_width_max is not None]
    if not known:
        return skipped(PCIE, "not told" if facts.gpus else "no GPU to be seen")
    evidence: dict[str, str | None] = {
        f"GPU {gpu.index}": f"x{gpu.pcie_width} of x{gpu.pcie_width_max}, generation up to "
        f"{gpu.pcie_generation_max or 'n/a'}"
        for gpu in known
    }
    narrow = [gpu for gpu in known if (gpu.pcie_width or 0) < (gpu.pcie_width_max or 0)]
    if not narrow:
        widths = sorted({gpu.pcie_width or 0 for gpu in known})
        return link(PCIE, f"full width ({', '.join(f'x{width}' for width in widths)})", [], evidence)
    first = narrow[0]
    others = f", and {len(narrow) - 1} more too" if len(narrow) > 1 else ""
    reason = (
        f"GPU {first.index} has {first.pcie_width} of its {first.pcie_width_max} PCIe "
        f"lanes{others}: copies to and "
        "from it are slower."
    )
    remedy = (
        "See to its slot and riser; some boards share lanes between slots, and some laptops save power so."
    )
    return link(
        PCIE,
        f"x{first.pcie_width} of x{first.pcie_width_max}",
        [Finding("warning", reason, remedy)],
        evidence,
    )


def peers_link(facts: Facts) -> Link:
    """Which GPUs reach each other, and how."""
    peers = facts.nvml.peers if facts.nvml is not None else ()
    if not peers:
        return skipped(PEERS, "one GPU" if len(facts.gpus) == 1 else "no GPU to be seen")
    evidence: dict[str, str | None] = {}
    for one in sorted({peer.one for peer in peers}):
        row = [peer for peer in peers if peer.one == one]
        evidence[f"GPU {one}"] = " ".join(f"{peer.other}:{_way(peer.nvlink, peer.reads)}" for peer in row)
    ways = {_way(peer.nvlink, peer.reads) for peer in peers}
    if ways == {"n/a"}:
        return link(PEERS, "not told", [Finding("unknown", "The driver does not say.", None)], evidence)
    cut = [(peer.one, peer.other) for peer in peers if peer.reads is False and peer.nvlink is not True]
    found = "NVLink" if ways == {"NVLink"} else ", ".join(sorted(ways))
    if cut and len(cut) < len(peers):
        pairs = ", ".join(f"{one} and {other}" for one, other in cut if one < other)
        reason = f"Some GPUs can't read each other's memory: {pairs or cut[0]}; copies go through the host."
        remedy = f"Put GPUs that work together where they reach each other: {_TOPOLOGY}."
        return link(PEERS, found, [Finding("warning", reason, remedy, _TOPOLOGY)], evidence)
    if cut:
        # As on most consumer cards: how they were made, and no fault.
        return link(PEERS, "through the host: these GPUs have no direct access", [], evidence)
    return link(PEERS, found, [], evidence)


def _way(nvlink: bool | None, reads: bool | None) -> str:
    if nvlink:
        return "NVLink"
    if reads is None:
        return "n/a"
    return "PCIe" if reads else "host"


# -- around them -----------------------------------------------------------------------------------------


def shm_link(facts: Facts) -> Link:
    """The room through which a DataLoader's workers hand over batches, and NCCL talks."""
    room = facts.machine.shm
    if room is None:
        return skipped(SHM, "no /dev/shm on this system")
    evidence = {"size": units.memory(room.total)}
    findings = []
    if room.total < _ENOUGH_SHM:
        reason = (
            f"/dev/shm has {units.memory(room.total)}: workers of a DataLoader die with a bus "
            "error when it is full."
        )
        remedy = (
            "Start the container with more: docker run --shm-size=8g … (Kubernetes: an "
            "emptyDir with medium Memory)."
            if facts.machine.container
            else f"Make it larger: {_MORE_SHM}."
        )
        command = None if facts.machine.container else _MORE_SHM
        findings.append(Finding("warning", reason, remedy, command))
    elif room.free < room.total // 20:
        reason = f"/dev/shm is full: {units.memory(room.free)} of {units.memory(room.total)} are free."
        remedy = f"See what lies in it: {_LIST_SHM}; programs that died leave files."
        findings.append(Finding("warning", reason, remedy, _LIST_SHM))
    return link(SHM, units.memory(room.total), findings, evidence)


def package_link(facts: Facts) -> Link:
    """gpuwidget itself: whether its files are its own."""
    found = facts.packages
    evidence = {
        "distribution": f"{packages.OURS} {found.ours}" if found.ours else "not installed as a package",
        "files that are others": ", ".join(found.changed[:5]),
        "GPUWIDGET_SOURCE": facts.variables.get("GPUWIDGET_SOURCE"),
    }
    findings = []
    if found.changed:
        whose = f"the package {packages.OTHERS} {found.other}" if found.other else "something else"
        were = "was" if len(found.changed) == 1 else "were"
        reason = f"{counted(len(found.changed), 'file')} of gpuwidget's {were} overwritten by {whose}."
        findings.append(Finding("warning", reason, *our_package(facts)))
    elif found.other:
        reason = (
            f"The package {packages.OTHERS} {found.other}, somebody else's, is installed beside "
            f"{packages.OURS}: both "
            "have the import name gpuwidget."
        )
        findings.append(Finding("warning", reason, *our_package(facts)))
    source = facts.variables.get("GPUWIDGET_SOURCE", "").strip()
    if source and source.partition(":")[0] not in ("auto", "nvml"):
        reason = (
            f"GPUWIDGET_SOURCE is {source!r}: charts do not show this machine's GPUs. The doctor "
            "looked at those."
        )
        findings.append(Finding("warning", reason, "Unset GPUWIDGET_SOURCE to see this machine's GPUs."))
    return link(PACKAGE, facts.version, findings, evidence)
