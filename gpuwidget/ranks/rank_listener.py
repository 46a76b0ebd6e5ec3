"""Receive the reports of ranks in the notebook's kernel, and pass them to the runs."""

from __future__ import annotations

import atexit
import logging
import os
import selectors
import socket
import threading
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from gpuwidget.measure.worker_updates import WORKER_UPDATES
from gpuwidget.measure.workers import MAX_WORKERS
from gpuwidget.model import worker_update
from gpuwidget.model.boundary import stopped
from gpuwidget.model.fork import reset_after_fork
from gpuwidget.model.worker_update import WorkerUpdate
from gpuwidget.ranks import rank_socket
from gpuwidget.system import processes
from gpuwidget.system.processes import Rank

_LOG = logging.getLogger(__name__)

_COLLECT_TIMEOUT_S = 0.25
"""Maximum seconds for which a run's end waits until all reports that have arrived are read."""
_CHUNK = 65_536


@dataclass(slots=True)
class _Connection:
    """One process that reports."""

    pid: int
    rank: Rank | None
    """The rank in the process's environment; None if there is none or if the notebook's environment contains
    the same rank."""
    data: bytearray = field(default_factory=bytearray)


class RankListener:
    """Listens for ranks on one thread, which sleeps while nothing arrives."""

    def __init__(self, path: Path) -> None:
        """Start to listen at ``path``. Raises OSError if that is impossible."""
        self._path = path
        self._pid = os.getpid()
        self._server = rank_socket.bind(path)
        self._selector = selectors.DefaultSelector()
        self._wake, self._woken = socket.socketpair()
        self._woken.setblocking(False)
        self._selector.register(self._server, selectors.EVENT_READ)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._closed = False
        self._connections: dict[socket.socket, _Connection] = {}
        self._sweeps = threading.Condition()
        self._requested = self._done = 0
        """Number of requests to read all connections, and how many of them are done."""
        self._thread = threading.Thread(target=self._listen, name="gpuwidget-ranks", daemon=True)
        self._thread.start()
        WORKER_UPDATES.add_collector(self.collect)

    def collect(self) -> None:
        """Wait until all reports that have arrived are passed to the runs."""
        if not self._connections:
            return
        with self._sweeps:
            self._requested += 1
            request = self._requested
            self._wake.send(b"c")
            self._sweeps.wait_for(lambda: self._done >= request, _COLLECT_TIMEOUT_S)

    def close(self) -> None:
        """Stop listening and remove the socket's file. Does nothing in a forked child."""
        if os.getpid() != self._pid or self._closed:
            return
        self._closed = True
        WORKER_UPDATES.remove_collector(self.collect)
        self._path.unlink(missing_ok=True)
        with suppress(OSError):
            self._wake.send(b"c")

    def join(self) -> None:
        """Wait until the listener's thread has ended, for at most a second."""
        self._thread.join(1.0)

    # -- the listener's thread -----------------------------------------------------------------------

    def _listen(self) -> None:
        while not self._closed:
            ready = [key.fileobj for key, _ in self._selector.select()]
            requests = 0
            if self._woken in ready:
                with suppress(BlockingIOError):
                    requests = len(self._woken.recv(_CHUNK))
            if self._server in ready:
                self._accept()
            # For a request, read all connections. Some may have received data since the call of select().
            for connection in list(self._connections) if requests else ready:
                if isinstance(connection, socket.socket) and connection in self._connections:
                    self._read(connection, self._connections[connection])
            with self._sweeps:
                self._done += requests
                self._sweeps.notify_all()
        for connection in list(self._connections):
            self._drop(connection)
        for end in (self._server, self._wake, self._woken, self._selector):
            end.close()

    def _accept(self) -> None:
        with suppress(OSError):
            connection, _ = self._server.accept()
            connection.setblocking(False)
            pid, user = rank_socket.peer_of(connection)
            if user != os.getuid() or len(self._connections) >= MAX_WORKERS:
                connection.close()
                return
            self._selector.register(connection, selectors.EVENT_READ)
            self._connections[connection] = _Connection(pid, processes.rank_of(pid))
            # The process may have sent its report already.
            self._read(connection, self._connections[connection])

    def _read(self, connection: socket.socket, state: _Connection) -> None:
        try:
            data = connection.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        state.data += data
        *lines, rest = bytes(state.data).split(b"\n")
        state.data[:] = rest
        for line in lines:
            update = worker_update.parse(line)
            # A process can report only itself.
            if update is not None and update.kind == "rank" and update.pid == state.pid:
                WORKER_UPDATES.publish(update if state.rank is not None else _without_inherited_rank(update))
        if not data or len(rest) > worker_update.MAX_UPDATE_BYTES:
            self._drop(connection)

    def _drop(self, connection: socket.socket) -> None:
        self._connections.pop(connection, None)
        with suppress(KeyError, ValueError):
            self._selector.unregister(connection)
        connection.close()


def _without_inherited_rank(update: WorkerUpdate) -> WorkerUpdate:
    """Remove the rank from the update of a process whose environment sets no other rank than the notebook's.

    In a notebook that was started by ``srun``, every child process has SLURM_PROCID. The process itself can't
    distinguish this rank from its own, because it can't read the notebook's current environment.
    """
    inherited = processes.rank_in(os.environ)
    if inherited is None or inherited != (update.rank, update.local_rank, update.world_size):
        return update
    return replace(update, rank=None, local_rank=None, world_size=None)


_listener: RankListener | None = None
_failed = False


def listen() -> None:
    """Start to listen for ranks, unless this process already listens. Never raises."""
    global _listener, _failed
    if _listener is not None or _failed:
        return
    try:
        rank_socket.remove_stale()
        _listener = RankListener(rank_socket.socket_path(os.getpid()))
        atexit.register(_listener.close)
    except BaseException as error:
        # For example, there is no folder in which the user may create files. Ranks then have only the
        # driver's values.
        stopped(_LOG, "ranks can't report to this notebook", error, foreign=True)
        _failed = True


def stop() -> None:
    """Stop listening for ranks, if this process listens."""
    global _listener
    if _listener is not None:
        atexit.unregister(_listener.close)
        _listener.close()
        _listener.join()
        _listener = None


def _reset_in_child() -> None:
    global _listener, _failed
    _listener, _failed = None, False


reset_after_fork(_reset_in_child)
