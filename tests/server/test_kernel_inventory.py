"""Listing the kernels of any kind of Jupyter kernel manager, and deciding which kernels to query and when."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any

import pytest
from fakes import EPOCH, FakeClock
from jupyter_client.provisioning.local_provisioner import LocalProvisioner

from gpuwidget.server import kernel_reports
from gpuwidget.server.kernel_executions import ExecutionTracker
from gpuwidget.server.kernel_inventory import KernelInventory
from gpuwidget.server.kernel_reports import KernelReports, KernelUsage
from gpuwidget.server.wire import ServerKernel

WHEN = datetime.fromtimestamp(EPOCH, timezone.utc)


def local(pid: int, returncode: int | None = None) -> LocalProvisioner:
    """Return the provisioner of a kernel whose process runs on this machine."""
    made = LocalProvisioner()
    made.process = SimpleNamespace(pid=pid, returncode=returncode)  # type: ignore[assignment]
    return made


def kernel(provisioner: Any, state: str = "idle", **facts: Any) -> Any:
    """Return a stand-in for Jupyter's manager of one kernel."""
    python = SimpleNamespace(language="python")
    known = {"kernel_name": "python3", "last_activity": WHEN, "kernel_spec": python, **facts}
    return SimpleNamespace(provisioner=provisioner, execution_state=state, **known)


class Managers:
    """A stand-in for Jupyter's kernel manager and session manager."""

    def __init__(self, **kernels: Any) -> None:
        self.kernels = kernels
        self.rows: Any = []
        self.listed = 0

    def list_kernel_ids(self) -> list[str]:
        return list(self.kernels)

    def get_kernel(self, kernel_id: str) -> Any:
        found = self.kernels[kernel_id]
        if isinstance(found, Exception):
            raise found
        return found

    def list_sessions(self) -> Any:
        self.listed += 1
        if isinstance(self.rows, Exception):
            raise self.rows
        return self.rows


def session(name: str, kernel_id: str, kind: str = "notebook") -> dict[str, Any]:
    """Return a session as Jupyter lists it."""
    return {"id": f"s-{name}", "path": f"w/{name}", "name": name, "type": kind, "kernel": {"id": kernel_id}}


def inventory(managers: Managers, clock: FakeClock, **settings: Any) -> KernelInventory:
    return KernelInventory(managers, managers, settings, clock, ExecutionTracker())


async def test_every_kind_of_kernel(clock: FakeClock) -> None:
    """The inventory has a process id only for a kernel that runs as a child process of the server.
    It has none for remote, starting and ended kernels."""
    managers = Managers(
        here=kernel(local(10), "busy"),
        ended=kernel(local(11, returncode=-9)),
        remote=kernel(SimpleNamespace(pid=12, has_process=True)),
        gateway=kernel(None, "busy"),
        starting=kernel(None, "starting"),
        odd=kernel(local(13), "autorestarting", last_activity="2026-01-01T00:00:00Z"),
        vanished=KeyError("vanished"),
        lost=None,
    )
    known = inventory(managers, clock).snapshot()
    assert known.kernel_of == {10: "here", 13: "odd"}
    assert known.remote_kernels == 2
    assert known.terminal_of == {}
    assert [(one.id, one.state, one.idle_since) for one in known.kernels] == [
        ("here", "busy", None),
        ("ended", "idle", EPOCH),
        ("remote", "idle", EPOCH),
        ("gateway", "busy", None),
        ("starting", "starting", None),
        ("odd", "unknown", None),
    ]


async def test_one_kernel_is_looked_up_without_the_others(clock: FakeClock) -> None:
    """The inventory looks up one kernel's manager without listing all kernels,
    so that querying 50 kernels does not take 2500 look-ups."""
    managers = Managers(a=kernel(local(10)), vanished=KeyError("vanished"), lost=None)
    made = inventory(managers, clock)
    managers.list_kernel_ids = None  # type: ignore[assignment,method-assign]
    assert made.manager("a") is managers.kernels["a"]
    assert [made.manager(one) for one in ("vanished", "lost", "unheard of")] == [None] * 3


async def test_terminals_that_were_closed(clock: FakeClock) -> None:
    """A closed terminal's shell is not listed, since its process id may belong to another process by now."""

    def shell(pid: int, terminated: bool) -> Any:
        return SimpleNamespace(ptyproc=SimpleNamespace(pid=pid, terminated=terminated))

    manager = SimpleNamespace(terminals={"1": shell(20, False), "2": shell(21, True), "3": object()})
    assert inventory(Managers(), clock, terminal_manager=manager).snapshot().terminal_of == {20: "1"}
    assert inventory(Managers(), clock, terminals_available=False).snapshot().terminal_of == {}


async def test_sessions_are_listed_every_five_seconds(clock: FakeClock) -> None:
    """Sessions are listed every five seconds and whenever a new kernel appears.
    In between, the previous list is used."""
    managers = Managers(a=kernel(local(10)))
    managers.rows = [session("a.ipynb", "a")]
    made = inventory(managers, clock)

    async def names() -> list[str | None]:
        made.snapshot()
        await asyncio.sleep(0)
        return [one.name for one in made.snapshot().kernels]

    assert await names() == ["a.ipynb"]
    managers.rows = [session("b.ipynb", "a"), session("c.ipynb", "b")]
    clock.advance(4.9)
    assert (await names(), managers.listed) == (["a.ipynb"], 1)
    clock.advance(0.2)
    assert (await names(), managers.listed) == (["b.ipynb"], 2)
    managers.kernels["b"] = kernel(local(11))
    assert (await names(), managers.listed) == (["b.ipynb", "c.ipynb"], 3)
    managers.rows = OSError("the database is locked")
    clock.advance(5.0)
    assert (await names(), managers.listed) == (["b.ipynb", "c.ipynb"], 4)


async def test_a_slow_listing(clock: FakeClock) -> None:
    """If the session manager is slow because it queries a remote server, the inventory does not wait for it.
    Only one listing runs at a time."""
    managers = Managers(a=kernel(local(10)))
    answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    managers.rows = answer
    made = inventory(managers, clock)
    for _ in range(5):
        assert [one.name for one in made.snapshot().kernels] == [None]
        await asyncio.sleep(0)
        clock.advance(5.0)
    assert managers.listed == 1
    answer.set_result([session("a.ipynb", "a")])
    for _ in range(100):
        names = [one.name for one in made.snapshot().kernels]
        if names != [None]:
            break
        await asyncio.sleep(0)
    assert names == ["a.ipynb"]


async def test_unusual_sessions(clock: FakeClock) -> None:
    """The inventory accepts sessions without a kernel or a name,
    and session types that other front ends use."""
    managers = Managers(a=kernel(local(10)), b=kernel(local(11)))
    managers.rows = [
        {"id": "1", "kernel": None},
        {"id": "2", "path": "", "name": "", "type": "", "kernel": {"id": "a"}},
        {
            "id": "3",
            "path": "x",
            "name": "Interactive-1",
            "type": "jupyter-interactive",
            "kernel": {"id": "b"},
        },
    ]
    made = inventory(managers, clock)
    made.snapshot()
    await asyncio.sleep(0)
    assert made.snapshot().kernels == (
        ServerKernel("a", "python3", "idle", EPOCH, "2", None, None, None, None, None),
        ServerKernel(
            "b", "python3", "idle", EPOCH, "3", "jupyter-interactive", None, "Interactive-1", None, None
        ),
    )


@pytest.mark.parametrize("odd", [5, 1.5, True, ["x"], {"x": 1}, None, ""])
async def test_sessions_with_odd_values(clock: FakeClock, odd: object) -> None:
    """A session's name, path or type that is no text counts as missing. The stream and the metrics contain
    them, and could not be encoded otherwise."""
    managers = Managers(a=kernel(local(10)), b=kernel(local(11)))
    managers.rows = [
        {"id": "1", "path": odd, "name": odd, "type": odd, "kernel": {"id": "a"}},
        session("b.ipynb", "b"),
    ]
    made = inventory(managers, clock)
    made.snapshot()
    await asyncio.sleep(0)
    found = [(one.session, one.kind, one.path, one.name) for one in made.snapshot().kernels]
    assert found == [("1", None, None, None), ("s-b.ipynb", "notebook", "w/b.ipynb", "b.ipynb")]


# -- which kernels are queried, and when -----------------------------------------------------------------

USAGE = {"GPU-1": KernelUsage(True, 5)}
STATE_REPLY = {"status": "ok", "state": {"gpus": [{"uuid": "GPU-1", "context": True, "torch_reserved": 5}]}}


class QueriedKernels:
    """A stand-in for the kernels' replies to state queries.
    A test sets the reply, and the queries are counted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, clock: FakeClock, managers: Managers) -> None:
        self.count = 0
        self.reply: Mapping[str, Any] | None = None
        self.clock = clock
        self.reports = KernelReports(inventory(managers, clock), clock)
        monkeypatch.setattr(kernel_reports, "_request_state", self._reply)

    async def _reply(self, manager: Any) -> Mapping[str, Any]:
        self.count += 1
        if self.reply is None:
            raise asyncio.TimeoutError
        return self.reply

    async def query(self, pid: int | None = 10) -> int:
        """Query the kernel ``a`` if a query is due, and return the number of queries so far."""
        self.reports.query({"a": pid})
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return self.count


async def test_a_silent_kernel_is_queried_less_often(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel that never replies is queried again only after it was active, and at increasing intervals."""
    manager = kernel(local(10))
    queries = QueriedKernels(monkeypatch, clock, Managers(a=manager))
    assert await queries.query() == 1
    clock.advance(1000.0)
    assert await queries.query() == 1
    for pause, count in ((20.0, 2), (19.0, 2), (1.0, 3), (39.0, 3), (1.0, 4)):
        manager.last_activity = datetime.fromtimestamp(EPOCH + clock.monotonic() + 1, timezone.utc)
        clock.advance(pause)
        assert await queries.query() == count
    assert queries.reports.newest({"a": 10}) == {}


async def test_a_report_expires(clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that replies is queried every five seconds.
    If it stops replying, its last report is valid for 30 seconds."""
    queries = QueriedKernels(monkeypatch, clock, Managers(a=kernel(local(10), "busy")))
    queries.reply = STATE_REPLY
    assert (await queries.query(), queries.reports.newest({"a": 10})) == (1, {"a": USAGE})
    clock.advance(4.9)
    assert await queries.query() == 1
    queries.reply = None
    clock.advance(25.1)
    assert (await queries.query(), queries.reports.newest({"a": 10})) == (2, {"a": USAGE})
    clock.advance(0.1)
    assert queries.reports.newest({"a": 10}) == {"a": {"GPU-1": KernelUsage(True, None)}}
    assert queries.reports.newest({"a": 11}) == {}, "another process is another kernel"
    assert queries.reports.newest({"a": 10}) == {}
    queries.reply = STATE_REPLY
    assert (await queries.query(), queries.reports.newest({})) == (3, {})


async def test_a_kernel_that_has_replied_is_queried_again(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel that has replied before is queried again,
    even if it did not reply to the last query and has run no code since."""
    queries = QueriedKernels(monkeypatch, clock, Managers(a=kernel(local(10))))
    queries.reply = STATE_REPLY
    await queries.query()
    clock.advance(5.0)
    queries.reply = None
    await queries.query()
    clock.advance(40.0)
    assert queries.reports.newest({"a": 10}) == {"a": {"GPU-1": KernelUsage(True, None)}}
    queries.reply = STATE_REPLY
    assert (await queries.query(), queries.reports.newest({"a": 10})) == (3, {"a": USAGE})


async def test_a_kernel_that_is_silent_in_a_long_call(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy kernel that no longer replies is still queried every 30 seconds,
    and immediately after activity."""
    manager = kernel(local(10), "busy")
    queries = QueriedKernels(monkeypatch, clock, Managers(a=manager))
    queries.reply = STATE_REPLY
    await queries.query()
    queries.reply = None
    clock.advance(5.0)
    await queries.query()
    for count in range(3, 30):
        clock.advance(30.0)
        assert await queries.query() == count
    manager.last_activity = datetime.fromtimestamp(EPOCH + 1, timezone.utc)
    clock.advance(2.0)
    assert await queries.query() == 30
    clock.advance(2.0)
    assert await queries.query() == 30
    assert queries.reports.newest({"a": 10}) == {"a": {"GPU-1": KernelUsage(True, None)}}, (
        "its process is the same"
    )


async def test_the_report_of_a_remote_kernel(clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """A remote kernel's report is valid for five minutes.
    After that, the kernel is queried as rarely as a kernel that has never replied."""
    queries = QueriedKernels(monkeypatch, clock, Managers(a=kernel(SimpleNamespace(pid=None))))
    queries.reply = STATE_REPLY
    await queries.query(None)
    queries.reply = None
    clock.advance(300.0)
    await queries.query(None)
    assert queries.reports.newest({"a": None}) == {"a": {"GPU-1": KernelUsage(True, None)}}
    clock.advance(1.0)
    assert queries.reports.newest({"a": None}) == {}
    clock.advance(3600.0)
    assert await queries.query(None) == 2
    assert queries.reports.newest({"a": None}) == {}


@pytest.mark.parametrize("state", ["starting", "restarting", "autorestarting", "dead"])
async def test_the_report_of_a_kernel_that_restarts(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    """If Jupyter reports that a kernel restarts or has died, the kernel's report is discarded,
    even for a remote kernel, whose process id is unknown."""
    manager = kernel(SimpleNamespace(pid=None))
    queries = QueriedKernels(monkeypatch, clock, Managers(a=manager))
    queries.reply = STATE_REPLY
    await queries.query(None)
    assert queries.reports.newest({"a": None}) == {"a": USAGE}
    manager.execution_state = state
    assert queries.reports.newest({"a": None}) == {}
    manager.execution_state = "idle"
    assert queries.reports.newest({"a": None}) == {}


@pytest.mark.parametrize(
    "manager",
    [
        kernel(local(10), kernel_spec=SimpleNamespace(language="R")),
        kernel(local(10), "starting"),
        kernel(local(10), "dead"),
        kernel(None),
        None,
    ],
)
async def test_kernels_that_are_never_queried(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch, manager: Any
) -> None:
    """Kernels of other languages, kernels that are not running and kernels of a gateway are never queried."""
    assert await QueriedKernels(monkeypatch, clock, Managers(a=manager)).query() == 0


@pytest.mark.parametrize(
    "answer",
    [
        {"status": "error", "reason": "no", "state": None},
        {"status": "ok", "state": None},
        {"status": "ok", "state": {"gpus": [None]}},
        {},
    ],
)
async def test_invalid_replies(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch, answer: Mapping[str, Any]
) -> None:
    """A kernel's invalid reply is ignored."""
    queries = QueriedKernels(monkeypatch, clock, Managers(a=kernel(local(10))))
    queries.reply = answer
    assert (await queries.query(), queries.reports.newest({"a": 10})) == (1, {})


async def test_an_older_gpuwidget(clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a kernel's gpuwidget is so old that its reply lacks ``torch_reserved``,
    the kernel counts as using the GPU, with unknown memory."""
    queries = QueriedKernels(monkeypatch, clock, Managers(a=kernel(local(10))))
    queries.reply = {"status": "ok", "state": {"gpus": [{"uuid": "GPU-1", "context": True}]}}
    assert (await queries.query(), queries.reports.newest({"a": 10})) == (
        1,
        {"a": {"GPU-1": KernelUsage(True, None)}},
    )


@pytest.mark.parametrize(
    "sent",
    [
        *(-1, 2**53, 10**400, -(10**400)),
        *(float("inf"), float("-inf"), float("nan"), 1.5, 5.0),
        *(True, False, "5", "", [], [5], {}),
    ],
)
async def test_impossible_sizes_are_unknown(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch, sent: object
) -> None:
    """If a kernel reports a size that is not a possible number of bytes, that size is unknown.
    The sizes for the kernel's other GPUs are kept."""
    gpus = [
        {"uuid": "GPU-1", "context": True, "torch_reserved": sent},
        {"uuid": "GPU-2", "context": False, "torch_reserved": 2**53 - 1},
        {"uuid": "GPU-3", "context": False, "torch_reserved": 0},
        {"uuid": "GPU-4", "context": False, "torch_reserved": None},
    ]
    queries = QueriedKernels(monkeypatch, clock, Managers(a=kernel(local(10))))
    queries.reply = {"status": "ok", "state": {"gpus": gpus}}
    await queries.query()
    assert queries.reports.newest({"a": 10}) == {
        "a": {
            "GPU-1": KernelUsage(True, None, invalid=True),
            "GPU-2": KernelUsage(False, 2**53 - 1),
            "GPU-3": KernelUsage(False, 0),
            "GPU-4": KernelUsage(False, None),
        }
    }
