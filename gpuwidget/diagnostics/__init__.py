"""The doctor: checks from PyTorch down to the GPU, each with its worst issue and the fix for it.

Start reading at ``run_checks``. Probes that may crash or hang run in processes (``probe_process``,
``*_probe``), ``machine`` and ``packages`` read files, and ``probe_results`` holds what all of them found.
From it the pure functions of ``checks_*`` build the checks of :mod:`gpuwidget.model.diagnosis`, with fixes
from ``fixes``. ``isolated_run`` runs everything in a subprocess, ``compare`` compares two diagnoses.
"""
