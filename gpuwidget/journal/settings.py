"""Whether and which runs a kernel writes to the journal: environment variables, which the server sets too."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

VARIABLE = "GPUWIDGET_JOURNAL"
"""``0`` turns the journal off."""
SECONDS_VARIABLE = "GPUWIDGET_JOURNAL_SECONDS"
PRINTED_VARIABLE = "GPUWIDGET_JOURNAL_PRINTED"
"""``1`` keeps the printed lines of a run's timeline."""
DEFAULT_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class JournalSettings:
    """The settings of the journal."""

    enabled: bool = True
    seconds: float = DEFAULT_SECONDS
    """Runs that take longer are written."""
    printed: bool = False
    """Whether lines that the code printed are kept."""

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> JournalSettings:
        """Return the settings of a process. An invalid number of seconds counts as the default."""
        return cls(
            enabled=environment.get(VARIABLE, "").strip().lower() not in ("0", "off", "false", "no"),
            seconds=_seconds(environment.get(SECONDS_VARIABLE, "")),
            printed=environment.get(PRINTED_VARIABLE, "").strip() == "1",
        )

    def variables(self) -> dict[str, str]:
        """Return the environment variables of a process with these settings, without the defaults."""
        every = {
            VARIABLE: "" if self.enabled else "0",
            SECONDS_VARIABLE: "" if self.seconds == DEFAULT_SECONDS else repr(self.seconds),
            PRINTED_VARIABLE: "1" if self.printed else "",
        }
        return {name: value for name, value in every.items() if value}


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        return DEFAULT_SECONDS
    return value if math.isfinite(value) and value >= 0 else DEFAULT_SECONDS
