"""Distinguish the user's modules and classes from those of Python, gpuwidget and installed packages."""

from __future__ import annotations

import functools
import os
import re
import sys
from types import ModuleType

from gpuwidget.model.raw_attributes import class_module, module_dict

_INSTALLED_PREFIXES = tuple(
    {os.path.realpath(path) + os.sep for path in (sys.prefix, sys.base_prefix, os.path.dirname(os.__file__))}
)
_PACKAGES = re.compile(r"[\\/](site|dist)-packages[\\/]")
_NEVER_USER_PACKAGES = frozenset(("gpuwidget", "torch", "IPython", "ipykernel"))
"""Packages that are never user code, even if a developer has a checkout of them in a project folder."""


def is_user_module(module: object) -> bool:
    """Return whether a module is the user's. Returns False for a notebook's ``__main__``: it has no file."""
    if not issubclass(type(module), ModuleType):
        return False
    variables = module_dict(module)
    file, name = variables.get("__file__"), variables.get("__name__")
    if type(file) is not str or type(name) is not str or name.partition(".")[0] in _NEVER_USER_PACKAGES:
        return False
    return not _is_installed(file)


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


@functools.cache  # a process has thousands of module files, and they do not move
def _is_installed(file: str) -> bool:
    path = os.path.realpath(file)
    return _PACKAGES.search(path) is not None or path.startswith(_INSTALLED_PREFIXES)
