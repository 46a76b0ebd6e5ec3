"""Read attributes of classes and modules without running user code, even if a metaclass redefines them.

Each function is the getter of a built-in descriptor, which is fast enough for inner loops.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

class_dict: Callable[[Any], Any] = vars(type)["__dict__"].__get__
"""Return the attributes of a class, without the attributes that it inherits."""
class_mro: Callable[[Any], tuple[type, ...]] = vars(type)["__mro__"].__get__
"""Return a class and its bases, in the order of attribute lookup."""
class_name: Callable[[Any], str] = vars(type)["__name__"].__get__
"""Return the name of a class, even if the metaclass redefines ``__name__``."""
class_module: Callable[[Any], Any] = vars(type)["__module__"].__get__
"""Return the ``__module__`` of a class. Raise AttributeError if it was deleted."""
module_dict: Callable[[Any], dict[str, Any]] = vars(ModuleType)["__dict__"].__get__
"""Return the variables of a module."""
