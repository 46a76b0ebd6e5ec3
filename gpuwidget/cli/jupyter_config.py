"""Read the settings of gpuwidget's server, ``c.GpuWidget``, from Jupyter's configuration files."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from gpuwidget.model.errors import OptionError


def server_settings() -> Mapping[str, Any]:
    """Return the values of ``c.GpuWidget`` in ``jupyter_server_config.py`` and ``.json``.

    They are read from the folders from which Jupyter Server reads them (``jupyter --paths``). Empty without
    Jupyter. Raises OptionError if a file can't be executed.
    """
    try:
        from jupyter_core.application import JupyterApp
    except ImportError:
        return {}

    class ServerConfig(JupyterApp):
        name = "jupyter-server"

    reader = ServerConfig(log=logging.getLogger("gpuwidget.jupyter_config"), raise_config_file_errors=True)
    try:
        reader.load_config_file()
    except Exception as error:  # A configuration file is a program, which may raise anything.
        raise OptionError(
            f"Jupyter's configuration can't be read: {type(error).__name__}: {error}. Correct the file, or "
            "give --prometheus and the other options."
        ) from None
    return dict(reader.config.get("GpuWidget", {}))
