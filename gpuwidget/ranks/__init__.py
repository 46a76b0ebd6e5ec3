"""Processes that report about themselves to the notebook that started them.

:mod:`~gpuwidget.ranks.rank_reporter` runs in each rank of distributed training, and
:mod:`~gpuwidget.ranks.rank_listener` in the notebook's kernel. They meet at a Unix socket
(:mod:`~gpuwidget.ranks.rank_socket`), so that nothing has to be put into the user's environment.
"""
