"""Tests of the reports of ranks: the socket, the listener in the kernel, and the reporter in the rank."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from helpers_torch import GIB, FakeTorch
from helpers_wait import until

from gpuwidget.measure.worker_updates import WORKER_UPDATES
from gpuwidget.model import worker_update
from gpuwidget.model.report import Span
from gpuwidget.model.worker_update import MAX_UPDATE_BYTES, WORKER_SCHEMA, WorkerUpdate
from gpuwidget.ranks import rank_listener, rank_reporter, rank_socket
from gpuwidget.ranks.rank_listener import RankListener
from gpuwidget.ranks.rank_reporter import RankReporter, exit_code_of
from gpuwidget.system.processes import Rank

GPU_FIELDS = (
    *("torch_allocated", "torch_reserved", "memory"),
    *("alone", "utilization", "utilization_max", "energy_j", "energy_error_j"),
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use a runtime folder of the test's own, and return its path."""
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def received() -> Iterator[list[WorkerUpdate]]:
    """Return the list to which the received updates are added."""
    found: list[WorkerUpdate] = []
    WORKER_UPDATES.subscribe(found.append)
    yield found
    WORKER_UPDATES.unsubscribe(found.append)


@pytest.fixture
def listener(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RankListener]:
    """Return a listener of this process, which reporters in this process also find."""
    monkeypatch.setattr("gpuwidget.system.processes.ancestors", lambda: iter([os.getpid()]))
    made = RankListener(rank_socket.socket_path(os.getpid()))
    yield made
    made.close()


def values(**changes: Any) -> dict[str, Any]:
    """Return a valid update of this process as JSON values."""
    found: dict[str, Any] = dict.fromkeys(
        (
            *("name", "rank", "local_rank", "world_size", "steps", "step_s", "since_step_s", "cpu_s"),
            *("exit_code", "started_in_run", "reason"),
        )
    )
    found |= {"schema": WORKER_SCHEMA, "kind": "rank", "host": "here", "pid": os.getpid(), "elapsed_s": 1.0}
    return found | {"status": "running", "gpus": []} | changes


def process_group(rank: int, world_size: int) -> SimpleNamespace:
    """Return a stand-in for ``torch.distributed`` with a process group."""
    return SimpleNamespace(
        is_available=lambda: True,
        is_initialized=lambda: True,
        get_rank=lambda: rank,
        get_world_size=lambda: world_size,
    )


def sent(*lines: bytes) -> socket.socket:
    """Connect as a rank does, send lines, and return the connection."""
    connection = rank_socket.connect(1.0)
    assert connection is not None
    for line in lines:
        connection.sendall(line + b"\n")
    return connection


def test_only_the_user_can_connect(listener: RankListener, folder: Path) -> None:
    """The socket lies in Jupyter's runtime folder, is named after the kernel's process id and has mode 0600.
    It is removed when the listener is closed."""
    path = folder / f"gpuwidget-{os.getpid()}.sock"
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    listener.close()
    assert not path.exists()


def test_each_end_of_the_socket_reads_the_user_of_the_other_end() -> None:
    """The system returns the process id and the user id of the process at the other end."""
    ends = socket.socketpair()
    assert [rank_socket.peer_of(end) for end in ends] == [(os.getpid(), os.getuid())] * 2
    for end in ends:
        end.close()


def test_the_kernel_disconnects_other_users(
    listener: RankListener, folder: Path, received: list[WorkerUpdate], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a process of another user could connect, the kernel would close the connection and ignore the
    process's reports."""
    monkeypatch.setattr(rank_socket, "peer_of", lambda connection: (os.getpid(), os.getuid() + 1))
    monkeypatch.chdir(folder)  # The whole path may be too long for a socket.
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(20)
        connection.connect(f"gpuwidget-{os.getpid()}.sock")
        with suppress(ConnectionError):
            connection.sendall(json.dumps(values()).encode() + b"\n")
            assert connection.recv(1) == b""
    WORKER_UPDATES.collect()
    assert received == []


def test_a_rank_reports_only_to_its_own_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank does not report to a socket of another user, and connects to the next ancestor that listens."""
    sockets = [rank_socket.bind(rank_socket.socket_path(pid)) for pid in (101, 102)]
    monkeypatch.setattr("gpuwidget.system.processes.ancestors", lambda: iter([101, 102]))

    def is_own(connection: socket.socket) -> bool:
        return Path(connection.getpeername()).name == "gpuwidget-102.sock"

    def peer_of(connection: socket.socket) -> tuple[int, int]:
        return 1, os.getuid() + (not is_own(connection))

    monkeypatch.setattr(rank_socket, "peer_of", peer_of)
    connection = rank_socket.connect(20)
    assert connection is not None
    assert is_own(connection)
    monkeypatch.setattr(rank_socket, "peer_of", lambda connection: (1, os.getuid() + 1))
    assert rank_socket.connect(20) is None
    for each in (connection, *sockets):
        each.close()


def test_a_long_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, received: list[WorkerUpdate]) -> None:
    """A runtime folder whose path is longer than a socket's address may be works too."""
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / ("long" * 30)))
    monkeypatch.setattr("gpuwidget.system.processes.ancestors", lambda: iter([os.getpid()]))
    made = RankListener(rank_socket.socket_path(os.getpid()))
    sent(json.dumps(values()).encode())
    until(lambda: received)
    made.close()


def test_a_rank_finds_the_nearest_kernel(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank connects to its nearest ancestor that listens. Files of kernels that have ended are skipped, and
    without a kernel there is no connection."""
    assert rank_socket.connect(1.0) is None
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(folder / "dead"))
    dead.close()
    code = "from gpuwidget.ranks import rank_socket; print(rank_socket.connect(1.0) is not None)"
    made = RankListener(rank_socket.socket_path(os.getpid()))
    # The shell is between this process and the rank. A dead kernel has left a socket with the shell's id.
    ran = subprocess.run(
        [
            "sh",
            "-c",
            f"cp -a '{folder}'/dead '{folder}'/gpuwidget-$$.sock; '{sys.executable}' -c '{code}'; true",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout == "True\n"
    made.close()


def test_stale_sockets_are_removed(folder: Path) -> None:
    """The sockets of killed kernels are removed. Those of running processes and other files stay."""
    ended = subprocess.Popen(["true"])
    ended.wait()
    for name in (f"gpuwidget-{ended.pid}.sock", f"gpuwidget-{os.getpid()}.sock", "kernel-1.json"):
        (folder / name).touch()
    rank_socket.remove_stale()
    assert sorted(os.listdir(folder)) == [f"gpuwidget-{os.getpid()}.sock", "kernel-1.json"]


def test_updates_are_read_before_a_report(listener: RankListener, received: list[WorkerUpdate]) -> None:
    """All updates that a rank sent before the run's end are read before the report is made."""
    for count in range(1, 50):
        connection = sent(json.dumps(values(steps=count)).encode())
        until(lambda: len(received) >= count)  # noqa: B023 - called at once
        connection.sendall(json.dumps(values(status="ended")).encode() + b"\n")
        connection.close()
        WORKER_UPDATES.collect()
        assert received[-1].status == "ended"
        received[:] = received[:1] * count


def test_invalid_updates_are_ignored(listener: RankListener, received: list[WorkerUpdate]) -> None:
    """Updates that are malformed, have impossible values or describe another process are ignored. The
    connection stays open for valid ones."""
    bad = [
        b"", b"{", b"[]", b"\xff\xfe", b"null",
        json.dumps(values(pid=1)).encode(),
        json.dumps(values(kind="dask")).encode(),
        json.dumps(values(schema=99)).encode(),
        json.dumps(values(steps=-1)).encode(),
        json.dumps(values(rank=True)).encode(),
        json.dumps(values(step_s=1e300)).encode(),
        json.dumps(values(step_s=10**400)).encode(),
        json.dumps(values(gpus=[dict.fromkeys(GPU_FIELDS) | {"uuid": "u"}] * 2)).encode(),
        b"[" * 9000,
        json.dumps(values(status="lost")).encode(),
        json.dumps(values(gpus=[{"uuid": None}])).encode(),
        json.dumps(values(gpus=[{}] * 65)).encode(),
        json.dumps(values() | {"cpu_s": float("nan")}).encode(),
    ]  # fmt: skip
    sent(*bad, json.dumps(values(rank=7)).encode())
    until(lambda: received)
    assert [update.rank for update in received] == [7]


def test_a_line_without_end(listener: RankListener, received: list[WorkerUpdate]) -> None:
    """A process that sends a line longer than an update may be is disconnected."""
    connection = sent()
    connection.sendall(b"x" * (2 * MAX_UPDATE_BYTES))
    assert connection.recv(1) == b""
    assert received == []


def test_an_update_survives_json() -> None:
    """An update that is converted to JSON and parsed again is unchanged."""
    gpu: dict[str, Any] = dict.fromkeys(("memory", "alone", "utilization", "utilization_max"))
    gpu |= {
        "uuid": "u",
        "energy_j": 12.0,
        "energy_error_j": 1.5,
        "torch_allocated": {"start": 0, "end": 1, "peak": 2},
        "torch_reserved": None,
    }
    update = worker_update.from_values(values(rank=1, step_s=0.5, exit_code=-9, gpus=[gpu]))
    assert update is not None
    assert update.gpus[0].torch_allocated == Span(0, 1, 2)
    assert (update.gpus[0].energy_j, update.gpus[0].energy_error_j) == (12.0, 1.5)
    assert worker_update.parse(update.to_json()) == update


def test_a_rank_reports_peaks_steps_and_its_end(
    listener: RankListener, received: list[WorkerUpdate], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rank reports its rank, its exact torch peaks, its steps and its exit code."""
    torch = FakeTorch()
    torch.distributed = process_group(rank=2, world_size=4)
    monkeypatch.setitem(sys.modules, "torch", torch)
    reporter = RankReporter()
    torch.allocate(3 * GIB)
    torch.allocate(-2 * GIB)
    for _ in range(3):
        reporter.step()
    reporter.end(0)
    until(lambda: received and received[-1].status != "running")
    last = received[-1]
    assert (last.rank, last.local_rank, last.world_size, last.steps) == (2, None, 4, 3)
    assert (last.status, last.exit_code) == ("ended", 0)
    assert [gpu.torch_allocated for gpu in last.gpus] == [Span(0, GIB, 3 * GIB)]
    assert last.step_s is not None


SRUN = {"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NTASKS": "1"}
"""The variables of a notebook that was started by ``srun``."""


@pytest.mark.parametrize(
    ("notebook", "child", "rank"),
    [
        pytest.param(SRUN, {}, (None, None, None), id="inherited-from-srun"),
        pytest.param({"RANK": "0", "WORLD_SIZE": "1"}, {}, (None, None, None), id="inherited-from-torchrun"),
        pytest.param(
            SRUN,
            {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"},
            (0, 0, 1),
            id="torchrun-with-one-process",
        ),
        pytest.param(SRUN, {"SLURM_NTASKS": "2"}, (0, 0, 2), id="srun-with-two-tasks"),
        pytest.param({}, SRUN, (0, 0, 1), id="srun-in-a-plain-notebook"),
    ],
)
def test_an_inherited_rank_is_ignored(
    received: list[WorkerUpdate],
    monkeypatch: pytest.MonkeyPatch,
    notebook: dict[str, str],
    child: dict[str, str],
    rank: tuple[int | None, int | None, int | None],
) -> None:
    """A process that inherits the rank of the notebook's own process reports no rank. The rank that a
    launcher in the notebook sets is kept, even if it has the same values."""
    for name, value in notebook.items():
        monkeypatch.setenv(name, value)
    rank_listener.listen()
    try:
        # The process ends when its input is closed.
        code = "import sys, gpuwidget; gpuwidget.rank(); sys.stdin.read()"
        with subprocess.Popen(
            [sys.executable, "-c", code], env=os.environ | child, stdin=subprocess.PIPE
        ) as process:
            until(lambda: received)
            assert process.stdin is not None
            process.stdin.close()
            until(lambda: received[-1].status == "ended")
    finally:
        rank_listener.stop()
    assert {(one.pid, one.rank, one.local_rank, one.world_size) for one in received} == {(process.pid, *rank)}


@pytest.mark.parametrize(
    ("environment", "local_rank"),
    [
        pytest.param({"RANK": "1", "LOCAL_RANK": "0", "WORLD_SIZE": "2"}, 0, id="torchrun"),
        pytest.param({"RANK": "1", "LOCAL_RANK": "0"}, 0, id="without-a-world-size"),
        pytest.param(SRUN, None, id="inherited-from-srun"),
        pytest.param({}, None, id="no-variables"),
    ],
)
def test_the_local_rank_of_a_process_group(
    listener: RankListener,
    received: list[WorkerUpdate],
    monkeypatch: pytest.MonkeyPatch,
    environment: dict[str, str],
    local_rank: int | None,
) -> None:
    """The rank in torch's process group is reported. The local rank comes from the environment, but only if
    the variables belong to the same job."""
    torch = FakeTorch()
    torch.distributed = process_group(rank=1, world_size=2)
    monkeypatch.setitem(sys.modules, "torch", torch)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    # In this test, the notebook and the rank are one process, which has not inherited its variables.
    monkeypatch.setattr("gpuwidget.system.processes.rank_of", lambda pid: Rank(1, 0, 2))
    RankReporter().end(0)
    until(lambda: received and received[-1].status == "ended")
    assert {(one.rank, one.local_rank, one.world_size) for one in received} == {(1, local_rank, 2)}


def test_without_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    """Outside a notebook, ``gpuwidget.rank()`` does nothing, and a script with it runs as without it."""
    code = (
        "import gpuwidget; rank = gpuwidget.rank(); rank.step(); rank.end(); print(rank is gpuwidget.rank())"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (ran.stdout, ran.stderr) == ("True\n", "")


def test_a_forked_child_reports_itself(listener: RankListener, received: list[WorkerUpdate]) -> None:
    """A forked child of a rank neither reports nor ends its parent's reports."""
    monitor = rank_reporter.rank()
    child = os.fork()
    if child == 0:
        monitor.end(1)
        os._exit(0)
    os.waitpid(child, 0)
    monitor.end(0)
    until(lambda: received and received[-1].status != "running")
    assert received[-1].exit_code == 0
    rank_reporter._reporter = None


def test_exit_codes() -> None:
    """The exit code of a process follows from the exception that ends it, as in Python itself."""
    errors: list[BaseException] = [SystemExit(), SystemExit(None), SystemExit(3), SystemExit("text")]
    errors += [ValueError(), KeyboardInterrupt()]
    assert [exit_code_of(error) for error in errors] == [0, 0, 3, 1, 1, -2]


def test_the_exit_code_of_an_interrupted_process_of_multiprocessing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process of multiprocessing that is interrupted does not end by the signal, but with exit code 1."""
    monkeypatch.setattr("multiprocessing.parent_process", lambda: object())
    assert exit_code_of(KeyboardInterrupt()) == 1
