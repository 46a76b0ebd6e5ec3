"""Reports of runs during recordings. The poll loops take turns, so that a report is always the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import helpers_replay
from fakes import FakeClock
from helpers_golden import ROOT
from helpers_replay import Player

from gpuwidget.model.report import Report
from gpuwidget.sources.replay import SHIPPED

PHASES = {
    "starved": (14.0, 4.0),
    "ddp bf16": (36.0, 4.0),
    "ddp fp32": (58.0, 4.0),
    "straggler": (78.0, 4.0),
    "four kinds": (96.0, 4.0),
    "two processes": (112.0, 4.0),
    "leak": (124.5, 4.0),
    "short": (129.0, 0.3),
    "idle at the end": (131.6, 3.0),
}
"""When each phase of the packaged recording begins, and how long it is played, in seconds."""
PARTS = {"begin": (4.0, 2.0), "middle": (9.0, 3.0)}
"""The same for the other recordings."""
_ROUNDING_S = 1e-9


class TurnClock(FakeClock):
    """A clock that wakes one thread after the other, in the order of their names."""

    def advance(self, seconds: float) -> None:
        """Advance the time, and let all threads run until each waits for a later time."""
        with self._lock:
            self._now += seconds
        self.until(self._take_turn)

    def _take_turn(self) -> bool:
        with self._lock:
            due = [
                entry
                for entry in self._waiting
                if entry[1] is not None and entry[1] <= self._now + _ROUNDING_S
            ]
        if not due:
            return self.all_wait(self._working_threads())
        first = min(due, key=lambda entry: entry[2].name)
        with first[0]:
            first[0].notify_all()
        self.until(lambda: not self._waits(first))
        return False

    def _waits(self, entry: object) -> bool:
        with self._lock:
            return any(one is entry for one in self._waiting)


def played() -> Iterator[tuple[str, Report]]:
    """Yield the report of each part of all recordings, by name."""
    setattr(helpers_replay, "FakeClock", TurnClock)  # noqa: B010
    player = Player(SHIPPED)
    yield from _reports(player, "h200-x4", [(name, *part) for name, part in PHASES.items()])
    for path in sorted((ROOT / "tests" / "recordings").glob("*.jsonl.gz")):
        yield from _reports(Player(path), path.name.partition(".")[0], [(n, *p) for n, p in PARTS.items()])


def _reports(
    player: Player, name: str, parts: Sequence[tuple[str, float, float]]
) -> Iterator[tuple[str, Report]]:
    try:
        # The threads start at the same time. After a first run, their order no longer matters.
        player.measure(1.0, 1.0)
        for part, start, seconds in parts:
            yield f"{name}/{part}", player.measure(start, seconds)
    finally:
        player.close()
