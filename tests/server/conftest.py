"""Fixtures that start a Jupyter server with gpuwidget's extension.
A test controls the server's GPUs and clock."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fakes import FakeClock, FakeSource
from helpers_exporters import SimulatedCluster
from helpers_prometheus import Prometheus, find_programs
from helpers_server import Server
from traitlets.config import Config

import gpuwidget.server
from gpuwidget.model.clock import Clock
from gpuwidget.server.sample_hub import SampleHub

pytest_plugins = ["pytest_jupyter.jupyter_server"]


@pytest.fixture
def clock() -> FakeClock:
    """Return a clock that stands still until the test advances it."""
    return FakeClock()


@pytest.fixture
def source() -> FakeSource:
    """Return a source of GPU readings with two GPUs. A test sets the readings."""
    return FakeSource(gpus=2)


@pytest.fixture
def configuration() -> dict[str, object]:
    """Return the values of the extension's traits.
    A test module or a test's parameters override this fixture."""
    return {}


@pytest.fixture
def jp_server_config(configuration: dict[str, object]) -> Config:
    """Enable only gpuwidget's extension, as the installed ``jupyter_server_config.d`` file does."""
    return Config(
        {"ServerApp": {"jpserver_extensions": {"gpuwidget": True}}, "GpuWidget": dict(configuration)}
    )


@pytest.fixture
def logged() -> list[str]:
    """Return a list to which :func:`hubs` adds the warnings and errors that are logged while the extension is
    loaded."""
    return []


@pytest.fixture
def hubs(monkeypatch: pytest.MonkeyPatch, logged: list[str]) -> Iterator[list[SampleHub]]:
    """Return the sample hub of every server that the test starts, and close the hubs after the test."""
    made: list[SampleHub] = []
    load = gpuwidget.server.load

    def remember(serverapp: Any, clock: Clock) -> SampleHub:
        client = logging.Handler(logging.WARNING)
        client.emit = lambda record: logged.append(client.format(record))  # type: ignore[method-assign]
        serverapp.log.addHandler(client)
        made.append(load(serverapp, clock))
        serverapp.log.removeHandler(client)
        return made[-1]

    monkeypatch.setattr(gpuwidget.server, "load", remember)
    yield made
    for hub in made:
        hub.close()


@pytest.fixture
def fake_devices(
    hubs: list[SampleHub], clock: FakeClock, source: FakeSource, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Make the server use the test's source and clock."""
    monkeypatch.setattr(gpuwidget.server, "SYSTEM_CLOCK", clock)
    monkeypatch.setattr("gpuwidget.server.settings.open_source", lambda *_: source)
    yield
    for event in (*source.hanging.values(), source.hang_in_open):
        if event is not None:
            event.set()


@pytest.fixture
def server(
    fake_devices: None,
    jp_serverapp: Any,
    jp_fetch: Callable[..., Any],
    jp_ws_fetch: Callable[..., Any],
    hubs: list[SampleHub],
    clock: FakeClock,
) -> Server:
    """Return a running server that uses the test's GPUs and clock."""
    (hub,) = hubs
    return Server(jp_serverapp, jp_fetch, jp_ws_fetch, hub, clock)


@pytest.fixture
def real_server(
    hubs: list[SampleHub], jp_serverapp: Any, jp_fetch: Callable[..., Any], jp_ws_fetch: Callable[..., Any]
) -> Server:
    """Return a running server with the system clock.
    Its configuration or the environment selects the source."""
    (hub,) = hubs
    return Server(jp_serverapp, jp_fetch, jp_ws_fetch, hub, None)


@pytest.fixture(scope="module")
def prometheus(cluster: SimulatedCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Return a Prometheus that scrapes the exporters of the module's fixture ``cluster`` every second."""
    program = find_programs()["prometheus"]
    made = Prometheus(program, tmp_path_factory.mktemp("prometheus"), cluster.scrape_configs())
    yield made
    made.stop()
