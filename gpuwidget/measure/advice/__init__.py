"""Advice: a few rules, each of which speaks only where a run's figures are its evidence.

Facts in, advice out, nothing else: no clock, no torch, no shell. A rule that needs the hardware counters
(GPM, Hopper and later) has a weaker form without them that says 'looks like', or none.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from gpuwidget.measure.advice.clocks import throttled
from gpuwidget.measure.advice.code import model_on_cpu, sync_points
from gpuwidget.measure.advice.compute import memory_bound, small_kernels, tensor_cores_idle
from gpuwidget.measure.advice.copies import copies
from gpuwidget.measure.advice.cudnn import cudnn_benchmark, cudnn_off
from gpuwidget.measure.advice.evidence import Facts, Surroundings
from gpuwidget.measure.advice.memory import fragmentation, growing_memory
from gpuwidget.measure.advice.multi_gpu import idle_gpus, straggler
from gpuwidget.measure.advice.pipeline import input_pipeline
from gpuwidget.model.report import Advice

__all__ = ["Facts", "Surroundings", "advise"]

Rule = Callable[[Facts], Advice | None]

_LOG = logging.getLogger(__name__)
_MEMORY_RULES: tuple[Rule, ...] = (growing_memory, fragmentation)
"""Rest on counts and sizes that are exact, however short the run."""
_ACTIVITY_RULES: tuple[Rule, ...] = (
    model_on_cpu,
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
)
"""The weightiest first: what leaves a GPU without work, then what makes its work slower than it need be."""
_READ_WRONGLY_WHILE_WAITING: tuple[Rule, ...] = (
    input_pipeline,
    copies,
    small_kernels,
    tensor_cores_idle,
    memory_bound,
)
"""Where GPUs wait for one another, each alone looks like something that it is not."""
_RIGHT_OF_STRANGERS: tuple[Rule, ...] = (model_on_cpu,)
"""Knows by itself what it can say where nobody knows whose GPU it is."""


def advise(facts: Facts) -> tuple[Advice, ...]:
    """What the rules say, the surest and weightiest first."""
    found: list[Advice] = []
    waiting = False
    for rule in _ACTIVITY_RULES if facts.long_enough else ():
        said = None if waiting and rule in _READ_WRONGLY_WHILE_WAITING else _asked(rule, facts)
        waiting = waiting or (said is not None and rule is straggler)
        if said is not None and not facts.own and rule not in _RIGHT_OF_STRANGERS:
            said = _of_strangers(said, facts)
        found += [said] if said is not None else []
    found += [said for rule in _MEMORY_RULES if (said := _asked(rule, facts)) is not None]
    return tuple(sorted(found, key=lambda one: not one.sure))


def _asked(rule: Rule, facts: Facts) -> Advice | None:
    try:
        return rule(facts)
    except Exception:  # what one rule makes of odd figures is no reason for the others to be silent
        _LOG.debug("A rule failed", exc_info=True)
        return None


def _of_strangers(said: Advice, facts: Facts) -> Advice | None:
    """What can be said where the work may be anybody's: nothing, where this process can have had no part."""
    if not facts.around.other_gpu_work:
        return None
    return replace(said, sure=False, text=f"{said.text} Whose work that is can't be told here.")
