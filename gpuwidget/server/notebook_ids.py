"""Ids that stand for notebooks in metrics, so that the names of users' files stay on the server.

An id is a keyed hash of the file's path. It is the same after the kernel or the server restarts, and nobody
without the key can find the notebook by hashing common names. The key is a file in the user's data folder of
Jupyter. A notebook that is renamed or moved gets another id.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from logging import Logger
from pathlib import Path, PurePosixPath

_KEY_FILE = "notebook-ids.key"
_KEY_BYTES = 32
_ID_LENGTH = 12
"""Hexadecimal digits of an id. Among a thousand notebooks of a user, the probability that two have the same
id is below one in a hundred million."""


class NotebookIds:
    """Computes the ids of one user's notebooks."""

    def __init__(self, data_folder: Path, root: str, log: Logger) -> None:
        """``data_folder`` is Jupyter's data folder of the user, and ``root`` is the folder to which the
        server's paths are relative. The key is read or created when the first id is needed."""
        self._path = data_folder / "gpuwidget" / _KEY_FILE
        self._root = root
        self._log = log
        self._key: bytes | None = None

    def notebook_id(self, path: str) -> str:
        """Return the id of the notebook at ``path``, which is relative to the server's root.

        The same file has the same id in each server of the user, also if a server has another root.
        """
        if self._key is None:
            self._key = self._load_key()
        whole = str(PurePosixPath(self._root or "/") / path.lstrip("/"))
        digest = hmac.digest(self._key, whole.encode("utf-8", "surrogatepass"), hashlib.sha256)
        return digest.hex()[:_ID_LENGTH]

    def _load_key(self) -> bytes:
        """Return the stored key. If none can be stored, log the reason and return a temporary key."""
        try:
            return self._stored_key() or self._create_key()
        except OSError as error:
            self._log.warning(
                "The key for the ids of notebooks in metrics can't be stored in %s (%s). Until that is "
                "fixed, each restart of this server gives every notebook another id.",
                *(self._path, error.strerror or error),
            )
            return secrets.token_bytes(_KEY_BYTES)

    def _stored_key(self) -> bytes | None:
        """Return the key in the file; None if there is no file or if it does not contain a key."""
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW)
        except FileNotFoundError:
            return None
        with open(descriptor, "rb") as file:
            key = file.read(_KEY_BYTES + 1)
            if os.fstat(descriptor).st_mode & 0o077:
                os.fchmod(descriptor, 0o600)
        return key if len(key) == _KEY_BYTES else None

    def _create_key(self) -> bytes:
        """Store a new key, and return it. If another server has stored one meanwhile, return that one."""
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = self._path.with_name(f"{_KEY_FILE}.{secrets.token_hex(8)}")
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with open(descriptor, "wb") as file:
                file.write(secrets.token_bytes(_KEY_BYTES))
                file.flush()
                os.fsync(descriptor)
            if self._stored_key() is None:
                # A file that does not contain a key, for example after a full disk.
                self._path.unlink(missing_ok=True)
            try:
                # A link, unlike a rename, fails if another server has stored a key meanwhile.
                os.link(new, self._path)
            except FileExistsError:
                pass
            except OSError:
                # The file system has no links.
                os.replace(new, self._path)
        finally:
            new.unlink(missing_ok=True)
        key = self._stored_key()
        if key is None:
            raise OSError("the file does not keep what is written to it")
        return key
