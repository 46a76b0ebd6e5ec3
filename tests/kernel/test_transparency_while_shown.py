"""While the live chart is visible, a watched cell has the same effects and outputs as an unwatched one. These
tests are apart from test_transparency.py, so that another process can run them at the same time."""

from __future__ import annotations

import pytest
from helpers_cases import (
    ASYNCHRONOUS,
    ERRORS,
    INPUT_REQUESTS,
    INTERPRETER,
    LINE_MAGICS,
    MAGICS_ABOVE,
    MAGICS_BELOW,
    NESTED_CELLS,
    OUTPUTS,
    RESULTS,
    SETUP,
    WIDGETS,
    Case,
)
from helpers_pair import Pair, run_case

LONG = [*RESULTS[:4], *ASYNCHRONOUS, *LINE_MAGICS[:6], *MAGICS_BELOW, *MAGICS_ABOVE, *ERRORS[:12], *OUTPUTS]
LONG = [case for case in [*LONG, *INPUT_REQUESTS, *WIDGETS, *NESTED_CELLS, *INTERPRETER[:12]] if case.pauses]


@pytest.fixture(scope="module", autouse=True)
def _prepared(pair: Pair) -> None:
    pair.setup(SETUP)


@pytest.mark.parametrize("case", LONG, ids=lambda case: case.name)
def test_same_while_live_chart_is_shown(pair: Pair, case: Case) -> None:
    """While the live chart is visible, a cell's outputs,
    errors and replies are the same as without the magic."""
    run_case(pair, case, "", long=True)
