"""Tests of reading how many CPU cores and how much shared memory this process may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpuwidget.system import host_limits


def group(root: Path, cgroup: str, files: dict[str, str]) -> Path:
    """Create /proc/self/cgroup and the files of its control groups below ``root``. Return ``root``."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(cgroup)
    for name, text in files.items():
        path = root / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.fixture(autouse=True)
def _eight_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)


@pytest.mark.parametrize(
    ("cgroup", "files", "cores"),
    [
        ("0::/\n", {}, 8),
        ("0::/\n", {"cpu.max": "max 100000\n"}, 8),
        ("0::/\n", {"cpu.max": "250000 100000\n"}, 2.5),
        ("0::/a/b\n", {"a/cpu.max": "300000 100000\n", "a/b/cpu.max": "max 100000\n"}, 3),
        ("0::/not/here\n", {"cpu.max": "400000 100000\n"}, 4),
        ("0::/\n", {"cpu.max": "1600000 100000\n"}, 8),
        (
            "4:cpu,cpuacct:/x\n",
            {"cpu,cpuacct/x/cpu.cfs_quota_us": "150000\n", "cpu,cpuacct/x/cpu.cfs_period_us": "100000\n"},
            1.5,
        ),
        ("4:cpu,cpuacct:/\n", {"cpu,cpuacct/cpu.cfs_quota_us": "-1\n"}, 8),
        ("4:memory:/\n", {"memory/cpu.max": "100000 100000\n"}, 8),
        ("nonsense", {}, 8),
    ],
)
def test_cores_are_bounded_by_affinity_and_by_the_containers_share(
    tmp_path: Path, cgroup: str, files: dict[str, str], cores: float
) -> None:
    """`usable_cores()` returns the number of cores in the CPU affinity or the control group's quota,
    whichever is lower. Both versions of control groups are read, at all levels of their hierarchy."""
    assert host_limits.usable_cores(group(tmp_path, cgroup, files)) == cores


def test_without_control_groups_the_affinity_counts(tmp_path: Path) -> None:
    """If /proc can't be read, `usable_cores()` returns the number of cores in the CPU affinity."""
    assert host_limits.usable_cores(tmp_path) == 8


def test_shared_memory_has_a_size_where_there_is_any() -> None:
    """`shared_memory()` returns the size and the free space of /dev/shm, or None if /dev/shm does not
    exist."""
    room = host_limits.shared_memory()
    assert (room is not None) == os.path.isdir("/dev/shm")
    if room is not None:
        assert 0 <= room.free <= room.total
