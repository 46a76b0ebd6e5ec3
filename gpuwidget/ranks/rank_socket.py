"""The Unix socket between a notebook's kernel and the processes that the notebook has started.

It lies in Jupyter's runtime folder and is named after the kernel's process id. A process finds it by
following its chain of parents. Only processes of the same user can connect.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from jupyter_core.paths import jupyter_runtime_dir

from gpuwidget.system import processes

_MAX_PATH = 100
"""Maximum length of a socket's path. Linux allows 107 bytes, macOS 103."""
_CREDENTIALS = struct.Struct("3i")
"""The process, user and group ids that SO_PEERCRED returns."""


def socket_path(pid: int) -> Path:
    """Return the path of the socket of the kernel with this process id."""
    return Path(jupyter_runtime_dir()) / f"gpuwidget-{pid}.sock"


def bind(path: Path) -> socket.socket:
    """Return a listening socket at ``path`` with mode 0600. Raises OSError if there can be none."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # On Linux, the file gets the mode that the socket has when it is bound.
        os.fchmod(made.fileno(), 0o600)
        # A file of this name was left by an earlier process with the same id.
        path.unlink(missing_ok=True)
        with _short(path) as address:
            made.bind(address)
        os.chmod(path, 0o600)
        made.listen(128)
        made.setblocking(False)
    except BaseException:
        made.close()
        raise
    return made


def remove_stale() -> None:
    """Remove the sockets of kernels that were killed and could not remove their own."""
    for path in Path(jupyter_runtime_dir()).glob("gpuwidget-*.sock"):
        pid = path.stem.rpartition("-")[2]
        if pid.isdigit() and not processes.process_exists(int(pid)):
            path.unlink(missing_ok=True)


def connect(timeout_s: float) -> socket.socket | None:
    """Return a connection to the nearest ancestor of this process that listens, or None if none does."""
    for pid in processes.ancestors():
        path = socket_path(pid)
        if not path.is_socket():
            continue
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        made.settimeout(timeout_s)
        with suppress(OSError), _short(path) as address:
            made.connect(address)
            if peer_of(made)[1] == os.getuid():
                return made
        made.close()
    return None


def peer_of(connection: socket.socket) -> tuple[int, int]:
    """Return the process id and the user id of a connection's other end. Raises OSError if unknown."""
    if not hasattr(socket, "SO_PEERCRED"):
        raise OSError("this system does not identify the other end of a socket")
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, user, _ = _CREDENTIALS.unpack(data)
    return pid, user


@contextmanager
def _short(path: Path) -> Iterator[str]:
    """Yield an address of ``path`` that is short enough for a socket."""
    if len(os.fsencode(path)) <= _MAX_PATH:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
