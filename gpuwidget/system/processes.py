"""Processes of this machine: identity, ancestry, CPU time and memory.

This is the only module that uses psutil. Values that are needed several times per second are read from
``/proc`` directly: each is in one small file, and no process object is needed. On a system without ``/proc``,
such as macOS, these values are unknown.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Generic, NamedTuple, TypeVar

import psutil

from gpuwidget.model.clock import SYSTEM_CLOCK, Clock
from gpuwidget.model.command_line import program_name
from gpuwidget.model.fork import reset_after_fork
from gpuwidget.system.small_file import read as _read

_HOST_PID_NAMESPACE = 0xEFFFFFFC
"""Inode of the initial PID namespace, which is the host's (PROC_PID_INIT_INO in linux/proc_ns.h)."""
_PID_VALID_S = 2.0
"""Seconds for which a process id is assumed to belong to the same process. Linux assigns ids in ascending
order, so it reuses an id only after it has assigned tens of thousands of others, which takes longer."""
_MAX_CACHED = 1024
_MAX_GENERATIONS = 256
"""Maximum number of parents to follow. A longer chain can only result from ids that were reused during the
search."""
NOTEBOOK_VARIABLE = "JPY_SESSION_NAME"
_CUDA_DEVICE = "/dev/nvidia-uvm"
_CUDA_DEVICES = (_CUDA_DEVICE, "/dev/dxg")
"""CUDA's device files on Linux and on the Windows Subsystem for Linux (WSL)."""
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")

_T = TypeVar("_T")


class HostMemory(NamedTuple):
    """The host's memory, in bytes."""

    total: int
    used: int
    """Bytes that a program can get only if other programs free them (total minus available)."""


class Identity(NamedTuple):
    """User and program of a process. Fields that this user has no permission to read are None."""

    user: str | None
    program: str | None
    """The program, as described in :func:`gpuwidget.model.command_line.program_name`."""


UNKNOWN = Identity(None, None)


class _StartInfo(NamedTuple):
    """A process's parent, and the data that distinguish the process from a later one with the same id."""

    started: float
    parent: int
    session: int = 0
    """Id of the process's session, which equals the id of the process that created the session."""


HOST_PID_NAMESPACE = f"pid:[{_HOST_PID_NAMESPACE}]"
"""The host's PID namespace, as the link ``/proc/PID/ns/pid`` names it."""


def in_host_pid_namespace() -> bool:
    """Return whether this process is in the host's PID namespace, to which the driver's process ids belong.

    The result is False in a container with its own PID namespace, and on a system without PID namespaces.
    """
    try:
        return os.stat("/proc/self/ns/pid").st_ino == _HOST_PID_NAMESPACE
    except OSError:
        return False


class BootTime(NamedTuple):
    """A moment, in seconds since the machine was booted, which are not affected when its clock is set."""

    boot_id: str
    """Identifies the machine and its boot."""
    seconds: float


def boot_time() -> BootTime | None:
    """Return the current time since the machine was booted; None if unknown."""
    try:
        boot_id = _read("/proc/sys/kernel/random/boot_id").decode().strip()
        return BootTime(boot_id, _seconds_since_boot())
    except (OSError, AttributeError):
        return None


def _seconds_since_boot() -> float:
    """Return the time of the clock to which the start times in ``/proc`` refer."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def since_boot_without_suspend() -> float:
    """Return the seconds since the machine was booted without those of suspends, as in the kernel's log.

    Raises OSError on a system without this clock.
    """
    try:
        return time.clock_gettime(time.CLOCK_MONOTONIC)
    except AttributeError as error:
        raise OSError("no CLOCK_MONOTONIC") from error


def resident_memory() -> int | None:
    """Return the bytes of this process that are currently in memory (VmRSS); None if unknown."""
    try:
        return int(_read("/proc/self/statm").split()[1]) * _PAGE
    except (OSError, IndexError, ValueError):
        return None


def peak_resident_memory() -> int | None:
    """Return the maximum number of bytes that this process has had in memory (VmHWM); None if unknown."""
    try:
        for line in _read("/proc/self/status").splitlines():
            if line.startswith(b"VmHWM:"):
                return int(line.split()[1]) * 1024
    except (OSError, IndexError, ValueError):
        pass
    return None


def host_memory() -> HostMemory:
    """Return the host's memory. A GPU without dedicated memory uses it too."""
    memory = psutil.virtual_memory()
    return HostMemory(int(memory.total), int(memory.total - memory.available))


class ChildrenTime(NamedTuple):
    """CPU time of a process's descendants, in seconds."""

    ended: float
    """CPU time of children that have ended and for which this process has waited."""
    alive: float
    """CPU time of the descendants that are alive, and of their children that have ended."""


def has_children() -> bool:
    """Return whether this process has a child.

    This takes one system call, whereas listing the children takes several per thread.
    """
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    except (AttributeError, OSError):
        pass  # This system (macOS) has no waitid(), so assume that there are children.
    return True


def ended_children_cpu_time() -> float:
    """Return the CPU seconds of children that have ended and for which this process has waited."""
    times = os.times()
    return times.children_user + times.children_system


def children_cpu_time() -> ChildrenTime | None:
    """Return the CPU time of this process's descendants, ended and alive; None if unknown."""
    ended = ended_children_cpu_time()
    if not has_children():
        return ChildrenTime(ended, 0.0)
    try:
        return ChildrenTime(ended, sum(_cpu_time(pid) for pid in _walk_children(os.getpid())))
    except OSError:
        return None


def descendants() -> list[int]:
    """Return the ids of this process's descendants, parents before their children. Empty if unknown."""
    try:
        return list(_walk_children(os.getpid())) if has_children() else []
    except OSError:
        return []


def _walk_children(pid: int) -> dict[int, None]:
    """Return the ids of a process's descendants, parents before their children. Raise OSError if this system
    does not list them."""
    # A dict, because a process that changes its parent during the walk is found twice.
    found = dict.fromkeys(_children(pid))
    queue = list(found)
    for child in queue:  # ``queue`` grows during the loop.
        with suppress(OSError):
            new = [grandchild for grandchild in _children(child) if grandchild not in found]
            found.update(dict.fromkeys(new))
            queue += new
    return found


def _children(pid: int) -> list[int]:
    return [
        int(child)
        for thread in os.listdir(f"/proc/{pid}/task")
        for child in _read(f"/proc/{pid}/task/{thread}/children").split()
    ]


def _cpu_time(pid: int) -> float:
    try:
        # The CPU time of the process itself and of its children that have ended.
        return sum(map(int, _stat_fields(pid)[11:15])) / _TICKS
    except (OSError, IndexError, ValueError):
        return 0.0


def ancestors() -> Iterator[int]:
    """Yield the ids of this process's ancestors, the nearest first, and last that of the process that created
    its session.

    If a launcher has ended, the session leads to the process that started the launcher, such as a kernel.
    """
    info = _start_info(os.getpid())
    session = info.session if info is not None else 0
    for _ in range(_MAX_GENERATIONS):
        if info is None or info.parent <= 0:
            break
        yield info.parent
        info = _start_info(info.parent) if info.parent > 1 else None
    if session:
        yield session


class ProcessTimes(NamedTuple):
    """When a process started, and its CPU time."""

    started: float
    """Distinguishes the process from a later one with the same id. In ticks since the machine was booted."""
    cpu: float
    """CPU seconds of the process and of its children that have ended and for which it has waited."""
    parent: int
    age_s: float
    """Seconds since the process started, at most 0.01 s too many."""


def times_of(pid: int) -> ProcessTimes | None:
    """Return the times of the process ``pid``; None if it has ended, even if its parent has not yet waited
    for it."""
    try:
        fields = _stat_fields(pid)
        if fields[0] in (b"Z", b"X"):
            return None
        started, cpu = float(fields[19]), sum(map(int, fields[11:15])) / _TICKS
        return ProcessTimes(started, cpu, int(fields[1]), _seconds_since_boot() - started / _TICKS)
    except (OSError, IndexError, ValueError):
        return None


class Rank(NamedTuple):
    """A process's place among the processes of a distributed job."""

    rank: int
    local_rank: int | None
    """Rank among the processes of the same host."""
    world_size: int | None
    """Number of processes of the job."""


_RANK_VARIABLES = (
    ("RANK", "LOCAL_RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "MPI_LOCALRANKID", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS"),
)
"""The environment variables of torchrun and accelerate, Open MPI, MPICH and Intel MPI, and Slurm."""


def rank_in(environment: Mapping[str, str]) -> Rank | None:
    """Return the rank that launchers such as torchrun put into the environment; None if there is none."""
    return next(filter(None, (_rank_from(environment, names) for names in _RANK_VARIABLES)), None)


def rank_of(pid: int) -> Rank | None:
    """Return the rank in the environment of the process ``pid``; None if there is none or if this user has no
    permission to read it.

    Variables with the same values as in this process's environment don't count, because the process has
    inherited them: in a notebook that was started by ``srun``, every child process has SLURM_PROCID.
    """
    try:
        environment = psutil.Process(pid).environ()
    except (psutil.Error, OSError, ValueError):
        return None
    for names in _RANK_VARIABLES:
        rank = _rank_from(environment, names)
        if rank is not None and rank != _rank_from(os.environ, names):
            return rank
    return None


def _rank_from(environment: Mapping[str, str], names: tuple[str, str, str]) -> Rank | None:
    rank, local_rank, world_size = (_whole_number(environment.get(name, "")) for name in names)
    return None if rank is None else Rank(rank, local_rank, world_size)


def _whole_number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


class _ProcessCache(Generic[_T]):
    """Caches a value per process.

    Each value is computed once, and is kept while the process id belongs to the same process.
    """

    def __init__(
        self, clock: Clock, find: Callable[[int, _StartInfo], _T], gone: _T, keep: Callable[[_T], bool]
    ) -> None:
        """``gone`` is the value of processes that have ended. If the cache is full, it first drops the values
        for which ``keep`` returns False."""
        self._clock = clock
        self._find = find
        self._gone = gone
        self._keep = keep
        self._found: dict[int, tuple[float | None, _T, float]] = {}
        """By process id: start time (None if the process has ended), value, and monotonic time of the last
        check."""

    def __len__(self) -> int:
        return len(self._found)

    def get(self, pid: int) -> _T:
        now = self._clock.monotonic()
        known = self._found.get(pid)
        if known is not None and now - known[2] < _PID_VALID_S:
            return known[1]
        info = _start_info(pid)
        if info is None:
            found = self._gone
        elif known is not None and known[0] == info.started:
            found = known[1]
        else:
            found = self._find(pid, info)
        if len(self._found) >= _MAX_CACHED:
            self.retain(self._keep)
            if len(self._found) >= _MAX_CACHED // 2:
                self._found.clear()
        self._found[pid] = (info.started if info is not None else None, found, now)
        return found

    def retain(self, keep: Callable[[_T], bool]) -> None:
        """Drop all values for which ``keep`` returns False."""
        self._found = {pid: known for pid, known in self._found.items() if keep(known[1])}


class ProcessTrees:
    """Finds which of the given root processes a process descends from, by following its chain of parents.

    If the parent of a process ends, the system assigns the process another parent. The root is then found in
    one of two ways: by the session, if a root created the session of the process, as Jupyter's kernels and
    terminals do; or else from the cache, if the root was determined before the parent ended. A daemon that
    created a session, and whose parent ended before the root was determined, counts as unrelated.
    """

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._roots: dict[int, float] = {}
        """Start time of each root, by process id."""
        # Descendants of a root stay cached longest, because a later search might no longer find their root.
        self._roots_found = _ProcessCache[int | None](
            clock, self._ancestor, None, keep=lambda root: root is not None
        )

    def set_roots(self, pids: Iterable[int]) -> None:
        """Set the root processes that :meth:`root_of` can return. Processes that have ended are skipped."""
        before, self._roots = self._roots, {}
        for pid in pids:
            info = _start_info(pid)
            if info is not None:
                self._roots[pid] = info.started
        if self._roots == before:
            return
        # Forget the descendants of removed roots, and all processes that so far counted as unrelated.
        kept = {pid for pid, started in self._roots.items() if before.get(pid) == started}
        self._roots_found.retain(lambda root: root in kept)

    def root_of(self, pid: int) -> int | None:
        """Return the nearest root among ``pid`` and its ancestors, or None if none of them is a root."""
        return pid if pid in self._roots else self._roots_found.get(pid)

    def _ancestor(self, pid: int, info: _StartInfo) -> int | None:
        for _ in range(_MAX_GENERATIONS):
            # A session's id is the pid of the process that created the session. That pid is not reused while
            # the session has members, so it identifies this ancestor even if the processes in between have
            # ended.
            for ancestor in (info.parent, info.session):
                if ancestor in self._roots and self._roots[ancestor] <= info.started:
                    return ancestor
            parent = _start_info(info.parent) if info.parent > 1 else None
            # A parent is older than its child. If the process with the parent's id is younger, the parent has
            # ended and an unrelated process has received its id.
            if parent is None or parent.started > info.started:
                return None
            info = parent
        return None


class OwnProcessTree:
    """This process and its descendants."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self.pid = os.getpid()
        self._trees = ProcessTrees(clock)
        self._trees.set_roots((self.pid,))

    def contains(self, pid: int) -> bool:
        """Return whether ``pid`` is this process or descends from it. False if ``pid`` has ended."""
        return pid == self.pid or self._trees.root_of(pid) is not None


_own_tree: OwnProcessTree | None = None


def own_process_tree() -> OwnProcessTree:
    """Return the tree of this process. All calls return the same object, so that its cached results last from
    run to run."""
    global _own_tree
    if _own_tree is None:
        _own_tree = OwnProcessTree()
    return _own_tree


def _reset_in_child() -> None:
    global _own_tree
    _own_tree = None


reset_after_fork(_reset_in_child)


class ProcessDirectory:
    """Looks up the user and program of processes. Each process is read only once."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._known = _ProcessCache(clock, _identify, UNKNOWN, keep=lambda identity: False)

    def look_up(self, pid: int) -> Identity:
        """Return the identity of the process ``pid``, as far as this user has permission to read it."""
        return self._known.get(pid)


@functools.cache
def own_user() -> str | None:
    """Return the login name of the user who runs this process; None if unknown."""
    try:
        return str(psutil.Process().username())
    except (psutil.Error, OSError):
        return None


def _start_info(pid: int) -> _StartInfo | None:
    try:
        fields = _stat_fields(pid)
        return _StartInfo(started=float(fields[19]), parent=int(fields[1]), session=int(fields[3]))
    except (OSError, IndexError, ValueError):
        return None


def _stat_fields(pid: int) -> list[bytes]:
    """Return the fields of ``/proc/PID/stat`` from the process's state on."""
    # The name in parentheses may contain spaces and parentheses, so count fields from the last parenthesis.
    return _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()


def _identify(pid: int, info: _StartInfo) -> Identity:
    user = None
    try:
        process = psutil.Process(pid)
        with suppress(psutil.Error, OSError):
            user = process.username()
        return Identity(user, program_name(process.cmdline(), process.name()))
    except (psutil.Error, OSError, ValueError):
        return Identity(user, None)


def all_pids() -> list[int]:
    """Return the ids of all processes in this PID namespace."""
    return list(psutil.pids())


def process_exists(pid: int) -> bool:
    """Return whether a process with this id exists, even if this user has no permission to read it."""
    return bool(psutil.pid_exists(pid))


def uses_cuda(pid: int) -> bool | None:
    """Return whether the process ``pid`` has a CUDA context, or None if unknown.

    A process that creates a context opens CUDA's device file and maps memory of that device. A forked child
    does not inherit the mapping, so it counts as having no context of its own. If the file is open but not
    mapped, the result is None, because newer drivers (580) make NVML open the file too. The result is also
    None on WSL, where one device file serves all uses, and for processes that this user can't read.
    """
    folder = f"/proc/{pid}"
    try:
        files = os.listdir(f"{folder}/fd")
    except OSError:
        return None
    opened = set()
    for name in files:
        with suppress(OSError):
            opened.add(os.readlink(f"{folder}/fd/{name}"))
    if opened.isdisjoint(_CUDA_DEVICES):
        return False
    try:
        with open(f"{folder}/maps", encoding="utf-8", errors="replace") as maps:
            return True if any(line.rstrip().endswith(_CUDA_DEVICE) for line in maps) else None
    except OSError:
        return None


def notebook_of(pid: int) -> str | None:
    """Return the file name of the notebook whose kernel is the process ``pid`` or one of its ancestors.

    Jupyter puts the name into the kernel's environment (``JPY_SESSION_NAME``). The kernel's children inherit
    it, and only the kernel's user may read it. The result is None if there is no name or if it can't be read.
    """
    try:
        name = psutil.Process(pid).environ().get(NOTEBOOK_VARIABLE, "")
    except (psutil.Error, OSError, ValueError):
        return None
    found = os.path.basename(name)
    return found if found.endswith(".ipynb") else None


def thread_queue_s(native_id: int) -> float | None:
    """Return the seconds for which a thread of this process was ready to run but had no CPU core.

    The number is from Linux's scheduler. Return None if it is unknown, for example because the thread ended.
    """
    try:
        return int(_read(f"/proc/self/task/{native_id}/schedstat").split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return None
