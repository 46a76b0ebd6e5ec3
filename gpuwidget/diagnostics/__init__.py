"""The doctor: checks from PyTorch down to the GPU, each with its issues and the fixes for them.

Start reading at ``run_checks``. Probes, which may crash or hang, run in subprocesses (``probe_process``,
``*_probe``). ``machine`` and ``packages`` read files. ``probe_results`` contains what the probes and these
two modules found. From these results, the pure functions of ``checks_*`` build the checks of
:mod:`gpuwidget.model.diagnosis`: they decide which issues there are. ``problems`` groups the issues by their
cause. ``fixes`` builds commands that change packages, and ``messages_*`` contain the ids and texts of issues
and fixes. ``isolated_run`` runs everything in a subprocess, for kernels and servers, and ``compare`` compares
two diagnoses.
"""
