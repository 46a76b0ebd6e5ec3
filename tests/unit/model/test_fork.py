"""The state that a forked child resets."""

from __future__ import annotations

import gc
import os
from typing import Any

import pytest

from gpuwidget.model.fork import reset_after_fork

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="This system has no fork.")


class Counter:
    """Counts its resets."""

    def __init__(self, resets: list[Any]) -> None:
        self.resets = resets
        reset_after_fork(self.reset)

    def reset(self) -> None:
        """Record a reset by this process."""
        self.resets.append(os.getpid())


def resets_in_child(resets: list[Any]) -> int:
    """Return the number of resets in a forked child."""
    child = os.fork()
    if not child:
        os._exit(len(resets))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_forked_child_resets_its_state_and_the_parent_keeps_its_own() -> None:
    """A forked child resets each registered object once; the parent's objects stay as they are."""
    resets: list[Any] = []
    counter = Counter(resets)
    assert resets_in_child(resets) == 1
    assert counter.resets == []


def test_the_registry_keeps_no_object_alive() -> None:
    """An object that was garbage-collected is not reset, because the registry holds only a weak reference."""
    resets: list[Any] = []
    Counter(resets)
    gc.collect()
    assert resets_in_child(resets) == 0
