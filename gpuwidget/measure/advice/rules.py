"""Evaluate the advice rules in order of importance, during a run and at its end."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import pairwise

from gpuwidget.measure.advice import clocks, code, compute, cudnn, devices, memory, multi_gpu, pipeline
from gpuwidget.measure.advice.evidence import RunEvidence
from gpuwidget.measure.advice.rule import Rule
from gpuwidget.model.boundary import Boundary
from gpuwidget.model.messages import Sentences
from gpuwidget.model.report import Advice
from gpuwidget.model.translation import joined, translatable

_LOG = logging.getLogger(__name__)
_TOPICS = (clocks, code, compute, cudnn, devices, memory, multi_gpu, pipeline)


def in_order(rules: Iterable[Rule]) -> tuple[Rule, ...]:
    """Return the rules, the most important first. Raise a ValueError if two have the same number."""
    found = sorted(rules, key=lambda rule: rule.order)
    for rule, following in pairwise(found):
        if rule.order == following.order:
            raise ValueError(f"The rules {rule.id} and {following.id} have the same order, {rule.order}.")
    return tuple(found)


RULES = in_order(value for topic in _TOPICS for value in vars(topic).values() if isinstance(value, Rule))
STEADY_PART = Sentences("(Measured over {seconds:.0f} of {run_s:.0f} s, without start-up and shutdown.)")
UNATTRIBUTED = translatable("Couldn't tell which process did that work.")


def advise(evidence: RunEvidence) -> tuple[Advice, ...]:
    """Return the advice of all rules: sure advice first, then by importance."""
    found: list[Advice] = []
    has_straggler = False
    steady = evidence.in_steady_part()
    for rule in RULES:
        if not (evidence.long_enough or rule.any_duration) or (has_straggler and not rule.beside_straggler):
            continue
        of_workers = rule.part == "steady part of workers" and evidence.only_workers
        given = steady if rule.part == "steady part" or of_workers else evidence
        advice = _evaluate(rule, given)
        if advice is not None and given is not evidence:
            advice = _of_steady_part(advice, evidence)
        has_straggler = has_straggler or (advice is not None and rule is multi_gpu.straggler)
        if advice is not None and not evidence.own and not rule.checks_attribution:
            advice = _unattributed(advice, evidence)
        found += [advice] if advice is not None else []
    return tuple(sorted(found, key=lambda advice: not advice.sure))


def _evaluate(rule: Rule, evidence: RunEvidence) -> Advice | None:
    # Unexpected figures must not disable the other rules.
    with Boundary(_LOG, "an advice rule failed"):
        return rule(evidence)
    return None


def _of_steady_part(advice: Advice, evidence: RunEvidence) -> Advice:
    """Add the part of the run that the figures cover."""
    assert evidence.steady is not None
    since, until = evidence.steady.window
    text = joined([advice.text, STEADY_PART(seconds=until - since, run_s=evidence.gpu_s)], " ")
    figures = {**advice.evidence, "steady_from_s": round(since, 1), "steady_until_s": round(until, 1)}
    return replace(advice, text=text, evidence=figures)


def _unattributed(advice: Advice, evidence: RunEvidence) -> Advice | None:
    """Weaken advice about work that another process may have done.

    Return None, which drops the advice, if this process has neither loaded another GPU library nor has child
    processes that may use a GPU.
    """
    if not evidence.context.other_gpu_work:
        return None
    return replace(advice, sure=False, text=joined([advice.text, UNATTRIBUTED], " "))


_LIVE_FROM_S = 30.0
"""Seconds after which advice is shown during a run. Advice about a shorter run is shown only in its card."""
_LIVE_EVERY_S = 5.0


class LiveAdvice:
    """The most important advice for a run in progress, re-evaluated every five seconds."""

    def __init__(self) -> None:
        self._due = _LIVE_FROM_S
        self._shown: Advice | None = None

    def at(self, t: float, evidence: Callable[[], RunEvidence]) -> Advice | None:
        """Return the advice ``t`` seconds into the run. Call ``evidence`` only if an evaluation is due."""
        if t >= self._due:
            self._due = t + _LIVE_EVERY_S
            found = advise(evidence())
            self._shown = found[0] if found else None
        return self._shown
