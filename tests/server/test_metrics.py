"""The route that Prometheus scrapes:
its permissions, its values while no client is connected, and how long sampling continues after a scrape."""

from __future__ import annotations

import asyncio
import re
import threading
from typing import Any

import pytest
from fakes import FakeSource, gpu
from helpers_samples import GIB, process
from helpers_server import Server
from prometheus_client.parser import text_string_to_metric_families
from server.test_memory_ownership import pid_of, start_kernel, start_session
from tornado.httpclient import HTTPClientError

from gpuwidget.server import handlers
from gpuwidget.server.prometheus import CONTENT_TYPE

KEPT_S = 150.0


@pytest.fixture
def user(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start the server for JupyterHub's user ``anna``."""
    monkeypatch.setenv("JUPYTERHUB_USER", "anna")


async def scrape(server: Server) -> Any:
    """Scrape the metrics while the fake clock advances, and return the reply."""
    asked = asyncio.ensure_future(server.fetch("gpuwidget", "metrics"))
    await server.until(asked.done)
    return asked.result()


async def values(server: Server) -> dict[str, list[float]]:
    """Scrape the metrics, and return the values of each metric, ordered by GPU."""
    return values_of(await scrape(server))


def values_of(answer: Any) -> dict[str, list[float]]:
    """Return the values of each metric in one reply, ordered by GPU."""
    text = answer.body.decode()
    found: dict[str, list[float]] = {}
    for family in text_string_to_metric_families(text):
        for one in family.samples:
            found.setdefault(one.name, []).append(one.value)
    return found


async def test_the_first_scrape_is_complete(server: Server, source: FakeSource) -> None:
    """Even if no client is connected, the first scrape contains all readings,
    including those that are rarely read. It is in Prometheus's text format."""
    answer = await scrape(server)
    assert (answer.code, answer.headers["Content-Type"]) == (200, CONTENT_TYPE)
    found = values_of(answer)
    assert found["gpuwidget_gpu_up"] == [1.0, 1.0]
    assert found["gpuwidget_gpu_memory_used_bytes"] == [1_000_000.0, 1_000_000.0]
    assert found["gpuwidget_gpu_utilization_ratio"] == [0.5, 0.5]
    assert found["gpuwidget_gpu_energy_joules_total"] == [1000.0, 1000.0]
    assert found["gpuwidget_gpu_temperature_celsius"] == [40.0, 40.0]


async def test_memory_by_notebook_without_clients(user: None, server: Server, source: FakeSource) -> None:
    """Even if no client is connected,
    the first scrape contains the GPU memory and the id of each notebook, but not its name."""
    session = await start_session(server, "work/train.ipynb")
    kernel = session["kernel"]["id"]
    await server.until(
        lambda: server.app.kernel_manager.get_kernel(kernel).execution_state in ("idle", "starting")
    )
    source.processes[0] = (process(pid_of(server, kernel), 20 * GIB), process(3_999_999, 7 * GIB))
    text = (await scrape(server)).body.decode()
    one = gpu(0)
    assert (
        f'gpuwidget_kernel_memory_bytes{{UUID="{one.uuid}",gpu="0",kernel="{kernel}",mig="",'
        f'model="{one.name}",source="driver"}} 2.147483648e+10'
    ) in text
    assert re.search(
        f'gpuwidget_kernel_info{{kernel="{kernel}",kind="notebook",name="",notebook="[0-9a-f]{{12}}",'
        'path="",spec="python3",user="anna"} 1.0',
        text,
    )
    assert "train" not in text


@pytest.mark.parametrize("configuration", [{"metrics_names": True}])
async def test_names_where_the_administrator_exports_them(
    server: Server, source: FakeSource, configuration: dict[str, object]
) -> None:
    """With ``GpuWidget.metrics_names``, the metrics also contain the name and path of each notebook."""
    session = await start_session(server, "work/train.ipynb")
    kernel = session["kernel"]["id"]
    source.processes[0] = (process(pid_of(server, kernel), 20 * GIB),)
    text = (await scrape(server)).body.decode()
    assert 'name="train.ipynb"' in text
    assert 'path="work/train.ipynb"' in text


async def test_two_concurrent_scrapes(server: Server, source: FakeSource) -> None:
    """Two scrapes at the same time open the driver only once."""
    both = asyncio.gather(scrape(server), scrape(server))
    answers = await both
    assert [one.code for one in answers] == [200, 200]
    assert source.calls["open"] == 1
    assert server.hub._subscription is not None
    assert server.hub._subscription.interval_s == 2.0


async def test_a_machine_without_a_gpu(server: Server, source: FakeSource) -> None:
    """On a machine without a driver, the scrape succeeds and reports zero GPUs."""
    source.gpus, source.present, source.kind, source.reason = [], [], "none", "No driver."
    found = await values(server)
    assert found["gpuwidget_gpus"] == [0.0]
    assert "gpuwidget_gpu_up" not in found


async def test_a_missing_session_is_awaited_once(user: None, server: Server, source: FakeSource) -> None:
    """The first scrape waits until the kernels' sessions are known.
    If a kernel has no session, later scrapes do not wait for it again."""
    kernel = await start_kernel(server)
    source.processes[0] = (process(pid_of(server, kernel), GIB),)
    text = (await scrape(server)).body.decode()
    assert (
        f'gpuwidget_kernel_info{{kernel="{kernel}",kind="",name="",notebook="",path="",spec="python3",'
        'user="anna"} 1.0'
    ) in text
    assert (await server.fetch("gpuwidget", "metrics")).code == 200


async def test_sampling_continues_slowly_between_scrapes(server: Server, source: FakeSource) -> None:
    """After a scrape, the driver stays open and sampling continues at a low rate, so that the next scrape
    returns a recent sample at once. Without clients, no sample is encoded or stored."""
    await scrape(server)
    subscription = server.hub._subscription
    assert subscription is not None
    assert subscription.interval_s == 2.0
    opened, read = source.calls["open"], source.calls["fast"]
    assert (await server.fetch("gpuwidget", "metrics")).code == 200
    assert server.hub._subscription is subscription
    assert (source.calls["open"], source.calls["fast"]) == (opened, read)
    assert server.hub._newest is None
    assert (await server.get("history"))[1]["t"] == []


async def test_sampling_ends_after_the_last_scrape(server: Server) -> None:
    """Sampling ends 150 seconds after the last scrape. A later scrape starts it again."""
    await scrape(server)
    clock = server.clock
    assert clock is not None
    begun = clock.monotonic()
    clock.advance(KEPT_S - 5)
    assert server.hub._sampler.wanted
    await server.until(lambda: not server.hub._sampler.wanted)
    assert KEPT_S <= clock.monotonic() - begun <= KEPT_S + 3
    assert not server.hub._ownership._enabled
    assert (await values(server))["gpuwidget_gpu_up"] == [1.0, 1.0]


async def test_a_client_between_scrapes(server: Server) -> None:
    """While Prometheus scrapes, an open panel still gets samples at the panel's rate.
    When the panel closes, sampling returns to the low rate for scrapes."""
    await scrape(server)
    stream = await server.stream()
    assert (await stream.next())["type"] == "hello"
    assert (await stream.next())["type"] == "sample"
    assert server.hub._subscription is not None
    assert server.hub._subscription.interval_s == 0.2
    assert (await values(server))["gpuwidget_gpus"] == [2.0]
    stream.close()
    await server.until(lambda: not server.hub._clients)
    assert server.hub._subscription is not None
    assert server.hub._subscription.interval_s == 2.0
    look = asyncio.ensure_future(server.get("sample"))
    await server.until(look.done)
    status, sample = look.result()
    assert (status, len(sample["gpus"])) == (200, 2)


@pytest.mark.parametrize("configuration", [{"always_on": True, "interval": 30.0}])
async def test_slow_sampling_returns_the_newest_sample(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the server is configured to take a sample only every 30 seconds,
    a scrape returns the newest sample instead of failing."""
    await server.until(lambda: server.hub._newest is not None)
    monkeypatch.setattr(handlers, "_SAMPLE_TIMEOUT_S", 0.01)
    answer = await server.fetch("gpuwidget", "metrics")
    assert values_of(answer)["gpuwidget_gpu_up"] == [1.0, 1.0]


async def test_a_hung_driver_returns_503(
    server: Server, source: FakeSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the driver hangs, the scrape fails with 503, and sampling does not continue."""
    source.hang_in_open = threading.Event()
    monkeypatch.setattr(handlers, "_SAMPLE_TIMEOUT_S", 0.01)
    with pytest.raises(HTTPClientError) as failed:
        await server.fetch("gpuwidget", "metrics")
    assert failed.value.code == 503
    assert not server.hub._sampler.wanted


async def test_a_stuck_sampler_returns_no_old_values(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """If no sample has arrived for more than 10 seconds,
    the scrape fails instead of returning the previous sample again."""
    await scrape(server)
    monkeypatch.setattr(handlers, "_SAMPLE_TIMEOUT_S", 0.01)
    monkeypatch.setattr(server.hub, "_process_arrived", lambda: None)
    assert server.clock is not None
    server.clock.advance(11.0)
    with pytest.raises(HTTPClientError) as failed:
        await server.fetch("gpuwidget", "metrics")
    assert failed.value.code == 503


async def test_a_gpu_that_hangs_is_not_up(server: Server, source: FakeSource) -> None:
    """If one GPU hangs, the scrape reports that GPU as not up, and still contains the other GPU's values."""
    await scrape(server)
    source.hanging[0] = threading.Event()
    await server.until(lambda: source.calls["fast 1"] > 4)
    found = await values(server)
    while found["gpuwidget_gpu_up"] != [0.0, 1.0]:
        await server.until(lambda: True)
        found = await values(server)
    assert found["gpuwidget_gpu_memory_used_bytes"] == [1_000_000.0]


async def test_no_metrics_without_the_token(server: Server, jp_auth_header: dict[str, str]) -> None:
    """The metrics require the server's token, which Prometheus sends as a bearer token."""
    token = jp_auth_header["Authorization"].partition(" ")[2]
    for header in ("", "Bearer wrong", "token wrong"):
        jp_auth_header["Authorization"] = header
        with pytest.raises(HTTPClientError) as refused:
            await server.fetch("gpuwidget", "metrics")
        assert refused.value.code == 403
    assert not server.hub._sampler.wanted
    jp_auth_header["Authorization"] = f"Bearer {token}"
    assert (await scrape(server)).code == 200


async def test_no_metrics_without_permission(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the server's authorizer denies reading ``gpuwidget``, the scrape fails with 403."""
    asked: list[tuple[str, str]] = []

    def refuse(handler: object, user: object, action: str, resource: str) -> bool:
        asked.append((action, resource))
        return False

    monkeypatch.setattr(server.app.authorizer, "is_authorized", refuse)
    with pytest.raises(HTTPClientError) as refused:
        await server.fetch("gpuwidget", "metrics")
    assert (refused.value.code, asked) == (403, [("read", "gpuwidget")])


async def test_scrapes_do_not_count_as_activity(server: Server) -> None:
    """Scrapes do not count as activity, so an idle server can still be culled."""
    before = server.app.web_app.last_activity()
    await scrape(server)
    assert server.app.web_app.last_activity() == before
    assert "api_last_activity" not in server.app.web_app.settings


@pytest.mark.parametrize("jp_base_url", ["/user/a.b+c/"])
async def test_behind_jupyterhub(server: Server, jp_base_url: str) -> None:
    """The metrics route is below the server's base URL, for example behind JupyterHub."""
    assert (await scrape(server)).code == 200
