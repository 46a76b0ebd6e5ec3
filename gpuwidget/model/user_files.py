"""Decide which code is the user's, by the file name, module or class.

The user's code is that of notebook cells and of every source file that does not belong to Python, gpuwidget
or an installed package. A package that is installed in editable mode is the user's, because its files are in
the user's folder.
"""

from __future__ import annotations

import functools
import os
import re
import sys
from types import ModuleType

from gpuwidget.model.raw_attributes import class_module, module_dict

CELL_FILE = re.compile(r"<ipython-input-(\d+)-")
"""Matches the file name of a cell outside ipykernel, which contains the cell's number."""
TIMED_FILES = ("<timed exec>", "<timed eval>")
"""File names of the code that ``%time`` and ``%%time`` compile."""
MAGIC_FILES = frozenset({*TIMED_FILES, "<magic-timeit>"})
"""File names of the code that a magic compiles from the text that follows it."""

_PACKAGES = ("gpuwidget", "torch", "IPython", "ipykernel", "ipywidgets")
"""Packages that are never user code, even if a developer has a checkout of them in a project folder."""
_PACKAGE_FOLDER = re.compile(r"[\\/](site|dist)-packages[\\/]")
_COMPILED_FOLDER = re.compile(r"[\\/](torchinductor_[^\\/]*|\.triton[\\/]cache)[\\/]")
_MAX_FILES = 8192
"""Number of files for which the answer is kept. Finding it takes 10 µs."""
_COMPILED_FOLDER_VARIABLES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")


@functools.lru_cache(_MAX_FILES)
def is_user_file(filename: str) -> bool:
    """Return whether code with this file name is the user's.

    Code that a magic or ``exec`` compiles, as ``<timed exec>``, has no file and counts for the line that runs
    it. Return False for it.
    """
    if not os.path.isabs(filename):
        return CELL_FILE.match(filename) is not None
    return not (
        _PACKAGE_FOLDER.search(filename)
        or filename.startswith((*_standard_library(), *_package_folders()))
        or is_compiled_by_torch(filename)
    )


def is_compiled_by_torch(filename: str) -> bool:
    """Return whether torch.compile generated the file, that is, whether the file is in a compile cache."""
    if _COMPILED_FOLDER.search(filename):
        return True
    folders = (os.environ.get(name) for name in _COMPILED_FOLDER_VARIABLES)
    return any(folder and filename.startswith(os.path.join(folder, "")) for folder in folders)


def is_user_module(module: object) -> bool:
    """Return whether a module is the user's. Return False for a notebook's ``__main__``: it has no file."""
    if not issubclass(type(module), ModuleType):
        return False
    variables = module_dict(module)
    file, name = variables.get("__file__"), variables.get("__name__")
    if type(file) is not str or type(name) is not str or name.partition(".")[0] in _PACKAGES:
        return False
    return is_user_file(file)


def is_user_class(cls: object) -> bool:
    """Return whether a class was defined in a notebook or in one of the user's modules."""
    name = class_module_name(cls)
    return name == "__main__" or is_user_module(sys.modules.get(name))


def class_module_name(cls: object) -> str:
    """Return the ``__module__`` of a class, or an empty string if it is missing or not a string."""
    try:
        name = class_module(cls)
    except AttributeError:  # deleted
        return ""
    return name if type(name) is str else ""


@functools.cache
def _standard_library() -> tuple[str, ...]:
    # sysconfig would import a large module, which takes longer than all other work for a short cell.
    folder = os.path.dirname(os.__file__)
    return tuple({os.path.join(path, "") for path in (folder, os.path.realpath(folder))})


def _package_folders() -> list[str]:
    """Return the folders of the packages that are never user code, as far as they are imported."""
    files = (getattr(sys.modules.get(name), "__file__", None) for name in _PACKAGES)
    return [os.path.join(os.path.dirname(file), "") for file in files if file]
