"""``gpuwidget usage``: GPU-hours by user, notebook or kernel, read from Prometheus, as a table or JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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


@dataclass(frozen=True, slots=True)
class UsageOptions:
    """The options of the command."""

    since_s: float
    group: UseGroup
    url: str | None
    """Address of Prometheus. None for the one in Jupyter's configuration, with the other settings there."""
    ca_file: Path | None
    token_file: Path | None
    as_json: bool


def run(options: UsageOptions, width: int) -> str:
    """Return the text to print. Raises OptionError and PrometheusError."""
    configured = server_settings()
    settings = _settings(options, configured)
    uses = gpu_use(PrometheusClient(settings), settings.matchers, options.group, options.since_s)
    price = _number_from(configured, "gpu_hour_price")
    # The server ignores a negative price, too.
    price = None if price is None or price < 0 else price
    currency = str(configured.get("gpu_hour_currency", ""))
    if options.as_json:
        rows = [to_json(use) | _price(use, price, currency) for use in uses]
        return json.dumps({"since_s": options.since_s, "by": options.group, "use": rows}, indent=2)
    if not uses:
        return (
            "No server has counted any GPU-hours in that time. c.GpuWidget.gpu_hours turns counting on, and "
            "Prometheus must scrape the servers."
        )
    return "\n".join(_table(uses, options.group, price, currency, width))


def _settings(options: UsageOptions, configured: Mapping[str, Any]) -> PrometheusSettings:
    timeout_s = _number_from(configured, "prometheus_timeout")
    timeout_s = TIMEOUT_S if timeout_s is None else timeout_s
    if options.url is not None:
        # A token is sent only to the server for which it is configured.
        return prometheus_settings(
            options.url,
            ca_file=str(options.ca_file or ""),
            token_file=str(options.token_file or ""),
            timeout_s=timeout_s,
        )
    url = str(configured.get("prometheus_url", ""))
    if not url.strip():
        raise OptionError(_NO_PROMETHEUS)
    return prometheus_settings(
        url,
        ca_file=str(options.ca_file or configured.get("prometheus_ca_file", "")),
        token_file=str(options.token_file or configured.get("prometheus_token_file", "")),
        matchers=str(configured.get("prometheus_matchers", "")),
        timeout_s=timeout_s,
    )


def _number_from(configured: Mapping[str, Any], name: str) -> float | None:
    """Return a setting that is a number, or None if it is missing or no number."""
    value = configured.get(name)
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None


def _price(use: GpuUse, price: float | None, currency: str) -> dict[str, object]:
    if price is None:
        return {"price": None, "currency": None}
    return {"price": price * use.held_s / _HOUR_S, "currency": currency}


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
            _number(use.held_s, _HOUR_S),
            _number(use.busy_s, _HOUR_S),
            _number(use.memory_byte_s, _GIB * _HOUR_S),
            _number(use.energy_j, _JOULES_PER_KWH),
            *([f"{price * use.held_s / _HOUR_S:.2f}"] if price is not None else []),
        )
        for use in uses
    ]
    return format_table(columns, rows, width)


def _number(value: float | None, unit: float) -> str:
    return UNKNOWN if value is None else f"{value / unit:.2f}"
