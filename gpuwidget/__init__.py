"""gpuwidget: the GPU instrument for notebooks. ``%load_ext gpuwidget``, then ``%%gpuwatch`` on a cell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

__all__ = [
    "__version__",
    "compare",
    "dashboard",
    "devices",
    "doctor",
    "holders",
    "load_ipython_extension",
    "mark",
    "reports",
    "sample",
    "set_device",
    "unload_ipython_extension",
    "watch",
]

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from gpuwidget.kernel.comparing import compare
    from gpuwidget.kernel.dashboard import dashboard
    from gpuwidget.kernel.devices import devices, set_device
    from gpuwidget.kernel.doctoring import doctor
    from gpuwidget.kernel.memory import holders
    from gpuwidget.kernel.watching import mark, reports, sample, watch


def __getattr__(name: str) -> Any:
    # Imported at first use, so that `import gpuwidget` costs next to nothing and loads no other package.
    if name in ("mark", "reports", "sample", "watch"):
        from gpuwidget.kernel import watching

        return getattr(watching, name)
    if name in ("devices", "set_device"):
        from gpuwidget.kernel import devices

        return getattr(devices, name)
    if name == "doctor":
        from gpuwidget.kernel.doctoring import doctor

        return doctor
    if name == "holders":
        from gpuwidget.kernel.memory import holders

        return holders
    if name == "compare":
        from gpuwidget.kernel.comparing import compare

        return compare
    if name == "dashboard":
        from gpuwidget.kernel.dashboard import dashboard

        return dashboard
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)


def load_ipython_extension(shell: InteractiveShell) -> None:
    """``%load_ext gpuwidget``."""
    from gpuwidget.kernel import magics

    magics.load(shell)


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    """Where a Jupyter server finds its extension."""
    return [{"module": "gpuwidget.server"}]


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """``%unload_ext gpuwidget``."""
    from gpuwidget.kernel import magics

    magics.unload(shell)
