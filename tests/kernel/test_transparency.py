"""In a real kernel, a watched cell has the same effects and outputs as an unwatched one."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter

import pytest
from helpers_cases import (
    ASYNCHRONOUS,
    ERRORS,
    FUTURE,
    INPUT_REQUESTS,
    INTERPRETER,
    LINE_MAGICS,
    MAGICS_ABOVE,
    MAGICS_BELOW,
    NESTED_CELLS,
    OUTPUTS,
    RESULTS,
    SETUP,
    SHAPES,
    WIDGETS,
    Case,
)
from helpers_outputs import Message
from helpers_pair import Pair

BRIEF = [*RESULTS, *ASYNCHRONOUS, *LINE_MAGICS, *MAGICS_BELOW, *MAGICS_ABOVE, *SHAPES, *ERRORS, *OUTPUTS]
BRIEF += [*INPUT_REQUESTS, *WIDGETS, *NESTED_CELLS, *INTERPRETER, *FUTURE]
LONG = [*RESULTS[:4], *ASYNCHRONOUS, *LINE_MAGICS[:6], *MAGICS_BELOW, *MAGICS_ABOVE, *ERRORS[:12], *OUTPUTS]
LONG = [case for case in [*LONG, *INPUT_REQUESTS, *WIDGETS, *NESTED_CELLS, *INTERPRETER[:12]] if case.pauses]


@pytest.fixture(scope="module", autouse=True)
def _prepared(pair: Pair) -> None:
    pair.setup(SETUP)


def _shows_chart(case: Case) -> Callable[[Message], bool]:
    return attrgetter("opens_chart" if case.hidden else "shows_chart")


def run_case(pair: Pair, case: Case, options: str, long: bool = False) -> None:
    """Run a case and the cell that follows it, unwatched and watched, and compare what they show."""
    magic = f"%%gpuwatch {options}".rstrip()
    plain, watched = pair.same(
        case.body,
        options=options,
        plain=case.plain,
        watched=case.watched.replace("MAGIC", magic) if case.watched else None,
        cards=case.cards,
        until=_shows_chart(case) if long else None,
        **(case.sending or {}),
    )
    seen = [message.content for message in plain.messages if message.type != "execute_input"]
    assert case.shows in f"{plain.text!r} {seen} {plain.reply}"
    assert watched.late == []
    if long and not case.hidden:
        assert any(message.shows_chart for message in watched.messages)
    if case.then:
        pair.both(case.then)


@pytest.mark.parametrize("case", BRIEF, ids=lambda case: case.name)
def test_same_without_live_chart(pair: Pair, case: Case) -> None:
    """With ``%%gpuwatch --no-live``, a cell's outputs,
    errors and replies are the same as without the magic."""
    run_case(pair, case, "--no-live")


@pytest.mark.parametrize("case", BRIEF, ids=lambda case: case.name)
def test_same_with_live_chart(pair: Pair, case: Case) -> None:
    """With the live chart on, a cell's outputs, errors and replies are the same as without the magic."""
    run_case(pair, case, "")


@pytest.mark.parametrize("case", LONG, ids=lambda case: case.name)
def test_same_while_live_chart_is_shown(pair: Pair, case: Case) -> None:
    """While the live chart is visible, a cell's outputs,
    errors and replies are the same as without the magic."""
    run_case(pair, case, "", long=True)


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
