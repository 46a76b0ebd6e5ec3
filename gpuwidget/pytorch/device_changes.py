"""Find the lines of the user's code that switch the current CUDA device, and that first use a device.

During a run, ``torch.cuda.set_device``, ``with torch.cuda.device(…)`` and ``torch.cuda.mem_get_info`` are
observed. They make CUDA open a context on a device, which stays until the process ends. Work on tensors,
which switches the device in C++, is not observed, so that it costs nothing.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections import Counter
from typing import Any

from gpuwidget.model.fork import reset_after_fork
from gpuwidget.model.torch_state import CodeLine, DeviceChanges
from gpuwidget.model.user_files import is_user_file
from gpuwidget.pytorch import cuda_state
from gpuwidget.pytorch.hooks import Function, PatchedFunctions

_MAX_LOCATED = 64
"""Number of switches whose lines are looked up in a run. Further switches are only counted."""
_MAX_DEPTH = 200
_OWN_MODULE = "gpuwidget.pytorch.device_switch"


class DeviceChangeScope:
    """Records the changes of one run, from :meth:`DeviceChangeTracker.open` to its ``close``."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._switches = 0
        self._lines: Counter[CodeLine] = Counter()
        self._located = 0
        self._first: dict[int, CodeLine] = {}
        self._without_line = 0

    def switch(self) -> None:
        """Record that ``torch.cuda.set_device`` selects another device on the calling thread."""
        self._switches += 1
        if self._located >= _MAX_LOCATED:
            return
        line = _user_line()
        with self._lock:
            self._located += 1
            if line is not None:
                self._lines[line] += 1

    def use(self, index: int) -> None:
        """Record that a call on the calling thread uses a device."""
        if index in self._first or self._without_line >= _MAX_LOCATED:
            return
        line = _user_line()
        with self._lock:
            if line is None:
                self._without_line += 1
            else:
                self._first.setdefault(index, line)

    def changes(self) -> DeviceChanges:
        """Return the changes so far."""
        with self._lock:
            most = self._lines.most_common(1)
            return DeviceChanges(self._switches, most[0][0] if most else None, dict(self._first))


class DeviceChangeTracker:
    """Observes the process's device changes as long as there is an open scope."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._scopes: tuple[DeviceChangeScope, ...] = ()
        self._thread = threading.local()
        """``current`` is the device that the thread has selected since the last scope was opened."""
        self._patches = tuple(PatchedFunctions() for _ in range(3))

    def open(self) -> DeviceChangeScope:
        """Begin to record the changes of a run."""
        scope = DeviceChangeScope()
        with self._lock:
            self._scopes = (*self._scopes, scope)
            self._thread = threading.local()
        self.watch()
        return scope

    def close(self, scope: DeviceChangeScope) -> None:
        """Stop recording the changes of a run. Safe to call twice."""
        with self._lock:
            self._scopes = tuple(one for one in self._scopes if one is not scope)
            if not self._scopes:
                for patches in self._patches:
                    patches.restore()

    def watch(self) -> None:
        """Patch torch's functions. Does nothing until torch is imported."""
        torch: Any = cuda_state.loaded_torch()
        if torch is None or not self._scopes:
            return
        of_driver, of_block, of_memory = self._patches
        with self._lock:
            of_driver.patch(torch._C, ("_cuda_setDevice",), self._wrap_set_device)
            block = getattr(torch.cuda, "device", None)
            if block is not None:
                of_block.patch(block, ("__enter__",), self._wrap_enter)
            of_memory.patch(torch.cuda, ("mem_get_info",), self._wrap_mem_get_info)

    def _wrap_set_device(self, original: Function) -> Function:
        def set_device(index: int) -> Any:
            if getattr(self._thread, "current", None) != index:
                self._change_device(index)
            return original(index)

        return set_device

    def _change_device(self, index: int) -> None:
        is_switch = hasattr(self._thread, "current")
        self._thread.current = index
        for scope in self._scopes:
            scope.use(index)
            if is_switch:
                scope.switch()

    def _wrap_enter(self, original: Function) -> Function:
        @functools.wraps(original)
        def enter(block: Any) -> Any:
            self._use(getattr(block, "idx", None))
            return original(block)

        return enter

    def _wrap_mem_get_info(self, original: Function) -> Function:
        @functools.wraps(original)
        def mem_get_info(*args: Any, **kwargs: Any) -> Any:
            self._use(_index(args[0] if args else kwargs.get("device")))
            return original(*args, **kwargs)

        return mem_get_info

    def _use(self, index: object) -> None:
        if type(index) is int and index >= 0:
            for scope in self._scopes:
                scope.use(index)

    def reset_in_child(self) -> None:
        """Drop the parent's scopes and its lock, because another thread may have held the lock during the
        fork."""
        self._lock = threading.RLock()
        self._scopes = ()
        for patches in self._patches:
            patches.restore()


def _index(device: Any) -> object:
    """Return the index of a device that is given as an int, a name such as ``cuda:1`` or a torch.device."""
    if type(device) is str:
        name, _, number = device.partition(":")
        return int(number) if name == "cuda" and number.isdigit() else None
    return device if type(device) is int else getattr(device, "index", None)


def _user_line() -> CodeLine | None:
    """Return the innermost line of the user's code on the calling thread.

    Return None if there is none, or if gpuwidget's device switch made the call.
    """
    frame = sys._getframe(2)
    for _ in range(_MAX_DEPTH):
        if frame is None or frame.f_globals.get("__name__") == _OWN_MODULE:
            return None
        if is_user_file(frame.f_code.co_filename):
            return CodeLine(frame.f_code.co_filename, frame.f_lineno)
        frame = frame.f_back  # type: ignore[assignment]
    return None


DEVICE_CHANGES = DeviceChangeTracker()
"""The only instance in the process."""

reset_after_fork(DEVICE_CHANGES.reset_in_child)
