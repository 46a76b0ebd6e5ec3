"""Python's own way to what a class or a module has, whatever metaclasses make of attributes.

Each is the descriptor itself, so that innermost loops may use it.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

class_dict: Callable[[Any], Any] = vars(type)["__dict__"].__get__
"""What is written in a class itself, not in its bases."""
class_mro: Callable[[Any], tuple[type, ...]] = vars(type)["__mro__"].__get__
"""A class and its bases, in the order in which attributes are looked up."""
class_name: Callable[[Any], str] = vars(type)["__name__"].__get__
"""The name of a class; not its ``__name__``, which a metaclass may define."""
class_module: Callable[[Any], Any] = vars(type)["__module__"].__get__
"""What a class says is the name of its module; raises AttributeError where that was deleted."""
module_dict: Callable[[Any], dict[str, Any]] = vars(ModuleType)["__dict__"].__get__
"""A module's variables."""
