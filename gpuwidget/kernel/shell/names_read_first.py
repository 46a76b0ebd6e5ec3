"""Which variables a piece of code needs as they are, and which it only makes anew."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterable, Mapping
from types import FrameType, TracebackType

from gpuwidget.kernel.shell.name_references import Reads
from gpuwidget.kernel.shell.user_code import UserCode

_NAME = re.compile(r"[^\W\d]\w*")
_MOST_FRAMES = 200
_TIMED = ("<timed exec>", "<timed eval>")
"""What ``%%time`` calls the lines below it."""


def needed(
    cell: str,
    trace: TracebackType | None,
    code: UserCode,
    namespace: Mapping[str, object],
    barred: Iterable[object] = (),
) -> frozenset[str] | None:
    """The variables of ``namespace`` that a cell and the functions it calls read; None for too many to tell.

    One that the cell gives a new value before it reads it is none of them. Functions are followed from what
    is read, and from the frames on the traceback; ``barred`` is what is not looked behind.
    """
    reads = Reads(namespace, code, barred)
    for name in _read_first(cell):
        reads.name(name)
    for _ in range(_MOST_FRAMES):
        if trace is None:
            break
        frame = trace.tb_frame
        if not _is_cells_own(frame, code) and (
            frame.f_globals is namespace or code.name(frame.f_code.co_filename) is not None
        ):
            reads.frame(frame)
        trace = trace.tb_next
    return frozenset(reads.names) if reads.follow() else None


def _is_cells_own(frame: FrameType, code: UserCode) -> bool:
    """Whether a frame runs a cell's own lines, which are read as source, in their order."""
    file, name = frame.f_code.co_filename, frame.f_code.co_name
    cell = (code.name(file) or "").startswith("In[")
    return file in _TIMED or (cell and name.startswith(("<module>", "<cell line")))


def _read_first(cell: str) -> set[str]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the user has seen them
            tree = ast.parse(cell)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set(_NAME.findall(cell))  # no Python: every name counts as read
    order = _Order()
    try:
        order.visit(tree)
    except RecursionError:
        return set(_NAME.findall(cell))
    return order.read


class _Order(ast.NodeVisitor):
    """Goes through code in the order in which it runs, as far as that matters here."""

    def __init__(self) -> None:
        self.read: set[str] = set()
        self._made: set[str] = set()
        self._sure = True
        """Whether what is visited runs in any case."""

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str):
            # It may be code: IPython puts magics, with the cell below them, into strings.
            self.read.update(_read_first(node.value) - self._made)

    def visit_Name(self, node: ast.Name) -> None:
        if not isinstance(node.ctx, ast.Store):
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
