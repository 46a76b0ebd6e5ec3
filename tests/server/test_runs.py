"""The pages get the journal's runs, and the server knows why its kernels ended."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from helpers_journal import STARTED, journaled, run_report
from helpers_kernel_channels import Channels
from helpers_server import Server

from gpuwidget.journal.folder import journal_folder, new_id
from gpuwidget.journal.store import JournalStore
from gpuwidget.model.mime_types import MIME_TYPE

PATIENCE_S = 60.0
WATCHED = "%%gpuwatch\nimport os, signal, time\n"


@pytest.fixture(autouse=True)
def short_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write every run that takes a fifth of a second to the journal, with a recording's GPUs."""
    monkeypatch.setenv("GPUWIDGET_SOURCE", "replay")
    monkeypatch.setenv("GPUWIDGET_JOURNAL_SECONDS", "0.2")
    monkeypatch.setenv("GPUWIDGET_LIVE", "0")


@pytest.fixture
def store(server: Server) -> JournalStore:
    """Return the journal that the server reads."""
    assert journal_folder() == Path(server.app.data_dir) / "gpuwidget" / "runs"
    return JournalStore()


async def until(found: Callable[[], Awaitable[Any]]) -> Any:
    """Return the first true result of ``found``."""
    for _ in range(int(PATIENCE_S / 0.1)):
        result = await found()
        if result:
            return result
        await asyncio.sleep(0.1)
    raise AssertionError("nothing came")


async def test_an_empty_journal(server: Server) -> None:
    """Before the first long run, the list is empty."""
    assert await server.get("runs") == (200, {"problem": None, "runs": []})


async def test_a_journal_that_cant_be_read(server: Server, store: JournalStore) -> None:
    """If the journal's folder can't be read, the page says why there are no runs."""
    store.folder.parent.mkdir(parents=True)
    store.folder.write_text("")
    problem = f"Runs are missing, because {store.folder} can't be read."
    assert await server.get("runs") == (200, {"problem": problem, "runs": []})


async def test_the_newest_runs(server: Server, store: JournalStore) -> None:
    """The list has the newest runs with their figures, and the notebook's path below the server's root."""
    notebook = os.path.join(server.app.root_dir, "deep", "train.ipynb")
    first, second = new_id(STARTED), new_id(STARTED + 1)
    store.write(first, journaled(run_report(started=STARTED), notebook="/elsewhere/other.ipynb"), "ended")
    store.write(second, journaled(run_report(started=STARTED + 1), notebook=notebook), "ended")

    status, answer = await server.get("runs")

    assert (status, answer["problem"]) == (200, None)
    newest, older = answer["runs"]
    peak = run_report().totals.memory
    assert newest == {
        "id": second,
        "state": "ended",
        "status": "ok",
        "path": "deep/train.ipynb",
        "name": "train.ipynb",
        "kernel": "k1",
        "cell": "c1",
        "code": "0a1b2c3d",
        "execution_count": 3,
        "label": None,
        "started": STARTED + 1,
        "seconds": 100.0,
        "peak": None if peak is None else peak.peak,
        "peak_kind": run_report().totals.memory_kind,
        "death": None,
    }
    assert (older["id"], older["path"], older["name"]) == (first, None, "other.ipynb")


async def test_a_run_with_its_card(server: Server, store: JournalStore) -> None:
    """A run's response has its card and its time series."""
    run_id = new_id(STARTED)
    store.write(run_id, journaled(), "ended")

    status, answer = await server.get("runs", run_id)

    timeline = run_report().timeline
    assert timeline is not None
    assert (status, answer["run"]["id"]) == (200, run_id)
    assert set(answer["data"]) == {"text/plain", "text/html", MIME_TYPE}
    assert answer["t"] == list(timeline.t)
    assert [gpu["uuid"] for gpu in answer["gpus"]] == [gpu.uuid for gpu in timeline.gpus]


async def test_a_running_run_has_no_card(server: Server, store: JournalStore) -> None:
    """A run of another machine that writes samples is running, and its response has no card."""
    assert server.clock is not None
    run_id = new_id(STARTED)
    store.write(run_id, journaled(run_report("died")))

    (run,) = await list_runs(server)
    _, answer = await server.get("runs", run_id)

    assert (run["state"], run["status"], answer["data"]) == ("running", None, None)


@pytest.mark.parametrize("run_id", ["1764486000000-00000001", "abc"])
async def test_an_unknown_run(server: Server, run_id: str) -> None:
    """There is no card of a run that the journal does not have."""
    assert (await server.get("runs", run_id))[0] == 404


async def shut_down(server: Server, kernel: str) -> None:
    """Shut a kernel down, as *Shut Down* does."""
    await server.fetch("api", "kernels", kernel, method="DELETE")


async def start_kernel(server: Server) -> tuple[str, Channels]:
    """Start a kernel that has loaded gpuwidget. Return its id and its connection."""
    answer = await server.fetch("api", "kernels", method="POST", body=json.dumps({"name": "python3"}))
    kernel = json.loads(answer.body)["id"]
    channels = Channels(server, kernel)
    await channels.open()
    await channels.run("%load_ext gpuwidget")
    return kernel, channels


async def list_runs(server: Server) -> Any:
    """Return the runs that the server lists."""
    return (await server.get("runs"))[1]["runs"]


async def restart(server: Server, kernel: str) -> None:
    """Restart a kernel, as *Restart* does."""
    await server.fetch("api", "kernels", kernel, "restart", method="POST", body="")


async def cull(server: Server, kernel: str) -> None:
    """Cull a kernel that counts as idle."""
    manager = server.app.kernel_manager
    manager.cull_busy = manager.cull_connected = True
    manager.cull_idle_timeout = 1
    await asyncio.sleep(1.1)
    await manager.cull_kernel_if_idle(kernel)


async def stop_server(server: Server, kernel: str) -> None:
    """Shut all kernels down, as a server does that stops."""
    await server.app.kernel_manager.shutdown_all()


async def stop_older_server(server: Server, kernel: str) -> None:
    """Shut all kernels down as jupyter_client 7 does: it calls shutdown_kernel for each of them."""
    manager = server.app.kernel_manager
    manager._async_shutdown_kernel = manager.shutdown_kernel
    await manager.shutdown_all()


async def nothing(server: Server, kernel: str) -> None:
    """The cell's own code ends the process."""


@pytest.mark.parametrize(
    ("code", "end", "cause", "certainty"),
    [
        pytest.param("time.sleep(600)", shut_down, "shut_down", "certain", id="shut down"),
        pytest.param("time.sleep(600)", restart, "restarted", "certain", id="restart"),
        pytest.param("time.sleep(600)", cull, "culled", "certain", id="culled"),
        pytest.param("time.sleep(600)", stop_server, "server_stopped", "certain", id="server stopped"),
        pytest.param(
            "time.sleep(600)", stop_older_server, "server_stopped", "certain", id="older server stopped"
        ),
        pytest.param("time.sleep(1); os._exit(3)", nothing, "exit", "certain", id="os._exit"),
        pytest.param(
            "time.sleep(1); os.kill(os.getpid(), signal.SIGKILL)", nothing, "signal", "certain", id="SIGKILL"
        ),
        pytest.param(
            "time.sleep(1); os.kill(os.getpid(), signal.SIGSEGV)", nothing, "crash", "certain", id="SIGSEGV"
        ),
        pytest.param(
            "time.sleep(1); os.kill(os.getpid(), signal.SIGTERM)", nothing, "signal", "certain", id="SIGTERM"
        ),
        pytest.param("time.sleep(1); os.abort()", nothing, "crash", "certain", id="abort"),
    ],
)
async def test_the_server_knows_why_a_kernel_died(
    real_server: Server,
    code: str,
    end: Callable[[Server, str], Awaitable[None]],
    cause: str,
    certainty: str,
) -> None:
    """A run whose kernel died is listed with the reason, up to its last sample, and has a card.

    If Jupyter was asked to end the kernel, it interrupts the cell first, so the run ends and has a reason.
    """
    server = real_server
    kernel, channels = await start_kernel(server)
    await channels.send("shell", "execute_request", {"code": WATCHED + code, "silent": False})

    async def run(wanted: Callable[[Any], bool]) -> Any:
        return next(filter(wanted, await list_runs(server)), None)

    if end is not nothing:
        await until(lambda: run(lambda run: run["state"] == "running"))
        await end(server, kernel)
    died = await until(lambda: run(lambda run: run["death"] is not None))

    assert (died["death"]["cause"], died["death"]["certainty"]) == (cause, certainty)
    state, status = ("died", "died") if end is nothing else ("ended", "interrupted")
    assert (died["state"], died["status"], died["execution_count"]) == (state, status, 2)
    _, card = await server.get("runs", died["id"])
    assert died["death"]["text"].partition(". ")[0].rstrip(".") in card["data"]["text/plain"]
    assert died["kernel"] == kernel


async def test_a_run_that_ends_is_in_the_list(real_server: Server) -> None:
    """A run that has ended is listed once, also after its kernel was shut down."""
    server = real_server
    kernel, channels = await start_kernel(server)
    await channels.run(WATCHED + "time.sleep(0.6)")
    await shut_down(server, kernel)

    runs = await list_runs(server)

    assert [(run["state"], run["status"], run["kernel"]) for run in runs] == [("ended", "ok", kernel)]


async def test_a_request_after_the_death_is_not_its_reason(real_server: Server) -> None:
    """If the user restarts a kernel that has just died, the run says why it died, and not that."""
    server = real_server
    kernel, channels = await start_kernel(server)
    process = server.app.kernel_manager.get_kernel(kernel).provisioner.process
    await channels.send("shell", "execute_request", {"code": WATCHED + "time.sleep(600)", "silent": False})

    await until(lambda: list_runs(server))
    process.kill()
    process.wait()
    await restart(server, kernel)
    (run,) = await until(lambda: list_runs(server))
    assert (run["state"], run["death"]["cause"]) == ("died", "signal")


async def test_a_silent_run_has_its_card(server: Server, store: JournalStore) -> None:
    """A run of another machine that writes no samples is listed as died, and has a card."""
    assert server.clock is not None
    run_id = new_id(STARTED)
    store.write(run_id, journaled())
    server.clock.advance(STARTED - server.clock.time() + 400)

    (run,) = await list_runs(server)
    _, answer = await server.get("runs", run_id)

    assert (run["state"], run["death"]["cause"]) == ("died", "unknown")
    assert answer["data"][MIME_TYPE]["cell"]["status"] == "died"
