"""The Jupyter Server extension: the routes under ``gpuwidget/`` that the labextension and Prometheus use.

Start reading at :mod:`gpuwidget.server.sample_hub`. The extension never waits for the driver. The sampler's
thread opens the driver when the first client connects or, with ``always_on``, once the server runs.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from tornado.ioloop import PeriodicCallback

from gpuwidget.journal.folder import journal_folder
from gpuwidget.model.clock import SYSTEM_CLOCK, Clock
from gpuwidget.model.kernel_requests import REPLY, REQUEST
from gpuwidget.sampler import Sampler
from gpuwidget.server.cached_diagnosis import CachedDiagnosis
from gpuwidget.server.client_limits import HistoryLimit
from gpuwidget.server.cluster_monitor import ClusterMonitor
from gpuwidget.server.cluster_snapshot import Names
from gpuwidget.server.gpu_hours import GpuHoursCounter
from gpuwidget.server.gpu_use import GpuUseMonitor, GpuUseOptions
from gpuwidget.server.handlers import (
    ClusterHandler,
    DoctorHandler,
    HistoryHandler,
    MetricsHandler,
    RunHandler,
    RunsHandler,
    SampleHandler,
)
from gpuwidget.server.idle_holders import IdleHolders
from gpuwidget.server.jupyter_activity import JupyterActivity
from gpuwidget.server.kernel_executions import ExecutionTracker
from gpuwidget.server.kernel_inventory import KernelInventory
from gpuwidget.server.metrics_token import MetricsToken
from gpuwidget.server.notebook_ids import NotebookIds
from gpuwidget.server.prometheus import KernelLabels
from gpuwidget.server.prometheus_history import PrometheusHistory
from gpuwidget.server.run_journal import RunJournal
from gpuwidget.server.sample_hub import SampleHub
from gpuwidget.server.settings import (
    GpuWidget,
    choose_source,
    configured_prometheus,
    install_command,
    journal_variables,
    load_settings,
    server_user,
)
from gpuwidget.server.slurm import REFRESH_S, server_job
from gpuwidget.server.stream_handler import StreamHandler

if TYPE_CHECKING:
    from jupyter_server.serverapp import ServerApp

_UNTRACKED = (
    *(REQUEST, REPLY),
    *("create_subshell_request", "create_subshell_reply"),
    *("delete_subshell_request", "delete_subshell_reply"),
    *("list_subshell_request", "list_subshell_reply"),
)
"""Types of messages on the control channel that do not count as activity: the panel's requests and replies,
and the messages that JupyterLab sends when a live chart's widgets appear and disappear."""
NOTIFICATIONS_OPTION = "gpuwidgetNotifications"
"""Name of the option in JupyterLab's page config that makes a page listen for idle holders and for the end of
the Slurm job."""
CLUSTER_OPTION = "gpuwidgetCluster"
"""Name of the option in JupyterLab's page config with which a page offers the cluster view before it opens a
stream."""
HIDE_OTHER_USERS_OPTION = "gpuwidgetHideOtherUsers"
"""Name of the option in JupyterLab's page config that makes a page hide the processes that a kernel lists."""
_GIB = 1024**3
_LINGER_S = 10.0
"""Seconds for which the driver stays open after the last client has disconnected. Reloading a page takes
less."""


def _load_jupyter_server_extension(serverapp: ServerApp) -> None:
    load(serverapp, SYSTEM_CLOCK)


def load(serverapp: ServerApp, clock: Clock) -> SampleHub:
    """Add the routes to a server. Make sure that the panel's requests to kernels do not count as activity."""
    settings = load_settings(serverapp.config, serverapp.log)
    source = choose_source(settings.source, clock, serverapp.log)
    execution_tracker = ExecutionTracker()
    execution_tracker.observe(serverapp.kernel_manager)
    inventory = KernelInventory(
        serverapp.kernel_manager,
        serverapp.session_manager,
        serverapp.web_app.settings,
        clock,
        execution_tracker,
    )
    slurm = server_job(settings.slurm_warning_minutes, serverapp.log)
    sampler = Sampler(source, clock, linger_s=_LINGER_S, hide_errors=settings.hide_other_users)
    prometheus = configured_prometheus(settings, serverapp.log)
    cluster = None
    if prometheus is not None:
        own = Names(server_user(), None if slurm.job is None else slurm.job.id)
        cluster = ClusterMonitor(prometheus, clock, own if settings.hide_other_users else None)
    long_history = None
    if prometheus is not None and cluster is not None:
        long_history = PrometheusHistory(prometheus, cluster, clock)
    hub = SampleHub(
        sampler,
        inventory,
        clock,
        interval_s=settings.interval,
        history_s=settings.history,
        install=install_command(settings.install_requirement, serverapp.log),
        slurm=slurm,
        hide_other_users=settings.hide_other_users,
        allow_always_on=settings.allow_always_on and not settings.always_on,
    )
    os.environ.update(journal_variables(settings))
    journal = RunJournal(journal_folder(), serverapp.root_dir, serverapp.kernel_manager, inventory, clock)
    journal.observe()
    notebook_ids = NotebookIds(Path(serverapp.data_dir), serverapp.root_dir, serverapp.log)
    kernel_labels = KernelLabels(notebook_ids.notebook_id, server_user(), settings.metrics_names)
    if settings.always_on:
        # This is delayed until the event loop runs, because the driver may take seconds to open, and the
        # server's start must not wait for that.
        serverapp.io_loop.add_callback(hub.stay_on)
    if slurm.needs_refresh:
        serverapp.io_loop.add_callback(slurm.refresh)
        serverapp.io_loop.add_callback(PeriodicCallback(slurm.refresh, 1000 * REFRESH_S).start)
    page_config = serverapp.web_app.settings.setdefault("page_config_data", {})
    if cluster is not None:
        page_config[CLUSTER_OPTION] = "true"
    if settings.hide_other_users:
        page_config[HIDE_OTHER_USERS_OPTION] = "true"
    if slurm.job is not None or settings.idle_holder_memory:
        # A page opens the stream for notifications only if the server may have any.
        page_config[NOTIFICATIONS_OPTION] = "true"
    options = gpu_use_options(settings, inventory, serverapp)
    if options:
        serverapp.io_loop.add_callback(hub.monitor_use, GpuUseMonitor(sampler, clock, options))
    base = serverapp.web_app.settings["base_url"].rstrip("/")
    # Tornado expects a regular expression, but a user name in JupyterHub's base URL may contain a +. The
    # unescaped base URL is added for Prometheus, which requests /user/a+b if the server's base URL is
    # /user/a%2Bb.
    base = f"(?:{re.escape(base)}|{re.escape(unquote(base))})"
    serverapp.web_app.add_handlers(
        ".*$",
        [
            (f"{base}/gpuwidget/api/sample", SampleHandler, {"hub": hub}),
            (
                f"{base}/gpuwidget/api/history",
                HistoryHandler,
                {"hub": hub, "long_history": long_history, "limit": HistoryLimit()},
            ),
            (f"{base}/gpuwidget/api/stream", StreamHandler, {"hub": hub}),
            (
                f"{base}/gpuwidget/api/doctor",
                DoctorHandler,
                {"hub": hub, "cached_diagnosis": CachedDiagnosis(clock)},
            ),
            (f"{base}/gpuwidget/api/runs", RunsHandler, {"hub": hub, "journal": journal}),
            (f"{base}/gpuwidget/api/runs/([0-9a-f-]{{1,64}})", RunHandler, {"hub": hub, "journal": journal}),
            (f"{base}/gpuwidget/api/cluster", ClusterHandler, {"hub": hub, "cluster": cluster}),
            (
                f"{base}/gpuwidget/metrics",
                MetricsHandler,
                {
                    "hub": hub,
                    "kernel_labels": kernel_labels,
                    "metrics_token": MetricsToken(settings.metrics_token_file, serverapp.log),
                },
            ),
        ],
    )
    _exclude_from_activity(serverapp)
    return hub


def gpu_use_options(settings: GpuWidget, inventory: KernelInventory, serverapp: ServerApp) -> GpuUseOptions:
    """Return what is derived from the use of the GPUs, as far as the administrator has turned it on."""
    currency, limit = settings.gpu_hour_currency, settings.idle_holder_memory * _GIB
    web_settings = serverapp.web_app.settings
    return GpuUseOptions(
        activity=JupyterActivity(inventory, web_settings) if settings.gpu_activity else None,
        hours=GpuHoursCounter(settings.gpu_hour_price, currency) if settings.gpu_hours else None,
        idle_holders=IdleHolders(limit, 60.0 * settings.idle_holder_minutes, serverapp.log)
        if limit
        else None,
    )


def _exclude_from_activity(serverapp: ServerApp) -> None:
    # Without this, each request would make a busy kernel appear idle, and would prevent an idle kernel from
    # being culled. Jupyter Server has the list of untracked messages since version 2.15. It also puts the
    # list into the page config, from which JupyterLab 4.5 and later read it.
    manager = serverapp.kernel_manager
    if hasattr(manager, "untracked_message_types"):
        new = [name for name in _UNTRACKED if name not in manager.untracked_message_types]
        manager.untracked_message_types = [*manager.untracked_message_types, *new]
