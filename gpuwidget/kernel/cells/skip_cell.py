"""Skip a cell from a ``pre_run_cell`` hook, although IPython ignores the exceptions of hooks.

The shell applies its AST transformers after the event ``pre_run_cell``. :func:`skip` therefore adds a
transformer for this one cell, which replaces the cell's code with a call that raises a UsageError. IPython
shows a UsageError in one line.
"""

from __future__ import annotations

import ast
import threading
from typing import Any, NoReturn

from IPython.core.error import UsageError

from gpuwidget.model.terminal_text import printable_lines


def skip(shell: Any, message: str) -> None:
    """Make the cell that is about to run on this thread fail with ``message``; its code does not run."""
    clear(shell)
    shell.ast_transformers.append(_SkipTransformer(shell, message))


def clear(shell: Any) -> None:
    """Remove the transformer that :func:`skip` added on this thread, if any. Safe to call twice."""
    thread = threading.get_ident()
    for transformer in list(shell.ast_transformers):
        if isinstance(transformer, _SkipTransformer) and transformer.thread == thread:
            shell.ast_transformers.remove(transformer)


def raise_error(message: str) -> NoReturn:
    """Raise a UsageError; the code that replaces the cell calls this."""
    __tracebackhide__ = True
    raise UsageError(printable_lines(message))


class _SkipTransformer:
    """Replaces the code of the next cell that one thread runs."""

    def __init__(self, shell: Any, message: str) -> None:
        self._shell = shell
        self._message = message
        self.thread = threading.get_ident()

    def visit(self, node: ast.AST) -> ast.AST:
        """Return the code to run instead of the cell's code ``node``; IPython calls this."""
        if threading.get_ident() != self.thread:
            return node
        self._shell.ast_transformers.remove(self)
        return ast.parse(f"__import__({__name__!r}, fromlist=['raise_error']).raise_error({self._message!r})")
