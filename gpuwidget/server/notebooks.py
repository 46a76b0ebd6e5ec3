"""This server's kernels with their notebooks, and its terminals, as Jupyter knows them."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from posixpath import basename
from typing import Any, get_args, get_type_hints

from jupyter_client.provisioning.local_provisioner import LocalProvisioner

from gpuwidget.model.clock import Clock
from gpuwidget.server.kernel_executions import Executions
from gpuwidget.server.wire import ServerKernel

_LOG = logging.getLogger(__name__)

_SESSIONS_EVERY_S = 5.0
_SESSIONS_PATIENCE_S = 10.0
_STATES: tuple[str, ...] = get_args(get_type_hints(ServerKernel)["state"])
_NOTEBOOK = "notebook"


@dataclass(frozen=True, slots=True)
class Session:
    """What a kernel was started for, by :class:`ServerKernel`'s words."""

    id: str
    kind: str | None
    path: str | None
    name: str | None


@dataclass(frozen=True, slots=True)
class Known:
    """What Jupyter knows at one moment."""

    kernels: tuple[ServerKernel, ...]
    kernel_of: Mapping[int, str]
    """Process id of each kernel that runs as a process of this machine, and the kernel's id."""
    terminal_of: Mapping[int, str]
    """Process id of each terminal's shell, and the terminal's name."""
    elsewhere: int
    """Number of kernels that a kernel gateway or a remote provisioner runs: they have no process here."""


class Notebooks:
    """Asks Jupyter's managers. All methods belong to the server's event loop, and none waits."""

    def __init__(
        self,
        kernel_manager: Any,
        session_manager: Any,
        settings: Mapping[str, Any],
        clock: Clock,
        executions: Executions,
    ) -> None:
        """``settings`` are the web application's: an extension may add its terminals later."""
        self._kernels = kernel_manager
        self._executions = executions
        self._session_manager = session_manager
        self._settings = settings
        self._clock = clock
        self._sessions: dict[str, Session] = {}
        self._listed = float("-inf")
        self._listed_for: tuple[str, ...] = ()
        self._listing: asyncio.Task[None] | None = None

    def look(self) -> Known:
        """What is known now; what is not yet known of the sessions comes a moment later."""
        kernels: list[ServerKernel] = []
        kernel_of: dict[int, str] = {}
        elsewhere = 0
        for kernel_id, manager in self._managers():
            state = self._state(kernel_id, manager)
            kernels.append(_kernel(kernel_id, manager, state, self._sessions.get(kernel_id)))
            pid = local_pid(manager)
            if pid is not None:
                kernel_of[pid] = kernel_id
            elif _is_elsewhere(manager):
                elsewhere += 1
        self._list_sessions(tuple(kernel.id for kernel in kernels))
        return Known(tuple(kernels), kernel_of, dict(self._terminals()), elsewhere)

    def manager(self, kernel_id: str) -> Any | None:
        """Jupyter's manager of one kernel; None where it is gone."""
        # It may have died since; a gateway's is None then.
        with suppress(Exception):
            return self._kernels.get_kernel(kernel_id)
        return None

    def close(self) -> None:
        """Ask for nothing more until the next look."""
        if self._listing is not None:
            self._listing.cancel()
            self._listed = float("-inf")

    def _managers(self) -> Iterator[tuple[str, Any]]:
        for kernel_id in self._kernels.list_kernel_ids():
            manager = self.manager(kernel_id)
            if manager is not None:
                yield kernel_id, manager

    def _state(self, kernel_id: str, manager: Any) -> Any:
        state = getattr(manager, "execution_state", None)
        # The newest status message may be that of another request than the cell's.
        if state == "idle" and self._executions.running(kernel_id):
            return "busy"
        return state if state in _STATES else "unknown"

    def _terminals(self) -> Iterator[tuple[int, str]]:
        terminals: Mapping[str, Any] = (
            getattr(self._settings.get("terminal_manager"), "terminals", None) or {}
        )
        for name, terminal in terminals.items():
            shell = getattr(terminal, "ptyproc", None)
            pid = getattr(shell, "pid", None)
            # Its number is free for others once it was waited for.
            if isinstance(pid, int) and not getattr(shell, "terminated", False):
                yield pid, name

    # -- sessions --------------------------------------------------------------------------------------------

    def _list_sessions(self, kernels: tuple[str, ...]) -> None:
        """Have them listed where that is due: it costs more than all else, and may ask another server."""
        now = self._clock.monotonic()
        due = now - self._listed >= _SESSIONS_EVERY_S or kernels != self._listed_for
        if due and (self._listing is None or self._listing.done()):
            self._listed, self._listed_for = now, kernels
            self._listing = asyncio.ensure_future(self._list())

    async def _list(self) -> None:
        try:
            rows = self._session_manager.list_sessions()
            if inspect.isawaitable(rows):
                rows = await asyncio.wait_for(rows, _SESSIONS_PATIENCE_S)
            self._sessions = _by_kernel(rows)
        except Exception:
            # Those of before are shown until it can be told again.
            _LOG.debug("the server's sessions could not be listed", exc_info=True)


def local_pid(manager: Any) -> int | None:
    """Process id of a kernel that is a child of this server; None for one that has ended or runs elsewhere.

    A remote provisioner may have a ``pid`` too, which is another machine's. A child's number stays its own
    until it was waited for: then there is a return code.
    """
    provisioner = getattr(manager, "provisioner", None)
    if not isinstance(provisioner, LocalProvisioner):
        return None
    process: Any = provisioner.process
    pid = getattr(process, "pid", None)
    return pid if isinstance(pid, int) and getattr(process, "returncode", None) is None else None


def _is_elsewhere(manager: Any) -> bool:
    provisioner = getattr(manager, "provisioner", None)
    if provisioner is None:  # a gateway's kernel never has one, another has none while it starts
        return getattr(manager, "execution_state", None) in ("idle", "busy")
    return not isinstance(provisioner, LocalProvisioner)


def _kernel(kernel_id: str, manager: Any, state: Any, session: Session | None) -> ServerKernel:
    return ServerKernel(
        id=kernel_id,
        spec=str(getattr(manager, "kernel_name", "")),
        state=state,
        idle_since=last_activity(manager) if state == "idle" else None,
        session=session.id if session is not None else None,
        kind=session.kind if session is not None else None,
        path=session.path if session is not None else None,
        name=session.name if session is not None else None,
    )


def last_activity(manager: Any) -> float | None:
    """When a kernel last did something, epoch seconds; None where nobody knows."""
    moment = getattr(manager, "last_activity", None)
    return moment.timestamp() if isinstance(moment, datetime) and moment.tzinfo is not None else None


def _by_kernel(rows: Any) -> dict[str, Session]:
    """The session of each kernel; of several, the first notebook's, else the first."""
    found: dict[str, Session] = {}
    for row in rows:
        kernel = (row.get("kernel") or {}).get("id")
        kind, path, name = (row.get(word) or None for word in ("type", "path", "name"))
        is_notebook = kind == _NOTEBOOK
        if is_notebook and path:
            # A front end may rename the file and leave the session its name.
            name = basename(path)
        session = Session(str(row.get("id")), kind, path if is_notebook else None, name)
        if kernel and (kernel not in found or (is_notebook and found[kernel].kind != _NOTEBOOK)):
            found[kernel] = session
    return found
