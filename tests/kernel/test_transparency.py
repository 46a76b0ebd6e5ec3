"""In a real kernel, a watched cell has the same effects and outputs as an unwatched one."""

from __future__ import annotations

import pytest
from helpers_cases import BRIEF, SETUP, Case
from helpers_pair import Pair, run_case


@pytest.fixture(scope="module", autouse=True)
def _prepared(pair: Pair) -> None:
    pair.setup(SETUP)


@pytest.mark.parametrize("case", BRIEF, ids=lambda case: case.name)
def test_same_without_live_chart(pair: Pair, case: Case) -> None:
    """With ``%%gpuwatch --no-live``, a cell's outputs,
    errors and replies are the same as without the magic."""
    run_case(pair, case, "--no-live")


@pytest.mark.parametrize("case", BRIEF, ids=lambda case: case.name)
def test_same_with_live_chart(pair: Pair, case: Case) -> None:
    """With the live chart on, a cell's outputs, errors and replies are the same as without the magic."""
    run_case(pair, case, "")


def test_names_and_counters_after_many_cells(pair: Pair) -> None:
    """After many watched cells, the user's namespace,
    the history and the counters are the same as after unwatched cells."""
    pair.both("sorted(name for name in globals()), len(In), sorted(Out), len(_ih), len(_dh)")
    pair.both("sorted(get_ipython().user_ns_hidden), get_ipython().execution_count")


def test_debugger(pair: Pair) -> None:
    """In a watched cell, %debug and breakpoints show the same frames as in an unwatched one."""
    pair.same("def deep(n):\n    return 1 / n\ndeep(0)")
    pair.both("%debug", answers=["where", "p n", "up", "list", "quit"])
    body = "import pdb\nlocal = 3\npdb.set_trace()\nprint('went on')"
    plain, _ = pair.same(body, answers=["where", "p local", "continue"])
    assert "went on" in plain.text


def test_reset(pair: Pair) -> None:
    """If a watched cell runs %reset, the namespace is emptied, the cell continues, and its card is shown."""
    pair.same("%reset -f\nprint(sorted(name for name in globals() if name[0] != '_'))")
    pair.same("kept = 1\nkept")
