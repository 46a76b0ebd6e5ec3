"""What the journal stores of one run, and why a run died."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from gpuwidget.model.messages import Message
from gpuwidget.model.report import Report

Certainty = Literal["certain", "likely", "unknown"]
"""``certain``: recorded by the system, by Jupyter or by Slurm for this process. ``likely``: the only
explanation of what was found. ``unknown``: no cause was found."""
Cause = Literal[
    "out_of_memory",
    "signal",
    "crash",
    "exit",
    "shut_down",
    "restarted",
    "culled",
    "server_stopped",
    "xid",
    "gpu_lost",
    "reboot",
    "slurm",
    "unknown",
]
"""Why a run died. ``crash`` is a signal that a defect of a program causes, such as SIGSEGV; ``signal`` is one
that another process has sent, such as SIGKILL; ``exit`` is the end of the process by its own code, such as
``os._exit``; ``shut_down``, ``restarted`` and ``culled`` are requests to Jupyter."""


EndRequest = Literal["shut_down", "restarted", "culled", "server_stopped"]
"""The requests to Jupyter that end a kernel. They are causes, too."""


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """Identifies a kernel's process on any machine. Unknown values are None."""

    host: str
    boot_id: str | None
    """Linux's id of the machine's boot: ``/proc/sys/kernel/random/boot_id``."""
    pid_namespace: str | None
    """The PID namespace, such as ``pid:[4026531836]``. Containers have different ones."""
    pid: int
    started: str | None
    """Start of the process in clock ticks since the boot: field 22 of ``/proc/PID/stat``. A later process
    with the same id has another start."""
    slurm_job: str | None
    """The id of the Slurm job in which the process runs."""
    slurm_end: float | None
    """End of the Slurm job in epoch seconds."""


@dataclass(frozen=True, slots=True)
class RunXid:
    """An error that the driver reported for a GPU during the run."""

    uuid: str
    number: int
    time: float
    """Epoch seconds."""


@dataclass(frozen=True, slots=True)
class MachineState:
    """The host's memory and the GPUs' errors at the last sample. Sizes are in bytes; unknown values are
    None."""

    time: float
    """Epoch seconds."""
    resident: int | None
    """Resident memory of the kernel's process."""
    cgroup_used: int | None
    """Memory in use in the control group with the lowest limit, or in the kernel's own group without a limit
    (``memory.current``). The inactive part of the page cache doesn't count."""
    cgroup_limit: int | None
    """Lowest memory limit of the kernel's control groups (``memory.max``). None without a limit."""
    cgroup_oom_kills: int | None
    """How many processes of the kernel's control group the out-of-memory killer has killed
    (``memory.events``)."""
    machine_available: int | None
    """Memory that programs could still get (``MemAvailable`` of ``/proc/meminfo``)."""
    machine_total: int | None
    machine_oom_kills: int | None
    """How many processes the out-of-memory killer has killed on the machine (``oom_kill`` of
    ``/proc/vmstat``)."""
    xids: tuple[RunXid, ...]
    shutdown_requested: float | None
    """When Jupyter asked the kernel to shut down, in epoch seconds."""
    restart_requested: bool
    """Whether that request was for a restart."""
    cgroup: str | None = None
    """The kernel's control group, as :func:`gpuwidget.system.cgroups.memory` names it."""


@dataclass(frozen=True, slots=True)
class JournaledRun:
    """A run in the journal: the whole content of its file."""

    notebook: str | None
    """Absolute path of the notebook."""
    cell_id: str | None
    """Id of the cell; None for a run outside a cell, and in a front end without cell ids."""
    code: str | None
    """CRC-32 of the cell's code in UTF-8, as 8 hexadecimal digits; None for a run outside a cell."""
    kernel_id: str | None
    process: ProcessIdentity
    machine: MachineState
    report: Report
    """The report of the ended run, or of the run up to its last sample."""
    oom: Mapping[str, Any] | None = None
    """The card of an out-of-memory error, with which the card begins: a MIME bundle."""


@dataclass(frozen=True, slots=True)
class KernelEnd:
    """What the server knows about the end of a kernel's process."""

    time: float | None
    """Epoch seconds; None if the server noticed only later that the process had ended."""
    exit_code: int | None
    """Exit code of the process; negative for a signal, as in :attr:`subprocess.Popen.returncode`."""
    requested: EndRequest | None
    """The request to Jupyter that ended the kernel."""


@dataclass(frozen=True, slots=True)
class Death:
    """Why a run died."""

    cause: Cause
    certainty: Certainty
    text: Message
    """A sentence with the reason, such as *Killed by Linux's out-of-memory killer: host memory 251 of
    256 GiB.*"""
    checked: tuple[Message, ...]
    """What was checked without finding the cause. Empty if the cause is certain."""
