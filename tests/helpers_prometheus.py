"""A real Prometheus that scrapes the server under test."""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from helpers_programs import RunningProgram, free_ports, skip

from tools import prometheus

DEPLOY = Path(__file__).parents[1] / "deploy"
ALERTS = DEPLOY / "prometheus" / "alerts.yml"
RECORDING_RULES = DEPLOY / "prometheus" / "recording-rules.yml"
SERVER_DASHBOARD = DEPLOY / "grafana" / "server.json"
FLEET_DASHBOARD = DEPLOY / "grafana" / "fleet.json"
_VARIABLES = {"$instance": ".*", "$node": ".*", "$user": ".*", "$__range": "1h"}
_PATIENCE_S = 60.0
_POLL_S = 0.1


def find_programs() -> dict[str, str]:
    """Return the paths of Prometheus and promtool, or skip the test if they are missing."""
    found = prometheus.find()
    if found is None:
        skip(prometheus.MISSING)
    return found


class Prometheus(RunningProgram):
    """A running Prometheus that stores its data in ``folder``."""

    def __init__(
        self,
        program: str,
        folder: Path,
        scrape: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        rules: Sequence[Path] = (),
    ) -> None:
        """Start Prometheus.

        ``scrape`` is an entry of its ``scrape_configs``, like the one in docs/admin/prometheus.md, or
        several. :func:`write_past` may have written samples into ``folder``.
        """
        address = f"127.0.0.1:{free_ports(1)[0]}"
        self.url = f"http://{address}"
        configuration = folder / "prometheus.yml"
        # Prometheus reads YAML, and JSON is valid YAML.
        configuration.write_text(
            json.dumps(
                {
                    "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
                    "rule_files": [str(path) for path in rules],
                    "scrape_configs": [scrape] if isinstance(scrape, Mapping) else list(scrape),
                }
            )
        )
        command = [
            program,
            f"--config.file={configuration}",
            f"--storage.tsdb.path={folder / 'data'}",
            "--storage.tsdb.retention.time=60d",
            f"--web.listen-address={address}",
        ]
        super().__init__(command, folder / "prometheus.log")

    def wait_until_ready(self) -> None:
        """Wait until Prometheus answers queries."""
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            try:
                _get(f"{self.url}/api/v1/status/buildinfo")
            except OSError:
                if time.monotonic() > deadline or self.process.poll() is not None:
                    raise AssertionError(f"Prometheus does not run:\n{self.log}") from None
                time.sleep(_POLL_S)
            else:
                return

    async def api(self, path: str, **query: str) -> Any:
        """Wait until Prometheus accepts requests, send a request to its HTTP API,
        and return the decoded reply."""
        address = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            try:
                # Send the request in a thread,
                # because the server that Prometheus scrapes runs on this event loop.
                return await asyncio.to_thread(_get, address)
            except (urllib.error.URLError, OSError) as error:
                # While Prometheus starts, it first refuses the connection and then answers with status 503.
                if isinstance(error, urllib.error.HTTPError) and error.code != 503:
                    raise AssertionError(f"{query}: {error.read().decode()}") from None
                if time.monotonic() > deadline or self.process.poll() is not None:
                    raise AssertionError(f"Prometheus does not run:\n{self.log}") from None
                await asyncio.sleep(_POLL_S)

    async def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """Return the labels (without the metric's name) and the value
        of each series that matches the expression."""
        result = (await self.api("query", query=expression))["data"]["result"]
        return [
            (
                {name: text for name, text in one["metric"].items() if name != "__name__"},
                float(one["value"][1]),
            )
            for one in result
        ]

    async def until(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """Repeat the query until at least one series matches, and return the result of :meth:`query`."""
        deadline = time.monotonic() + _PATIENCE_S
        while not (found := await self.query(expression)):
            if time.monotonic() > deadline:
                targets = await self.api("targets")
                raise AssertionError(f"no {expression}: {json.dumps(targets, indent=1)}\n{self.log}")
            await asyncio.sleep(_POLL_S)
        return found


def dashboard_queries(path: Path) -> list[str]:
    """Return the queries of a Grafana dashboard's panels, with values for its variables."""
    panels = json.loads(path.read_text(encoding="utf-8"))["panels"]
    found: list[str] = [target["expr"] for panel in panels for target in panel["targets"]]
    for name, value in _VARIABLES.items():
        found = [one.replace(name, value) for one in found]
    return found


def _get(address: str) -> Any:
    with urllib.request.urlopen(address, timeout=10) as answer:
        return json.loads(answer.read())


def write_past(promtool: str, folder: Path, series: Mapping[str, Iterable[tuple[float, float]]]) -> None:
    """Write samples of the past into the folder of a Prometheus that is started later.

    ``series`` has the times (in epoch seconds) and values of each series, by its name with its labels.
    """
    lines = []
    for name, samples in series.items():
        lines += [f"# TYPE {name.partition('{')[0]} gauge"]
        lines += [f"{name} {value} {time:.3f}" for time, value in samples]
    text = folder / "past.txt"
    text.write_text("\n".join([*lines, "# EOF"]) + "\n", encoding="utf-8")
    subprocess.run(
        [promtool, "tsdb", "create-blocks-from", "openmetrics", str(text), str(folder / "data")],
        check=True,
        stdout=subprocess.DEVNULL,
    )
