"""Tests of why a process died, with real processes that really die."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import helpers_dying
import pytest
from helpers_dying import FOLDER, ROOT, Dead, run_until_dead

from gpuwidget.journal import evidence
from gpuwidget.journal.records import Cause, Certainty
from gpuwidget.system import cgroups

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")
LIMIT = 100 * 1024 * 1024


@pytest.mark.parametrize(
    ("kind", "cause", "certainty", "id_", "params"),
    [
        pytest.param("SIGTERM", "signal", "certain", "death-terminated", {"signal": "SIGTERM"}, id="SIGTERM"),
        pytest.param("SIGHUP", "signal", "certain", "death-hung-up", {}, id="SIGHUP"),
        pytest.param("CPU limit", "signal", "certain", "death-cpu-limit", {}, id="CPU limit"),
        pytest.param("segfault", "crash", "certain", "death-crashed", {"signal": "SIGSEGV"}, id="segfault"),
        pytest.param("bus error", "crash", "certain", "death-crashed", {"signal": "SIGBUS"}, id="bus error"),
        pytest.param("abort", "crash", "certain", "death-crashed", {"signal": "SIGABRT"}, id="abort"),
        pytest.param(
            "invalid instruction",
            "crash",
            "certain",
            "death-crashed",
            {"signal": "SIGILL"},
            id="invalid instruction",
        ),
        pytest.param("os._exit", "exit", "certain", "death-exited", {"code": 3}, id="os._exit"),
        pytest.param("sys.exit", "exit", "certain", "death-exited", {"code": 4}, id="sys.exit"),
        pytest.param("end", "exit", "likely", "death-exited-normally", {}, id="end"),
    ],
)
def test_a_death_that_a_server_saw(
    kind: str, cause: Cause, certainty: Certainty, id_: str, params: dict[str, Any]
) -> None:
    """If the server saw the exit code of a process that really died, its cause is named."""
    found = run_until_dead(kind).explain()
    assert (found.cause, found.certainty, found.text.id) == (cause, certainty, id_)
    assert {name: found.text.message_id.params[name] for name in params} == params


def test_killed() -> None:
    """A process that was killed while nothing was killed for lack of memory isn't said to have been out of
    memory."""
    found = run_until_dead("SIGKILL").explain()
    assert (found.cause, found.certainty) == ("signal", "certain")
    # Without readable counters, nothing is said about the out-of-memory killer.
    assert found.text.id in ("death-killed-not-for-memory", "death-killed")


@pytest.mark.parametrize("kind", ["SIGKILL", "SIGTERM", "abort", "os._exit"])
def test_a_death_that_no_server_saw(kind: str) -> None:
    """If no server saw the end of a process, no cause is named, and the user learns what was checked."""
    found = run_until_dead(kind).explain(seen=False)
    assert (found.cause, found.certainty, found.text.id) == ("unknown", "unknown", "death-unknown")
    assert [message.id for message in found.checked][::3] == ["checked-exit-unknown", "checked-slurm-none"]
    assert len(found.checked) == 6


def folder_of_own_group() -> Path | None:
    """Return the folder of this process's control group with a memory controller."""
    names = ("memory.max", "memory.limit_in_bytes")
    folders = [Path(folder.path) for folder in cgroups.folders("memory")]
    return next((folder for folder in folders if any((folder / name).exists() for name in names)), None)


@pytest.fixture
def small_group() -> Iterator[Path]:
    """Return the folder of a control group with 100 MiB of memory."""
    parent = folder_of_own_group()
    folder = (parent or Path("/sys/fs/cgroup")) / f"gpuwidget-test-{os.getpid()}"
    try:
        folder.mkdir()
        limit = next(
            folder / name for name in ("memory.max", "memory.limit_in_bytes") if (folder / name).exists()
        )
        limit.write_text(str(LIMIT))
    except (OSError, StopIteration):
        with suppress(OSError):
            folder.rmdir()
        # Not a failure in CI either, because only root may make control groups.
        pytest.skip("this user may not make a control group with a memory limit")
    yield folder
    folder.rmdir()


def dead_of_memory(group: Path) -> Dead:
    dead = run_until_dead("out of memory", {FOLDER: str(group)})
    assert dead.end.exit_code == -9
    assert dead.run.machine.cgroup_limit == LIMIT
    return dead


def test_out_of_memory_in_the_log(small_group: Path) -> None:
    """A process that the out-of-memory killer really killed is explained by the kernel's log, if this user
    may read it: with certainty, and even if no server saw the end."""
    dead = dead_of_memory(small_group)
    if evidence.read_log(dead.run.machine.time, Path("/")) is None:
        pytest.skip("this user may not read the kernel's log")
    for seen in (True, False):
        found = dead.explain(seen=seen)
        assert (found.cause, found.certainty, found.text.id) == (
            *("out_of_memory", "certain", "death-out-of-limited-memory"),
        )
        assert found.text.message_id.params["memory"].endswith(" of 100 MiB")


def test_out_of_memory_by_the_counter(small_group: Path) -> None:
    """Without the kernel's log, the counter of the process's control group makes it likely that the
    out-of-memory killer killed it."""
    dead = dead_of_memory(small_group)
    for seen in (True, False):
        found = dead.explain(seen=seen, readable_log=False)
        assert (found.cause, found.certainty, found.text.id) == (
            *("out_of_memory", "likely", "death-probably-out-of-limited-memory"),
        )


def test_another_process_was_out_of_memory(small_group: Path) -> None:
    """A process that was killed isn't said to have been out of memory if another one in another control group
    was."""
    dead = run_until_dead("SIGKILL")
    dead_of_memory(small_group)
    for readable_log in (True, False):
        found = dead.explain(readable_log=readable_log)
        assert (found.cause, found.certainty, found.text.id) == (
            *("signal", "certain", "death-killed-not-for-memory"),
        )
        assert dead.explain(seen=False, readable_log=readable_log).cause == "unknown"


def test_full_shared_memory() -> None:
    """A process that died because /dev/shm was full, as with many DataLoader workers in a container, is
    explained by that."""
    unshare = shutil.which("unshare")
    script = 'mount -t tmpfs -o size=1m tmpfs /dev/shm && exec "$@"'
    command = [str(unshare), "--mount", "sh", "-c", script, "sh"]
    if unshare is None or subprocess.run([*command, "true"], capture_output=True, check=False).returncode:
        # Not a failure in CI either, because only root may make mount namespaces.
        pytest.skip("this user may not mount a file system in a mount namespace")
    done = subprocess.run(
        [*command, sys.executable, helpers_dying.__file__, "explain", "full shared memory"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == ["crash", "certain", "death-crashed-shm-full"]
