"""Turn the measuring of Dask workers on and off: ``gpuwidget.dask.watch(client)``."""

from __future__ import annotations

import logging
import threading
from contextlib import suppress
from typing import Any
from weakref import WeakSet

from gpuwidget.dask.collector import NAME, DaskCollector, begin_in_running
from gpuwidget.model.boundary import Boundary, foreign_attribute
from gpuwidget.model.errors import DaskError

_LOG = logging.getLogger(__name__)

_lock = threading.Lock()
_clients: WeakSet[Any] = WeakSet()
"""The clients whose workers have the plugin."""
_automatic = False
"""Whether each client that becomes active in this process is watched."""


def watch(client: Any = None) -> None:
    """Show the Dask workers of ``client`` on the cards of watched cells.

    Without ``client``, this applies to each client that is active while a cell is watched. Adds a worker
    plugin with the name ``gpuwidget`` to the cluster; a second call changes nothing. In a watched cell, the
    workers measure within seconds of this call. Raises DaskError if the client can't be used.
    """
    global _automatic
    if client is not None:
        # Another notebook may have removed the plugin since an earlier call.
        install(client, again=True)
    else:
        _automatic = True
        _current()
    begin_in_running()


def unwatch(client: Any = None) -> None:
    """Remove the plugin from the workers of ``client``; without ``client``, of all watched clients.

    There is one plugin per cluster, so this also ends the measuring for other notebooks. Safe to call twice.
    Raises DaskError if the plugin can't be removed.
    """
    global _automatic
    if client is None:
        _automatic = False
    by_scheduler = {_scheduler(each): each for each in (list(_clients) if client is None else [client])}
    for each in by_scheduler.values():
        if each.status != "running":
            continue
        try:
            # If the plugin is not there, a local cluster prints a traceback into the notebook.
            if _forget(each) or _has_plugin(each):
                each.unregister_worker_plugin(NAME)
        except Exception as error:
            raise DaskError(f"The plugin could not be removed from the Dask workers: {error!r}.") from None


def _forget(client: Any) -> bool:
    """Remove all clients of the same cluster from the watched ones, and return whether there were any."""
    with _lock:
        same = [one for one in _clients if _scheduler(one) == _scheduler(client)]
        for one in same:
            _clients.discard(one)
    return bool(same)


def _has_plugin(client: Any) -> bool:
    """Return whether a worker of the cluster has the plugin, which another notebook may have added."""
    workers = client.sync(client.scheduler.identity, asynchronous=False)["workers"].values()
    return any(NAME in worker["metrics"] for worker in workers)


def _scheduler(client: Any) -> str | None:
    """Return the address of a client's scheduler; None if the client is closed."""
    return getattr(client.scheduler, "address", None)


def install(client: Any, *, again: bool = False) -> None:
    """Add the plugin to the workers of ``client``, unless they have it.

    With ``again``, the plugin is registered even if this process has added the plugin before. Raises
    DaskError if the plugin can't be added.
    """
    refusal = _refusal(client)
    if refusal is not None:
        raise DaskError(refusal)
    with _lock:
        if client in _clients and not again:
            return
    from gpuwidget.dask.worker_plugin import GpuWidgetPlugin

    try:
        client.register_plugin(GpuWidgetPlugin())
    except Exception as error:
        raise DaskError(f"The plugin could not be added to the Dask workers: {error!r}.") from None
    with _lock:
        _clients.add(client)


def collector() -> DaskCollector:
    """Return a collector for a new run. It does nothing until a Dask client is watched."""
    return DaskCollector(_current, _watched)


def _watched() -> bool:
    """Return whether there may be clients to measure."""
    with _lock:
        return _automatic or any(client.status == "running" for client in _clients)


def _current() -> list[Any]:
    """Return the clients to measure now.

    In the automatic mode, add the plugin to the workers of the active client.
    """
    active = _active_client() if _automatic else None
    with _lock:
        others = [client for client in _clients if client.status == "running" and client is not active]
    if active is None or active.status != "running":
        return others
    if _refusal(active) is None or not others:
        install(active)
        return [active, *others]
    return others


def _active_client() -> Any | None:
    """Return Dask's current client, or None. Never imports Dask."""
    default_client = foreign_attribute("distributed", "default_client")
    if default_client is None:
        return None
    with suppress(ValueError), Boundary(_LOG, "Dask's client could not be found", passing=(ValueError,)):
        return default_client()
    return None


def _refusal(client: Any) -> str | None:
    """Return why a client's workers can't be measured, or None if they can."""
    if not callable(getattr(client, "register_plugin", None)):
        return f"gpuwidget.dask.watch() needs a distributed.Client, not {type(client).__name__}."
    # The first is False on other threads than the client's own.
    if client.asynchronous or getattr(client, "_asynchronous", False):
        return (
            "The Dask client is asynchronous, so a cell can't wait for the workers' reports. "
            "Create a client without asynchronous=True."
        )
    if client.status != "running":
        return f"The Dask client is not connected to a scheduler (its status is {client.status})."
    return None


def stop() -> None:
    """Stop watching all clients. Used when the IPython extension is unloaded. Never raises."""
    with Boundary(_LOG, "the Dask workers are still watched", foreign=True):
        unwatch()
