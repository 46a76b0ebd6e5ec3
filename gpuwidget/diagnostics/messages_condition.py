"""Issues of the checks of GPU errors, connections, shared memory and gpuwidget's files."""

from __future__ import annotations

from collections.abc import Mapping

from gpuwidget.diagnostics.messages import FixTemplate, IssueTemplate
from gpuwidget.sources import xids
from gpuwidget.sources.xids import XidAction

# -- GPU errors ------------------------------------------------------------------------------------------

MEMORY_REMAP_FAILED = IssueTemplate(
    "memory-remap-failed",
    "warning",
    "GPU {gpu} has broken memory that it could not replace (row remapping failed).",
    FixTemplate("replace-gpu", "Have the GPU replaced, and do not use it until then."),
)
MEMORY_RESET_PENDING = IssueTemplate(
    "memory-reset-pending",
    "warning",
    "GPU {gpu} has faulty memory, which the driver takes out of use at the next reset.",
    FixTemplate(
        "reset-or-reboot",
        "Reboot, or stop the programs that use the GPUs, then reset the GPUs:",
        "sudo nvidia-smi --gpu-reset",
    ),
)
MEMORY_ERRORS_UNCORRECTED = IssueTemplate(
    "memory-errors-uncorrected",
    "warning",
    "GPU {gpu} has had {count} uncorrected memory {count:error|errors} since the driver was loaded. Programs "
    "that ran on this GPU may have failed or computed wrong results.",
    FixTemplate(
        "check-gpu-memory",
        "Reset the GPU or reboot. If errors come back, have the GPU checked (nvidia-smi -q -d ECC).",
    ),
)
THROTTLED = IssueTemplate("gpu-throttled", "warning", "GPU {gpu} is throttled now ({reasons:list}).")
CHECK_COOLING = FixTemplate("check-cooling", "Check its cooling.")
CHECK_POWER_AND_COOLING = FixTemplate("check-cooling", "Check its power supply and its cooling.")
XIDS_LOGGED = IssueTemplate("xids-logged", "warning", "The driver has reported {logged:list}.")
RESET_GPUS = FixTemplate(
    "reset-gpus",
    "Save your work and stop all programs that use {gpus:list}. Then reset, as root:",
    "sudo nvidia-smi --gpu-reset -i {indices}",
)
XID_FIXES: Mapping[XidAction, FixTemplate] = {
    "reset": FixTemplate("reset-unlisted-gpus", xids.INSTRUCTIONS["reset"]),
    "drain": FixTemplate("drain-node", xids.INSTRUCTIONS["drain"]),
    "recovery": FixTemplate("follow-recovery-action", xids.INSTRUCTIONS["recovery"]),
    "restart": FixTemplate("restart-program", xids.INSTRUCTIONS["restart"]),
    "report": FixTemplate("report-bug", xids.INSTRUCTIONS["report"]),
    "unknown": FixTemplate("see-xid-documentation", xids.INSTRUCTIONS["unknown"]),
}
"""What to do about an XID, by its action. ``RESET_GPUS`` is used if the GPUs' indices are known."""
PERSISTENCE_OFF = IssueTemplate(
    "persistence-off",
    "warning",
    "Persistence mode is off for {gpus:gpus}: the driver shuts a GPU down while no program uses it. The next "
    "program then waits seconds for the GPU, and settings such as a power limit are lost.",
    FixTemplate(
        "enable-persistence", "Turn persistence mode on until the next reboot:", "sudo nvidia-smi -pm 1"
    ),
)

# -- PCIe and access between GPUs ------------------------------------------------------------------------

PCIE_NARROW = IssueTemplate(
    "pcie-narrow",
    "warning",
    "GPU {gpu} uses only {width} of its {max_width} PCIe lanes, so copies to and from this GPU are slower.",
    FixTemplate(
        "check-slot",
        "Check its slot and riser. Some boards share lanes between slots, and some laptops turn lanes off to "
        "save power.",
    ),
    "{more} more {more:GPU does not use all its|GPUs do not use all their} lanes either.",
)
PEERS_UNKNOWN = IssueTemplate(
    "peers-unknown", "unknown", "The driver does not report which GPUs can access each other's memory."
)
PEERS_WITHOUT_ACCESS = IssueTemplate(
    "peers-without-access",
    "warning",
    "Some GPUs can't read each other's memory: {names:list}. Copies between these GPUs go through the host.",
    FixTemplate(
        "choose-connected-gpus",
        "Combine only GPUs that can access each other's memory directly. To list them:",
        "nvidia-smi topo -p2p r",
    ),
)

# -- shared memory ---------------------------------------------------------------------------------------

ENLARGE_SHM = FixTemplate("enlarge-shm", "Make /dev/shm larger:", "sudo mount -o remount,size=50% /dev/shm")
START_CONTAINER_WITH_SHM = FixTemplate(
    "start-container-with-shm",
    "Start the container with more shared memory: docker run --shm-size=8g … "
    "(Kubernetes: mount an emptyDir with medium Memory at /dev/shm).",
)
SHM_SMALL = IssueTemplate(
    "shm-small",
    "warning",
    "/dev/shm has only {total:memory}. When it is full, the workers of a DataLoader are killed by a bus "
    "error.",
)
SHM_FULL = IssueTemplate(
    "shm-full",
    "warning",
    "/dev/shm is almost full: {free:memory} of {total:memory} is free.",
    FixTemplate(
        "list-shm",
        "List the files in it:",
        "ls -la /dev/shm",
        "Delete the files that crashed programs have left.",
    ),
)

# -- gpuwidget -------------------------------------------------------------------------------------------

FILES_OVERWRITTEN = IssueTemplate(
    "gpuwidget-overwritten",
    "warning",
    (
        "{files} {files:file|files} of gpuwidget {files:was|were} overwritten by the package gpuwidget "
        "{other}.",
        "{files} {files:file|files} of gpuwidget {files:was|were} overwritten by another program.",
    ),
)
OTHER_PACKAGE = IssueTemplate(
    "gpuwidget-other-package",
    "warning",
    "An unrelated package, gpuwidget {version}, is installed beside jupyterlab-gpuwidget: both are imported "
    "as gpuwidget.",
)
OTHER_SOURCE = IssueTemplate(
    "gpuwidget-source",
    "warning",
    "GPUWIDGET_SOURCE is {source!r}, so charts do not show this machine's GPUs. The doctor still checks this "
    "machine's GPUs.",
    FixTemplate("unset-gpuwidget-source", "Unset GPUWIDGET_SOURCE to see this machine's GPUs."),
)
