"""The doctor: the chain from PyTorch to the GPU, check by check, each found or broken with the one remedy.

``probe_process`` runs what may crash or hang in processes of its own; ``torch_probe`` and ``nvml_probe`` run
there. ``machine`` and ``packages`` read files. All of it is ``probe_results``, from which the pure functions
of ``checks_*`` make the checks of :mod:`gpuwidget.model.diagnosis`. ``run_checks`` puts them together,
``isolated_run`` runs it in a subprocess, ``compare`` compares two diagnoses.
"""
