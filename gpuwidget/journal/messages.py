"""The causes of deaths, and what was checked, as messages.

A likely cause begins with *Probably*. A text says no more than what was found.
"""

from __future__ import annotations

from gpuwidget.model.messages import Template
from gpuwidget.model.translation import translatable

# -- requests to Jupyter -------------------------------------------------------------------------------------

REQUESTED = {
    "shut_down": Template("death-shut-down", "Jupyter was asked to shut the kernel down."),
    "restarted": Template("death-restarted", "Jupyter was asked to restart the kernel."),
    "culled": Template(
        "death-culled", "The Jupyter server shut the kernel down because it was idle (culling)."
    ),
    "server_stopped": Template(
        "death-server-stopped", "The Jupyter server stopped, and its kernels with it."
    ),
}
"""By the request."""

# -- memory --------------------------------------------------------------------------------------------------

OUT_OF_MEMORY = Template(
    "death-out-of-memory",
    (
        "Killed by Linux's out-of-memory killer: host memory {memory}, {before_s:duration} before.",
        "Killed by Linux's out-of-memory killer: host memory {memory} at the last sample.",
        "Killed by Linux's out-of-memory killer.",
    ),
)
OUT_OF_LIMITED_MEMORY = Template(
    "death-out-of-limited-memory",
    (
        "Killed by Linux's out-of-memory killer: memory of its container or job {memory}, "
        "{before_s:duration} before.",
        "Killed by Linux's out-of-memory killer: memory of its container or job {memory} at the last sample.",
    ),
)
PROBABLY_OUT_OF_MEMORY = Template(
    "death-probably-out-of-memory",
    (
        "Probably killed by Linux's out-of-memory killer: host memory {memory}, {before_s:duration} before.",
        "Probably killed by Linux's out-of-memory killer: host memory {memory} at the last sample.",
        "Probably killed by Linux's out-of-memory killer.",
    ),
)
PROBABLY_OUT_OF_LIMITED_MEMORY = Template(
    "death-probably-out-of-limited-memory",
    (
        "Probably killed by Linux's out-of-memory killer: memory of its container or job {memory}, "
        "{before_s:duration} before.",
        "Probably killed by Linux's out-of-memory killer: memory of its container or job {memory} at "
        "the last sample.",
    ),
)

# -- signals and exit codes ----------------------------------------------------------------------------------

KILLED_NOT_FOR_MEMORY = Template(
    "death-killed-not-for-memory",
    (
        "Killed by SIGKILL, but not by Linux's out-of-memory killer, although memory was scarce "
        "({memory}, {before_s:duration} before). Usually, another process has sent this signal.",
        "Killed by SIGKILL, but not by Linux's out-of-memory killer. Usually, another process has sent "
        "this signal.",
    ),
)
KILLED = Template(
    "death-killed",
    "Killed by SIGKILL. Nothing shows whether Linux's out-of-memory killer or another process sent this "
    "signal.",
)
TERMINATED = Template(
    "death-terminated", "Ended by {signal}, which usually another process sends to end a program."
)
HUNG_UP = Template(
    "death-hung-up", "Ended by SIGHUP, which is usually sent when a terminal or a connection closes."
)
INTERRUPTED = Template("death-interrupted", "Ended by SIGINT, which Ctrl+C and Jupyter's interrupt send.")
CPU_LIMIT = Template("death-cpu-limit", "Ended by SIGXCPU, because it reached its limit of CPU time.")
FILE_LIMIT = Template("death-file-limit", "Ended by SIGXFSZ, because a file reached the limit of its size.")
SIGNALED = Template("death-signaled", "Ended by {signal}.")
WITHOUT_SIGNAL_NAME = {"SIGHUP": HUNG_UP, "SIGINT": INTERRUPTED, "SIGXCPU": CPU_LIMIT, "SIGXFSZ": FILE_LIMIT}
"""The texts of signals that have one of their own."""
TERMINATING = ("SIGTERM", "SIGQUIT")
CRASHED = Template(
    "death-crashed",
    (
        "Crashed in {library} with {signal}, the signal for {meaning}.",
        "Crashed with {signal}, the signal for {meaning}.",
    ),
)
CRASHED_SHM_FULL = Template(
    "death-crashed-shm-full", "Crashed with SIGBUS. /dev/shm is full, which is the usual reason."
)
EXITED = Template(
    "death-exited",
    "Code in the process ended it with exit code {code}, for example os._exit() or a library's exit().",
)
EXITED_NORMALLY = Template(
    "death-exited-normally",
    "The process ended without an error (exit code 0). Probably its own code ended it, or a request to shut "
    "down that no server saw.",
)
PROBABLY_SIGNALED = Template(
    "death-probably-signaled",
    "Probably ended by {signal}: the exit code was {code}, which a shell returns for this signal.",
)
CRASHES = {
    "SIGSEGV": translatable("an invalid memory access"),
    "SIGBUS": translatable("memory that the system can't provide"),
    "SIGILL": translatable("an invalid instruction"),
    "SIGFPE": translatable("an invalid calculation"),
    "SIGABRT": translatable("an error that a library found (abort)"),
    "SIGTRAP": translatable("a breakpoint or a failed check"),
    "SIGSYS": translatable("a forbidden system call"),
}
"""Meanings of the signals that a defect of a program causes."""

# -- GPUs ----------------------------------------------------------------------------------------------------

XID_CRASHED = Template(
    "death-xid-crashed",
    (
        "Crashed ({signal}) after XID {number} on GPU {gpu}: {meaning}.",
        "Crashed ({signal}) after XID {number}: {meaning}.",
    ),
)
XID_EXITED = Template(
    "death-xid-exited",
    (
        "Ended with exit code {code} after XID {number} on GPU {gpu}: {meaning}.",
        "Ended with exit code {code} after XID {number}: {meaning}.",
    ),
)
XID_ENDED = Template(
    "death-xid-ended",
    (
        "Ended after XID {number} on GPU {gpu}: {meaning}.",
        "Ended after XID {number}: {meaning}.",
    ),
)
LOST_CRASHED = Template("death-gpu-lost-crashed", "Crashed ({signal}) after GPU {gpu} was lost.")
LOST_EXITED = Template("death-gpu-lost-exited", "Ended with exit code {code} after GPU {gpu} was lost.")
LOST_ENDED = Template("death-gpu-lost-ended", "Ended after GPU {gpu} was lost.")

# -- Slurm and the machine -----------------------------------------------------------------------------------

SLURM = {
    "TIMEOUT": Template("death-slurm-timeout", "Slurm ended job {job} because it reached its time limit."),
    "DEADLINE": Template("death-slurm-deadline", "Slurm ended job {job} because it reached its deadline."),
    "CANCELLED": Template("death-slurm-canceled", "Slurm job {job} was canceled."),
    "PREEMPTED": Template(
        "death-slurm-preempted", "Slurm ended job {job} in favor of another job (preemption)."
    ),
    "NODE_FAIL": Template("death-slurm-node-fail", "Slurm ended job {job} because a node failed."),
}
"""By the state of a job that Slurm has ended."""
SLURM_OUT_OF_MEMORY = Template(
    "death-slurm-out-of-memory",
    "Probably killed for lack of memory: Slurm job {job} ended because it ran out of memory.",
)
SLURM_PROBABLY = Template(
    "death-slurm-probably", "Probably ended by Slurm, because job {job} reached its time limit."
)
RESTARTED = Template(
    "death-machine-restarted",
    "Probably ended with its machine, which started again at {at}, {after_s:duration} after the last sample.",
)
RESTARTED_LATER = Template(
    "death-unknown-machine-restarted",
    "Nothing shows why the process ended. Its machine started again at {at}, {after_s:duration} after the "
    "last sample.",
)
SILENT = Template(
    "run-silent",
    "The run has written no sample since {at}. Its process is on {host} or in another container, where it "
    "can't be seen from here.",
)
UNKNOWN = Template("death-unknown", "Nothing shows why the process ended.")

LIKELY = Template("death-likely", "This is likely, but not certain.")

# -- what was checked ----------------------------------------------------------------------------------------

EXIT_UNKNOWN = Template("checked-exit-unknown", "No Jupyter server saw the exit code.")
EXIT_CODE = Template("checked-exit-code", "The exit code is {code}.")
OOM_NONE = Template(
    "checked-oom-none",
    "The out-of-memory killer has killed no process on the machine, or none in the process's control group, "
    "since the last sample.",
)
OOM_OTHERS = Template(
    "checked-oom-others",
    "The out-of-memory killer has killed {number} {number:process|processes} since the last sample, but "
    "nothing shows that this process was among them.",
)
OOM_UNREADABLE = Template(
    "checked-oom-unreadable", "The out-of-memory killer's counters can't be compared with those of the run."
)
LOG_NONE = Template("checked-log-none", "The system's log (dmesg) doesn't mention the process's end.")
LOG_UNREADABLE = Template("checked-log-unreadable", "The system's log (dmesg) isn't readable.")
LOG_OTHER_IDS = Template(
    "checked-log-other-ids",
    "The system's log (dmesg) has other process ids, because the process ran in a container.",
)
LOG_OTHER_BOOT = Template(
    "checked-log-other-boot", "The system's log (dmesg) of that machine, at that time, isn't available here."
)
LOG_CLOCK = Template(
    "checked-log-clock",
    "The clock was set back since the last sample, so times in the system's log (dmesg) can't be compared.",
)
SLURM_NONE = Template("checked-slurm-none", "The process didn't run in a Slurm job.")
SLURM_UNREADABLE = Template("checked-slurm-unreadable", "sacct doesn't know the state of Slurm job {job}.")
SLURM_SAME = Template("checked-slurm-same", "Slurm job {job} still runs.")
SLURM_STATE = Template(
    "checked-slurm-state",
    (
        "Slurm job {job} has the state {state} and ended {after_s:duration} after the last sample.",
        "Slurm job {job} has the state {state}.",
    ),
)
SLURM_STATE_BEFORE = Template(
    "checked-slurm-state-before",
    "Slurm job {job} has the state {state}, and ended before the last sample.",
)
BOOT_SAME = Template("checked-boot-same", "The machine hasn't restarted since the last sample.")
BOOT_LATER = Template(
    "checked-boot-later", "The machine started again at {at}, {after_s:duration} after the last sample."
)
BOOT_OTHER_MACHINE = Template(
    "checked-boot-other-machine",
    "The process ran on another machine ({host}), which can't be checked from here.",
)
BOOT_UNKNOWN = Template(
    "checked-boot-unknown", "Nothing shows whether the machine has restarted since the last sample."
)
XIDS_NONE = Template("checked-xids-none", "The driver reported no error (XID) for the run's GPUs.")
XIDS = Template(
    "checked-xids",
    "The driver reported XID {number} during the run, but nothing connects it with the end of the process.",
)
GPU_LOST = Template(
    "checked-gpu-lost",
    "GPU {gpu} was lost during the run, but nothing connects that with the end of the process.",
)
