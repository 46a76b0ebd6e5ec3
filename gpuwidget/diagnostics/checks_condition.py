"""Checks of the machine's condition: GPU errors, connections, shared memory, and gpuwidget's own files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from gpuwidget.diagnostics import packages
from gpuwidget.diagnostics.fixes import reinstall_gpuwidget
from gpuwidget.diagnostics.issues import Issue, build_check, pluralize, skipped_check
from gpuwidget.diagnostics.probe_results import ProbeResults
from gpuwidget.model import units
from gpuwidget.model.diagnosis import Check
from gpuwidget.sources import xids
from gpuwidget.sources.nvml_diagnostics import GpuHealth
from gpuwidget.sources.throttle_reasons import HARMFUL, THERMAL

HEALTH = ("health", "GPU health")
PCIE = ("pcie", "PCIe")
PEERS = ("peers", "Between GPUs")
SHM = ("shm", "Shared memory")
PACKAGE = ("package", "gpuwidget")

_MIN_SHM = units.GIB
"""The size below which /dev/shm is reported as too small. Docker's default is 64 MiB; the worker processes of
a DataLoader pass whole batches through it."""
_RESET = "sudo nvidia-smi --gpu-reset"
_ENABLE_PERSISTENCE = "sudo systemctl enable --now nvidia-persistenced"
_ENLARGE_SHM = "sudo mount -o remount,size=50% /dev/shm"
_LIST_SHM = "ls -la /dev/shm"
_TOPOLOGY = "nvidia-smi topo -m"
_REPLACE = "Have the GPU replaced, and do not use it until then."


def check_health(results: ProbeResults) -> Check:
    """Check for memory errors, throttling and persistence mode."""
    if not results.gpus:
        return skipped_check(HEALTH, "no GPU to be seen")
    issues: list[Issue] = []
    evidence: dict[str, str | None] = {}
    all_broken = all(gpu.remap_failed for gpu in results.gpus)
    for gpu in results.gpus:
        issues += _memory_error_issues(gpu, "broken" if all_broken else "warning")
        issues += _throttle_issues(gpu)
        evidence[f"GPU {gpu.index}"] = _memory_summary(gpu)
    issues += _persistence_issues(results)
    issues += _xid_issues(results)
    logged = results.machine.xids
    evidence["errors in the kernel's log"] = (
        "this user may not read it"
        if logged is None
        else ", ".join(map(_xid_text, _unique(logged))) or "none"
    )
    if not issues:
        return build_check(HEALTH, "no errors of memory, nothing slows them", [], evidence)
    return build_check(HEALTH, pluralize(len(issues), "finding"), issues, evidence)


def _memory_error_issues(gpu: GpuHealth, remap_status: Literal["broken", "warning"]) -> list[Issue]:
    name = f"GPU {gpu.index}"
    issues = []
    if gpu.remap_failed:
        reason = f"{name} has broken memory that it could not replace (row remapping failed)."
        issues.append(Issue(remap_status, reason, _REPLACE))
    if gpu.remap_pending or gpu.retired_pending:
        reason = f"{name} has memory to set aside after an error, which waits for a reset."
        issues.append(Issue("warning", reason, f"Stop what uses it, then {_RESET}, or reboot.", _RESET))
    if gpu.ecc_uncorrected:
        reason = (
            f"{name} had {pluralize(gpu.ecc_uncorrected, 'uncorrected memory error')} since the "
            "driver was loaded: "
            "results of programs that ran then may be lost."
        )
        fix = "Reset or restart it; should they come back, have the GPU checked (nvidia-smi -q -d ECC)."
        issues.append(Issue("warning", reason, fix))
    return issues


def _throttle_issues(gpu: GpuHealth) -> list[Issue]:
    reasons = [reason for reason in gpu.throttle or () if reason in HARMFUL]
    if not reasons:
        return []
    reason = f"GPU {gpu.index} is slowed down now: {', '.join(reasons)}."
    hot = not THERMAL.isdisjoint(reasons)
    fix = "See to its cooling." if hot else "See to its power supply and its cooling."
    return [Issue("warning", reason, fix)]


def _xid_issues(results: ProbeResults) -> list[Issue]:
    """Return an issue for errors that the driver has logged since boot, except those that users' programs
    cause."""
    of_hardware = [xid for xid in _unique(results.machine.xids or ()) if xid[1] not in xids.APPLICATION_XIDS]
    if not of_hardware:
        return []
    reason = f"The driver has reported {', '.join(map(_xid_text, of_hardware))}."
    fix = "See what NVIDIA says to do about it: https://docs.nvidia.com/deploy/xid-errors/."
    return [Issue("warning", reason, fix)]


def _unique(logged: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    """Return each entry once, the newest one last."""
    return list(reversed(dict.fromkeys(reversed(logged))))


def _xid_text(xid: tuple[str, int]) -> str:
    return f"XID {xid[1]} of {xid[0]} ({xids.describe(xid[1])})"


def _persistence_issues(results: ProbeResults) -> list[Issue]:
    off = [gpu for gpu in results.gpus if gpu.persistence is False]
    if not off or results.machine.system != "linux":
        return []
    reason = (
        f"Nothing keeps {pluralize(len(off), 'GPU')} initialised (persistence mode is off): the first use "
        "after a pause waits seconds for the driver, and what was set is lost."
    )
    return [Issue("warning", reason, f"Keep them ready: {_ENABLE_PERSISTENCE}.", _ENABLE_PERSISTENCE)]


def _memory_summary(gpu: GpuHealth) -> str:
    ecc = "ECC n/a" if gpu.ecc is None else "ECC on" if gpu.ecc else "ECC off"
    parts = [ecc]
    if gpu.ecc_uncorrected is not None:
        parts.append(f"{gpu.ecc_uncorrected} uncorrected")
    if gpu.remapped is not None:
        parts.append(f"{pluralize(gpu.remapped, 'row')} replaced")
    persistence = {True: "on", False: "off", None: "n/a"}[gpu.persistence]
    return ", ".join([*parts, f"persistence {persistence}"])


# -- connections -----------------------------------------------------------------------------------------


def check_pcie(results: ProbeResults) -> Check:
    """Check that each GPU uses all its PCIe lanes. The lower generation of an idle GPU is normal."""
    known = [gpu for gpu in results.gpus if gpu.pcie_width is not None and gpu.pcie_width_max is not None]
    if not known:
        return skipped_check(PCIE, "not told" if results.gpus else "no GPU to be seen")
    evidence: dict[str, str | None] = {
        f"GPU {gpu.index}": f"x{gpu.pcie_width} of x{gpu.pcie_width_max}, generation up to "
        f"{gpu.pcie_generation_max or 'n/a'}"
        for gpu in known
    }
    narrow = [gpu for gpu in known if (gpu.pcie_width or 0) < (gpu.pcie_width_max or 0)]
    if not narrow:
        widths = sorted({gpu.pcie_width or 0 for gpu in known})
        return build_check(PCIE, f"full width ({', '.join(f'x{width}' for width in widths)})", [], evidence)
    first = narrow[0]
    others = f", and {len(narrow) - 1} more too" if len(narrow) > 1 else ""
    reason = (
        f"GPU {first.index} has {first.pcie_width} of its {first.pcie_width_max} PCIe "
        f"lanes{others}: copies to and "
        "from it are slower."
    )
    fix = "See to its slot and riser; some boards share lanes between slots, and some laptops save power so."
    return build_check(
        PCIE,
        f"x{first.pcie_width} of x{first.pcie_width_max}",
        [Issue("warning", reason, fix)],
        evidence,
    )


def check_peers(results: ProbeResults) -> Check:
    """Check which GPUs can access each other's memory, and by which path."""
    peers = results.nvml.peers if results.nvml is not None else ()
    if not peers:
        return skipped_check(PEERS, "one GPU" if len(results.gpus) == 1 else "no GPU to be seen")
    evidence: dict[str, str | None] = {}
    for one in sorted({peer.one for peer in peers}):
        row = [peer for peer in peers if peer.one == one]
        evidence[f"GPU {one}"] = " ".join(
            f"{peer.other}:{_peer_path(peer.nvlink, peer.reads)}" for peer in row
        )
    paths = {_peer_path(peer.nvlink, peer.reads) for peer in peers}
    if paths == {"n/a"}:
        return build_check(PEERS, "not told", [Issue("unknown", "The driver does not say.", None)], evidence)
    cut = [(peer.one, peer.other) for peer in peers if peer.reads is False and peer.nvlink is not True]
    found = "NVLink" if paths == {"NVLink"} else ", ".join(sorted(paths))
    if cut and len(cut) < len(peers):
        pairs = ", ".join(f"{one} and {other}" for one, other in cut if one < other)
        reason = f"Some GPUs can't read each other's memory: {pairs or cut[0]}; copies go through the host."
        fix = f"Put GPUs that work together where they reach each other: {_TOPOLOGY}."
        return build_check(PEERS, found, [Issue("warning", reason, fix, _TOPOLOGY)], evidence)
    if cut:
        # Not an issue, since most consumer GPUs lack direct access.
        return build_check(PEERS, "through the host: these GPUs have no direct access", [], evidence)
    return build_check(PEERS, found, [], evidence)


def _peer_path(nvlink: bool | None, reads: bool | None) -> str:
    if nvlink:
        return "NVLink"
    if reads is None:
        return "n/a"
    return "PCIe" if reads else "host"


# -- shared memory and gpuwidget -------------------------------------------------------------------------


def check_shared_memory(results: ProbeResults) -> Check:
    """Check the size of /dev/shm, through which DataLoader workers pass batches and NCCL communicates."""
    shm = results.machine.shm
    if shm is None:
        return skipped_check(SHM, "no /dev/shm on this system")
    evidence = {"size": units.memory(shm.total)}
    issues = []
    if shm.total < _MIN_SHM:
        reason = (
            f"/dev/shm has {units.memory(shm.total)}: workers of a DataLoader die with a bus "
            "error when it is full."
        )
        fix = (
            "Start the container with more: docker run --shm-size=8g … (Kubernetes: an "
            "emptyDir with medium Memory)."
            if results.machine.container
            else f"Make it larger: {_ENLARGE_SHM}."
        )
        command = None if results.machine.container else _ENLARGE_SHM
        issues.append(Issue("warning", reason, fix, command))
    elif shm.free < shm.total // 20:
        reason = f"/dev/shm is full: {units.memory(shm.free)} of {units.memory(shm.total)} are free."
        fix = f"See what lies in it: {_LIST_SHM}; programs that died leave files."
        issues.append(Issue("warning", reason, fix, _LIST_SHM))
    return build_check(SHM, units.memory(shm.total), issues, evidence)


def check_package(results: ProbeResults) -> Check:
    """Check whether gpuwidget's files are still the installed ones."""
    installed = results.packages
    evidence = {
        "distribution": f"{packages.OUR_DISTRIBUTION} {installed.ours}"
        if installed.ours
        else "not installed as a package",
        "files that are others": ", ".join(installed.changed[:5]),
        "GPUWIDGET_SOURCE": results.variables.get("GPUWIDGET_SOURCE"),
    }
    issues = []
    if installed.changed:
        by = (
            f"the package {packages.OTHER_DISTRIBUTION} {installed.other}"
            if installed.other
            else "something else"
        )
        were = "was" if len(installed.changed) == 1 else "were"
        reason = f"{pluralize(len(installed.changed), 'file')} of gpuwidget's {were} overwritten by {by}."
        issues.append(Issue("warning", reason, *reinstall_gpuwidget(results)))
    elif installed.other:
        reason = (
            f"The package {packages.OTHER_DISTRIBUTION} {installed.other}, somebody else's, "
            "is installed beside "
            f"{packages.OUR_DISTRIBUTION}: both "
            "have the import name gpuwidget."
        )
        issues.append(Issue("warning", reason, *reinstall_gpuwidget(results)))
    source = results.variables.get("GPUWIDGET_SOURCE", "").strip()
    if source and source.partition(":")[0] not in ("auto", "nvml"):
        reason = (
            f"GPUWIDGET_SOURCE is {source!r}: charts do not show this machine's GPUs. The doctor "
            "looked at those."
        )
        issues.append(Issue("warning", reason, "Unset GPUWIDGET_SOURCE to see this machine's GPUs."))
    return build_check(PACKAGE, results.version, issues, evidence)
