"""Tests of finding the ranks that this process has started with torch."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace

import pytest

from gpuwidget.pytorch.distributed import spawned_ranks

SPAWN = """
class ProcessContext:
    def pids(self):
        return PIDS
    def join(self):
        waiting.set()
        ended.wait()
"""
AGENT = """
class LocalElasticAgent:
    def get_worker_group(self):
        return group
    def _invoke_run(self):
        waiting.set()
        ended.wait()
"""


@contextmanager
def waiting_in(module: str, source: str, call: str, **variables: object) -> Iterator[None]:
    """Run ``call`` of a module with this name in another thread until the ``with`` block ends."""
    made = ModuleType(module)
    waiting, ended = threading.Event(), threading.Event()
    vars(made).update(variables, waiting=waiting, ended=ended)
    exec(compile(source, f"<{module}>", "exec"), vars(made))
    thread = threading.Thread(target=eval, args=(call, vars(made)))
    thread.start()
    waiting.wait()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@pytest.fixture(autouse=True)
def torch_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.multiprocessing.spawn", ModuleType("spawn"))


def test_processes_of_mp_spawn() -> None:
    """While a thread waits in ``mp.spawn``, the rank of each process is its index."""
    with waiting_in("torch.multiprocessing.spawn", SPAWN, "ProcessContext().join()", PIDS=[71, 70, 79]):
        assert spawned_ranks() == {71: (0, 0, 3), 70: (1, 1, 3), 79: (2, 2, 3)}
    assert spawned_ranks() == {}


def test_processes_of_a_launcher_in_the_notebook() -> None:
    """While a thread waits in torch's launcher, as accelerate's notebook_launcher does, each process has the
    rank that the launcher has given it. A worker that is not a process is ignored."""
    workers = [SimpleNamespace(id=70 + n, global_rank=4 + n, local_rank=n, world_size=8) for n in range(2)]
    workers.append(SimpleNamespace(id=None, global_rank=6, local_rank=2, world_size=8))
    with waiting_in(
        "torch.distributed.elastic.agent.server.api",
        AGENT,
        "LocalElasticAgent()._invoke_run()",
        group=SimpleNamespace(workers=workers),
    ):
        assert spawned_ranks() == {70: (4, 0, 8), 71: (5, 1, 8)}


def test_a_torch_whose_objects_differ() -> None:
    """If torch's objects are not as expected, no rank is found and nothing is raised."""
    with waiting_in("torch.multiprocessing.spawn", SPAWN, "ProcessContext().join()", PIDS=None):
        assert spawned_ranks() == {}


def test_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without torch, the threads' stacks are not read."""
    monkeypatch.delitem(sys.modules, "torch.multiprocessing.spawn")
    monkeypatch.setattr(sys, "_current_frames", None)
    assert spawned_ranks() == {}
