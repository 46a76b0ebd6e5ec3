"""Deciding whether the process ids that the driver lists are those of this process's PID namespace.
If the process runs outside the host's PID namespace, the ids don't match until there is proof."""

from __future__ import annotations

import pytest
from helpers_samples import h200, process, reading

from gpuwidget.model.readings import Reading
from gpuwidget.system import processes
from gpuwidget.system.memory_owners import PidMatching

GPU = h200(0)


@pytest.fixture
def matching(monkeypatch: pytest.MonkeyPatch) -> PidMatching:
    """Simulate a container with the processes 5 and 6."""
    monkeypatch.setattr(processes, "in_host_pid_namespace", lambda: False)
    monkeypatch.setattr(processes, "process_exists", lambda pid: pid in (5, 6))
    return PidMatching()


def listed(*pids: int | None) -> list[Reading]:
    """Return the readings of two GPUs.
    The first GPU lists these processes, and the second has no process list."""
    found = [process(pid, 1) for pid in pids if pid is not None]
    other = h200(1)
    return [reading(GPU, processes=tuple(found)), reading(other, processes=None)]


@pytest.mark.parametrize(
    ("pids", "word", "proven"),
    [
        ((), False, False),
        ((5,), False, False),
        ((6,), False, True),
        ((5,), True, True),
        ((5, 6), False, True),
        ((6, 7), False, False),
        ((5, 7), True, False),
        ((0, 6), False, True),
        ((0,), True, False),
    ],
)
def test_ids_match_only_with_proof(
    matching: PidMatching, pids: tuple[int, ...], word: bool, proven: bool
) -> None:
    """Process ids match if every listed process exists and one of them is known to use a GPU.
    Process 6 is. If ``word`` is true, process 5 is a kernel that has reported that it uses the first GPU.
    The driver reports the id 0 for a process that it does not identify."""
    matching.update(listed(*pids), lambda pid, uuid: pid == 6 or (word and (pid, uuid) == (5, GPU.uuid)))
    assert (matching.proven, matching.in_host_namespace) == (proven, False)


def test_a_proven_match_stays_valid(matching: PidMatching) -> None:
    """Once process ids are proven to match, they keep matching,
    even if a process that has just ended is still listed."""
    matching.update(listed(6), lambda pid, uuid: True)
    matching.update(listed(6, 7), lambda pid, uuid: True)
    assert matching.proven


def test_the_host_namespace_needs_no_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the host's PID namespace, process ids match without proof."""
    monkeypatch.setattr(processes, "in_host_pid_namespace", lambda: True)
    made = PidMatching()
    assert (made.proven, made.in_host_namespace) == (True, True)
