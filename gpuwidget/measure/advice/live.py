"""The clearest advice of a run that still goes on: one line, which stays a while."""

from __future__ import annotations

from collections.abc import Callable

from gpuwidget.measure.advice import advise
from gpuwidget.measure.advice.evidence import Facts
from gpuwidget.model.report import Advice

FIRST_AFTER_S = 30.0
"""A cell that ends before that has its card soon enough."""
EVERY_S = 5.0
"""Between two looks at the rules."""


class LiveAdvice:
    """Looks at the rules now and then; a line that is shown changes with a look at most."""

    def __init__(self) -> None:
        self._due = FIRST_AFTER_S
        self._shown: Advice | None = None

    def at(self, t: float, facts: Callable[[], Facts]) -> Advice | None:
        """What to say ``t`` seconds into the run; asks for the facts only when a look is due."""
        if t >= self._due:
            self._due = t + EVERY_S
            found = advise(facts())
            self._shown = found[0] if found else None
        return self._shown
