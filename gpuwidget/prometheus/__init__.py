"""Queries to a Prometheus server that scrapes the GPUs of a cluster.

``client.py`` sends queries, ``settings.py`` validates what an administrator configures, and ``exporters.py``
has the series and labels of the exporters that gpuwidget understands. Start reading at
:func:`gpuwidget.prometheus.exporters.metric_expression`.
"""
