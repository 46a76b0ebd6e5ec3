"""Turns on a GPU: one holder at a time, whatever becomes of it."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpuwidget import gpu_locks
from gpuwidget.errors import OptionError
from gpuwidget.gpu_locks import GpuLock

UUID = "GPU-00000000-aaaa-bbbb-cccc-dddddddddddd"
TAKE = (
    "import os, sys, pathlib; from gpuwidget.gpu_locks import GpuLock\n"
    "lock = GpuLock(pathlib.Path(sys.argv[1]), sys.argv[2])\n"
    "print(lock.take('anna, process 7'), flush=True)\n"
)

Other = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Other]:
    """Starts another process that takes the turn and then does what is said, until its stdin ends."""
    started: list[subprocess.Popen[str]] = []

    def start(then: str = "input()", uuid: str = UUID) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", TAKE + then, str(tmp_path), uuid],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def said(process: subprocess.Popen[str]) -> str:
    """The next line that it prints."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def end(process: subprocess.Popen[str]) -> None:
    """Let it come to its end."""
    assert process.communicate("\n") is not None


def test_one_at_a_time(tmp_path: Path, other: Other) -> None:
    """While one process has the turn no other gets it, and others read who that is."""
    process = other()
    assert said(process) == "True"
    lock = GpuLock(tmp_path, UUID)
    assert lock.take("me") is False
    assert lock.holder() == "anna, process 7"
    end(process)
    assert lock.take("me") is True
    assert lock.holder() == "me"
    assert said(other()) == "False"
    lock.release()
    lock.release()
    assert lock.holder() is None
    assert said(other()) == "True"


def test_each_gpu_has_its_own(tmp_path: Path, other: Other) -> None:
    """The turn on one GPU says nothing of another's; a MIG slice's name is no path."""
    assert said(other()) == "True"
    slice_ = GpuLock(tmp_path, "MIG-GPU-1/../../7/0")
    assert slice_.take("me") is True
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"gpuwidget-{UUID}.lock",
        "gpuwidget-MIG-GPU-1_______7_0.lock",
    ]
    slice_.release()


def test_it_dies_with_its_holder(tmp_path: Path, other: Other) -> None:
    """A kernel that is killed leaves no lock behind."""
    process = other()
    assert said(process) == "True"
    process.send_signal(signal.SIGKILL)
    process.wait()
    lock = GpuLock(tmp_path, UUID)
    assert lock.take("me") is True
    assert lock.holder() == "me"
    lock.release()


def test_children_do_not_keep_it(tmp_path: Path, other: Other) -> None:
    """Data loader workers, forked, and programs started outlive the holder, and not its lock."""
    process = other(
        "import subprocess, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'input()'], stdin=0, close_fds=False)\n"
        "if os.fork() == 0:\n    print('forked', flush=True)\n    sys.stdin.readline()\n    os._exit(0)\n"
        "time.sleep(1000)"
    )
    assert (said(process), said(process)) == ("True", "forked")
    process.kill()
    process.wait()
    lock = GpuLock(tmp_path, UUID)
    assert lock.take("me") is True
    lock.release()


def test_a_forked_child_takes_nothing_away(tmp_path: Path, other: Other) -> None:
    """A worker that ends, even one that gives back what it inherited, leaves its parent's turn alone."""
    process = other(
        "if os.fork() == 0:\n    lock.release()\n    os._exit(0)\n"
        "os.wait()\nprint('ended', flush=True)\ninput()"
    )
    assert (said(process), said(process)) == ("True", "ended")
    assert GpuLock(tmp_path, UUID).take("me") is False
    end(process)


def test_cells_of_one_kernel_share_it(tmp_path: Path, other: Other) -> None:
    """A watched cell within a watched cell does not wait for itself; the last gives it back."""
    outer, inner = GpuLock(tmp_path, UUID), GpuLock(tmp_path, UUID)
    assert outer.take("outer") is True
    assert inner.take("inner") is True
    assert inner.take("inner") is True
    inner.release()
    assert said(other()) == "False"
    outer.release()
    assert said(other()) == "True"
    assert gpu_locks._held == {}


def test_the_group_may_write_it(tmp_path: Path) -> None:
    """Whatever the umask is, the file has the group's rights, and nobody else's."""
    before = os.umask(0o077)
    try:
        lock = GpuLock(tmp_path, UUID)
        assert lock.take("me")
    finally:
        os.umask(before)
    (path,) = tmp_path.iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o660
    lock.release()


def test_no_link_is_followed(tmp_path: Path) -> None:
    """A link that somebody put in the way is refused in a sentence, and what it leads to is untouched."""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / f"gpuwidget-{UUID}.lock").symlink_to(victim)
    lock = GpuLock(tmp_path, UUID)
    with pytest.raises(OptionError, match="--exclusive"):
        lock.take("me")
    assert lock.holder() is None
    assert victim.read_text() == "precious"


def test_no_pipe_holds_it_up(tmp_path: Path) -> None:
    """What is no ordinary file is refused at once."""
    os.mkfifo(tmp_path / f"gpuwidget-{UUID}.lock")
    lock = GpuLock(tmp_path, UUID)
    with pytest.raises(OptionError, match="no ordinary file"):
        lock.take("me")
    assert lock.holder() is None


def test_a_directory_that_can_not_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the directory it says which one, why, and what to do."""
    monkeypatch.setenv(gpu_locks.VARIABLE, str(tmp_path / "gone"))
    with pytest.raises(OptionError, match=r"gone.*No such file.*chmod 3770"):
        GpuLock(tmp_path / "gone", UUID).take("me")


def test_a_file_that_was_taken_away(tmp_path: Path, other: Other) -> None:
    """Where somebody cleans the directory, those who come after still take turns with each other."""
    lock = GpuLock(tmp_path, UUID)
    assert lock.take("me")
    for path in tmp_path.iterdir():
        path.unlink()
    process = other()
    assert said(process) == "True"
    lock.release()
    again = GpuLock(tmp_path, UUID)
    assert again.take("me") is False
    end(process)


def test_what_others_wrote_is_short(tmp_path: Path) -> None:
    """However much somebody writes there, little of it is read, and none of it fails."""
    (tmp_path / f"gpuwidget-{UUID}.lock").write_bytes(b"\xff\xfe<b>" + b"x" * 100_000)
    holder = GpuLock(tmp_path, UUID).holder()
    assert holder is not None
    assert len(holder) <= 400
