"""While the live chart is visible, a watched cell has the same effects and outputs as an unwatched one. These
tests are apart from test_transparency.py, so that another process can run them at the same time."""

from __future__ import annotations

import pytest
from helpers_cases import LONG, SETUP, Case
from helpers_pair import Pair, run_case


@pytest.fixture(scope="module", autouse=True)
def _prepared(pair: Pair) -> None:
    pair.setup(SETUP)


@pytest.mark.parametrize("case", LONG, ids=lambda case: case.name)
def test_same_while_live_chart_is_shown(pair: Pair, case: Case) -> None:
    """While the live chart is visible, a cell's outputs,
    errors and replies are the same as without the magic."""
    run_case(pair, case, "", long=True)
