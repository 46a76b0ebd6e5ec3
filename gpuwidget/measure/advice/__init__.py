"""Advice for the user: rules that give advice only if a run's figures support it, one module per topic.

``rule.py`` has the record of a rule, ``rules.py`` sorts and evaluates the rules, and ``evidence.py`` defines
their input. The other modules have the rules, each with its thresholds and texts. A rule depends only on its
input: it uses no clock, no torch and no IPython. If a GPU lacks the hardware counters that a rule needs (GPM,
Hopper and later), the rule gives either no advice, or advice whose text presents the observation as a
possibility.
"""

from __future__ import annotations

from gpuwidget.measure.advice.rules import LiveAdvice, advise

__all__ = ["LiveAdvice", "advise"]
