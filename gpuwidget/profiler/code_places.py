"""Where a thread is, in the words of the user's own code: the cell's line, a frame below it, the call.

Frames are looked at, never kept, except those of the cell itself, whose variables are the notebook's. Nothing
asks for a frame's variables: on some Pythons that writes into a function that runs. And nothing runs code of
the user's: what a cell awaits may be any object, and only Python's own kinds are asked.
"""

from __future__ import annotations

import asyncio
import functools
import os
import sys
import sysconfig
from collections.abc import Callable, Mapping, Sequence
from types import AsyncGeneratorType, CodeType, CoroutineType, FrameType, GeneratorType
from typing import Any, NamedTuple

from gpuwidget.model.cell_source import MAGIC_FILES, UNKNOWN_SOURCE, CellSource, MagicBody
from gpuwidget.model.report import WAITING_FOR_CHILD
from gpuwidget.profiler import blocking_operations

_MOST_CODES = 4096
_DEEPEST = 2000
_LONGEST_AWAIT = 200
_EMPTY, _LIBRARY, _KNOWN, _USER, _OWN, _RUNNER, _BODY, _WAITING = range(8)
"""What a frame is. ``_RUNNER``: a library's that ran already when the cell began. ``_BODY``: what a magic
made of the text behind it, ``%time f(x)``: its time is that of the line that holds it. ``_WAITING``: a call
that waits for a child process, so that no frame below it is the user's, wherever its file is."""

"""Stands in the place of a call's name."""

_PACKAGES = ("site-packages", "dist-packages", f"{os.sep}ipywidgets{os.sep}")
"""In the path of what was installed; of the widgets' clean-up, which can strike anywhere, wherever it is."""
_WAITS_FOR_CHILD: Mapping[str, Sequence[str]] = {
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
"""Functions that wait for a child process, by the end of their file."""
_KNOWN_CALLS = {
    **{(file, name): WAITING_FOR_CHILD for file, names in _WAITS_FOR_CHILD.items() for name in names},
    ("torch/utils/data/dataloader.py", "_next_data"): "DataLoader._next_data",
    ("torch/utils/data/dataloader.py", "_get_iterator"): "DataLoader.__iter__",
    ("torch/_tensor.py", "backward"): "Tensor.backward",
    ("torch/cuda/__init__.py", "synchronize"): "torch.cuda.synchronize",
    ("torch/cuda/streams.py", "synchronize"): "torch.cuda.Event.synchronize",
}
"""Calls known by another name than their function's, by the end of its file and the function's name."""
_COMPILED = "code compiled by torch"
_COMPILED_FOLDERS = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
"""Where the user says that generated code goes."""
_COMPILED_PATHS = ("torchinductor_", "/.triton/cache/")
_MODULE_NAMES = ("<module", "<cell line")
_EMPTY_NAMES = frozenset(
    {"_call_impl", "_wrapped_call_impl", "wrapper", "_use_grad", "_fn", "decorate_context"}
)
"""Functions that only hand a call on: what they call says more."""


class Place(NamedTuple):
    """Where a thread was. Codes are told by their ``id``, positions by the instruction's offset."""

    own: int
    """The cell's code; 0 where the thread was in none of it."""
    own_at: int
    user: int
    """The deepest code of the user's own that is no part of the cell; 0 without one."""
    user_at: int
    call: int
    """The library's code that the user's had called; 0 where it was in none. Outside the cell: what ran that
    did not run already when the cell began."""


class Places:
    """Finds out where one thread is, for the time of one cell.

    ``is_cell`` tells the file of a cell's code from any other, again and again while the cell runs.
    ``cell_name`` gives ``In[3]`` for it and None for any other; it may take longer, and is asked afterwards.
    """

    def __init__(
        self,
        is_cell: Callable[[str], bool],
        cell_name: Callable[[str], str | None],
        text: CellSource = UNKNOWN_SOURCE,
    ) -> None:
        self._is_cell = is_cell
        self._cell_name = cell_name
        self._text = text
        self._libraries = _libraries()
        self._codes: dict[int, CodeType] = {}
        self._kinds: dict[int, int] = {}
        self._modules: dict[int, str] = {}
        self._shifts: dict[int, int] = {}
        """For codes of the cell's own whose lines are counted from elsewhere: what to add."""
        self._own_file: str | None = None
        self._before: frozenset[str] = frozenset()
        self._task: Any = None

    def begin(self, frame: FrameType | None, task: Any) -> None:
        """The cell is about to run: what is on the stack is not its own; ``task`` is asyncio's, if any."""
        files = set()
        while frame is not None:
            files.add(frame.f_code.co_filename)
            frame = frame.f_back
        self._before = frozenset(files)
        self._task = task

    def end(self) -> None:
        """The cell has ended: keep nothing of it but code."""
        self._task = None

    # -- looking -------------------------------------------------------------------------------------

    def find(self, top: FrameType | None) -> Place:
        """Where the thread is whose deepest frame is ``top``."""
        if self._own_file is None:
            self._recognise(top)
        own = own_at = user = user_at = known = call = outer = 0
        in_body = False
        kinds = self._kinds
        frame, left = top, _DEEPEST
        while frame is not None and left:
            left -= 1
            code = frame.f_code
            key = id(code)
            kind = kinds.get(key)
            if kind is None:
                kind = self._learn(frame)
            if kind == _OWN:
                own, own_at = key, frame.f_lasti
                break
            if kind == _USER:
                if not user:
                    user, user_at = key, frame.f_lasti
            elif kind == _WAITING:
                user = user_at = 0
                known = call = outer = key
            elif kind == _BODY:
                in_body = True
            elif not user and not in_body and kind != _EMPTY:
                call = key
                if kind != _RUNNER:
                    outer = key
                if kind == _KNOWN and not known:
                    known = key
            frame = frame.f_back
        if own:
            return Place(own, own_at, user, user_at, known or call)
        return self._awaiting(user, user_at, known or call, known or outer)

    def _recognise(self, top: FrameType | None) -> None:
        """Which file is the cell's own: that of its outermost module-level frame, running or awaiting."""
        found = None
        frame = top
        while frame is not None:
            if self._is_the_cells(frame.f_code):
                found = frame.f_code
            frame = frame.f_back
        if found is None:
            found = next((f.f_code for f in self._chain() if self._is_the_cells(f.f_code)), None)
        if found is not None:
            self._own_file = found.co_filename
            self._kinds.clear()

    def _is_the_cells(self, code: CodeType) -> bool:
        return (
            code.co_name.startswith(_MODULE_NAMES)
            and code.co_filename not in self._before
            and self._is_cell(code.co_filename)
        )

    def _chain(self) -> list[FrameType]:
        """The frames of the coroutine that the cell's task is in, from the outermost on."""
        frames: list[FrameType] = []
        task = self._task
        one: object = asyncio.Task.get_coro(task) if issubclass(type(task), asyncio.Task) else None
        while len(frames) < _LONGEST_AWAIT:
            frame: FrameType | None
            awaited: object
            if type(one) is CoroutineType:
                frame, awaited = one.cr_frame, one.cr_await
            elif type(one) is GeneratorType:
                frame, awaited = one.gi_frame, one.gi_yieldfrom
            elif type(one) is AsyncGeneratorType:
                frame, awaited = one.ag_frame, one.ag_await
            else:
                break
            if frame is None:
                break
            frames.append(frame)
            one = awaited
        return frames

    def _awaiting(self, user: int, user_at: int, call: int, outer: int) -> Place:
        """None of the cell's frames runs: where its coroutine awaits, if it does."""
        own = own_at = deepest = deepest_at = awaited = 0
        for frame in self._chain():
            key = id(frame.f_code)
            kind = self._kinds.get(key)
            if kind is None:
                kind = self._learn(frame)
            if kind == _OWN:
                own, own_at, deepest, awaited = key, frame.f_lasti, 0, 0
            elif kind == _USER:
                deepest, deepest_at, awaited = key, frame.f_lasti, 0
            elif own and not awaited and kind not in (_EMPTY, _BODY):
                awaited = key
        if user and self._codes[user].co_filename not in self._before:
            # Another task of the user's runs meanwhile: that is what the time went to.
            return Place(own, own_at, user, user_at, call)
        if own:
            return Place(own, own_at, deepest, deepest_at, awaited)
        return Place(0, 0, 0, 0, outer)

    def _learn(self, frame: FrameType) -> int:
        code = frame.f_code
        key = id(code)
        if len(self._codes) >= _MOST_CODES and key not in self._codes:
            return _LIBRARY
        kind = self._kind(frame)
        self._codes[key] = code  # so that its id stays its own
        self._kinds[key] = kind
        module = dict.get(frame.f_globals, "__name__")
        self._modules[key] = module if type(module) is str else ""
        return kind

    def _kind(self, frame: FrameType) -> int:
        code = frame.f_code
        file = code.co_filename
        if self._own_file is not None and file == self._own_file:
            self._shifts[id(code)] = self._text.bodies[0].lines_above
            return _OWN
        a_cells = self._is_cell(file)
        if a_cells or file.startswith("<"):
            body = self._body(frame)
            if body is not None:
                self._shifts[id(code)] = body.lines_above
                return _OWN
        if a_cells:
            return _USER
        if file in MAGIC_FILES and code.co_name in ("<module>", "inner"):
            return _BODY
        if _is_compiled(code):
            return _KNOWN
        if _known_call(code) == WAITING_FOR_CHILD:
            return _WAITING
        if not file.startswith(("<", *self._libraries)) and not any(name in file for name in _PACKAGES):
            return _USER
        if _known_call(code) is not None:
            return _KNOWN
        if code.co_name in _EMPTY_NAMES:
            return _EMPTY
        return _RUNNER if file in self._before else _LIBRARY

    def _body(self, frame: FrameType) -> MagicBody | None:
        """The body of the cell's magics that the frame's code is of, None where it is of none of them."""
        bodies = self._text.bodies
        code, left = frame.f_code, _DEEPEST
        roots: list[CodeType] = []
        one: FrameType | None = frame
        while one is not None and left and len(roots) < len(bodies):
            left -= 1
            file = one.f_code.co_filename
            if one.f_code.co_name.startswith(_MODULE_NAMES) and (file.startswith("<") or self._is_cell(file)):
                roots.append(one.f_code)
                if file == self._own_file:
                    break
            one = one.f_back
        level = len(roots) - 1
        if level < 1 or roots[-1].co_filename != self._own_file:
            return None
        root, body = roots[0], bodies[level]
        if code.co_filename != root.co_filename or not body.has_file(root.co_filename):
            return None
        return body if code is root or self._text.defines(body, code) else None

    # -- in words ------------------------------------------------------------------------------------

    def line(self, key: int, at: int) -> int | None:
        """The line of the instruction at ``at`` in the code ``key``; of the cell where that is its own."""
        code = self._codes.get(key)
        if code is None:
            return None
        found = None
        for start, end, line in code.co_lines():
            if start <= at < end:
                found = line
        return (found if found is not None else code.co_firstlineno) + self._shifts.get(key, 0)

    def lines_before(self, place: Place) -> frozenset[int]:
        """Lines of the cell whose operations may have kept the interpreter until ``place`` was seen."""
        code = self._codes.get(place.own)
        if code is None or place.user or place.call:
            return frozenset()
        shift = self._shifts.get(place.own, 0)
        return frozenset(line + shift for line in blocking_operations.lines_before(code, place.own_at))

    def file(self, key: int) -> str | None:
        """The file of the code ``key``."""
        code = self._codes.get(key)
        return None if code is None else code.co_filename

    def frame(self, key: int, line: int | None) -> str | None:
        """``train.py:31 step``, or ``In[2]:4 step``."""
        code = self._codes.get(key)
        if code is None:
            return None
        name = self._cell_name(code.co_filename) or os.path.basename(code.co_filename)
        where = f"{name}:{line}"
        return where if code.co_name.startswith(_MODULE_NAMES) else f"{where} {_name(code)}"

    def call(self, key: int) -> str | None:
        """The call as a person writes it (``DataLoader._next_data``), or :data:`WAITING_FOR_CHILD`."""
        code = self._codes.get(key)
        if code is None:
            return None
        if _is_compiled(code):
            return _COMPILED
        known = _known_call(code)
        if known is not None:
            return known
        name = _name(code)
        if name.startswith("<"):
            return None
        module = self._modules.get(key, "")
        if "." in name or not module:
            return name
        return f"{module if module.count('.') <= 1 else module.partition('.')[0]}.{name}"


def _name(code: CodeType) -> str:
    name: str = getattr(code, "co_qualname", code.co_name)  # since Python 3.11
    return name.rpartition("<locals>.")[2]


def _is_compiled(code: CodeType) -> bool:
    """Whether torch generated it: it lies in the folder of a cache, under a name that says nothing."""
    file = code.co_filename.replace(os.sep, "/")
    if any(path in file for path in _COMPILED_PATHS):
        return True
    folders = (os.environ.get(name) for name in _COMPILED_FOLDERS)
    return any(folder and file.startswith(os.path.join(folder, "")) for folder in folders)


def _known_call(code: CodeType) -> str | None:
    parts = code.co_filename.replace(os.sep, "/").rsplit("/", 4)
    for most in range(1, len(parts)):
        found = _KNOWN_CALLS.get(("/".join(parts[-most:]), code.co_name))
        if found is not None:
            return found
    return None


@functools.cache  # found once: it takes longer than the rest of a short cell's watching
def _libraries() -> tuple[str, ...]:
    """The folders of code that is nobody's own: Python's, and that of what runs the cells."""
    folders = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib")]
    folders.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    for name in ("IPython", "ipykernel"):
        file = getattr(sys.modules.get(name), "__file__", None)
        if file:
            folders.append(os.path.dirname(file))
    return tuple(sorted({folder.rstrip(os.sep) + os.sep for folder in folders if folder}))
