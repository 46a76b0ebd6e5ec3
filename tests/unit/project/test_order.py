"""Tests of the order in which test files start."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helpers_order import LONGEST, TESTS, longest_first


@dataclass(frozen=True)
class Item:
    """A test of a file."""

    path: Path
    name: str = ""


def test_every_long_file_exists() -> None:
    """Each file in the list of the longest test files exists, and is in the list once."""
    assert [name for name in LONGEST if not (TESTS / name).is_file()] == []
    assert len(set(LONGEST)) == len(LONGEST)


def test_the_longest_files_start_first() -> None:
    """The longest files come first, then those with the most tests. The tests of a file keep their order."""
    hub, culling = TESTS / "server/test_jupyterhub.py", TESTS / "server/test_culling_schedules.py"
    few, many = TESTS / "server/test_a.py", TESTS / "server/test_b.py"
    items: list[Any] = [Item(few), Item(many, "1"), Item(many, "2"), Item(hub), Item(culling)]
    assert longest_first(items) == [Item(culling), Item(hub), Item(many, "1"), Item(many, "2"), Item(few)]
