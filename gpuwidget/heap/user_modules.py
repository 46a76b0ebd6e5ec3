"""Which modules and classes are the user's own: none that was installed, no part of Python, not this one."""

from __future__ import annotations

import functools
import os
import re
import sys
from types import ModuleType

from gpuwidget.model.raw_attributes import class_module, module_dict

_INSTALLED = tuple(
    {os.path.realpath(path) + os.sep for path in (sys.prefix, sys.base_prefix, os.path.dirname(os.__file__))}
)
_PACKAGES = re.compile(r"[\\/](site|dist)-packages[\\/]")
_NOBODYS = frozenset(("gpuwidget", "torch", "IPython", "ipykernel"))
"""No user's code wherever they are: a developer may have them in a folder of their own."""


def is_users(module: object) -> bool:
    """Whether a module is the user's; a notebook's ``__main__``, which has no file, is none."""
    if not issubclass(type(module), ModuleType):
        return False
    own = module_dict(module)
    file, name = own.get("__file__"), own.get("__name__")
    if type(file) is not str or type(name) is not str or name.partition(".")[0] in _NOBODYS:
        return False
    return not _installed(file)


def is_users_class(cls: object) -> bool:
    """Whether a class is from a module of the user's, or from a notebook."""
    name = module_name(cls)
    return name == "__main__" or is_users(sys.modules.get(name))


def module_name(cls: object) -> str:
    """Name of the module that a class says it is from; empty where it says none."""
    try:
        name = class_module(cls)
    except AttributeError:  # deleted
        return ""
    return name if type(name) is str else ""


@functools.cache  # there are thousands, and they stay where they are
def _installed(file: str) -> bool:
    path = os.path.realpath(file)
    return _PACKAGES.search(path) is not None or path.startswith(_INSTALLED)
