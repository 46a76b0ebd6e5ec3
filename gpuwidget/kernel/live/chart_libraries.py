"""Import ipywidgets and bqplot, which the live chart needs, without delaying or disturbing the user's code.

The idle kernel imports them. If a watched cell comes first, they are imported before its code, or by the
chart's thread while the code runs.
"""

from __future__ import annotations

import os
import sys
import threading
import warnings
from importlib.util import find_spec

from gpuwidget.kernel.shell.interrupts import defer_interrupts
from gpuwidget.model.errors import GpuWidgetError
from gpuwidget.model.lazy_imports import own_warning_filters
from gpuwidget.model.translation import Text, translatable

_LIBRARIES = ("ipywidgets", "bqplot")
_FORK_TIMEOUT_S = 3.0
"""The longest wait of a fork for the import, which may itself be what forks."""

_import_lock = threading.Lock()
_imported = False
_held_for_fork = False


def _before_fork() -> None:
    """Wait until no thread imports the libraries. A child lacks that thread, and would wait forever for a
    module that is half imported."""
    global _held_for_fork
    _held_for_fork = _import_lock.acquire(timeout=_FORK_TIMEOUT_S)


def _after_fork() -> None:
    if _held_for_fork:
        _import_lock.release()


def _reset_in_child() -> None:
    global _import_lock
    _import_lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_reset_in_child)


class LiveUnavailable(GpuWidgetError):
    """Raised if ipywidgets or bqplot can't be imported; everything but live charts works without them."""


def prepare_libraries() -> None:
    """Make sure that a chart can be shown, without making the user's code wait for the import, if possible.

    The chart's thread imports the libraries while the code runs. Raises LiveUnavailable if they are missing.
    """
    # The user's code must not meet a half imported numpy or pandas, which other packages find in sys.modules.
    large = all(map(_is_complete, ("numpy", "pandas")))
    if _imported or (large and _hides_warnings() and all(map(_is_installed, _LIBRARIES))):
        return
    import_libraries()


def _is_complete(package: str) -> bool:
    spec = getattr(sys.modules.get(package), "__spec__", None)
    return spec is not None and not getattr(spec, "_initializing", False)


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except (ImportError, ValueError):
        return False


def _hides_warnings() -> bool:
    """Return whether the current filters hide the libraries' DeprecationWarnings.

    If not, only the main thread may import the libraries: other filters for a moment, as in
    :func:`import_libraries`, apply to all threads and so to the user's code.
    """
    for action, message, category, module, _line in warnings.filters:
        if issubclass(DeprecationWarning, category) and message is None and module is None:
            return action == "ignore"
        if action == "error" and issubclass(DeprecationWarning, category):
            return False
    return False


def import_libraries() -> None:
    """Import ipywidgets and bqplot, which takes 0.3 to 0.8 s, before a cell needs them. Safe to call twice.

    Raises LiveUnavailable if they can't be imported.
    """
    # An interrupt would leave numpy half imported, and user code could no longer import it either.
    with defer_interrupts(), own_warning_filters():
        import_on_thread()


def is_imported() -> bool:
    """Return whether the libraries have been imported."""
    return _imported


def import_on_thread() -> None:
    """Import the libraries on the chart's thread, which no interrupt reaches. Raises LiveUnavailable."""
    global _imported
    with _import_lock:
        if _imported:
            return
        try:
            import gpuwidget.kernel.live.live_chart  # noqa: F401
        except Exception as error:  # a broken package raises more than ImportError
            raise LiveUnavailable(_why_unavailable(error)) from error
        _imported = True


def _why_unavailable(error: Exception) -> Text:
    """Return why ipywidgets and bqplot can't be imported. Only a missing package must be installed."""
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, ModuleNotFoundError) and (error.name or "").split(".")[0] in _LIBRARIES:
        return translatable(
            "No live chart: {error}. The chart needs ipywidgets and bqplot in the kernel's "
            "environment (pip install ipywidgets bqplot).",
            error=text,
        )
    return translatable(
        "No live chart: ipywidgets and bqplot are installed, but can't be imported ({error}).", error=text
    )
