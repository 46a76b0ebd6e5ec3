"""Decide which code is the user's, by its file name, module or class.

The user's code is that of notebook cells and of every source file that does not belong to Python, to
gpuwidget or to an installed package. A package that is installed in editable mode is the user's, because its
files are in the user's folder.
"""

from __future__ import annotations

import functools
import os
import re
import sys
from types import ModuleType

from gpuwidget.model.raw_attributes import class_module, module_dict

CELL_FILE = re.compile(r"<ipython-input-(\d+)-")
"""Matches the file name of a cell in IPython without ipykernel. The name contains the cell's number."""
TIMED_FILES = ("<timed exec>", "<timed eval>")
"""File names of the code that ``%time`` and ``%%time`` compile."""
MAGIC_FILES = frozenset({*TIMED_FILES, "<magic-timeit>"})
"""File names of the code that a magic compiles from the text after the magic's name."""

_PACKAGES = ("gpuwidget", "torch", "IPython", "ipykernel", "ipywidgets")
"""Packages that are never user code, even if a developer has a checkout of one of them in a project
folder."""
_PACKAGE_FOLDER = re.compile(r"[\\/](site|dist)-packages[\\/]")
_COMPILED_FOLDER = re.compile(r"[\\/](torchinductor_[^\\/]*|\.triton[\\/]cache)[\\/]")
_MAX_FILES = 8192
"""Number of files for which the result is cached. Computing a result takes 10 µs."""
_COMPILED_FOLDER_VARIABLES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")


@functools.lru_cache(_MAX_FILES)
def is_user_file(filename: str) -> bool:
    """Return whether code with this file name is the user's.

    Code that a magic or ``exec`` compiles, such as ``<timed exec>``, has no file, and is attributed to the
    line that runs it. For such code, return False.
    """
    if not os.path.isabs(filename):
        return CELL_FILE.match(filename) is not None
    return not (
        _PACKAGE_FOLDER.search(filename)
        or filename.startswith((*_standard_library(), *_package_folders()))
        or is_compiled_by_torch(filename)
    )


def is_compiled_by_torch(filename: str) -> bool:
    """Return whether torch.compile generated the file, which is the case if it is in a compile cache."""
    if _COMPILED_FOLDER.search(filename):
        return True
    folders = (os.environ.get(name) for name in _COMPILED_FOLDER_VARIABLES)
    return any(folder and filename.startswith(os.path.join(folder, "")) for folder in folders)


def is_user_module(module: object) -> bool:
    """Return whether a module is the user's. For a notebook's ``__main__``, return False, because it has no
    file."""
    if not issubclass(type(module), ModuleType):
        return False
    variables = module_dict(module)
    file, name = variables.get("__file__"), variables.get("__name__")
    if type(file) is not str or type(name) is not str or name.partition(".")[0] in _PACKAGES:
        return False
    return is_user_file(file)


def is_user_class(cls: object) -> bool:
    """Return whether a class was defined in a notebook or in a module of the user."""
    name = class_module_name(cls)
    return name == "__main__" or is_user_module(sys.modules.get(name))


def class_module_name(cls: object) -> str:
    """Return the ``__module__`` of a class, or an empty string if it is missing or not a string."""
    try:
        name = class_module(cls)
    except AttributeError:  # The attribute was deleted.
        return ""
    return name if type(name) is str else ""


@functools.cache
def _standard_library() -> tuple[str, ...]:
    # sysconfig can't be used: importing it takes longer than all other work for a short cell.
    folder = os.path.dirname(os.__file__)
    return tuple({os.path.join(path, "") for path in (folder, os.path.realpath(folder))})


def _package_folders() -> list[str]:
    """Return the folders of those ``_PACKAGES`` that have been imported."""
    files = (getattr(sys.modules.get(name), "__file__", None) for name in _PACKAGES)
    return [os.path.join(os.path.dirname(file), "") for file in files if file]
