"""The server's configuration: ``c.GpuWidget`` in jupyter_server_config.py, or ``--GpuWidget`` options."""

from __future__ import annotations

import getpass
import math
import os
import shlex
from logging import Logger
from typing import Any

from traitlets import Bool, Bunch, Float, TraitError, Unicode, validate
from traitlets.config import Config, Configurable

from gpuwidget.journal.settings import DEFAULT_SECONDS, JournalSettings
from gpuwidget.model.clock import Clock
from gpuwidget.model.errors import OptionError
from gpuwidget.model.installation import REQUIREMENT_VARIABLE, pip_arguments, without_passwords
from gpuwidget.model.messages import english_message
from gpuwidget.prometheus.settings import (
    MAX_TIMEOUT_S,
    MIN_TIMEOUT_S,
    TIMEOUT_S,
    PrometheusSettings,
    prometheus_settings,
)
from gpuwidget.sampler import INTERVAL_S, MAX_INTERVAL_S, MIN_INTERVAL_S
from gpuwidget.sources import SOURCE_VARIABLE, Source, open_source
from gpuwidget.sources.none import NoSource, switched_off
from gpuwidget.version import __version__

HISTORY_S = 600.0
MIN_HISTORY_S = 10.0
MAX_HISTORY_S = 3600.0

_RANGES = {
    "interval": f"a number of seconds from {MIN_INTERVAL_S:g} to {MAX_INTERVAL_S:g}",
    "history": f"a number of seconds from {MIN_HISTORY_S:g} to {MAX_HISTORY_S:g}",
    "source": "a word in quotes, such as 'auto' or 'replay'",
    "always_on": "True or False",
    "allow_always_on": "True or False",
    "gpu_activity": "True or False",
    "gpu_hours": "True or False",
    "gpu_hour_price": "a number from 0 on, or None",
    "gpu_hour_currency": "a word in quotes, such as 'EUR'",
    "idle_holder_memory": "a number of GiB from 0 on",
    "idle_holder_minutes": "a number of minutes from 1 on",
    "slurm_warning_minutes": "a number of minutes from 0 on",
    "metrics_names": "True or False",
    "hide_other_users": "True or False",
    "journal": "True or False",
    "journal_seconds": "a number of seconds from 0 on",
    "journal_printed": "True or False",
    "metrics_token_file": "a file's path in quotes",
    "prometheus_url": "an address in quotes, such as 'https://prometheus.example.org:9090'",
    "prometheus_ca_file": "a file's path in quotes",
    "prometheus_token_file": "a file's path in quotes",
    "prometheus_matchers": "label matchers in quotes, such as 'cluster=\"a\"'",
    "prometheus_timeout": f"a number of seconds from {MIN_TIMEOUT_S:g} to {MAX_TIMEOUT_S:g}",
    "install_requirement": "the arguments of 'pip install', quoted as in a shell, without a password",
}
_STRICT = {
    "hide_other_users": (True, "would show processes"),
    "allow_always_on": (False, "would let pages turn it on"),
    "journal": (False, "would write files"),
}
"""For settings whose default allows more: the value that replaces an invalid one, and why."""


class GpuWidget(Configurable):
    """Settings for sampling, the history of samples, queries to Prometheus, and the installation of
    gpuwidget."""

    source = Unicode(
        "auto",
        help="""Source of the readings: auto (NVML if it works, else none), nvml, replay or replay:PATH (a
        recording, in a loop), replay-once:PATH, or none. The environment variable GPUWIDGET_SOURCE, which
        kernels use too, takes precedence.""",
    ).tag(config=True)
    interval = Float(
        INTERVAL_S,
        min=MIN_INTERVAL_S,
        max=MAX_INTERVAL_S,
        help="Seconds between samples, from 0.05 to 60.",
    ).tag(config=True)
    history = Float(
        HISTORY_S,
        min=MIN_HISTORY_S,
        max=MAX_HISTORY_S,
        help="""Seconds of history that are kept at the full rate, from 10 to 3600. An hour is always kept in
        steps of a second.""",
    ).tag(config=True)
    always_on = Bool(
        False,
        help="""Sample from the server's start, including the hardware's counters, even if no page is open, so
        that pages opened later show the history.""",
    ).tag(config=True)
    allow_always_on = Bool(
        True,
        help="""Whether users can turn always_on on, with the dashboard's button Record always. It stays on
        until a user turns it off, or the server stops.""",
    ).tag(config=True)
    metrics_token_file = Unicode(
        "",
        help="""Path of a file with a token that opens gpuwidget/metrics, and nothing else of this server, to
        requests with the header 'Authorization: Bearer TOKEN'. It is read again when it changes.""",
    ).tag(config=True)
    gpu_activity = Bool(
        False,
        help="""Count GPU work of kernels and terminals as activity: of the kernel for Jupyter Server's culler
        (MappingKernelManager.cull_idle_timeout), and of the server for JupyterHub. Memory that is only held
        does not count. The GPUs are then sampled every ten seconds, even if no page is open.""",
    ).tag(config=True)
    gpu_hours = Bool(
        False,
        help="""Count the GPU-hours, GiB-hours and energy of each kernel, for the panel and for
        gpuwidget/metrics. The GPUs are then sampled every ten seconds, even if no page is open.""",
    ).tag(config=True)
    gpu_hour_price = Float(
        None,
        allow_none=True,
        min=0.0,
        help="Price of a GPU-hour. The panel shows the price of the GPU-hours.",
    ).tag(config=True)
    gpu_hour_currency = Unicode("", help="Currency of gpu_hour_price, such as 'EUR'.").tag(config=True)
    idle_holder_memory = Float(
        0.0,
        min=0.0,
        help="""GiB of GPU memory. A kernel that has been idle and has held more for idle_holder_minutes is
        reported: in JupyterLab, or in the log while no page is open, and in gpuwidget/metrics. 0: never.""",
    ).tag(config=True)
    idle_holder_minutes = Float(
        30.0, min=1.0, help="Minutes after which an idle kernel that holds memory is reported."
    ).tag(config=True)
    slurm_warning_minutes = Float(
        15.0, min=0.0, help="Minutes before the end of this server's Slurm job at which users are warned."
    ).tag(config=True)
    metrics_names = Bool(
        False,
        help="""Whether gpuwidget/metrics contains the names and paths of notebooks. Without them, a
        notebook has an id that stays the same but does not reveal its name.""",
    ).tag(config=True)
    hide_other_users = Bool(
        False,
        help="""Hide the processes of other users in everything that this server sends. Only the sum of their
        memory on each GPU remains. Kernels and terminals can still list these processes, unless the system
        prevents it.""",
    ).tag(config=True)

    journal = Bool(
        True,
        help="""Keep the reports of long watched runs in Jupyter's data folder, so that they outlast the page
        and the kernel. Kernels receive this setting and the next two as the environment variables
        GPUWIDGET_JOURNAL=0, GPUWIDGET_JOURNAL_SECONDS and GPUWIDGET_JOURNAL_PRINTED=1, which take precedence
        if they are already set.""",
    ).tag(config=True)
    journal_seconds = Float(
        DEFAULT_SECONDS, min=0.0, help="Seconds that a watched run must take to get into the journal."
    ).tag(config=True)
    journal_printed = Bool(
        False, help="Whether the journal keeps the printed lines that mark a run's timeline."
    ).tag(config=True)

    install_requirement = Unicode(
        "",
        help="""Arguments of 'pip install' that install gpuwidget: a wheel's path or address, or its name with
        --index-url, quoted as in a shell. The panel and the doctor show this command to users; if it is
        empty, they refer to the documentation. Kernels and terminals receive it as the environment variable
        GPUWIDGET_INSTALL_REQUIREMENT, which takes precedence if it is already set.""",
    ).tag(config=True)

    prometheus_url = Unicode(
        "",
        help="""Address of a Prometheus server that scrapes the cluster's GPUs, such as
        https://prometheus.example.org:9090, under which /api/v1/query lies. If it is set, the panel shows the
        whole cluster. Only this server queries it, never a browser. Empty: no cluster view.""",
    ).tag(config=True)
    prometheus_ca_file = Unicode(
        "",
        help="""Path of a file (PEM) with the certificates of the authorities that may have signed the
        certificate of Prometheus. Empty: the system's authorities.""",
    ).tag(config=True)
    prometheus_token_file = Unicode(
        "",
        help="""Path of a file with the bearer token for Prometheus. It is read for each query, so it may be
        replaced at any time.""",
    ).tag(config=True)
    prometheus_matchers = Unicode(
        "",
        help="""Label matchers that restrict every query, in PromQL's syntax, such as
        cluster="a",env=~"prod|dev". Users see only the machines whose series match.""",
    ).tag(config=True)
    prometheus_timeout = Float(
        TIMEOUT_S,
        min=MIN_TIMEOUT_S,
        max=MAX_TIMEOUT_S,
        help="Seconds after which a query to Prometheus fails, from 1 to 60.",
    ).tag(config=True)

    @validate("install_requirement")
    def _can_be_installed(self, proposal: Bunch) -> str:
        requirement: str = proposal["value"].strip()
        if requirement:
            try:
                pip_arguments(requirement, __version__)
            except ValueError as error:
                raise TraitError(str(error)) from None
        return requirement

    @validate(
        "idle_holder_memory",
        "idle_holder_minutes",
        "slurm_warning_minutes",
        "gpu_hour_price",
        "journal_seconds",
        "interval",
        "history",
        "prometheus_timeout",
    )
    def _is_a_number(self, proposal: Bunch) -> float | None:
        # NaN passes the trait's checks of ``min`` and ``max``, and JSON has no infinity.
        value: float | None = proposal["value"]
        if value is not None and not math.isfinite(value):
            raise TraitError("not a finite number")
        return value


def load_settings(config: Config, log: Logger) -> GpuWidget:
    """Return the configured traits.

    For a trait with an invalid value, log a sentence and use the default, or the value that allows less.
    """
    traits = GpuWidget.class_traits(config=True)
    good = Config()
    hide_cluster = False
    for name, value in config.get("GpuWidget", Config()).items():
        if name not in traits:
            log.error("GpuWidget has no setting %r. Its settings are %s.", name, ", ".join(sorted(traits)))
            continue
        alone = Config({"GpuWidget": {name: value}})
        try:
            GpuWidget(config=alone)
        except TraitError:
            used = f"Its default, {traits[name].default()!r}, is used."
            if name in _STRICT:
                good.merge(Config({"GpuWidget": {name: _STRICT[name][0]}}))
                used = f"{_STRICT[name][0]} is used, because the default {_STRICT[name][1]}."
            log.error("GpuWidget.%s can't be %s: give %s. %s", name, _shown(value), _RANGES[name], used)
            if name == "prometheus_matchers":
                log.error(
                    "There is no cluster view, because it would show machines that the matchers exclude."
                )
                hide_cluster = True
        else:
            good.merge(alone)
    loaded = GpuWidget(config=good)
    if hide_cluster:
        loaded.prometheus_url = ""
    return loaded


def choose_source(trait: str, clock: Clock, log: Logger) -> Source:
    """Return the source that GPUWIDGET_SOURCE or else ``trait`` selects, without opening it.

    If the selection is invalid, return a source without GPUs, whose reason explains how to fix the selection.
    There is no fallback to another source, because users would mistake its GPUs for the requested ones.
    """
    variable = os.environ.get(SOURCE_VARIABLE, "").strip()
    where = SOURCE_VARIABLE if variable else "GpuWidget.source"
    choice = variable or trait
    try:
        source = open_source(choice, clock)
    except OptionError as error:
        reason = f"{where} can't be used. {error}"
        log.error("%s", reason)
        return NoSource(english_message("source-invalid", reason, setting=where, error=str(error)))
    if choice.strip() == "none":
        return NoSource(switched_off(where))
    return source


def journal_variables(settings: GpuWidget) -> dict[str, str]:
    """Return the environment variables that tell kernels the settings of the journal, without those that are
    already set."""
    wanted = JournalSettings(settings.journal, settings.journal_seconds, settings.journal_printed)
    return {name: value for name, value in wanted.variables().items() if name not in os.environ}


def server_user() -> str:
    """Return the name of the user whose server this is: JupyterHub's, else the login name or user id."""
    try:
        return os.environ.get("JUPYTERHUB_USER") or getpass.getuser()
    except (KeyError, OSError):  # A container's user id may have no name.
        return str(os.getuid())


def install_command(trait: str, log: Logger) -> str | None:
    """Return the ``pip install`` command for gpuwidget, if the environment variable or the trait configures
    it.

    The requirement is exported to the kernels and terminals that this process starts, where the doctor uses
    it. Returns None if no requirement is configured, or if it is invalid; in the second case the error is
    logged.
    """
    requirement = os.environ.get(REQUIREMENT_VARIABLE, "").strip() or trait
    if not requirement:
        return None
    try:
        words = pip_arguments(requirement, __version__)
    except ValueError as error:
        log.error("%s can't be used: %s.", REQUIREMENT_VARIABLE, error)
        return None
    os.environ[REQUIREMENT_VARIABLE] = requirement
    return f"pip install {shlex.join(words)}"


def configured_prometheus(settings: GpuWidget, log: Logger) -> PrometheusSettings | None:
    """Return the configured Prometheus server, or None if there is none.

    If a setting is invalid, log the error and return None. No default replaces it, because without the
    administrator's matchers, for example, users would see more machines than they should.
    """
    if not settings.prometheus_url.strip():
        return None
    try:
        return prometheus_settings(
            settings.prometheus_url,
            ca_file=settings.prometheus_ca_file,
            token_file=settings.prometheus_token_file,
            matchers=settings.prometheus_matchers,
            timeout_s=settings.prometheus_timeout,
        )
    except OptionError as error:
        log.error("GpuWidget.%s There is no cluster view.", error)
        return None


def _shown(value: Any) -> str:
    # A value from the command line is not parsed yet. Its repr() would show traitlets' wrapper object.
    shown = repr(str(value)) if isinstance(value, str) else repr(value)
    return without_passwords(shown)
