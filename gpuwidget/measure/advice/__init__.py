"""Advice: rules that apply only where a run's figures are evidence for them, one module per topic.

``rules.py`` evaluates the rules, ``evidence.py`` has their input and ``messages.py`` their English. A rule
uses nothing but its input: no clock, no torch, no IPython. A rule that needs the hardware counters (GPM,
Hopper and later) has a weaker form without them whose text contains 'looks like', or none.
"""

from __future__ import annotations

from gpuwidget.measure.advice.rules import LiveAdvice, advise

__all__ = ["LiveAdvice", "advise"]
