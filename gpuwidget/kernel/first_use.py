"""Which variables a piece of code needs as they are, and which it only makes anew."""

from __future__ import annotations

import ast
import re
from types import TracebackType
from typing import Any

from gpuwidget.kernel.user_code import UserCode

_NAME = re.compile(r"[^\W\d]\w*")
_MOST_FRAMES = 200


def needed(cell: str, trace: TracebackType | None, code: UserCode) -> frozenset[str]:
    """The names that a cell and the user's functions on a traceback read.

    A name that the cell gives a new value before it reads it is none of them.
    """
    found = set(_read_first(cell))
    for _ in range(_MOST_FRAMES):
        if trace is None:
            break
        frame: Any = trace.tb_frame
        name = code.name(frame.f_code.co_filename)
        if name is not None and frame.f_code.co_name not in ("<module>", "<cell line: 1>"):
            found.update(frame.f_code.co_names)
            found.update(frame.f_code.co_freevars)
        trace = trace.tb_next
    return frozenset(found)


def _read_first(cell: str) -> set[str]:
    try:
        tree = ast.parse(cell)
    except (SyntaxError, ValueError):
        return set(_NAME.findall(cell))  # with magics in it: every name counts as read
    order = _Order()
    order.visit(tree)
    return order.read


class _Order(ast.NodeVisitor):
    """Goes through code in the order in which it runs, as far as that matters here."""

    def __init__(self) -> None:
        self.read: set[str] = set()
        self._made: set[str] = set()
        self._sure = True
        """Whether what is visited runs in any case."""

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load):
            if node.id not in self._made:
                self.read.add(node.id)
        elif self._sure:
            self._made.add(node.id)

    def visit_Assign(self, node: ast.Assign) -> None:
        self.visit(node.value)
        for target in node.targets:
            self.visit(target)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)
            self.visit(node.target)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name) and node.target.id not in self._made:
            self.read.add(node.target.id)
        self.generic_visit(node)

    def visit_For(self, node: ast.For) -> None:
        self.visit(node.iter)
        self._perhaps(node.target, *node.body, *node.orelse)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self.visit(node.value)
        self._perhaps(node.target)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._perhaps(*node.decorator_list, node.args, *node.body)

    def generic_visit(self, node: ast.AST) -> None:
        branches = (ast.If, ast.While, ast.Try, ast.AsyncFunctionDef, ast.AsyncFor, ast.ClassDef, ast.Lambda)
        comprehensions = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.IfExp, ast.BoolOp)
        if isinstance(node, (*branches, *comprehensions, ast.Match)):
            self._perhaps(*ast.iter_child_nodes(node))
        else:
            super().generic_visit(node)

    def _perhaps(self, *nodes: ast.AST) -> None:
        """What may not run gives no name its value for sure."""
        sure, self._sure = self._sure, False
        for node in nodes:
            self.visit(node)
        self._sure = sure
