"""The record of an advice rule, and what the rules' texts share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from gpuwidget.measure.advice.evidence import RunEvidence
from gpuwidget.measure.notes import gpu_number
from gpuwidget.model.report import Advice, GpuReport
from gpuwidget.model.units import power_of

_PAGE = "docs/reference/advice.md"

Part = Literal["run", "steady part", "steady part of workers"]
Unit = Literal[
    "%", "s", "W", "bytes", "bytes/s", "1/s", "ratio", "count", "GPU index", "rank", "setting", "name"
]


@dataclass(frozen=True, slots=True)
class Finding:
    """What a rule has found in a run."""

    text: str
    """What the rule observed, with figures."""
    fix: str
    """What the user should do."""
    evidence: Mapping[str, Any]
    """The figures that the observation is based on, by name. Unknown figures are None."""
    sure: bool = True


@dataclass(frozen=True, slots=True)
class Rule:
    """An advice rule. ``@partial(Rule, id, figures, order=N)`` turns the function ``find`` into a rule."""

    id: str
    """Name of the rule in reports, and its section in docs/reference/advice.md."""
    figures: Mapping[str, Unit]
    """The unit of each figure that the rule's evidence may contain, in the order of the report."""
    find: Callable[[RunEvidence], Finding | None]
    order: int = field(kw_only=True)
    """Place of the rule among all rules, as a number that no other rule has. Lower is more important. The
    numbers have gaps of 10, so that a rule fits between two others.

    - 100 to 199: GPUs wait, or the work is on the wrong device.
    - 200 to 299: the run could be faster, or could use GPUs that do nothing.
    - 300 to 399: memory is occupied for nothing.

    A rule without ``beside_straggler`` needs a higher number than ``straggler``, which is evaluated first.
    """
    any_duration: bool = False
    """Whether the rule also judges short runs, because it uses exact counts and sizes."""
    beside_straggler: bool = True
    """Whether the rule applies if there is a straggler. Otherwise, the rule would misinterpret GPUs that wait
    for another GPU."""
    part: Part = "run"
    """What the GPU figures cover if workers did the run's GPU work. A rule about what the GPUs did uses the
    steady part of the run. The line profile covers the whole run and only the notebook's process, so a rule
    that compares it with the GPUs' activity uses the whole run, unless workers did all GPU work."""
    checks_attribution: bool = False
    """Whether the rule itself checks that the work or memory is this process's. Otherwise, its advice about
    work that another process may have done is weakened."""

    def __call__(self, evidence: RunEvidence) -> Advice | None:
        """Return the rule's advice on a run, with the known figures, rounded."""
        found = self.find(evidence)
        if found is None:
            return None
        assert found.evidence.keys() <= self.figures.keys(), found.evidence.keys() - self.figures.keys()
        known = {
            name: round(value, 1) if isinstance(value, float) else value
            for name in self.figures
            if (value := found.evidence.get(name)) is not None
        }
        return Advice(self.id, found.sure, found.text, found.fix, known, f"{_PAGE}#{self.id}")


# -- parts of the texts ------------------------------------------------------------------------------------


def numbers(gpus: Sequence[GpuReport]) -> list[str]:
    """Return the GPUs' numbers, which a template shows as their names: ``{gpus:gpu_names}``."""
    return [gpu_number(gpu) for gpu in gpus]


def power(gpus: Sequence[GpuReport]) -> str | None:
    """Return the mean power and mean limit of ``gpus`` as ``165 of 700 W``.

    Return None if no GPU reports its power or no GPU reports its limit.
    """
    drawn = [gpu.power_w.mean for gpu in gpus if gpu.power_w is not None]
    limits = [gpu.power_limit_w for gpu in gpus if gpu.power_limit_w is not None]
    if not drawn or not limits:
        return None
    return power_of(sum(drawn) / len(drawn), sum(limits) / len(limits))
