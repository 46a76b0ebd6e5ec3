"""Advice for the user: rules that give advice only if a run's figures support it, one module per topic.

``rules.py`` evaluates the rules, ``evidence.py`` defines their input, and ``messages.py`` has their texts.
A rule depends only on its input: it uses no clock, no torch and no IPython. A rule that needs the hardware
counters (GPM, Hopper and later) either falls back to weaker advice, whose text contains 'looks like', or
gives none when the GPU has no such counters.
"""

from __future__ import annotations

from gpuwidget.measure.advice.rules import LiveAdvice, advise

__all__ = ["LiveAdvice", "advise"]
