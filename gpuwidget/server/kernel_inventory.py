"""This server's kernels with their notebooks, and its terminals, as read from Jupyter's managers."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from posixpath import basename
from typing import Any, get_args, get_type_hints

from jupyter_client.provisioning.local_provisioner import LocalProvisioner

from gpuwidget.model.boundary import Boundary
from gpuwidget.model.clock import Clock
from gpuwidget.server.kernel_executions import ExecutionTracker
from gpuwidget.server.wire import ServerKernel

_LOG = logging.getLogger(__name__)

_SESSIONS_INTERVAL_S = 5.0
_SESSIONS_TIMEOUT_S = 10.0
_STATES: tuple[str, ...] = get_args(get_type_hints(ServerKernel)["state"])
_NOTEBOOK = "notebook"


@dataclass(frozen=True, slots=True)
class KernelSession:
    """The Jupyter session of a kernel. The fields have the same meaning as in :class:`ServerKernel`."""

    id: str
    kind: str | None
    path: str | None
    name: str | None


@dataclass(frozen=True, slots=True)
class InventorySnapshot:
    """The server's kernels and terminals at one moment."""

    kernels: tuple[ServerKernel, ...]
    kernel_of: Mapping[int, str]
    """The id of each kernel that runs as a process on this machine, keyed by process id."""
    terminal_of: Mapping[int, str]
    """The name of each terminal, keyed by the process id of the terminal's shell."""
    remote_kernels: int
    """Number of kernels of a kernel gateway or a remote provisioner, which have no process on this
    machine."""


class KernelInventory:
    """Reads Jupyter's managers. All methods are called on the server's event loop, and none of them waits."""

    def __init__(
        self,
        kernel_manager: Any,
        session_manager: Any,
        settings: Mapping[str, Any],
        clock: Clock,
        execution_tracker: ExecutionTracker,
    ) -> None:
        """``settings`` are those of the web application. They are read again for each snapshot, because the
        extension for terminals may add its manager to them later."""
        self._kernel_manager = kernel_manager
        self._execution_tracker = execution_tracker
        self._session_manager = session_manager
        self._settings = settings
        self._clock = clock
        self._sessions: dict[str, KernelSession] = {}
        self._listed = float("-inf")
        self._listed_for: tuple[str, ...] = ()
        self._listing: asyncio.Task[None] | None = None

    def snapshot(self) -> InventorySnapshot:
        """Return the kernels and terminals. The session of a new kernel is missing until the server has
        listed the sessions again."""
        kernels: list[ServerKernel] = []
        kernel_of: dict[int, str] = {}
        remote_kernels = 0
        for kernel_id, manager in self._managers():
            state = self._state(kernel_id, manager)
            kernels.append(_server_kernel(kernel_id, manager, state, self._sessions.get(kernel_id)))
            pid = local_pid(manager)
            if pid is not None:
                kernel_of[pid] = kernel_id
            elif _is_remote(manager):
                remote_kernels += 1
        self._refresh_sessions(tuple(kernel.id for kernel in kernels))
        return InventorySnapshot(tuple(kernels), kernel_of, dict(self._terminals()), remote_kernels)

    def manager(self, kernel_id: str) -> Any | None:
        """Return Jupyter's manager of one kernel, or None if the kernel does not exist."""
        # get_kernel() raises for a kernel that has died, and returns None for a kernel of a gateway.
        with Boundary(_LOG, "a kernel could not be found", foreign=True):
            return self._kernel_manager.get_kernel(kernel_id)
        return None

    def close(self) -> None:
        """Cancel the listing of sessions. The next snapshot starts listing again."""
        if self._listing is not None:
            self._listing.cancel()
            self._listed = float("-inf")

    def _managers(self) -> Iterator[tuple[str, Any]]:
        for kernel_id in self._kernel_manager.list_kernel_ids():
            manager = self.manager(kernel_id)
            if manager is not None:
                yield kernel_id, manager

    def _state(self, kernel_id: str, manager: Any) -> Any:
        state = getattr(manager, "execution_state", None)
        # ``idle`` may be the status after another request, such as one on the control channel, while a cell
        # is still running.
        if state == "idle" and self._execution_tracker.running(kernel_id):
            return "busy"
        return state if state in _STATES else "unknown"

    def _terminals(self) -> Iterator[tuple[int, str]]:
        terminals: Mapping[str, Any] = (
            getattr(self._settings.get("terminal_manager"), "terminals", None) or {}
        )
        for name, terminal in terminals.items():
            shell = getattr(terminal, "ptyproc", None)
            pid = getattr(shell, "pid", None)
            # After a shell has terminated, its process id may belong to another process.
            if isinstance(pid, int) and not getattr(shell, "terminated", False):
                yield pid, name

    # -- listing the sessions --------------------------------------------------------------------------------

    def _refresh_sessions(self, kernels: tuple[str, ...]) -> None:
        """Start listing the sessions if that is due.

        Listing runs in the background, because it is slow and may query another server.
        """
        now = self._clock.monotonic()
        due = now - self._listed >= _SESSIONS_INTERVAL_S or kernels != self._listed_for
        if due and (self._listing is None or self._listing.done()):
            self._listed, self._listed_for = now, kernels
            self._listing = asyncio.ensure_future(self._list_sessions())

    async def _list_sessions(self) -> None:
        try:
            rows = self._session_manager.list_sessions()
            if inspect.isawaitable(rows):
                rows = await asyncio.wait_for(rows, _SESSIONS_TIMEOUT_S)
            self._sessions = _sessions_by_kernel(rows)
        except Exception:
            # The sessions of the last successful listing stay in use.
            _LOG.debug("the server's sessions could not be listed", exc_info=True)


def local_pid(manager: Any) -> int | None:
    """Return the process id of a kernel that is a child of this server. None if it has ended or is remote.

    A remote provisioner may also have a ``pid``, but that is a process id on another machine. As long as the
    return code of a child has not been read, its process id can't be reused, so the result is never the id of
    another process.
    """
    process = local_process(manager)
    pid = getattr(process, "pid", None)
    return pid if isinstance(pid, int) and getattr(process, "returncode", None) is None else None


def local_process(manager: Any) -> Any:
    """Return the process (Popen) of a kernel that is a child of this server, also if it has ended. None if
    there is none."""
    provisioner = getattr(manager, "provisioner", None)
    return provisioner.process if isinstance(provisioner, LocalProvisioner) else None


def last_activity(manager: Any) -> float | None:
    """Return the time of a kernel's last activity in epoch seconds; None if unknown."""
    moment = getattr(manager, "last_activity", None)
    return moment.timestamp() if isinstance(moment, datetime) and moment.tzinfo is not None else None


def _is_remote(manager: Any) -> bool:
    provisioner = getattr(manager, "provisioner", None)
    # A gateway's kernel never has a provisioner. A local kernel has none while it starts.
    if provisioner is None:
        return getattr(manager, "execution_state", None) in ("idle", "busy")
    return not isinstance(provisioner, LocalProvisioner)


def _server_kernel(kernel_id: str, manager: Any, state: Any, session: KernelSession | None) -> ServerKernel:
    return ServerKernel(
        id=kernel_id,
        spec=str(getattr(manager, "kernel_name", "")),
        state=state,
        idle_since=last_activity(manager) if state == "idle" else None,
        session=session.id if session is not None else None,
        kind=session.kind if session is not None else None,
        path=session.path if session is not None else None,
        name=session.name if session is not None else None,
        gpu_hours=None,
        idle_holder=None,
    )


def _sessions_by_kernel(rows: Any) -> dict[str, KernelSession]:
    """Return the session of each kernel.

    If a kernel has several sessions, return the first one of a notebook or, without a notebook, the first
    one.
    """
    found: dict[str, KernelSession] = {}
    for row in rows:
        kernel = (row.get("kernel") or {}).get("id")
        # Clients choose these values, and a session manager may not check them.
        kind, path, name = (_text(row.get(key)) for key in ("type", "path", "name"))
        is_notebook = kind == _NOTEBOOK
        if is_notebook and path:
            # Use the name in the path, because a front end may have renamed the file without renaming the
            # session.
            name = basename(path)
        session = KernelSession(str(row.get("id")), kind, path if is_notebook else None, name)
        if kernel and (kernel not in found or (is_notebook and found[kernel].kind != _NOTEBOOK)):
            found[kernel] = session
    return found


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
