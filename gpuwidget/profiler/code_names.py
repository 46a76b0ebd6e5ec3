"""Names of functions as users know them, such as ``DataLoader._next_data`` or ``asyncio.tasks.sleep``."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from types import CodeType

from gpuwidget.model.report import WAITING_FOR_CHILD
from gpuwidget.model.user_files import is_compiled_by_torch

MODULE_NAMES = ("<module", "<cell line")
"""The name of the top-level code object of a module or cell begins with one of these."""
_COMPILED = "code compiled by torch"
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
    f"{os.path.basename(os.path.dirname(os.__file__))}/subprocess.py": ("communicate", "wait"),
}
"""Names of functions that wait for a child process, keyed by the last parts of their file's path."""
_FIXED_NAMES = {
    **{(file, name): WAITING_FOR_CHILD for file, names in _WAIT_FUNCTIONS.items() for name in names},
    ("torch/utils/data/dataloader.py", "_next_data"): "DataLoader._next_data",
    ("torch/utils/data/dataloader.py", "_get_iterator"): "DataLoader.__iter__",
    ("torch/_tensor.py", "backward"): "Tensor.backward",
    ("torch/cuda/__init__.py", "synchronize"): "torch.cuda.synchronize",
    ("torch/cuda/streams.py", "synchronize"): "torch.cuda.Event.synchronize",
}
"""Public names of library functions, keyed by the last parts of their file's path and the function's name
there."""


def fixed_name(code: CodeType) -> str | None:
    """Return the fixed name of compiled code or of a known library function, or None for other code.

    The profiler prefers a fixed name to the name of the library function that the user called.
    """
    if is_compiled_by_torch(code.co_filename):
        return _COMPILED
    parts = code.co_filename.replace(os.sep, "/").rsplit("/", 4)
    for count in range(1, len(parts)):
        found = _FIXED_NAMES.get(("/".join(parts[-count:]), code.co_name))
        if found is not None:
            return found
    return None


def function_name(code: CodeType, module: str) -> str | None:
    """Return a function's name with its class or module, or None for a lambda, comprehension or the like."""
    fixed = fixed_name(code)
    if fixed is not None:
        return fixed
    name = _qualified_name(code)
    if name.startswith("<"):
        return None
    if "." in name or not module:
        return name
    return f"{module if module.count('.') <= 1 else module.partition('.')[0]}.{name}"


def frame_name(code: CodeType, file: str, line: int | None) -> str:
    """Return a frame's name, such as ``train.py:31 step`` or ``In[2]:4 step``."""
    position = f"{file}:{line}"
    return position if code.co_name.startswith(MODULE_NAMES) else f"{position} {_qualified_name(code)}"


def _qualified_name(code: CodeType) -> str:
    name: str = getattr(code, "co_qualname", code.co_name)  # ``co_qualname`` exists since Python 3.11
    return name.rpartition("<locals>.")[2]
