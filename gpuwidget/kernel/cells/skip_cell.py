"""Keeping a cell from running after ``pre_run_cell``, from where IPython takes no exception.

The shell's AST transformers come after that event: one of ours, there for this once, puts a call in the
place of the cell that raises a UsageError, which IPython shows in one line.
"""

from __future__ import annotations

import ast
import threading
from typing import Any, NoReturn

from IPython.core.error import UsageError

from gpuwidget.model.terminal_text import printable_lines


def refuse(shell: Any, sentence: str) -> None:
    """The cell that is about to run on this thread says ``sentence`` and does nothing else."""
    withdraw(shell)
    shell.ast_transformers.append(_Refusal(shell, sentence))


def withdraw(shell: Any) -> None:
    """Refuse nothing any more on this thread: the cell has ended. Safe to call twice."""
    here = threading.get_ident()
    for one in list(shell.ast_transformers):
        if isinstance(one, _Refusal) and one.thread == here:
            shell.ast_transformers.remove(one)


def say(sentence: str) -> NoReturn:
    """What the refused cell runs."""
    __tracebackhide__ = True
    raise UsageError(printable_lines(sentence))


class _Refusal:
    """A transformer for one cell of one thread."""

    def __init__(self, shell: Any, sentence: str) -> None:
        self._shell = shell
        self._sentence = sentence
        self.thread = threading.get_ident()

    def visit(self, node: ast.AST) -> ast.AST:
        """The cell's code, or what refuses it."""
        if threading.get_ident() != self.thread:
            return node
        self._shell.ast_transformers.remove(self)
        return ast.parse(f"__import__({__name__!r}, fromlist=['say']).say({self._sentence!r})")
