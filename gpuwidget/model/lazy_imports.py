"""Import modules of gpuwidget at their first use, under their own warning filters."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any


@contextmanager
def own_warning_filters() -> Iterator[None]:
    """Ignore warnings of imports in the body, on the thread that runs the user's code.

    Otherwise the user's filters could show them as if the cell caused them, or turn them into errors.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def import_attribute(module: str, name: str) -> Any:
    with own_warning_filters():
        return getattr(import_module(module), name)
