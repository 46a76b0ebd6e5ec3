"""The doctor: the chain from PyTorch to the GPU, link by link, each found or broken with the one remedy.

``children`` runs what may crash or hang in processes of their own; ``torch_probe`` and ``nvml_probe`` run
there. ``machine`` and ``packages`` look at files. All of it is ``facts``, of which ``links_*`` make the links
of :mod:`gpuwidget.model.diagnosis`: pure functions. ``run_checks`` puts them together, ``isolated_run`` has that
done in a child for who must not be disturbed, ``difference`` compares two, ``text`` shows one.
"""
