"""Helpers for tests that need other programs, such as a C compiler, Chromium, nginx or a Jupyter server."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

import pytest

from tools import check_python

NO_COMPILER = "no C compiler with the C library's headers"


def skip(reason: str) -> NoReturn:
    """Skip the test for this reason. With ``make test NO_SKIPS=1``, as in CI, fail it instead."""
    if os.environ.get("GPUWIDGET_TEST_NO_SKIPS"):
        pytest.fail(reason)
    pytest.skip(reason)


def free_ports(count: int) -> list[int]:
    """Return different ports of 127.0.0.1 that nobody listens on."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [int(one.getsockname()[1]) for one in sockets]
    for one in sockets:
        one.close()
    return ports


class RunningProgram:
    """A running program whose output is written to a file."""

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        *,
        folder: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Start ``command`` in ``folder``. ``environment`` is added to this process's environment."""
        self._log = log
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                command,
                cwd=folder,
                env={**os.environ, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
            )

    @property
    def log(self) -> str:
        """What the program has written so far."""
        return self._log.read_text(errors="replace")

    def stop(self) -> None:
        """Stop the program. It is killed if it has not ended after 30 s."""
        self.process.terminate()
        try:
            self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


_compiled: dict[tuple[str, ...], bytes] = {}
"""The libraries that this process has compiled, by compiler, source and options."""


def compile_library(source: Path, library: Path, *options: str) -> None:
    """Compile a C file into a shared library with ``$CC`` or ``cc``;
    skip the test if there is no compiler.

    Many tests need the same library, so it is compiled once and then copied.
    """
    compiler = os.environ.get("CC", "cc")
    key = (compiler, source.read_text(), *options)
    if key not in _compiled:
        if not check_python.has_compiler():
            skip(NO_COMPILER)
        subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", library, source, *options], check=True)
        _compiled[key] = library.read_bytes()
    library.write_bytes(_compiled[key])
