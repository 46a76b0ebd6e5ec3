"""The dataclasses that sources, sampler, reports and views share. This package imports no other package of
gpuwidget.

Start with ``samples.py`` (the readings of the GPUs) and ``report.py`` (the report of one run).
``user_files.py`` contains the rules that decide which code is the user's.
"""
