"""Locate a thread in the user's code: the cell's line, the user's deepest frame below it, the library call.

No reference to a frame is kept, except through the cell's asyncio task, which exists anyway. A frame's
variables are never read, because on some Python versions reading them modifies the running function. No user
code is called: a cell may await any object, but only Python's built-in awaitables are inspected.
"""

from __future__ import annotations

import asyncio
import os
import sysconfig
from collections.abc import Callable, Mapping, Sequence
from types import AsyncGeneratorType, CodeType, CoroutineType, FrameType, GeneratorType
from typing import Any, NamedTuple

from gpuwidget.model.cell_source import UNKNOWN_SOURCE, CellSource, MagicBody
from gpuwidget.model.report import WAITING_FOR_CHILD
from gpuwidget.model.user_files import MAGIC_FILES, is_compiled_by_torch, is_user_file
from gpuwidget.profiler import preemption

_MAX_CODES = 4096
_MAX_DEPTH = 2000
_MAX_AWAIT_DEPTH = 200
_WRAPPER, _LIBRARY, _NAMED_CALL, _USER, _CELL, _RUNNER, _LINE_MAGIC, _WAITING = range(8)
"""The kinds of frames. ``_WRAPPER``: a function that only forwards a call. ``_NAMED_CALL``: a library
function with an entry in ``_CALL_NAMES``, or code compiled by torch. ``_RUNNER``: library code that was on
the stack when the cell began. ``_LINE_MAGIC``: the code that a magic compiles from its argument, as in
``%time f(x)``, whose time counts for the line of the magic. ``_WAITING``: a call that waits for a child
process. Frames that it calls never count as the user's, whatever their files."""

_WAIT_FUNCTIONS: Mapping[str, Sequence[str]] = {
    "IPython/core/interactiveshell.py": ("getoutput", "system_piped", "system_raw"),
    "IPython/core/magics/script.py": ("in_thread",),
    "IPython/utils/_process_common.py": ("process_handler",),
    "IPython/utils/_process_posix.py": ("system",),
    "asyncio/subprocess.py": ("communicate", "wait"),
    "ipykernel/zmqshell.py": ("system_piped",),
    "multiprocessing/process.py": ("join",),
    "pexpect/utils.py": ("poll_ignore_interrupts", "select_ignore_interrupts"),
    "torch/multiprocessing/spawn.py": ("join",),
    f"{os.path.basename(sysconfig.get_path('stdlib'))}/subprocess.py": ("communicate", "wait"),
}
"""Names of functions that wait for a child process, by the end of the path of their file."""
_CALL_NAMES = {
    **{(file, name): WAITING_FOR_CHILD for file, names in _WAIT_FUNCTIONS.items() for name in names},
    ("torch/utils/data/dataloader.py", "_next_data"): "DataLoader._next_data",
    ("torch/utils/data/dataloader.py", "_get_iterator"): "DataLoader.__iter__",
    ("torch/_tensor.py", "backward"): "Tensor.backward",
    ("torch/cuda/__init__.py", "synchronize"): "torch.cuda.synchronize",
    ("torch/cuda/streams.py", "synchronize"): "torch.cuda.Event.synchronize",
}
"""Public names of library calls, by the end of the path of the function's file and the function's name."""
_COMPILED = "code compiled by torch"
_MODULE_NAMES = ("<module", "<cell line")
_WRAPPER_NAMES = frozenset(
    {"_call_impl", "_wrapped_call_impl", "wrapper", "_use_grad", "_fn", "decorate_context"}
)


class CodeLocation(NamedTuple):
    """A thread's position. Code objects are given by their ``id``; 0 means none."""

    cell: int
    """The cell's innermost code object on the stack; 0 if the thread was not in the cell's code."""
    cell_offset: int
    """Offset of the current instruction in the code object ``cell``."""
    user: int
    """The deepest of the user's code objects on the stack that is not part of the cell."""
    user_offset: int
    call: int
    """The library function that the user's code called. Outside the cell, a function that was not on the
    stack when the cell began."""


OUTSIDE = CodeLocation(0, 0, 0, 0, 0)


class CodeLocator:
    """Locates one thread during one cell.

    ``is_cell`` returns whether a file name belongs to a cell, and is called many times while the cell runs.
    ``cell_name`` returns a name such as ``In[3]`` for a cell's file, else None. It may be slow, because it is
    called only for snapshots and reports.
    """

    def __init__(
        self,
        is_cell: Callable[[str], bool],
        cell_name: Callable[[str], str | None],
        source: CellSource = UNKNOWN_SOURCE,
    ) -> None:
        self._is_cell = is_cell
        self._cell_name = cell_name
        self._source = source
        self._codes: dict[int, CodeType] = {}
        """Code objects by id. Keeping them alive ensures that their ids stay unique."""
        self._kinds: dict[int, int] = {}
        self._modules: dict[int, str] = {}
        self._line_offsets: dict[int, int] = {}
        """For each code object of the cell, the number to add to its line numbers."""
        self._cell_file: str | None = None
        self._files_before: frozenset[str] = frozenset()
        self._task: Any = None

    def begin(self, frame: FrameType | None, task: Any) -> None:
        """Prepare for a cell that runs on top of ``frame``, in the asyncio ``task`` if there is one."""
        files = set()
        while frame is not None:
            files.add(frame.f_code.co_filename)
            frame = frame.f_back
        self._files_before = frozenset(files)
        self._task = task

    def end(self) -> None:
        """Drop the reference to the cell's asyncio task. Only code objects are kept."""
        self._task = None

    # -- locating ------------------------------------------------------------------------------------

    def locate(self, top: FrameType | None) -> CodeLocation:
        """Return the location of the thread whose deepest frame is ``top``."""
        if self._cell_file is None:
            self._find_cell_file(top)
        cell = cell_offset = user = user_offset = named = call = outside = 0
        in_line_magic = False
        kinds = self._kinds
        frame, remaining = top, _MAX_DEPTH
        while frame is not None and remaining:
            remaining -= 1
            code = frame.f_code
            key = id(code)
            kind = kinds.get(key)
            if kind is None:
                kind = self._register(frame)
            if kind == _CELL:
                cell, cell_offset = key, frame.f_lasti
                break
            if kind == _USER:
                if not user:
                    user, user_offset = key, frame.f_lasti
            elif kind == _WAITING:
                user = user_offset = 0
                named = call = outside = key
            elif kind == _LINE_MAGIC:
                in_line_magic = True
            elif not user and not in_line_magic and kind != _WRAPPER:
                call = key
                if kind != _RUNNER:
                    outside = key
                if kind == _NAMED_CALL and not named:
                    named = key
            frame = frame.f_back
        if cell:
            return CodeLocation(cell, cell_offset, user, user_offset, named or call)
        return self._locate_await(user, user_offset, named or call, named or outside)

    def _find_cell_file(self, top: FrameType | None) -> None:
        """Find the cell's file: that of the outermost module-level cell frame, on the stack or awaited."""
        found = None
        frame = top
        while frame is not None:
            if self._is_cell_module(frame.f_code):
                found = frame.f_code
            frame = frame.f_back
        if found is None:
            found = next((f.f_code for f in self._await_chain() if self._is_cell_module(f.f_code)), None)
        if found is not None:
            self._cell_file = found.co_filename
            self._kinds.clear()

    def _is_cell_module(self, code: CodeType) -> bool:
        return (
            code.co_name.startswith(_MODULE_NAMES)
            and code.co_filename not in self._files_before
            and self._is_cell(code.co_filename)
        )

    def _await_chain(self) -> list[FrameType]:
        """Return the frames of the task's coroutine and of what it awaits, the outermost first."""
        frames: list[FrameType] = []
        task = self._task
        awaitable: object = asyncio.Task.get_coro(task) if issubclass(type(task), asyncio.Task) else None
        while len(frames) < _MAX_AWAIT_DEPTH:
            frame: FrameType | None
            awaited: object
            if type(awaitable) is CoroutineType:
                frame, awaited = awaitable.cr_frame, awaitable.cr_await
            elif type(awaitable) is GeneratorType:
                frame, awaited = awaitable.gi_frame, awaitable.gi_yieldfrom
            elif type(awaitable) is AsyncGeneratorType:
                frame, awaited = awaitable.ag_frame, awaitable.ag_await
            else:
                break
            if frame is None:
                break
            frames.append(frame)
            awaitable = awaited
        return frames

    def _locate_await(self, user: int, user_offset: int, call: int, outside: int) -> CodeLocation:
        """Return the location if no frame of the cell is on the stack, as while the cell awaits."""
        cell = cell_offset = deepest = deepest_offset = awaited = 0
        for frame in self._await_chain():
            key = id(frame.f_code)
            kind = self._kinds.get(key)
            if kind is None:
                kind = self._register(frame)
            if kind == _CELL:
                cell, cell_offset, deepest, awaited = key, frame.f_lasti, 0, 0
            elif kind == _USER:
                deepest, deepest_offset, awaited = key, frame.f_lasti, 0
            elif cell and not awaited and kind not in (_WRAPPER, _LINE_MAGIC):
                awaited = key
        if user and self._codes[user].co_filename not in self._files_before:
            # Another of the user's tasks is running, so the time counts for its code.
            return CodeLocation(cell, cell_offset, user, user_offset, call)
        if cell:
            return CodeLocation(cell, cell_offset, deepest, deepest_offset, awaited)
        return CodeLocation(0, 0, 0, 0, outside)

    def _register(self, frame: FrameType) -> int:
        """Return the kind of the frame's code, and cache it."""
        code = frame.f_code
        key = id(code)
        if len(self._codes) >= _MAX_CODES and key not in self._codes:
            return _LIBRARY
        kind = self._classify(frame)
        self._codes[key] = code
        self._kinds[key] = kind
        module = dict.get(frame.f_globals, "__name__")
        self._modules[key] = module if type(module) is str else ""
        return kind

    def _classify(self, frame: FrameType) -> int:
        code = frame.f_code
        file = code.co_filename
        if self._cell_file is not None and file == self._cell_file:
            self._line_offsets[id(code)] = self._source.bodies[0].lines_above
            return _CELL
        in_some_cell = self._is_cell(file)
        if in_some_cell or file.startswith("<"):
            body = self._magic_body(frame)
            if body is not None:
                self._line_offsets[id(code)] = body.lines_above
                return _CELL
        if in_some_cell:
            return _USER
        if file in MAGIC_FILES and code.co_name in ("<module>", "inner"):
            return _LINE_MAGIC
        if is_compiled_by_torch(file):
            return _NAMED_CALL
        if _call_name(code) == WAITING_FOR_CHILD:
            return _WAITING
        if is_user_file(file):
            return _USER
        if _call_name(code) is not None:
            return _NAMED_CALL
        if code.co_name in _WRAPPER_NAMES:
            return _WRAPPER
        return _RUNNER if file in self._files_before else _LIBRARY

    def _magic_body(self, frame: FrameType) -> MagicBody | None:
        """Return the magic's body in the cell that the frame's code belongs to, or None."""
        bodies = self._source.bodies
        code, remaining = frame.f_code, _MAX_DEPTH
        roots: list[CodeType] = []
        current: FrameType | None = frame
        while current is not None and remaining and len(roots) < len(bodies):
            remaining -= 1
            file = current.f_code.co_filename
            if current.f_code.co_name.startswith(_MODULE_NAMES) and (
                file.startswith("<") or self._is_cell(file)
            ):
                roots.append(current.f_code)
                if file == self._cell_file:
                    break
            current = current.f_back
        level = len(roots) - 1
        if level < 1 or roots[-1].co_filename != self._cell_file:
            return None
        root, body = roots[0], bodies[level]
        if code.co_filename != root.co_filename or not body.has_file(root.co_filename):
            return None
        return body if code is root or self._source.defines(body, code) else None

    # -- names ---------------------------------------------------------------------------------------

    def line(self, key: int, offset: int) -> int | None:
        """Return the line of the instruction at ``offset``, for code of the cell as a line of the cell."""
        code = self._codes.get(key)
        if code is None:
            return None
        found = None
        for start, end, line in code.co_lines():
            if start <= offset < end:
                found = line
        return (found if found is not None else code.co_firstlineno) + self._line_offsets.get(key, 0)

    def cell_line(self, location: CodeLocation) -> int | None:
        """Return the cell's line at ``location``, or None outside the cell's code."""
        return self.line(location.cell, location.cell_offset)

    def candidate_lines(self, location: CodeLocation) -> frozenset[int]:
        """Return the cell's lines that may have held the GIL just before ``location`` was sampled."""
        code = self._codes.get(location.cell)
        if code is None or location.user or location.call:
            return frozenset()
        line_offset = self._line_offsets.get(location.cell, 0)
        return frozenset(
            line + line_offset for line in preemption.candidate_lines(code, location.cell_offset)
        )

    def file(self, key: int) -> str | None:
        """Return the file name of a code object, or None if it is unknown."""
        code = self._codes.get(key)
        return None if code is None else code.co_filename

    def frame(self, key: int, line: int | None) -> str | None:
        """Return a frame's name for users, such as ``train.py:31 step`` or ``In[2]:4 step``."""
        code = self._codes.get(key)
        if code is None:
            return None
        name = self._cell_name(code.co_filename) or os.path.basename(code.co_filename)
        position = f"{name}:{line}"
        return position if code.co_name.startswith(_MODULE_NAMES) else f"{position} {_qualified_name(code)}"

    def call(self, key: int) -> str | None:
        """Return a call's public name, such as ``DataLoader._next_data``, or :data:`WAITING_FOR_CHILD`."""
        code = self._codes.get(key)
        if code is None:
            return None
        if is_compiled_by_torch(code.co_filename):
            return _COMPILED
        known = _call_name(code)
        if known is not None:
            return known
        name = _qualified_name(code)
        if name.startswith("<"):
            return None
        module = self._modules.get(key, "")
        if "." in name or not module:
            return name
        return f"{module if module.count('.') <= 1 else module.partition('.')[0]}.{name}"


def _qualified_name(code: CodeType) -> str:
    name: str = getattr(code, "co_qualname", code.co_name)  # since Python 3.11
    return name.rpartition("<locals>.")[2]


def _call_name(code: CodeType) -> str | None:
    parts = code.co_filename.replace(os.sep, "/").rsplit("/", 4)
    for count in range(1, len(parts)):
        found = _CALL_NAMES.get(("/".join(parts[-count:]), code.co_name))
        if found is not None:
            return found
    return None
