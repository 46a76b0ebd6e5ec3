"""Taking turns on a GPU among processes: a lock on a file per GPU, which dies with its holder.

The file says who has it, for those who wait: text that others wrote, and no more than that. In a directory
that an administrator gives to a group, users take turns with each other.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from gpuwidget.errors import OptionError

if TYPE_CHECKING:
    import fcntl
else:
    try:
        import fcntl
    except ImportError:  # Windows
        fcntl = None

VARIABLE = "GPUWIDGET_LOCK_DIR"
"""The environment variable that names a group's directory."""

_MODE = 0o660
_MOST_TEXT = 400
_UNSAFE = re.compile(r"[^A-Za-z0-9-]")


class GpuLock:
    """The turn on one GPU. Used by one thread; cells of one process share it."""

    def __init__(self, folder: Path, uuid: str) -> None:
        if fcntl is None:
            raise OptionError("--exclusive: this system has no file locks (flock), which it needs.")
        self._folder = folder
        # A MIG slice's UUID may hold slashes.
        self._path = folder / f"gpuwidget-{_UNSAFE.sub('_', uuid)}.lock"
        self._holds = False

    def take(self, who: str) -> bool:
        """Take the turn if nobody has it, leaving ``who`` for others to read; whether it is ours now.

        Raises OptionError where the directory or the file can't be used.
        """
        if self._holds:
            return True
        with _lock:
            held = _held.get(self._path)
            if held is not None:
                held[1] += 1
                self._holds = True
                return True
            file = self._locked()
            if file is None:
                return False
            with contextlib.suppress(OSError):  # on a full disk it is held all the same
                os.ftruncate(file, 0)
                os.pwrite(file, who.encode(errors="replace")[:_MOST_TEXT], 0)
            _held[self._path] = [file, 1]
            self._holds = True
            return True

    def holder(self) -> str | None:
        """What whoever has the turn says of itself: untrusted text; None where it says nothing."""
        try:
            file = _open(self._path)
        except (OSError, OptionError):
            return None
        try:
            return os.pread(file, _MOST_TEXT, 0).decode(errors="replace").strip() or None
        except OSError:
            return None
        finally:
            os.close(file)

    def release(self) -> None:
        """Give the turn to the next. Safe to call twice."""
        if not self._holds:
            return
        self._holds = False
        with _lock:
            held = _held.get(self._path)
            if held is None:  # a forked child holds nothing
                return
            held[1] -= 1
            if held[1]:
                return
            del _held[self._path]
            with contextlib.suppress(OSError):
                os.ftruncate(held[0], 0)
            # Said aloud: closing alone would leave it to copies of the file that children may have.
            with contextlib.suppress(OSError):
                fcntl.flock(held[0], fcntl.LOCK_UN)
            os.close(held[0])

    def _locked(self) -> int | None:
        """The file, open and locked; None where another has the lock."""
        try:
            while True:
                file = self._opened()
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    os.close(file)
                    return None
                except BaseException:
                    os.close(file)
                    raise
                if self._is_there(file):
                    return file
                os.close(file)  # taken away between the two: lock the one that is there now
        except OSError as error:
            raise OptionError(
                f"--exclusive: {self._path} can't be locked ({error.strerror or error}). {self._advice()}"
            ) from None

    def _opened(self) -> int:
        try:
            return _open(self._path)
        except FileNotFoundError:
            self._create()
            return _open(self._path)

    def _create(self) -> None:
        """Make the file with its rights in one step, so that nobody meets it without them."""
        draft = self._folder / f".{self._path.name}.{os.getpid()}.{threading.get_ident()}"
        with contextlib.suppress(FileNotFoundError):
            draft.unlink()
        file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, _MODE)
        try:
            os.fchmod(file, _MODE)  # whatever the umask: the group is to write it too
            with contextlib.suppress(FileExistsError):
                os.link(draft, self._path)
        finally:
            os.close(file)
            draft.unlink()

    def _is_there(self, file: int) -> bool:
        try:
            there = os.stat(self._path, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return os.path.samestat(there, os.fstat(file))

    def _advice(self) -> str:
        if os.environ.get(VARIABLE):
            return (
                f"{VARIABLE} names a directory that the group may write: mkdir, chgrp GROUP and chmod 3770, "
                "by the administrator."
            )
        return f"Free the way, or let {VARIABLE} name a directory of yours."


def _open(path: Path) -> int:
    file = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OptionError(f"--exclusive: {path} is no ordinary file. Have it removed.")
    return file


_lock = threading.Lock()
_held: dict[Path, list[int]] = {}
"""What this process holds: its open file, and how many of its cells share it."""


def _begin_anew_in_child() -> None:
    # A forked child has copies of the files: they must not keep the lock when the parent dies.
    global _lock
    _lock = threading.Lock()
    for file, _ in _held.values():
        with contextlib.suppress(OSError):
            os.close(file)
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew_in_child)
