"""The text of a module's line, where the file is still what was imported from it."""

from __future__ import annotations

import gc
import linecache
import os
import sys
import warnings
from collections.abc import Iterator
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any

from gpuwidget.model.raw_attributes import class_dict, module_dict
from gpuwidget.system import processes

CHANGED = "(the file may have changed since it was imported)"
"""Stands in for a line that need not be the one that ran."""
_MARGIN_S = 2.0
"""What the system's times of a process and of a file may differ by."""
_MOST_OBJECTS = 10_000
_LEADS_ON = frozenset(map(id, (FunctionType, CellType, tuple, staticmethod, classmethod, property)))


class SourceText:
    """Lines of files, each file looked at once."""

    def __init__(self) -> None:
        self._files: dict[str, _File] = {}

    def line(self, filename: str, line: int) -> str:
        """The line's text; empty where nobody has it, and :data:`CHANGED` where it may be another now."""
        if filename not in self._files:
            linecache.checkcache(filename)
            self._files[filename] = _File(filename)
        text = linecache.getline(filename, line).strip()
        return text if not text or self._files[filename].agrees(line) else CHANGED


class _File:
    """One file, and the functions that were imported from it."""

    def __init__(self, filename: str) -> None:
        self._untouched = _older_than_the_process(filename)
        self._written: frozenset[CodeType] = frozenset()
        self._running: tuple[CodeType, ...] = ()
        if not self._untouched:
            self._written = frozenset(_codes_in(filename))
            self._running = tuple(_running(filename))

    def agrees(self, line: int) -> bool:
        """Whether what runs at that line is what is written there."""
        if self._untouched:
            return True
        there = [code for code in self._running if any(line == at for _, _, at in code.co_lines())]
        return bool(there) and all(code in self._written for code in there)


def _older_than_the_process(filename: str) -> bool:
    started = processes.started()
    try:
        status = os.stat(filename)
    except OSError:
        return False
    return started is not None and max(status.st_mtime, status.st_ctime) < started - _MARGIN_S


def _codes_in(filename: str) -> Iterator[CodeType]:
    """What the file's functions are compiled to as it is now."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            whole = compile("".join(linecache.getlines(filename)), filename, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return iter(())
    return _with_inner(whole)


def _running(filename: str) -> Iterator[CodeType]:
    """The code of the functions that modules imported from the file have, decorated ones too."""
    ahead: list[Any] = []
    for module in list(sys.modules.values()):
        if issubclass(type(module), ModuleType) and module_dict(module).get("__file__") == filename:
            ahead += module_dict(module).values()
    met: dict[int, object] = {}
    while ahead and len(met) < _MOST_OBJECTS:
        one = ahead.pop()
        if id(one) in met:
            continue
        met[id(one)] = one
        kind = type(one)
        if issubclass(kind, type):
            ahead += class_dict(one).values()
        elif id(kind) in _LEADS_ON:
            around = one.__globals__ if kind is FunctionType else None
            ahead += [other for other in gc.get_referents(one) if other is not around]
            if kind is FunctionType and one.__code__.co_filename == filename:
                yield from _with_inner(one.__code__)


def _with_inner(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if type(constant) is CodeType:
            yield from _with_inner(constant)
