"""Programs that run out of memory for a known reason, on a stand-in GPU with 64 MiB: the card names it
first, and the first advice, carried out, lets the program succeed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from helpers_kernel import Kernel, skip_without_torch
from helpers_oom_causes import OTHERS, RETENTIONS, STANDIN, STEP_ONLY, Cause, CauseKernel

TESTS = str(Path(__file__).parents[1])


@pytest.fixture(scope="module")
def causes(start_kernel: Callable[..., Kernel]) -> CauseKernel:
    """Return a kernel with the stand-in GPU that runs one program after the other."""
    skip_without_torch()
    return CauseKernel(start_kernel(), STANDIN.replace("{tests!r}", repr(TESTS)))


@pytest.fixture(autouse=True)
def _clean(causes: CauseKernel) -> Iterator[None]:
    yield
    causes.clean()


@pytest.mark.parametrize("cause", [*RETENTIONS, *OTHERS], ids=lambda cause: cause.name)
def test_the_cause_comes_first(causes: CauseKernel, cause: Cause) -> None:
    """The card names the cause first, with its line, and the program succeeds after the first advice."""
    causes.check(cause)


def test_a_watched_cell_agrees(causes: CauseKernel) -> None:
    """Both parts of a watched cell's card name the same holders with the same sizes."""
    causes.check_watched(next(cause for cause in RETENTIONS if cause.name == "losses"))


@pytest.mark.parametrize("name", STEP_ONLY)
def test_the_memory_of_one_step(causes: CauseKernel, name: str) -> None:
    """A card calls nothing a result of each step that is part of one step, or that the user has loaded: a
    detach() or item() there would break the training."""
    text, _ran = causes.card(STEP_ONLY[name])
    assert "would only delay the error" not in text, text
    assert "the comprehension kept" not in text, text
