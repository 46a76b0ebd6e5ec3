"""The token that opens only ``gpuwidget/metrics``, so that Prometheus needs no token for the whole server."""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import stat
from logging import Logger
from pathlib import Path

_BEARER = re.compile(r"bearer +(\S+)", re.IGNORECASE)
_MAX_BYTES = 4096
"""Maximum size of the token's file."""


class MetricsToken:
    """The token in an administrator's file. It is read again when the file changes.

    The log never contains the token.
    """

    def __init__(self, path: str, log: Logger) -> None:
        """``path`` is the path of the file, or an empty string for no token."""
        self._path = Path(path) if path else None
        self._log = log
        self._version: tuple[int, ...] | None = None
        """Identifies the version of the file that was read last; None if there was no file."""
        self._problem: str | None = None
        """The problem that was logged last."""
        self._digest: bytes | None = None
        self._refresh()

    def matches(self, authorization: str | None) -> bool:
        """Return whether this value of the header ``Authorization``, ``Bearer …``, contains the token."""
        if self._path is None or authorization is None:
            return False
        sent = _BEARER.fullmatch(authorization.strip())
        if sent is None:
            return False
        self._refresh()
        if self._digest is None:
            return False
        # The comparison takes the same time for all tokens, wherever they differ and however long they are.
        return hmac.compare_digest(_digest(sent.group(1).encode("utf-8", "replace")), self._digest)

    def _refresh(self) -> None:
        """Read the file if it has changed. If it can't be used, log the reason once."""
        if self._path is None:
            return
        try:
            # Not Path.stat() before open(): the file may be replaced in between.
            with self._path.open("rb") as file:
                status = os.fstat(file.fileno())
                version = (status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size, status.st_mode)
                if version == self._version:
                    return
                text = file.read(_MAX_BYTES + 1)
        except OSError as error:
            self._version = None
            self._refuse(error.strerror or str(error))
            return
        self._version = version
        token = text.strip()
        if not token:
            self._refuse("it is empty")
        elif len(text) > _MAX_BYTES or len(token.split()) > 1 or not token.isascii():
            self._refuse("it contains more than one token, or characters that no token has")
        else:
            self._digest = _digest(token)
            self._problem = None
            # A file of another owner, such as a secret that Kubernetes mounts, can only be read as its group.
            group = stat.S_IRGRP if status.st_uid == os.geteuid() else 0
            if status.st_mode & (group | stat.S_IROTH):
                self._log.warning(
                    "Other users of this machine may read the file of GpuWidget.metrics_token_file, %s. The "
                    "token opens gpuwidget/metrics to them: chmod 600 %s.",
                    *(self._path, self._path),
                )

    def _refuse(self, problem: str) -> None:
        self._digest = None
        if problem != self._problem:
            self._problem = problem
            self._log.error(
                "The file of GpuWidget.metrics_token_file, %s, can't be used: %s. Until it contains a token "
                "alone, gpuwidget/metrics accepts only Jupyter's own credentials.",
                *(self._path, problem),
            )


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()
