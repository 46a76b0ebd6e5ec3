"""gpuwidget: the GPU instrument for notebooks. ``%load_ext gpuwidget``, then ``%%gpuwatch`` on a cell."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from gpuwidget.model.lazy_imports import import_attribute, own_warning_filters
from gpuwidget.version import __version__

__all__ = [
    "__version__",
    "compare",
    "dashboard",
    "devices",
    "doctor",
    "holders",
    "load_ipython_extension",
    "mark",
    "rank",
    "reports",
    "sample",
    "set_device",
    "unload_ipython_extension",
    "watch",
]

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from gpuwidget.kernel.attribution.memory_holders import holders
    from gpuwidget.kernel.cells.watch_api import mark, reports, sample, watch
    from gpuwidget.kernel.commands.compare_command import compare
    from gpuwidget.kernel.commands.doctor_command import doctor
    from gpuwidget.kernel.devices.default_device import devices, set_device
    from gpuwidget.kernel.live.dashboard import dashboard
    from gpuwidget.ranks.rank_reporter import rank


_MODULES = {
    "compare": "gpuwidget.kernel.commands.compare_command",
    "dashboard": "gpuwidget.kernel.live.dashboard",
    "devices": "gpuwidget.kernel.devices.default_device",
    "doctor": "gpuwidget.kernel.commands.doctor_command",
    "holders": "gpuwidget.kernel.attribution.memory_holders",
    "mark": "gpuwidget.kernel.cells.watch_api",
    "rank": "gpuwidget.ranks.rank_reporter",
    "reports": "gpuwidget.kernel.cells.watch_api",
    "sample": "gpuwidget.kernel.cells.watch_api",
    "set_device": "gpuwidget.kernel.devices.default_device",
    "watch": "gpuwidget.kernel.cells.watch_api",
}


def __getattr__(name: str) -> Any:
    # Imported at first use, so that `import gpuwidget` is quick and loads no other package.
    if name == "dask":
        # This name is not in __all__, because `from gpuwidget import *` would hide the user's `dask`.
        with own_warning_filters():
            return import_module("gpuwidget.dask")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_attribute(_MODULES[name], name)


def __dir__() -> list[str]:
    return sorted(__all__)


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Load the extension: ``%load_ext gpuwidget``."""
    with own_warning_filters():
        from gpuwidget.kernel import magics

    magics.load(shell)


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    """Return the module of the server extension. Jupyter Server calls this function."""
    return [{"module": "gpuwidget.server"}]


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """Unload the extension: ``%unload_ext gpuwidget``."""
    from gpuwidget.kernel import magics

    magics.unload(shell)
