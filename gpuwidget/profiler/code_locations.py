"""Find where a thread is: the line of the cell, the innermost of the user's frames that this line has called,
and the library call.

The module keeps no reference to a frame, except through the cell's asyncio task, which exists anyway. It
never reads a frame's variables, because on some Python versions reading them modifies the running function.
It calls no user code: a cell may await any object, but only Python's built-in awaitables are inspected.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from types import AsyncGeneratorType, CodeType, CoroutineType, FrameType, GeneratorType
from typing import Any, NamedTuple

from gpuwidget.model.cell_source import UNKNOWN_SOURCE, CellSource, MagicBody
from gpuwidget.model.report import WAITING_FOR_CHILD
from gpuwidget.model.thread_frames import caller_of
from gpuwidget.model.user_files import MAGIC_FILES, is_user_file
from gpuwidget.profiler import preemption
from gpuwidget.profiler.code_names import MODULE_NAMES, fixed_name, frame_name, function_name

_MAX_CODES = 4096
_MAX_DEPTH = 2000
_WRAPPER, _LIBRARY, _NAMED_CALL, _USER, _CELL, _RUNNER, _LINE_MAGIC, _WAITING = range(8)
"""The kinds of frames. ``_WRAPPER``: a function that only forwards a call. ``_NAMED_CALL``: a library
function or compiled code for which ``code_names.fixed_name`` returns a name. ``_RUNNER``: library code from a
file that was on the stack when the cell began. ``_LINE_MAGIC``: the code that a magic compiles from its
argument, as in ``%time f(x)``; its time is attributed to the line of the magic. ``_WAITING``: a call that
waits for a child process. Frames that it calls never count as the user's, whatever files they come from."""

_WRAPPER_NAMES = frozenset(
    {"_call_impl", "_wrapped_call_impl", "wrapper", "_use_grad", "_fn", "decorate_context"}
)


class _Code(NamedTuple):
    """A code object with its kind, its module and the offset of its line numbers."""

    code: CodeType
    """This reference keeps the code object alive, so that its ``id`` stays unique."""
    kind: int
    module: str
    lines_above: int
    """Number to add to a line number of the code to get the line number in the cell."""


class CodeLocation(NamedTuple):
    """A thread's position. Code objects are identified by their ``id``; 0 means that there is none."""

    cell: int
    """The cell's innermost code object on the stack or among the frames that its task awaits; 0 if the thread
    was not in the cell's code."""
    cell_offset: int
    """Offset of the current instruction in the code object ``cell``."""
    user: int
    """The innermost code object of the user's code outside the cell."""
    user_offset: int
    call: int
    """The library function that the user's code called. If the thread was not in the cell's code, this is a
    library function whose file was not on the stack when the cell began."""


OUTSIDE = CodeLocation(0, 0, 0, 0, 0)


class CodeLocator:
    """Locates one thread while one cell runs.

    ``is_cell`` returns whether a file name belongs to a cell, and is called many times while the cell runs.
    ``cell_name`` returns a name such as ``In[3]`` for a cell's file, and None for other files. It may be
    slow, because it is called only for snapshots and reports. ``number_in_cell`` takes a file name and a line
    of a cell's code. It returns the line's number in the cell, or None if it is unknown. It may be slow too.
    """

    def __init__(
        self,
        is_cell: Callable[[str], bool],
        cell_name: Callable[[str], str | None],
        source: CellSource = UNKNOWN_SOURCE,
        number_in_cell: Callable[[str, int], int | None] = lambda file, line: None,
    ) -> None:
        self._is_cell = is_cell
        self._cell_name = cell_name
        self._source = source
        self._number_in_cell = number_in_cell
        self._codes: dict[int, _Code] = {}
        """The code objects found so far, by ``id``."""
        self._cell_file: str | None = None
        self._files_before: frozenset[str] = frozenset()
        self._task: Any = None

    def begin(self, frame: FrameType | None, task: Any) -> None:
        """Prepare for a cell whose code is called from ``frame``, in the asyncio ``task`` if there is one."""
        files = set()
        while frame is not None:
            files.add(frame.f_code.co_filename)
            frame = frame.f_back
        self._files_before = frozenset(files)
        self._task = task

    def end(self) -> None:
        """Drop the reference to the cell's asyncio task. The code objects are kept for the report."""
        self._task = None

    # -- locating ------------------------------------------------------------------------------------

    def locate(self, top: FrameType | None) -> CodeLocation:
        """Return the location of the thread whose innermost frame is ``top``."""
        if self._cell_file is None:
            self._find_cell_file(top)
        cell = cell_offset = user = user_offset = named = call = outside = 0
        in_line_magic = False
        codes = self._codes
        frame, remaining = top, _MAX_DEPTH
        while frame is not None and remaining:
            remaining -= 1
            key = id(frame.f_code)
            kind = (codes.get(key) or self._register(frame)).kind
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
            frame = caller_of(frame)
        if cell:
            return CodeLocation(cell, cell_offset, user, user_offset, named or call)
        return self._locate_await(user, user_offset, named or call, named or outside)

    def _find_cell_file(self, top: FrameType | None) -> None:
        """Store the file name of the cell, once a module-level frame of the cell is found.

        The outermost such frame on the stack is used, or otherwise the outermost one in the await chain.
        """
        found = None
        frame = top
        while frame is not None:
            if self._is_cell_module(frame.f_code):
                found = frame.f_code
            frame = caller_of(frame)
        if found is None:
            found = next((f.f_code for f in self._await_chain() if self._is_cell_module(f.f_code)), None)
        if found is not None:
            self._cell_file = found.co_filename

    def _is_cell_module(self, code: CodeType) -> bool:
        return (
            code.co_name.startswith(MODULE_NAMES)
            and code.co_filename not in self._files_before
            and self._is_cell(code.co_filename)
        )

    def _await_chain(self) -> list[FrameType]:
        """Return the frames of the task's coroutine and of everything it awaits, the outermost first."""
        frames: list[FrameType] = []
        task = self._task
        awaitable: object = asyncio.Task.get_coro(task) if issubclass(type(task), asyncio.Task) else None
        while len(frames) < _MAX_DEPTH:
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
        """Return the location of a thread whose stack has no cell frame, e.g. while the cell awaits."""
        cell = cell_offset = deepest = deepest_offset = awaited = 0
        for frame in self._await_chain():
            key = id(frame.f_code)
            kind = (self._codes.get(key) or self._register(frame)).kind
            if kind == _CELL:
                cell, cell_offset, deepest, awaited = key, frame.f_lasti, 0, 0
            elif kind == _USER:
                deepest, deepest_offset, awaited = key, frame.f_lasti, 0
            elif cell and not awaited and kind not in (_WRAPPER, _LINE_MAGIC):
                awaited = key
        if user and self._codes[user].code.co_filename not in self._files_before:
            # Another of the user's tasks is running, so the time is attributed to that task's code.
            return CodeLocation(cell, cell_offset, user, user_offset, call)
        if cell:
            return CodeLocation(cell, cell_offset, deepest, deepest_offset, awaited)
        return CodeLocation(0, 0, 0, 0, outside)

    def _register(self, frame: FrameType) -> _Code:
        """Classify the code of ``frame``, cache the result and return it."""
        code, module = frame.f_code, dict.get(frame.f_globals, "__name__")
        if len(self._codes) >= _MAX_CODES:
            return _Code(code, _LIBRARY, "", 0)
        body = self._cell_body(frame)
        kind = self._kind_outside(code) if body is None else _CELL
        known = _Code(code, kind, module if type(module) is str else "", body.lines_above if body else 0)
        self._codes[id(code)] = known
        return known

    def _cell_body(self, frame: FrameType) -> MagicBody | None:
        """Return the body of the cell that contains the frame's code, or None for code outside the cell."""
        file = frame.f_code.co_filename
        if file == self._cell_file:
            return self._source.bodies[0]
        return self._magic_body(frame) if file.startswith("<") or self._is_cell(file) else None

    def _kind_outside(self, code: CodeType) -> int:
        file, name = code.co_filename, fixed_name(code)
        if self._is_cell(file):
            return _USER
        if file in MAGIC_FILES and code.co_name in ("<module>", "inner"):
            return _LINE_MAGIC
        if name == WAITING_FOR_CHILD:
            return _WAITING
        if is_user_file(file):
            return _USER
        if name is not None:
            return _NAMED_CALL
        if code.co_name in _WRAPPER_NAMES:
            return _WRAPPER
        return _RUNNER if file in self._files_before else _LIBRARY

    def _magic_body(self, frame: FrameType) -> MagicBody | None:
        """Return the body of the cell magic that contains the frame's code, or None if there is none."""
        bodies = self._source.bodies
        code, remaining = frame.f_code, _MAX_DEPTH
        roots: list[CodeType] = []
        current: FrameType | None = frame
        while current is not None and remaining and len(roots) < len(bodies):
            remaining -= 1
            file = current.f_code.co_filename
            if current.f_code.co_name.startswith(MODULE_NAMES) and (
                file.startswith("<") or self._is_cell(file)
            ):
                roots.append(current.f_code)
                if file == self._cell_file:
                    break
            current = caller_of(current)
        level = len(roots) - 1
        if level < 1 or roots[-1].co_filename != self._cell_file:
            return None
        root, body = roots[0], bodies[level]
        if code.co_filename != root.co_filename or not body.has_file(root.co_filename):
            return None
        return body if code is root or self._source.defines(body, code) else None

    # -- lines and names -----------------------------------------------------------------------------

    def cell_line(self, location: CodeLocation) -> int | None:
        """Return the line of the cell at ``location``, or None if the location is outside the cell's code."""
        return self._line(location.cell, location.cell_offset)

    def _line(self, key: int, offset: int) -> int | None:
        known = self._codes.get(key)
        if known is None:
            return None
        found = None
        for start, end, line in known.code.co_lines():
            if start <= offset < end:
                found = line
        return (found if found is not None else known.code.co_firstlineno) + known.lines_above

    def candidate_lines(self, location: CodeLocation, *, before_call: bool = False) -> frozenset[int]:
        """Return the cell's lines that may have held the GIL just before ``location`` was sampled.

        If the line has called a function, that is impossible, unless the function has hardly begun. If
        ``before_call`` is true, the lines before this call are returned.
        """
        known = self._codes.get(location.cell)
        if known is None or ((location.user or location.call) and not before_call):
            return frozenset()
        lines = preemption.candidate_lines(known.code, location.cell_offset, before_call=before_call)
        return frozenset(line + known.lines_above for line in lines)

    def cell_file(self, location: CodeLocation) -> str | None:
        """Return the file name of the cell's code, or None if ``location`` is outside the cell's code."""
        known = self._codes.get(location.cell)
        return None if known is None else known.code.co_filename

    def frame(self, location: CodeLocation) -> str | None:
        """Return the name of the user's frame, such as ``train.py:31 step``; None if there is none."""
        known = self._codes.get(location.user)
        if known is None:
            return None
        file = known.code.co_filename
        line = self._line(location.user, location.user_offset)
        if line is not None:
            line = self._number_in_cell(file, line) or line
        return frame_name(known.code, self._cell_name(file) or os.path.basename(file), line)

    def call(self, location: CodeLocation) -> str | None:
        """Return the name of the library function called at ``location``, or :data:`WAITING_FOR_CHILD`.

        Return None if no library function was called, or if it has no name.
        """
        known = self._codes.get(location.call)
        return None if known is None else function_name(known.code, known.module)
