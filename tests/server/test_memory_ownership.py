"""The owners of GPU memory on a real server with kernels, sessions and terminals.
A test sets the processes that the driver lists."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fakes import FakeSource, gpu
from helpers_kernel_channels import Channels
from helpers_samples import GIB, process
from helpers_server import Server, Stream
from nvml_standin import Standin, build
from traitlets.config import Config

from gpuwidget.model.kernel_requests import REPLY, REQUEST
from gpuwidget.server.kernel_reports import KernelReports
from gpuwidget.system import processes

UNKNOWN = [{"seconds": seconds, "utilization": None} for seconds in (600.0, 1800.0, 3600.0)]
FOREIGN = (
    "The driver's process ids can't be matched with those of this server's processes, "
    "for example because this container has its own ids."
)
BY_TORCH = (
    "The memory of kernels is torch's count, without CUDA contexts, other libraries and child processes."
)

INVALID = "A kernel reported an impossible amount of torch memory, so its memory is unknown."


async def start_session(
    server: Server, path: str, kind: str = "notebook", kernel: str | None = None, name: str | None = None
) -> Any:
    """Start a session, as a browser does, and return it."""
    started = {"name": "python3"} if kernel is None else {"id": kernel}
    body = {"path": path, "name": name or path.rpartition("/")[2], "type": kind, "kernel": started}
    answer = await server.fetch("api", "sessions", method="POST", body=json.dumps(body))
    return json.loads(answer.body)


async def start_kernel(server: Server) -> str:
    """Start a kernel without a session, and return its id."""
    answer = await server.fetch("api", "kernels", method="POST", body=json.dumps({"name": "python3"}))
    kernel: str = json.loads(answer.body)["id"]
    return kernel


def pid_of(server: Server, kernel: str) -> int:
    """Return the process id of a kernel of the server."""
    pid = server.app.kernel_manager.get_kernel(kernel).provisioner.pid
    assert isinstance(pid, int)
    return pid


async def connected(server: Server, kernel: str) -> Channels:
    """Connect to a kernel, wait until it is ready, and return its channels."""
    channels = Channels(server, kernel)
    await channels.open()
    await channels.run("")
    return channels


async def usage_where(stream: Stream, wanted: Callable[[Any], object]) -> Any:
    """Return the first ownership message for which the condition holds."""
    while True:
        usage = await stream.usage()
        if wanted(usage):
            return usage


def held(usage: Any, place: int = 0) -> list[tuple[Any, ...]]:
    """Return each holder of one GPU's memory as a tuple of kernel, terminal, process id, user, program, bytes
    and source."""
    return [
        tuple(value for name, value in holding.items() if name != "other_users")
        for holding in usage["gpus"][place]["holdings"]
    ]


async def test_a_notebook_and_other_processes_on_its_gpu(server: Server, source: FakeSource) -> None:
    """Each notebook that uses a GPU is one holder together with its child processes.
    Every other process is a separate holder."""
    session = await start_session(server, "work/train.ipynb")
    kernel = session["kernel"]["id"]
    channels = await connected(server, kernel)
    worker = int(await channels.run("import subprocess as s; p = s.Popen(['sleep', '600']); print(p.pid)"))
    source.memory = {0: 60 * GIB, 1: 3 * GIB}
    source.processes[0] = (
        process(pid_of(server, kernel), 20 * GIB, user="root", program="python -m ipykernel_launcher"),
        process(worker, 10 * GIB),
        process(3_999_999, 7 * GIB, user="anna", program="python train.py"),
        process(4_000_001, 22 * GIB, user=None, program=None),
    )
    source.processes[1] = (process(pid_of(server, kernel), 2 * GIB),)
    stream = await server.stream()
    assert (await stream.next())["type"] == "hello"
    usage = await usage_where(stream, lambda one: one["kernels"][0]["session"] is not None)
    try:
        (found,) = usage["kernels"]
        assert found == {
            "id": kernel,
            "spec": "python3",
            "state": "idle",
            "idle_since": found["idle_since"],
            "session": session["id"],
            "kind": "notebook",
            "path": "work/train.ipynb",
            "name": "train.ipynb",
            "gpu_hours": None,
            "idle_holder": None,
        }
        assert isinstance(found["idle_since"], float)
        assert usage["gpus"] == [
            {
                "uuid": gpu(0).uuid,
                "holdings": usage["gpus"][0]["holdings"],
                "unattributed": GIB,
                "reason": None,
                "means": UNKNOWN,
                "memory_used": 60 * GIB,
                "older": False,
            },
            {
                "uuid": gpu(1).uuid,
                "holdings": usage["gpus"][1]["holdings"],
                "unattributed": GIB,
                "reason": None,
                "means": UNKNOWN,
                "memory_used": 3 * GIB,
                "older": False,
            },
        ]
        assert held(usage) == [
            (kernel, None, None, None, None, 30 * GIB, "driver"),
            (None, None, 4_000_001, None, None, 22 * GIB, "driver"),
            (None, None, 3_999_999, "anna", "python train.py", 7 * GIB, "driver"),
        ]
        assert held(usage, 1) == [(kernel, None, pid_of(server, kernel), None, None, 2 * GIB, "driver")]
    finally:
        os.kill(worker, signal.SIGKILL)
        channels.close()


async def test_ownership_is_resent_when_it_changes(server: Server, source: FakeSource) -> None:
    """An ownership message is sent only when its content has changed.
    A new client receives the latest one immediately."""
    stream = await server.stream()
    first = await stream.usage()
    assert held(first) == []
    source.processes[1] = (process(3_999_999, GIB),)
    second = await stream.usage()
    assert held(second, 1) == [(None, None, 3_999_999, "anna", "python", GIB, "driver")]
    late = await server.stream()
    assert (await late.next())["type"] == "hello"
    assert await late.usage() == second
    looks = server.hub._ownership._resolver
    assert looks is not None
    kernel = await start_kernel(server)
    third = await usage_where(stream, lambda one: one["kernels"])
    assert [one["id"] for one in third["kernels"]] == [kernel]
    assert held(third, 1) == held(second, 1)


async def test_nothing_is_read_without_clients(
    server: Server, source: FakeSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While no client is connected to the stream,
    the server neither lists the kernels nor determines the owners of GPU memory."""
    looks: list[int] = []
    look = server.hub._ownership._inventory.snapshot

    def counted() -> Any:
        looks.append(1)
        return look()

    monkeypatch.setattr(server.hub._ownership._inventory, "snapshot", counted)
    assert (await server.get("sample"))[0] == 200
    assert looks == []
    stream = await server.stream()
    await stream.usage()
    assert looks
    stream.close()
    await server.until(lambda: not server.hub._clients)
    count = len(looks)
    assert (await server.get("sample"))[0] == 200
    assert (len(looks), server.hub._ownership.newest) == (count, None)


async def test_a_notebook_that_is_moved(server: Server) -> None:
    """If a notebook is moved, the path and name that are listed for its kernel are updated,
    even if the request that moves the session contains only the new path."""
    session = await start_session(server, "work/train.ipynb")
    stream = await server.stream()
    await usage_where(stream, lambda one: one["kernels"] and one["kernels"][0]["name"] == "train.ipynb")
    body = json.dumps({"path": "done/best.ipynb"})
    await server.fetch("api", "sessions", session["id"], method="PATCH", body=body)
    usage = await usage_where(stream, lambda one: one["kernels"][0]["name"] != "train.ipynb")
    (found,) = usage["kernels"]
    assert (found["path"], found["name"], found["session"]) == (
        "done/best.ipynb",
        "best.ipynb",
        session["id"],
    )


async def test_consoles_and_several_sessions(server: Server) -> None:
    """A console is listed with a name and without a path.
    A kernel that both a notebook and a console use has the notebook's path."""
    console = await start_session(server, "work/console-1-abc", "console", name="Console 1")
    kernel = console["kernel"]["id"]
    stream = await server.stream()
    usage = await usage_where(stream, lambda one: one["kernels"] and one["kernels"][0]["session"])
    (found,) = usage["kernels"]
    assert (found["kind"], found["path"], found["name"]) == ("console", None, "Console 1")
    first = await start_session(server, "a.ipynb", kernel=kernel)
    await start_session(server, "b.ipynb", kernel=kernel)
    usage = await usage_where(stream, lambda one: one["kernels"][0]["kind"] == "notebook")
    (found,) = usage["kernels"]
    assert (found["session"], found["path"]) == (first["id"], "a.ipynb")


async def test_a_restarted_kernel_and_one_that_ended(server: Server, source: FakeSource) -> None:
    """After a restart, only the memory of the kernel's new process is attributed to the kernel.
    A child process that has outlived the previous kernel process is a separate holder."""
    kernel = await start_kernel(server)
    channels = await connected(server, kernel)
    orphan = int(
        await channels.run(
            "import subprocess as s\n"
            "start = 'set -m; sleep 600 >/dev/null 2>&1 & echo $!'  # in a group of its own, and left alone\n"
            "print(s.run(['sh', '-c', start], capture_output=True, text=True).stdout)"
        )
    )
    before = pid_of(server, kernel)
    source.processes[0] = (process(before, 2 * GIB), process(orphan, GIB))
    stream = await server.stream()
    try:
        assert held(await stream.usage()) == [(kernel, None, None, None, None, 3 * GIB, "driver")]
        await server.fetch("api", "kernels", kernel, "restart", method="POST", body="")
        after = pid_of(server, kernel)
        assert after != before
        source.processes[0] = (process(after, 5 * GIB), process(orphan, GIB))
        usage = await usage_where(stream, lambda one: str(after) in str(held(one)))
        assert held(usage) == [
            (kernel, None, after, None, None, 5 * GIB, "driver"),
            (None, None, orphan, "anna", "python", GIB, "driver"),
        ]
    finally:
        os.kill(orphan, signal.SIGKILL)
        channels.close()
    await server.fetch("api", "kernels", kernel, method="DELETE")
    usage = await usage_where(stream, lambda one: not one["kernels"])
    assert [holding["kernel"] for holding in usage["gpus"][0]["holdings"]] == [None, None]


async def test_a_terminal(server: Server, source: FakeSource) -> None:
    """If a program runs in one of this server's terminals,
    its memory is attributed to the terminal, by the terminal's name."""
    answer = await server.fetch("api", "terminals", method="POST", body="")
    name = json.loads(answer.body)["name"]
    shell = server.app.web_app.settings["terminal_manager"].terminals[name].ptyproc.pid
    source.processes[0] = (process(shell, 4 * GIB, program="python train.py"),)
    stream = await server.stream()
    assert held(await usage_where(stream, held)) == [
        (None, name, shell, None, "python train.py", 4 * GIB, "driver")
    ]
    await server.fetch("api", "terminals", name, method="DELETE")
    usage = await usage_where(stream, lambda one: one["gpus"][0]["holdings"][0]["terminal"] is None)
    assert held(usage) == [(None, None, shell, "anna", "python train.py", 4 * GIB, "driver")]


class TestOtherManagers:
    """Memory ownership on servers that use other kernel managers and have no terminals."""

    @pytest.fixture(params=["MappingKernelManager", "AsyncMappingKernelManager"])
    def jp_server_config(self, request: pytest.FixtureRequest) -> Config:
        """Return the configuration of a server that has no terminals and uses the given kernel manager
        class."""
        manager = f"jupyter_server.services.kernels.kernelmanager.{request.param}"
        return Config(
            {
                "ServerApp": {
                    "jpserver_extensions": {"gpuwidget": True},
                    "terminals_enabled": False,
                    "kernel_manager_class": manager,
                }
            }
        )

    async def test_both_managers_list_their_kernels(self, server: Server, source: FakeSource) -> None:
        """The kernels of both manager classes are listed, even on a server without terminals."""
        session = await start_session(server, "train.ipynb")
        kernel = session["kernel"]["id"]
        source.processes[0] = (process(pid_of(server, kernel), 2 * GIB),)
        stream = await server.stream()
        usage = await usage_where(stream, lambda one: one["kernels"][0]["session"] is not None)
        assert held(usage) == [(kernel, None, pid_of(server, kernel), None, None, 2 * GIB, "driver")]
        assert usage["kernels"][0]["path"] == "train.ipynb"


class TestRecording:
    """Memory ownership on a server that plays a recording."""

    @pytest.fixture
    def source(self) -> FakeSource:
        """Return a source of readings with one GPU, marked as a recording."""
        return FakeSource(gpus=1, kind="replay")

    async def test_processes_of_a_recording_are_not_attributed(
        self, server: Server, source: FakeSource, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Process ids in a recording are not matched with processes of this machine,
        even if the ids are in use, and no kernel is queried."""
        monkeypatch.setattr(processes, "uses_cuda", lambda pid: True)
        asked: list[Any] = []
        monkeypatch.setattr(KernelReports, "query", lambda self, kernels: asked.extend(kernels))
        kernel = await start_kernel(server)
        source.memory[0] = 5 * GIB
        source.processes[0] = (process(pid_of(server, kernel), 2 * GIB), process(os.getpid(), GIB))
        stream = await server.stream()
        usage = await stream.usage()
        assert usage["gpus"] == [
            {
                "uuid": gpu(0).uuid,
                "holdings": [],
                "unattributed": 5 * GIB,
                "reason": "The recorded processes are not this machine's.",
                "means": UNKNOWN,
                "memory_used": 5 * GIB,
                "older": False,
            }
        ]
        assert asked == []


async def test_a_driver_without_process_memory(server: Server, source: FakeSource) -> None:
    """If the driver lists processes without sizes (as on WSL),
    their memory and the unattributed memory are unknown."""
    kernel = await start_kernel(server)
    source.memory[0] = 5 * GIB
    source.processes[0] = (process(pid_of(server, kernel), None), process(3_999_999, None))
    stream = await server.stream()
    usage = await stream.usage()
    assert held(usage) == [
        (kernel, None, pid_of(server, kernel), None, None, None, "driver"),
        (None, None, 3_999_999, "anna", "python", None, "driver"),
    ]
    found = usage["gpus"][0]
    assert found["unattributed"] is None
    assert "how much each process holds" in found["reason"]


async def test_a_process_table_that_hangs(
    server: Server, source: FakeSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If reading the process table hangs, the server keeps working, sends the reason, and recovers later."""
    source.memory[0] = 5 * GIB
    source.processes[0] = (process(3_999_999, 2 * GIB),)
    stream = await server.stream()
    assert len(held(await stream.usage())) == 1
    begun, go_on = threading.Event(), threading.Event()
    origin = processes._start_info

    def hang(pid: int) -> Any:
        if not go_on.is_set():
            begun.set()
            go_on.wait(60.0)
        return origin(pid)

    monkeypatch.setattr(processes, "_start_info", hang)
    try:
        usage = await stream.usage()
        assert begun.is_set()
        assert threading.active_count() < 30
        assert held(usage) == []
        found = usage["gpus"][0]
        assert found["unattributed"] == 5 * GIB
        assert found["reason"].startswith("For 10 seconds, this machine has not reported")
        assert (await server.get("history"))[0] == 200
    finally:
        go_on.set()
    assert len(held(await stream.usage())) == 1


# -- in a container --------------------------------------------------------------------------------------

ANSWERING = f"""
shell = get_ipython()
asked = []
def answer(stream, ident, parent):
    asked.append(parent["content"])
    gpus = [dict(uuid=uuid, torch_reserved=reserved, context=context) for uuid, reserved, context in word]
    content = dict(status="ok", done=None, state=dict(gpus=gpus))
    shell.kernel.session.send(stream, "{REPLY}", content, parent, ident=ident)
shell.kernel.control_handlers["{REQUEST}"] = answer
"""
"""Code that replaces ``%load_ext gpuwidget`` in a kernel.
The kernel then reports the GPUs that its variable ``word`` lists."""


@pytest.fixture
def container(monkeypatch: pytest.MonkeyPatch) -> dict[int, bool]:
    """Simulate a container, and return a dict that the test fills.
    It maps process ids to whether the process has a CUDA device open."""
    users: dict[int, bool] = {}
    monkeypatch.setattr(processes, "in_host_pid_namespace", lambda: False)
    monkeypatch.setattr(processes, "uses_cuda", lambda pid: users.get(pid, False))
    return users


async def test_kernels_report_their_memory_in_a_container(
    container: dict[int, bool], server: Server, source: FakeSource
) -> None:
    """If the driver's process ids don't match the server's,
    a kernel's memory is torch's own count and is labeled ``torch``, even while the kernel is busy."""
    busy, silent, idle = [await start_kernel(server) for _ in range(3)]
    for kernel in (busy, silent):
        container[pid_of(server, kernel)] = True
    (await connected(server, silent)).close()
    channels = await connected(server, busy)
    word = [(gpu(0).uuid, 18 * GIB, True), (gpu(1).uuid, None, False)]
    await channels.run(f"word = {word!r}\n{ANSWERING}")
    await channels.send("shell", "execute_request", {"code": "import time; time.sleep(600)", "silent": False})
    source.memory[0] = 40 * GIB
    source.processes[0] = (process(3_999_999, 30 * GIB, user=None, program=None),)
    stream = await server.stream()
    first = (await stream.usage())["gpus"][0]
    assert (first["holdings"], first["unattributed"]) == ([], 40 * GIB)
    assert first["reason"].startswith(FOREIGN)
    assert "(%load_ext gpuwidget)" in first["reason"]
    usage = await usage_where(stream, held)
    assert held(usage) == [(busy, None, None, None, None, 18 * GIB, "torch")]
    found = usage["gpus"][0]
    assert (found["unattributed"], found["reason"]) == (22 * GIB, f"{FOREIGN} {BY_TORCH}")
    assert held(usage, 1) == []
    assert {one["id"] for one in usage["kernels"]} == {busy, silent, idle}
    # The kernel ``idle`` is not queried, because it has no CUDA device open.
    assert set(server.hub._ownership._reports._kernels) == {busy, silent}
    channels.close()


@pytest.fixture
def stand_ins(jp_environ: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make kernels use the stand-ins for NVML and torch, with the same GPUs as the server's source."""
    driver = Standin(build(tmp_path / "library"), tmp_path / "driver")
    driver.scenario("gpus=2", *(f"gpu.{place}.uuid={gpu(place).uuid}" for place in (0, 1)))
    standins = str(Path(__file__).parent.parent / "torch_standin")
    paths = os.pathsep.join(filter(None, (standins, os.environ.get("PYTHONPATH"))))
    library = driver.environment()["LD_LIBRARY_PATH"]
    variables = {"GPUWIDGET_SOURCE": "nvml", "PYTHONPATH": paths, "LD_LIBRARY_PATH": library}
    for name, value in (variables | driver.variables).items():
        monkeypatch.setenv(name, value)


async def test_the_report_of_a_real_kernel(
    stand_ins: None, container: dict[int, bool], server: Server, source: FakeSource
) -> None:
    """A kernel that has loaded gpuwidget and uses torch reports how many bytes torch has reserved on each
    GPU."""
    kernel = await start_kernel(server)
    container[pid_of(server, kernel)] = True
    channels = await connected(server, kernel)
    await channels.run("%load_ext gpuwidget\nimport torch, standin_allocator")
    await channels.run(
        "torch.cuda.init()\nstandin_allocator.install(torch)\nx = torch.allocate(3 * 2**30, 'cuda:1')"
    )
    source.memory = {0: GIB, 1: 8 * GIB}
    stream = await server.stream()
    usage = await usage_where(stream, lambda one: held(one, 1))
    assert held(usage, 1) == [(kernel, None, None, None, None, 3 * GIB, "torch")]
    assert [one["unattributed"] for one in usage["gpus"]] == [GIB, 5 * GIB]
    assert held(usage) == []
    channels.close()


async def test_a_kernels_report_proves_matching_pids(
    container: dict[int, bool], server: Server, source: FakeSource
) -> None:
    """If a kernel reports a CUDA context on a GPU and the driver lists the kernel's process id for that GPU,
    the driver's process ids match the server's, and the driver's sizes are used."""
    kernel = await start_kernel(server)
    pid = pid_of(server, kernel)
    channels = await connected(server, kernel)
    await channels.run(f"word = {[(gpu(0).uuid, GIB, True)]!r}\n{ANSWERING}")
    source.memory[0] = 40 * GIB
    source.processes[0] = (process(pid, 30 * GIB, user=None, program=None),)
    stream = await server.stream()
    assert held(await stream.usage()) == []
    container[pid] = False
    server.hub._ownership._reports.query({kernel: pid})
    usage = await usage_where(stream, held)
    assert held(usage) == [(kernel, None, pid, None, None, 30 * GIB, "driver")]
    found = usage["gpus"][0]
    assert found["unattributed"] == 10 * GIB
    assert found["reason"].startswith("Processes outside this container")
    channels.close()


async def test_an_open_device_proves_matching_pids(
    container: dict[int, bool], server: Server, source: FakeSource
) -> None:
    """In a container, the driver's process ids match the server's if the driver lists only ids of the
    container's processes and one of these processes uses CUDA."""
    own = os.getpid()
    container[own] = True
    # No process in the container has the second id. While the driver lists this id, all listed ids may be the
    # host's, so no holder is sent.
    ours = process(own, 2 * GIB, user=None, program=None)
    source.processes[0] = (ours, process(4_194_305, GIB, user=None, program=None))
    stream = await server.stream()
    assert held(await stream.usage()) == []
    source.processes[0] = (ours,)
    usage = await usage_where(stream, held)
    who = processes.ProcessDirectory().look_up(own)
    assert held(usage) == [(None, None, own, who.user, who.program, 2 * GIB, "driver")]


RAW_REPLIES = """
def with_raw(sent, pack=shell.kernel.session.pack, names=globals()):
    return pack(sent).replace(b'"RAW"', names.get("raw", "").encode())
shell.kernel.session.pack = with_raw
"""
"""Code that makes the kernel send its variable ``raw`` in place of the string RAW,
so that a test can send numbers that json.dumps refuses."""


async def test_impossible_numbers_in_a_kernels_reply(
    container: dict[int, bool], server: Server, source: FakeSource
) -> None:
    """If a kernel reports an impossible number of bytes, its memory is unknown,
    and the metrics and the stream continue to work."""
    kernel = await start_kernel(server)
    container[pid_of(server, kernel)] = True
    channels = await connected(server, kernel)
    word = [(gpu(0).uuid, "RAW", True), (gpu(1).uuid, 5 * GIB, True)]
    await channels.run(f"raw = '{GIB}'\nword = {word!r}\n{ANSWERING}{RAW_REPLIES}")
    source.memory = {0: 40 * GIB, 1: 40 * GIB}
    stream = await server.stream()

    async def metrics() -> dict[str, float]:
        scrape = asyncio.ensure_future(server.fetch("gpuwidget", "metrics"))
        await server.until(scrape.done)
        answer = scrape.result()
        assert answer.code == 200
        series = re.findall(
            r'kernel_memory_bytes{UUID="([^"]+)".* (\S+)$', answer.body.decode(), re.MULTILINE
        )
        return {uuid: float(value) for uuid, value in series}

    ordinary = [(kernel, None, None, None, None, GIB, "torch")]
    unknown = [(kernel, None, None, None, None, None, "torch")]
    other = [(kernel, None, None, None, None, 5 * GIB, "torch")]
    for raw in ("1e400", "1" + "0" * 400, "-1", "-1e400", "NaN", "Infinity", "true", '"5"', "[5]", "5.5"):
        await usage_where(stream, lambda one: held(one) == ordinary)
        await channels.run(f"raw = {raw!r}")
        usage = await usage_where(stream, lambda one: held(one) != ordinary)
        assert (raw, held(usage), held(usage, 1)) == (raw, unknown, other)
        found = usage["gpus"][0]
        assert (found["unattributed"], found["reason"]) == (None, f"{FOREIGN} {BY_TORCH} {INVALID}")
        assert await metrics() == {gpu(1).uuid: 5.0 * GIB}
        await channels.run(f"raw = '{GIB}'")
    stream.close()
    channels.close()
    await server.until(lambda: not server.hub._clients)


async def test_the_report_of_a_restarted_kernel_is_discarded(
    container: dict[int, bool], server: Server, source: FakeSource
) -> None:
    """After a kernel restarts, the report of its previous process is discarded."""
    kernel = await start_kernel(server)
    container[pid_of(server, kernel)] = True
    channels = await connected(server, kernel)
    await channels.run(f"word = {[(gpu(0).uuid, GIB, True)]!r}\n{ANSWERING}")
    stream = await server.stream()
    assert held(await usage_where(stream, held)) == [(kernel, None, None, None, None, GIB, "torch")]
    await server.fetch("api", "kernels", kernel, "restart", method="POST", body="")
    usage = await usage_where(stream, lambda one: not held(one))
    assert [one["id"] for one in usage["kernels"]] == [kernel]
    channels.close()


async def test_a_stopped_kernel_delays_nothing(
    container: dict[int, bool], server: Server, source: FakeSource
) -> None:
    """A suspended kernel (SIGSTOP) is queried only once, and ownership messages are not delayed.
    The query is cancelled when the last client disconnects."""
    hung = await start_kernel(server)
    pid = pid_of(server, hung)
    (await connected(server, hung)).close()
    container[pid] = True
    os.kill(pid, signal.SIGSTOP)
    try:
        stream = await server.stream()
        await stream.usage()
        asked = server.hub._ownership._reports._kernels
        await server.until(lambda: hung in asked)
        source.memory[1] = 3 * GIB
        usage = await usage_where(stream, lambda one: one["gpus"][1]["unattributed"] == 3 * GIB)
        assert held(usage) == []
        assert asked[hung].task is not None
        stream.close()
        await server.until(lambda: not asked)
    finally:
        os.kill(pid, signal.SIGCONT)


async def test_a_lost_gpu(server: Server, source: FakeSource) -> None:
    """For a lost GPU, the server sends only the reason.
    The memory ownership of the other GPU stays complete."""
    from gpuwidget.model.errors import GpuLostError

    source.processes[1] = (process(3_999_999, GIB),)
    stream = await server.stream()
    await stream.usage()
    source.failing[0] = GpuLostError("gone")
    usage = await usage_where(stream, lambda one: one["gpus"][0]["reason"])
    found = usage["gpus"][0]
    assert (found["holdings"], found["unattributed"], found["reason"]) == ([], None, "The GPU is lost.")
    assert len(held(usage, 1)) == 1
