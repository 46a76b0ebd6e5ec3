"""Texts of the checks of GPU errors, connections, shared memory and gpuwidget's files."""

from __future__ import annotations

from collections.abc import Sequence

from gpuwidget.diagnostics.messages import command_fix, gpu_count, text_fix
from gpuwidget.diagnostics.packages import OTHER_DISTRIBUTION, OUR_DISTRIBUTION
from gpuwidget.model import units
from gpuwidget.model.diagnosis import Fix, Issue, IssueStatus
from gpuwidget.model.translation import counted, joined, translatable
from gpuwidget.sources import xids

_ENABLE_PERSISTENCE = "sudo nvidia-smi -pm 1"
_ENLARGE_SHM = "sudo mount -o remount,size=50% /dev/shm"
_LIST_SHM = "ls -la /dev/shm"
_RESET = "sudo nvidia-smi --gpu-reset"
_SHOW_TOPOLOGY = "nvidia-smi topo -p2p r"

# -- GPU errors ------------------------------------------------------------------------------------------


def remap_failed(gpu: int, status: IssueStatus) -> Issue:
    """Return the issue of a GPU that could not replace broken memory."""
    return Issue(
        "memory-remap-failed",
        status,
        {"gpu": gpu},
        translatable(
            "GPU {gpu} has broken memory that it could not replace (row remapping failed).", gpu=gpu
        ),
        text_fix("replace-gpu", "Have the GPU replaced, and do not use it until then."),
    )


def reset_pending(gpu: int) -> Issue:
    """Return the issue of a GPU that sets memory aside at its next reset."""
    return Issue(
        "memory-reset-pending",
        "warning",
        {"gpu": gpu},
        translatable(
            "GPU {gpu} has faulty memory, which the driver takes out of use at the next reset.", gpu=gpu
        ),
        command_fix(
            "reset-or-reboot",
            "Reboot, or stop the programs that use the GPUs, then reset the GPUs:",
            _RESET,
        ),
    )


def uncorrected_errors(gpu: int, count: int) -> Issue:
    """Return the issue of a GPU with uncorrected memory errors."""
    return Issue(
        "memory-errors-uncorrected",
        "warning",
        {"gpu": gpu, "count": count},
        translatable(
            "GPU {gpu} has had {errors} since the driver was loaded. Programs that ran on this "
            "GPU may have failed or computed wrong results.",
            gpu=gpu,
            errors=counted(count, "{number} uncorrected memory error", "{number} uncorrected memory errors"),
        ),
        text_fix(
            "check-gpu-memory",
            "Reset the GPU or reboot. If errors come back, have the GPU checked (nvidia-smi -q -d ECC).",
        ),
    )


def throttled(gpu: int, reasons: Sequence[str], *, hot: bool) -> Issue:
    """Return the issue of a GPU whose clock is throttled; ``hot`` is whether its temperature is a reason."""
    fix = (
        translatable("Check its cooling.") if hot else translatable("Check its power supply and its cooling.")
    )
    return Issue(
        "gpu-throttled",
        "warning",
        {"gpu": gpu, "reasons": tuple(reasons)},
        translatable("GPU {gpu} is throttled now ({reasons}).", gpu=gpu, reasons=joined(reasons)),
        text_fix("check-cooling", fix, hot=hot),
    )


def xids_logged(logged: Sequence[tuple[str, int]]) -> Issue:
    """Return the issue reporting that the driver has logged errors, each given by the GPU's address and the
    XID."""
    return Issue(
        "xids-logged",
        "warning",
        {"gpus": tuple(gpu for gpu, _ in logged), "xids": tuple(number for _, number in logged)},
        translatable("The driver has reported {logged}.", logged=joined([xid(each) for each in logged])),
        text_fix(
            "see-xid-documentation",
            "NVIDIA explains what to do: https://docs.nvidia.com/deploy/xid-errors/.",
        ),
    )


def xid(logged: tuple[str, int]) -> str:
    """Return a description of an error that the driver has logged."""
    gpu, number = logged
    return translatable("XID {number} of {gpu} ({what})", number=number, gpu=gpu, what=xids.describe(number))


def persistence_off(gpus: int) -> Issue:
    """Return the issue reporting that persistence mode is off on this number of GPUs."""
    return Issue(
        "persistence-off",
        "warning",
        {"gpus": gpus},
        translatable(
            "Persistence mode is off for {gpus}: the driver shuts a GPU down while no program "
            "uses it. The next program then waits seconds for the GPU, and settings such as a "
            "power limit are lost.",
            gpus=gpu_count(gpus),
        ),
        command_fix(
            "enable-persistence",
            "Turn persistence mode on until the next reboot:",
            _ENABLE_PERSISTENCE,
        ),
    )


# -- PCIe and access between GPUs ------------------------------------------------------------------------


def narrow_link(gpu: int, width: int | None, max_width: int | None, others: int) -> Issue:
    """Return the issue of a GPU that does not use all its PCIe lanes, and of ``others`` further such GPUs."""
    reason = translatable(
        "GPU {gpu} uses only {width} of its {max_width} PCIe lanes, so copies to and from this GPU are "
        "slower.",
        gpu=gpu,
        width=width,
        max_width=max_width,
    )
    if others:
        more = counted(
            others,
            "{number} more GPU does not use all its lanes either.",
            "{number} more GPUs do not use all their lanes either.",
        )
        reason = joined([reason, more], " ")
    return Issue(
        "pcie-narrow",
        "warning",
        {"gpu": gpu, "width": width, "max_width": max_width, "others": others},
        reason,
        text_fix(
            "check-slot",
            "Check its slot and riser. Some boards share lanes between slots, and some laptops "
            "turn lanes off to save power.",
        ),
    )


def peers_unknown() -> Issue:
    """Return the issue reporting that it is unknown which GPUs can access each other's memory."""
    return Issue(
        "peers-unknown",
        "unknown",
        {},
        translatable("The driver does not report which GPUs can access each other's memory."),
        None,
    )


def peers_without_access(pairs: Sequence[tuple[int, int]]) -> Issue:
    """Return the issue of pairs of GPUs that can't read each other's memory, while other pairs can."""
    unique_pairs = [(first, other) for first, other in pairs if first < other] or pairs
    names = joined(
        [translatable("{first} and {other}", first=first, other=other) for first, other in unique_pairs]
    )
    return Issue(
        "peers-without-access",
        "warning",
        {"pairs": tuple(f"{first}-{other}" for first, other in pairs)},
        translatable(
            "Some GPUs can't read each other's memory: {names}. Copies between these GPUs go "
            "through the host.",
            names=names,
        ),
        command_fix(
            "choose-connected-gpus",
            "Combine only GPUs that can access each other's memory directly. To list them:",
            _SHOW_TOPOLOGY,
        ),
    )


# -- shared memory ---------------------------------------------------------------------------------------


def shm_small(total: int, *, in_container: bool) -> Issue:
    """Return the issue reporting that /dev/shm, of ``total`` bytes, is too small."""
    return Issue(
        "shm-small",
        "warning",
        {"total": total},
        translatable(
            "/dev/shm has only {size}. When it is full, the workers of a DataLoader are killed "
            "by a bus error.",
            size=units.memory(total),
        ),
        text_fix(
            "start-container-with-shm",
            "Start the container with more shared memory: docker run --shm-size=8g … "
            "(Kubernetes: mount an emptyDir with medium Memory at /dev/shm).",
        )
        if in_container
        else command_fix("enlarge-shm", "Make /dev/shm larger:", _ENLARGE_SHM),
    )


def shm_full(free: int, total: int) -> Issue:
    """Return the issue reporting that little of /dev/shm is free."""
    return Issue(
        "shm-full",
        "warning",
        {"free": free, "total": total},
        translatable(
            "/dev/shm is almost full: {free} of {total} is free.",
            free=units.memory(free),
            total=units.memory(total),
        ),
        command_fix(
            "list-shm",
            "List the files in it:",
            _LIST_SHM,
            "Delete the files that crashed programs have left.",
        ),
    )


# -- gpuwidget -------------------------------------------------------------------------------------------


def files_overwritten(files: Sequence[str], other: str | None, fix: Fix) -> Issue:
    """Return the issue reporting that gpuwidget's files were overwritten.

    ``other`` is the version of the package that overwrote them, if it is known.
    """
    by = translatable("another program")
    if other is not None:
        by = translatable("the package {name} {version}", name=OTHER_DISTRIBUTION, version=other)
    return Issue(
        "gpuwidget-overwritten",
        "warning",
        {"files": len(files), "other": other},
        counted(
            len(files),
            "{number} file of gpuwidget was overwritten by {by}.",
            "{number} files of gpuwidget were overwritten by {by}.",
            by=by,
        ),
        fix,
    )


def other_package(version: str, fix: Fix) -> Issue:
    """Return the issue reporting that another package with gpuwidget's import name is installed."""
    return Issue(
        "gpuwidget-other-package",
        "warning",
        {"version": version},
        translatable(
            "An unrelated package, {other_distribution} {version}, is installed beside "
            "{our_distribution}: both are imported as gpuwidget.",
            other_distribution=OTHER_DISTRIBUTION,
            version=version,
            our_distribution=OUR_DISTRIBUTION,
        ),
        fix,
    )


def other_source(source: str) -> Issue:
    """Return the issue reporting that GPUWIDGET_SOURCE selects something other than this machine's GPUs."""
    return Issue(
        "gpuwidget-source",
        "warning",
        {"source": source},
        translatable(
            "GPUWIDGET_SOURCE is {source!r}, so charts do not show this machine's GPUs. The "
            "doctor still checks this machine's GPUs.",
            source=source,
        ),
        text_fix("unset-gpuwidget-source", "Unset GPUWIDGET_SOURCE to see this machine's GPUs."),
    )
