"""Tests of why a run's process died, on simulated machines.

Many cases are traps, in which a simpler rule would name a wrong cause.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import helpers_reports
import pytest
from helpers_deaths import (
    BOOT,
    CONTAINER,
    LAST,
    UNUSED_GPU,
    Case,
    ended,
    gpus,
    line,
    oom_line,
    process,
    roomy,
    state,
    xid,
    xid_line,
)
from helpers_reports import gib

from gpuwidget.journal import evidence
from gpuwidget.journal.records import Cause, Certainty
from gpuwidget.sources import xids
from gpuwidget.system.slurm import JobState

JOB = process(slurm_job="77")
JOB_WITH_END = process(slurm_job="77", slurm_end=LAST + 5)
LIMITED = roomy(cgroup_used=gib(62), cgroup_limit=gib(64))
HOST_MEMORY = {"memory": "251.0 of 256.0 GiB", "before_s": 8.0}
GROUP_MEMORY = {"memory": "62.0 of 64.0 GiB", "before_s": 8.0}
UNKNOWN_TIME = {"before_s": None}
NO_MEMORY = {"memory": None, "before_s": None}
LATER = LAST + 3 * 86_400
SEGFAULT = (
    "python[27529]: segfault at 0 ip 00007fb451d401e3 sp 00007ffd6f4afaf0 error 6 in libcuda.so.1[11e3,7f+1]"
)


def lost(since: float) -> Any:
    """Return a report whose first GPU was lost at a time after the last sample."""
    first, second = gpus()
    return helpers_reports.report(helpers_reports.changed(first, lost_since=LAST + since), second, points=2)


def xid_values(number: int, **values: Any) -> dict[str, Any]:
    return {"number": number, "meaning": xids.describe(number), **values}


Row = tuple[Case, Cause, Certainty, str, dict[str, Any]]

REQUESTS: dict[str, Row] = {
    "shut down, exit code 0": (
        Case(ended(0, requested="shut_down")),
        *("shut_down", "certain", "death-shut-down", {}),
    ),
    "shut down, killed after the time-out": (
        Case(ended(-9, requested="shut_down"), state=state(), group_kills=1, machine_kills=4),
        *("shut_down", "certain", "death-shut-down", {}),
    ),
    "restarted": (Case(ended(-15, requested="restarted")), "restarted", "certain", "death-restarted", {}),
    "culled": (Case(ended(0, requested="culled")), "culled", "certain", "death-culled", {}),
    "server stopped": (
        Case(ended(requested="server_stopped")),
        *("server_stopped", "certain", "death-server-stopped", {}),
    ),
    "the kernel noted a shutdown": (
        Case(state=roomy(shutdown_requested=LAST - 3)),
        *("shut_down", "certain", "death-shut-down", {}),
    ),
    "the kernel noted a restart": (
        Case(state=roomy(shutdown_requested=LAST - 3, restart_requested=True)),
        *("restarted", "certain", "death-restarted", {}),
    ),
    "an old request that had no effect": (
        Case(ended(-11), state=roomy(shutdown_requested=LAST - 3600)),
        *("crash", "certain", "death-crashed"),
        {"signal": "SIGSEGV", "library": None, "meaning": "an invalid memory access"},
    ),
}

MEMORY: dict[str, Row] = {
    "the log names the process": (
        Case(ended(-9), state=state(), log=[oom_line()], group_kills=1, machine_kills=4),
        *("out_of_memory", "certain", "death-out-of-memory", HOST_MEMORY | {"before_s": 5.0}),
    ),
    "the log names the process, without a server": (
        Case(state=state(), log=[oom_line(after=2.0)], now=LATER),
        *("out_of_memory", "certain", "death-out-of-memory", HOST_MEMORY | {"before_s": 2.0}),
    ),
    "the log of a group with a limit": (
        Case(ended(137), state=LIMITED, log=[oom_line()]),
        *("out_of_memory", "certain", "death-out-of-limited-memory", GROUP_MEMORY | {"before_s": 5.0}),
    ),
    "the clocks of log and process have drifted": (
        Case(ended(-9), state=state(), log=[oom_line(after=-20)], machine_kills=4),
        *("out_of_memory", "certain", "death-out-of-memory", HOST_MEMORY),
    ),
    "the group's counter has grown": (
        Case(ended(-9), state=LIMITED, log=None, group_kills=1, machine_kills=4),
        *("out_of_memory", "likely", "death-probably-out-of-limited-memory", GROUP_MEMORY),
    ),
    "the group's counter has grown, without a server": (
        Case(state=LIMITED, log=None, group_kills=1, machine_kills=4),
        *("out_of_memory", "likely", "death-probably-out-of-limited-memory", GROUP_MEMORY | UNKNOWN_TIME),
    ),
    "the machine's counter has grown, and memory was tight": (
        Case(ended(-9), state=state(), log=None, group_kills=None, machine_kills=4),
        *("out_of_memory", "likely", "death-probably-out-of-memory", HOST_MEMORY),
    ),
    "trap: another container was out of memory": (
        Case(ended(-9), log=None, group_kills=None, machine_kills=4),
        *("signal", "certain", "death-killed", {}),
    ),
    "trap: another container, without a server": (
        Case(log=None, group_kills=None, machine_kills=4),
        *("unknown", "unknown", "death-unknown", {}),
    ),
    "trap: another group, while memory was tight": (
        Case(ended(-9), state=state(), log=None, group_kills=0, machine_kills=4),
        *("signal", "certain", "death-killed-not-for-memory", HOST_MEMORY),
    ),
    "trap: the log names only another process of the group": (
        Case(ended(-9), state=LIMITED, log=[oom_line(pid=4)], group_kills=1, machine_kills=4),
        *("signal", "certain", "death-killed-not-for-memory", GROUP_MEMORY),
    ),
    "trap: the process with this id before": (
        Case(state=state(), log=[oom_line(after=-110)], now=LATER, machine_kills=9, group_kills=0),
        *("unknown", "unknown", "death-unknown", {}),
    ),
    "trap: the process with this id before, half a minute before the last sample": (
        Case(
            process=process(started=str(86_380 * os.sysconf("SC_CLK_TCK"))),
            state=state(),
            log=[oom_line(after=-30)],
        ),
        *("unknown", "unknown", "death-unknown", {}),
    ),
    "trap: the process with this id a day later": (
        Case(log=[oom_line(after=86_400)], now=LATER, machine_kills=4, group_kills=None),
        *("unknown", "unknown", "death-unknown", {}),
    ),
    "trap: ids of a container": (
        Case(ended(-9), process(pid_namespace=CONTAINER), state=roomy(), log=[oom_line()], machine_kills=4),
        *("signal", "certain", "death-killed", {}),
    ),
    "trap: the container has been started again": (
        Case(
            process=process(pid_namespace=CONTAINER),
            state=LIMITED,
            namespace=CONTAINER,
            namespace_started=LAST + 20,
            now=LAST + 60,
            group_kills=1,
        ),
        *("unknown", "unknown", "death-unknown", {}),
    ),
    "trap: a kill of the group two days later": (
        Case(log=None, group_kills=1, machine_kills=4, now=LATER),
        *("unknown", "unknown", "death-unknown", {}),
    ),
    "trap: the clock was set back": (
        Case(log=[oom_line(after=-3600)], now=LAST - 3600, group_kills=1, machine_kills=4),
        *("unknown", "unknown", "death-unknown", {}),
    ),
    "trap: a kill while the process crashed": (
        Case(ended(-6), state=state(), log=[oom_line()], group_kills=1, machine_kills=4),
        *("crash", "certain", "death-crashed"),
        {"signal": "SIGABRT", "library": None, "meaning": "an error that a library found (abort)"},
    ),
}

SIGNALS: dict[str, Row] = {
    "SIGKILL, no kill for memory": (
        Case(ended(-9)),
        *("signal", "certain", "death-killed-not-for-memory", NO_MEMORY),
    ),
    "SIGKILL, counters unreadable": (
        Case(ended(-9), group_kills=None, machine_kills=None),
        *("signal", "certain", "death-killed", {}),
    ),
    "SIGTERM": (Case(ended(-15)), "signal", "certain", "death-terminated", {"signal": "SIGTERM"}),
    "SIGHUP": (Case(ended(-1)), "signal", "certain", "death-hung-up", {}),
    "SIGXCPU": (Case(ended(-24)), "signal", "certain", "death-cpu-limit", {}),
    "a real-time signal": (Case(ended(-40)), "signal", "certain", "death-signaled", {"signal": "signal 40"}),
    "SIGSEGV in a library": (
        Case(ended(-11), log=[line(SEGFAULT)]),
        *("crash", "certain", "death-crashed"),
        {"signal": "SIGSEGV", "library": "libcuda.so.1", "meaning": "an invalid memory access"},
    ),
    "trap: SIGSEGV of another process in a library": (
        Case(ended(-11), log=[line(SEGFAULT.replace("27529", "27530"))]),
        *("crash", "certain", "death-crashed"),
        {"signal": "SIGSEGV", "library": None, "meaning": "an invalid memory access"},
    ),
    "exit code 3": (Case(ended(3)), "exit", "certain", "death-exited", {"code": 3}),
    "trap: exit code 0 without a request": (
        Case(ended(0)),
        *("exit", "likely", "death-exited-normally", {}),
    ),
    "a shell's exit code": (
        Case(ended(139)),
        *("crash", "likely", "death-probably-signaled", {"signal": "SIGSEGV", "code": 139}),
    ),
}

GPUS: dict[str, Row] = {
    "the driver names the process": (
        Case(ended(-6), state=roomy(xids=(xid(31),)), log=[xid_line(31)]),
        *("xid", "certain", "death-xid-crashed", xid_values(31, signal="SIGABRT", gpu="0")),
    ),
    "the driver names the process, without a server": (
        Case(log=[xid_line(31)]),
        *("xid", "likely", "death-xid-ended", xid_values(31, gpu=None)),
    ),
    "the GPU fell off the bus": (
        Case(ended(-6), state=roomy(xids=(xid(79),)), log=None),
        *("xid", "likely", "death-xid-crashed", xid_values(79, signal="SIGABRT", gpu="0")),
    ),
    "the GPU fell off the bus, exit code 1": (
        Case(ended(1), state=roomy(xids=(xid(79),)), log=None),
        *("xid", "likely", "death-xid-exited", xid_values(79, code=1, gpu="0")),
    ),
    "the GPU was lost": (
        Case(ended(-6), report=lost(-4)),
        *("gpu_lost", "likely", "death-gpu-lost-crashed", {"signal": "SIGABRT", "gpu": "0"}),
    ),
    "trap: an XID of a GPU that the run didn't use": (
        Case(state=roomy(xids=(xid(79, uuid=UNUSED_GPU),)), log=None),
        *("unknown", "unknown", "death-unknown", {}),
    ),
    "trap: an XID ten minutes before": (
        Case(state=roomy(xids=(xid(79, after=-600),)), log=None),
        *("unknown", "unknown", "death-unknown", {}),
    ),
    "trap: another process's XID on the same GPU": (
        Case(ended(-6), state=roomy(xids=(xid(31),)), log=[xid_line(31, pid=4)]),
        *("crash", "certain", "death-crashed"),
        {"signal": "SIGABRT", "library": None, "meaning": "an error that a library found (abort)"},
    ),
    "trap: the XID that killing a process causes": (
        Case(ended(-9), state=roomy(xids=(xid(45, after=8),)), log=[xid_line(45, after=8)]),
        *("signal", "certain", "death-killed-not-for-memory", NO_MEMORY),
    ),
    "trap: killed after an XID": (
        Case(ended(-15), state=roomy(xids=(xid(31),)), log=[xid_line(31)]),
        *("signal", "certain", "death-terminated", {"signal": "SIGTERM"}),
    ),
    "trap: a GPU lost an hour before": (
        Case(report=lost(-3600)),
        *("unknown", "unknown", "death-unknown", {}),
    ),
    "trap: it is unknown which GPUs the run used": (
        Case(
            state=roomy(xids=(xid(79),)),
            report=helpers_reports.report(helpers_reports.gpu(0), attributed=False, points=2),
        ),
        *("unknown", "unknown", "death-unknown", {}),
    ),
    "trap: corrected memory errors": (
        Case(state=roomy(xids=(xid(92),)), log=None),
        *("unknown", "unknown", "death-unknown", {}),
    ),
}

SLURM: dict[str, Row] = {
    "time limit": (
        Case(ended(-15, after=6), process=JOB, slurm=JobState("TIMEOUT", LAST + 5)),
        *("slurm", "certain", "death-slurm-timeout", {"job": "77"}),
    ),
    "canceled, without a server": (
        Case(process=JOB, slurm=JobState("CANCELLED", LAST + 5), now=LATER),
        *("slurm", "certain", "death-slurm-canceled", {"job": "77"}),
    ),
    "canceled a minute after the last sample, without a server": (
        Case(process=JOB, slurm=JobState("CANCELLED", LAST + 60), now=LATER),
        *("slurm", "likely", "death-slurm-canceled", {"job": "77"}),
    ),
    "preempted": (
        Case(process=JOB, slurm=JobState("PREEMPTED", LAST - 20), now=LATER),
        *("slurm", "certain", "death-slurm-preempted", {"job": "77"}),
    ),
    "node failed": (
        Case(process=JOB, slurm=JobState("NODE_FAIL", LAST + 280), host="login", boot_id="b", now=LATER),
        *("slurm", "certain", "death-slurm-node-fail", {"job": "77"}),
    ),
    "out of memory": (
        Case(process=JOB, slurm=JobState("OUT_OF_MEMORY", LAST + 5), host="login", boot_id="b"),
        *("out_of_memory", "likely", "death-slurm-out-of-memory", {"job": "77"}),
    ),
    "the job's time was over, sacct is silent": (
        Case(process=JOB_WITH_END, host="login", boot_id="b", now=LATER),
        *("slurm", "likely", "death-slurm-probably", {"job": "77"}),
    ),
    "trap: the job was extended": (
        Case(process=JOB_WITH_END, slurm=JobState("RUNNING", None), now=LATER),
        *("unknown", "unknown", "death-unknown", {}),
    ),
    "trap: the job reached its limit hours later": (
        Case(process=JOB, slurm=JobState("TIMEOUT", LAST + 7200), now=LATER),
        *("unknown", "unknown", "death-unknown", {}),
    ),
    "trap: the kernel was killed a minute before the job's end": (
        Case(ended(-9), process=JOB, slurm=JobState("CANCELLED", LAST + 70)),
        *("signal", "certain", "death-killed-not-for-memory", NO_MEMORY),
    ),
    "trap: a crash at the job's end": (
        Case(ended(-11), process=JOB_WITH_END, slurm=JobState("TIMEOUT", LAST + 5)),
        *("crash", "certain", "death-crashed"),
        {"signal": "SIGSEGV", "library": None, "meaning": "an invalid memory access"},
    ),
    "trap: the job failed, perhaps because the kernel died": (
        Case(process=JOB, slurm=JobState("FAILED", LAST + 5)),
        *("unknown", "unknown", "death-unknown", {}),
    ),
}

MACHINE: dict[str, Row] = {
    "the machine restarted": (
        Case(boot_id="boot-2", booted=LAST + 120, now=LAST + 200),
        *("reboot", "likely", "death-machine-restarted", {"at": "10:07:00", "after_s": 120.0}),
    ),
    "trap: the machine restarted hours later": (
        Case(boot_id="boot-2", booted=LAST + 7200, now=LATER, log=[oom_line()]),
        *("unknown", "unknown", "death-unknown-machine-restarted", {"at": "12:05:00", "after_s": 7200.0}),
    ),
    "trap: another machine of the same name": (
        Case(boot_id="boot-2", booted=BOOT, group_kills=9, machine_kills=9, log=[oom_line()]),
        *("unknown", "unknown", "death-unknown", {}),
    ),
    "trap: another machine's log and counters": (
        Case(boot_id="boot-2", host="login", group_kills=9, machine_kills=9, log=[oom_line()]),
        *("unknown", "unknown", "death-unknown", {}),
    ),
    "nothing known": (
        Case(log=None, group_kills=None, machine_kills=None),
        *("unknown", "unknown", "death-unknown", {}),
    ),
}
ROWS = {**REQUESTS, **MEMORY, **SIGNALS, **GPUS, **SLURM, **MACHINE}


@pytest.mark.usefixtures("in_utc")
@pytest.mark.parametrize("row", [pytest.param(row, id=name) for name, row in ROWS.items()])
def test_cause(tmp_path: Path, row: Row) -> None:
    """Each kind of death is explained with the cause that the evidence shows, with its certainty and with its
    figures. Where the evidence is that of something else, no cause is named."""
    case, cause, certainty, id_, params = row
    found = case.explain(tmp_path)
    assert (found.cause, found.certainty, found.text.id) == (cause, certainty, id_)
    assert dict(found.text.message_id.params) == params
    assert bool(found.checked) is (certainty != "certain")


def checked(case: Case, root: Path) -> list[str]:
    return [message.id for message in case.explain(root).checked]


@pytest.mark.parametrize(
    ("case", "ids"),
    [
        pytest.param(
            Case(log=None, group_kills=None, machine_kills=None),
            "exit-unknown oom-unreadable log-unreadable slurm-none boot-same xids-none",
            id="little is readable",
        ),
        pytest.param(
            Case(group_kills=None, machine_kills=4, state=roomy(xids=(xid(92),))),
            "exit-unknown oom-others log-none slurm-none boot-same xids",
            id="events without a connection",
        ),
        pytest.param(
            Case(process=process(slurm_job="7", pid_namespace=CONTAINER), slurm=JobState("FAILED", LAST + 9)),
            "exit-unknown oom-none log-other-ids slurm-state boot-same xids-none",
            id="in a container",
        ),
        pytest.param(
            Case(boot_id="boot-2", host="login", process=process(slurm_job="7")),
            "exit-unknown oom-unreadable log-other-boot slurm-unreadable boot-other-machine xids-none",
            id="on another machine",
        ),
        pytest.param(
            Case(boot_id="boot-2", booted=LAST + 7200, now=LATER, report=lost(0)),
            "exit-unknown oom-unreadable log-other-boot slurm-none boot-later gpu-lost",
            id="after a restart",
        ),
        pytest.param(
            Case(now=LAST - 60, process=process(slurm_job="7"), slurm=JobState("TIMEOUT", LAST - 3600)),
            "exit-unknown oom-none log-clock slurm-state-before boot-same xids-none",
            id="the clock was set back",
        ),
        pytest.param(
            Case(ended(-9), state=LIMITED, log=None, group_kills=1, machine_kills=4),
            "exit-code log-unreadable slurm-none boot-same xids-none",
            id="a likely cause",
        ),
    ],
)
def test_checked(tmp_path: Path, case: Case, ids: str) -> None:
    """Unless the cause is certain, the user learns what else was checked, and what could not be read."""
    assert checked(case, tmp_path) == [f"checked-{name}" for name in ids.split()]


def test_the_job_of_the_reader_still_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that died in a Slurm job in which gpuwidget runs itself was not ended with its job, although
    the job's end in the environment has passed."""
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    case = Case(process=JOB_WITH_END, slurm=JobState("TIMEOUT", LAST + 5), now=LATER)
    assert case.explain(tmp_path).cause == "unknown"
    assert "checked-slurm-same" in checked(case, tmp_path / "again")


def test_full_shared_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full /dev/shm is named as the usual reason for SIGBUS, but only while it is full."""
    free = {"blocks": 0}
    monkeypatch.setattr(
        os,
        "statvfs",
        lambda path: type("Size", (), {"f_frsize": 1, "f_blocks": 1000, "f_bavail": free["blocks"]}),
    )
    assert Case(ended(-7)).explain(tmp_path / "full").text.id == "death-crashed-shm-full"
    free["blocks"] = 500
    found = Case(ended(-7)).explain(tmp_path / "free")
    assert (found.cause, found.certainty, found.text.id) == ("crash", "certain", "death-crashed")


def test_text(tmp_path: Path) -> None:
    """The text names the memory at the last sample and how old it is."""
    text = Case(ended(-9), state=state(), log=[oom_line(after=8.0)]).explain(tmp_path).text
    assert text == "Killed by Linux's out-of-memory killer: host memory 251.0 of 256.0 GiB, 8.0 s before."


def test_lines_of_the_log(tmp_path: Path) -> None:
    """Only the lines of the kernel's log that can explain an end are read: killed processes, crashes and
    XIDs."""
    lines = [
        oom_line().text,
        SEGFAULT,
        "traps: python[27529] general protection fault ip:7f sp:7f error:0 in libtorch.so[7f+1]",
        "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
    ]
    others = [
        "usb 1-1: new device",
        "python invoked oom-killer: gfp_mask=0x1",
        "oom_reaper: reaped process 27529",
    ]
    (tmp_path / "dev").mkdir()
    text = "".join(f"4,{place},1000000,-;{text}\n" for place, text in enumerate([*lines, *others]))
    (tmp_path / "dev/kmsg").write_text(text)
    found = evidence.read_log(0.0, tmp_path)
    assert found is not None
    assert [line.text for line in found] == lines
    assert evidence.read_log(0.0, tmp_path / "none") is None
