"""Why the process of a run died.

:data:`RULES` are tried in order, the strongest evidence first. A rule returns a cause only if nothing that
was found contradicts it, because a missing cause is better than a wrong one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuwidget.journal import messages
from gpuwidget.journal.evidence import Evidence, ReadLog, ReadSlurm, UsedXid, read_log
from gpuwidget.journal.records import Cause, Certainty, Death, JournaledRun, KernelEnd
from gpuwidget.model.messages import Message, Template
from gpuwidget.model.units import clock_time, memory_of
from gpuwidget.sources import xids
from gpuwidget.system import slurm

_REQUEST_S = 60.0
"""Seconds within which a kernel ends after Jupyter's request. Jupyter kills it after some seconds."""
_SLURM_S = 90.0
"""Seconds between the last sample and the end of a job that ended the process: the time between samples, and
the 30 s between Slurm's SIGTERM and SIGKILL."""
_SAMPLE_S = 30.0
"""Seconds between two samples, which are written every 10 s, with a margin for a busy process."""
_BEFORE_JOB_S = 15.0
"""Seconds by which Slurm's times may differ from the machine's."""
_NODE_FAIL_S = 600.0
"""Seconds until Slurm notices that a node has failed (SlurmdTimeout, 300 s by default), with a margin."""
_RESTART_S = 900.0
"""Seconds within which a machine that has crashed runs again."""
_RECENT_S = 300.0
"""Seconds in which a counter of the control group counts no later kills, in all likelihood."""
_TIGHT = 0.05
"""Share of the memory that is left shortly before the out-of-memory killer runs."""
_OF_ONE_PROCESS = (*xids.APPLICATION_XIDS, 94)
"""The XIDs that concern only one process of a GPU."""
_BY_SLURM = ("SIGTERM", "SIGKILL", "SIGINT", "SIGHUP", "SIGCONT")
"""The signals with which Slurm ends processes, or that it sends before the end (``--signal``)."""


@dataclass(frozen=True, slots=True)
class Found:
    """A cause that a rule has found."""

    cause: Cause
    certainty: Certainty
    text: Message
    topics: tuple[str, ...] = ()
    """The topics of :func:`_checked` in which the cause was found."""


def explain(
    run: JournaledRun,
    end: KernelEnd | None,
    now: float,
    *,
    root: Path = Path("/"),
    slurm_state: ReadSlurm = slurm.job_state,
    kernel_log: ReadLog = read_log,
) -> Death:
    """Return why the process of a run died. Call this only if the process has ended.

    ``end`` is what the server saw of the end, or None. ``now`` is in epoch seconds. ``root`` is the folder
    that contains ``/proc``, ``/sys`` and ``/dev``. Reading the kernel's log takes up to 1 s, and sacct, which
    is run for a process in a Slurm job, up to 10 s, so call this on a thread that may wait.
    """
    evidence = Evidence(run, end, now, root, slurm_state, kernel_log)
    found = next((found for rule in RULES if (found := rule(evidence)) is not None), None)
    if found is None:
        found = Found("unknown", "unknown", _unknown(evidence))
    checked = () if found.certainty == "certain" else _checked(evidence, found)
    return Death(found.cause, found.certainty, found.text, checked)


# -- requests to Jupyter -------------------------------------------------------------------------------------


def _requested(evidence: Evidence) -> Found | None:
    """The server ended the kernel on request."""
    requested = None if evidence.end is None else evidence.end.requested
    return None if requested is None else Found(requested, "certain", messages.REQUESTED[requested]())


def _request_noted(evidence: Evidence) -> Found | None:
    """The kernel itself received a request to shut down, shortly before its end."""
    state = evidence.run.machine
    if state.shutdown_requested is None or not 0 <= state.time - state.shutdown_requested <= _REQUEST_S:
        return None
    requested: Cause = "restarted" if state.restart_requested else "shut_down"
    return Found(requested, "certain", messages.REQUESTED[requested]())


# -- memory --------------------------------------------------------------------------------------------------


def _out_of_memory_in_log(evidence: Evidence) -> Found | None:
    """The kernel's log names the process as killed."""
    if evidence.killed_at is None or not evidence.may_be("SIGKILL"):
        return None
    certain = messages.OUT_OF_MEMORY, messages.OUT_OF_LIMITED_MEMORY
    return Found("out_of_memory", "certain", _memory_text(evidence, *certain))


def _out_of_memory_by_counter(evidence: Evidence) -> Found | None:
    """The out-of-memory killer has killed a process since the last sample, most likely this one."""
    if evidence.others_killed or not evidence.may_be("SIGKILL"):
        return None
    kills = evidence.oom_kills
    ended = evidence.last if evidence.end_time is None else evidence.end_time
    is_recent = -1 <= evidence.now - ended <= _RECENT_S
    own = bool(kills.cgroup) and (is_recent or _is_tight(evidence))
    # Other containers' processes count too.
    machine_wide = kills.cgroup is None and bool(kills.machine) and _is_tight(evidence)
    if not own and not machine_wide:
        return None
    likely = messages.PROBABLY_OUT_OF_MEMORY, messages.PROBABLY_OUT_OF_LIMITED_MEMORY
    return Found("out_of_memory", "likely", _memory_text(evidence, *likely), ("out_of_memory",))


def _is_tight(evidence: Evidence) -> bool:
    """Return whether little memory was left at the last sample, on the machine or below the limit."""
    return any(used > (1 - _TIGHT) * total for used, total in (_of_group(evidence), _of_machine(evidence)))


def _of_group(evidence: Evidence) -> tuple[int, int]:
    """Return the memory in use of the control groups, and their limit; zeros if that is unknown."""
    state = evidence.run.machine
    if state.cgroup_used is None or state.cgroup_limit is None:
        return 0, 0
    return state.cgroup_used, state.cgroup_limit


def _of_machine(evidence: Evidence) -> tuple[int, int]:
    """Return the memory in use on the machine, and all of it; zeros if that is unknown."""
    state = evidence.run.machine
    if state.machine_available is None or state.machine_total is None:
        return 0, 0
    return state.machine_total - state.machine_available, state.machine_total


def _is_limited(evidence: Evidence) -> bool:
    """Return whether the control groups have a limit below the machine's memory."""
    limit, total = _of_group(evidence)[1], _of_machine(evidence)[1]
    return limit > 0 and (total == 0 or limit < total)


def _memory_text(evidence: Evidence, of_machine: Template, of_group: Template) -> Message:
    """Return a text with the memory at the last sample: that of the control groups if they have a limit."""
    if _is_limited(evidence):
        return of_group(**_memory(evidence, *_of_group(evidence)))
    return of_machine(**_memory(evidence, *_of_machine(evidence)))


def _memory(evidence: Evidence, used: int, total: int) -> dict[str, Any]:
    """Return the parameters of a text with memory."""
    if total == 0:
        return {"memory": None, "before_s": None}
    ends = (evidence.killed_at, evidence.end_time)
    before = next((end - evidence.last for end in ends if end is not None and end >= evidence.last), None)
    return {"memory": memory_of(used, total), "before_s": before}


# -- Slurm ---------------------------------------------------------------------------------------------------


def _slurm_ended_job(evidence: Evidence) -> Found | None:
    """Slurm has ended the job at the time of the process's end."""
    job = evidence.slurm_job
    if job is None or job.end is None or not evidence.may_be(*_BY_SLURM):
        return None
    if not _ended_with_job(evidence, job.end, _NODE_FAIL_S if job.state == "NODE_FAIL" else _SLURM_S):
        return None
    name = evidence.run.process.slurm_job
    if job.state == "OUT_OF_MEMORY" and evidence.may_be("SIGKILL"):
        return Found("out_of_memory", "likely", messages.SLURM_OUT_OF_MEMORY(job=name), ("slurm",))
    template = messages.SLURM.get(job.state)
    if template is None:
        return None
    # Without a server, the process may have ended between its last sample and the job's end.
    is_close = evidence.end is not None or job.state == "NODE_FAIL" or job.end - evidence.last <= _SAMPLE_S
    return Found("slurm", "certain" if is_close else "likely", template(job=name), ("slurm",))


def _slurm_limit(evidence: Evidence) -> Found | None:
    """The process ended at the job's end as the environment contained it, and Slurm doesn't say otherwise."""
    process = evidence.run.process
    if process.slurm_job is None or process.slurm_end is None or evidence.in_same_job:
        return None
    if evidence.slurm_job is not None or evidence.now < process.slurm_end:
        return None  # Slurm says what happened, or the job has been ended earlier or extended.
    if not evidence.may_be(*_BY_SLURM) or not _ended_with_job(evidence, process.slurm_end, _SLURM_S):
        return None
    return Found("slurm", "likely", messages.SLURM_PROBABLY(job=process.slurm_job), ("slurm",))


def _ended_with_job(evidence: Evidence, job_end: float, longest: float) -> bool:
    """Return whether the process ended when its job did. ``longest`` is the longest time from the last sample
    to the job's end, in seconds."""
    if evidence.end_time is not None and evidence.end_time < job_end - _BEFORE_JOB_S:
        return False
    return -_SLURM_S <= job_end - evidence.last <= longest


# -- GPUs ----------------------------------------------------------------------------------------------------


def _xid_of_process(evidence: Evidence) -> Found | None:
    """The driver names the process for an XID, and the process ended abnormally."""
    xid = evidence.own_xid
    if xid is None or not _is_abnormal(evidence):
        return None
    certainty: Certainty = "likely" if evidence.exit_code is None else "certain"
    return Found("xid", certainty, _xid_text(evidence, xid), ("xid", "log"))


def _xid_of_gpu(evidence: Evidence) -> Found | None:
    """A GPU that the run used had an XID shortly before the process ended abnormally."""
    for xid in evidence.near_xids:
        if _may_end_process(evidence, xid) and _is_abnormal(evidence):
            return Found("xid", "likely", _xid_text(evidence, xid), ("xid",))
    return None


def _may_end_process(evidence: Evidence, xid: UsedXid) -> bool:
    """Return whether the XID concerns this process, although the driver doesn't name it."""
    if xid.number not in _OF_ONE_PROCESS:
        return True
    # That process may be another one. And the XID ends only its work on the GPU, so it may go on.
    return evidence.exit_code is not None and not evidence.other_process_has_xid(xid.number)


def _gpu_lost(evidence: Evidence) -> Found | None:
    """A GPU that the run used was lost shortly before the process ended abnormally."""
    gpu = evidence.lost_gpu
    if gpu is None or not _is_abnormal(evidence):
        return None
    return Found("gpu_lost", "likely", _gpu_lost_text(evidence, gpu), ("xid",))


def _gpu_lost_text(evidence: Evidence, gpu: str) -> Message:
    if evidence.signal is not None:
        return messages.LOST_CRASHED(signal=evidence.signal, gpu=gpu)
    if evidence.exit_code is not None:
        return messages.LOST_EXITED(code=evidence.exit_code, gpu=gpu)
    return messages.LOST_ENDED(gpu=gpu)


def _is_abnormal(evidence: Evidence) -> bool:
    """Return whether the process may have ended because of an error: it crashed, or its exit code is not 0
    or unknown. A signal such as SIGKILL comes from elsewhere."""
    if evidence.exit_code is None:
        return not evidence.restarted
    name = evidence.signal or evidence.shell_signal
    return evidence.exit_code != 0 if name is None else name in messages.CRASHES


def _xid_text(evidence: Evidence, xid: UsedXid) -> Message:
    values: dict[str, Any] = {"number": xid.number, "gpu": xid.gpu, "meaning": xids.describe(xid.number)}
    if evidence.signal is not None:
        return messages.XID_CRASHED(signal=evidence.signal, **values)
    if evidence.exit_code is not None:
        return messages.XID_EXITED(code=evidence.exit_code, **values)
    return messages.XID_ENDED(**values)


# -- signals and exit codes ----------------------------------------------------------------------------------


def _crashed(evidence: Evidence) -> Found | None:
    """A signal that a defect of a program causes ended the process."""
    name = evidence.signal
    if name is None or name not in messages.CRASHES:
        return None
    if name == "SIGBUS" and evidence.shm_full:
        return Found("crash", "certain", messages.CRASHED_SHM_FULL())
    text = messages.CRASHED(signal=name, meaning=messages.CRASHES[name], library=evidence.faulty_library)
    return Found("crash", "certain", text)


def _signaled(evidence: Evidence) -> Found | None:
    """Another signal ended the process."""
    name = evidence.signal
    if name is None:
        return None
    if name == "SIGKILL":
        return Found("signal", "certain", _killed_text(evidence))
    if name in messages.WITHOUT_SIGNAL_NAME:
        return Found("signal", "certain", messages.WITHOUT_SIGNAL_NAME[name]())
    if name in messages.TERMINATING:
        return Found("signal", "certain", messages.TERMINATED(signal=name))
    return Found("signal", "certain", messages.SIGNALED(signal=name))


def _killed_text(evidence: Evidence) -> Message:
    if 0 not in evidence.oom_kills and not evidence.others_killed:
        return messages.KILLED()
    used, total = _of_group(evidence) if _is_limited(evidence) else _of_machine(evidence)
    return messages.KILLED_NOT_FOR_MEMORY(**_memory(evidence, used, total if _is_tight(evidence) else 0))


def _exited(evidence: Evidence) -> Found | None:
    """The process ended with an exit code."""
    code = evidence.exit_code
    if code is None:
        return None
    name = evidence.shell_signal
    if code == 0:
        return Found("exit", "likely", messages.EXITED_NORMALLY(), ("exit",))
    if name is None:
        return Found("exit", "certain", messages.EXITED(code=code))
    cause: Cause = "crash" if name in messages.CRASHES else "signal"
    return Found(cause, "likely", messages.PROBABLY_SIGNALED(signal=name, code=code), ("exit",))


# -- the machine ---------------------------------------------------------------------------------------------


def _machine_restarted(evidence: Evidence) -> Found | None:
    """The machine started again shortly after the last sample."""
    booted = evidence.restarted
    if booted is None or booted - evidence.last > _RESTART_S:
        return None
    return Found("reboot", "likely", messages.RESTARTED(**_restart(evidence, booted)), ("boot",))


def _restart(evidence: Evidence, booted: float) -> dict[str, Any]:
    return {"at": clock_time(booted), "after_s": max(0.0, booted - evidence.last)}


def _unknown(evidence: Evidence) -> Message:
    if evidence.restarted is not None:
        return messages.RESTARTED_LATER(**_restart(evidence, evidence.restarted))
    return messages.UNKNOWN()


RULES: tuple[Callable[[Evidence], Found | None], ...] = (
    _requested,
    _request_noted,
    _out_of_memory_in_log,
    _slurm_ended_job,
    _xid_of_process,
    _out_of_memory_by_counter,
    _slurm_limit,
    _xid_of_gpu,
    _gpu_lost,
    _crashed,
    _signaled,
    _exited,
    _machine_restarted,
)
"""The rules, the strongest evidence first. Each returns None if it doesn't apply."""


# -- what was checked ----------------------------------------------------------------------------------------


def _checked(evidence: Evidence, found: Found) -> tuple[Message, ...]:
    """Return what was checked without finding the cause."""
    topics = {
        "exit": _checked_exit(evidence),
        "out_of_memory": _checked_memory(evidence),
        "log": _checked_log(evidence),
        "slurm": _checked_slurm(evidence),
        "boot": _checked_boot(evidence),
        "xid": _checked_gpus(evidence),
    }
    return tuple(text for topic, text in topics.items() if topic not in found.topics)


def _checked_exit(evidence: Evidence) -> Message:
    code = evidence.exit_code
    return messages.EXIT_UNKNOWN() if code is None else messages.EXIT_CODE(code=code)


def _checked_memory(evidence: Evidence) -> Message:
    kills = evidence.oom_kills
    if 0 in kills:
        return messages.OOM_NONE()
    known = kills.machine if kills.cgroup is None else kills.cgroup
    return messages.OOM_UNREADABLE() if known is None else messages.OOM_OTHERS(number=known)


def _checked_log(evidence: Evidence) -> Message:
    if not evidence.same_boot:
        return messages.LOG_OTHER_BOOT()
    if not evidence.log_has_same_ids:
        return messages.LOG_OTHER_IDS()
    if evidence.clock_set_back:
        return messages.LOG_CLOCK()
    return messages.LOG_UNREADABLE() if not evidence.has_log else messages.LOG_NONE()


def _checked_slurm(evidence: Evidence) -> Message:
    name, job = evidence.run.process.slurm_job, evidence.slurm_job
    if name is None:
        return messages.SLURM_NONE()
    if evidence.in_same_job:
        return messages.SLURM_SAME(job=name)
    if job is None:
        return messages.SLURM_UNREADABLE(job=name)
    after = None if job.end is None else job.end - evidence.last
    if after is not None and after < 0:
        return messages.SLURM_STATE_BEFORE(job=name, state=job.state)
    return messages.SLURM_STATE(job=name, state=job.state, after_s=after)


def _checked_boot(evidence: Evidence) -> Message:
    if evidence.same_boot:
        return messages.BOOT_SAME()
    if evidence.restarted is not None:
        return messages.BOOT_LATER(**_restart(evidence, evidence.restarted))
    if evidence.is_other_machine:
        return messages.BOOT_OTHER_MACHINE(host=evidence.run.process.host)
    return messages.BOOT_UNKNOWN()


def _checked_gpus(evidence: Evidence) -> Message:
    if evidence.lost_gpu is not None:
        return messages.GPU_LOST(gpu=evidence.lost_gpu)
    numbers = [xid.number for xid in evidence.run.machine.xids]
    return messages.XIDS(number=numbers[-1]) if numbers else messages.XIDS_NONE()
