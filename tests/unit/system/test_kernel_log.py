"""Tests of reading the kernel's log."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuwidget.system import kernel_log
from gpuwidget.system.kernel_log import KernelLogLine

NOW = 1_700_000_000.0


class FakeClock:
    """A clock whose epoch time is fixed. Each call of ``monotonic()`` takes ``step`` seconds."""

    def __init__(self, step: float = 0.0) -> None:
        self.step = step
        self.elapsed = 0.0

    def time(self) -> float:
        """Return the fixed epoch time."""
        return NOW

    def monotonic(self) -> float:
        """Return seconds that increase with each call."""
        self.elapsed += self.step
        return self.elapsed

    def wait(self, condition: threading.Condition, seconds: float | None) -> None:
        """Fail, since nothing waits."""
        raise AssertionError


@pytest.fixture(autouse=True)
def _booted_100_seconds_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_log, "since_boot_without_suspend", lambda: 100.0)


def log(root: Path, text: str) -> Path:
    """Write the log below ``root``. Return ``root``."""
    (root / "dev").mkdir(exist_ok=True)
    (root / "dev/kmsg").write_text(text)
    return root


def test_lines_have_their_time_and_text(tmp_path: Path) -> None:
    """Each line has the text that dmesg shows, and the time in epoch seconds, whatever other fields the
    record has. Properties of a record and damaged lines aren't lines."""
    root = log(
        tmp_path,
        "6,1,0,-;Linux version 6.8\n"
        "4,7,1500000,-,caller=T12;NVRM: Xid (PCI:0000:65:00): 79, GPU has fallen off the bus.\n"
        " SUBSYSTEM=pci\n"
        " DEVICE=+pci:0000:65:00.0\n"
        "damaged\n"
        "3,8,99000000,c;Out of memory: Killed process 1234 (python); total\n",
    )
    assert kernel_log.read(None, root, clock=FakeClock()) == (
        KernelLogLine(NOW - 100, "Linux version 6.8"),
        KernelLogLine(NOW - 98.5, "NVRM: Xid (PCI:0000:65:00): 79, GPU has fallen off the bus."),
        KernelLogLine(NOW - 1, "Out of memory: Killed process 1234 (python); total"),
    )


def test_only_recent_and_matching_lines_are_returned(tmp_path: Path) -> None:
    """Lines before `since` and lines that don't match are left out."""
    root = log(
        tmp_path,
        "6,1,10000000,-;python[1]: segfault at 0\n"
        "6,2,20000000,-;python[2]: segfault at 0\n"
        "6,3,30000000,-;usb 1-1: new device\n",
    )
    found = kernel_log.read(NOW - 80, root, matching=re.compile("segfault"), clock=FakeClock())
    assert found == (KernelLogLine(NOW - 80, "python[2]: segfault at 0"),)


def test_lines_of_programs_are_ignored(tmp_path: Path) -> None:
    """A program that writes to the kernel's log can't make the kernel's errors up."""
    root = log(tmp_path, "12,1,10,-;NVRM: Xid (PCI:0000:65:00): 79, fake\n30,2,20,-;systemd[1]: started\n")
    assert kernel_log.read(None, root, clock=FakeClock()) == ()


def test_an_unfinished_line_is_left_out(tmp_path: Path) -> None:
    """The text of a line is never cut off."""
    root = log(tmp_path, "6,1,0,-;whole\n6,2,0,-;not who")
    assert kernel_log.read(None, root, clock=FakeClock()) == (KernelLogLine(NOW - 100, "whole"),)


def test_long_files_are_read_in_whole_lines(tmp_path: Path) -> None:
    """Lines are complete also where two reads of the file meet."""
    texts = [f"line {number} {'x' * 900}" for number in range(200)]
    root = log(tmp_path, "".join(f"6,1,0,-;{text}\n" for text in texts))
    found = kernel_log.read(None, root, clock=FakeClock())
    assert [line.text for line in found or ()] == texts


def test_the_newest_lines_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the log has too many lines, the oldest are left out."""
    monkeypatch.setattr(kernel_log, "_MAX_LINES", 2)
    root = log(tmp_path, "6,1,0,-;one\n6,2,0,-;two\n6,3,0,-;three\n")
    assert [line.text for line in kernel_log.read(None, root, clock=FakeClock()) or ()] == ["two", "three"]


def test_reading_ends_in_time(tmp_path: Path) -> None:
    """A log that can't be read within a second returns what was read until then."""
    root = log(tmp_path, "".join(f"6,1,0,-;{'x' * 1000}\n" for _ in range(1000)))
    found = kernel_log.read(None, root, clock=FakeClock(step=0.4))
    assert len(found or ()) == 2 * 65536 // 1009


def test_an_unreadable_log_is_unknown(tmp_path: Path) -> None:
    """Without a log, and without permission to read it, the result is None and not an empty log."""
    assert kernel_log.read(None, tmp_path) is None
    (tmp_path / "dev/kmsg").mkdir(parents=True)
    assert kernel_log.read(None, tmp_path) is None


def test_a_pipe_or_another_device_is_not_read(tmp_path: Path) -> None:
    """A /dev/kmsg that is a pipe or, as in some containers, a link to another device isn't read. The call
    doesn't wait for it either."""
    (tmp_path / "dev").mkdir()
    os.mkfifo(tmp_path / "dev/kmsg")
    assert kernel_log.read(None, tmp_path) is None
    (tmp_path / "dev/kmsg").unlink()
    (tmp_path / "dev/kmsg").symlink_to("/dev/zero")
    assert kernel_log.read(None, tmp_path) is None


@pytest.mark.parametrize(
    ("error", "texts"),
    [(BlockingIOError, ["one", "two"]), (PermissionError, None)],
)
def test_errors_of_the_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[OSError], texts: list[str] | None
) -> None:
    """Overwritten records are skipped. The log ends when there is no further record, and is unknown if the
    kernel refuses to return it."""
    results: list[bytes | type[OSError]] = [
        b"6,1,0,-;one\n",
        BrokenPipeError,
        b"6,5,0,-;two\n",
        error,
    ]
    root = log(tmp_path, "")
    monkeypatch.setattr(os, "read", _replies(results))
    found = kernel_log.read(None, root, clock=FakeClock())
    assert (None if found is None else [line.text for line in found]) == texts


def _replies(results: list[bytes | type[OSError]]) -> Callable[[int, int], bytes]:
    def read(file: int, size: int) -> bytes:
        result = results.pop(0)
        if isinstance(result, bytes):
            return result
        raise result

    return read


def test_this_machines_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine's log is either readable, with times in the past, or None."""
    monkeypatch.undo()  # of when the machine was booted
    found = kernel_log.read(None)
    assert all(0 < line.time <= time.time() + 1 for line in found or ())
