"""Dask workers on the cards of watched cells: ``gpuwidget.dask.watch(client)``.

:mod:`~gpuwidget.dask.clients` keeps the clients that the user has turned on. While a cell is watched,
:mod:`~gpuwidget.dask.collector` in the kernel exchanges messages with :mod:`~gpuwidget.dask.worker_plugin`
in each worker, which measures with :mod:`~gpuwidget.dask.worker_run`.
"""

from gpuwidget.dask.clients import unwatch, watch

__all__ = ["unwatch", "watch"]
