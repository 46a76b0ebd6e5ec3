"""One measured run: from a stream of samples and torch's counters to a report.

Start with ``run.py``, the run's life cycle. ``run_gpus.py`` sums up its samples, ``run_report.py`` builds the
report and ``advice/`` has the rules. The English is in ``notes.py``, ``reasons.py`` and
``advice/messages.py``.
"""
