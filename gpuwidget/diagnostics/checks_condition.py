"""Checks of the machine's condition: GPU errors, connections, shared memory, and gpuwidget's own files."""

from __future__ import annotations

import time
from collections.abc import Sequence

from gpuwidget.diagnostics import messages_condition as messages
from gpuwidget.diagnostics import packages
from gpuwidget.diagnostics.fixes import reinstall_gpuwidget
from gpuwidget.diagnostics.issues import build_check, skipped_check
from gpuwidget.diagnostics.machine import LoggedXid
from gpuwidget.diagnostics.probe_results import ProbeResults
from gpuwidget.model import units
from gpuwidget.model.diagnosis import Check, Fix, Issue, IssueStatus
from gpuwidget.model.translation import counted, joined, translatable
from gpuwidget.sources import xids
from gpuwidget.sources.nvml_diagnostics import GpuDiagnostics, PeerAccess
from gpuwidget.sources.throttle_reasons import HARMFUL, THERMAL
from gpuwidget.sources.xids import XidAction

HEALTH = ("health", translatable("GPU health"))
PCIE = ("pcie", "PCIe")
PEERS = ("peers", translatable("Between GPUs"))
SHM = ("shm", translatable("Shared memory"))
PACKAGE = ("package", "gpuwidget")

_MIN_SHM = units.GIB
"""The size below which /dev/shm is reported as too small. Docker's default is 64 MiB; the worker processes of
a DataLoader pass whole batches through it."""


def check_health(results: ProbeResults) -> Check:
    """Check for memory errors, throttling, disabled persistence mode, and errors in the kernel log."""
    logged = results.machine.xids
    if not results.gpus and not logged:
        return skipped_check(HEALTH, translatable("no GPU found"))
    issues: list[Issue] = []
    evidence: dict[str, str | None] = {}
    all_broken = all(gpu.remap_failed for gpu in results.gpus)
    for gpu in results.gpus:
        issues += _memory_error_issues(gpu, "broken" if all_broken else "warning")
        issues += _throttle_issues(gpu)
        evidence[f"GPU {gpu.index}"] = _memory_summary(gpu)
    issues += _persistence_issues(results)
    issues += _xid_issues(results)
    evidence["errors in the kernel's log"] = (
        "unknown: this user has no permission to read the log"
        if logged is None
        else ", ".join(_xid_text(xid, results) for xid in _unique(logged)) or "none"
    )
    if not issues:
        return build_check(HEALTH, translatable("No memory errors, not throttled"), [], evidence)
    return build_check(HEALTH, counted(len(issues), "{number} issue", "{number} issues"), issues, evidence)


def _memory_error_issues(gpu: GpuDiagnostics, remap_status: IssueStatus) -> list[Issue]:
    issues = []
    if gpu.remap_failed:
        issues.append(messages.MEMORY_REMAP_FAILED(gpu=gpu.index, status=remap_status))
    if gpu.remap_pending or gpu.retired_pending:
        issues.append(messages.MEMORY_RESET_PENDING(gpu=gpu.index))
    if gpu.ecc_uncorrected:
        issues.append(messages.MEMORY_ERRORS_UNCORRECTED(gpu=gpu.index, count=gpu.ecc_uncorrected))
    return issues


def _throttle_issues(gpu: GpuDiagnostics) -> list[Issue]:
    reasons = tuple(reason for reason in gpu.throttle or () if reason in HARMFUL)
    if not reasons:
        return []
    hot = not THERMAL.isdisjoint(reasons)
    fix = messages.CHECK_COOLING if hot else messages.CHECK_POWER_AND_COOLING
    return [messages.THROTTLED(gpu=gpu.index, reasons=reasons, fix=fix(hot=hot))]


def _xid_issues(results: ProbeResults) -> list[Issue]:
    """Return an issue per action for the XIDs since boot that need one, the most severe action first.

    XIDs that users' programs can cause are no issues.
    """
    logged = [xid for xid in _unique(results.machine.xids or ()) if xid.number not in xids.APPLICATION_XIDS]
    by_action = {action: [xid for xid in logged if xid.action == action] for action in xids.ACTIONS}
    return [
        messages.XIDS_LOGGED(
            gpus=tuple(xid.gpu for xid in found),
            xids=tuple(xid.number for xid in found),
            times=tuple(xid.time for xid in found),
            shown={"logged": [_dated_xid(xid, results) for xid in found]},
            fix=_xid_fix(action, found, results),
        )
        for action, found in by_action.items()
        if found and action != "none"
    ]


def _xid_fix(action: XidAction, logged: Sequence[LoggedXid], results: ProbeResults) -> Fix:
    """Return what to do. The command that resets GPUs needs the indices of all of them."""
    indices = {_gpu_index(xid.gpu, results) for xid in logged}
    known = sorted(index for index in indices if index is not None)
    if action != "reset" or None in indices:
        return messages.XID_FIXES[action]()
    gpus = [f"GPU {index}" for index in known]
    return messages.RESET_GPUS(gpus=gpus, indices=",".join(map(str, known)))


def _gpu_index(address: str, results: ProbeResults) -> int | None:
    """Return NVML's index of the GPU with this PCI address; None if NVML doesn't list it."""
    wanted = _pci_numbers(address)
    for gpu in results.gpus:
        if gpu.pci_bus_id is not None and _pci_numbers(gpu.pci_bus_id) == wanted:
            return gpu.index
    return None


def _pci_numbers(address: str) -> tuple[int, ...]:
    """Return domain, bus and device. NVML writes the domain with eight digits, and the driver with four."""
    try:
        return tuple(int(part, 16) for part in address.partition(".")[0].split(":"))
    except ValueError:
        return ()


def _dated_xid(xid: LoggedXid, results: ProbeResults) -> str:
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(xid.time))
    return translatable("{xid} at {time}", xid=_xid_text(xid, results), time=when)


def _xid_text(xid: LoggedXid, results: ProbeResults) -> str:
    index = _gpu_index(xid.gpu, results)
    gpu = xid.gpu if index is None else f"GPU {index}"
    what = xids.describe(xid.number)
    return translatable("XID {number} of {gpu} ({what})", number=xid.number, gpu=gpu, what=what)


def _unique(logged: Sequence[LoggedXid]) -> list[LoggedXid]:
    """Return the last entry of each GPU, number and action, in the order of their times."""
    return list({(xid.gpu, xid.number, xid.action): xid for xid in sorted(logged, key=_time)}.values())


def _time(xid: LoggedXid) -> float:
    return xid.time


def _persistence_issues(results: ProbeResults) -> list[Issue]:
    without_persistence = [gpu for gpu in results.gpus if gpu.persistence is False]
    if not without_persistence or results.machine.system != "linux":
        return []
    return [messages.PERSISTENCE_OFF(gpus=len(without_persistence))]


def _memory_summary(gpu: GpuDiagnostics) -> str:
    ecc = "ECC n/a" if gpu.ecc is None else "ECC on" if gpu.ecc else "ECC off"
    parts = [ecc]
    if gpu.ecc_uncorrected is not None:
        parts.append(f"{gpu.ecc_uncorrected} uncorrected")
    if gpu.remapped is not None:
        parts.append(counted(gpu.remapped, "{number} row remapped", "{number} rows remapped"))
    persistence = {True: "on", False: "off", None: "n/a"}[gpu.persistence]
    return ", ".join([*parts, f"persistence {persistence}"])


# -- PCIe and access between GPUs ------------------------------------------------------------------------


def check_pcie(results: ProbeResults) -> Check:
    """Check that each GPU uses all its PCIe lanes. A lower PCIe generation is normal for an idle GPU."""
    known = [gpu for gpu in results.gpus if gpu.pcie_width is not None and gpu.pcie_width_max is not None]
    if not known:
        return skipped_check(
            PCIE, translatable("not reported") if results.gpus else translatable("no GPU found")
        )
    evidence: dict[str, str | None] = {
        f"GPU {gpu.index}": f"x{gpu.pcie_width} of x{gpu.pcie_width_max}, generation up to "
        f"{gpu.pcie_generation_max or 'n/a'}"
        for gpu in known
    }
    narrow = [gpu for gpu in known if (gpu.pcie_width or 0) < (gpu.pcie_width_max or 0)]
    if not narrow:
        widths = sorted({gpu.pcie_width or 0 for gpu in known})
        return build_check(
            PCIE,
            translatable("full width ({widths})", widths=", ".join(f"x{width}" for width in widths)),
            [],
            evidence,
        )
    first, others = narrow[0], len(narrow) - 1
    issue = messages.PCIE_NARROW(
        gpu=first.index,
        width=first.pcie_width,
        max_width=first.pcie_width_max,
        others=others,
        shown={"more": others or None},
    )
    return build_check(
        PCIE,
        translatable("x{width} of x{max_width}", width=first.pcie_width, max_width=first.pcie_width_max),
        [issue],
        evidence,
    )


def check_peers(results: ProbeResults) -> Check:
    """Check which GPUs can access each other's memory, and by which path."""
    peers = results.nvml.peers if results.nvml is not None else ()
    if not peers:
        return skipped_check(
            PEERS, translatable("one GPU") if len(results.gpus) == 1 else translatable("no GPU found")
        )
    evidence: dict[str, str | None] = {}
    for gpu in sorted({peer.gpu for peer in peers}):
        row = [peer for peer in peers if peer.gpu == gpu]
        evidence[f"GPU {gpu}"] = " ".join(f"{peer.other}:{_path_name(peer)}" for peer in row)
    if not any(peer.nvlink or peer.reads is not None for peer in peers):
        return build_check(PEERS, translatable("not reported"), [messages.PEERS_UNKNOWN()], evidence)
    found = joined(sorted({_path_name(peer) for peer in peers}))
    without_access = [
        (peer.gpu, peer.other) for peer in peers if peer.reads is False and peer.nvlink is not True
    ]
    if without_access and len(without_access) < len(peers):
        return build_check(PEERS, found, [_peers_issue(without_access)], evidence)
    if without_access:
        # This is not an issue, since most consumer GPUs lack direct access.
        return build_check(
            PEERS,
            translatable("through the host, because these GPUs can't access each other directly"),
            [],
            evidence,
        )
    return build_check(PEERS, found, [], evidence)


def _peers_issue(pairs: Sequence[tuple[int, int]]) -> Issue:
    """Return the issue of pairs of GPUs that can't read each other's memory, while other pairs can."""
    unique_pairs = [(first, other) for first, other in pairs if first < other] or pairs
    names = [translatable("{first} and {other}", first=first, other=other) for first, other in unique_pairs]
    return messages.PEERS_WITHOUT_ACCESS(
        pairs=tuple(f"{first}-{other}" for first, other in pairs), shown={"names": names}
    )


def _path_name(peer: PeerAccess) -> str:
    if peer.nvlink:
        return "NVLink"
    if peer.reads is None:
        return "n/a"
    return "PCIe" if peer.reads else "host"


# -- shared memory and gpuwidget -------------------------------------------------------------------------


def check_shared_memory(results: ProbeResults) -> Check:
    """Check the size of /dev/shm, through which DataLoader workers pass batches and NCCL communicates."""
    shm = results.machine.shm
    if shm is None:
        return skipped_check(SHM, translatable("no /dev/shm on this system"))
    evidence = {"size": units.memory(shm.total)}
    issues = []
    if shm.total < _MIN_SHM:
        in_container = results.machine.container is not None
        fix = messages.START_CONTAINER_WITH_SHM() if in_container else messages.ENLARGE_SHM()
        issues.append(messages.SHM_SMALL(total=shm.total, fix=fix))
    elif shm.free < shm.total // 20:
        issues.append(messages.SHM_FULL(free=shm.free, total=shm.total))
    return build_check(SHM, units.memory(shm.total), issues, evidence)


def check_package(results: ProbeResults) -> Check:
    """Check that gpuwidget's files are unchanged, and that GPUWIDGET_SOURCE selects this machine's GPUs."""
    installed = results.packages
    evidence = {
        "distribution": f"{packages.OUR_DISTRIBUTION} {installed.ours}"
        if installed.ours
        else "not installed as a package",
        "overwritten files": ", ".join(installed.changed[:5]),
        "GPUWIDGET_SOURCE": results.variables.get("GPUWIDGET_SOURCE"),
    }
    issues = []
    if installed.changed:
        fix = reinstall_gpuwidget(results)
        issues.append(
            messages.FILES_OVERWRITTEN(files=len(installed.changed), other=installed.other, fix=fix)
        )
    elif installed.other:
        issues.append(messages.OTHER_PACKAGE(version=installed.other, fix=reinstall_gpuwidget(results)))
    source = results.variables.get("GPUWIDGET_SOURCE", "").strip()
    if source and source.partition(":")[0] not in ("auto", "nvml"):
        issues.append(messages.OTHER_SOURCE(source=source))
    return build_check(PACKAGE, results.version, issues, evidence)
