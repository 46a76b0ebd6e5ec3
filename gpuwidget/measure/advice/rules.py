"""Evaluate the advice rules in order of importance, during a run and at its end."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from gpuwidget.measure.advice import messages
from gpuwidget.measure.advice.clocks import throttled
from gpuwidget.measure.advice.code import model_on_cpu, sync_points
from gpuwidget.measure.advice.compute import copies, memory_bound, small_kernels, tensor_cores_idle
from gpuwidget.measure.advice.cudnn import cudnn_benchmark, cudnn_off
from gpuwidget.measure.advice.devices import device_switches, slower_gpu, unused_contexts
from gpuwidget.measure.advice.evidence import RunEvidence
from gpuwidget.measure.advice.memory import fragmentation, growing_memory
from gpuwidget.measure.advice.multi_gpu import idle_gpus, straggler
from gpuwidget.measure.advice.pipeline import input_pipeline
from gpuwidget.model.boundary import Boundary
from gpuwidget.model.report import Advice

Rule = Callable[[RunEvidence], Advice | None]

_LOG = logging.getLogger(__name__)
_MEMORY_RULES: tuple[Rule, ...] = (growing_memory, fragmentation)
"""Rules that apply to runs of any duration, because they use exact counts and sizes."""
_ACTIVITY_RULES: tuple[Rule, ...] = (
    model_on_cpu,
    slower_gpu,
    straggler,
    input_pipeline,
    copies,
    sync_points,
    small_kernels,
    tensor_cores_idle,
    idle_gpus,
    throttled,
    cudnn_off,
    cudnn_benchmark,
    memory_bound,
    device_switches,
    unused_contexts,
)
"""Rules about activity, in order of importance: rules about idle GPUs, then rules about work that is slowed
down."""
_NOT_BESIDE_STRAGGLER: tuple[Rule, ...] = (
    input_pipeline,
    copies,
    small_kernels,
    tensor_cores_idle,
    memory_bound,
)
"""Rules that are skipped if there is a straggler, because they misinterpret GPUs that wait for another
GPU."""
_OF_STEADY_PART: tuple[Rule, ...] = (
    straggler,
    copies,
    small_kernels,
    tensor_cores_idle,
    memory_bound,
)
"""Rules about what the GPUs did. If workers did the run's GPU work, they use the steady part of the run. The
line profile covers the whole run and only the notebook's process, so rules that compare it with the GPUs'
activity use the whole run. The rule about the input pipeline uses it only for GPUs that this process has not
used."""
_WITHOUT_ATTRIBUTION: tuple[Rule, ...] = (model_on_cpu,)
"""Rules that already check whether GPU work can be attributed to this process. Their advice is not
weakened."""


def advise(evidence: RunEvidence) -> tuple[Advice, ...]:
    """Return the advice of all rules: sure advice first, then by importance."""
    found: list[Advice] = []
    has_straggler = False
    steady = evidence.in_steady_part()
    for rule in _ACTIVITY_RULES if evidence.long_enough else ():
        of_workers = rule is input_pipeline and evidence.only_workers
        given = steady if rule in _OF_STEADY_PART or of_workers else evidence
        advice = None if has_straggler and rule in _NOT_BESIDE_STRAGGLER else _evaluate(rule, given)
        if advice is not None and given is not evidence:
            advice = _of_steady_part(advice, evidence)
        has_straggler = has_straggler or (advice is not None and rule is straggler)
        if advice is not None and not evidence.own and rule not in _WITHOUT_ATTRIBUTION:
            advice = _unattributed(advice, evidence)
        found += [advice] if advice is not None else []
    found += [advice for rule in _MEMORY_RULES if (advice := _evaluate(rule, evidence)) is not None]
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
    text = messages.steady_part(advice.text, until - since, evidence.gpu_s)
    figures = {**advice.evidence, "steady_from_s": round(since, 1), "steady_until_s": round(until, 1)}
    return replace(advice, text=text, evidence=figures)


def _unattributed(advice: Advice, evidence: RunEvidence) -> Advice | None:
    """Weaken advice about work that another process may have done.

    Return None, which drops the advice, if this process has neither loaded another GPU library nor has child
    processes that may use a GPU.
    """
    if not evidence.context.other_gpu_work:
        return None
    return replace(advice, sure=False, text=messages.unattributed(advice.text))


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
