"""Measure jupyterlab-nvdashboard: delay of other requests to the server, main-thread time, size of scripts.

The benchmarks ``streams`` and ``panel`` measure the same values for gpuwidget. The stand-in GPUs also answer
the NVML calls that only jupyterlab-nvdashboard makes (peer_nvml.c). jupyterlab-nvdashboard runs with its
default settings.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks import pages, peers
from benchmarks.clients import clients
from benchmarks.figures import Figure
from benchmarks.labextensions import compressed_kib
from benchmarks.servers import server
from benchmarks.settings import Settings
from benchmarks.standin import changing, machine
from benchmarks.statistics import alternating, p95
from tools import chromium

_NAME = "dashboard-peer"
_PACKAGES = ("jupyterlab-nvdashboard", "jupyterlab")
_SOURCE = Path(__file__).with_name("peer_nvml.c")
_GPUS = 8
_SETTLE_S = 2.0
_CHARTS = ("gpu_utilization", "gpu_usage", "gpu_resource", "pci_stats", "nvlink_throughput")
_PERIOD_MS = 100
"""Milliseconds between updates; the default of jupyterlab-nvdashboard's setting "Frequency of Updates"."""
_CLIENT_SETTINGS = json.dumps({"updateFrequency": _PERIOD_MS, "isPaused": False})
_CALL_PER_UPDATE = "nvmlDeviceGetMaxPcieLinkWidth"
"""An NVML call that jupyterlab-nvdashboard makes once per update, only in the handler of its PCIe chart."""
_TABS = (
    "gpu-memory-widget",
    "gpu-utilization-widget",
    "gpu-resource-widget",
    "machine-resource-widget",
    "pci-throughput-widget",
    "nvlink-throughput-widget",
)
# jupyterlab-nvdashboard registers its command only when its sidebar is first shown, so show the sidebar.
_SHOW = "app.shell.activateById('gpu-dashboard');"
_OPEN = """
for (const id of argument) { await app.commands.execute('gpu-dashboard-widget:open', {id, title: id}); }
app.shell.collapseLeft();
"""
_SPLIT_TABS = """
const tabs = argument.map(id => [...app.shell.widgets('main')].find(widget => widget.id === id));
tabs.forEach((tab, n) => {
    if (n === 1) { app.shell.add(tab, 'main', {mode: 'split-right', ref: argument[0]}); }
    if (n > 1) { app.shell.add(tab, 'main', {mode: 'split-bottom', ref: argument[n - 2]}); }
});
"""
_COUNT_DRAWN = """
() => [...document.querySelectorAll('.lm-DockPanel-widget:not(.lm-mod-hidden)')]
    .filter(widget => widget.querySelector('svg.recharts-surface')).length
"""


def measure(settings: Settings) -> Iterator[Figure]:
    """Measure requests, page and scripts, if :func:`peers.find` finds an environment with the packages."""
    peer = peers.find(*_PACKAGES)
    if peer is None:
        reason = peers.missing(*_PACKAGES)
        yield Figure(_NAME, "jupyterlab-nvdashboard", "ms", not_measured=reason)
        return
    yield _size(peer)
    with TemporaryDirectory() as folder:
        yield _requests(settings, peer, Path(folder))
    path = chromium.find()
    if path is None:
        yield Figure(_NAME, "jupyterlab-nvdashboard, main thread", "ms", not_measured=chromium.MISSING)
        return
    with TemporaryDirectory() as folder:
        yield from _page(settings, peer, Path(folder), path)


def _size(peer: peers.Peer) -> Figure:
    what = "jupyterlab-nvdashboard's labextension, compressed"
    sizes = compressed_kib(peer.data / "share" / "jupyter" / "labextensions" / "jupyterlab-nvdashboard")
    if sizes is None:
        return Figure(_NAME, what, "KiB", not_measured="its scripts are not where Jupyter looks for them")
    return Figure(_NAME, what, "KiB", values=[sum(sizes)], details=peer.versions)


def _requests(settings: Settings, peer: peers.Peer, folder: Path) -> Figure:
    rounds, window_s = settings.pick(6, 1), settings.pick(20.0, 5.0)
    standin = machine(folder, _GPUS, source=_SOURCE)
    updates: list[float] = []
    counts: list[int] = []
    variables = peers.environment(standin.environment())
    with server(folder, "jupyterlab_nvdashboard", variables, python=peer.python) as running:

        def without_client() -> float:
            time.sleep(_SETTLE_S)
            return p95(running.status_times(window_s))

        def with_client() -> float:
            with clients(running, [f"/nvdashboard/{chart}" for chart in _CHARTS], _CLIENT_SETTINGS):
                time.sleep(_SETTLE_S)
                standin.calls()
                began = time.perf_counter()
                times = running.status_times(window_s)
                updates.append(standin.calls()[_CALL_PER_UPDATE] / (time.perf_counter() - began))
                counts.append(len(times))
                return p95(times)

        pairs = alternating(rounds, without_client, with_client)
    return Figure(
        benchmark=_NAME,
        what="p95 of GET /api/status beside 1 client of nvdashboard's five charts, minus that without",
        unit="ms",
        values=[loaded - idle for idle, loaded in pairs],
        details={
            **peer.versions,
            "p95 without, ms": [idle for idle, _ in pairs],
            "p95 with, ms": [loaded for _, loaded in pairs],
            "requests with": counts,
            f"updates a second of a chart, of {1000 / _PERIOD_MS:g} asked for": updates,
        },
    )


def _page(settings: Settings, peer: peers.Peer, folder: Path, path: str) -> Iterator[Figure]:
    windows = settings.pick(6, 1)
    standin = machine(folder, _GPUS, source=_SOURCE)
    values = _Values()
    standin.scenario(*values())
    variables = peers.environment(standin.environment())
    with pages.notebook(path, folder / "lab", ["pass", "pass"], variables, python=peer.python) as notebook:
        page = pages.Page(notebook, standin, values)

        def main_thread_figure(what: str) -> Figure:
            standin.calls()
            began = time.perf_counter()
            busy = [page.window() for _ in range(windows)]
            rate = standin.calls()[_CALL_PER_UPDATE] / (time.perf_counter() - began)
            details = {
                **peer.versions,
                "updates a second of a chart": rate,
                "tabs in view with a chart drawn": notebook.page.evaluate(_COUNT_DRAWN),
            }
            return Figure(_NAME, f"main thread a second, {what}", "ms", values=busy, details=details)

        yield main_thread_figure("nvdashboard installed, no tab of it open")
        notebook.script(_SHOW)
        notebook.page.wait_for_selector(".gpu-dashboard-container")
        notebook.script(_OPEN, _TABS)
        notebook.page.wait_for_timeout(5000)
        yield main_thread_figure("nvdashboard's six tabs as they open, one in view")
        notebook.script(_SPLIT_TABS, _TABS)
        notebook.page.wait_for_timeout(5000)
        yield main_thread_figure("nvdashboard's six tabs in view")
        values.latency = "none"
        notebook.page.wait_for_timeout(5000)
        yield main_thread_figure("nvdashboard's six tabs in view, calls that take no time")


class _Values:
    """Generate scenario lines in which every value changes, including PCIe and NVLink traffic."""

    def __init__(self) -> None:
        self.latency = "h200"
        self._nvlink_bytes = [0] * _GPUS

    def __call__(self) -> list[str]:
        lines = [*changing(_GPUS), f"latency={self.latency}"]
        for gpu in range(_GPUS):
            self._nvlink_bytes[gpu] += random.randint(0, 2_000_000)
            lines += [
                f"gpu.{gpu}.nvlink={self._nvlink_bytes[gpu]}",
                f"gpu.{gpu}.pcie_tx={random.randint(0, 40_000_000)}",
                f"gpu.{gpu}.pcie_rx={random.randint(0, 40_000_000)}",
            ]
        return lines
