"""Find the names that a failed cell reads before it assigns them.

If these variables were deleted, the cell could not run again. The cell's source contains the names that the
cell itself reads. The names that the user's functions read are found by following the functions to which the
cell refers, and the frames of the traceback. The search runs no user code.
"""

from __future__ import annotations

import ast
import builtins
import gc
import re
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from types import (
    BuiltinFunctionType,
    CodeType,
    FrameType,
    FunctionType,
    GeneratorType,
    ModuleType,
    TracebackType,
)
from typing import Any

from gpuwidget.kernel.shell.user_code import UserCode
from gpuwidget.model.raw_attributes import class_dict, class_module, class_mro, module_dict
from gpuwidget.model.user_files import TIMED_FILES

_MAX_FRAMES = 200
_MAX_OBJECTS = 20_000
_MAX_ITEMS = 1_000
"""Maximum number of items of a container that are followed. Further items rarely have other types."""
_NAME = re.compile(r"[^\W\d]\w*")
# The set contains ids instead of classes, because looking up a class in a set may run code of the metaclass.
_LEAVES = frozenset(
    map(
        id,
        (
            *(int, float, complex, str, bytes, bytearray, bool, type(None), range, slice),
            *(CodeType, BuiltinFunctionType, TracebackType),
        ),
    )
)
_CONTAINERS = frozenset(map(id, (list, tuple, dict, set, frozenset)))


def names_read(
    cell: str,
    trace: TracebackType | None,
    code: UserCode,
    namespace: Mapping[str, object],
    excluded: Iterable[object] = (),
    codes: list[CodeType] | None = None,
) -> frozenset[str] | None:
    """Return the names that a cell and the functions it calls read before they assign them.

    Functions are followed from the names that the cell reads and from the frames on the traceback, but not
    through the objects in ``excluded``. The code of each of the user's functions that was found is added to
    ``codes``. Return None if there are too many objects to follow.
    """
    references = _References(namespace, code, excluded, [] if codes is None else codes)
    for name in _names_read_first(cell):
        references.add_name(name)
    for _ in range(_MAX_FRAMES):
        if trace is None:
            break
        frame = trace.tb_frame
        if not _is_cell_body(frame, code) and (
            frame.f_globals is namespace or code.name(frame.f_code.co_filename) is not None
        ):
            references.add_frame(frame)
        trace = trace.tb_next
    return frozenset(references.names) if references.follow() else None


def _is_cell_body(frame: FrameType, code: UserCode) -> bool:
    """Return whether a frame runs a cell's top-level code.

    The names that this code reads are found in the cell's source instead.
    """
    file, name = frame.f_code.co_filename, frame.f_code.co_name
    return file in TIMED_FILES or (code.is_cell(file) and name.startswith(("<module>", "<cell line")))


# -- names in the cell's source --------------------------------------------------------------------------


def _names_read_first(cell: str) -> set[str]:
    """Return the names that may be read before they are assigned; all names if ``cell`` can't be parsed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the shell has shown these warnings when the cell ran
            tree = ast.parse(cell)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set(_NAME.findall(cell))
    visitor = _ReadBeforeAssigned()
    try:
        visitor.visit(tree)
    except RecursionError:
        return set(_NAME.findall(cell))
    return visitor.read


class _ReadBeforeAssigned(ast.NodeVisitor):
    """Visits code in execution order, and collects the names that may be read before they are assigned."""

    def __init__(self) -> None:
        self.read: set[str] = set()
        self._assigned: set[str] = set()
        self._certain = True
        """Whether the visited code always runs: False in branches, loops and nested functions."""

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str):
            # A string may contain code: IPython puts the bodies of magics into strings.
            self.read.update(_names_read_first(node.value) - self._assigned)

    def visit_Name(self, node: ast.Name) -> None:
        if not isinstance(node.ctx, ast.Store):
            if node.id not in self._assigned:
                self.read.add(node.id)
        elif self._certain:
            self._assigned.add(node.id)

    def visit_Assign(self, node: ast.Assign) -> None:
        self.visit(node.value)
        for target in node.targets:
            self.visit(target)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)
            self.visit(node.target)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name) and node.target.id not in self._assigned:
            self.read.add(node.target.id)
        self.generic_visit(node)

    def visit_For(self, node: ast.For) -> None:
        self.visit(node.iter)
        self._visit_uncertain(node.target, *node.body, *node.orelse)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self.visit(node.value)
        self._visit_uncertain(node.target)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._visit_uncertain(*node.decorator_list, node.args, *node.body)

    def generic_visit(self, node: ast.AST) -> None:
        branches = (ast.If, ast.While, ast.Try, ast.AsyncFunctionDef, ast.AsyncFor, ast.ClassDef, ast.Lambda)
        comprehensions = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.IfExp, ast.BoolOp)
        if isinstance(node, (*branches, *comprehensions, ast.Match)):
            self._visit_uncertain(*ast.iter_child_nodes(node))
        else:
            super().generic_visit(node)

    def _visit_uncertain(self, *nodes: ast.AST) -> None:
        """Visit code that might not run, and ignore its assignments."""
        certain, self._certain = self._certain, False
        for node in nodes:
            self.visit(node)
        self._certain = certain


# -- names in the functions that a cell uses -------------------------------------------------------------


class _References:
    """Follows references to find functions, and collects the names that the functions read.

    Only names in one namespace, the notebook's or the script's, are collected.
    """

    def __init__(
        self,
        namespace: Mapping[str, object],
        code: UserCode,
        excluded: Iterable[object],
        codes: list[CodeType],
    ) -> None:
        self._namespace = namespace
        self._code = code
        self._codes = codes
        self._visited: list[object] = [namespace, vars(builtins), *excluded]
        """All visited objects, kept alive so that no other object reuses an id."""
        self._visited_ids = {id(value) for value in self._visited}
        self._pending: list[object] = []
        self.names: set[str] = set()

    def add_name(self, name: str) -> None:
        """Add the name of a variable that code reads. :meth:`follow` continues from the variable's value."""
        if name not in self.names:
            self.names.add(name)
            if name in self._namespace:
                self._push(self._namespace[name])

    def add_frame(self, frame: FrameType) -> None:
        """Add the names that a frame's code reads. :meth:`follow` continues from the frame's variables."""
        self._add_code(frame.f_code, frame.f_globals)
        for value in gc.get_referents(frame):
            if value is not frame.f_globals:
                self._push(value)

    def follow(self) -> bool:
        """Follow all references. Return False if there are too many objects."""
        while self._pending:
            if len(self._visited) > _MAX_OBJECTS:
                return False
            for value in self._referents(self._pending.pop()):
                self._push(value)
        return True

    def _push(self, value: object) -> None:
        kind = type(value)
        if id(kind) in _LEAVES or id(value) in self._visited_ids or issubclass(kind, FrameType):
            return
        self._visited_ids.add(id(value))
        self._visited.append(value)
        self._pending.append(value)

    def _referents(self, value: Any) -> Iterator[object]:
        kind = type(value)
        if issubclass(kind, ModuleType):
            namespace = module_dict(value)
            if self._is_user_file(namespace.get("__file__")):
                members = list(namespace.values())
                yield from (member for member in members if issubclass(type(member), (FunctionType, type)))
        elif issubclass(kind, type):
            yield kind
            for cls in class_mro(value):
                if self._is_user_class(cls):
                    yield from list(class_dict(cls).values())
        elif kind is FunctionType:
            module_globals = value.__globals__
            if module_globals is self._namespace or self._is_user_file(value.__code__.co_filename):
                self._add_code(value.__code__, module_globals)
            yield from (referent for referent in gc.get_referents(value) if referent is not module_globals)
        elif kind is GeneratorType:
            if value.gi_frame is not None:
                self.add_frame(value.gi_frame)
        elif id(kind) in _CONTAINERS and len(value) > _MAX_ITEMS:
            yield from list(islice(value.values() if kind is dict else value, _MAX_ITEMS))
        else:
            yield kind
            yield from gc.get_referents(value)[:_MAX_ITEMS]

    def _add_code(self, code: CodeType, module_globals: Mapping[str, object]) -> None:
        """Add the names in a function's code.

        If the function belongs to another module, follow the objects to which these names refer instead,
        unless the code refers to ``__main__``.
        """
        self._codes.append(code)
        found = set(_names_in(code))
        if module_globals is self._namespace or "__main__" in found:
            for name in found:
                self.add_name(name)
        else:
            for name in found.intersection(module_globals):
                self._push(module_globals[name])

    def _is_user_file(self, file: object) -> bool:
        return type(file) is str and self._code.name(file) is not None

    def _is_user_class(self, cls: type) -> bool:
        try:
            name = class_module(cls)
        except AttributeError:  # the class has no __module__
            return True
        if type(name) is not str:
            return True
        module = sys.modules.get(name)
        if name == "__main__" or not issubclass(type(module), ModuleType):
            return True
        return self._is_user_file(module_dict(module).get("__file__"))


def _names_in(code: CodeType) -> Iterator[str]:
    """Yield the global and free names in a function's code and in the code of its nested functions."""
    yield from code.co_names
    yield from code.co_freevars
    for constant in code.co_consts:
        if type(constant) is CodeType:
            yield from _names_in(constant)
