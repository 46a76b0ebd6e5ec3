"""Rate limits of stream clients that request fewer samples than the server takes."""

from __future__ import annotations

import pytest
from fakes import EPOCH, FakeClock
from helpers_server import Server, Stream

from gpuwidget.server.rate_limit import RateLimit


def sent(interval_s: float, moments: list[float]) -> list[float]:
    """Return the times in ``moments`` at which a client with this interval gets a sample
    from a server that samples at 5 Hz."""
    rate_limit: RateLimit[str] = RateLimit(0.2)
    rate_limit.set_interval("client", interval_s)
    return [moment for moment in moments if rate_limit.due("client", moment)]


CHUNK_TICKS = [round(0.2 * tick, 1) for tick in range(16)]


@pytest.mark.parametrize(
    ("interval_s", "moments"),
    [
        (0.0, CHUNK_TICKS),
        (0.1, CHUNK_TICKS),
        (0.2, CHUNK_TICKS),
        (0.5, [0.0, 0.6, 1.2, 1.8, 2.4, 3.0]),
        (1.0, [0.0, 1.0, 2.0, 3.0]),
        (60.0, [0.0]),
    ],
)
def test_intervals_are_rounded_up_to_the_servers(interval_s: float, moments: list[float]) -> None:
    """A client gets the first sample and then one per interval,
    which is rounded up to a multiple of the server's interval."""
    assert sent(interval_s, CHUNK_TICKS) == moments


def test_a_late_sample_does_not_delay_the_next() -> None:
    """If a sample is taken slightly early or late, it is still sent,
    and the client's next sample is sent on time."""
    assert sent(0.4, [0.0, 0.2, 0.43, 0.6, 0.79, 1.0, 1.2]) == [0.0, 0.43, 0.79, 1.2]


def test_each_client_has_a_separate_limit() -> None:
    """Each client has a separate rate limit, which is removed together with the client."""
    rate_limit: RateLimit[str] = RateLimit(0.2)
    rate_limit.set_interval("slow", 10.0)
    assert [rate_limit.due(client, 0.0) for client in ("slow", "quick")] == [True, True]
    assert [rate_limit.due(client, 1.0) for client in ("slow", "quick")] == [False, True]
    rate_limit.set_interval("slow", 0.0)
    assert rate_limit.due("slow", 1.2)
    rate_limit.set_interval("slow", 10.0)
    rate_limit.remove("slow")
    rate_limit.remove("slow")
    assert [rate_limit.due("slow", 1.4), rate_limit.due("slow", 1.6)] == [True, True]


@pytest.mark.parametrize("configuration", [{"interval": 0.5}])
async def test_a_client_can_request_fewer_samples(server: Server, clock: FakeClock) -> None:
    """A client that requests one sample per two seconds gets every fourth sample,
    and another client gets all of them. Invalid requests are ignored."""
    server = server.with_still_clock()
    slow, quick = await server.stream(), await server.stream()
    for stream in (slow, quick):
        await stream.next()
    for nonsense in ('"rate"', '{"type":"rate"}', '{"type":"rate","interval_s":-1}', "NaN", "[1]"):
        await slow.send(nonsense)
    await slow.send('{"type":"rate","interval_s":true}')
    await slow.send('{"type":"rate","interval_s":NaN}')
    await slow.send('{"type":"rate","interval_s":2.0}')
    await server.until(lambda: bool(server.hub._rate_limit._intervals))
    assert list(server.hub._rate_limit._intervals.values()) == [2.0]
    for _ in range(9):
        await server.until(lambda: clock.is_awaited(0.5))
        clock.advance(0.5)
        assert await sample_times(quick, clock.time()) == [clock.time()]
    assert await sample_times(slow, EPOCH + 4.5) == [EPOCH + 0.5, EPOCH + 2.5, EPOCH + 4.5]
    slow.close()
    await server.until(lambda: not server.hub._rate_limit._intervals)


async def sample_times(stream: Stream, last: float) -> list[float]:
    """Return the times of the stream's next samples up to ``last``, without a sample at time ``EPOCH``."""
    times: list[float] = []
    while not times or times[-1] < last:
        times.append((await stream.next())["sample"]["time"])
    return [time for time in times if time > EPOCH]
