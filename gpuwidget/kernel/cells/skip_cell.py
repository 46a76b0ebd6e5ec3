"""Keeps a cell from running, from ``pre_run_cell``, where IPython ignores exceptions.

The shell applies its AST transformers after that event. A transformer that is added for one cell replaces the
cell's code with a call that raises a UsageError, which IPython shows in one line.
"""

from __future__ import annotations

import ast
import threading
from typing import Any, NoReturn

from IPython.core.error import UsageError

from gpuwidget.model.terminal_text import printable_lines


def skip(shell: Any, message: str) -> None:
    """Make the cell that is about to run on this thread raise an error with ``message`` instead."""
    clear(shell)
    shell.ast_transformers.append(_SkipTransformer(shell, message))


def clear(shell: Any) -> None:
    """Remove the transformer of this thread after the cell. Safe to call twice."""
    thread = threading.get_ident()
    for transformer in list(shell.ast_transformers):
        if isinstance(transformer, _SkipTransformer) and transformer.thread == thread:
            shell.ast_transformers.remove(transformer)


def raise_error(message: str) -> NoReturn:
    """Raise the error; called by the code that replaces the cell."""
    __tracebackhide__ = True
    raise UsageError(printable_lines(message))


class _SkipTransformer:
    """Replaces the code of the next cell on one thread."""

    def __init__(self, shell: Any, message: str) -> None:
        self._shell = shell
        self._message = message
        self.thread = threading.get_ident()

    def visit(self, node: ast.AST) -> ast.AST:
        """Return the code to run; called by IPython with the cell's code."""
        if threading.get_ident() != self.thread:
            return node
        self._shell.ast_transformers.remove(self)
        return ast.parse(f"__import__({__name__!r}, fromlist=['raise_error']).raise_error({self._message!r})")
