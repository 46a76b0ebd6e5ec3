"""Processes of this machine: who they are, whose children they are, and what memory they hold.

The home of psutil. Where there is a ``/proc``, what is asked several times a second is read from it
directly: one small file, no process object.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Generic, NamedTuple, TypeVar

import psutil

from gpuwidget.model import command_line
from gpuwidget.model.clock import SYSTEM_CLOCK, Clock
from gpuwidget.model.fork import reset_after_fork

_HOST_PID_NAMESPACE = 0xEFFFFFFC
"""Inode of the kernel's first pid namespace (PROC_PID_INIT_INO of linux/proc_ns.h)."""
_TRUST_S = 2.0
"""How long a process id goes on meaning the same process without a look: ids are given out in turn, so
that one comes back only after all others (tens of thousands at least) were used."""
_MOST_REMEMBERED = 1024
_DEEPEST = 256
"""Generations that are walked up; only ids that changed hands meanwhile could make more of them."""
_NOTEBOOK = "JPY_SESSION_NAME"
_CUDA_DEVICE = "/dev/nvidia-uvm"
_CUDA_DEVICES = (_CUDA_DEVICE, "/dev/dxg")
"""Of Linux, and of Windows' Linux (WSL)."""
_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096

_T = TypeVar("_T")


class HostMemory(NamedTuple):
    """The host's memory, in bytes."""

    total: int
    used: int
    """What no program could get without another giving it up (total less available)."""


class Identity(NamedTuple):
    """Who a process is; None for what may not be read."""

    user: str | None
    program: str | None
    """As in :class:`gpuwidget.model.command_line.CommandLine`."""
    arguments: str | None
    """As there: without what may be secret. Empty where there are none."""


UNKNOWN = Identity(None, None, None)


class _Origin(NamedTuple):
    """What tells a process from a later one with the same id, and who started it."""

    started: float
    parent: int
    session: int | None = None
    """Id of its session, which is that of the process that began it; None where nobody says."""


def in_host_pid_namespace() -> bool:
    """Whether this process's ids are those of the host, which is what a driver reports.

    False where nobody can say: a container's ids, or a system without pid namespaces.
    """
    try:
        return os.stat("/proc/self/ns/pid").st_ino == _HOST_PID_NAMESPACE
    except OSError:
        return False


@functools.cache
def started() -> float | None:
    """When this process began, epoch seconds to about one; None where the system does not say."""
    try:
        return float(psutil.Process().create_time())
    except (psutil.Error, OSError):
        return None


def resident_memory() -> int | None:
    """Bytes of this process that are in memory now (VmRSS); None where the system does not say."""
    try:
        return int(_read("/proc/self/statm").split()[1]) * _PAGE
    except (OSError, IndexError, ValueError):
        pass
    try:
        return int(psutil.Process().memory_info().rss)
    except psutil.Error:
        return None


def peak_resident_memory() -> int | None:
    """The most bytes of this process that ever were in memory (VmHWM); None where the system does not say."""
    try:
        for line in _read("/proc/self/status").splitlines():
            if line.startswith(b"VmHWM:"):
                return int(line.split()[1]) * 1024
    except (OSError, IndexError, ValueError):
        pass
    return None


def host_memory() -> HostMemory:
    """The host's memory: what a GPU without memory of its own works in."""
    memory = psutil.virtual_memory()
    return HostMemory(int(memory.total), int(memory.total - memory.available))


class ChildrenTime(NamedTuple):
    """CPU time of a process's children and theirs, in seconds."""

    ended: float
    """Of those that have ended and were waited for, since the process began."""
    alive: float
    """Of those alive now and of their children that have ended, since each began."""


def has_children() -> bool:
    """Whether this process has a child; one system call, where telling which takes several a thread."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    except (AttributeError, OSError):
        pass  # a system without this call
    return True


def children_cpu_time() -> ChildrenTime:
    """CPU time that this process's children took, and theirs."""
    times = os.times()
    ended = times.children_user + times.children_system
    if not has_children():
        return ChildrenTime(ended, 0.0)
    try:
        return ChildrenTime(ended, sum(_cpu_time(pid) for pid in _descendants()))
    except OSError:
        # A system that does not list the children of a process.
        alive = 0.0
        with suppress(psutil.Error):
            for child in psutil.Process().children(recursive=True):
                with suppress(psutil.Error):
                    spent = child.cpu_times()
                    alive += spent.user + spent.system
                    alive += getattr(spent, "children_user", 0.0) + getattr(spent, "children_system", 0.0)
        return ChildrenTime(ended, alive)


def _descendants() -> list[int]:
    found = _children(os.getpid())
    for pid in found:  # which grows meanwhile
        with suppress(OSError):
            found += _children(pid)
    return found


def _children(pid: int) -> list[int]:
    return [
        int(child)
        for thread in os.listdir(f"/proc/{pid}/task")
        for child in _read(f"/proc/{pid}/task/{thread}/children").split()
    ]


def _cpu_time(pid: int) -> float:
    try:
        fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
        # Its own, and that of its children which have ended.
        return sum(map(int, fields[11:15])) / _TICKS
    except (OSError, IndexError, ValueError):
        return 0.0


class _Remembered(Generic[_T]):
    """What was found out about processes, each asked once, as long as its id means the same process."""

    def __init__(
        self, clock: Clock, find: Callable[[int, _Origin], _T], gone: _T, keep: Callable[[_T], bool]
    ) -> None:
        """``gone`` is what holds of a process that is not there; ``keep`` says what is forgotten last."""
        self._clock = clock
        self._find = find
        self._gone = gone
        self._keep = keep
        self._found: dict[int, tuple[float | None, _T, float]] = {}
        """When it was started (None: not there), what was found, and when."""

    def __len__(self) -> int:
        return len(self._found)

    def get(self, pid: int) -> _T:
        """What holds of ``pid``."""
        now = self._clock.monotonic()
        known = self._found.get(pid)
        if known is not None and now - known[2] < _TRUST_S:
            return known[1]
        origin = _origin(pid)
        if origin is None:
            found = self._gone
        elif known is not None and known[0] == origin.started:
            found = known[1]
        else:
            found = self._find(pid, origin)
        if len(self._found) >= _MOST_REMEMBERED:
            self.forget_all_but(self._keep)
            if len(self._found) >= _MOST_REMEMBERED // 2:
                self._found.clear()
        self._found[pid] = (origin.started if origin is not None else None, found, now)
        return found

    def forget_all_but(self, keep: Callable[[_T], bool]) -> None:
        """Find out anew about all processes of which ``keep`` does not hold."""
        self._found = {pid: known for pid, known in self._found.items() if keep(known[1])}


class Families:
    """Whose descendants processes are, told by walking up from them, never down from their elders.

    One whose parent has died is another's child by then. It is told by its session where one of the roots
    began that, as Jupyter has its kernels and its terminals do, and else where it was seen before; a daemon
    that began a session of its own and lost its parent before it was ever seen is taken for a stranger.
    """

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._roots: dict[int, float] = {}
        """When each was started."""
        # What was found to be a root's is forgotten last, since it can't be told again later.
        self._judged = _Remembered[int | None](
            clock, self._ancestor, None, keep=lambda root: root is not None
        )

    def set_roots(self, pids: Iterable[int]) -> None:
        """The processes whose descendants are told apart from now on; those that are gone are left out."""
        before, self._roots = self._roots, {}
        for pid in pids:
            origin = _origin(pid)
            if origin is not None:
                self._roots[pid] = origin.started
        if self._roots == before:
            return
        # What belonged to one that is there no longer is judged anew, and so is every stranger.
        kept = {pid for pid, started in self._roots.items() if before.get(pid) == started}
        self._judged.forget_all_but(lambda root: root in kept)

    def root_of(self, pid: int) -> int | None:
        """The root that ``pid`` is, or descends from, the nearest where there are several; None if none."""
        return pid if pid in self._roots else self._judged.get(pid)

    def _ancestor(self, pid: int, origin: _Origin) -> int | None:
        for _ in range(_DEEPEST):
            # The number of a session that has members is given to no other process.
            for elder in (origin.parent, origin.session):
                if elder is not None and elder in self._roots and self._roots[elder] <= origin.started:
                    return elder
            parent = _origin(origin.parent) if origin.parent > 1 else None
            # A parent is older than its child: a younger one is a stranger with its number.
            if parent is None or parent.started > origin.started:
                return None
            origin = parent
        return None


class Family:
    """This process and its descendants."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self.pid = os.getpid()
        self._families = Families(clock)
        self._families.set_roots((self.pid,))

    def contains(self, pid: int) -> bool:
        """Whether ``pid`` is this process, a child of it, a child's child and so on; False when gone."""
        return pid == self.pid or self._families.root_of(pid) is not None


_family: Family | None = None


def family() -> Family:
    """That of this process, which remembers from run to run who belonged to it."""
    global _family
    if _family is None:
        _family = Family()
    return _family


def _reset_in_child() -> None:
    global _family
    _family = None


reset_after_fork(_reset_in_child)


class Directory:
    """User, program and arguments of processes, read once for each."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._known = _Remembered(clock, _identify, UNKNOWN, keep=lambda identity: False)

    def look_up(self, pid: int) -> Identity:
        """Who ``pid`` is, as far as this user may read it."""
        return self._known.get(pid)


@functools.cache
def own_user() -> str | None:
    """Return the login name of this process's owner; None where the system does not tell."""
    try:
        return str(psutil.Process().username())
    except (psutil.Error, OSError):
        return None


def _origin(pid: int) -> _Origin | None:
    if psutil.LINUX:
        try:
            # The name in parentheses may itself hold spaces and parentheses: count from the last one.
            fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
            return _Origin(started=float(fields[19]), parent=int(fields[1]), session=int(fields[3]))
        except (OSError, IndexError, ValueError):
            return None
    try:
        process = psutil.Process(pid)
        return _Origin(started=process.create_time(), parent=process.ppid())
    except (psutil.Error, ValueError):
        return None


def _identify(pid: int, origin: _Origin) -> Identity:
    user = None
    try:
        process = psutil.Process(pid)
        with suppress(psutil.Error, OSError):
            user = process.username()
        shown = command_line.parse(process.cmdline(), process.name())
    except (psutil.Error, OSError, ValueError):
        return Identity(user, None, None)
    return Identity(user, shown.program, shown.arguments)


def exists(pid: int) -> bool:
    """Whether a process of that number is there, also one that this user may know nothing else of."""
    return bool(psutil.pid_exists(pid))


def uses_cuda(pid: int) -> bool | None:
    """Whether ``pid`` has a CUDA context, as what it has open shows; None where that does not tell.

    No context is made without CUDA's device, and each maps memory of it, which a forked child does not
    inherit. To have it open is not enough: on newer drivers (580) NVML opens it too. Nor can be told what is
    done with WSL's one device, or by another user's process.
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
    """File name of the notebook that ``pid`` runs for, as a kernel or as what a cell has started.

    Jupyter puts it into a kernel's environment (``JPY_SESSION_NAME``), which is its own user's to read; None
    where there is none, or where it may not be read.
    """
    try:
        name = psutil.Process(pid).environ().get(_NOTEBOOK, "")
    except (psutil.Error, OSError, ValueError):
        return None
    found = os.path.basename(name)
    return found if found.endswith(".ipynb") else None


def _read(path: str) -> bytes:
    # Not open(): in a busy notebook every system call may wait for the GIL, and this makes three.
    file = os.open(path, os.O_RDONLY)
    try:
        return os.read(file, 8192)
    finally:
        os.close(file)
