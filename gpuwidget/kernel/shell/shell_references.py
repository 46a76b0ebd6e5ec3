"""What a shell holds: the user's variables, and what the notebook itself keeps of past cells.

Results live on in ``Out[n]``, ``_n``, ``_``, ``__`` and ``___`` and in three of IPython's own places; a
failed cell's frames, with all their local variables, in seven.
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
from gpuwidget.heap.user_modules import is_user_module
from gpuwidget.measure.memory_holders import DEBUGGER, LAST_ERROR
from gpuwidget.model.raw_attributes import module_dict

_LAST = ("last_exc", "last_value", "last_traceback", "last_type")
_UNDERS = ("_", "__", "___")
_NUMBERED = re.compile(r"_(\d+)")
_OWN = frozenset(("In", "Out", "_ih", "_oh", "_dh", "__builtins__", "__builtin__"))
_NOWHERE = object()


def variables(shell: Any) -> list[Root]:
    """The user's variables that may lead anywhere, those of their own modules too; None: of the program."""
    user_ns: Mapping[str, object] = vars(sys.modules["__main__"]) if shell is None else shell.user_ns
    found: list[Root] = []
    modules: set[int] = set()
    hidden = {} if shell is None else shell.user_ns_hidden
    for name, value in list(user_ns.items()):
        if not is_tracked(value) or type(name) is not str:
            continue
        if (name in hidden or name[:1] == "_" or name in _OWN) and _hidden(shell, name, value):
            continue
        if issubclass(type(value), ModuleType):
            if is_user_module(value) and id(value) not in modules:
                modules.add(id(value))
                found.append(Root(name, module_dict(value), "variable", is_namespace=True))
        else:
            found.append(Root(name, value, "variable"))
    for name, module in list(sys.modules.items()):
        if id(module) not in modules and name != "__main__" and is_user_module(module):
            modules.add(id(module))
            found.append(Root(name, module_dict(module), "variable", is_namespace=True))
    return found


def is_users(shell: Any, name: str) -> bool:
    """Whether there is a variable of the user's of that name."""
    return name in shell.user_ns and not _hidden(shell, name, shell.user_ns[name])


def notebook(shell: Any) -> list[Root]:
    """What the notebook itself keeps: results, each under all its names, then the last error."""
    if shell is None:
        return [Root(LAST_ERROR, getattr(sys, name, None), "notebook", names_parts=False) for name in _LAST]
    found = [Root(name, value, "notebook") for name, value in _results(shell)]
    found += [Root(LAST_ERROR, value, "notebook", names_parts=False) for value in _error(shell)]
    debugged = getattr(getattr(shell, "InteractiveTB", None), "pdb", None)
    if debugged is not None:
        found.append(Root(DEBUGGER, instance_dict(debugged), "notebook", names_parts=False))
    return found


def excluded_objects(shell: Any) -> list[object]:
    """What no search for the user's variables goes behind: all those places themselves."""
    if shell is None:
        return []
    found: list[object] = [shell, shell.user_ns, shell.user_ns_hidden, shell.displayhook]
    found += [getattr(shell, "kernel", None), shell.user_ns.get("Out"), getattr(shell, "InteractiveTB", None)]
    found.append(getattr(shell, "last_execution_result", None))
    return [value for value in found if value is not None]


def _hidden(shell: Any, name: str, value: object) -> bool:
    """Whether a name is IPython's own: ``In``, ``_3``, ``exit`` and so on, unless the user gave it anew."""
    if shell is None:
        return False
    if shell.user_ns_hidden.get(name, _NOWHERE) is value:
        return True
    if name in _UNDERS:
        return getattr(shell.displayhook, name, _NOWHERE) is value
    number = _NUMBERED.fullmatch(name)
    if number is not None:
        return _out(shell).get(int(number[1]), _NOWHERE) is value
    return name in _OWN


def _is_results(name: str) -> bool:
    return name in _UNDERS or _NUMBERED.fullmatch(name) is not None


def _out(shell: Any) -> dict[int, object]:
    out = shell.user_ns.get("_oh")
    return out if isinstance(out, dict) else {}


def _results(shell: Any) -> Iterator[tuple[str, object]]:
    for number, value in list(_out(shell).items()):
        yield f"Out[{number}]", value
    for name, value in list(shell.user_ns.items()):
        if _is_results(name) and _hidden(shell, name, value):
            yield name, value
    # Kept beside those of the user's namespace, and after them.
    for name in _UNDERS:
        yield name, getattr(shell.displayhook, name, None)
    for name, value in list(shell.user_ns_hidden.items()):
        if _is_results(name):
            yield name, value
    last = getattr(shell, "last_execution_result", None)
    if last is not None:
        yield "the last result", getattr(last, "result", None)


def _error(shell: Any) -> Iterator[object]:
    """Every place that an error lives in after its cell."""
    for name in _LAST:
        yield getattr(sys, name, None)
    last = getattr(shell, "last_execution_result", None)
    yield getattr(last, "error_in_exec", None)
    yield getattr(last, "error_before_exec", None)
    for formatter in _formatters(shell):
        for value in (instance_dict(formatter) or {}).values():
            if issubclass(type(value), (BaseException, TracebackType)):
                yield value


def _formatters(shell: Any) -> list[object]:
    names = ("InteractiveTB", "SyntaxTB", "sys_excepthook")
    return [found for name in names if (found := getattr(shell, name, None)) is not None]


def release(shell: Any, roots: Sequence[Root]) -> None:
    """Let go of some of the roots that :func:`notebook` gave, wherever the shell keeps them."""
    values = {id(root.value): root.value for root in roots if root.name not in (LAST_ERROR, DEBUGGER)}
    if values:
        _release_results(shell, values)
    if any(root.name == LAST_ERROR for root in roots):
        _release_error(shell)
    if any(root.name == DEBUGGER for root in roots):
        shell.InteractiveTB.pdb = None


def _release_results(shell: Any, values: Mapping[int, object]) -> None:
    for name, value in list(shell.user_ns.items()):
        if id(value) in values and _is_results(name) and _hidden(shell, name, value):
            _forget(shell.user_ns, name)
    for name, value in list(shell.user_ns_hidden.items()):
        if id(value) in values and _is_results(name):
            _forget(shell.user_ns_hidden, name)
    for name in _UNDERS:
        if id(getattr(shell.displayhook, name, None)) in values:
            setattr(shell.displayhook, name, "")
    out = _out(shell)
    for number in [number for number, value in out.items() if id(value) in values]:
        del out[number]
    last: Any = getattr(shell, "last_execution_result", None)
    if id(getattr(last, "result", None)) in values:
        last.result = None


def _forget(namespace: dict[str, object], name: str) -> None:
    """As IPython's own flush does it: ``_`` and its like stay, empty."""
    if name in _UNDERS:
        namespace[name] = ""
    else:
        del namespace[name]


def _release_error(shell: Any) -> None:
    for name in _LAST:
        with suppress(AttributeError):
            delattr(sys, name)
    last = getattr(shell, "last_execution_result", None)
    if last is not None and (last.error_in_exec is not None or last.error_before_exec is not None):
        shell.last_execution_result = None
    for formatter in _formatters(shell):
        for name, value in list((instance_dict(formatter) or {}).items()):
            if issubclass(type(value), (BaseException, TracebackType)):
                setattr(formatter, name, None)
