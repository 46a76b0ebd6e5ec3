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

from gpuwidget.kernel.shell.front_end import is_executed_by_program
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


def raise_error(shell: Any, message: str) -> NoReturn:
    """Raise the error that shows ``message`` in one line; the code that replaces the cell calls this."""
    __tracebackhide__ = True
    raise one_line_error(shell, message)


def one_line_error(shell: Any, message: str) -> Exception:
    """Return an error that IPython shows as one line, ``UsageError: message``, without a traceback.

    IPython prints its UsageError to stderr. A program that executes the notebook, such as papermill, takes
    the reason from the cell's error output, so for a program the line is an error output.
    """
    kind = _ProgramUsageError if is_executed_by_program(shell) else UsageError
    return kind(printable_lines(message))


class _ProgramUsageError(Exception):
    """A usage error that IPython shows as an error output. It does not so show its own UsageError."""

    def _render_traceback_(self) -> list[str]:
        """Return the lines that IPython shows instead of a traceback."""
        return [f"{type(self).__name__}: {self}"]


_ProgramUsageError.__name__ = _ProgramUsageError.__qualname__ = UsageError.__name__


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
        own = f"__import__({__name__!r}, fromlist=['raise_error'])"
        return ast.parse(f"{own}.raise_error(get_ipython(), {self._message!r})")
