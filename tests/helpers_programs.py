"""Helpers for tests that need a program besides Python: such as a C compiler, Chromium or nginx."""

from __future__ import annotations

import os
import subprocess
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
