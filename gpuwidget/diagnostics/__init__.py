"""The doctor: the chain from PyTorch to the GPU, link by link, each found or broken with the one remedy.

``children`` runs what may crash or hang in processes of their own; ``torch_probe`` and ``nvml_probe`` run
there. ``machine`` and ``packages`` look at files. All of it is ``facts``, of which ``links_*`` make the links
of :mod:`gpuwidget.diagnosis`: pure functions. ``examination`` puts them together, ``visit`` has that done in
a child for who must not be disturbed, ``difference`` compares two, ``text`` shows one.
"""
