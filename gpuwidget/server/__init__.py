"""The server's extension: the routes that the panel reads, for whichever Jupyter server loads it.

Nothing here waits for a driver: it is opened on the sampler's thread, when the first client comes, or with
``always_on`` once the server runs.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import unquote

from gpuwidget.model.clock import SYSTEM_CLOCK, Clock
from gpuwidget.model.kernel_requests import REPLY, REQUEST
from gpuwidget.sampler import Sampler
from gpuwidget.server.cached_diagnosis import CachedDiagnosis
from gpuwidget.server.handlers import routes
from gpuwidget.server.hub import Hub
from gpuwidget.server.kernel_executions import Executions
from gpuwidget.server.notebooks import Notebooks
from gpuwidget.server.settings import chosen_install_command, chosen_source, configured

if TYPE_CHECKING:
    from jupyter_server.serverapp import ServerApp

_UNTRACKED = (
    *(REQUEST, REPLY),
    *("create_subshell_request", "create_subshell_reply"),
    *("delete_subshell_request", "delete_subshell_reply"),
    *("list_subshell_request", "list_subshell_reply"),
)
"""Messages on the control channel that are no user's activity: the panel's, and those that JupyterLab sends
when a live chart's widgets appear and disappear."""
_LINGER_S = 10.0
"""So long the driver stays open after the last client has left: a page is reloaded sooner."""


def _load_jupyter_server_extension(serverapp: ServerApp) -> None:
    load(serverapp, SYSTEM_CLOCK)


def load(serverapp: ServerApp, clock: Clock) -> Hub:
    """Add the routes to a server, and have questions to kernels count as nobody's activity."""
    settings = configured(serverapp.config, serverapp.log)
    source = chosen_source(settings.source, clock, serverapp.log)
    sampler = Sampler(source, clock, linger_s=_LINGER_S)
    executions = Executions()
    executions.observe(serverapp.kernel_manager)
    notebooks = Notebooks(
        serverapp.kernel_manager,
        serverapp.session_manager,
        serverapp.web_app.settings,
        clock,
        executions,
    )
    hub = Hub(
        sampler,
        notebooks,
        clock,
        interval_s=settings.interval,
        history_s=settings.history,
        install=chosen_install_command(settings.install_requirement, serverapp.log),
    )
    if settings.always_on:
        # Once the server answers: the driver may take seconds to come up, and no start waits for it.
        serverapp.io_loop.add_callback(hub.stay_on)
    base = serverapp.web_app.settings["base_url"].rstrip("/")
    # Tornado takes a pattern, and a user's name in a hub's base URL may have a + in it. Prometheus escapes an
    # address its own way, and asks for /user/a+b where the server calls itself /user/a%2Bb.
    base = f"(?:{re.escape(base)}|{re.escape(unquote(base))})"
    serverapp.web_app.add_handlers(
        ".*$",
        [(f"{base}/{path}", handler, known) for path, handler, known in routes(hub, CachedDiagnosis(clock))],
    )
    _leave_untracked(serverapp)
    return hub


def _leave_untracked(serverapp: ServerApp) -> None:
    # Otherwise each makes a busy kernel read idle, and keeps an idle one from being culled. Jupyter Server
    # 2.15 added the list; JupyterLab 4.5 and later read it from their page config.
    manager = serverapp.kernel_manager
    if hasattr(manager, "untracked_message_types"):
        new = [name for name in _UNTRACKED if name not in manager.untracked_message_types]
        manager.untracked_message_types = [*manager.untracked_message_types, *new]
