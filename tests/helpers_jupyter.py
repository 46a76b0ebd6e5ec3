"""A Jupyter server in a separate process, started by a command as an administrator starts it."""

from __future__ import annotations

import os
import ssl
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from email.message import Message
from http.client import HTTPMessage
from pathlib import Path
from typing import IO, Any

from helpers_programs import RunningProgram

_PATIENCE_S = 120.0
_POLL_S = 0.1
_FOLDERS = {
    "HOME": "home",
    "JUPYTER_CONFIG_DIR": "config",
    "JUPYTER_DATA_DIR": "data",
    "JUPYTER_RUNTIME_DIR": "runtime",
    "IPYTHONDIR": "ipython",
}


class Service(RunningProgram):
    """A running program that answers HTTP requests."""

    def __init__(
        self, command: Sequence[str], folder: Path, ready: str, variables: Mapping[str, str] | None = None
    ) -> None:
        """Start ``command`` with its log in ``folder``. It is ready once the address ``ready`` answers."""
        self._ready = ready
        log = folder / f"{Path(command[0]).name}.log"
        super().__init__(command, log, folder=folder, environment=variables)

    def wait_until_ready(self) -> None:
        """Wait until the service answers."""
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            try:
                if fetch(self._ready)[0] < 500:
                    return
            except OSError:
                pass
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"{self._log.name} does not run:\n{self.log[-4000:]}")
            time.sleep(_POLL_S)


def jupyter_folders(folder: Path) -> dict[str, str]:
    """Create Jupyter's folders in ``folder``. Return the environment variables that make Jupyter use them."""
    for name in _FOLDERS.values():
        (folder / name).mkdir()
    return {
        **{name: str(folder / path) for name, path in _FOLDERS.items()},
        "JUPYTER_PREFER_ENV_PATH": "1",
    }


def jupyter_variables(folder: Path, **more: str) -> dict[str, str]:
    """Return the environment of a Jupyter server whose folders are all in ``folder``.

    Its PATH begins with the folder of this interpreter.
    """
    return {
        **jupyter_folders(folder),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        **more,
    }


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> None:
        return None


def fetch(
    address: str, headers: Mapping[str, str] | None = None, context: ssl.SSLContext | None = None
) -> tuple[int, dict[str, str], str]:
    """Return the status, the headers and the text of the answer to a GET request.

    The headers' names are in lower case; several headers of one name are lines of its value. No redirect is
    followed.
    """
    handlers: list[Any] = [_NoRedirects(), urllib.request.ProxyHandler({})]
    if context is not None:
        handlers.append(urllib.request.HTTPSHandler(context=context))
    request = urllib.request.Request(address, headers=dict(headers or {}))
    try:
        with urllib.request.build_opener(*handlers).open(request, timeout=30) as answer:
            return answer.status, _lower(answer.headers), answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, _lower(error.headers), error.read().decode()


def _lower(headers: Message) -> dict[str, str]:
    return {name.lower(): "\n".join(headers.get_all(name, [])) for name in headers}
