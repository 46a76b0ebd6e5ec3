"""Tests of the identity of a kernel's process and of the state of its machine."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from helpers_deaths import BOOT, HOST_NAMESPACE, LAST, STARTED, TICKS, link, process, stat_line, write

from gpuwidget.journal import machine
from gpuwidget.journal.records import ProcessIdentity

GONE = 99_999_999
"""An id that no process can have."""
LINUX = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")
BEFORE = BOOT - 60
"""When a process was last seen that ran before the machine's start."""


def host(
    root: Path, *, boot_id: str = "boot-1", name: str = "gpu-a", namespace: str = HOST_NAMESPACE
) -> Path:
    """Write the files that identify a machine."""
    write(root, "proc/sys/kernel/random/boot_id", f"{boot_id}\n")
    write(root, "proc/sys/kernel/hostname", f"{name}\n")
    write(root, "proc/self/stat", stat_line(os.getpid(), STARTED * TICKS))
    write(root, "proc/stat", f"cpu 1\nbtime {BOOT:.0f}\n")
    link(root, "proc/self/ns/pid", namespace)
    return root


def test_identity(tmp_path: Path) -> None:
    """The identity of a process has its machine, boot, PID namespace, start and Slurm job, whatever the
    process's name contains."""
    environment = {"SLURM_JOB_ID": "1234", "SLURM_JOB_END_TIME": "1800000000"}
    assert machine.process_identity(environment, host(tmp_path)) == process(
        pid=os.getpid(), slurm_job="1234", slurm_end=1_800_000_000.0
    )


def test_identity_without_proc(tmp_path: Path) -> None:
    """On a system without /proc, such as macOS, only the host and the process's id are known."""
    found = machine.process_identity({"SLURM_JOB_ID": "1; rm"}, tmp_path)
    assert found == ProcessIdentity(os.uname().nodename, None, None, os.getpid(), None, None, None)
    assert machine.is_alive(found, BEFORE, tmp_path) is None


@LINUX
def test_this_process_is_alive() -> None:
    """A running process is found to be alive on the real machine."""
    assert machine.is_alive(machine.process_identity(), BEFORE) is True


@pytest.mark.parametrize(
    ("identity", "stat", "alive"),
    [
        pytest.param(process(pid=GONE), stat_line(GONE, STARTED * TICKS), True, id="runs"),
        pytest.param(process(pid=GONE), stat_line(GONE, STARTED * TICKS, "Z"), False, id="zombie"),
        pytest.param(process(pid=GONE), stat_line(GONE, STARTED * TICKS + 1), False, id="id reused"),
        pytest.param(process(pid=GONE), None, False, id="gone"),
        pytest.param(process(pid=os.getpid()), None, None, id="hidden"),
        pytest.param(process(pid=GONE, started=None), stat_line(GONE, 5), None, id="start unknown"),
        pytest.param(process(pid=GONE, boot_id="boot-0"), None, False, id="machine restarted"),
        pytest.param(process(pid=GONE, boot_id="boot-0", host="gpu-b"), None, None, id="other host"),
        pytest.param(process(pid=GONE, boot_id=None), None, None, id="boot unknown"),
        pytest.param(process(pid=GONE, pid_namespace="pid:[7]"), None, None, id="other namespace"),
        pytest.param(process(pid=GONE, pid_namespace=None), None, None, id="namespace unknown"),
    ],
)
def test_alive(tmp_path: Path, identity: ProcessIdentity, stat: str | None, alive: bool | None) -> None:
    """A process counts as alive or dead only if that is certain: a reused id is not the process, a process
    that is hidden may still run, and so may one on another machine or in another container."""
    host(tmp_path)
    if stat is not None:
        write(tmp_path, f"proc/{GONE}/stat", stat)
    assert machine.is_alive(identity, BEFORE, tmp_path) is alive


def test_machines_with_a_common_name(tmp_path: Path) -> None:
    """A process on another machine that is called localhost too doesn't count as dead."""
    host(tmp_path, name="localhost")
    elsewhere = process(pid=GONE, host="localhost", boot_id="boot-0")
    assert machine.is_alive(elsewhere, BEFORE, tmp_path) is None


@pytest.mark.parametrize(("seen", "alive"), [(BEFORE, False), (BOOT + 60, None)])
def test_a_machine_that_was_started_before(tmp_path: Path, seen: float, alive: bool | None) -> None:
    """A process that ran after this machine's start ran on another machine of the same name, and may run."""
    assert machine.is_alive(process(pid=GONE, boot_id="boot-0"), seen, host(tmp_path)) is alive


MEMINFO = "MemTotal:       268435456 kB\nMemFree: 1 kB\nMemAvailable:    5242880 kB\n"


def memory_files(root: Path, cgroup: str, files: dict[str, str]) -> Path:
    write(root, "proc/self/cgroup", cgroup)
    write(root, "proc/meminfo", MEMINFO)
    write(root, "proc/vmstat", "nr_free_pages 5\noom_kill 4\ndrop_slab 0\n")
    link(root, "proc/self/ns/cgroup", "cgroup:[4026531835]")
    for name, text in files.items():
        write(root, f"sys/fs/cgroup/{name}", text)
    return root


V2 = {
    "a/memory.current": "3000\n",
    "a/memory.max": "4000\n",
    "a/memory.stat": "anon 1\ninactive_file 600\n",
    "a/memory.events": "oom 9\noom_kill 7\n",
    "a/b/memory.current": "2000\n",
    "a/b/memory.max": "max\n",
    "a/b/memory.stat": "anon 1\ninactive_file 500\n",
    "a/b/memory.events": "oom 3\noom_kill 2\noom_group_kill 0\n",
}
V1 = {
    "memory/x/memory.usage_in_bytes": "2000\n",
    "memory/x/memory.limit_in_bytes": "5000\n",
    "memory/x/memory.stat": "inactive_file 1\ntotal_inactive_file 300\n",
    "memory/x/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n",
    "memory/memory.usage_in_bytes": "9000\n",
    "memory/memory.limit_in_bytes": "9223372036854771712\n",
}


@pytest.mark.parametrize(
    ("cgroup", "files", "used", "limit", "kills", "name"),
    [
        pytest.param("0::/a/b\n", V2, 2400, 4000, 2, "cgroup:[4026531835]/a/b", id="limit of the parent"),
        pytest.param(
            "0::/a/b\n",
            {**V2, "a/b/memory.max": "2500\n"},
            1500,
            2500,
            2,
            "cgroup:[4026531835]/a/b",
            id="own limit",
        ),
        pytest.param(
            "0::/a/b\n",
            {**V2, "a/memory.max": "max\n"},
            1500,
            None,
            2,
            "cgroup:[4026531835]/a/b",
            id="no limit",
        ),
        pytest.param(
            "4:memory:/x\n0::/\n", V1, 1700, 5000, 1, "cgroup:[4026531835]/memory/x", id="version 1"
        ),
        pytest.param(
            "4:memory:/docker/1\n", V1, 9000, None, None, "cgroup:[4026531835]/memory", id="path of the host"
        ),
        pytest.param("", {}, None, None, None, None, id="none"),
        pytest.param("0::/\n", {}, None, None, None, None, id="top of version 2"),
        pytest.param("nonsense", {}, None, None, None, None, id="nonsense"),
    ],
)
def test_machine_state(
    tmp_path: Path,
    cgroup: str,
    files: dict[str, str],
    used: int | None,
    limit: int | None,
    kills: int | None,
    name: str | None,
) -> None:
    """The state of the machine has the lowest memory limit of the process's control groups, what is in use
    below it without the page cache that can be freed, and the counters of the out-of-memory killer."""
    found = machine.machine_state(LAST, root=memory_files(tmp_path, cgroup, files))
    assert (found.cgroup_used, found.cgroup_limit, found.cgroup_oom_kills, found.cgroup) == (
        *(used, limit, kills, name),
    )
    assert (found.machine_available, found.machine_total, found.machine_oom_kills) == (
        5 * 2**30,
        256 * 2**30,
        4,
    )
    assert (found.time, found.xids, found.shutdown_requested, found.restart_requested) == (
        LAST,
        (),
        None,
        False,
    )
    assert machine.oom_kills(name, tmp_path) == (kills, 4)


@pytest.mark.parametrize(
    "name", ["cgroup:[7]/a/b", "cgroup:[4026531835]/gone", "cgroup:[4026531835]/../a", None]
)
def test_counters_of_another_group(tmp_path: Path, name: str | None) -> None:
    """The counter of a control group that has been removed, or that another container has, is unknown."""
    assert machine.oom_kills(name, memory_files(tmp_path, "0::/a/b\n", V2)) == (None, 4)


def test_machine_state_without_proc(tmp_path: Path) -> None:
    """On a system without /proc and /sys, the memory of groups and machine is unknown, and nothing fails."""
    found = machine.machine_state(LAST, root=tmp_path)
    known = {
        name: value for name, value in asdict(replace(found, resident=None)).items() if value is not None
    }
    assert known == {"time": LAST, "xids": (), "restart_requested": False}


def test_start_of_a_process(tmp_path: Path) -> None:
    """The start of a process is known in epoch seconds if the machine's boot is known."""
    assert machine.start_epoch(process(), tmp_path) is None
    write(tmp_path, "proc/stat", f"cpu 1\nbtime {BOOT:.0f}\n")
    assert machine.start_epoch(process(), tmp_path) == BOOT + STARTED
    assert machine.start_epoch(process(started=None), tmp_path) is None


@LINUX
def test_state_of_this_machine() -> None:
    """The state of the real machine has plausible memory: this process's is a part of the machine's."""
    found = machine.machine_state(LAST)
    assert found.resident is not None
    assert found.machine_total is not None
    assert 0 < found.resident < found.machine_total


@LINUX
def test_import_loads_little() -> None:
    """Reading the state of the machine imports no heavy package."""
    code = (
        "import sys; from gpuwidget.journal import death; print({'torch', 'jupyter_server'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
