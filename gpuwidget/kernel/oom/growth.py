"""Find the statements of the failed code that keep more with each step, such as ``losses.append(loss)``.

Only source is read: nothing of the user's code runs.
"""

from __future__ import annotations

import ast
import copy
import linecache
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import CodeType, TracebackType
from typing import Any, Literal

from gpuwidget.kernel.oom.failed_cell import FailedCell
from gpuwidget.kernel.shell.user_code import UserCode
from gpuwidget.measure.out_of_memory import CodeLine
from gpuwidget.model.cell_source import CellSource

GrowthKind = Literal["item", "sum", "carry", "retain_graph"]
"""``item``: something is added to a container. ``sum``: a result is added to a tensor. ``carry``: a tensor is
computed from its own value in the step before. ``retain_graph``: ``backward(retain_graph=True)``."""

_ADDERS = frozenset(("append", "appendleft", "add", "extend", "insert", "update"))
_JOINERS = frozenset(("cat", "concat", "concatenate", "stack", "vstack", "hstack"))
_STEP_FUNCTIONS = frozenset(("forward", "__call__"))
"""Functions whose local variables belong to one step of a model."""
_MAX_FILES = 20
_MAX_FRAMES = 200
_MAX_STATEMENT = 100


@dataclass(frozen=True, slots=True)
class Growth:
    """A statement with which something grows."""

    identifier: str
    """The variable or attribute that grows: ``history`` for ``self.history["loss"].append(loss)``."""
    kind: GrowthKind
    where: str
    """The cell or file: ``In[3]`` or ``train.py``."""
    line: int
    statement: str
    statement_node: ast.stmt
    value: ast.expr | None
    """The expression that is added, or None if there are several."""


@dataclass(slots=True)
class FailedCode:
    """What the source of the failed code shows."""

    growths: list[Growth] = field(default_factory=list)
    calls_backward: bool = False
    retains_graph: bool = False
    backward_names: set[str] = field(default_factory=set)
    """The names in the expressions on which ``backward()`` is called."""

    comprehensions: list[tuple[CodeLine, int, int]] = field(default_factory=list)
    """The statement of each comprehension that makes a container, and its first and last line."""

    @property
    def identifiers(self) -> frozenset[str]:
        """The names of everything that grows."""
        return frozenset(growth.identifier for growth in self.growths)

    def find(
        self,
        identifier: str | None,
        where: str | None,
        lines: tuple[int, int] | None,
        *,
        is_container: bool,
    ) -> Growth | None:
        """Return the statement that makes ``identifier`` grow, preferably in the lines of its function.

        If the identifier is unknown, only these lines are searched.
        """
        kinds = ("item", "carry") if is_container else ("sum", "carry", "retain_graph")
        growths = [growth for growth in self.growths if growth.kind in kinds]
        inside = [
            growth
            for growth in growths
            if lines is not None and growth.where == where and lines[0] <= growth.line <= lines[1]
        ]
        if identifier is None:
            return inside[0] if inside else None
        for found in (inside, growths):
            named = [growth for growth in found if growth.identifier == identifier]
            if named:
                return min(named, key=lambda growth: kinds.index(growth.kind))
        return None

    def comprehension(self, trace: TracebackType | None, code: UserCode) -> CodeLine | None:
        """Return the comprehension in which the innermost frame of the user's code failed, if any."""
        found = None
        for frame_trace in _traces(trace):
            file, line = frame_trace.tb_frame.f_code.co_filename, frame_trace.tb_lineno
            where = code.name(file)
            if where is not None:
                at = code.cell_line(file, line) or line
                found = next(
                    (
                        one
                        for one, first, last in self.comprehensions
                        if one.where == where.replace("In[", "In [") and first <= at <= last
                    ),
                    found,
                )
        return found


def read_failed_code(
    cell: FailedCell | None, trace: TracebackType | None, codes: Iterable[CodeType], code: UserCode
) -> FailedCode:
    """Read the source of the failed cell, of the frames on the traceback and of the functions ``codes``."""
    found = FailedCode()
    number = cell.number if cell is not None else None
    cell_name = None if number is None else f"In[{number}]"
    raw = getattr(cell.info, "raw_cell", "") if cell is not None else ""
    if type(raw) is str and raw:
        _read_cell(found, raw, cell_name or "a cell")
    functions = dict.fromkeys((*(one.tb_frame.f_code for one in _traces(trace)), *codes))
    files: dict[str, list[CodeType]] = {}
    for one in functions:
        files.setdefault(one.co_filename, []).append(one)
    for file, of_file in list(files.items())[:_MAX_FILES]:
        name = code.name(file)
        if name is None or name == cell_name:
            continue
        lines = [(one.co_firstlineno, last_line(one)) for one in of_file]
        tree = _parse("".join(linecache.getlines(file)))
        if tree is not None:
            _Reader(found, name, lambda line, file=file: code.cell_line(file, line) or line, lines).visit(
                tree
            )
    return found


def last_line(code: CodeType) -> int:
    """Return the last line of a function, including the functions in it."""
    nested = [last_line(one) for one in code.co_consts if type(one) is CodeType]
    return max([code.co_firstlineno, *(line or 0 for _, _, line in code.co_lines()), *nested])


def _read_cell(found: FailedCode, raw: str, name: str) -> None:
    source = CellSource.parse(raw)
    above = source.bodies[-1].lines_above
    lines = [
        # Keep the indentation and the number of lines, but not the magics, which are no Python.
        line[: len(line) - len(line.lstrip())] + "pass" if line.lstrip()[:1] in ("%", "!") else line
        for line in source.lines[above:]
    ]
    tree = _parse("\n".join(lines))
    if tree is not None:
        _Reader(found, name, lambda line: line + above, None).visit(tree)


def _traces(trace: TracebackType | None) -> Iterator[TracebackType]:
    for _ in range(_MAX_FRAMES):
        if trace is None:
            return
        yield trace
        trace = trace.tb_next


def _parse(source: str) -> ast.Module | None:
    with suppress(SyntaxError, ValueError, RecursionError, MemoryError), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(source)
    return None


class _Reader(ast.NodeVisitor):
    def __init__(
        self, found: FailedCode, where: str, line_of: Any, lines: Sequence[tuple[int, int]] | None
    ) -> None:
        """Statements outside of ``lines``, if these are given, are not read."""
        self._found = found
        self._where = where
        self._line_of = line_of
        self._lines = lines
        self._loops: list[ast.AST] = []
        self._functions: list[str] = []
        self._statements: list[ast.stmt] = []

    def visit(self, node: ast.AST) -> None:
        line = getattr(node, "lineno", None)
        if isinstance(node, ast.stmt) and line is not None and not self._is_read(node):
            return
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            self._functions.append(node.name)
            loops, self._loops = self._loops, []
            self.generic_visit(node)
            self._loops = loops
            self._functions.pop()
            return
        if isinstance(node, (ast.For, ast.AsyncFor, ast.While)):
            self._loops.append(node)
            self.generic_visit(node)
            self._loops.pop()
            return
        if isinstance(node, ast.stmt):
            self._statement(node)
            self._statements.append(node)
            self.generic_visit(node)
            self._statements.pop()
            return
        if isinstance(node, ast.Call):
            self._call(node)
        if isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp)) and self._statements:
            at = CodeLine(
                self._where.replace("In[", "In ["),
                self._line_of(node.lineno),
                ast.unparse(self._statements[-1]).splitlines()[0][:_MAX_STATEMENT],
            )
            last = self._line_of(node.end_lineno or node.lineno)
            self._found.comprehensions.append((at, at.line, last))
        self.generic_visit(node)

    def _is_read(self, node: ast.stmt) -> bool:
        if self._lines is None:
            return True
        last = node.end_lineno or node.lineno
        return any(start <= last and node.lineno <= end for start, end in self._lines)

    def _call(self, node: ast.Call) -> None:
        if not isinstance(node.func, ast.Attribute) or node.func.attr != "backward":
            return
        self._found.calls_backward = True
        self._found.backward_names.update(_names(node.func.value))
        keeps = any(
            keyword.arg in ("retain_graph", "create_graph")
            and isinstance(keyword.value, ast.Constant)
            and keyword.value.value is True
            for keyword in node.keywords
        )
        self._found.retains_graph |= keeps

    def _statement(self, node: ast.stmt) -> None:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            self._expression(node, node.value)
        elif isinstance(node, ast.AugAssign) and isinstance(node.op, (ast.Add, ast.Sub)):
            kind: GrowthKind = "item" if isinstance(node.value, (ast.List, ast.Tuple)) else "sum"
            self._add(node, node.target, kind, node.value)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                self._assignment(node, target, node.value)

    def _expression(self, node: ast.Expr, call: ast.Call) -> None:
        function = call.func
        if isinstance(function, ast.Name) and function.id == "setattr" and len(call.args) == 3:
            self._add(node, call.args[0], "item", call.args[2])
        elif isinstance(function, ast.Attribute) and function.attr in _ADDERS and call.args:
            self._add(node, function.value, "item", call.args[-1])
        elif isinstance(function, ast.Attribute) and function.attr == "backward":
            self._add(node, function.value, "retain_graph", None)

    def _assignment(self, node: ast.stmt, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            for part in target.elts:
                self._assignment(node, part, value)
        elif isinstance(target, ast.Subscript):
            self._add(node, target, "item", value)
        elif isinstance(target, (ast.Name, ast.Attribute)):
            written = ast.unparse(target)
            if isinstance(value, ast.BinOp) and isinstance(value.op, (ast.Add, ast.Sub)):
                terms = [term for term in _terms(value) if ast.unparse(term) != written]
                if len(terms) == 1 and written not in _expressions(terms[0]):
                    self._add(node, target, "sum", terms[0])
                    return
            if written not in _expressions(value):
                return
            called = value.func if isinstance(value, ast.Call) else None
            name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            if name in _JOINERS:
                self._add(node, target, "sum", None)
            else:
                self._add(node, target, "carry", None)

    def _add(self, node: ast.stmt, target: ast.expr, kind: GrowthKind, value: ast.expr | None) -> None:
        is_local = isinstance(target, ast.Name)
        identifier = _base_name(target)
        if identifier is None or (
            is_local and self._functions[-1:] and self._functions[-1] in _STEP_FUNCTIONS
        ):
            return
        loop = self._loops[-1] if self._loops else None
        if kind == "retain_graph":
            if not any(isinstance(one, ast.keyword) and one.arg == "retain_graph" for one in ast.walk(node)):
                return
        elif kind == "carry" and not (loop is not None and _calls_backward(loop)):
            return  # without a step in the loop, this is the loop over a model's layers
        elif kind == "sum" and loop is None and is_local:
            return
        self._found.growths.append(
            Growth(
                identifier=identifier,
                kind=kind,
                where=self._where,
                line=self._line_of(node.lineno),
                statement=ast.unparse(node)[:_MAX_STATEMENT],
                statement_node=node,
                value=value,
            )
        )


def _base_name(node: ast.expr) -> str | None:
    """Return the variable or attribute to which an expression belongs: ``a.b["c"].setdefault(d, [])`` belongs
    to ``b``."""
    while True:
        if isinstance(node, ast.Subscript):
            node = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            node = node.func.value
        elif isinstance(node, ast.Attribute):
            return node.attr
        else:
            return node.id if isinstance(node, ast.Name) else None


def _terms(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):
        yield from _terms(node.left)
        yield from _terms(node.right)
    else:
        yield node


def _expressions(node: ast.expr) -> set[str]:
    """Return all variables and attributes in an expression, as source."""
    return {ast.unparse(one) for one in ast.walk(node) if isinstance(one, (ast.Name, ast.Attribute))}


def _names(node: ast.expr) -> Iterator[str]:
    for one in ast.walk(node):
        if isinstance(one, ast.Name):
            yield one.id
        elif isinstance(one, ast.Attribute):
            yield one.attr


def _calls_backward(node: ast.AST) -> bool:
    return any(
        isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute) and one.func.attr == "backward"
        for one in ast.walk(node)
    )


def with_method(growth: Growth, methods: str) -> str | None:
    """Return the statement with ``methods``, such as ``.item()``, called on what is added.

    Return None if the result would not be one line.
    """
    if growth.value is None:
        return None
    old = ast.unparse(growth.value)
    simple = isinstance(growth.value, (ast.Name, ast.Attribute, ast.Subscript, ast.Call))
    new: Any = ast.parse(f"{old if simple else f'({old})'}{methods}", mode="eval").body

    text = ast.unparse(copy.deepcopy(growth.statement_node, {id(growth.value): new}))
    return text if "\n" not in text and len(text) <= _MAX_STATEMENT else None
