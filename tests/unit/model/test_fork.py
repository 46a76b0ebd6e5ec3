"""Tests of the registry of objects whose state is reset in a forked child process."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from typing import Any

import pytest

from gpuwidget.model.fork import reset_after_fork

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="This system has no fork.")


class Counter:
    """Counts how often it is reset."""

    def __init__(self, resets: list[Any]) -> None:
        self.resets = resets
        reset_after_fork(self.reset)
        reset_after_fork(self.reset_more)

    def reset(self) -> None:
        """Record the reset and the process in which it happened."""
        self.resets.append(os.getpid())

    def reset_more(self) -> None:
        """Record the reset of another part of the state."""
        self.reset()


def resets_in_child(resets: list[Any]) -> int:
    """Fork, and return the number of resets in the child process."""
    child = os.fork()
    if not child:
        os._exit(len(resets))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_forking_resets_only_the_childs_state() -> None:
    """In a forked child process, each registered method is called once, also if an object has several. In the
    parent process, none is called.
    """
    resets: list[Any] = []
    counter = Counter(resets)
    assert resets_in_child(resets) == 2
    assert counter.resets == []


def test_the_registry_keeps_no_object_alive() -> None:
    """An object that was garbage-collected is not reset: the registry holds only weak references."""
    resets: list[Any] = []
    Counter(resets)
    gc.collect()
    assert resets_in_child(resets) == 0


def test_the_exit_of_the_interpreter_prints_nothing() -> None:
    """When Python exits while registered methods exist, it prints no ignored exception."""
    code = """
from gpuwidget.model.fork import reset_after_fork
class Owner:
    def __init__(self):
        reset_after_fork(self.reset)
    def reset(self): ...
owner = Owner()
"""
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert (process.returncode, process.stdout, process.stderr) == (0, "", "")
