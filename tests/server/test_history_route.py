"""The history route with its metrics, the ``always_on`` trait, and when the hardware counters are read."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import pytest
from fakes import FakeSource, gpu
from helpers_server import Server, Stream

from gpuwidget.model.metrics import keys
from gpuwidget.model.readings import Activity
from gpuwidget.server import wire
from gpuwidget.server.history_metrics import METRICS

NAMES = ", ".join(METRICS)


async def sampled(server: Server, ticks: int = 3) -> tuple[Stream, list[Any]]:
    """Connect a client to the stream, and return the stream with the first ``ticks`` samples."""
    stream = await server.stream()
    await stream.next()
    return stream, [(await stream.next())["sample"] for _ in range(ticks)]


async def test_requested_metrics(server: Server) -> None:
    """The history route returns the requested metrics of every GPU, and the step in seconds."""
    _, seen = await sampled(server)
    status, course = await server.get(
        "history", metrics="temperature_c,utilization", seconds=600, points=4000
    )
    assert status == 200
    assert set(course) == {field.name for field in fields(wire.MetricHistory)}
    assert course["step_s"] == 0
    assert course["t"][:3] == [round(one["time"], 3) for one in seen]
    assert [one["uuid"] for one in course["gpus"]] == [gpu(0).uuid, gpu(1).uuid]
    for one in course["gpus"]:
        assert list(one["metrics"]) == ["temperature_c", "utilization"]
        assert one["metrics"]["utilization"] == {"mean": [50.0] * len(course["t"]), "min": None, "max": None}


async def test_all_metrics_in_a_time_range(server: Server) -> None:
    """``metrics=all`` returns every metric with known values,
    and ``since`` and ``until`` limit the time range."""
    _, seen = await sampled(server, 5)
    since, until = seen[1]["time"], seen[3]["time"]
    _, course = await server.get("history", metrics="all", since=since, until=until)
    assert (course["since"], course["until"]) == (since, until)
    assert course["t"] == [round(one["time"], 3) for one in seen[1:4]]
    assert list(course["gpus"][0]["metrics"]) == list(METRICS[:7])


async def test_time_ranges_are_limited_to_the_last_hour(server: Server) -> None:
    """If a requested time range begins more than an hour ago or ends in the future, it is cut.
    The reply contains the range that was used."""
    await sampled(server, 1)
    assert server.clock is not None
    _, course = await server.get("history", since=0, until=4e9)
    now = server.clock.time()
    assert now - 1 < course["until"] <= now
    assert round(course["until"] - course["since"]) == 3600


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ({"metrics": "utilisation"}, f"metrics must be all, or a comma-separated list of these: {NAMES}."),
        ({"metrics": ""}, f"metrics must be all, or a comma-separated list of these: {NAMES}."),
        (
            {"metrics": "all,utilization"},
            f"metrics must be all, or a comma-separated list of these: {NAMES}.",
        ),
        ({"points": "1"}, "points must be a whole number from 2 to 4000."),
        ({"points": "4001"}, "points must be a whole number from 2 to 4000."),
        ({"points": "2.5"}, "points must be a whole number from 2 to 4000."),
        ({"points": "nan"}, "points must be a whole number from 2 to 4000."),
        ({"since": "yesterday"}, "since must be a number of seconds since the epoch."),
        ({"until": "inf"}, "until must be a number of seconds since the epoch."),
        ({"since": "2", "until": "1"}, "since must not be later than until."),
        ({"since": "1", "seconds": "1"}, "since and seconds both set the start: give only one of them."),
        ({"metrics": "all", "seconds": "3601"}, "seconds must be a number of seconds from 0 to 3600."),
    ],
)
async def test_invalid_queries_are_refused(server: Server, query: dict[str, str], sentence: str) -> None:
    """The history route answers an invalid query with status 400 and a sentence that names the allowed
    values."""
    status, answer = await server.get("history", **query)
    assert (status, answer["message"]) == (400, sentence)
    assert not server.hub._sampler.wanted


async def test_the_reply_is_json_and_does_not_count_as_activity(server: Server) -> None:
    """The history route returns JSON.
    A request does not count as activity, so an idle server can still be culled."""
    before = server.app.web_app.last_activity()
    answer = await server.fetch("gpuwidget", "api", "history", params={"metrics": "all"})
    assert answer.headers["Content-Type"] == "application/json"
    assert json.loads(answer.body)["gpus"] == []
    assert server.app.web_app.last_activity() == before


async def test_counters_are_read_while_a_client_requests_them(server: Server, source: FakeSource) -> None:
    """The hardware counters are read only while at least one client of the stream requests them."""
    source.activity[0] = Activity(since=1.0, until=2.0, **dict.fromkeys(keys("activity"), 7.0))
    stream, _ = await sampled(server, 10)
    assert source.calls["activity"] == 0
    await stream.send({"type": "activity", "wanted": True})
    sample = (await stream.next())["sample"]
    while sample["readings"][0]["activity"] is None:
        sample = (await stream.next())["sample"]
    assert sample["readings"][0]["activity"]["tensor"] == 7.0
    late = await server.stream()
    await late.next()
    await late.send({"type": "activity", "wanted": True})
    await server.until(lambda: len(server.hub._activity_clients) == 2)
    await stream.send({"type": "activity", "wanted": False})
    await server.until(lambda: len(server.hub._activity_clients) == 1)
    assert server.hub._activity is not None
    late.close()
    await server.until(lambda: server.hub._activity is None)
    await server.until(lambda: source.calls["forget"] > 0)
    calls = source.calls["activity"]
    for _ in range(20):
        await stream.next()
    assert source.calls["activity"] == calls
    _, course = await server.get("history", metrics="tensor", seconds=3600, points=2)
    known = {one["uuid"]: one["metrics"] for one in course["gpus"]}
    assert 7.0 in known[gpu(0).uuid]["tensor"]["mean"]
    assert known[gpu(1).uuid] == {}


@pytest.mark.parametrize(
    "message",
    [
        "",
        "{",
        "[]",
        '"activity"',
        '{"type": "activity"}',
        '{"type": "activity", "wanted": 1}',
        '{"type": "activity", "wanted": true, "more": "' + 200 * "x" + '"}',
        b"\xff\xfe",
    ],
)
async def test_invalid_messages_are_ignored(server: Server, message: str | bytes) -> None:
    """The server ignores a client's invalid message, and the stream continues."""
    stream, _ = await sampled(server, 1)
    await stream.send(message)
    for _ in range(3):
        assert (await stream.next())["type"] == "sample"
    assert server.hub._activity is None


class TestAlwaysOn:
    """A server with ``c.GpuWidget.always_on = True``."""

    @pytest.fixture
    def configuration(self) -> dict[str, object]:
        return {"always_on": True}

    async def test_the_history_starts_before_the_first_client(
        self, server: Server, source: FakeSource
    ) -> None:
        """With ``always_on``, the server reads the GPUs and their hardware counters from its start,
        and the first client receives the history since then."""
        source.activity[0] = Activity(since=1.0, until=2.0, **dict.fromkeys(keys("activity"), 7.0))
        await server.until(lambda: source.calls["activity"] > 3 and source.calls["fast"] > 20)
        hello = await (await server.stream()).next()
        assert hello["sample"] is not None
        assert len(hello["history"]["t"]) > 5
        _, course = await server.get("history", metrics="tensor")
        assert 7.0 in course["gpus"][0]["metrics"]["tensor"]["mean"]

    async def test_sampling_continues_without_clients(self, server: Server, source: FakeSource) -> None:
        """With ``always_on``, sampling continues after the last client disconnects,
        until the server stops."""
        stream, _ = await sampled(server)
        stream.close()
        await server.until(lambda: not server.hub._clients)
        calls = source.calls["fast"]
        await server.until(lambda: source.calls["fast"] > calls + 20)
        server.hub.close()
        assert not server.hub._sampler.wanted
        assert server.hub._activity is None


async def until_type(stream: Stream, kind: str) -> Any:
    """Return the stream's next message of this type."""
    while True:
        message = json.loads(str(await stream.next_text()))
        if message["type"] == kind:
            return message


async def set_always_on(server: Server, on: object) -> int:
    """Ask the server to record even without pages, or not, and return the status of the answer."""
    return int((await server.post("history", body=json.dumps({"always_on": on})))[0])


async def test_a_page_can_turn_always_on_on_and_off(server: Server, source: FakeSource) -> None:
    """After a POST with ``always_on``, sampling continues without clients, but not of the hardware counters.
    Open and new streams say so. Another POST turns it off."""
    stream = await server.stream()
    assert (await stream.next())["always_on"] is False
    assert await set_always_on(server, True) == 204
    assert await until_type(stream, "always_on") == {"type": "always_on", "always_on": True}
    stream.close()
    await server.until(lambda: not server.hub._clients)
    calls = source.calls["fast"]
    await server.until(lambda: source.calls["fast"] > calls + 20)
    assert server.hub._activity is None  # other tools use the same counters
    stream = await server.stream()
    assert (await stream.next())["always_on"] is True
    assert await set_always_on(server, False) == 204
    stream.close()
    await server.until(lambda: not server.hub._sampler.wanted)


@pytest.mark.parametrize(
    "body", ['{"always_on": null}', '{"always_on": 1}', "{}", "[true]", "true", "", "{", b"\xff", "[" * 9999]
)
async def test_an_invalid_request_changes_nothing(server: Server, body: str | bytes) -> None:
    """A POST with anything else than true or false returns 400."""
    assert (await server.post("history", body=body))[0] == 400
    assert not server.hub._sampler.wanted


async def test_a_page_of_another_site_changes_nothing(server: Server, jp_auth_header: dict[str, str]) -> None:
    """A POST with only the user's cookie is refused, because it lacks the XSRF token."""
    answer = await server.fetch("api", "status")
    cookies = [one.partition(";")[0] for one in answer.headers.get_list("Set-Cookie")]
    jp_auth_header.clear()
    jp_auth_header["Cookie"] = "; ".join([*cookies, "_xsrf=0123456789abcdef"])
    assert await set_always_on(server, True) == 403
    jp_auth_header["X-XSRFToken"] = "0123456789abcdef"
    assert await set_always_on(server, True) == 204


async def test_read_permission_is_not_enough(server: Server) -> None:
    """A user with only read permission can't change what the server stores."""

    async def only_read(handler: Any, user: Any, action: str, resource: str) -> bool:
        return action == "read"

    server.app.authorizer.is_authorized = only_read
    assert (await server.get("history"))[0] == 200
    assert await set_always_on(server, True) == 403
    assert not server.hub._always_on


@pytest.mark.parametrize(
    "configuration", [{"allow_always_on": False}, {"allow_always_on": "maybe"}, {"always_on": True}]
)
async def test_the_administrator_decides(server: Server, configuration: dict[str, object]) -> None:
    """If the administrator has set ``always_on``, or does not allow it, a page can't change it."""
    assert (await (await server.stream()).next())["always_on"] is None
    before = server.hub._always_on
    assert [await set_always_on(server, on) for on in (True, False)] == [403, 403]
    assert server.hub._always_on is before is configuration.get("always_on", False)


@pytest.mark.parametrize("configuration", [{"source": "replay"}])
async def test_a_recording_begins_with_two_minutes_of_history(real_server: Server) -> None:
    """Under a recording, the first page receives the last two minutes, in which GPUs train."""
    hello = await (await real_server.stream()).next()
    history = hello["history"]
    assert 119.0 <= history["t"][-1] - history["t"][0] <= 120.0
    for one in history["gpus"]:
        assert max(one["utilization"]) >= 98.0
        assert None not in one["memory_used"]


@pytest.mark.parametrize(
    ("configuration", "expected"),
    [
        (
            {"always_on": "maybe"},
            "GpuWidget.always_on can't be 'maybe': give True or False. Its default, False, is used.",
        )
    ],
)
async def test_an_invalid_value_of_always_on(
    server: Server, configuration: dict[str, object], expected: str, logged: list[str]
) -> None:
    """If the value of ``always_on`` is invalid, this is logged, and the server does not start sampling."""
    assert logged == [expected]
    assert not server.hub._sampler.wanted


@pytest.mark.parametrize("jp_argv", [["--GpuWidget.always_on=True"]])
async def test_always_on_on_the_command_line(server: Server, jp_argv: list[str], source: FakeSource) -> None:
    """``--GpuWidget.always_on=True`` on the command line starts sampling without a client."""
    await server.until(lambda: source.calls["fast"] > 4)
    assert not server.hub._clients
