"""``gpuwidget usage``: GPU-hours by user, notebook or kernel, read from Prometheus, as a table or JSON."""

from __future__ import annotations

import argparse
import json
import math
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gpuwidget.cli.command import Command, add_json_option
from gpuwidget.cli.jupyter_config import server_settings
from gpuwidget.model.errors import OptionError
from gpuwidget.model.terminal_text import TableColumn, format_table, printable
from gpuwidget.model.to_json import to_json
from gpuwidget.model.units import UNKNOWN
from gpuwidget.prometheus.client import PrometheusClient
from gpuwidget.prometheus.settings import TIMEOUT_S, PrometheusSettings, prometheus_settings
from gpuwidget.prometheus.use_queries import GpuUse, UseGroup, gpu_use

_HOUR_S, _GIB, _JOULES_PER_KWH = 3600.0, 1024**3, 3.6e6
_NO_PROMETHEUS = (
    "No Prometheus is configured. Give its address with --prometheus, or set c.GpuWidget.prometheus_url in "
    "jupyter_server_config.py."
)
_TIME_SPAN = re.compile(r"([0-9]{1,6})([mhdw])")
_UNITS_S = {"m": 60, "h": 3600, "d": 86400, "w": 604800}


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--since",
        metavar="TIME",
        type=_time_span,
        default="30d",
        help="how far back, such as 12h, 7d or 4w (default: %(default)s)",
    )
    parser.add_argument(
        "--by", choices=("user", "notebook", "kernel"), default="user", help="default: %(default)s"
    )
    parser.add_argument(
        "--prometheus",
        metavar="URL",
        help="address of Prometheus (default: c.GpuWidget.prometheus_url with its settings in "
        "Jupyter's configuration)",
    )
    parser.add_argument(
        "--ca-file",
        type=Path,
        metavar="FILE",
        help="PEM file with the certificates of the authorities that signed Prometheus's certificate",
    )
    parser.add_argument(
        "--token-file", type=Path, metavar="FILE", help="file with the bearer token for Prometheus"
    )
    add_json_option(parser)


def _time_span(text: str) -> float:
    match = _TIME_SPAN.fullmatch(text)
    seconds = 0 if match is None else int(match[1]) * _UNITS_S[match[2]]
    if not seconds:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a time: give a number and m, h, d or w, such as 30d"
        )
    return float(seconds)


def _run(options: argparse.Namespace) -> int:
    # If stdout is not a terminal, do not truncate lines to 80 characters.
    print(_usage(options, shutil.get_terminal_size((160, 24)).columns), flush=True)
    return 0


COMMAND = Command(
    description="Show how many GPU-hours users, notebooks or kernels have used, according to "
    "Prometheus. Servers count GPU-hours if c.GpuWidget.gpu_hours is on.",
    add_options=_add_options,
    run=_run,
)


def _usage(options: argparse.Namespace, width: int) -> str:
    """Return the text to print. Raises OptionError and PrometheusError."""
    configured = server_settings()
    settings = _settings(options, configured)
    uses = gpu_use(PrometheusClient(settings), settings.matchers, options.by, options.since)
    price = _number_from(configured, "gpu_hour_price")
    # The server ignores a negative price, too.
    price = None if price is None or price < 0 else price
    currency = str(configured.get("gpu_hour_currency", ""))
    if options.json:
        rows = [
            to_json(use)
            | {
                "price": None if price is None else _cost(use, price),
                "currency": None if price is None else currency,
            }
            for use in uses
        ]
        return json.dumps({"since_s": options.since, "by": options.by, "use": rows}, indent=2)
    if not uses:
        return (
            "No server has counted any GPU-hours in that time. c.GpuWidget.gpu_hours turns counting on, and "
            "Prometheus must scrape the servers."
        )
    return "\n".join(_table(uses, options.by, price, currency, width))


def _settings(options: argparse.Namespace, configured: Mapping[str, Any]) -> PrometheusSettings:
    timeout_s = _number_from(configured, "prometheus_timeout")
    url = options.prometheus
    if url is None:
        url = str(configured.get("prometheus_url", ""))
        if not url.strip():
            raise OptionError(_NO_PROMETHEUS)
    else:
        # A token is sent only to the server for which it is configured.
        configured = {}
    return prometheus_settings(
        url,
        ca_file=str(options.ca_file or configured.get("prometheus_ca_file", "")),
        token_file=str(options.token_file or configured.get("prometheus_token_file", "")),
        matchers=str(configured.get("prometheus_matchers", "")),
        timeout_s=TIMEOUT_S if timeout_s is None else timeout_s,
    )


def _number_from(configured: Mapping[str, Any], name: str) -> float | None:
    """Return a setting that is a number, or None if it is missing or no number."""
    value = configured.get(name)
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None


def _cost(use: GpuUse, price: float) -> float:
    """Return what the use costs at this price of a GPU-hour."""
    return price * use.held_s / _HOUR_S


def _table(
    uses: Sequence[GpuUse], group: UseGroup, price: float | None, currency: str, width: int
) -> list[str]:
    columns = [
        TableColumn("User", right=False, shrinks_to=8),
        *([TableColumn("Notebook", right=False, shrinks_to=12)] if group != "user" else []),
        *([TableColumn("Kernel", right=False, shrinks_to=8)] if group == "kernel" else []),
        TableColumn("GPU-hours held"),
        TableColumn("busy"),
        TableColumn("GiB-hours"),
        TableColumn("kWh"),
        *([TableColumn(printable(currency) or "Price")] if price is not None else []),
    ]
    rows = [
        (
            printable(use.user) or UNKNOWN,
            *([printable(use.path or use.notebook or "none")] if group != "user" else []),
            *([printable(use.kernel or "terminals")] if group == "kernel" else []),
            _figure(use.held_s, _HOUR_S),
            _figure(use.busy_s, _HOUR_S),
            _figure(use.memory_byte_s, _GIB * _HOUR_S),
            _figure(use.energy_j, _JOULES_PER_KWH),
            *([f"{_cost(use, price):.2f}"] if price is not None else []),
        )
        for use in uses
    ]
    return format_table(columns, rows, width)


def _figure(value: float | None, unit: float) -> str:
    return UNKNOWN if value is None else f"{value / unit:.2f}"
