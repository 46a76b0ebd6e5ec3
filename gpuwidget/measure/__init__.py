"""Measure one run: turn a stream of samples and torch's counters into a report.

Start with ``run.py``, which has the life cycle of a run. ``run_gpus.py`` adds up the samples of the run,
``run_report.py`` builds the report, and ``advice/`` has the rules for advice. The texts for users are in
``notes.py``, ``reasons.py`` and ``advice/messages.py``.
"""
