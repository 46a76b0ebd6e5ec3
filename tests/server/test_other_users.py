"""With ``GpuWidget.hide_other_users``, the server sends and logs nothing about the processes of other users
except the sum of their memory."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import psutil
import pytest
from fakes import FakeSource
from helpers_nvml import Machine
from helpers_samples import GIB, process
from helpers_server import Server, Stream
from prometheus_client.utils import floatToGoString
from server.test_memory_ownership import connected, held, pid_of, start_kernel, usage_where

from gpuwidget.model.gpu_process import Process
from gpuwidget.server import HIDE_OTHER_USERS_OPTION, ownership_resolver
from gpuwidget.system import processes
from gpuwidget.system.processes import Identity

OTHERS = (
    process(3_999_001, 7 * GIB, user="mallory", program="python hidden.py"),
    process(3_999_002, 5 * GIB, user=None, program=None),
)
"""A process of another user and one of an unknown user."""
ONE_MORE = process(3_999_003, 2 * GIB, user="trudy", program="python third.py")
SECRETS = (
    *("3999001", "3999002", "3999003", "mallory", "trudy", "hidden.py", "third.py", "covert"),
    *(str(size * GIB) for size in (7, 5)),
    *(floatToGoString(size * GIB) for size in (7, 5)),  # type: ignore[no-untyped-call]
)
"""Texts that reveal a hidden process: its id, user or command, or its own share of the memory."""


async def sampled(server: Server) -> dict[str, Any]:
    """Return a sample from the server. The server's clock advances meanwhile."""
    asked = asyncio.ensure_future(server.get("sample"))
    await server.until(asked.done)
    code, sample = asked.result()
    assert code == 200
    return sample  # type: ignore[no-any-return]


async def listed(server: Server) -> list[object]:
    """Return the processes of the first GPU in a sample from the server."""
    return (await sampled(server))["readings"][0]["processes"]  # type: ignore[no-any-return]


@pytest.fixture
def configuration() -> dict[str, object]:
    """Hide other users' processes."""
    return {"hide_other_users": True, "gpu_hours": True, "idle_holder_memory": 1, "metrics_names": True}


@pytest.fixture(autouse=True)
def own_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ``anna`` be the user who runs the server."""
    monkeypatch.setattr(processes, "own_user", lambda: "anna")


@pytest.fixture
def kernels_gpu(source: FakeSource) -> FakeSource:
    """Return the source, whose first GPU has 60 GiB in use."""
    source.memory[0] = 60 * GIB
    return source


async def everything(server: Server, stream: Stream) -> str:
    """Return the text of the stream's next messages and the answers of all routes, errors included."""
    texts = [json.dumps(await usage_where(stream, held))]
    texts += [str(await stream.next_text()) for _ in range(3)]
    for path, query in (
        (("sample",), {}),
        (("history",), {}),
        (("history",), {"metrics": "all"}),
        (("history",), {"metrics": "processes"}),
        (("history",), {"metrics": "all", "node": "unknown"}),
        (("cluster",), {}),
    ):
        texts.append(json.dumps(await server.get(*path, **query)))
    scrape = asyncio.ensure_future(server.fetch("gpuwidget", "metrics"))
    await server.until(scrape.done)
    return "\n".join([*texts, scrape.result().body.decode()])


async def test_no_route_reveals_a_process_of_another_user(
    server: Server, kernels_gpu: FakeSource, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither the stream nor any route, error or log contains the id, user, command or single share of a
    process of another or an unknown user. Processes of the own user are as usual, and all shares add up."""
    caplog.set_level(logging.DEBUG)
    kernel = await start_kernel(server)
    mine = process(3_999_009, 3 * GIB, user="anna", program="python mine.py")
    own = process(pid_of(server, kernel), 20 * GIB, user="anna")
    kernels_gpu.processes[0] = (*OTHERS, own, mine)
    stream = await server.stream()
    text = await everything(server, stream)
    for secret in SECRETS:
        assert secret not in text
        assert not [record for record in caplog.records if secret in record.getMessage()]
    sample = await sampled(server)
    assert [one["pid"] for one in sample["readings"][0]["processes"]] == [own.pid, 3_999_009]
    usage = json.loads(text.partition("\n")[0])
    assert held(usage) == [
        (kernel, None, own.pid, None, None, 20 * GIB, "driver"),
        (None, None, None, None, None, 12 * GIB, "driver"),
        (None, None, 3_999_009, "anna", "python mine.py", 3 * GIB, "driver"),
    ]
    assert [one["other_users"] for one in usage["gpus"][0]["holdings"]] == [False, True, False]
    assert usage["gpus"][0]["unattributed"] == 25 * GIB
    assert usage["gpus"][0]["reason"] is None
    stream.close()
    await server.until(lambda: not server.hub._clients)


async def test_the_number_of_hidden_processes_is_not_sent(server: Server, kernels_gpu: FakeSource) -> None:
    """If the number of other users' processes changes and the sum of their memory does not, the stream sends
    nothing about it."""
    kernels_gpu.processes[0] = OTHERS
    stream = await server.stream()
    before = await usage_where(stream, held)
    before_change = await listed(server)
    kernels_gpu.processes[0] = (replace(OTHERS[0], memory=5 * GIB), OTHERS[1], ONE_MORE)
    count = kernels_gpu.calls["processes"]
    await server.until(lambda: kernels_gpu.calls["processes"] > count + 20)
    assert await listed(server) == before_change == []
    # The next message is about the own user's process, which was added later.
    kernels_gpu.processes[0] = (*OTHERS, process(3_999_009, GIB, user="anna"))
    after = await stream.usage()
    assert held(after)[:1] == held(before)
    assert held(after)[1][2:4] == (3_999_009, "anna")


async def test_the_sum_is_in_the_metrics(server: Server, kernels_gpu: FakeSource) -> None:
    """``gpuwidget/metrics`` has the sum of other users' memory with the label ``holder="other_users"``."""
    kernels_gpu.processes[0] = (*OTHERS, process(3_999_009, 3 * GIB, user="anna"))
    text = ""
    # The first samples may be older than the processes.
    while 'holder="other_users"' not in text:
        scrape = asyncio.ensure_future(server.fetch("gpuwidget", "metrics"))
        await server.until(scrape.done)
        text = scrape.result().body.decode()
    lines = [
        line
        for line in text.splitlines()
        if line.startswith("gpuwidget_gpu_memory_other_bytes{") and 'gpu="0"' in line
    ]
    assert {line.partition('holder="')[2].partition('"')[0]: float(line.split()[-1]) for line in lines} == {
        "process": 3.0 * GIB,
        "other_users": 12.0 * GIB,
        "unattributed": 45.0 * GIB,
    }


async def test_the_own_user_may_be_unknown(
    server: Server, kernels_gpu: FakeSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the server does not know its own user, it hides every process outside its kernels and terminals."""
    monkeypatch.setattr(processes, "own_user", lambda: None)
    kernel = await start_kernel(server)
    pid = pid_of(server, kernel)
    kernels_gpu.processes[0] = (process(pid, 20 * GIB, user="anna"), *OTHERS)
    usage = await usage_where(await server.stream(), held)
    assert held(usage) == [
        (kernel, None, None, None, None, 20 * GIB, "driver"),
        (None, None, None, None, None, 12 * GIB, "driver"),
    ]
    assert await listed(server) == []


class TestRecordings:
    """The server plays a recording."""

    @pytest.fixture
    def source(self) -> FakeSource:
        """Return the source of a recording."""
        return FakeSource(gpus=2, kind="replay")

    async def test_recorded_processes_are_hidden(self, server: Server, source: FakeSource) -> None:
        """The processes of a recording are hidden even if a user of the same name ran them, since they ran on
        an unknown machine."""
        source.processes[0] = (process(11, GIB, user="anna", program="python own.py"),)
        stream = await server.stream()
        await stream.next()
        sample = (await stream.next())["sample"]
        assert sample["origin"]["kind"] == "replay"
        assert sample["readings"][0]["processes"] == []


@pytest.mark.parametrize("configuration", [{"hide_other_users": False}, {}])
async def test_nothing_is_hidden_by_default(server: Server, kernels_gpu: FakeSource) -> None:
    """By default, each process of another user is a holder with its user and command."""
    kernels_gpu.processes[0] = OTHERS
    usage = await usage_where(await server.stream(), held)
    assert held(usage) == [
        (None, None, 3_999_001, "mallory", "python hidden.py", 7 * GIB, "driver"),
        (None, None, 3_999_002, None, None, 5 * GIB, "driver"),
    ]
    assert HIDE_OTHER_USERS_OPTION not in server.app.web_app.settings["page_config_data"]


async def test_the_page_config_hides_processes(server: Server) -> None:
    """The page config tells the panel to hide the processes that kernels list, before any message arrives."""
    assert server.app.web_app.settings["page_config_data"][HIDE_OTHER_USERS_OPTION] == "true"


@pytest.mark.parametrize("configuration", [{"hide_other_users": "maybe"}])
async def test_an_invalid_value_hides_processes(
    server: Server, kernels_gpu: FakeSource, logged: list[str]
) -> None:
    """If the setting's value is invalid, processes are hidden, because an administrator who sets it wants
    that."""
    kernels_gpu.processes[0] = OTHERS
    usage = await usage_where(await server.stream(), held)
    assert held(usage) == [(None, None, None, None, None, 12 * GIB, "driver")]
    assert logged == [
        "GpuWidget.hide_other_users can't be 'maybe': give True or False. True is used, because the default "
        "would show processes.",
    ]


async def test_a_failure_is_logged_without_the_process(
    server: Server,
    kernels_gpu: FakeSource,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If the owners can't be resolved, the log does not contain the exception, which names a process."""
    caplog.set_level(logging.DEBUG, logger="gpuwidget")

    error = psutil.AccessDenied(3_999_001, "hidden.py")

    def fail(*arguments: object) -> None:
        raise error

    monkeypatch.setattr(ownership_resolver, "gpu_ownership", fail)
    kernels_gpu.processes[0] = OTHERS
    stream = await server.stream()
    failed = "the owners of the GPUs' memory could not be resolved"
    await server.until(lambda: failed in caplog.messages)
    stream.close()
    text = "\n".join(logging.Formatter().format(record) for record in caplog.records)
    assert "RuntimeError: AccessDenied" in text
    assert not [secret for secret in SECRETS if secret in text]


async def test_an_unexpected_error_is_shown_without_its_text(
    server: Server,
    kernels_gpu: FakeSource,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If a GPU's values can't be read or a request can't be answered because of an unexpected error, neither
    the log nor an answer contains the error's text, which names a process. The log has the error's type."""
    caplog.set_level(logging.DEBUG)
    server.app.log.addHandler(caplog.handler)
    error = psutil.AccessDenied(3_999_001, "hidden.py")
    kernels_gpu.failing[0] = error
    asked = asyncio.ensure_future(server.get("sample"))
    await server.until(asked.done)
    _, sample = asked.result()
    reason = "gpuwidget failed with an unexpected error (AccessDenied); please report it."
    assert sample["readings"][0]["missing"]["memory_used"] == reason

    async def fail(timeout_s: float) -> None:
        raise error

    monkeypatch.setattr(server.hub, "sample", fail)
    code, answer = await server.get("sample")
    server.app.log.removeHandler(caplog.handler)
    assert code == 500
    text = "\n".join(logging.Formatter().format(record) for record in caplog.records)
    failed = [text.partition(start)[2] for start in ("A GPU could not be read.", "could not answer")]
    assert ["RuntimeError: AccessDenied" in part for part in failed] == [True, True]
    assert not [secret for secret in SECRETS if secret in text + json.dumps([sample, answer])]


@pytest.fixture
def unrelated() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Start two processes that the test makes those of two users."""
    code = "import time; time.sleep(600)"
    started = [subprocess.Popen([sys.executable, "-c", code, name]) for name in ("mine", "covert")]
    yield started
    for one in started:
        one.kill()
        one.wait()


@pytest.fixture
def driver(
    machine: Machine, unrelated: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> Machine:
    """Return a machine whose driver lists both processes. The first is anna's and the second mallory's."""
    mine, other = unrelated
    machine.set_scenario(f"gpu.0.compute={mine.pid}:{3 * GIB} {other.pid}:{7 * GIB}")
    identify = processes._identify

    def fake(pid: int, info: Any) -> Identity:
        user = {mine.pid: "anna", other.pid: "mallory"}.get(pid)
        return identify(pid, info)._replace(user=user)

    monkeypatch.setattr(processes, "_identify", fake)
    return machine


@pytest.mark.parametrize("configuration", [{"hide_other_users": True, "source": "nvml"}])
async def test_processes_that_the_driver_lists(
    driver: Machine, real_server: Server, unrelated: list[subprocess.Popen[bytes]]
) -> None:
    """Of the processes that NVML lists, the own user's are sent with their command, and those of other users
    only as a sum."""
    mine, other = unrelated
    stream = await real_server.stream()
    usage = await usage_where(stream, held)
    ours, theirs = sorted(held(usage), key=lambda one: one[2] is None)
    assert (ours[2], ours[3], ours[5]) == (mine.pid, "anna", 3 * GIB)
    assert ours[4] is not None
    assert theirs == (None, None, None, None, None, 7 * GIB, "driver")
    text = json.dumps(usage) + json.dumps(await real_server.get("sample"))
    answer = await real_server.fetch("gpuwidget", "metrics")
    text += answer.body.decode()
    assert not [secret for secret in ("mallory", "covert", f'"pid": {other.pid}') if secret in text]
    listed = (await real_server.get("sample"))[1]["readings"][0]["processes"]
    assert [one["pid"] for one in listed] == [mine.pid]
    stream.close()
    await real_server.until(lambda: not real_server.hub._clients)


async def test_a_child_of_a_kernel_that_runs_as_another_user(server: Server, kernels_gpu: FakeSource) -> None:
    """The memory of a kernel's child process that runs as another user counts as the kernel's. Its id and
    command are not sent."""
    kernel = await start_kernel(server)
    channels = await connected(server, kernel)
    child = int(await channels.run("import subprocess as s; p = s.Popen(['sleep', '600']); print(p.pid)"))
    as_root: Process = process(child, 20 * GIB, user="root", program="covert")
    kernels_gpu.processes[0] = (as_root,)
    usage = await usage_where(await server.stream(), held)
    try:
        assert held(usage) == [(kernel, None, None, None, None, 20 * GIB, "driver")]
        assert await listed(server) == []
    finally:
        await channels.run("p.kill()")
        channels.close()
