"""References that a shell holds: the user's variables, and the results and errors of past cells.

IPython refers to a result in ``Out[n]``, ``_n``, ``_``, ``__`` and ``___`` and in three internal places. It
refers to the frames of a failed cell, and thus to their local variables, in seven places.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from gc import is_tracked
from types import ModuleType, TracebackType
from typing import Any

from gpuwidget.heap.heap_walk import Root
from gpuwidget.heap.object_references import instance_dict
from gpuwidget.measure.holder_ranking import DEBUGGER, LAST_ERROR
from gpuwidget.model.raw_attributes import module_dict
from gpuwidget.model.translation import translatable
from gpuwidget.model.user_files import is_user_module

_LAST_ERROR_NAMES = ("last_exc", "last_value", "last_traceback", "last_type")
_RECENT_RESULTS = ("_", "__", "___")
_NUMBERED_RESULT = re.compile(r"_(\d+)")
_IPYTHON_NAMES = frozenset(("In", "Out", "_ih", "_oh", "_dh", "__builtins__", "__builtin__"))
_MISSING = object()


def variable_roots(shell: Any) -> list[Root]:
    """Return the user's variables that may refer to other objects, and the namespaces of the user's modules.

    If ``shell`` is None, the variables of ``__main__`` are used instead of the notebook's.
    """
    user_ns: Mapping[str, object] = vars(sys.modules["__main__"]) if shell is None else shell.user_ns
    roots: list[Root] = []
    modules: set[int] = set()
    hidden = {} if shell is None else shell.user_ns_hidden
    for name, value in list(user_ns.items()):
        if not is_tracked(value) or type(name) is not str:
            continue
        if (name in hidden or name[:1] == "_" or name in _IPYTHON_NAMES) and _is_hidden(shell, name, value):
            continue
        if issubclass(type(value), ModuleType):
            if is_user_module(value) and id(value) not in modules:
                modules.add(id(value))
                roots.append(Root(name, module_dict(value), "variable", is_namespace=True))
        else:
            roots.append(Root(name, value, "variable"))
    for name, module in list(sys.modules.items()):
        if id(module) not in modules and name != "__main__" and is_user_module(module):
            modules.add(id(module))
            roots.append(Root(name, module_dict(module), "variable", is_namespace=True))
    return roots


def is_user_variable(shell: Any, name: str) -> bool:
    """Return whether ``name`` is a variable that was set by the user and not by IPython."""
    return name in shell.user_ns and not _is_hidden(shell, name, shell.user_ns[name])


def notebook_roots(shell: Any) -> list[Root]:
    """Return the references that IPython keeps: to results, to the last error, and to its debugger.

    There is a reference for each name of a result.
    """
    if shell is None:
        return [
            Root(LAST_ERROR, getattr(sys, name, None), "notebook", names_parts=False)
            for name in _LAST_ERROR_NAMES
        ]
    roots = [Root(name, value, "notebook") for name, value in _results(shell)]
    roots += [Root(LAST_ERROR, value, "notebook", names_parts=False) for value in _errors(shell)]
    debugger = getattr(getattr(shell, "InteractiveTB", None), "pdb", None)
    if debugger is not None:
        roots.append(Root(DEBUGGER, instance_dict(debugger), "notebook", names_parts=False))
    return roots


def excluded_objects(shell: Any) -> list[object]:
    """Return the shell's internal objects, which a search from the user's variables must not follow."""
    if shell is None:
        return []
    found: list[object] = [shell, shell.user_ns, shell.user_ns_hidden, shell.displayhook]
    found += [getattr(shell, "kernel", None), shell.user_ns.get("Out"), getattr(shell, "InteractiveTB", None)]
    found.append(getattr(shell, "last_execution_result", None))
    return [value for value in found if value is not None]


def _is_hidden(shell: Any, name: str, value: object) -> bool:
    """Return whether IPython set the name (``In``, ``_3``, ``exit``) and the user did not reassign it."""
    if shell is None:
        return False
    if shell.user_ns_hidden.get(name, _MISSING) is value:
        return True
    if name in _RECENT_RESULTS:
        return getattr(shell.displayhook, name, _MISSING) is value
    number = _NUMBERED_RESULT.fullmatch(name)
    if number is not None:
        return _output_history(shell).get(int(number[1]), _MISSING) is value
    return name in _IPYTHON_NAMES


def _is_result_name(name: str) -> bool:
    return name in _RECENT_RESULTS or _NUMBERED_RESULT.fullmatch(name) is not None


def _output_history(shell: Any) -> dict[int, object]:
    outputs = shell.user_ns.get("_oh")
    return outputs if isinstance(outputs, dict) else {}


def _results(shell: Any) -> Iterator[tuple[str, object]]:
    for number, value in list(_output_history(shell).items()):
        yield f"Out[{number}]", value
    for name, value in list(shell.user_ns.items()):
        if _is_result_name(name) and _is_hidden(shell, name, value):
            yield name, value
    # The display hook and user_ns_hidden also refer to results, and still do so after the names have been
    # deleted from user_ns.
    for name in _RECENT_RESULTS:
        yield name, getattr(shell.displayhook, name, None)
    for name, value in list(shell.user_ns_hidden.items()):
        if _is_result_name(name):
            yield name, value
    last = getattr(shell, "last_execution_result", None)
    if last is not None:
        yield translatable("the last result"), getattr(last, "result", None)


def _errors(shell: Any) -> Iterator[object]:
    """Yield the last error from each place that still refers to it after the failed cell."""
    for name in _LAST_ERROR_NAMES:
        yield getattr(sys, name, None)
    last = getattr(shell, "last_execution_result", None)
    yield getattr(last, "error_in_exec", None)
    yield getattr(last, "error_before_exec", None)
    for formatter in _traceback_formatters(shell):
        for value in (instance_dict(formatter) or {}).values():
            if issubclass(type(value), (BaseException, TracebackType)):
                yield value


def _traceback_formatters(shell: Any) -> list[object]:
    names = ("InteractiveTB", "SyntaxTB", "sys_excepthook")
    return [found for name in names if (found := getattr(shell, name, None)) is not None]


def release(shell: Any, roots: Sequence[Root]) -> None:
    """Delete the references in ``roots`` from all places where IPython keeps them.

    ``roots`` is a selection from :func:`notebook_roots`.
    """
    values = {id(root.value): root.value for root in roots if root.name not in (LAST_ERROR, DEBUGGER)}
    if values:
        _release_results(shell, values)
    if any(root.name == LAST_ERROR for root in roots):
        _release_error(shell)
    if any(root.name == DEBUGGER for root in roots):
        shell.InteractiveTB.pdb = None


def _release_results(shell: Any, values: Mapping[int, object]) -> None:
    for name, value in list(shell.user_ns.items()):
        if id(value) in values and _is_result_name(name) and _is_hidden(shell, name, value):
            _delete_name(shell.user_ns, name)
    for name, value in list(shell.user_ns_hidden.items()):
        if id(value) in values and _is_result_name(name):
            _delete_name(shell.user_ns_hidden, name)
    for name in _RECENT_RESULTS:
        if id(getattr(shell.displayhook, name, None)) in values:
            setattr(shell.displayhook, name, "")
    outputs = _output_history(shell)
    for number in [number for number, value in outputs.items() if id(value) in values]:
        del outputs[number]
    last: Any = getattr(shell, "last_execution_result", None)
    if id(getattr(last, "result", None)) in values:
        last.result = None


def _delete_name(namespace: dict[str, object], name: str) -> None:
    """Delete a result's name; set ``_``, ``__`` and ``___`` to an empty string, as IPython's flush does."""
    if name in _RECENT_RESULTS:
        namespace[name] = ""
    else:
        del namespace[name]


def _release_error(shell: Any) -> None:
    for name in _LAST_ERROR_NAMES:
        with suppress(AttributeError):
            delattr(sys, name)
    last = getattr(shell, "last_execution_result", None)
    if last is not None and (last.error_in_exec is not None or last.error_before_exec is not None):
        shell.last_execution_result = None
    for formatter in _traceback_formatters(shell):
        for name, value in list((instance_dict(formatter) or {}).items()):
            if issubclass(type(value), (BaseException, TracebackType)):
                setattr(formatter, name, None)
