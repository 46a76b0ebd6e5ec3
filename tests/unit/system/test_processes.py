"""Tests of finding out which process descends from which, of the identity of processes, and of memory and CPU
time."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from fakes import SetClock
from helpers_wait import until

from gpuwidget.system import processes
from gpuwidget.system.processes import UNKNOWN, Identity, OwnProcessTree, ProcessDirectory, ProcessTrees

ME = os.getpid()


class Table:
    """A fake process table: for each pid, the start time of the process, its parent and, optionally, its
    session."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, rows: dict[int, tuple[float, int]]) -> None:
        self.rows = rows
        self.looks = 0
        monkeypatch.setattr(processes, "_start_info", self._start_info)

    def _start_info(self, pid: int) -> processes._StartInfo | None:
        self.looks += 1
        row = self.rows.get(pid)
        return None if row is None else processes._StartInfo(*row)


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[int, tuple[float, int]]], Table]:
    """Return a function that installs a fake process table with the given processes and this process."""
    return lambda rows: Table(monkeypatch, {ME: (10.0, 1), **rows})


def test_how_old_this_process_is() -> None:
    """The start of a process, which follows from its age, lies before that of its child. Both refer to the
    same boot of the machine."""
    before = processes.boot_time()
    program = (
        "import os; from gpuwidget.system import processes as p; "
        "print(p.times_of(os.getpid()).age_s, *p.boot_time())"
    )
    age_s, boot_id, seconds = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout.split()
    after, mine = processes.boot_time(), processes.times_of(ME)
    assert before is not None
    assert after is not None
    assert mine is not None
    assert mine.age_s is not None
    assert boot_id == before.boot_id == after.boot_id
    # Start times are rounded down to 0.01 s.
    assert after.seconds - mine.age_s < before.seconds - 0.01
    assert before.seconds - 0.02 <= float(seconds) - float(age_s) <= after.seconds


def test_a_child_and_its_child_belong_to_this_process() -> None:
    """A process tree contains the process's children, such as data loader workers, and grandchildren, but not
    its parent."""
    code = (
        "import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', 'input()'], stdin=-1); "
        "print(p.pid, flush=True); input(); p.communicate(b'x')"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        grandchild = int(child.stdout.readline())
        tree = OwnProcessTree()
        assert [tree.contains(pid) for pid in (ME, child.pid, grandchild, os.getppid(), 1)] == [
            True,
            True,
            True,
            False,
            False,
        ]
    finally:
        child.communicate("x\n")
    assert OwnProcessTree().contains(child.pid) is False


def test_a_reused_pid_is_unrelated(
    table: Callable[[dict[int, tuple[float, int]]], Table],
) -> None:
    """If a pid is reused, the new process belongs to the tree only if it is a descendant itself, whatever
    process had the pid before."""
    rows = table({50: (20.0, ME), 60: (20.0, 7), 7: (5.0, 1)}).rows
    clock = SetClock()
    tree = OwnProcessTree(clock)
    assert (tree.contains(50), tree.contains(60)) == (True, False)
    rows[50], rows[60] = (30.0, 7), (30.0, ME)
    clock.now = 2.0
    assert (tree.contains(50), tree.contains(60)) == (False, True)


def test_a_parent_younger_than_its_child_is_unrelated(
    table: Callable[[dict[int, tuple[float, int]]], Table],
) -> None:
    """A process that started after its supposed child is not the parent of that child. It has merely reused
    the pid of the dead parent."""
    table({50: (20.0, 40), 40: (25.0, ME), 51: (20.0, 41)})
    tree = OwnProcessTree(SetClock())
    assert (tree.contains(50), tree.contains(51), tree.contains(99)) == (False, False, False)


@pytest.mark.parametrize(
    ("rows", "ours"),
    [
        ({50: (20.0, 1, ME)}, True),
        ({50: (20.0, 1, 50)}, False),
        ({50: (20.0, 40, 50), 40: (15.0, 1, ME)}, True),
        ({50: (20.0, 40, 7), 40: (15.0, 1, 7)}, False),
    ],
)
def test_an_orphan_is_found_by_its_session(
    table: Callable[[dict[int, tuple[float, int]]], Table], rows: dict[int, tuple[float, int]], ours: bool
) -> None:
    """If the parent of a process died before the process was found, the process belongs to the tree only if
    it is in this process's session."""
    table(rows)
    assert OwnProcessTree(SetClock()).contains(50) is ours


def test_a_descendant_stays_a_descendant(table: Callable[[dict[int, tuple[float, int]]], Table]) -> None:
    """A process that was found to be a descendant remains one, even after its parent has died."""
    rows = table({50: (20.0, 40), 40: (15.0, ME)}).rows
    clock = SetClock()
    tree = OwnProcessTree(clock)
    assert tree.contains(50)
    del rows[40]
    rows[50] = (20.0, 1)
    clock.now = 100.0
    assert tree.contains(50)
    for pid in range(1000, 4000):
        tree.contains(pid)
    clock.now = 200.0
    assert tree.contains(50)
    assert processes.own_process_tree() is processes.own_process_tree()


def test_a_daemon_of_a_session_leader() -> None:
    """A program that outlives the process that started it, for example by `nohup program &`, still belongs to
    the kernel's process tree."""
    code = (
        "import os, subprocess\n"
        "from gpuwidget.system.processes import OwnProcessTree\n"
        "subprocess.run(['sh', '-c', 'sleep 60 >/dev/null 2>&1 & echo $! >pid'])\n"
        "orphan = int(open('pid').read())\n"
        "parent = int(open(f'/proc/{orphan}/stat').read().rpartition(')')[2].split()[1])\n"
        "print(parent != os.getpid(), OwnProcessTree().contains(orphan))\n"
        "os.kill(orphan, 9)\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            capture_output=True,
            text=True,
            check=True,
            start_new_session=True,
            timeout=60,
        )
    assert done.stdout == "True True\n"


def test_several_process_trees_are_distinguished(
    table: Callable[[dict[int, tuple[float, int]]], Table],
) -> None:
    """With several roots, each process belongs to the root that is its nearest ancestor, or to none."""
    rows: dict[int, Any] = {
        100: (20.0, ME),  # a kernel
        101: (21.0, 100),  # the kernel's worker
        102: (22.0, 101),  # a child of the worker
        200: (20.0, ME, 200),  # a terminal, which leads a session
        201: (21.0, 1, 200),  # a job in the terminal's session; the job's parent has died
        300: (30.0, 201, 200),  # a kernel that was started from the job
        301: (31.0, 300),
        400: (20.0, 1),
    }
    table(rows)
    trees = ProcessTrees(SetClock())
    trees.set_roots([100, 200, 300, 999])
    found = {pid: trees.root_of(pid) for pid in (*rows, 999, ME)}
    theirs = {100: 100, 101: 100, 102: 100, 200: 200, 201: 200, 300: 300, 301: 300}
    assert found == theirs | dict.fromkeys((400, 999, ME))


def test_process_trees_come_and_go(table: Callable[[dict[int, tuple[float, int]]], Table]) -> None:
    """If a kernel is removed from the roots, its processes belong to no tree. If a new kernel has the same
    pid as an old one, the old kernel's processes don't belong to it."""
    rows: dict[int, Any] = table({100: (20.0, ME), 50: (21.0, 100), 51: (21.0, 60), 60: (20.0, 1)}).rows
    trees = ProcessTrees(SetClock())
    trees.set_roots([100])
    assert (trees.root_of(50), trees.root_of(51)) == (100, None)
    trees.set_roots([100, 60])
    assert (trees.root_of(50), trees.root_of(51)) == (100, 60)
    trees.set_roots([60])
    assert (trees.root_of(50), trees.root_of(51)) == (None, 60)
    trees.set_roots([100, 60])
    assert trees.root_of(50) == 100
    rows[100] = (40.0, ME)
    trees.set_roots([100, 60])
    assert (trees.root_of(50), trees.root_of(51)) == (None, 60)


def test_a_cycle_of_parents_ends(table: Callable[[dict[int, tuple[float, int]]], Table]) -> None:
    """If reused pids form a cycle of parents, the search for a root still ends."""
    table({50: (20.0, 51), 51: (20.0, 50)})
    assert OwnProcessTree(SetClock()).contains(50) is False


def test_descent_is_checked_every_two_seconds(
    table: Callable[[dict[int, tuple[float, int]]], Table],
) -> None:
    """Whether a process is a descendant is checked at most once every two seconds. For this process itself,
    nothing is read."""
    counted = table({50: (20.0, 40), 40: (15.0, ME)})
    clock = SetClock()
    tree = OwnProcessTree(clock)
    counted.looks = 0
    for _ in range(100):
        assert tree.contains(50)
        assert tree.contains(ME)
    assert counted.looks == 2
    clock.now = 2.0
    assert tree.contains(50)
    assert counted.looks == 3


def test_the_cache_of_a_long_lived_process_is_bounded(
    table: Callable[[dict[int, tuple[float, int]]], Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At most 1024 processes are stored in the cache of process trees, and at most 1024 in the cache of
    identities."""
    monkeypatch.setattr(processes, "_identify", lambda pid, origin: Identity("ada", str(pid)))
    table(dict.fromkeys(range(2, 5000), (20.0, 1)))
    tree, directory = OwnProcessTree(SetClock()), ProcessDirectory(SetClock())
    for pid in range(2, 5000):
        tree.contains(pid)
        directory.look_up(pid)
    assert len(tree._trees._roots_found) <= 1024
    table(dict.fromkeys(range(2, 5000), (20.0, ME)))
    tree = OwnProcessTree(SetClock())
    for pid in range(2, 5000):
        tree.contains(pid)
    assert len(tree._trees._roots_found) <= 1024
    assert len(directory._known) <= 1024


def test_user_and_program_of_a_process(tmp_path: Path) -> None:
    """The user and program of a process come from the operating system. The program's arguments, which may be
    secret, are not part of its identity."""
    script = tmp_path / "train.py"
    script.write_text("print(flush=True); input()")
    command = [sys.executable, "-u", str(script), "--hf-token", "hf_SECRET", "--lr", "1"]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        child.stdout.readline()  # wait until the program runs and the system has its arguments
        found = ProcessDirectory().look_up(child.pid)
    finally:
        child.communicate(b"\n")
    program = f"{os.path.basename(sys.executable)} train.py"
    assert found == Identity(psutil.Process().username(), program)


@pytest.mark.parametrize(
    ("session", "notebook"),
    [("/home/ada/work/train.ipynb", "train.ipynb"), ("a-console-1", None), (None, None)],
)
def test_the_notebook_that_a_process_runs_for(session: str | None, notebook: str | None) -> None:
    """For a kernel and its children, `notebook_of()` returns the file name in the variable JPY_SESSION_NAME.
    For other processes, it returns None."""
    environment = {name: value for name, value in os.environ.items() if name != "JPY_SESSION_NAME"}
    if session is not None:
        environment["JPY_SESSION_NAME"] = session
    child = subprocess.Popen(
        [sys.executable, "-c", "print(flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
    )
    assert child.stdout is not None
    # Popen returns before the new process has its environment, so wait until the program runs.
    child.stdout.readline()
    try:
        assert processes.notebook_of(child.pid) == notebook
    finally:
        child.communicate(b"\n")
    assert processes.notebook_of(child.pid) is None


def test_names_are_read_once_for_each_process(
    table: Callable[[dict[int, tuple[float, int]]], Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The identity of a process is read once. If its pid is reused, the identity of the new process is read.
    If the process has ended, its identity is unknown."""
    asked: list[int] = []

    def identify(pid: int, origin: object) -> Identity:
        asked.append(pid)
        return Identity("ada", f"call {len(asked)}")

    monkeypatch.setattr(processes, "_identify", identify)
    rows = table({50: (20.0, 1)}).rows
    clock = SetClock()
    directory = ProcessDirectory(clock)
    for clock.now in (0.0, 1.0, 2.0, 10.0):
        assert directory.look_up(50) == Identity("ada", "call 1")
    rows[50] = (30.0, 1)
    clock.now = 20.0
    assert directory.look_up(50) == Identity("ada", "call 2")
    del rows[50]
    clock.now = 30.0
    assert directory.look_up(50) == UNKNOWN
    assert asked == [50, 50]


def test_a_process_without_read_permission_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """If this user has no permission to read some fields of a process, these fields are None, and no
    exception is raised."""

    def denied(self: psutil.Process) -> list[str]:
        raise psutil.AccessDenied(self.pid)

    user = psutil.Process().username()
    monkeypatch.setattr(psutil.Process, "cmdline", denied)
    assert ProcessDirectory().look_up(ME) == Identity(user, None)
    monkeypatch.setattr(psutil.Process, "username", denied)
    assert ProcessDirectory().look_up(ME) == UNKNOWN


@pytest.mark.parametrize(("inode", "ours"), [(0xEFFFFFFC, True), (4026532321, False)])
def test_the_hosts_pid_namespace_is_known_by_its_inode(
    monkeypatch: pytest.MonkeyPatch, inode: int, ours: bool
) -> None:
    """`in_host_pid_namespace()` is True only in the system's initial pid namespace. The driver reports
    process ids of that namespace."""
    real = os.stat_result((0, inode, 0, 0, 0, 0, 0, 0, 0, 0))
    monkeypatch.setattr(os, "stat", lambda path: real)
    answer = processes.in_host_pid_namespace()
    monkeypatch.undo()
    assert answer is ours


def test_without_namespaces_process_ids_do_not_match(monkeypatch: pytest.MonkeyPatch) -> None:
    """`in_host_pid_namespace()` is False on systems without pid namespaces."""

    def absent(path: str) -> os.stat_result:
        raise FileNotFoundError(path)

    monkeypatch.setattr(os, "stat", absent)
    answer = processes.in_host_pid_namespace()
    monkeypatch.undo()
    assert answer is False


def test_memory_of_this_process() -> None:
    """When pages are written, resident memory rises. When they are freed, the peak of resident memory does
    not fall."""
    before = processes.resident_memory()
    held = bytearray(b"x" * (64 * 1024**2))
    during, peak = processes.resident_memory(), processes.peak_resident_memory()
    size = len(held)
    del held
    after = processes.peak_resident_memory()
    assert before is not None
    assert during is not None
    assert during - before > 0.9 * size
    if peak is not None:  # None on a kernel without VmHWM
        assert after is not None
        assert after >= peak >= during * 0.99


def test_values_where_there_is_no_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    """If /proc can't be read, as on macOS, resident memory, its peak, the children and their CPU time are
    unknown."""

    def absent(path: str) -> bytes:
        raise FileNotFoundError(path)

    monkeypatch.setattr(processes, "_read", absent)
    monkeypatch.setattr(os, "listdir", absent)
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        assert (processes.resident_memory(), processes.peak_resident_memory()) == (None, None)
        assert (processes.children_cpu_time(), processes.descendants()) == (None, [])
        assert processes.times_of(child.pid) is None
        assert not OwnProcessTree().contains(child.pid)
    finally:
        child.communicate(b"\n")


def test_host_memory_in_use_is_total_less_available() -> None:
    """The host memory that is in use is the total memory minus the available memory."""
    memory = psutil.virtual_memory()
    host = processes.host_memory()
    assert host.total == memory.total
    assert abs(host.used - (memory.total - memory.available)) < 512 * 1024**2


def test_whether_there_is_a_child() -> None:
    """`has_children()` is True from the start of a child process until a call such as waitpid() has collected
    the child's exit status. `has_children()` itself does not collect the status."""
    program = """
import os, sys
from gpuwidget.system.processes import children_cpu_time, has_children
said = [has_children(), children_cpu_time().alive]
child = os.fork()
if not child:
    os._exit(7)
said += [has_children(), has_children(), os.waitpid(child, 0)[1] >> 8, has_children()]
print(said)
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout == "[False, 0.0, True, True, 7, False]\n"


def test_cpu_time_of_descendants() -> None:
    """The CPU time of children and grandchildren is included while they run and after they have ended."""
    spin = "import time\nwhile time.process_time() < 0.3: pass\n"
    child = f"import subprocess, sys\n{spin}subprocess.run([sys.executable, '-c', {spin!r}])\n"
    child += "sys.stdout.write('x')\nsys.stdout.flush()\nsys.stdin.read()"
    before = processes.children_cpu_time()
    command = [sys.executable, "-c", child]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
        assert running.stdout is not None
        assert running.stdin is not None
        running.stdout.read(1)
        alive = processes.children_cpu_time()
        assert before is not None
        assert alive is not None
        assert alive.alive - before.alive >= 0.5
        running.stdin.close()
        running.wait()
    after = processes.children_cpu_time()
    assert after is not None
    assert after.ended - before.ended >= 0.5
    assert after.alive <= before.alive + 0.1


def test_whether_a_process_has_a_cuda_context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`uses_cuda()` is True if a process maps memory of CUDA's device file. If the process has only opened
    the file, the result is None, because NVML may have opened it."""
    device = tmp_path / "nvidia-uvm"
    device.write_bytes(b"0")
    monkeypatch.setattr(processes, "_CUDA_DEVICE", str(device))
    monkeypatch.setattr(processes, "_CUDA_DEVICES", (str(device),))
    assert processes.uses_cuda(ME) is False
    with device.open("rb") as opened:
        assert processes.uses_cuda(ME) is None
        with mmap.mmap(opened.fileno(), 1, access=mmap.ACCESS_READ):
            assert processes.uses_cuda(ME) is True
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    assert processes.uses_cuda(gone.pid) is None
    assert (processes.process_exists(ME), processes.process_exists(gone.pid)) == (True, False)


def test_ranks_of_launchers() -> None:
    """The rank is read from the environment variables of torchrun, Open MPI, MPICH and Slurm."""
    found = {
        "torchrun": processes.rank_in({"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "8"}),
        "Open MPI": processes.rank_in({"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4"}),
        "MPICH": processes.rank_in({"PMI_RANK": "0", "PMI_SIZE": "2"}),
        "Slurm": processes.rank_in({"SLURM_PROCID": "5", "SLURM_LOCALID": "1", "SLURM_NTASKS": "6"}),
        "no rank": processes.rank_in({"RANK": "high", "WORLD_SIZE": "2"}),
    }
    assert found == {
        "torchrun": (3, 1, 8),
        "Open MPI": (2, None, 4),
        "MPICH": (0, None, 2),
        "Slurm": (5, 1, 6),
        "no rank": None,
    }


def test_rank_and_times_of_a_child(monkeypatch: pytest.MonkeyPatch) -> None:
    """A running child is among the descendants, with its start, its CPU time and its rank. A variable that it
    inherited is not its rank. After its end, it has no times, even before its parent waits for it."""
    monkeypatch.setenv("SLURM_PROCID", "0")
    environment = dict(os.environ)
    plain = subprocess.Popen(["sleep", "60"], env=environment)
    rank = subprocess.Popen(["sleep", "60"], env=environment | {"RANK": "1", "WORLD_SIZE": "2"})
    try:
        until(lambda: processes.rank_of(rank.pid) is not None)
        assert {plain.pid, rank.pid} <= set(processes.descendants())
        assert (processes.rank_of(plain.pid), processes.rank_of(rank.pid)) == (None, (1, None, 2))
        times = processes.times_of(rank.pid)
        assert times is not None
        assert (times.parent, times.started > 0) == (os.getpid(), True)
        rank.kill()
        until(lambda: processes.times_of(rank.pid) is None)
    finally:
        for process in (plain, rank):
            process.kill()
            process.wait()
