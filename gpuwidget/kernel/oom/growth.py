"""Find the statements of the failed code that keep more with each step, such as ``losses.append(loss)``.

Only source is read: nothing of the user's code runs.
"""

from __future__ import annotations

import ast
import copy
import linecache
import warnings
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import CodeType, TracebackType
from typing import Any, Literal

from gpuwidget.kernel.oom.failed_cell import FailedCell
from gpuwidget.kernel.shell.user_code import UserCode
from gpuwidget.measure.oom.facts import CodeLine
from gpuwidget.model.cell_source import CellSource

GrowthKind = Literal["item", "sum", "carry", "retain_graph"]
"""``item``: something is added to a container. ``sum``: a result is added to a tensor. ``carry``: a tensor is
computed from its own value in the step before. ``retain_graph``: ``backward(retain_graph=True)``."""

_ADDERS = frozenset(("append", "appendleft", "extend", "insert"))
_JOINERS = frozenset(("cat", "concat", "concatenate", "stack", "vstack", "hstack"))
_TAKERS = frozenset(("pop", "popleft", "popitem"))
_REMOVERS = _TAKERS | {"clear", "remove"}
_PARTS_OF_A_MODEL = frozenset(("parameters", "buffers", "modules", "children", "state_dict", "param_groups"))
"""A loop over these, or over ``named_parameters()`` and its like, runs once for each part of a model, and not
in each step."""
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
    sets_item: bool
    """Whether the statement assigns to an item, which may replace an earlier value."""
    loop: tuple[int, int] | None
    """First and last line of the loop around the statement, if there is one in the same function."""
    is_local: bool
    """Whether this is a local variable of a function, but not a parameter."""


@dataclass(slots=True)
class FailedCode:
    """What the source of the failed code shows."""

    growths: list[Growth] = field(default_factory=list)
    calls_backward: bool = False
    retains_graph: bool = False
    backward_names: set[str] = field(default_factory=set)
    """The names in the expressions on which ``backward()`` is called."""
    sources: dict[str, set[str]] = field(default_factory=dict)
    """For each name, and each function, the names in the expressions that are assigned or returned."""
    running: set[tuple[str, int]] = field(default_factory=set)
    """Cell or file and line of the statements that were running when the error occurred."""

    comprehensions: list[tuple[CodeLine, int, int, frozenset[str]]] = field(default_factory=list)
    """The statement of each comprehension that makes a container, its first and last line, and the names to
    which the statement assigns it."""

    @property
    def identifiers(self) -> frozenset[str]:
        """The names of everything that grows."""
        return frozenset(growth.identifier for growth in self.growths)

    def is_used_in_backward(self, identifier: str | None) -> bool:
        """Return whether ``backward()`` is called on something that may be computed from ``identifier``."""
        found: set[str] = set()
        pending = list(self.backward_names)
        while pending:
            name = pending.pop()
            if name not in found:
                found.add(name)
                pending += self.sources.get(name, ())
        return identifier in found

    def is_running(self, growth: Growth) -> bool:
        """Return whether the error occurred inside the loop around the statement, if it has one."""
        if growth.loop is None:
            return True
        first, last = growth.loop
        return any(where == growth.where and first <= line <= last for where, line in self.running)

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
            named = [
                growth
                for growth in found
                if growth.identifier == identifier and (found is inside or not growth.is_local)
            ]
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
                        for one, first, last, names in self.comprehensions
                        if one.where == where.replace("In[", "In [")
                        and first <= at <= last
                        # Without the graphs of its results, backward() would fail.
                        and not any(map(self.is_used_in_backward, names))
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
    for at in _traces(trace):
        file = at.tb_frame.f_code.co_filename
        where = code.name(file)
        if where is not None:
            found.running.add((where, code.cell_line(file, at.tb_lineno) or at.tb_lineno))
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
            _Reader(
                found, name, lambda line, file=file: code.cell_line(file, line) or line, lines, tree
            ).visit(tree)
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
        _Reader(found, name, lambda line: line + above, None, tree).visit(tree)


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
        self,
        found: FailedCode,
        where: str,
        line_of: Any,
        lines: Sequence[tuple[int, int]] | None,
        tree: ast.Module,
    ) -> None:
        """Statements outside of ``lines``, if these are given, are not read."""
        self._found = found
        self._where = where
        self._line_of = line_of
        self._lines = lines
        self._tree = tree
        self._loops: list[ast.For | ast.AsyncFor | ast.While] = []
        self._functions: list[ast.FunctionDef | ast.AsyncFunctionDef] = []
        self._statements: list[ast.stmt] = []

    def visit(self, node: ast.AST) -> None:
        line = getattr(node, "lineno", None)
        if isinstance(node, ast.stmt) and line is not None and not self._is_read(node):
            return
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            self._functions.append(node)
            loops, self._loops = self._loops, []
            self.generic_visit(node)
            self._loops = loops
            self._functions.pop()
            return
        if isinstance(node, (ast.For, ast.AsyncFor, ast.While)):
            if not isinstance(node, ast.While):
                self._note_source(node.target, node.iter)
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
            if self._functions[-1:] and self._functions[-1].name in _STEP_FUNCTIONS:
                return  # its results belong to one step
            self._found.comprehensions.append((at, at.line, last, self._assigned_names()))
        self.generic_visit(node)

    def _assigned_names(self) -> frozenset[str]:
        statement = self._statements[-1]
        if isinstance(statement, ast.Assign):
            return frozenset(name for target in statement.targets for name in _names(target))
        if isinstance(statement, ast.Return) and self._functions:
            return frozenset((self._functions[-1].name,))
        return frozenset(_names(statement) if _calls_backward(statement) else ())

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
            self._note_source(node.target, node.value)
            kind: GrowthKind = "item" if isinstance(node.value, (ast.List, ast.Tuple)) else "sum"
            self._add(node, node.target, kind, node.value)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                self._note_source(target, node.value)
                self._assignment(node, target, node.value)
        elif isinstance(node, ast.Return) and node.value is not None and self._functions:
            self._found.sources.setdefault(self._functions[-1].name, set()).update(_names(node.value))

    def _note_source(self, target: ast.expr, value: ast.expr) -> None:
        parts = target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]
        for part in parts:
            name = None if (base := _base(part)) is None else _name(base)
            if name is not None:
                self._found.sources.setdefault(name, set()).update(_names(value))

    def _expression(self, node: ast.Expr, call: ast.Call) -> None:
        function = call.func
        if isinstance(function, ast.Name) and function.id == "setattr" and len(call.args) == 3:
            self._add(node, call.args[0], "item", call.args[2])
        elif isinstance(function, ast.Attribute) and function.attr in _ADDERS and call.args:
            self._note_source(function.value, call.args[-1])
            self._add(node, function.value, "item", call.args[-1])
        elif isinstance(function, ast.Attribute) and function.attr == "backward":
            self._add(node, function.value, "retain_graph", None)

    def _assignment(self, node: ast.stmt, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            for part in target.elts:
                self._assignment(node, part, value)
        elif isinstance(target, ast.Subscript) and not _replaces(target, value):
            self._add(node, target, "item", value)
        elif isinstance(target, (ast.Name, ast.Attribute, ast.Subscript)):
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
        base = _base(target)
        function = self._functions[-1] if self._functions else None
        is_local = isinstance(base, ast.Name)
        if base is None or (is_local and function is not None and function.name in _STEP_FUNCTIONS):
            return
        identifier = _name(base)
        loop = self._loops[-1] if self._loops else None
        if kind == "retain_graph":
            if not any(isinstance(one, ast.keyword) and one.arg == "retain_graph" for one in ast.walk(node)):
                return
        elif kind == "carry" and not (loop is not None and _calls_backward(loop)):
            return  # without a step in the loop, this is the loop over a model's layers
        elif kind == "sum" and loop is None and is_local:
            return
        if kind != "retain_graph" and self._is_bounded(base, node, kind):
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
                sets_item=isinstance(target, ast.Subscript) and isinstance(node, ast.Assign),
                loop=None if loop is None else (self._line_of(loop.lineno), self._line_of(loop.end_lineno)),
                is_local=function is not None and _is_local(base, function),
            )
        )

    def _is_bounded(self, base: ast.expr, node: ast.stmt, kind: GrowthKind) -> bool:
        """Return whether what ``node`` adds to does not grow from step to step."""
        written = ast.unparse(base)
        loop = self._loops[-1] if self._loops else None
        function = self._functions[-1] if self._functions else None
        if isinstance(loop, (ast.For, ast.AsyncFor)):
            over = {name.removeprefix("named_") for name in _names(loop.iter)}
            if written in _expressions(loop.iter) or written in _expressions(loop.target):
                return True
            if over & _PARTS_OF_A_MODEL:
                return True
        # "if key not in cache: cache[key] = ..." keeps what the user chose to keep.
        for statement in self._statements:
            if isinstance(statement, ast.If) and any(
                isinstance(one, ast.Compare)
                and isinstance(one.ops[0], ast.NotIn)
                and ast.unparse(one.comparators[0]) == written
                for one in ast.walk(statement.test)
            ):
                return True
        scope = loop or function
        if scope is None:
            return False
        if any(_assigns_anew(one, written, node) for one in _unconditional(scope.body)):
            return True
        if (
            function is not None
            and function.name in _STEP_FUNCTIONS
            and any(_assigns_anew(one, written, node) for one in _unconditional(function.body))
        ):
            return True
        return kind == "item" and (
            any(_removes(one, written, node) for one in ast.walk(scope))
            or any(_is_call(one, written, _TAKERS) for one in ast.walk(function or self._tree))
        )


def _base(node: ast.expr) -> ast.Name | ast.Attribute | None:
    """Return the variable or attribute to which an expression belongs: ``a.b["c"].setdefault(d, [])`` belongs
    to ``a.b``."""
    while True:
        if isinstance(node, ast.Subscript):
            node = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            node = node.func.value
        else:
            return node if isinstance(node, (ast.Name, ast.Attribute)) else None


def _name(node: ast.Name | ast.Attribute) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr


def _is_local(node: ast.expr, function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return whether a function assigns to a variable, and does not declare it as a global one."""
    if not isinstance(node, ast.Name):
        return False
    for one in ast.walk(function):
        if isinstance(one, (ast.Global, ast.Nonlocal)) and node.id in one.names:
            return False
    return any(
        isinstance(one, ast.Name) and one.id == node.id and isinstance(one.ctx, ast.Store)
        for one in ast.walk(function)
    )


def _unconditional(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    for one in body:
        yield one
        if isinstance(one, (ast.With, ast.AsyncWith, ast.Try)):
            yield from _unconditional(one.body)


def _assigns_anew(node: ast.AST, written: str, before: ast.stmt) -> bool:
    """Return whether a statement above ``before`` assigns a value that doesn't depend on the earlier one."""
    if (
        not isinstance(node, (ast.Assign, ast.AnnAssign))
        or node.lineno >= before.lineno
        or node.value is None
    ):
        return False
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    parts = [part for one in targets for part in (one.elts if isinstance(one, ast.Tuple) else [one])]
    return written in map(ast.unparse, parts) and written not in _expressions(node.value)


def _replaces(target: ast.Subscript, value: ast.expr) -> bool:
    """Return whether an assignment adds no item: it has a constant key or a slice, updates an item, or writes
    to a ring buffer."""
    key = target.slice
    is_ring = isinstance(key, ast.BinOp) and isinstance(key.op, ast.Mod)
    is_update = ast.unparse(target) in map(ast.unparse, ast.walk(value))
    return isinstance(key, (ast.Constant, ast.Slice)) or is_ring or is_update


def _is_call(node: ast.AST, written: str, methods: Container[str]) -> bool:
    """Return whether one of ``methods`` is called on the variable or attribute ``written``."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    return node.func.attr in methods and ast.unparse(node.func.value) == written


def _removes(node: ast.AST, written: str, adds: ast.stmt) -> bool:
    """Return whether a statement other than ``adds`` removes items from a container, or replaces it."""
    if _is_call(node, written, _REMOVERS):
        return True
    if isinstance(node, ast.Delete):
        return any(written in _expressions(one) for one in node.targets)
    if not isinstance(node, ast.Assign) or node is adds:
        return False
    # "x = x[-10:]" or "x = []", and "x[:] = []"
    slices = (
        one.value
        for one in node.targets
        if isinstance(one, ast.Subscript) and isinstance(one.slice, ast.Slice)
    )
    return written in map(ast.unparse, (*node.targets, *slices))


def _terms(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):
        yield from _terms(node.left)
        yield from _terms(node.right)
    else:
        yield node


def _expressions(node: ast.expr) -> set[str]:
    """Return all variables and attributes in an expression, as source."""
    return {ast.unparse(one) for one in ast.walk(node) if isinstance(one, (ast.Name, ast.Attribute))}


def _names(node: ast.AST) -> Iterator[str]:
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
