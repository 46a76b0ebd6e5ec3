"""Turn the measuring of Dask workers on and off: ``gpuwidget.dask.watch(client)``."""

from __future__ import annotations

import sys
import threading
from contextlib import suppress
from typing import Any
from weakref import WeakSet

from gpuwidget.dask.collector import DaskCollector
from gpuwidget.model.errors import DaskError

_lock = threading.Lock()
_clients: WeakSet[Any] = WeakSet()
"""The clients whose workers have the plugin."""
_automatic = False
"""Whether each client that becomes active in this process is watched."""


def watch(client: Any = None) -> None:
    """Show the Dask workers of ``client`` on the cards of watched cells.

    Without ``client``, this applies to each client that is active while a cell is watched. Adds a worker
    plugin with the name ``gpuwidget`` to the cluster; a second call changes nothing. Raise DaskError if the
    client can't be used.
    """
    global _automatic
    if client is not None:
        install(client)
        return
    _automatic = True
    _current()


def unwatch(client: Any = None) -> None:
    """Remove the plugin from the workers of ``client``; without ``client``, of all watched clients.

    There is one plugin per cluster, so this also ends the measuring for other notebooks. Safe to call twice.
    """
    global _automatic
    if client is None:
        _automatic = False
    for each in list(_clients) if client is None else [client]:
        with _lock:
            _clients.discard(each)
        if each.status != "running":
            continue
        from gpuwidget.dask.worker_plugin import NAME

        try:
            each.unregister_worker_plugin(NAME)
        except ValueError:
            pass  # The cluster does not have the plugin.
        except Exception as error:
            raise DaskError(f"The plugin could not be removed from the Dask workers: {error!r}.") from None


def install(client: Any) -> None:
    """Add the plugin to the workers of ``client``, unless they have it.

    Raise DaskError if that is impossible.
    """
    refusal = _refusal(client)
    if refusal is not None:
        raise DaskError(refusal)
    with _lock:
        if client in _clients:
            return
    from gpuwidget.dask.worker_plugin import GpuWidgetPlugin

    try:
        client.register_plugin(GpuWidgetPlugin())
    except Exception as error:
        raise DaskError(f"The plugin could not be added to the Dask workers: {error!r}.") from None
    with _lock:
        _clients.add(client)


def collector() -> DaskCollector | None:
    """Return a collector for a new run, or None if no Dask client is watched."""
    return DaskCollector(_current) if _automatic or _clients else None


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
    distributed = sys.modules.get("distributed")
    default_client = getattr(distributed, "default_client", None)
    if default_client is None:
        return None
    try:
        return default_client()
    except ValueError:
        return None


def _refusal(client: Any) -> str | None:
    """Return why a client's workers can't be measured, or None if they can."""
    if not callable(getattr(client, "register_plugin", None)):
        return f"gpuwidget.dask.watch() needs a distributed.Client, and {type(client).__name__} is none."
    # The first is False on other threads than the client's own.
    if client.asynchronous or getattr(client, "_asynchronous", False):
        return (
            "The Dask client is asynchronous, so a cell could not wait for its workers' reports. "
            "Make one without asynchronous=True."
        )
    if client.status != "running":
        return f"The Dask client is not connected to a scheduler (its status is {client.status})."
    return None


def stop() -> None:
    """Stop watching all clients. Used when the IPython extension is unloaded. Never raises."""
    with suppress(Exception):
        unwatch()
