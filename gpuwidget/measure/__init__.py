"""Measure one run: turn a stream of samples and torch's counters into a report.

Start reading at ``run.py``, which contains the life cycle of a run. ``run_gpus.py`` computes the totals per
GPU, ``run_report.py`` builds the report, and ``advice/`` contains the advice rules. The other texts for
users are in ``notes.py`` and ``reasons.py``.
"""
